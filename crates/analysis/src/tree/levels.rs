//! Calls of single threads by level: how deep they are inside of other calls, and how long the thread was between
//! the calls of each level.
//!
//! ```text
//!  level 0   ├──────── step ────────┤      ├──────── step ────────┤
//!  level 1     ├ mm ┤   ├── conv ──┤         ├ mm ┤   ├── conv ──┤
//!  level 2                ├ k ┤                         ├ k ┤
//! ```
//!
//! Between the calls of level 0 is all time of the thread in no call. Between those of a deeper level is the time
//! in calls of the level above that have calls inside, less the calls inside. So a level's time in calls and its
//! time between them add up to the time of the calls around it.

use std::collections::BTreeMap;

use profile::Profile;

use super::{Detailed, detailed};
use crate::summary::Summary;
use crate::table::Key;

/// The calls of one level on one thread. Times are in ns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Level {
    /// Process index and thread index.
    pub thread: (usize, usize),
    /// The number of calls around each of these calls.
    pub level: u32,
    pub calls: u64,
    /// The time in these calls, with what is inside of them.
    pub in_calls_ns: f64,
    /// The time between these calls and around them, in what is around them.
    pub between_ns: f64,
    /// The op with the most time on this level.
    pub most: Key,
}

impl Level {
    /// The part of the time in what is around the calls that is between them.
    pub fn share(&self) -> Option<f64> {
        let all = self.between_ns + self.in_calls_ns;
        (all > 0.0).then(|| self.between_ns / all)
    }
}

/// A thread, and the number of a level.
type Place = ((usize, usize), u32);
/// A level, and the time in each of its ops in ticks.
type Sums = (Level, BTreeMap<Key, f64>);

/// The levels of each thread with calls inside of calls: threads in the order of the summary, which is by op or by
/// thread, each from the outermost level on. Empty in a run with a budget, for several passes, or if no call is
/// inside of another one.
pub fn levels(profile: &Profile, summary: &Summary) -> Vec<Level> {
    if !summary.nested || profile.passes() > 1 {
        return Vec::new();
    }
    let detail = Detailed { by_thread: true, counters: false };
    let Some(tree) = detailed(profile, summary.raw, 0, detail) else { return Vec::new() };
    let tick = profile.timeline.ns_per_tick();
    let mut has_inside = vec![false; tree.nodes.len()];
    tree.nodes.iter().filter_map(|node| node.parent).for_each(|parent| has_inside[parent] = true);
    let mut found: BTreeMap<Place, Sums> = BTreeMap::new();
    for node in &tree.nodes {
        let Some(thread) = node.thread else { continue };
        let new = Level {
            thread,
            level: node.depth,
            calls: 0,
            in_calls_ns: 0.0,
            between_ns: 0.0,
            most: node.key,
        };
        let (level, of_ops) = found.entry((thread, node.depth)).or_insert((new, BTreeMap::new()));
        level.calls += node.calls;
        level.in_calls_ns += node.total.value * tick;
        *of_ops.entry(node.key).or_default() += node.total.value;
    }
    let around = tree.nodes.iter().zip(&has_inside).filter(|(_, has_inside)| **has_inside);
    for (node, _) in around {
        let Some(thread) = node.thread else { continue };
        if let Some((level, _)) = found.get_mut(&(thread, node.depth + 1)) {
            level.between_ns += node.own.value * tick;
        }
    }
    let mut all = Vec::new();
    for time in &summary.threads {
        let thread = (time.process, time.thread);
        let of_thread = found.range((thread, 0)..=(thread, u32::MAX));
        if !time.dispatch_known || of_thread.clone().count() < 2 {
            continue;
        }
        all.extend(of_thread.map(|((_, depth), (level, of_ops))| {
            let most = of_ops.iter().max_by(|a, b| a.1.total_cmp(b.1).then(b.0.cmp(a.0)));
            let between_ns = if *depth == 0 { time.no_dispatch_ns() } else { level.between_ns };
            Level { between_ns, most: most.map_or(level.most, |(key, _)| *key), ..*level }
        }));
    }
    all
}

#[cfg(test)]
mod tests {
    use testkit::{CallScript, ProfileScript};

    use super::*;
    use crate::summary::{Options, summarize};

    /// Two steps of 100 with 50 between them; in each, `mm` of 30 and `conv` of 40, in which is `k` of 10. `alone`
    /// has no calls inside, and its time is not between calls.
    #[test]
    fn levels_on_paper() {
        let mut script = ProfileScript::monotonic();
        let process = script.process(1);
        process.library("m", &["step", "mm", "conv", "k", "alone"]);
        let thread = process.thread("main");
        for begin in [1_000, 1_150] {
            thread
                .call(CallScript::new(1, begin + 5, 30))
                .call(CallScript::new(3, begin + 50, 10))
                .call(CallScript::new(2, begin + 45, 40))
                .call(CallScript::new(0, begin, 100));
        }
        thread.call(CallScript::new(4, 1_250, 25));
        process.thread("flat").call(CallScript::new(4, 1_000, 25));
        let (_scratch, profile) = script.opened();
        let summary = summarize(&profile, &Options { raw: true, ..Options::default() });
        let found = levels(&profile, &summary);
        let numbers =
            |level: &Level| (level.level, level.calls, level.in_calls_ns, level.between_ns);
        let expected = [(0, 3, 225.0, 50.0), (1, 4, 140.0, 60.0), (2, 2, 20.0, 60.0)];
        assert_eq!(found.iter().map(numbers).collect::<Vec<_>>(), expected);
        assert!(found.iter().all(|level| level.thread == (0, 0)));
        assert_eq!(found[1].share(), Some(0.3));
        let name = |level: &Level| match level.most {
            Key::Op(id) => profile.ops.get(id).unwrap().name.clone(),
            _ => String::new(),
        };
        assert_eq!(found.iter().map(name).collect::<Vec<_>>(), ["step", "conv", "k"]);
    }
}
