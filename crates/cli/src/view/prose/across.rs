//! Describes in words how the ranks (processes of a distributed program) in a dataset of profiles
//! differ.

use analysis::across::{FEWEST_RANKS, RunAcross};

use crate::terminal::visible;
use crate::view::units::{percent, plural, time};

/// At most this many slow ranks are named in addition to the slowest one.
const NAMED: usize = 3;

/// Returns up to two sentences. The first names slow ranks, or says that none stands out or that
/// there are too few ranks to tell. It is missing for a single rank. The second says how long the
/// calls of all ranks took, if this is known.
pub fn sentences(run: &RunAcross, is_one_of_several: bool) -> Vec<String> {
    let of = match is_one_of_several {
        true => format!("run {}: ", visible(&run.run)),
        false => String::new(),
    };
    let first = slowest(run).map(|text| format!("{of}{text}"));
    let second = format!("{of}{}", together(run));
    first.into_iter().chain([second]).collect()
}

fn slowest(run: &RunAcross) -> Option<String> {
    let name = |op: usize| visible(&run.ops[op].name).into_owned();
    let ranks = run.ranks.len();
    if ranks < 2 {
        return None;
    }
    let above = |excess: &analysis::across::Excess| match excess.part() {
        Some(part) => format!("{} ({}) above", time(excess.ns()), percent(part)),
        None => format!("{} above", time(excess.ns())),
    };
    let slow = run.slow();
    if let Some((rank, excess)) = slow.first() {
        let about = if excess.is_estimate { "about " } else { "" };
        let mut text = format!(
            "rank {} is slow because of {}: {about}{} there without calls inside, {} the median of {ranks} \
             ranks",
            rank.rank,
            name(excess.op),
            time(excess.own_ns),
            above(excess),
        );
        let others: Vec<String> = slow[1..]
            .iter()
            .take(NAMED)
            .map(|(rank, excess)| {
                format!("{} ({}, by {})", rank.rank, name(excess.op), time(excess.ns()))
            })
            .collect();
        if !others.is_empty() {
            text.push_str(&format!("; so is rank {}", others.join(", rank ")));
        }
        match slow.len().saturating_sub(1 + NAMED) {
            0 => {}
            more => text.push_str(&format!(", and {}", plural(more as u128, "more rank"))),
        }
        return Some(text);
    }
    let all = run.by_excess();
    let Some((rank, excess)) = all.first() else {
        return Some(format!("no rank stands out: all {ranks} have the same time in each op"));
    };
    let most = format!("rank {} in {}, {} the median", rank.rank, name(excess.op), above(excess));
    Some(match ranks < FEWEST_RANKS {
        true => format!(
            "of {ranks} ranks, most is {most}; with fewer than {FEWEST_RANKS} ranks, it is not known what \
             is usual"
        ),
        false => format!("no rank of {ranks} stands out; most is {most}"),
    })
}

fn together(run: &RunAcross) -> String {
    let ops = plural(run.ops.len() as u128, "op");
    let ranks = plural(run.ranks.len() as u128, "rank");
    let about = if run.sums.is_estimate { "~" } else { "" };
    let calls = run.sums.calls.and_then(|calls| u128::try_from(calls).ok());
    let calls = calls.map_or("calls".to_owned(), |calls| plural(calls, "call"));
    let places = format!("{calls} of {ops} on {ranks}");
    let most = run.imbalance.filter(|_| run.ranks.len() > 1).map(|imbalance| {
        format!("; the rank with the most time has {imbalance:.2} times the mean")
    });
    let most = most.unwrap_or_default();
    match run.sums.own_ns {
        Some(ns) => format!("{about}{} in {places}{most}", time(ns as f64)),
        None => format!("{places}; how long they took is not known of all ranks{most}"),
    }
}

/// Returns a sentence about the alignment of the ranks' clocks. `None` for a single rank.
pub fn clocks(run: &RunAcross) -> Option<String> {
    if run.ranks.len() < 2 {
        return None;
    }
    let mut hosts: Vec<&String> = run.ranks.iter().flat_map(|rank| &rank.place.hosts).collect();
    hosts.sort_unstable();
    hosts.dedup();
    let ranks = plural(run.ranks.len() as u128, "rank");
    // The offset of a rank is the difference between its clock and the clock of the first rank.
    let offsets = run.ranks.iter().filter_map(|rank| rank.place.offset);
    if let Some(worst) = offsets.map(|offset| offset.uncertainty_ns()).reduce(f64::max) {
        return Some(format!("those of {ranks} are aligned to ±{} or better", time(worst)));
    }
    let machines = plural(hosts.len() as u128, "machine");
    let aligned = run.ranks.iter().filter(|rank| rank.place.clock != "own").count();
    let known = run.ranks.iter().filter_map(|rank| rank.place.clock_uncertainty_ns).max();
    let how = match (aligned, known) {
        (0, _) => "none was aligned with another one".to_owned(),
        (n, Some(ns)) => {
            format!("{n} were aligned when profiles were merged, to ±{}", time(ns as f64))
        }
        (n, None) => format!(
            "{n} were aligned when profiles were merged; by how much that may be wrong is not known"
        ),
    };
    let within = match hosts.len() {
        1 => "all ranks say that they are of one machine",
        _ => "how well the clocks of different machines agree is not known",
    };
    Some(format!(
        "{ranks} on {machines}; {how}; {within}. No number here compares clocks: each is of durations on one rank"
    ))
}
