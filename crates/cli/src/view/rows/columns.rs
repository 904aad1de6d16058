//! Makes the columns of a summary: names, calls, times, counters and metrics.

use std::collections::HashMap;
use std::rc::Rc;

use analysis::{
    By, Estimate, Key, MOSTLY_EMPTY, MetricValues, Options, PassTotal, Row, Summary, ThreadTime,
    are_means, passes,
};
use model::Unit;
use model::metric::Bound;
use profile::{Op, Profile, Usage};

use super::labels::{has_roles, labels, op_of, process_label, silent_label};
use super::metrics as metric_cells;
use super::source::{self, SOURCE};
use crate::view::layout::{Names, THREAD_WIDTH};
use crate::view::overview::name_of;
use crate::view::sampled;
use crate::view::table::{Cells, Column, Found, Quantity, Table, Value};

/// Makes the table of a summary, in the order of the summary.
pub fn of_summary(profile: &Profile, summary: &Summary, options: &Options) -> Table {
    let (metrics, by, raw) = (&options.metrics, options.by, summary.raw);
    let rows = &summary.rows;
    let line = &profile.timeline;
    let mut columns = names(profile, rows, by);
    let mut push = |rank, name: &str, title: &str, cell: &dyn Fn(&Row) -> Option<Value>| {
        columns.push(Column::new(rank, name, title, rows.iter().map(cell).collect()));
    };
    let ns = |ticks: Estimate| {
        Some(Value::Estimated(Quantity::Ns, ticks.times(line.ns_per_tick()), false))
    };
    let with_interval = |ticks: Estimate| {
        Some(Value::Estimated(Quantity::Ns, ticks.times(line.ns_per_tick()), true))
    };
    // If the program was recorded in several passes (repetitions), the values of ops and ranks are
    // means over the passes.
    let repeated = are_means(profile, by);
    let of_pass = |row: &Row| row.in_pass(passes(profile, by));
    let count = |n: u64| Value::Count(n.into());
    if by == By::Thread {
        let of = |r: &Row| {
            let Key::Thread(process, thread) = r.key else { return None };
            let mut times = summary.threads.iter();
            times.find(|t| (t.process, t.thread) == (process, thread))
        };
        push(1, "wall_ns", "wall", &|r| of(r).map(|t| Value::Ns(t.wall_ns)));
        push(1, "between_ns", "between", &|r| {
            of(r).filter(|t| t.dispatch_known).map(|t| Value::Ns(t.no_dispatch_ns()))
        });
        push(2, "off_cpu_ns", "off-CPU between", &|r| {
            let off = of(r).filter(|t| t.dispatch_known)?.off_cpu?;
            Some(if off.assumed { Value::AtMostNs(off.ns) } else { Value::Ns(off.ns) })
        });
        usage_columns(summary, rows, &mut push);
    }
    push(1, "calls", "calls", &|r| of_pass(r).calls.map(count));
    push(7, "dispatches", "dispatches", &|r| of_pass(r).dispatches.map(count));
    // A table of threads also has the time between calls, so its total is called "in calls". With a
    // filter, the total is not the whole time in calls, and keeps its name.
    let is_whole = by == By::Thread && options.filter.is_none();
    let title = if is_whole { "in calls" } else { "total" };
    push(1, "total_ns", title, &|r| ns(of_pass(r).total));
    if repeated {
        push(3, "spread", "spread", &|r| r.spread().map(Value::Part));
        push(6, "calls_by_pass", "by pass", &|r| {
            Some(Value::Text(by_pass(r, |pass| pass.calls.to_string())))
        });
    }
    // Calls that belong to no thread, such as asynchronous spans, have no self time.
    let of_thread = |r: &Row| !r.key.is_apart(profile);
    push(2, "self_ns", "self", &|r| ns(of_pass(r).own).filter(|_| of_thread(r)));
    push(2, "share", "share", &|r| {
        let share = summary.share(profile, r);
        share.map(Value::Part)
    });
    let all_arguments = match by {
        By::Op => summary.all_arguments(profile),
        _ => HashMap::new(),
    };
    if !all_arguments.is_empty() {
        let title = if summary.nested { "self, all arguments" } else { "total, all arguments" };
        push(7, "self_all_arguments_ns", title, &|r| {
            all_arguments.get(&r.key).and_then(|own| ns(*own))
        });
    }
    push(4, "mean_ns", "mean", &|r| with_interval(r.mean()));
    push(6, "p50_ns", "p50", &|r| ns(r.call(r.p50)));
    push(5, "p99_ns", "p99", &|r| ns(r.call(r.p99)));
    for (i, counter) in profile.manifest.counters.iter().enumerate() {
        let (name, unit) = (&counter.name, counter.unit());
        let of = |row: &Row| row.counters.get(i).copied().flatten();
        push(3, name, name, &|r| of(r).map(|c| total(unit, c.value)));
        push(10, &format!("{name}_per_call"), "/call", &|r| of(r).map(|c| mean(unit, c.mean())));
    }
    let place_of_metrics = columns.len();
    let mut push = |rank, name: &str, title: &str, cell: &dyn Fn(&Row) -> Option<Value>| {
        columns.push(Column::new(rank, name, title, rows.iter().map(cell).collect()));
    };
    push(8, "threads", "threads", &|r| Some(Value::Count(r.threads.len() as u128)));
    push(8, "cpus", "cpus", &|r| Some(Value::Count(r.cpus.len() as u128)));
    push(11, "min_ns", "min", &|r| ns(r.call(r.min)));
    push(11, "max_ns", "max", &|r| ns(r.call(r.max)));
    // Without calls inside of calls, self time equals total time. In a table of threads, both times
    // are equal, too: calls inside of a thread's call are on the same thread. In both cases, the
    // table for people has no self time.
    if (!summary.nested || by == By::Thread)
        && let Some(column) = columns.iter_mut().find(|column| column.name == "self_ns")
    {
        column.csv_only = true;
    }
    // If no row has dispatches, their column would contain only dashes.
    if rows.iter().all(|row| row.dispatches.is_none())
        && let Some(column) = columns.iter_mut().find(|column| column.name == "dispatches")
    {
        column.csv_only = true;
    }
    if rows.iter().any(|row| row.inner > 0) {
        let inner = rows.iter().map(|row| Some(Value::Count(of_pass(row).inner.into())));
        columns.push(Column::for_programs("inner_calls", inner.collect()));
    }
    for (i, counter) in profile.manifest.counters.iter().enumerate() {
        let calls = rows
            .iter()
            .map(|row| Some(Value::Count(row.counters[i].map_or(0, |total| total.calls).into())));
        columns.push(Column::for_programs(&format!("{}_calls", counter.name), calls.collect()));
    }
    for (i, counter) in profile.manifest.counters.iter().enumerate() {
        let calls = |row: &Row| row.counters[i].map_or(0, |total| total.calls);
        // If the program was recorded in several passes, a counter with a `pass` is read only in
        // that pass. Calls in the other passes cannot have a value of this counter.
        let of = |row: &Row| match counter.pass {
            Some(pass) => row.passes.get(pass as usize - 1).map_or(0, |pass| pass.calls),
            None => row.calls,
        };
        let coverage: Found<_> = rows.iter().map(|row| (calls(row), of(row))).collect();
        let per_call = format!("{}_per_call", counter.name);
        for column in columns.iter_mut() {
            if column.name == counter.name || column.name == per_call {
                column.coverage = Some(coverage.clone());
                column.mostly_empty = raw.then(|| mostly_empty(rows, i));
            }
        }
    }
    add_metrics(profile, rows, metrics, place_of_metrics, &mut columns);
    if profile.manifest.multiplex {
        estimates(profile, rows, &mut columns);
    }
    if !raw && summary.sampled.is_none() {
        intervals(profile, rows, &mut columns);
    }
    sampled::finish(profile, summary, &mut columns);
    let table = Table::new(columns, (0..rows.len()).collect());
    if by == By::Thread { with_silent(profile, summary, table) } else { table }
}

/// Adds the threads without calls. Their rows have a name, 0 calls, and the processor time.
fn with_silent(profile: &Profile, summary: &Summary, mut table: Table) -> Table {
    table.names = Names::Shortened(THREAD_WIDTH);
    let several = summary.threads.windows(2).any(|two| two[0].process != two[1].process);
    for thread in &summary.silent {
        let mut name = silent_label(profile, thread);
        if several {
            name.push_str(&format!(" of {}", process_label(profile, thread.process)));
        }
        table.add_rest(|column| match column {
            "thread" => Some(Value::Text(name.clone())),
            "calls" => Some(Value::Count(0)),
            "thread_cpu_ns" => Some(Value::Ns(thread.cpu_ns)),
            _ => None,
        });
    }
    table
}

/// Adds a column for each metric, from index `place` on. At the end, adds columns for CSV and JSON
/// with the number of calls that have a value of each metric. The columns store no cells, but look
/// them up in one shared list of values.
fn add_metrics(
    profile: &Profile,
    rows: &[Row],
    metrics: &[Bound],
    place: usize,
    columns: &mut Vec<Column>,
) {
    let values: Rc<[MetricValues]> = rows.iter().map(|row| row.metrics.clone()).collect();
    // For each pass in which counters are read (`None`: in every pass), the number of calls of each
    // row that could have a value.
    let mut calls: HashMap<Option<u32>, Rc<[u64]>> = HashMap::new();
    let mut shown = Vec::with_capacity(metrics.len());
    for (i, metric) in metrics.iter().enumerate() {
        let first = metric.counters.first().and_then(|c| profile.manifest.counters.get(*c));
        let pass = first.and_then(|counter| counter.pass);
        let of_row = |row: &Row| match pass {
            Some(pass) => row.passes.get(pass as usize - 1).map_or(0, |pass| pass.calls),
            None => row.calls,
        };
        let all = calls.entry(pass).or_insert_with(|| rows.iter().map(of_row).collect()).clone();
        let (unit, declared) = (Rc::from(metric.unit.name.as_str()), metric.unit.declared);
        let find = |values: &Rc<[MetricValues]>| {
            let values = Rc::clone(values);
            move |row: usize| Some(values.get(row)?.get(i))
        };
        let value = find(&values);
        let cell = move |row| Some(Value::Metric(value(row)?.value?, Rc::clone(&unit), declared));
        let of = find(&values);
        let coverage = move |row| Some((of(row)?.calls, *all.get(row)?));
        let of = find(&values);
        let hidden = move |row| of(row)?.hidden;
        let of = find(&values);
        let counted = move |row| Some(Value::Count(of(row)?.calls.into()));
        shown.push(Column {
            cells: Cells::Found(rows.len(), Found::by(cell)),
            coverage: Some(Found::by(coverage)),
            hidden: Some(Found::by(hidden)),
            ..Column::new(metric_cells::rank(metric), &metric.name, &metric.name, Vec::new())
        });
        columns.push(Column {
            cells: Cells::Found(rows.len(), Found::by(counted)),
            ..Column::for_programs(&format!("{}_calls", metric.name), Vec::new())
        });
    }
    columns.splice(place..place, shown);
}

/// For CSV and JSON, adds the ends of the intervals of means. Adds nothing if nothing was
/// subtracted for the recorder's own cost.
fn intervals(profile: &Profile, rows: &[Row], columns: &mut Vec<Column>) {
    if rows.iter().all(|row| row.taken.is_none()) {
        return;
    }
    let mut ends = |low: &str, high: &str, cell: &dyn Fn(&Row) -> Option<Estimate>| {
        let found: Vec<Option<Estimate>> = rows.iter().map(cell).collect();
        let end = |of: fn(&Estimate) -> f64| {
            found.iter().map(|cell| cell.as_ref().map(|cell| Value::Number(of(cell)))).collect()
        };
        columns.push(Column::for_programs(low, end(|cell| cell.low)));
        columns.push(Column::for_programs(high, end(|cell| cell.high)));
    };
    ends("mean_ns_low", "mean_ns_high", &|row| {
        row.taken.map(|_| row.mean().times(profile.timeline.ns_per_tick()))
    });
    for (i, counter) in profile.manifest.counters.iter().enumerate() {
        let name = &counter.name;
        ends(&format!("{name}_per_call_low"), &format!("{name}_per_call_high"), &|row| {
            let total = row.counters.get(i).copied().flatten().filter(|c| c.brackets.is_some())?;
            Some(total.mean())
        });
    }
}

type Push<'a> = dyn FnMut(u8, &str, &str, &dyn Fn(&Row) -> Option<Value>) + 'a;

fn usage_columns(summary: &Summary, rows: &[Row], push: &mut Push<'_>) {
    let time = |row: &Row| {
        let Key::Thread(process, thread) = row.key else { return None };
        let of = |time: &&ThreadTime| (time.process, time.thread) == (process, thread);
        summary.threads.iter().find(of)
    };
    let usage = |row: &Row| time(row)?.usage;
    let on_cpu = |row: &Row| time(row)?.cpu_ns;
    if rows.iter().any(|row| on_cpu(row).is_some()) || !summary.silent.is_empty() {
        push(2, "thread_cpu_ns", "on a CPU", &|row| on_cpu(row).map(Value::Ns));
    }
    // Imported and old profiles do not have what the operating system counted.
    if rows.iter().all(|row| usage(row).is_none()) {
        return;
    }
    let mut count = |name: &str, title: &str, of: &dyn Fn(&Usage) -> u64| {
        push(5, name, title, &|row| usage(row).map(|used| Value::Count(of(&used).into())));
    };
    count("thread_minor_faults", "minor faults", &|used| used.minor_faults);
    count("thread_major_faults", "major faults", &|used| used.major_faults);
    count("thread_voluntary_switches", "voluntary switches", &|used| used.voluntary_switches);
    count("thread_involuntary_switches", "involuntary switches", &|used| used.involuntary_switches);
}

/// Returns the texts of all passes, such as `10|12`, or only one text, such as `10`, if all passes
/// agree.
pub fn by_pass(row: &Row, text: impl Fn(&PassTotal) -> String) -> String {
    let mut all: Vec<String> = row.passes.iter().map(text).collect();
    if all.windows(2).all(|pair| pair[0] == pair[1]) {
        all.truncate(1);
    }
    all.join("|")
}

/// For a run whose counters took turns: marks values that are estimates. For CSV and JSON, adds the
/// number of calls with estimates, and the part of the time in which each counter was counting.
fn estimates(profile: &Profile, rows: &[Row], columns: &mut Vec<Column>) {
    for (i, counter) in profile.manifest.counters.iter().enumerate() {
        let of = |row: &Row| row.counters.get(i).copied().flatten();
        let estimated = |row: &Row| of(row).map_or(0, |total| total.estimated);
        let covered: Vec<_> = rows.iter().map(|row| of(row)?.covered()).collect();
        let per_call = format!("{}_per_call", counter.name);
        for column in columns.iter_mut().filter(|c| c.name == counter.name || c.name == per_call) {
            let part = |row: (&Row, &Option<f64>)| row.1.filter(|_| estimated(row.0) > 0);
            column.estimated = Some(rows.iter().zip(&covered).map(part).collect());
        }
        let calls = rows.iter().map(|row| Some(Value::Count(estimated(row).into())));
        let covered = covered.into_iter().map(|part| part.map(Value::Number));
        let all: [(&str, Vec<_>); 2] =
            [("estimated_calls", calls.collect()), ("covered", covered.collect())];
        columns.extend(
            all.map(|(what, cells)| {
                Column::for_programs(&format!("{}_{what}", counter.name), cells)
            }),
        );
    }
}

/// Returns, for each row, the part of a counter's value that the recorder itself caused, as
/// measured with empty calls. `None` if this part is at most half, or not known.
fn mostly_empty(rows: &[Row], counter: usize) -> Vec<Option<f64>> {
    let share = |row: &Row| row.counters.get(counter).copied().flatten()?.empty_share();
    rows.iter().map(|row| share(row).filter(|share| *share > MOSTLY_EMPTY)).collect()
}

fn total(unit: Unit, sum: Estimate) -> Value {
    let quantity = match unit {
        Unit::Nanoseconds => Quantity::Ns,
        Unit::Bytes => Quantity::Bytes,
        _ => Quantity::Count,
    };
    Value::Estimated(quantity, sum, true)
}

fn mean(unit: Unit, mean: Estimate) -> Value {
    let quantity = match unit {
        Unit::Nanoseconds => Quantity::Ns,
        Unit::Bytes => Quantity::Bytes,
        _ => Quantity::Number,
    };
    Value::Estimated(quantity, mean, true)
}

/// Returns the columns that identify rows. The first column has the names of the rows.
fn names(profile: &Profile, rows: &[Row], by: By) -> Vec<Column> {
    let labels = labels(profile, &rows.iter().map(|row| row.key).collect::<Vec<_>>());
    let text = |name: &str, title: &str, csv_only, cells: Vec<Option<String>>| {
        let rank = if name == SOURCE { 9 } else { 0 };
        let cells = cells.into_iter().map(|cell| cell.map(Value::Text)).collect();
        Column { csv_only, ..Column::new(rank, name, title, cells) }
    };
    let mut columns =
        vec![text(name_of(by), name_of(by), false, labels.into_iter().map(Some).collect())];
    if by == By::Kind {
        let generic = |row: &Row| match row.key {
            Key::Kind(op) => {
                let op = profile.ops.get(op)?;
                super::keys::generic(&op.library).filter(|generic| *generic != &*op.library)
            }
            _ => None,
        };
        let cells: Vec<Option<String>> =
            rows.iter().map(|row| generic(row).map(str::to_owned)).collect();
        let none = cells.iter().all(Option::is_none);
        columns.push(text("generic", "generic", none, cells));
    }
    if by == By::Op {
        let ops = || rows.iter().map(|row| op_of(profile, row.key));
        let library = ops().map(|op| op.map(|op| op.library.to_string())).collect();
        columns.push(text("library", "library", true, library));
        let source: Vec<Option<String>> = ops().map(|op| op.and_then(Op::source)).collect();
        // A location that all rows share is printed below the table instead.
        let hidden = source.iter().all(Option::is_none) || source::one_for_all(&source).is_some();
        columns.push(text(SOURCE, SOURCE, hidden, source));
        if has_roles(profile) {
            let of = |what: fn(&Op) -> &str| -> Vec<Option<String>> {
                ops().map(|op| op.map(|op| what(op).to_owned())).collect()
            };
            columns.push(text("role", "role", true, of(|op| op.role.name())));
            columns.push(text("arguments", "arguments", true, of(|op| &op.arguments)));
            columns.push(text("device", "device", true, of(|op| &op.device)));
        }
    }
    columns
}
