//! Writes the first lines of a report: the most important findings, in words.

use analysis::{Counts, Outside, Summary, passes};

use profile::Origin;

use super::overview::{Overview, name_of};
use super::sampled;
use crate::view::labels::{has_roles, labels, process_label, thread_label};
use crate::view::units::{percent, plural, shorten, time};

/// Smaller parts of the threads' time are not mentioned.
const WORTH_SAYING: f64 = 0.01;
/// If calls are off a CPU for at least this part of their time, a sentence says so, because
/// durations then do not measure work.
const MOSTLY: f64 = 0.5;
/// Longer names of ops are shortened.
const NAME: usize = 60;

/// Returns up to three sentences.
///
/// 1. How long the calls took, and in which rows most of this time was: `125 ms in 40,200 calls
///    (workgroups of 5,100 dispatches, 2 threads), 51.0 % in 2 of 15 ops`.
///
/// 2. How much of its time a thread was outside of calls; the thread is the one with the most time
///    in calls: `worker-0 (4712), with the most time in calls of 2 threads, spent 86.2 % of the 455
///    ms since its first call outside of calls, 86.8 % of that off a CPU`. If the thread's calls
///    were mostly off a CPU, the sentence ends with `; in calls, it was off a CPU for 67.0 % of 410
///    ms`. After several passes (`run --passes`), the sentence is about all threads together.
///
/// 3. Which op or range takes the most time together with the calls inside of it, except for ops
///    and ranges that take nearly all of their threads' time:
///    `step takes 36.1 s with the calls inside of it, 36.0 % of its thread's time in calls`.
///
/// `lasted_ns` is the length of the recording.
pub fn lines(overview: &Overview<'_>, lasted_ns: Option<u64>) -> Vec<String> {
    let mut first = calls(overview);
    let are_all = overview.filter.is_none() && overview.places == [None; 3];
    if let Some(most) = overview.summary.most(overview.profile).filter(|_| are_all) {
        let all = plural(overview.summary.rows.len() as u128, name_of(overview.by));
        let by_self = if overview.summary.nested { " by self time" } else { "" };
        first.push_str(&format!(", {} in {} of {all}{by_self}", percent(most.share), most.rows));
    }
    let manifest = &overview.profile.manifest;
    // The length of the run is printed for comparison with the other two times. The time in calls
    // is a sum over all threads, and the time of a thread begins only with its first call.
    let whole = lasted_ns.filter(|_| manifest.origin == Origin::Run && manifest.passes == 0);
    if let Some(ns) = whole {
        first.push_str(&format!("; the run took {}", time(ns as f64)));
    }
    let each = passes(overview.profile, overview.by);
    let (who, outside) = outside(overview, each);
    let second = outside.filter(|outside| outside.share() >= WORTH_SAYING).map(|outside| {
        let each = outside.wall_ns / each as f64;
        let first = if outside.threads == 1 { "its first call" } else { "their first calls" };
        let share = percent(outside.share());
        let off = match outside.off_cpu_share().filter(|off| *off >= WORTH_SAYING) {
            Some(off) => format!(", {} of that off a CPU", percent(off)),
            None => String::new(),
        };
        let each = time(each);
        format!("{who} spent {share} of the {each} since {first} outside of calls{off}")
    });
    let second = with_off_cpu_in_calls(second, &who, outside, each);
    let around = overview.summary.around(overview.profile).filter(|_| are_all);
    let third = around.map(|around| {
        let threads = match around.threads {
            1 => "its thread's".to_owned(),
            n => format!("its {n} threads'"),
        };
        format!(
            "{} takes {} with the calls inside of it, {} of {threads} time in calls",
            shorten(&labels(overview.profile, &[around.key]).concat(), NAME),
            time(around.total_ns),
            percent(around.share)
        )
    });
    [first].into_iter().chain(second).chain(third).collect()
}

/// If calls were off a CPU for at least [`MOSTLY`] of their time, adds this part to the second
/// sentence, or makes a sentence of it if there is no second one. Without this part, readers would
/// assume that time in calls is work.
fn with_off_cpu_in_calls(
    second: Option<String>,
    who: &str,
    outside: Option<Outside>,
    passes: u64,
) -> Option<String> {
    let mostly = outside.and_then(|outside| {
        let share = outside.off_cpu_share_in_calls().filter(|share| *share >= MOSTLY)?;
        Some((percent(share), time(outside.in_calls_ns / passes as f64)))
    });
    let Some((share, all)) = mostly else { return second };
    let several = outside.is_some_and(|outside| outside.threads > 1);
    let (pronoun, verb) = if several { ("they", "were") } else { ("it", "was") };
    Some(match second {
        Some(second) => {
            format!("{second}; in calls, {pronoun} {verb} off a CPU for {share} of {all}")
        }
        None => format!("{who} {verb} off a CPU for {share} of {all} in calls"),
    })
}

/// Returns a text that names the thread with the most time in calls, and the thread's time outside
/// of calls. A sum over all threads would include threads that only wait. After several passes
/// (`run --passes`), the time is a sum over all threads, because each pass has its own threads.
fn outside(overview: &Overview<'_>, passes: u64) -> (String, Option<Outside>) {
    let (profile, summary) = (overview.profile, overview.summary);
    let all = summary.outside(profile);
    match (summary.busiest(profile), all.map_or(0, |all| all.threads)) {
        (_, 1) => ("the thread".to_owned(), all),
        (Some((thread, of_thread)), threads) if passes == 1 => {
            let label = thread_label(profile, thread.process, thread.thread);
            let of = match profile.processes.len() {
                1 => String::new(),
                _ => format!(" of {}", process_label(profile, thread.process)),
            };
            let most = format!("with the most time in calls of {threads} threads");
            (format!("{label}{of}, {most},"), Some(of_thread))
        }
        _ => ("the threads".to_owned(), all),
    }
}

fn calls(overview: &Overview<'_>) -> String {
    let summary = overview.summary;
    let of_pass = summary.together(overview.profile, overview.by);
    let ns = |ticks: f64| time(ticks * overview.profile.timeline.ns_per_tick());
    let margin = sampled::margin_together(overview).unwrap_or_default();
    let together = of_pass.total.map(|total| format!("{}{margin}", ns(total)));
    let each = of_pass.passes;
    let Counts { processes, threads, devices } = summary.places(overview.profile);
    let count = |n: usize, least: usize, of: &str| {
        // With several passes, these numbers are left out: each pass has its own processes and
        // threads.
        (n > least && each == 1).then(|| plural(n as u128, of))
    };
    let places = [
        // If some calls are not workgroups, such as calls of virtual machines, the text does not
        // say that the calls are workgroups of dispatches.
        of_pass.dispatches.filter(|n| *n > 0).map(|n| {
            let dispatches = plural(n.into(), "dispatch");
            match has_roles(overview.profile) {
                true => dispatches,
                false => format!("workgroups of {dispatches}"),
            }
        }),
        count(processes, 1, "process"),
        count(threads, 0, "thread"),
        count(devices, 0, "device"),
        (each > 1).then(|| format!("mean of {each} passes")),
    ];
    let places = places.into_iter().flatten().collect::<Vec<_>>().join(", ");
    let sampled = summary.sampled.as_ref();
    let is_estimate = sampled.is_some_and(|run| run.all.by_steps.is_some());
    let about = if is_estimate { "~" } else { "" };
    let calls = format!("{about}{} ({places})", plural(of_pass.calls.into(), "call"));
    match together {
        Some(together) => format!("{together} in {calls}"),
        None => format!("{calls}{}", why_unknown(summary)),
    }
}

fn why_unknown(summary: &Summary) -> &'static str {
    match &summary.sampled {
        Some(run) if run.all.timed == 0 => ", which were only counted",
        // A call inside of a timed one may have been counted and not timed, so self times are not
        // known.
        Some(_) if summary.nested => "; only some were timed, so how long all took is not known",
        _ => "; too few were timed to say how long all took",
    }
}
