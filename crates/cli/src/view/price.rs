//! The cost of recording, as text and as JSON.

use analysis::{EmptyCall, Estimate, Hidden, ProbeCost};
use profile::Profile;
use serde::Serialize;

use super::overview::Overview;
use super::units::{grouped, number, percent, plural, time};

/// The cost of all calibrated probes, in ns of processor time.
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
    /// The cost as a part of the processor time that the threads would have used without it.
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

fn of_all(overview: &Overview<'_>) -> Option<Totals> {
    let probes: Vec<&ProbeCost> = overview.summary.probes.iter().collect();
    totals(&probes, overview.profile.bracketed_calls())
}

/// The cost in one paragraph.
pub fn text(overview: &Overview<'_>) -> String {
    let summary = overview.summary;
    let mut text = match of_all(overview) {
        None => "not calibrated, so their cost is unknown".to_owned(),
        Some(totals) => cost_text(&totals),
    };
    if let Some(one) = summary.probes.iter().max_by_key(|probe| probe.calls) {
        let empty = &one.empty_call;
        let counters = overview.profile.manifest.counters.iter().zip(&empty.values);
        let values = counters.filter_map(|(counter, value)| {
            let value = value.filter(|v| *v > 0)?;
            Some(match counter.unit() {
                model::Unit::Nanoseconds => format!(", {} {}", counter.name, time(value as f64)),
                _ => format!(", {} {}", counter.name, number(value as f64)),
            })
        });
        let ticks = time(overview.profile.timeline.duration_ns(empty.ticks));
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

/// The cost as a share of processor time. If the estimate exceeds the threads' whole processor
/// time, it is stated without a share: the probes of the calls were then faster than those of the
/// calibration.
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

/// Why a metric is `null` in JSON.
pub fn reason(hidden: Hidden, overview: &Overview<'_>) -> String {
    match hidden {
        Hidden::Counter { counter, empty_share } => {
            let name = overview.profile.manifest.counters.get(counter).map_or("", |c| &c.name);
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

/// The cost of all processes together.
pub fn json_of_all(overview: &Overview<'_>) -> Option<ProbeOut> {
    of_all(overview).map(|totals| ProbeOut::new(&totals, None))
}

/// The cost of one process.
pub fn json_of(overview: &Overview<'_>, process: usize) -> Option<ProbeOut> {
    let cost = overview.summary.probes.iter().find(|p| p.process == process)?;
    let empty = empty_out(overview.profile, &cost.empty_call);
    Some(ProbeOut::new(&totals(&[cost], cost.of_calls)?, Some(empty)))
}

/// The recorded values of a call that does nothing, in JSON.
#[derive(Serialize)]
pub struct EmptyOut {
    duration_ns: f64,
    duration_range_ns: Option<[f64; 2]>,
    counters: Vec<Option<u64>>,
    counter_ranges: Vec<Option<[u64; 2]>>,
    subtracted_ns: Estimate,
    subtracted: Vec<Option<Estimate>>,
}

/// The recorded values of an empty call of a process.
pub fn empty_out(profile: &Profile, empty: &EmptyCall) -> EmptyOut {
    EmptyOut {
        duration_ns: profile.timeline.duration_ns(empty.ticks),
        duration_range_ns: empty.ticks_range.map(|r| r.map(|t| profile.timeline.duration_ns(t))),
        counters: empty.values.clone(),
        counter_ranges: empty.ranges.clone(),
        subtracted_ns: empty.duration.mean.times(profile.timeline.ns_per_tick()),
        subtracted: empty.counters.iter().map(|c| c.map(|bracket| bracket.mean)).collect(),
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
