//! Makes the tables of ops and of parallel regions.

use std::collections::HashMap;

use analysis::ops::{CounterSum, OpRow, OpRowKind, ValueSum};
use analysis::{Estimate, MOSTLY_EMPTY};
use model::Unit;
use profile::demangle::{Detail, demangle};
use profile::{CounterInfo, ValueKind};

use super::View;
use crate::view::names::fit;
use crate::view::table::{Column, Quantity, Table, Value};

/// In tables for people, arguments are shortened to this width.
const ARGUMENTS_WIDTH: usize = 36;
pub const ARGUMENTS: &str = "arguments";

/// The readers of a table. They decide which columns the table has.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Readers {
    /// Programs get all columns, with unchanged values.
    Programs,
    /// People get fewer columns and shortened arguments.
    People,
    /// People whose terminal has no room for a column of arguments. If several ops have the same
    /// name, arguments are written after this name.
    PeopleInANarrowPlace,
}

pub fn name(row: &OpRow) -> &str {
    match &row.kind {
        OpRowKind::Op { name, .. } => name,
        OpRowKind::Bookkeeping { names, .. } => names,
        OpRowKind::Between => "(between ops)",
        OpRowKind::Entry => "(entry function)",
        OpRowKind::NoOp => "(outside of ops)",
    }
}

fn kind(row: &OpRow) -> &'static str {
    match row.kind {
        OpRowKind::Op { range: true, .. } => "range",
        OpRowKind::Op { .. } => "op",
        OpRowKind::Bookkeeping { .. } => "bookkeeping",
        OpRowKind::Between => "between",
        OpRowKind::Entry => "entry",
        OpRowKind::NoOp => "no_op",
    }
}

fn arguments(row: &OpRow) -> &str {
    match &row.kind {
        OpRowKind::Op { arguments, .. } => arguments,
        _ => "",
    }
}

fn device(row: &OpRow) -> &str {
    match &row.kind {
        OpRowKind::Op { device, .. } | OpRowKind::Bookkeeping { device, .. } => device,
        _ => "",
    }
}

/// Whether calls return before the device has finished, so that durations are those of launches.
pub fn is_asynchronous(row: &OpRow) -> bool {
    matches!(row.kind, OpRowKind::Op { asynchronous: true, .. })
}

fn title(view: &View<'_>, row: &OpRow) -> String {
    let launch = if is_asynchronous(row) { " (launch time)" } else { "" };
    let outside = match row.outside && view.table.runs > 0 && row.kind != OpRowKind::NoOp {
        true => " (in no run)",
        false => "",
    };
    let range = if matches!(row.kind, OpRowKind::Op { range: true, .. }) { " (range)" } else { "" };
    format!("{}{range}{launch}{outside}", demangle(name(row), Detail::Short))
}

/// Whether several rows have the same title. Such rows differ in their arguments or devices.
pub fn names_are_shared(view: &View<'_>) -> bool {
    titles(view).values().any(|rows| *rows > 1)
}

fn titles(view: &View<'_>) -> HashMap<(Option<u32>, String), usize> {
    let mut titles = HashMap::new();
    for row in view.table.rows.iter().filter(|row| row.kind != OpRowKind::NoOp) {
        *titles.entry((row.rank, title(view, row))).or_default() += 1;
    }
    titles
}

/// Returns the titles of the rows. If several rows have the same title, the title of each gets the
/// row's arguments. If titles are still equal, devices are added, too.
fn full_titles(view: &View<'_>) -> Vec<Option<Value>> {
    let shared = titles(view);
    let with_arguments = |row: &OpRow| {
        let of = (row.rank, title(view, row));
        match shared.get(&of).is_some_and(|rows| *rows > 1) && !arguments(row).is_empty() {
            true => format!("{} ({})", of.1, arguments(row)),
            false => of.1,
        }
    };
    let mut again: HashMap<(Option<u32>, String), usize> = HashMap::new();
    for row in &view.table.rows {
        *again.entry((row.rank, with_arguments(row))).or_default() += 1;
    }
    let full = |row: &OpRow| {
        let of = (row.rank, with_arguments(row));
        match again.get(&of).is_some_and(|rows| *rows > 1) && !device(row).is_empty() {
            true => format!("{} on {}", of.1, device(row)),
            false => of.1,
        }
    };
    view.table.rows.iter().map(|row| Some(Value::Text(full(row)))).collect()
}

/// Shortens arguments so that different ones stay different.
fn short_arguments(rows: &[OpRow]) -> Vec<Option<Value>> {
    let all: Vec<String> = rows.iter().map(|row| arguments(row).to_owned()).collect();
    let short = fit(&all, ARGUMENTS_WIDTH, false).names;
    short.into_iter().map(|text| Some(Value::Text(text))).collect()
}

/// Returns the row's self time as a part of the time of all runs. Without runs, it is a part of the
/// time of all ops.
fn share(view: &View<'_>, row: &OpRow) -> Option<f64> {
    let whole = match view.table.runs {
        0 => view.table.outside,
        _ if row.outside => return None,
        _ => view.table.wall,
    };
    let any = whole.value > 0.0 && row.kind != OpRowKind::NoOp;
    any.then(|| (row.own.value / whole.value).clamp(0.0, 1.0))
}

fn order(view: &View<'_>, key: impl Fn(&OpRow) -> f64) -> Vec<usize> {
    let rows = &view.table.rows;
    let mut order: Vec<usize> = (0..rows.len()).collect();
    order.sort_by(|a, b| {
        let (a, b) = (&rows[*a], &rows[*b]);
        let named = |row: &OpRow| (row.outside, row.kind.clone(), row.rank);
        key(b).total_cmp(&key(a)).then_with(|| named(a).cmp(&named(b)))
    });
    order
}

fn measured(unit: Unit, sum: Estimate) -> Value {
    let quantity = match unit {
        Unit::Nanoseconds => Quantity::Ns,
        Unit::Bytes => Quantity::Bytes,
        _ => Quantity::Count,
    };
    Value::Estimated(quantity, sum, true)
}

fn text(value: &str) -> Option<Value> {
    Some(Value::Text(value.to_owned()))
}

/// Makes the table of ops, sorted by self time.
pub fn ops(view: &View<'_>, readers: Readers) -> Table {
    let people = readers != Readers::Programs;
    let rows = &view.table.rows;
    let line = &view.profile.timeline;
    let cells = |cell: &dyn Fn(&OpRow) -> Option<Value>| rows.iter().map(cell).collect::<Vec<_>>();
    let mut columns = vec![
        Column::new(
            0,
            "op",
            "op",
            match readers {
                Readers::Programs => cells(&|row| text(name(row))),
                Readers::People => cells(&|row| Some(Value::Text(title(view, row)))),
                Readers::PeopleInANarrowPlace => full_titles(view),
            },
        ),
        Column::new(
            3,
            ARGUMENTS,
            ARGUMENTS,
            match people {
                true => short_arguments(rows),
                false => cells(&|row| text(arguments(row))),
            },
        ),
        Column::new(6, "device", "device", cells(&|row| text(device(row)))),
        Column::for_programs("kind", cells(&|row| text(kind(row)))),
        Column::for_programs("in_run", cells(&|row| text(if row.outside { "no" } else { "yes" }))),
        Column::for_programs(
            "asynchronous",
            cells(&|row| text(if is_asynchronous(row) { "yes" } else { "no" })),
        ),
    ];
    if view.chosen.by_rank {
        let rank = |row: &OpRow| row.rank.map(|rank| Value::Count(rank.into()));
        columns.insert(1, Column::new(0, "rank", "rank", cells(&rank)));
    }
    let has_calls = |row: &OpRow| row.kind != OpRowKind::NoOp;
    let of_time = |row: &OpRow, ticks: Estimate| {
        let ns = ticks.times(line.ns_per_tick());
        has_calls(row).then_some(Value::Estimated(Quantity::Ns, ns, true))
    };
    columns.extend([
        Column::new(
            2,
            "calls",
            "calls",
            cells(&|row| has_calls(row).then(|| Value::Count((row.calls - row.inner).into()))),
        ),
        Column::new(4, "total_ns", "total", cells(&|row| of_time(row, row.total))),
        Column::new(1, "self_ns", "self", cells(&|row| of_time(row, row.own))),
        Column::new(
            1,
            "share",
            if view.table.runs == 0 { "share" } else { "of runs" },
            cells(&|row| share(view, row).map(Value::Part)),
        ),
    ]);
    for (i, counter) in view.profile.manifest.counters.iter().enumerate() {
        counter_columns(view, &mut columns, i, counter);
    }
    let sum = |row: &OpRow| match (row.storage, row.workspace) {
        (None, None) => None,
        (a, b) => Some(Value::Bytes((a.unwrap_or(0) + b.unwrap_or(0)) as f64)),
    };
    if people && rows.iter().any(|row| sum(row).is_some()) {
        columns.push(Column::new(5, "bytes", "allocated", cells(&sum)));
    }
    let bytes = |n: Option<u128>| n.map(Value::Count);
    columns.push(Column::for_programs("storage_bytes", cells(&|row| bytes(row.storage))));
    columns.push(Column::for_programs("workspace_bytes", cells(&|row| bytes(row.workspace))));
    for (i, (name, kind)) in view.table.values.iter().enumerate() {
        let of = |row: &OpRow| value(&row.values[i], *kind);
        let mut column = Column::new(7, name, name, cells(&of));
        column.coverage = Some(rows.iter().map(|r| (r.values[i].calls, r.calls)).collect());
        columns.push(column);
    }
    let some = |row: &OpRow, value: Value| Some(value).filter(|_| row.regions.regions > 0);
    let count = |n: u64| Value::Count(n.into());
    columns.extend([
        Column::for_programs("regions", cells(&|row| some(row, count(row.regions.regions)))),
        Column::for_programs(
            "region_ns",
            cells(&|row| some(row, Value::Ns(row.regions.ticks as f64 * line.ns_per_tick()))),
        ),
        Column::for_programs("tasks", cells(&|row| some(row, count(row.regions.tasks)))),
        Column::for_programs("imbalance", cells(&|row| row.regions.imbalance().map(Value::Number))),
        Column::for_programs("worst_imbalance", cells(&|r| r.regions.worst.map(Value::Number))),
        Column::for_programs(
            "serial_regions",
            cells(&|row| some(row, count(row.regions.serial()))),
        ),
        Column::for_programs(
            "incomplete_regions",
            cells(&|row| some(row, count(row.regions.incomplete))),
        ),
    ]);
    if rows.iter().any(|row| row.inner > 0) {
        let inner = cells(&|row| has_calls(row).then(|| Value::Count(row.inner.into())));
        columns.push(Column::for_programs("inner_calls", inner));
    }
    if readers == Readers::PeopleInANarrowPlace {
        columns.retain(|column| column.name != ARGUMENTS);
    }
    // Parallel regions outside of ops have a row without calls. People see this row only in the
    // table of regions.
    let mut order = order(view, |row| row.own.value);
    order.retain(|row| !people || has_calls(&rows[*row]));
    Table::new(columns, order)
}

/// Adds the columns of one counter: its values on the calling threads, and those on the worker
/// threads that worked for these threads.
fn counter_columns(view: &View<'_>, columns: &mut Vec<Column>, i: usize, counter: &CounterInfo) {
    let rows = &view.table.rows;
    let (name, unit) = (&counter.name, counter.unit());
    let known = |sum: CounterSum| (sum.calls > 0).then_some(sum);
    let of_workers = |sum: CounterSum| match view.raw {
        true => Estimate::exact(sum.total as f64),
        false => sum.compensated(),
    };
    let of_callers = |row: &OpRow| match view.raw {
        true => Estimate::exact(row.counters[i].total as f64),
        false => view.table.counter(view.profile, row, i),
    };
    let total = |sum: CounterSum, value: Estimate| known(sum).map(|_| measured(unit, value));
    let calls = |sum: CounterSum| Some(Value::Count(sum.calls.into()));
    let each = |sum: CounterSum, value: Estimate| {
        known(sum).map(|sum| Value::Number(value.value / sum.calls as f64))
    };
    let workers = format!("{name} (workers)");
    let of_rows = rows.iter().map(|r| total(r.counters[i], of_callers(r)));
    let mut own = Column::new(2, name, name, of_rows.collect());
    own.coverage = Some(rows.iter().map(|r| (r.counters[i].calls, r.calls)).collect());
    let mostly_empty = |row: &OpRow| row.counters[i].empty_share().filter(|s| *s > MOSTLY_EMPTY);
    own.mostly_empty = view.raw.then(|| rows.iter().map(mostly_empty).collect());
    let of_rows = rows.iter().map(|r| total(r.workers[i], of_workers(r.workers[i])));
    let mut others = Column::new(2, &workers, &workers, of_rows.collect());
    others.coverage = Some(rows.iter().map(|r| (r.workers[i].calls, r.with_regions)).collect());
    others.csv_only = rows.iter().all(|row| row.with_regions == 0);
    columns.extend([own, others]);
    columns.push(Column::for_programs(
        &format!("{name}_per_call"),
        rows.iter().map(|r| each(r.counters[i], of_callers(r))).collect(),
    ));
    columns.push(Column::for_programs(
        &format!("{name}_calls"),
        rows.iter().map(|r| calls(r.counters[i])).collect(),
    ));
    columns.push(Column::for_programs(
        &format!("{workers}_per_call"),
        rows.iter().map(|r| each(r.workers[i], of_workers(r.workers[i]))).collect(),
    ));
    columns.push(Column::for_programs(
        &format!("{workers}_calls"),
        rows.iter().map(|r| calls(r.workers[i])).collect(),
    ));
}

/// Returns the value that the table shows for a row and a user's collector. Counts and durations
/// are sums; percentages and ratios are means over the calls that have a value. A text is returned
/// if the calls agree about it.
fn value(sum: &ValueSum, kind: ValueKind) -> Option<Value> {
    if sum.calls == 0 {
        return None;
    }
    let mean = sum.sum / sum.calls as f64;
    match kind {
        ValueKind::Count => Some(match u128::try_from(sum.count) {
            Ok(count) => Value::Count(count),
            Err(_) => Value::Number(sum.count as f64),
        }),
        ValueKind::Duration => Some(Value::Ns(sum.sum * 1e3)),
        ValueKind::Percent => Some(Value::Part(mean / 100.0)),
        ValueKind::Ratio => Some(Value::Number(mean)),
        ValueKind::Text => sum.text.clone().map(Value::Text),
    }
}

/// Makes the table of the rows that have parallel regions, sorted by the time of the regions.
pub fn regions(view: &View<'_>) -> Table {
    let rows = &view.table.rows;
    let line = &view.profile.timeline;
    let ns = |ticks: u128| Value::Ns(ticks as f64 * line.ns_per_tick());
    let cells = |cell: &dyn Fn(&OpRow) -> Option<Value>| rows.iter().map(cell).collect::<Vec<_>>();
    let count = |n: u64| Some(Value::Count(n.into()));
    let whole = |row: &OpRow| row.regions.regions - row.regions.incomplete;
    let columns = vec![
        Column::new(
            0,
            "op",
            "parallel regions of",
            cells(&|row| Some(Value::Text(title(view, row)))),
        ),
        Column {
            csv_only: !view.chosen.by_rank,
            ..Column::new(1, "rank", "rank", cells(&|row| row.rank.map(|n| Value::Count(n.into()))))
        },
        Column::new(1, ARGUMENTS, ARGUMENTS, short_arguments(rows)),
        Column::new(2, "regions", "regions", cells(&|row| count(row.regions.regions))),
        Column::new(
            3,
            "tasks",
            "tasks each",
            cells(&|row| {
                let each = row.regions.tasks as f64 / whole(row) as f64;
                (whole(row) > 0).then_some(Value::Number(each))
            }),
        ),
        Column::new(1, "time", "time", cells(&|row| Some(ns(row.regions.ticks)))),
        Column::new(
            1,
            "imbalance",
            "max/mean",
            cells(&|row| row.regions.imbalance().map(Value::Number)),
        ),
        Column::new(2, "worst", "worst", cells(&|row| row.regions.worst.map(Value::Number))),
        Column::new(1, "serial", "one after another", cells(&|row| count(row.regions.serial()))),
    ];
    let mut order = order(view, |row| row.regions.ticks as f64);
    order.retain(|row| rows[*row].regions.regions > 0);
    Table::new(columns, order)
}
