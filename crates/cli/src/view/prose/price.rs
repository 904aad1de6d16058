//! Prints the cost of recording as text and as JSON.

use analysis::probe::Price;
use analysis::{EmptyCall, Estimate, Hidden, ProbeCost};
use profile::Profile;
use serde::Serialize;

use super::overview::Overview;
use crate::object::object;
use crate::view::units::{grouped, number, percent, plural, time};

/// The head of a report mentions the cost if it is more than this part of the program's processor
/// time.
const WORTH_SAYING: f64 = 0.05;
/// The option that the line about the cost recommends.
const BUDGET: &str = "--budget 2%";

fn of_all(overview: &Overview<'_>) -> Option<Price> {
    Price::of(&overview.summary.probes, overview.profile.bracketed_calls())
}

/// Returns the line above a table that warns about the cost of recording. `None` if the cost was
/// small, not known, or limited by a budget.
pub fn warning(profile: &Profile, costs: &[ProbeCost]) -> Option<String> {
    if profile.manifest.budget.is_some() {
        return None;
    }
    Price::of(costs, 0).and_then(|totals| too_much(&totals))
}

fn too_much(totals: &Price) -> Option<String> {
    let Some(of_program) = totals.of_program else {
        // The estimated cost is nearly all of the processor time or more, so a comparison with the
        // program's own time would mean nothing.
        return totals.of_used.filter(|part| *part > 0.5).map(|_| {
            format!(
                "recording took nearly all of the processor time, about {} ({BUDGET} limits it)",
                time(totals.total.value)
            )
        });
    };
    if of_program.value <= WORTH_SAYING {
        return None;
    }
    let cost = format!("recording took {} more processor time", percent(of_program.value));
    Some(match totals.of_program_by_calls {
        Some(part) if part > WORTH_SAYING => format!("{cost} ({BUDGET} limits it)"),
        Some(part) if 2.0 * part > of_program.value => cost,
        _ => format!("{cost}, most of it at start-up"),
    })
}

pub fn line(overview: &Overview<'_>) -> String {
    line_of(overview.profile, &overview.summary.probes, overview.summary.raw)
}

/// Returns the cost of recording in one line, with a hint at `--verbose`. For views that have no
/// [`Overview`]. With `raw`, nothing was subtracted from the times in calls.
pub fn line_of(profile: &Profile, costs: &[ProbeCost], raw: bool) -> String {
    match Price::of(costs, profile.bracketed_calls()) {
        None => UNKNOWN.to_owned(),
        Some(totals) => {
            let times = if raw { "with" } else { "without" };
            let short = in_short(&totals, costs.len());
            format!("{short}; times in calls are {times} it (--verbose: its parts)")
        }
    }
}

/// Returns the cost of recording in one line, without the hint at `--verbose`.
pub fn whole(overview: &Overview<'_>) -> String {
    let processes = overview.summary.probes.len();
    of_all(overview).map_or_else(|| UNKNOWN.to_owned(), |totals| in_short(&totals, processes))
}

const UNKNOWN: &str = "not calibrated, so what recording cost is unknown";

fn in_short(totals: &Price, processes: usize) -> String {
    let program = match processes {
        1 => "the whole process".to_owned(),
        n => format!("all {n} processes"),
    };
    let share = match (totals.of_program, totals.cpu_ns) {
        // The cost is compared with the processor time that the program uses without the recorder.
        (Some(more), _) if more.value > 0.0 => {
            let alone = time(totals.total.value / more.value);
            let more = percent(more.value);
            format!(", {more} more than the {alone} that {program} used without it")
        }
        (Some(_), _) => String::new(),
        (None, Some(_)) => ", nearly all of it".to_owned(),
        (None, None) => String::new(),
    };
    let ns = time(totals.total.value);
    let by_steps = match totals.way_by_steps {
        true => ", from steps in which ops were announced and others",
        false => "",
    };
    format!("about {ns} of processor time{share}{by_steps}")
}

pub fn text(overview: &Overview<'_>) -> String {
    let summary = overview.summary;
    let mut text = text_of(overview.profile, &summary.probes);
    if summary.uncalibrated_probes && !summary.probes.is_empty() {
        text.push_str("; the other calls have sets of counters that were not calibrated");
    }
    text
}

/// Returns the cost of recording and its parts in one paragraph. For views that have no
/// [`Overview`].
pub fn text_of(profile: &Profile, costs: &[ProbeCost]) -> String {
    let mut text = match Price::of(costs, profile.bracketed_calls()) {
        None => "not calibrated, so their cost is unknown".to_owned(),
        Some(totals) => cost_text(&totals),
    };
    if let Some(ns) = profile.manifest.run_cpu_ns {
        text.push_str(&format!("; beside the program, run itself used {}", time(ns as f64)));
    }
    let timed = costs.iter().filter(|probe| probe.calls > 0);
    if let Some(one) = timed.max_by_key(|probe| probe.calls) {
        let empty = &one.empty_call;
        let counters = profile.manifest.counters.iter().zip(&empty.values);
        let values = counters.filter_map(|(counter, value)| {
            let value = value.filter(|v| *v > 0)?;
            Some(match counter.unit() {
                model::Unit::Nanoseconds => format!(", {} {}", counter.name, time(value as f64)),
                _ => format!(", {} {}", counter.name, number(value as f64)),
            })
        });
        let ticks = time(profile.timeline.duration_ns(empty.ticks));
        text.push_str(&format!("; an empty call reads {ticks}{}", values.collect::<String>()));
    }
    text
}

fn cost_text(totals: &Price) -> String {
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
    let mut parts = Vec::new();
    if totals.of_calls > 0 || (totals.only_counted == 0 && totals.hits.is_empty()) {
        parts.push(format!("{calls} at {} each", time(totals.per_call_ns())));
    }
    if totals.only_counted > 0 {
        let calls = plural(totals.only_counted.into(), "call");
        parts.push(format!("{calls} only counted {}", range(totals.counting)));
    }
    if totals.after.high > 0.0 {
        parts.push(format!("the program's code after readings {}", time(totals.after.value)));
    }
    if totals.hits.hits > 0 {
        let hits = plural(totals.hits.hits.into(), "hit");
        parts.push(format!("{hits} of loops {}", range(totals.hits.cost)));
    }
    if totals.hits.unknown > 0 {
        let hits = plural(totals.hits.unknown.into(), "hit");
        parts.push(format!("what {hits} of loops took is not known"));
    }
    if let Some(way) = totals.way {
        let with_waiting = match totals.way_by_steps {
            true => ", with threads that waited meanwhile,",
            false => "",
        };
        parts.push(format!("announcing ops to the recorder{with_waiting} {}", range(way)));
    }
    if let Some(waiting) = totals.waiting {
        parts.push(format!("threads that waited meanwhile {}", range(waiting)));
    }
    if totals.waits_unknown {
        parts.push("what threads took that waited meanwhile is not known".to_owned());
    }
    match totals.switched {
        Some(added) if totals.switches > 0 => parts.push(format!(
            "{} with counters {}",
            plural(totals.switches.into(), "context switch"),
            range(added)
        )),
        Some(_) => {}
        None => parts.push("context switches with counters not measured".to_owned()),
    }
    parts.push(format!("flushing {}", time(totals.flush_ns)));
    if totals.attach_ns > 0.0 {
        parts.push(format!("starting threads {}", time(totals.attach_ns)));
    }
    if let Some(start) = totals.start {
        parts.push(format!("starting the process {}", time(start.value)));
    }
    format!("about {}{}: {}", range(totals.total), share_text(totals), parts.join(", "))
}

/// Formats a time with its range, such as `12.3 ms (10.1 ms to 14.2 ms)`. If both ends look the
/// same as the value, only the value is returned.
fn range(ns: Estimate) -> String {
    let [value, low, high] = [ns.value, ns.low.max(0.0), ns.high].map(time);
    match low == value && high == value {
        true => value,
        false => format!("{value} ({low} to {high})"),
    }
}

/// Returns the cost as a share of the program's processor time. If the cost by the calibration is
/// nearly all processor time or more, no share is printed. In this case, the recorder was faster in
/// the program than during the calibration.
fn share_text(totals: &Price) -> String {
    let of_dispatches = match totals.of_dispatches {
        Some(share) => format!(" ({} of the time in calls)", percent(share.value)),
        None => String::new(),
    };
    match (totals.of_program, totals.cpu_ns) {
        (Some(more), _) => {
            format!(
                " of processor time, {} more than without the recorder{of_dispatches}",
                percent(more.value)
            )
        }
        (None, Some(_)) => {
            " of processor time, nearly all that there was (by the calibration it is \
                            more: the machine was slower then than during the calls)"
                .to_owned()
        }
        (None, None) => format!(" of processor time{of_dispatches}"),
    }
}

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

/// Returns the cost of recording for JSON, where most views call it `probe`. `parts` has the costs
/// with their ranges. Values that are not known are null. `run_cpu_ns` is the processor time of the
/// command `run` itself, which is not part of the cost.
fn probe_out(
    totals: &Price,
    run_cpu_ns: Option<u64>,
    empty_call: Option<(&Profile, &EmptyCall)>,
) -> impl Serialize + use<> {
    let value = |of: Option<Estimate>| of.map(|of| of.value);
    let timed = |ns: f64| Some(ns).filter(|_| totals.calls > 0);
    object! {
        calls: totals.calls,
        of_calls: totals.of_calls,
        only_counted: totals.only_counted,
        total_ns: totals.total.value,
        // This member and the next one are null if no call was timed.
        per_call_ns: timed(totals.per_call_ns()),
        calibrated_per_call_ns: timed(totals.calibrated_per_call_ns()),
        probes_ns: totals.probes.value,
        way_ns: value(totals.way),
        switches: totals.switches,
        switches_ns: value(totals.switched),
        flush_ns: totals.flush_ns,
        attach_ns: totals.attach_ns,
        cpu_ns: totals.cpu_ns,
        slowdown: value(totals.of_program),
        share_of_dispatch_time: value(totals.of_dispatches),
        total: totals.total,
        of_program: totals.of_program,
        of_dispatches: totals.of_dispatches,
        parts: object! {
            probes: totals.probes,
            counting: totals.counting,
            after_readings: totals.after,
            way: totals.way,
            waiting: totals.waiting,
            hits: (!totals.hits.is_empty()).then_some(totals.hits.cost),
            switches: totals.switched,
            flush: Estimate::exact(totals.flush_ns),
            attach: Estimate::exact(totals.attach_ns),
            start: totals.start,
        },
        run_cpu_ns?: run_cpu_ns,
        empty_call?: empty_call.map(|(profile, empty)| empty_out(profile, empty)),
    }
}

/// Returns the cost of all processes together, for JSON.
pub fn json_of_all(overview: &Overview<'_>) -> Option<impl Serialize + use<>> {
    let run_cpu_ns = overview.profile.manifest.run_cpu_ns;
    of_all(overview).map(|totals| probe_out(&totals, run_cpu_ns, None))
}

/// Returns the cost of the given processes for JSON. Together they recorded `of_calls` calls.
pub fn json_of_costs(costs: &[ProbeCost], of_calls: u64) -> Option<impl Serialize + use<>> {
    Price::of(costs, of_calls).map(|totals| probe_out(&totals, None, None))
}

/// Returns the cost of one process, for JSON.
pub fn json_of(overview: &Overview<'_>, process: usize) -> Option<impl Serialize + use<>> {
    let cost = overview.summary.probes.iter().find(|p| p.process == process)?;
    let empty = (cost.calls > 0).then_some((overview.profile, &cost.empty_call));
    Some(probe_out(&Price::of([cost], cost.of_calls)?, None, empty))
}

/// Returns, for JSON, what the recorder measures for an empty call in a process, and what is
/// therefore subtracted from calls.
pub fn empty_out(profile: &Profile, empty: &EmptyCall) -> impl Serialize + use<> {
    object! {
        duration_ns: profile.timeline.duration_ns(empty.ticks),
        duration_range_ns: empty.ticks_range.map(|r| r.map(|t| profile.timeline.duration_ns(t))),
        counters: empty.values.clone(),
        counter_ranges: empty.ranges.clone(),
        subtracted_ns: empty.duration.mean.times(profile.timeline.ns_per_tick()),
        subtracted: empty
            .counters
            .iter()
            .map(|c| c.map(|bracket| bracket.mean))
            .collect::<Vec<_>>(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn totals(of_program: Option<f64>, by_calls: f64, cpu_ns: Option<f64>) -> Price {
        let around = |value: f64| Estimate { value, low: value / 2.0, high: value * 2.0 };
        Price {
            calls: 1,
            of_calls: 1,
            probes: Estimate::exact(1.0),
            calibrated_ns: 1.0,
            hits: analysis::probe::Hits::default(),
            only_counted: 0,
            counting: Estimate::exact(0.0),
            after: Estimate::exact(0.0),
            way: None,
            way_by_steps: false,
            waiting: None,
            waits_unknown: false,
            switches: 0,
            switched: Some(Estimate::exact(0.0)),
            flush_ns: 0.0,
            attach_ns: 0.0,
            start: None,
            total: Estimate::exact(1.0),
            of_program: of_program.map(around),
            of_program_by_calls: Some(by_calls),
            of_used: None,
            cpu_ns,
            of_dispatches: Some(around(0.5)),
        }
    }

    #[test]
    fn no_share_is_above_the_whole() {
        let text = share_text(&totals(Some(0.25), 0.25, Some(9.0)));
        assert_eq!(
            text,
            " of processor time, 25.0 % more than without the recorder (50.0 % of the \
             time in calls)"
        );
        let above = share_text(&totals(None, 0.0, Some(9.0)));
        assert!(above.contains("nearly all that there was"), "{above}");
        let unknown = share_text(&totals(None, 0.0, None));
        assert_eq!(unknown, " of processor time (50.0 % of the time in calls)");
    }

    /// If the cost of calls alone is not worth mentioning, the line does not recommend a budget,
    /// because a budget does not reduce the cost of start-up.
    #[test]
    fn the_head_says_when_recording_cost_more_than_a_twentieth() {
        let line = too_much(&totals(Some(0.08), 0.06, None)).unwrap();
        assert_eq!(line, "recording took 8.00 % more processor time (--budget 2% limits it)");
        let start = too_much(&totals(Some(0.08), 0.03, None)).unwrap();
        assert!(start.ends_with(", most of it at start-up"), "{start}");
        let both = too_much(&totals(Some(0.08), 0.05, None)).unwrap();
        assert_eq!(both, "recording took 8.00 % more processor time");
        assert_eq!(too_much(&totals(Some(0.05), 0.05, None)), None);
        assert_eq!(too_much(&totals(None, 0.5, None)), None, "unknown");
        let all = Price { of_used: Some(1.2), ..totals(None, 0.0, None) };
        let line = too_much(&all).unwrap();
        assert!(line.starts_with("recording took nearly all of the processor time"), "{line}");
    }

    #[test]
    fn a_range_of_times() {
        let ns = |value, low, high| range(Estimate { value, low, high });
        assert_eq!(ns(2e6, 1.5e6, 3e6), "2.00 ms (1.50 ms to 3.00 ms)");
        assert_eq!(ns(2e6, 2e6, 2e6), "2.00 ms");
    }
}
