//! Describes a run with a budget for the cost of recording, in which usually only some of the calls
//! are timed. docs/sampling.md describes the columns and fields.

use analysis::probe::Price;
use analysis::{Estimate, Estimated, Row, SampledRow, Summary};
use profile::Profile;
use serde::Serialize;

use super::overview::Overview;
use crate::object::object;
use crate::view::table::{Cells, Column, Value};
use crate::view::units::{grouped, percent, plural};

/// Returns lines about the budget and about how many calls were timed. Empty if the run had no
/// budget.
pub fn head(profile: &Profile, summary: &Summary) -> Vec<(&'static str, String)> {
    let Some(run) = &summary.sampled else { return Vec::new() };
    // The cost that the recorder itself measured is printed only if no calibrated cost is known.
    // Otherwise, another line has the cost by the calibration.
    let own = run.price.filter(|_| summary.probes.is_empty());
    let price = own.map_or_else(String::new, |price| {
        format!("; recording took {} by its own account", percent(price))
    });
    let budget = match run.budget {
        0.0 => "0".to_owned(),
        budget => format!("{} of the processor time", percent(budget)),
    };
    let all = &run.all;
    let calls = all.calls.unwrap_or(0);
    let part = |n: u64| match calls {
        0 => "none".to_owned(),
        calls => format!("{} ({})", grouped(n.into()), percent(n as f64 / calls as f64)),
    };
    let counters = match profile.manifest.counters.is_empty() {
        true => String::new(),
        false => format!(", and counters were read in {}", part(all.counted)),
    };
    let sample = match (all.timed, all.timed == calls) {
        (0, _) => "calls were only counted".to_owned(),
        (_, true) => format!("all calls were timed{counters}"),
        _ => format!("of all calls, {} were timed{counters}", part(all.timed)),
    };
    let budget = ("budget", format!("{budget}: {sample}{price}"));
    [Some(budget), steps(profile, summary, run.budget)].into_iter().flatten().collect()
}

/// Returns a line about the steps (iterations) of the program, if there is something to say. The
/// line says in how many steps ops were announced (reported to the recorder). If all ops were
/// announced and recording took more than the budget, the line says so, and why.
fn steps(profile: &Profile, summary: &Summary, budget: f64) -> Option<(&'static str, String)> {
    let known = profile.processes.iter().filter_map(|process| process.steps);
    let (mut all, mut away, mut cut) = (0u64, 0u64, 0u64);
    for steps in known {
        all = all.saturating_add(steps.steps);
        away = away.saturating_add(steps.away.saturating_sub(steps.away_before));
        cut = cut.saturating_add(steps.cut);
    }
    if away > 0 {
        let seen = grouped(all.saturating_sub(away).into());
        let long = match cut {
            0 => String::new(),
            cut => format!(
                "; {} took so long that their other ops were announced",
                plural(cut.into(), "other step")
            ),
        };
        let all = grouped(all.into());
        return Some((
            "steps",
            format!(
                "ops were announced in {seen} of {all} steps of the program{long}. Numbers of calls with ~ are \
                 estimates (--exact-counts: announced in all, at a higher price)"
            ),
        ));
    }
    let host = summary.probes.iter().any(|probe| probe.way.is_some_and(|way| way.value > 0.0));
    let price = Price::of(&summary.probes, 0)?.of_program?.value;
    if !host || all > 0 && !profile.manifest.exact_counts {
        return None;
    }
    let beyond = match price > budget {
        true => format!("recording took {}, and the budget is {}", percent(price), percent(budget)),
        false => return None,
    };
    Some((
        "steps",
        match profile.manifest.exact_counts {
            true => format!("all ops were announced, so that numbers of calls are exact: {beyond}"),
            false => format!(
                "{beyond}: all ops were announced, because the program has no steps that recur. \
                 torch.profiler.record_function around each step lets Counterpoint leave steps out"
            ),
        },
    ))
}

/// Returns an explanation of the values if only some calls were timed. `None` if the run had no
/// budget, or if no call or every call was timed.
pub fn limits(summary: &Summary) -> Option<&'static str> {
    let all = &summary.sampled.as_ref()?.all;
    let some = all.timed > 0 && Some(all.timed) != all.calls;
    let are_counted = summary
        .rows
        .iter()
        .all(|row| row.sampled.as_ref().is_some_and(|sampled| sampled.calls.is_some()));
    let by_steps = summary
        .rows
        .iter()
        .any(|row| row.sampled.as_ref().is_some_and(|sampled| sampled.by_steps.is_some()));
    some.then_some(match are_counted {
        true if by_steps => {
            "numbers of calls without ~ are exact, all other values are estimates from the timed calls; ± is \
             half of a 95 % interval, and – has too few timed calls to say anything (a row with – can be \
             the longest; a longer run or a larger --budget tells more). Calls that are \
             slow and rarer than 1 in 500 can be missing. Minimum, maximum and CPUs are those of the \
             timed calls"
        }
        true => {
            "numbers of calls are exact, all other values are estimates from the timed calls; ± is \
             half of a 95 % interval, and – has too few timed calls to say anything (a row with – can be \
             the longest; a longer run or a larger --budget tells more). Calls that are \
             slow and rarer than 1 in 500 can be missing. Minimum, maximum and CPUs are those of the \
             timed calls"
        }
        false => {
            "on which CPU a call was is known only if it was timed, so these rows say nothing of all \
             calls; minimum and maximum are those of the timed calls"
        }
    })
}

/// Returns the text of the margin (±) of the total time in calls. `None` if the time is exact or
/// unknown.
pub fn margin_together(overview: &Overview<'_>) -> Option<String> {
    let total = overview.summary.sampled.as_ref()?.all.total?;
    margin(&total).map(margin_text)
}

/// Returns an estimate's margin: the larger distance from its value to an end of its interval, as a
/// part of the value. Infinity if the interval is not known, or if the value is 0. `None` if the
/// value is exact.
pub fn margin(estimated: &Estimated) -> Option<f64> {
    match estimated.interval {
        Some(interval) if interval.is_exact() => None,
        interval => Some(interval.and_then(|all| all.relative()).unwrap_or(f64::INFINITY)),
    }
}

/// Returns the margin as text; empty if the estimate is exact.
pub fn margin_of(estimated: &Estimated) -> String {
    margin(estimated).map_or_else(String::new, margin_text)
}

/// Returns the mark of a number of calls: `~` if it is an estimate, and otherwise nothing.
pub fn about(by_steps: Option<&Estimated>) -> &'static str {
    if by_steps.is_some() { "~" } else { "" }
}

/// Returns a margin as text: ` ±4 %`. All margins above 100 % have the same text, because their
/// exact size would not be useful.
pub fn margin_text(part: f64) -> String {
    match part * 100.0 {
        p if !p.is_finite() => " ±?".to_owned(),
        p if p < 0.1 => " ±<0.1 %".to_owned(),
        p if p < 0.95 => format!(" ±{p:.1} %"),
        p if p > 100.0 => " ±>100 %".to_owned(),
        p => format!(" ±{p:.0} %"),
    }
}

/// In a run with a budget, removes the values that cannot be estimated from the timed calls. Adds
/// margins, the ends of intervals, and numbers of timed calls.
pub fn finish(profile: &Profile, summary: &Summary, columns: &mut Vec<Column>) {
    if summary.sampled.is_none() {
        return;
    }
    let rows = &summary.rows;
    let ns = profile.timeline.ns_per_tick();
    let of = |row: &Row| row.sampled.as_deref().cloned().unwrap_or_default();
    let sampled: Vec<SampledRow> = rows.iter().map(of).collect();
    let mut set = |name: &str, of: &dyn Fn(&SampledRow) -> Option<Estimated>| {
        let Some(column) = columns.iter_mut().find(|column| column.name == name) else { return };
        let found: Vec<Option<Estimated>> = sampled.iter().map(of).collect();
        for (cell, found) in column.cells.stored().iter_mut().zip(&found) {
            let known = found.is_some();
            *cell = cell.take().filter(|_| known);
        }
        if name == "share" {
            let part = |found: &Option<Estimated>| found.map(|share| Value::Part(share.value));
            column.cells = Cells::Stored(found.iter().map(part).collect());
        }
        // If the recorder's own cost was subtracted from a value, the cell has an interval that
        // includes the error of this cost. The margin comes from this interval, unless the interval
        // reaches 0 or the margin from the timed calls is not known.
        let margins = column.cells.stored().iter_mut().zip(&found).map(|(cell, found)| {
            let of_sample = margin(found.as_ref()?)?;
            let Some(Value::Estimated(_, all, with_interval)) = cell else {
                return Some(of_sample);
            };
            *with_interval = false;
            let part = all.relative().filter(|_| of_sample.is_finite() && all.is_resolved());
            Some(part.unwrap_or(of_sample))
        });
        column.margin = Some(margins.collect());
    };
    set("total_ns", &|row| row.total);
    set("mean_ns", &|row| row.mean());
    set("self_ns", &|row| row.total.filter(|_| row.self_known));
    set("share", &|row| row.share);
    for (i, counter) in profile.manifest.counters.iter().enumerate() {
        let of = move |row: &SampledRow| row.counters.get(i).copied().flatten();
        set(&counter.name, &|row| of(row).map(|counter| counter.total));
        let per_call = format!("{}_per_call", counter.name);
        set(&per_call, &|row| of(row).map(|counter| counter.mean()));
    }
    by_steps(&sampled, columns);
    for column in columns.iter_mut() {
        let kept: fn(&SampledRow) -> bool = match column.name.as_str() {
            "calls" => |row| row.calls.is_some(),
            "p50_ns" | "p99_ns" => |row| row.effective.is_some(),
            "min_ns" | "max_ns" | "cpus" => |row| row.timed > 0,
            _ => continue,
        };
        for (cell, row) in column.cells.stored().iter_mut().zip(&sampled) {
            *cell = cell.take().filter(|_| kept(row));
        }
        if matches!(column.name.as_str(), "min_ns" | "max_ns" | "cpus") {
            column.title += " timed";
        }
    }
    if let Some(column) = columns.iter_mut().find(|column| column.name == "dispatches") {
        column.csv_only |= column.cells.iter().all(|cell| cell.is_none());
    }
    // With a budget, counters are read in only some calls of most ops, so to mark metrics as
    // partial would tell nothing. In a table by CPU, counters have no values, so no column is
    // marked as partial, either.
    let by_cpu = sampled.iter().any(|row| row.calls.is_none());
    let partial = columns.iter_mut().filter(|column| column.hidden.is_some() || by_cpu);
    partial.for_each(|column| column.coverage = None);
    let parts = |n: fn(&SampledRow) -> u64| -> Vec<Option<Value>> {
        let part = |row: &SampledRow| {
            let calls = row.calls.filter(|calls| *calls > 0)?;
            Some(Value::Part(n(row) as f64 / calls as f64))
        };
        sampled.iter().map(part).collect()
    };
    let counts = |n: fn(&SampledRow) -> u64| -> Vec<Option<Value>> {
        sampled.iter().map(|row| Some(Value::Count(n(row).into()))).collect()
    };
    let mut after = columns.iter().position(|column| column.name == "calls").map_or(0, |at| at + 1);
    let mut insert = |column: Column| {
        columns.insert(after, column);
        after += 1;
    };
    let share = Column::new(2, "timed_share", "timed", parts(|row| row.timed));
    insert(Column { csv_only: by_cpu, ..share });
    let timed = Column::new(2, "timed_calls", "timed calls", counts(|row| row.timed));
    insert(Column { csv_only: !by_cpu, ..timed });
    if !profile.manifest.counters.is_empty() {
        let share = Column::new(6, "counted_share", "counted", parts(|row| row.counted));
        insert(Column { csv_only: by_cpu, ..share });
        insert(Column::for_programs("counted_calls", counts(|row| row.counted)));
    }
    let mut more = Vec::new();
    if sampled.iter().any(|row| row.by_steps.is_some()) {
        let exact = |row: &SampledRow| row.calls.map(|calls| Estimate::exact(calls as f64));
        let of = |row: &SampledRow| row.by_steps.map_or_else(|| exact(row), |calls| calls.interval);
        let ends: Vec<Option<Estimate>> = sampled.iter().map(of).collect();
        let end = |end: fn(Estimate) -> f64| -> Vec<Option<Value>> {
            let whole = |of: &Option<Estimate>| of.map(|of| Value::Count(end(of).max(0.0) as u128));
            ends.iter().map(whole).collect()
        };
        more.push(Column::for_programs("calls_low", end(|of| of.low.floor())));
        more.push(Column::for_programs("calls_high", end(|of| of.high.ceil())));
    }
    let mut ends =
        |name: &str, number: fn(f64) -> Value, of: &dyn Fn(&SampledRow) -> Option<Estimated>| {
            let column = columns.iter().find(|column| column.name == name);
            let shown = |at: usize| match column?.cells.get(at).as_deref() {
                Some(Value::Estimated(_, all, _)) => Some(*all),
                _ => None,
            };
            // If the recorder's own cost was subtracted from a value, the cell has an interval that
            // includes the error of this cost. The cell's interval is used instead of the row's.
            let interval = |(at, row): (usize, &SampledRow)| {
                let of_sample = of(row)?.interval?;
                Some(shown(at).unwrap_or(of_sample))
            };
            let found: Vec<_> = sampled.iter().enumerate().map(interval).collect();
            let low = found.iter().map(|all| all.map(|all| number(all.low)));
            let high = found.iter().map(|all| all.map(|all| number(all.high)));
            more.push(Column::for_programs(&format!("{name}_low"), low.collect()));
            more.push(Column::for_programs(&format!("{name}_high"), high.collect()));
        };
    ends("total_ns", Value::Ns, &|row| row.total.map(|total| total.times(ns)));
    ends("mean_ns", Value::Ns, &|row| row.mean().map(|mean| mean.times(ns)));
    ends("share", Value::Part, &|row| row.share);
    for (i, counter) in profile.manifest.counters.iter().enumerate() {
        let of = |row: &SampledRow| row.counters.get(i).copied().flatten();
        ends(&counter.name, Value::Number, &|row| of(row).map(|counter| counter.total));
    }
    columns.append(&mut more);
    for (i, counter) in profile.manifest.counters.iter().enumerate() {
        let counted = |row: &SampledRow| {
            let of = row.counters.get(i).copied().flatten();
            Some(Value::Count(of.map_or(0, |counter| counter.counted).into()))
        };
        let counted = sampled.iter().map(counted).collect();
        columns.push(Column::for_programs(&format!("{}_counted", counter.name), counted));
    }
    let effective = sampled.iter().map(|row| row.effective.map(Value::Number));
    columns.push(Column::for_programs("effective_calls", effective.collect()));
}

fn by_steps(sampled: &[SampledRow], columns: &mut [Column]) {
    let Some(column) = columns.iter_mut().find(|column| column.name == "calls") else { return };
    if sampled.iter().all(|row| row.by_steps.is_none()) {
        return;
    }
    for (cell, row) in column.cells.stored().iter_mut().zip(sampled) {
        if let (Some(Value::Count(calls)), Some(_)) = (&cell, row.by_steps) {
            *cell = Some(Value::About(*calls));
        }
    }
    let margins = sampled.iter().map(|row| row.by_steps.as_ref().and_then(margin));
    column.margin = Some(margins.collect());
}

/// An estimate with the ends of its interval. Null ends mean that the interval is not known.
#[derive(Serialize)]
pub struct EstimatedOut {
    value: f64,
    low: Option<f64>,
    high: Option<f64>,
}

impl EstimatedOut {
    /// Converts an estimate to its form in JSON. The estimate is multiplied by `factor`, which
    /// converts its unit, for example from ticks to ns.
    pub fn new(estimated: Estimated, factor: f64) -> Self {
        let estimated = estimated.times(factor);
        Self {
            value: estimated.value,
            low: estimated.interval.map(|interval| interval.low),
            high: estimated.interval.map(|interval| interval.high),
        }
    }
}

#[derive(Serialize)]
pub struct SampledOut {
    calls: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    estimated_calls: Option<EstimatedOut>,
    timed_calls: u64,
    counted_calls: u64,
    effective_calls: Option<f64>,
    total_ns: Option<EstimatedOut>,
    mean_ns: Option<EstimatedOut>,
    #[serde(skip_serializing_if = "Option::is_none")]
    share: Option<EstimatedOut>,
}

impl SampledOut {
    pub fn new(profile: &Profile, row: &SampledRow) -> Self {
        let ns = profile.timeline.ns_per_tick();
        Self {
            calls: row.calls,
            estimated_calls: row.by_steps.map(|calls| EstimatedOut::new(calls, 1.0)),
            timed_calls: row.timed,
            counted_calls: row.counted,
            effective_calls: row.effective,
            total_ns: row.total.map(|total| EstimatedOut::new(total, ns)),
            mean_ns: row.mean().map(|mean| EstimatedOut::new(mean, ns)),
            share: row.share.map(|share| EstimatedOut::new(share, 1.0)),
        }
    }
}

/// Returns the estimates for the whole run, or `None` if the run had no budget.
pub fn json(overview: &Overview<'_>) -> Option<impl Serialize> {
    let run = overview.summary.sampled.as_ref()?;
    let all = SampledOut { share: None, ..SampledOut::new(overview.profile, &run.all) };
    Some(object! { budget: run.budget, price: run.price, ..all: all })
}

/// Returns the estimates for a row's counter, if it has any.
pub fn counter(row: &Row, counter: usize) -> Option<impl Serialize> {
    let counter = row.sampled.as_ref()?.counters.get(counter).copied().flatten()?;
    Some(object! {
        counted_calls: counter.counted,
        total: EstimatedOut::new(counter.total, 1.0),
        per_call: EstimatedOut::new(counter.mean(), 1.0),
    })
}
