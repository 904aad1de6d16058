//! The first lines of a report: what matters most in it, in words.

use analysis::{By, Counts};

use super::overview::{Overview, name_of};
use super::sampled;
use super::units::{percent, plural, time};

/// A smaller part of the threads' time than this is not worth saying.
const WORTH_SAYING: f64 = 0.01;

/// How long the calls took and where most of that went, and how much of the threads' time was spent
/// outside of them: `125 ms in 40,200 calls (5,100 dispatches, 2 threads), 51.0 % in 2 of 15 ops` and
/// `the threads spent 86.2 % of 911 ms outside of calls, 86.8 % of that off a CPU`.
pub fn lines(overview: &Overview<'_>) -> Vec<String> {
    let mut first = calls(overview);
    let are_all = overview.filter.is_none() && overview.places == [None; 3];
    if let Some(most) = overview.summary.most(overview.profile).filter(|_| are_all) {
        let all = plural(overview.summary.rows.len() as u128, name_of(overview.by));
        let by_self = if overview.summary.nested { " by self time" } else { "" };
        first.push_str(&format!(", {} in {} of {all}{by_self}", percent(most.share), most.rows));
    }
    let outside =
        overview.summary.outside(overview.profile).filter(|o| o.ns >= WORTH_SAYING * o.wall_ns);
    let second = outside.map(|outside| {
        let each = outside.wall_ns / passes(overview) as f64;
        let who = if outside.threads == 1 { "the thread" } else { "the threads" };
        let share = percent(outside.ns / outside.wall_ns);
        let off = match outside.off_cpu_ns.filter(|off| *off >= WORTH_SAYING * outside.ns) {
            Some(off) => format!(", {} of that off a CPU", percent(off / outside.ns)),
            None => String::new(),
        };
        format!("{who} spent {share} of {} outside of calls{off}", time(each))
    });
    [first].into_iter().chain(second).collect()
}

/// How many passes the rows are the mean of.
fn passes(overview: &Overview<'_>) -> u64 {
    let is_mean = overview.by == By::Op && overview.profile.manifest.passes > 0;
    if is_mean { overview.profile.passes().max(1).into() } else { 1 }
}

fn calls(overview: &Overview<'_>) -> String {
    let summary = overview.summary;
    let each = passes(overview);
    let ns = overview.profile.timeline.ns_per_tick() / each as f64;
    let together = match sampled::together(overview, ns) {
        Some(estimate) => estimate,
        None => summary.total.map(|sum| time(sum.value * ns)),
    };
    let Counts { processes, threads, devices } = summary.places(overview.profile);
    let count = |n: usize, least: usize, of: &str| {
        // Each pass runs in a process of its own.
        (n > least && each == 1).then(|| plural(n as u128, of))
    };
    let places = [
        // Calls of virtual machines are not part of dispatches.
        summary.dispatches.filter(|n| *n > 0).map(|n| plural((n / each).into(), "dispatch")),
        count(processes, 1, "process"),
        count(threads, 0, "thread"),
        count(devices, 0, "device"),
        (each > 1).then(|| format!("mean of {each} passes")),
    ];
    let places = places.into_iter().flatten().collect::<Vec<_>>().join(", ");
    let calls = format!("{} ({places})", plural((summary.calls / each).into(), "call"));
    match together {
        Some(together) => format!("{together} in {calls}"),
        None => format!("{calls}, which took an unknown time"),
    }
}
