//! Writes the text above and below trees of loops: what was recorded, what marks such as `≈` mean,
//! and what is missing in the tree.

use std::collections::BTreeMap;

use analysis::loops::{LoopTree, Mode, TableChoice};

use profile::loops::HitCost;

use super::text::Marks;
use super::{Loops, module_name, told_apart};
use crate::view::units::{count, grouped, plural, time};

/// A note lists at most this many reasons why functions and loops were not instrumented.
const REASONS: usize = 4;

/// Returns the line above a tree: the module's name, its hits (and how many were timed), how many
/// functions and loops were entered, and the number of threads.
pub fn first(loops: &Loops<'_>, tree: &LoopTree) -> String {
    let entered = || tree.nodes.iter().filter(|node| node.all.hits > 0);
    let (mut hits, mut timed) = (0, 0);
    entered().for_each(|node| (hits, timed) = (hits + node.all.hits, timed + node.all.begun));
    let mut processes: Vec<usize> = tree.threads.iter().map(|thread| thread.process).collect();
    processes.dedup();
    let mut places = plural(tree.threads.len() as u128, "thread");
    if processes.len() > 1 {
        places += &format!(" of {}", plural(processes.len() as u128, "process"));
    }
    let of = match tree.ids {
        1 => "the function or loop".to_owned(),
        ids => format!("{} of {} functions and loops", grouped(entered().count() as u128), ids),
    };
    let hits = if hits == 1 { "1 hit".to_owned() } else { format!("{} hits", count(hits)) };
    let timed = match tree.mode {
        Mode::Count => String::new(),
        _ => format!(", {} timed", count(timed)),
    };
    // Without a side table, a module has no name but only an identity.
    let word = if tree.table.is_some() { "" } else { "module " };
    let name = match told_apart(loops, tree) {
        Some(functions) => format!("{}, {functions}", module_name(tree)),
        None => module_name(tree),
    };
    format!("{word}{name}: {hits}{timed} in {of} ({places})")
}

/// Returns the lines directly below a tree: whether the cost of measuring is subtracted from its
/// times and, if `verbose`, the module's identity, instrumenter and mode.
pub fn facts(loops: &Loops<'_>, tree: &LoopTree, verbose: bool) -> Vec<(&'static str, String)> {
    let mut lines = Vec::new();
    if tree.nodes.iter().any(|node| node.all.raw.is_some()) {
        lines.push(("times: ", times(loops, tree)));
    }
    if verbose {
        let producer = tree.table.as_ref().and_then(|table| table.producer.as_deref());
        let made = producer.map_or(String::new(), |by| format!(", made by {by}"));
        let mode = match tree.mode {
            Mode::Other(number) => format!("unknown mode {number}"),
            mode => format!("mode {}", mode.name()),
        };
        lines.push(("module: ", format!("{}{made}; {mode}", tree.identity())));
    }
    lines
}

fn times(loops: &Loops<'_>, tree: &LoopTree) -> String {
    let costs: Vec<_> =
        tree.registrations.iter().filter_map(|index| loops.recorded.modules[*index].cost).collect();
    let range = |of: fn(&HitCost) -> f64| {
        let all = || costs.iter().map(of);
        let (least, most) = (all().fold(f64::MAX, f64::min), all().fold(f64::MIN, f64::max));
        let text = |ticks: f64| match tree.ns(ticks) {
            Some(ns) => time(ns),
            None => format!("{ticks:.1} ticks"),
        };
        match text(least) == text(most) {
            true => text(least),
            false => format!("{} to {}", text(least), text(most)),
        }
    };
    if costs.is_empty() {
        return "as measured: the cost of a hit is not known".to_owned();
    }
    // A cost of 0 is not printed: either the mode has no hits of this kind, or no counters were
    // read.
    type OfCost = fn(&HitCost) -> f64;
    let kinds: [(OfCost, &str); 3] = [
        (|cost| cost.timed, "a timed hit"),
        (|cost| cost.counted, "a counted one"),
        (|cost| cost.reading, "reading counters around a hit"),
    ];
    let kinds = kinds.into_iter().filter(|(of, _)| costs.iter().any(|cost| of(cost) > 0.0));
    let cost: Vec<String> = kinds.map(|(of, what)| format!("{} for {what}", range(of))).collect();
    let cost = cost.join(", ");
    match loops.raw {
        true => format!("as measured, with the cost of measuring ({cost})"),
        false if tree.uncalibrated > 0 => format!(
            "as measured where the cost of a hit is not known ({} of {}), else without the cost of \
             measuring ({cost})",
            tree.uncalibrated,
            plural(tree.registrations.len() as u128, "registration")
        ),
        false => format!("without the cost of measuring ({cost})"),
    }
}

pub fn legend(marks: Marks) -> Vec<(&'static str, &'static str)> {
    let mut lines = Vec::new();
    if marks.iterations {
        lines.push((
            "iterations: ",
            "of the loop in the machine code. If the optimiser unrolled or vectorised a loop, one of them is \
             several iterations of the loop in the source",
        ));
    }
    if marks.unrolled {
        lines.push((
            "schedule iterations: ",
            "how many iterations of the loop in the schedule each iteration is; apart: how many of each hit are \
             before or after the loop",
        ));
    }
    if marks.below {
        lines.push((
            "< ",
            "below this value: its 95 % interval reaches to zero, because only some hits were timed, or the \
             cost of measuring was subtracted",
        ));
    }
    if marks.intervals {
        lines.push((
            "± ",
            "half of the 95 % interval: the cost of measuring, which was subtracted, is not known \
             better; and where not every hit was timed, the others are estimated",
        ));
    }
    if marks.unknown {
        lines.push((
            "±? ",
            "not every hit was timed, and those that were not may be of another kind",
        ));
    }
    if marks.scaled {
        lines.push((
            "~ ",
            "iterations are counted in timed hits: those of the first hits are exact, and the others are \
             taken to be like the random ones of them that were timed",
        ));
    }
    if marks.sampled_only {
        lines.push((
            "≈ ",
            "a hit takes less than ten times what timing it costs, so this time is a rough estimate, \
             and so are the self times around it",
        ));
    }
    lines
}

pub fn notes(tree: &LoopTree, all: bool) -> Vec<String> {
    let mut notes = Vec::new();
    match &tree.choice {
        TableChoice::Embedded | TableChoice::File => {}
        TableChoice::Missing => notes.push(
            "the module has no side table, so its functions and loops have numbers only, and \
             self times are not known; give its .loops.json with --table"
                .to_owned(),
        ),
        TableChoice::Unusable(why) => notes.push(format!(
            "the side table in the module cannot be used ({why}), so its functions and loops have \
             numbers only; give its .loops.json with --table"
        )),
    }
    notes.extend(super::schedule::notes(tree));
    let never = tree.nodes.iter().filter(|node| node.all.hits == 0).count();
    if never > 0 && !all {
        notes.push(match never {
            1 => {
                "1 function or loop that was never entered is not shown (--all shows it)".to_owned()
            }
            n => format!(
                "{} functions and loops that were never entered are not shown (--all shows them)",
                grouped(n as u128)
            ),
        });
    }
    let unended = tree.nodes.iter().filter(|node| node.all.unended() > 0).count();
    if unended > 0 {
        notes.push(
            "hits that did not end were left by an exception, longjmp or the end of the program; \
             their time is not known and not included"
                .to_owned(),
        );
    }
    let refused = tree.nodes.iter().filter(|node| node.all.refused).count();
    if refused > 0 {
        notes.push(format!(
            "in {}, the cost of measuring is not subtracted, because a time would become negative \
             or shorter than what is inside of it",
            plural(refused as u128, "row")
        ));
    }
    let rows = |n: u64| plural(n.into(), "row");
    if tree.beyond > 0 {
        let (rows, ids) = (rows(tree.beyond), tree.ids);
        notes.push(format!("skipped: {rows} with ids beyond the module's {ids}"));
    }
    if tree.damaged > 0 {
        let rows = rows(tree.damaged);
        notes.push(format!("in {rows}, times contradict each other; only the hits are used"));
    }
    if let Some(table) = tree.table.as_ref().filter(|table| !table.skipped.is_empty()) {
        let mut reasons: BTreeMap<&str, u128> = BTreeMap::new();
        table.skipped.iter().for_each(|skipped| *reasons.entry(&skipped.why).or_default() += 1);
        let mut reasons: Vec<(&str, u128)> = reasons.into_iter().collect();
        reasons.sort_by_key(|(_, n)| std::cmp::Reverse(*n));
        let mut texts: Vec<String> = reasons
            .iter()
            .take(REASONS)
            .map(|(why, n)| format!("{why} ({})", grouped(*n)))
            .collect();
        if reasons.len() > REASONS {
            texts.push("other reasons (--format json lists all)".to_owned());
        }
        let n = plural(table.skipped.len() as u128, "place");
        notes.push(format!("not instrumented: {n}: {}", texts.join("; ")));
    }
    notes
}

/// Returns notes about recorded rows that belong to no known module.
pub fn of_table(loops: &Loops<'_>) -> Vec<String> {
    let mut notes = Vec::new();
    if loops.table.strays > 0 {
        let rows = plural(loops.table.strays.into(), "row");
        notes.push(format!("skipped: {rows} of unknown modules"));
    }
    notes
}
