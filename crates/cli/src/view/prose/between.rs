//! The gaps between the calls of threads, in sentences: for a report and for the page.

use std::collections::HashMap;

use analysis::{Gap, Gaps, Key, OfThread, Side};
use profile::Profile;

use crate::view::labels::{labels, thread_label};
use crate::view::units::{percent, plural, shorten, time};

/// Longer names of ops are shortened in the line of a report, which can be narrow.
const IN_REPORT: usize = 28;
/// Longer names of ops are shortened in a sentence of its own, which has more room.
const IN_SENTENCE: usize = 38;
/// Threads in no call for a smaller part of their time need no line in a report.
const WORTH: f64 = 0.1;
/// For at most this many threads, those with the longest gaps, a sentence says where most of their gaps are.
const THREADS: usize = 4;

/// The names of the ends of gaps.
pub struct Sides(HashMap<Key, String>);

impl Sides {
    /// Names the ops of these gaps so that they can be told apart.
    pub fn new(profile: &Profile, gaps: &Gaps) -> Self {
        let sides = gaps.rows.iter().flat_map(|row| [row.after, row.before]);
        let key = |side| if let Side::Op(key) = side { Some(key) } else { None };
        let mut keys: Vec<Key> = sides.filter_map(key).collect();
        keys.sort_unstable();
        keys.dedup();
        let names = labels(profile, &keys);
        Self(keys.into_iter().zip(names).collect())
    }

    /// The rows of a table of gaps.
    pub fn label(&self, side: Side) -> &str {
        match side {
            Side::Op(key) => self.0.get(&key).map_or("", String::as_str),
            Side::End => "(end)",
            Side::Any => "(any)",
        }
    }
}

/// Names some gaps: `after a and before b`.
fn place(sides: &Sides, gap: &Gap, longest: usize) -> String {
    let name = |side| shorten(sides.label(side), longest);
    match (gap.after, gap.before) {
        (Side::Any, _) => "between ops that are not told apart".to_owned(),
        (after, Side::End) => format!("after {}, the last call", name(after)),
        (after, before) => format!("after {} and before {}", name(after), name(before)),
    }
}

/// The gaps with the longest sum of the thread with the most time in calls, or those of all threads if that one
/// has hardly any gaps, for a line of a report. `None` if the threads were in calls for nearly all
/// of their time.
pub fn most(profile: &Profile, gaps: &Gaps) -> Option<String> {
    let longest = gaps.rows.first().filter(|_| gaps.between_ns >= WORTH * gaps.wall_ns)?;
    let threads = gaps.of_threads();
    let busiest = threads.first().filter(|of| of.total_ns >= WORTH * of.wall_ns);
    let of = busiest.or(threads.iter().find(|of| of.most.thread == longest.thread))?;
    let (thread, most) = (of.most.thread, of.most);
    Some(format!(
        "{} of {} on {} in {} {}; all: report --by between",
        time(gaps.total_ns(most)),
        time(of.total_ns),
        thread_label(profile, thread.0, thread.1),
        plural(most.times.into(), "gap"),
        place(&Sides::new(profile, gaps), most, IN_REPORT),
    ))
}

/// How much of its life each of the threads with the longest gaps was in no call, and where most of that is:
/// the thread with the most time in calls first.
pub fn sentences(profile: &Profile, gaps: &Gaps) -> Vec<String> {
    let sides = Sides::new(profile, gaps);
    let mut lines = Vec::new();
    for OfThread { total_ns, wall_ns, most } in gaps.of_threads().into_iter().take(THREADS) {
        let are = match most.times {
            1 => "is one gap".to_owned(),
            n => format!("are {}", plural(n.into(), "gap")),
        };
        lines.push(format!(
            "{}: {} of its {} ({}) are in no recorded call; {} of that ({}) {are} {}",
            thread_label(profile, most.thread.0, most.thread.1),
            time(total_ns),
            time(wall_ns),
            percent(if wall_ns > 0.0 { total_ns / wall_ns } else { 0.0 }),
            time(gaps.total_ns(most)),
            percent(gaps.total_ns(most) / total_ns),
            place(&sides, most, IN_SENTENCE),
        ));
    }
    if gaps.recorder_ns >= 0.5 {
        lines.push(format!(
            "{} is time in which the recorder itself worked inside of calls: it was subtracted from \
             their durations, and is counted as time between them",
            time(gaps.recorder_ns)
        ));
    }
    lines
}
