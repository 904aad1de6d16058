//! Makes the table of `diff`: the names of its rows, and its columns.

use std::collections::HashMap;

use analysis::diff::matching::Relation;
use analysis::diff::recorded::Identity;
use analysis::diff::verdict::{Compared, Verdict};
use analysis::diff::{Diff, DiffRow, Side, Statistic};
use analysis::{Estimate, Estimated};
use profile::Role;
use profile::demangle::{Detail, demangle};

use super::answer::{About, of_row, reading, relation, signed_time, verdict, word};
use crate::view::sampled;
use crate::view::table::{Column, Table, Value};

/// The titles of the columns for A and for B.
pub const BASE: &str = "A (base)";
pub const NEW: &str = "B (new)";
/// The title of the column with the verdicts.
pub const VERDICT: &str = "B is";
/// The title of the column that shows by how much a row's time in a whole run differs.
pub const IN_RUN: &str = "in a run";

/// Returns the name of a row of one run.
pub fn name(one: &Identity) -> String {
    let name = demangle(&one.name, Detail::Short);
    let plain = one.role.is_empty()
        || [Role::Workgroup, Role::Op].iter().any(|role| role.name() == one.role);
    match plain {
        true => name.into_owned(),
        false => format!("{name} ({})", one.role),
    }
}

/// Returns the names of the rows.
pub fn names(diff: &Diff) -> Vec<String> {
    // A row of A that was split into several rows of B keeps its name in A.
    let called = |row: &DiffRow| match row.relation {
        Relation::Split => row.a.first().cloned(),
        _ => row.identity().cloned(),
    };
    let all: Vec<Identity> = diff.rows.iter().map(|row| called(row).unwrap_or_default()).collect();
    distinct(&all)
}

/// Tells equal names apart: appends arguments (such as shapes), or else numbers.
pub fn distinct(all: &[Identity]) -> Vec<String> {
    let mut names: Vec<String> = all.iter().map(name).collect();
    for attempt in 0..2 {
        let mut seen: HashMap<String, u32> = HashMap::new();
        names.iter().for_each(|name| *seen.entry(name.clone()).or_default() += 1);
        let mut number: HashMap<String, u32> = HashMap::new();
        for (name, one) in names.iter_mut().zip(all).filter(|(name, _)| seen[name.as_str()] > 1) {
            let number = number.entry(name.clone()).or_default();
            *number += 1;
            match attempt {
                0 if !one.arguments.is_empty() => name.push_str(&format!(" ({})", one.arguments)),
                0 => {}
                _ => name.push_str(&format!(" #{number}")),
            }
        }
    }
    names
}

/// Returns the statistic that tables for people show: the time of a typical execution, or else the
/// mean time, or else the time of all executions in a run, or else the processor time.
pub fn shown(compared: &[Compared]) -> Option<&Compared> {
    let of = |statistic| compared.iter().find(|one| one.statistic == statistic);
    let mean = || of(Statistic::Mean);
    let others = || of(Statistic::Run).or_else(|| of(Statistic::ProcessorTime));
    of(Statistic::Typical).or_else(mean).or_else(others)
}

/// Formats a verdict, or the ratio of the two sides if nothing was tested.
pub fn in_words(diff: &Diff, compared: &[Compared], of: &Verdict) -> String {
    if compared.is_empty() || diff.untested.is_none() {
        return verdict(of);
    }
    format!("× {:.3}, not tested", ratio(compared))
}

/// Returns B divided by A, in the statistic that is shown.
fn ratio(compared: &[Compared]) -> f64 {
    shown(compared).map_or(f64::NAN, |one| one.change + 1.0)
}

/// Builds the table. Rows that differ come first, and rows of only one side come last. Within these
/// groups, the rows that add most to the difference of the whole come first.
pub fn table(diff: &Diff, names: &[String], of: &str) -> Table {
    let rows = &diff.rows;
    let mut columns = Vec::new();
    let text = |cells: Vec<String>| cells.into_iter().map(|cell| Some(Value::Text(cell))).collect();
    let number = |cells: Vec<Option<f64>>| {
        cells.into_iter().map(|cell| cell.map(Value::Number)).collect::<Vec<_>>()
    };
    let ns = |cells: Vec<Option<f64>>| cells.into_iter().map(|cell| cell.map(Value::Ns)).collect();
    let each = |value: &dyn Fn(&DiffRow) -> Option<f64>| rows.iter().map(value).collect::<Vec<_>>();
    columns.push(Column::new(0, of, of, text(names.to_vec())));
    let medians = |side: usize| {
        ns(each(&|row| {
            let compared = shown(&row.compared).map(|one| one.medians[side]);
            compared.or_else(|| mean(row.sides[side]))
        }))
    };
    columns.push(Column::new(3, "a_ns", BASE, medians(0)));
    columns.push(Column::new(3, "b_ns", NEW, medians(1)));
    let is_ratio = |row: &DiffRow| !row.compared.is_empty() && diff.untested.is_some();
    let verdicts = rows.iter().map(|row| of_row(row, is_ratio(row).then(|| ratio(&row.compared))));
    columns.push(Column::new(1, "verdict", VERDICT, text(verdicts.collect())));
    let parts = rows.iter().map(|row| row.part.map(|part| Value::Text(signed_time(part.ns))));
    let is_new_or_gone = |row: &DiffRow| matches!(row.relation, Relation::New | Relation::Gone);
    let relations: Vec<Option<Value>> = rows
        .iter()
        .map(|row| Some(relation(row, name)).filter(|text| !text.is_empty()).map(Value::Text))
        .collect();
    let none = relations.iter().all(Option::is_none);
    columns.push(Column { csv_only: none, ..Column::new(2, "relation", "was", relations) });
    // If a row has another number of executions, what they take together says more than what one of
    // them takes.
    let has_others = rows.iter().any(|row| row.other_executions.is_some());
    let rank = if has_others { 2 } else { 4 };
    columns.push(Column::new(rank, "in_run", IN_RUN, parts.collect()));
    let sides = |of: &dyn Fn(Side) -> Option<f64>| {
        [0, 1].map(|side| each(&|row| row.sides[side].and_then(of)))
    };
    let about = |side: usize, row: &DiffRow| row.sides[side].and_then(|side| side.estimated_calls);
    let is_about = |side: usize| rows.iter().any(|row| about(side, row).is_some());
    let counts = |side: usize, cells: Vec<Option<f64>>| {
        let count = |(row, n): (&DiffRow, Option<f64>)| {
            let n = n?.round() as u128;
            Some(if about(side, row).is_some() { Value::About(n) } else { Value::Count(n) })
        };
        rows.iter().zip(cells).map(count).collect::<Vec<_>>()
    };
    // Tables for people have one column of calls if the numbers of A and B that it would show are
    // exact and equal.
    let calls = sides(&|side| Some(side.calls));
    let as_shown = |row: &DiffRow| row.sides.map(|side| side.map(|side| side.calls.round()));
    let differ = |row: &DiffRow| {
        let [a, b] = as_shown(row);
        row.calls_differ || a != b
    };
    let different = rows.iter().any(differ) || [0, 1].into_iter().any(is_about);
    let [calls_a, calls_b] = calls;
    let (calls_a, calls_b) = (counts(0, calls_a), counts(1, calls_b));
    columns.push(Column::new(6, "calls_a", if different { "calls A" } else { "calls" }, calls_a));
    columns.push(Column { csv_only: !different, ..Column::new(6, "calls_b", "calls B", calls_b) });
    let [total_a, total_b] = sides(&|side| side.total_ns);
    let margins = |side: usize| {
        let of = |row: &DiffRow| sampled::margin(&row.sides[side]?.estimated_total_ns?);
        Some(rows.iter().map(of).collect())
    };
    let total = |side: usize, name: &str, title: &str, cells| Column {
        margin: margins(side),
        ..Column::new(5, name, title, ns(cells))
    };
    columns.push(total(0, "total_a_ns", "total A", total_a));
    columns.push(total(1, "total_b_ns", "total B", total_b));
    let [own_a, own_b] = sides(&|side| side.own_ns);
    columns.push(Column::new(7, "self_a_ns", "self A", ns(own_a)));
    columns.push(Column::new(7, "self_b_ns", "self B", ns(own_b)));
    let programs = Column::for_programs;
    columns.push(programs(
        "result",
        text(rows.iter().map(|row| word(&row.verdict, About::Time).into()).collect()),
    ));
    let name_of = |side: usize| {
        let names = rows.iter().map(|row| {
            let all = [&row.a, &row.b][side];
            (!all.is_empty())
                .then(|| Value::Text(all.iter().map(name).collect::<Vec<_>>().join(" + ")))
        });
        names.collect::<Vec<_>>()
    };
    columns.push(programs("name_a", name_of(0)));
    columns.push(programs("name_b", name_of(1)));
    let arguments = |row: &DiffRow| row.identity().map(|one| one.arguments.clone());
    columns.push(programs(
        "arguments",
        rows.iter().map(|row| arguments(row).filter(|a| !a.is_empty()).map(Value::Text)).collect(),
    ));
    columns.push(programs("part_ns", number(each(&|row| Some(row.part?.ns)))));
    let end = |at: usize| number(each(&|row| Some(row.part?.interval?[at])));
    columns.push(programs("part_ns_low", end(0)));
    columns.push(programs("part_ns_high", end(1)));
    let all =
        [Statistic::Fastest, Statistic::Floor, Statistic::Typical, Statistic::Mean, Statistic::Run];
    for statistic in all {
        if rows.iter().all(|row| row.of(statistic).is_none()) {
            continue;
        }
        let name = statistic.name();
        let mut add =
            |what: &str, value: &dyn Fn(&analysis::diff::verdict::Compared) -> Option<f64>| {
                let cells = each(&|row| value(row.of(statistic)?));
                columns.push(programs(&format!("{name}_{what}"), number(cells)));
            };
        add("a_ns", &|one| Some(one.medians[0]));
        add("b_ns", &|one| Some(one.medians[1]));
        add("change", &|one| Some(one.change));
        add("change_low", &|one| Some(one.interval?[0]));
        add("change_high", &|one| Some(one.interval?[1]));
        add("p", &|one| one.p);
    }
    add_readings(diff, &mut columns);
    add_ends(diff, &mut columns);
    let mut order: Vec<usize> = (0..rows.len()).collect();
    let weight = |row: usize| rows[row].part.map_or(0.0, |part| part.ns.abs());
    // A row that only A or only B has cannot be compared, so it comes last.
    let place = |row: usize| match &rows[row] {
        one if is_new_or_gone(one) => 2,
        one => u8::from(one.verdict.change().is_none()),
    };
    order.sort_by(|x, y| place(*x).cmp(&place(*y)).then_with(|| weight(*y).total_cmp(&weight(*x))));
    Table::new(columns, order)
}

/// Returns the mean time of an execution. It is shown where nothing was compared.
fn mean(side: Option<Side>) -> Option<f64> {
    let side = side.filter(|side| side.executions > 0.0)?;
    Some(side.total_ns? / side.executions)
}

type OfSide = fn(Side) -> Option<Estimated>;
type End = fn(Estimate) -> f64;

/// Adds columns with the ends of the intervals of estimates, only in formats for programs. Only
/// runs recorded with `--budget` have such estimates.
fn add_ends(diff: &Diff, columns: &mut Vec<Column>) {
    let of: [(&str, OfSide); 2] =
        [("calls", |side| side.estimated_calls), ("total_ns", |side| side.estimated_total_ns)];
    for (what, of) in of {
        for (side, letter) in ["a", "b"].into_iter().enumerate() {
            let found = |row: &DiffRow| row.sides[side].and_then(of);
            if diff.rows.iter().all(|row| found(row).is_none()) {
                continue;
            }
            let name = match what.strip_suffix("_ns") {
                Some(what) => format!("{what}_{letter}_ns"),
                None => format!("{what}_{letter}"),
            };
            let ends: [(&str, End); 2] = [("low", |all| all.low), ("high", |all| all.high)];
            for (end, value) in ends {
                let cell = |row: &DiffRow| Some(Value::Number(value(found(row)?.interval?)));
                let cells = diff.rows.iter().map(cell).collect();
                columns.push(Column::for_programs(&format!("{name}_{end}"), cells));
            }
        }
    }
}

/// Adds columns for counters, only in formats for programs: a text about the counters that differ,
/// and the numbers of each counter. For people, `diff` prints this text below the table.
fn add_readings(diff: &Diff, columns: &mut Vec<Column>) {
    let mut known: Vec<&str> = Vec::new();
    for one in diff.rows.iter().flat_map(|row| &row.readings) {
        if !known.contains(&one.name.as_str()) {
            known.push(&one.name);
        }
    }
    if known.is_empty() {
        return;
    }
    let differ = diff.rows.iter().map(|row| {
        let all: Vec<String> = row.readings.iter().filter_map(reading).collect();
        (!all.is_empty()).then(|| Value::Text(all.join(", ")))
    });
    columns.push(Column {
        csv_only: true,
        ..Column::new(8, "counters", "counters", differ.collect())
    });
    for name in known {
        let mut add =
            |what: &str, value: &dyn Fn(&analysis::diff::counters::ReadingDiff) -> Option<f64>| {
                let of = |row: &DiffRow| value(row.readings.iter().find(|one| one.name == name)?);
                let cells = diff.rows.iter().map(|row| of(row).map(Value::Number)).collect();
                columns.push(Column::for_programs(&format!("{name}_{what}"), cells));
            };
        add("a", &|one| Some(one.compared.as_ref()?.medians[0]));
        add("b", &|one| Some(one.compared.as_ref()?.medians[1]));
        add("change", &|one| Some(one.compared.as_ref()?.change).filter(|part| part.is_finite()));
        add("change_low", &|one| Some(one.compared.as_ref()?.interval?[0]));
        add("change_high", &|one| Some(one.compared.as_ref()?.interval?[1]));
    }
}
