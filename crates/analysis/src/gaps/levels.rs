//! Sorts the calls of each thread into levels. The level of a call is the number of calls around
//! it. For each level, computes the time in its calls and the time between them.
//!
//! ```text
//!  level 0   ├──────── step ────────┤      ├──────── step ────────┤
//!  level 1     ├ mm ┤   ├── conv ──┤         ├ mm ┤   ├── conv ──┤
//!  level 2                ├ k ┤                         ├ k ┤
//! ```
//!
//! The time between the calls of level 0 is all time in which the thread is in no call. The time
//! between the calls of a deeper level is the self time of those calls of the level above that have
//! calls inside. So for a deeper level, the time in calls and the time between calls add up to the
//! time of the calls around them. The time that the recorder added is subtracted, unless the values
//! are raw.
//!
//! Memory: about 150 bytes for each op on each level of each thread, in each worker.

use std::collections::{BTreeMap, HashMap};

use profile::{Columns, Profile};

use super::{Place, key};
use crate::amounts::{Brackets, Mark, parts, ticks};
use crate::table::Key;
use crate::threads::{ThreadTime, threads_of_program};

/// Calls with at least this many calls around them count as calls of one level.
const DEEPEST: usize = 100;

/// The calls of one level on one thread. Times are in ns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Level {
    /// Process index and thread index.
    pub thread: (usize, usize),
    /// The number of calls around each call of this level. Calls with more than 100 calls around
    /// them count for level 100.
    pub level: u32,
    pub calls: u64,
    /// The time in the calls of this level, including the calls inside of them.
    pub in_calls_ns: f64,
    /// The time between the calls of this level. Within a call of the level above, this includes
    /// the time before the first and after the last call inside.
    pub between_ns: f64,
    /// The op with the most time in calls of this level.
    pub most: Key,
}

impl Level {
    /// Returns `between_ns` as a part of `between_ns` plus `in_calls_ns`, from 0 to 1.
    pub fn share(&self) -> Option<f64> {
        let all = self.between_ns + self.in_calls_ns;
        (all > 0.0).then(|| self.between_ns / all)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct At {
    thread: (usize, usize),
    level: u32,
    op: Place,
}

/// The sums over the calls of one op on one level of a thread. Times are in units of
/// 1/[`crate::amounts::PARTS`] tick.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    calls: u64,
    total: u128,
    /// The self time of those calls that have other calls inside.
    around: u128,
    /// Index of the sum that was used after this one the last time; see [`super::Sum`].
    then: usize,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended {
    pub op: Place,
    /// The number of calls around this call.
    pub depth: usize,
    /// The recorded duration, in units of 1/[`crate::amounts::PARTS`] tick.
    pub duration: u64,
    pub mark: Mark,
    /// Whether other calls are inside of this call.
    pub has_inside: bool,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct LevelSums {
    sums: Vec<(At, Sum)>,
    places: HashMap<At, usize>,
    last: usize,
}

impl LevelSums {
    fn sum(&mut self, at: At) -> &mut Sum {
        let then = self.sums.get(self.last).map_or(usize::MAX, |(_, last)| last.then);
        let place = match self.sums.get(then) {
            Some((known, _)) if *known == at => then,
            _ => {
                let place = *self.places.entry(at).or_insert_with(|| {
                    self.sums.push((at, Sum { then: usize::MAX, ..Sum::default() }));
                    self.sums.len() - 1
                });
                if let Some((_, last)) = self.sums.get_mut(self.last) {
                    last.then = place;
                }
                place
            }
        };
        self.last = place;
        &mut self.sums[place].1
    }

    /// Adds a call that ran on `thread`.
    pub fn call(&mut self, thread: (usize, usize), call: &Ended) {
        let level = call.depth.min(DEEPEST) as u32;
        let sum = self.sum(At { thread, level, op: call.op });
        sum.calls += 1;
        // A call with a larger depth is inside of a call of depth `DEEPEST`, which counts for the
        // same level and includes the inner call's time.
        if call.depth <= DEEPEST {
            sum.total += u128::from(call.duration.saturating_sub(call.mark.taken));
        }
        if call.has_inside && call.depth < DEEPEST {
            sum.around += u128::from(call.mark.own);
        }
    }

    /// Adds a page without nested calls.
    pub fn page(&mut self, columns: &Columns, thread: (usize, usize), brackets: &Brackets) {
        let classes = brackets.page(columns);
        for i in 0..columns.len() {
            let duration = parts(columns.duration(i));
            let mark = Mark::of_flat(duration, classes.of(columns, i), brackets);
            let op = (columns.process as u32, columns.export[i]);
            self.call(thread, &Ended { op, depth: 0, duration, mark, has_inside: false });
        }
    }

    /// Adds the sums of another worker.
    pub fn merge(&mut self, other: Self) {
        for (at, more) in other.sums {
            let sum = self.sum(at);
            sum.calls += more.calls;
            sum.total += more.total;
            sum.around += more.around;
        }
    }

    /// Returns the levels of each thread of the program that has calls inside of calls, in the
    /// order of `threads`. The levels of a thread begin with the outermost one.
    pub fn finish(self, profile: &Profile, threads: &[ThreadTime]) -> Vec<Level> {
        let ns = |parts: u128| ticks(parts) * profile.timeline.ns_per_tick();
        // For each thread and level, the sums over all calls, and the time of each op.
        type OfLevel = (Sum, BTreeMap<Key, u128>);
        let mut found: BTreeMap<((usize, usize), u32), OfLevel> = BTreeMap::new();
        for (At { thread, level, op }, more) in self.sums {
            let (sum, of_ops) = found.entry((thread, level)).or_default();
            sum.calls += more.calls;
            sum.total += more.total;
            sum.around += more.around;
            *of_ops.entry(key(profile, op)).or_default() += more.total;
        }
        let mut all = Vec::new();
        for time in threads_of_program(profile, threads) {
            let thread = (time.process, time.thread);
            let of_thread = found.range((thread, 0)..=(thread, u32::MAX));
            if of_thread.clone().count() < 2 {
                continue;
            }
            let mut between_ns = time.no_dispatch_ns();
            for ((_, level), (sum, of_ops)) in of_thread {
                let most =
                    of_ops.iter().max_by_key(|(key, total)| (**total, std::cmp::Reverse(**key)));
                all.extend(most.map(|(most, _)| Level {
                    thread,
                    level: *level,
                    calls: sum.calls,
                    in_calls_ns: ns(sum.total),
                    between_ns,
                    most: *most,
                }));
                between_ns = ns(sum.around);
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use testkit::{CallScript, ProfileScript};

    use super::*;
    use crate::summary::{Options, summarize};

    /// The first two calls of `step` contain a call of `mm` and one of `conv` each, and `conv`
    /// contains a call of `k`. The calls of `alone` and the third call of `step` have no calls
    /// inside, so no part of their time is between calls.
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
        thread.call(CallScript::new(4, 1_250, 25)).call(CallScript::new(0, 1_275, 15));
        process.thread("flat").call(CallScript::new(4, 1_000, 25));
        let (_scratch, profile) = script.opened();
        let options = Options { raw: true, gaps: true, levels: true, ..Options::default() };
        let found = summarize(&profile, &options).gaps.unwrap().levels;
        let numbers =
            |level: &Level| (level.level, level.calls, level.in_calls_ns, level.between_ns);
        let expected = [(0, 4, 240.0, 50.0), (1, 4, 140.0, 60.0), (2, 2, 20.0, 60.0)];
        assert_eq!(found.iter().map(numbers).collect::<Vec<_>>(), expected);
        assert!(found.iter().all(|level| level.thread == (0, 0)));
        assert_eq!(found[1].share(), Some(0.3));
        let name = |level: &Level| match level.most {
            Key::Op(id) => profile.ops.get(id).unwrap().name.clone(),
            _ => String::new(),
        };
        assert_eq!(found.iter().map(name).collect::<Vec<_>>(), ["step", "conv", "k"]);
    }
    /// Of 150 nested calls, the innermost 49 count for the same level as the 101st call.
    #[test]
    fn calls_beyond_the_deepest_level_are_on_it() {
        let mut script = ProfileScript::monotonic();
        let process = script.process(1);
        process.library("m", &["f"]);
        let thread = process.thread("main");
        for depth in (0..150).rev() {
            thread.call(CallScript::new(0, 1_000 + depth, 10 + 2 * (149 - depth)));
        }
        let (_scratch, profile) = script.opened();
        let options = Options { raw: true, gaps: true, levels: true, ..Options::default() };
        let found = summarize(&profile, &options).gaps.unwrap().levels;
        assert_eq!(found.len(), 101);
        let last = found.last().unwrap();
        assert_eq!((last.level, last.calls), (100, 50));
        assert_eq!((last.in_calls_ns, last.between_ns), (10.0 + 2.0 * 49.0, 2.0));
    }
}
