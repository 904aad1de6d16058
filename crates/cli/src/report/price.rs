//! What recording cost, and which of the report's figures are mostly its own: as text and as JSON.

use analysis::{Hidden, ProbeCost};
use profile::Usage;
use serde::Serialize;

use super::Report;
use super::columns::{Column, Table};
use super::json::{EmptyOut, empty_out};
use super::units::{grouped, number, percent, plural, time};

/// The cost of all probes that are calibrated, in ns of processor time.
struct Totals {
    calls: u64,
    of_calls: u64,
    probes_ns: f64,
    calibrated_ns: f64,
    way_ns: Option<f64>,
    switches: u64,
    switches_ns: Option<f64>,
    flush_ns: f64,
    attach_ns: f64,
    total_ns: f64,
    /// By how much it made the threads' processor time longer.
    slowdown: Option<f64>,
    cpu_ns: Option<f64>,
    share_of_dispatches: Option<f64>,
}

fn totals(probes: &[&ProbeCost], of_calls: u64) -> Option<Totals> {
    if probes.is_empty() {
        return None;
    }
    let sum = |of: fn(&ProbeCost) -> f64| probes.iter().map(|p| of(p)).sum::<f64>();
    let all = |of: fn(&ProbeCost) -> Option<f64>| probes.iter().map(|p| of(p)).sum::<Option<f64>>();
    let total_ns = sum(ProbeCost::total_ns);
    let way: Vec<f64> = probes.iter().filter_map(|p| p.way_ns).collect();
    let part = |of: Option<f64>| of.filter(|ns| *ns > 0.0).map(|ns| total_ns / ns);
    Some(Totals {
        calls: probes.iter().map(|p| p.calls).sum(),
        of_calls,
        probes_ns: sum(|p| p.probes_ns),
        calibrated_ns: sum(|p| p.calibrated_per_call_ns * p.calls as f64),
        way_ns: (!way.is_empty()).then(|| way.iter().sum()),
        switches: probes.iter().fold(0, |sum, p| sum.saturating_add(p.switches)),
        switches_ns: all(|p| p.switches_ns),
        flush_ns: sum(|p| p.flush_ns),
        attach_ns: sum(|p| p.attach_ns),
        total_ns,
        slowdown: part(all(ProbeCost::alone_ns)),
        cpu_ns: all(|p| p.cpu_ns),
        share_of_dispatches: part(all(|p| p.dispatch_ns)),
    })
}

fn of_all(report: &Report<'_>) -> Option<Totals> {
    let probes: Vec<&ProbeCost> = report.summary.probes.iter().collect();
    totals(&probes, report.profile.calls())
}

/// One paragraph.
pub fn text(report: &Report<'_>) -> String {
    let summary = report.summary;
    let mut text = match of_all(report) {
        None => "not calibrated, so their cost is unknown".to_owned(),
        Some(totals) => cost_text(&totals),
    };
    if let Some(one) = summary.probes.iter().max_by_key(|probe| probe.calls) {
        let empty = &one.empty_call;
        let counters = report.profile.manifest.counters.iter().zip(&empty.values);
        let values = counters.filter_map(|(counter, value)| {
            let value = value.filter(|v| *v > 0)?;
            Some(match counter.unit() {
                model::Unit::Nanoseconds => format!(", {} {}", counter.name, time(value as f64)),
                _ => format!(", {} {}", counter.name, number(value as f64)),
            })
        });
        let ticks = time(report.profile.timeline.duration_ns(empty.ticks));
        text.push_str(&format!("; an empty call reads {ticks}{}", values.collect::<String>()));
    }
    if summary.uncalibrated_probes && !summary.probes.is_empty() {
        text.push_str("; the other calls have sets of counters that were not calibrated");
    }
    text
}

fn cost_text(totals: &Totals) -> String {
    let calls = match totals.calls == totals.of_calls {
        true => plural(totals.calls.into(), "call"),
        false => {
            format!(
                "{} of {}",
                grouped(totals.calls.into()),
                plural(totals.of_calls.into(), "call")
            )
        }
    };
    let mut parts =
        vec![format!("{calls} at {} each", time(totals.probes_ns / totals.calls as f64))];
    if let Some(ns) = totals.way_ns {
        parts.push(format!("calling the instrument at most {}", time(ns)));
    }
    match totals.switches_ns {
        Some(ns) if totals.switches > 0 => parts.push(format!(
            "{} with counters {}",
            plural(totals.switches.into(), "context switch"),
            time(ns)
        )),
        Some(_) => {}
        None => parts.push("context switches with counters not measured".to_owned()),
    }
    parts.push(format!("flushing {}", time(totals.flush_ns)));
    if totals.attach_ns > 0.0 {
        parts.push(format!("starting threads {}", time(totals.attach_ns)));
    }
    format!("about {}{}: {}", time(totals.total_ns), share_text(totals), parts.join(", "))
}

/// An estimate cannot be more than all there is: then the calls' own probes were faster than those
/// of the calibration, by how much nobody knows.
fn share_text(totals: &Totals) -> String {
    let of_dispatches = match totals.share_of_dispatches {
        Some(share) => format!(" ({} of the time in dispatches)", percent(share)),
        None => String::new(),
    };
    match (totals.slowdown, totals.cpu_ns) {
        (Some(more), _) => {
            format!(
                " of processor time, {} more than without the recorder{of_dispatches}",
                percent(more)
            )
        }
        (None, Some(_)) => " by the calibration, which is more than the threads used in all (the \
                            machine was slower during the calibration than during the calls)"
            .to_owned(),
        (None, None) => format!(" of processor time{of_dispatches}"),
    }
}

/// What the kernel counted for all threads, for the report's head. `None`: nothing was noted.
pub fn usage_text(report: &Report<'_>) -> Option<String> {
    let used = |process: Option<usize>| {
        let threads = report.summary.threads.iter();
        let mine = threads.filter(|t| process.is_none_or(|process| t.process == process));
        mine.filter_map(|t| t.usage)
            .fold((0u128, Usage::default()), |(n, sum), more| (n + 1, sum.plus(&more)))
    };
    let (threads, all) = used(None);
    if threads == 0 {
        return None;
    }
    let mut processes: Vec<usize> = report.summary.threads.iter().map(|t| t.process).collect();
    processes.dedup();
    let mut text =
        format!("{}, in {} since their first calls", one(&all), plural(threads, "thread"));
    if processes.len() > 1 {
        for process in processes.iter().take(PROCESSES) {
            let label = super::columns::process_label(report.profile, *process);
            text.push_str(&format!("; {label}: {}", one(&used(Some(*process)).1)));
        }
        if let Some(more) = processes.len().checked_sub(PROCESSES).filter(|more| *more > 0) {
            text.push_str(&format!("; and {more} more (--format json has them)"));
        }
    }
    Some(text)
}

/// Processes that are told one by one.
const PROCESSES: usize = 4;

fn one(used: &Usage) -> String {
    format!(
        "{} on a CPU, {} ({} major), {} ({} involuntary)",
        time(used.cpu_ns as f64),
        plural(u128::from(used.minor_faults) + u128::from(used.major_faults), "page fault"),
        grouped(used.major_faults.into()),
        plural(used.switches().into(), "context switch"),
        grouped(used.involuntary_switches.into())
    )
}

/// Lines below a table about values that are mostly the probe's own: their mark and a text.
pub fn doubts(table: &Table, left_out: &[&str]) -> Vec<(&'static str, String)> {
    let mut lines = Vec::new();
    let shown = |column: &&Column| !column.csv_only && !left_out.contains(&column.name.as_str());
    let range = |shares: &[f64]| {
        let least = shares.iter().copied().fold(f64::MAX, f64::min);
        let most = shares.iter().copied().fold(0.0, f64::max);
        match percent(least) == percent(most) {
            true => percent(most),
            false => format!("{} to {}", percent(least), percent(most)),
        }
    };
    let empty: Vec<String> = table
        .columns
        .iter()
        .filter(shown)
        .filter(|c| table.columns.iter().any(|calls| calls.name == format!("{}_calls", c.name)))
        .filter_map(|column| {
            let shares = table.order.iter().filter_map(|row| column.is_mostly_empty(*row));
            let shares: Vec<f64> = shares.collect();
            (!shares.is_empty()).then(|| format!("{} {}", column.name, range(&shares)))
        })
        .collect();
    if !empty.is_empty() {
        let text = format!(
            "mostly counted by the probe itself; its part of the value: {}",
            empty.join(", ")
        );
        lines.push(("≈ ", text));
    }
    for column in table.columns.iter().filter(shown) {
        let Some(hidden) = &column.hidden else { continue };
        let found = table.order.iter().filter_map(|row| hidden.get(*row).copied().flatten());
        let found: Vec<Hidden> = found.collect();
        let count = |of: fn(&Hidden) -> bool| found.iter().filter(|h| of(h)).count();
        let kinds = [
            (
                count(|h| matches!(h, Hidden::Counter { .. })),
                "the probe itself counts most of a counter",
            ),
            (
                count(|h| matches!(h, Hidden::Duration { .. })),
                "the probe itself takes most of the duration",
            ),
            (
                count(|h| matches!(h, Hidden::MoreThanAll { .. })),
                "the value is above 100 % of the time, which is impossible",
            ),
        ];
        for (rows, why) in kinds.into_iter().filter(|(rows, _)| *rows > 0) {
            let rows = plural(rows as u128, "row");
            lines.push(("– ", format!("{} is left out of {rows}: {why}", column.name)));
        }
    }
    lines
}

/// Why a metric is `null` in JSON.
pub fn reason(hidden: Hidden, report: &Report<'_>) -> String {
    match hidden {
        Hidden::Counter { counter, empty_share } => {
            let name = report.profile.manifest.counters.get(counter).map_or("", |c| &c.name);
            format!("{} of {name} is what an empty call reads", percent(empty_share))
        }
        Hidden::Duration { empty_share } => {
            format!("{} of the duration is what empty calls take", percent(empty_share))
        }
        Hidden::MoreThanAll { part } => {
            format!("{} of the time is impossible", percent(part))
        }
    }
}

/// `probe` in the report's JSON.
#[derive(Serialize)]
pub struct ProbeOut {
    calls: u64,
    of_calls: u64,
    total_ns: f64,
    per_call_ns: f64,
    calibrated_per_call_ns: f64,
    probes_ns: f64,
    way_ns: Option<f64>,
    switches: u64,
    switches_ns: Option<f64>,
    flush_ns: f64,
    attach_ns: f64,
    cpu_ns: Option<f64>,
    slowdown: Option<f64>,
    share_of_dispatch_time: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    empty_call: Option<EmptyOut>,
}

impl ProbeOut {
    fn new(totals: &Totals, empty_call: Option<EmptyOut>) -> Self {
        let calls = totals.calls.max(1) as f64;
        Self {
            calls: totals.calls,
            of_calls: totals.of_calls,
            total_ns: totals.total_ns,
            per_call_ns: totals.probes_ns / calls,
            calibrated_per_call_ns: totals.calibrated_ns / calls,
            probes_ns: totals.probes_ns,
            way_ns: totals.way_ns,
            switches: totals.switches,
            switches_ns: totals.switches_ns,
            flush_ns: totals.flush_ns,
            attach_ns: totals.attach_ns,
            cpu_ns: totals.cpu_ns,
            slowdown: totals.slowdown,
            share_of_dispatch_time: totals.share_of_dispatches,
            empty_call,
        }
    }
}

/// Of all processes.
pub fn json_of_all(report: &Report<'_>) -> Option<ProbeOut> {
    of_all(report).map(|totals| ProbeOut::new(&totals, None))
}

/// Of one process.
pub fn json_of(report: &Report<'_>, process: usize) -> Option<ProbeOut> {
    let cost = report.summary.probes.iter().find(|p| p.process == process)?;
    let empty = empty_out(report.profile, &cost.empty_call);
    Some(ProbeOut::new(&totals(&[cost], cost.of_calls)?, Some(empty)))
}

/// `usage` of a thread in JSON.
#[derive(Serialize)]
pub struct UsageOut {
    of_ns: f64,
    cpu_ns: u64,
    minor_faults: u64,
    major_faults: u64,
    voluntary_switches: u64,
    involuntary_switches: u64,
}

impl UsageOut {
    pub fn new(report: &Report<'_>, used: &Usage) -> Self {
        Self {
            of_ns: report.profile.timeline.duration_ns(used.ticks),
            cpu_ns: used.cpu_ns,
            minor_faults: used.minor_faults,
            major_faults: used.major_faults,
            voluntary_switches: used.voluntary_switches,
            involuntary_switches: used.involuntary_switches,
        }
    }

    /// Of all threads of a process.
    pub fn of_process(report: &Report<'_>, process: usize) -> Option<Self> {
        let threads = report.summary.threads.iter().filter(|t| t.process == process);
        let used = threads.filter_map(|t| t.usage).reduce(|sum, more| sum.plus(&more))?;
        Some(Self::new(report, &used))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn totals(slowdown: Option<f64>, cpu_ns: Option<f64>) -> Totals {
        Totals {
            calls: 1,
            of_calls: 1,
            probes_ns: 1.0,
            calibrated_ns: 1.0,
            way_ns: None,
            switches: 0,
            switches_ns: Some(0.0),
            flush_ns: 0.0,
            attach_ns: 0.0,
            total_ns: 1.0,
            slowdown,
            cpu_ns,
            share_of_dispatches: Some(0.5),
        }
    }

    #[test]
    fn no_share_is_above_the_whole() {
        let text = share_text(&totals(Some(0.25), Some(9.0)));
        assert_eq!(
            text,
            " of processor time, 25.0 % more than without the recorder (50.0 % of the time in dispatches)"
        );
        let above = share_text(&totals(None, Some(9.0)));
        assert!(above.contains("more than the threads used in all"), "{above}");
        let unknown = share_text(&totals(None, None));
        assert_eq!(unknown, " of processor time (50.0 % of the time in dispatches)");
    }
}
