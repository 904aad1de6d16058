//! Describes the gaps between the calls of threads, for a report and for the HTML page.

use std::collections::HashMap;

use analysis::{Gap, Gaps, Key, OfThread, Side};
use profile::Profile;

use crate::view::labels::{labels, thread_label};
use crate::view::names;
use crate::view::units::{percent, plural, time};

/// Longer names are shortened in the line of a report, which can be narrow.
const IN_REPORT: usize = 28;
/// Longer names are shortened in a sentence, which has more room.
const IN_SENTENCE: usize = 38;
/// A report has no line about gaps that take a smaller part of the threads' time.
const WORTH: f64 = 0.1;
/// At most this many threads get a sentence.
const THREADS: usize = 4;

/// The names of the ops before and after gaps, and of the op with the most time on each level of
/// nested calls.
pub struct Sides(HashMap<Key, String>);

impl Sides {
    /// Chooses the names of the ops around gaps. Different ops get different names.
    pub fn new(profile: &Profile, gaps: &Gaps) -> Self {
        let sides = gaps.rows.iter().flat_map(|row| [row.after, row.before]);
        let key = |side| if let Side::Op(key) = side { Some(key) } else { None };
        let of_levels = gaps.levels.iter().map(|level| level.most);
        let mut keys: Vec<Key> = sides.filter_map(key).chain(of_levels).collect();
        keys.sort_unstable();
        keys.dedup();
        let names = labels(profile, &keys);
        Self(keys.into_iter().zip(names).collect())
    }

    /// Shortens the names to `longest` characters; different ops keep different names. If a name
    /// begins with `common`, `…` replaces this beginning.
    fn fit(self, longest: usize, common: &str) -> Self {
        let mut all: Vec<(Key, String)> = self.0.into_iter().collect();
        all.sort_unstable();
        let (keys, names): (Vec<Key>, Vec<String>) = all.into_iter().unzip();
        let cut = |name: String| match name.strip_prefix(common) {
            Some(rest) if !common.is_empty() && !rest.is_empty() => format!("…{rest}"),
            _ => name,
        };
        let names: Vec<String> = names.into_iter().map(cut).collect();
        let fitted = names::fit(&names, longest, false).names;
        Self(keys.into_iter().zip(fitted).collect())
    }

    pub fn label(&self, side: Side) -> &str {
        match side {
            Side::Op(key) => self.0.get(&key).map_or("", String::as_str),
            Side::End => "(end)",
            Side::Any => "(any)",
        }
    }
}

fn place(sides: &Sides, gap: &Gap) -> String {
    let name = |side| sides.label(side);
    match (gap.after, gap.before) {
        (Side::Any, _) => "between ops that are not told apart".to_owned(),
        (after, Side::End) => format!("after {}, the last call", name(after)),
        (after, before) => format!("after {} and before {}", name(after), name(before)),
    }
}

/// Returns a line about one thread: the two ops between which its gaps have the largest sum. The
/// line is about the thread with the most time in calls. If this thread has hardly any gaps, the
/// thread with the largest sum is chosen. `None` if gaps take less than a tenth of the threads'
/// time. Like the table above the line, the line replaces the beginning `common` of names by `…`.
pub fn most(profile: &Profile, gaps: &Gaps, common: &str) -> Option<String> {
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
        place(&Sides::new(profile, gaps).fit(IN_REPORT, common), most),
    ))
}

/// Returns a sentence for each of the first `THREADS` threads with gaps: how long the thread was in
/// no call, and between which ops most of this time was. A last sentence has the recorder's own
/// time inside of calls, if there was any. The thread with the most time in calls comes first.
pub fn sentences(profile: &Profile, gaps: &Gaps) -> Vec<String> {
    let sides = Sides::new(profile, gaps).fit(IN_SENTENCE, "");
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
            place(&sides, most),
        ));
    }
    if gaps.recorder_ns >= 0.5 {
        lines.push(format!(
            "{} is the recorder's own time inside of calls: it was subtracted from their durations, and \
             is counted as time between them; what the recorder did between calls is in the gaps",
            time(gaps.recorder_ns)
        ));
    }
    lines
}
