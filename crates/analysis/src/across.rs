//! Ranks of a job beside each other: which one is slow, and the op that makes it slow.
//!
//! ```text
//!  rows of (run, rank, op), buckets of durations ─ Gathered ─► for each run:
//!    sums of each rank and of each op ─► imbalance, what a rank is of the mean
//!    self time of each op on each rank − its median over the ranks ─► what makes a rank slow
//! ```
//!
//! All sums are whole numbers, so they do not depend on the order in which rows come. A rank that never
//! called an op spent 0 ns in it: of a rank that is there, all ops are there.
//!
//! Self times are compared, and not whole ones, so that an op is not blamed for what is inside of it. They
//! are compared with the *median* over the ranks and not with the mean. Where ranks wait for each other, the
//! one that is slow waits least: in the op that waits, all others have more time than it, and their median
//! is that of waiting. So the slow rank is above the median in the op that makes it slow, and no rank is in
//! the op that waits. The sum over all ops says nothing there: it is the same on all ranks.

use std::collections::{BTreeMap, HashMap};

use crate::exact::Histogram;

pub mod clocks;
mod result;

pub use result::{Excess, OpAcross, RankAcross, RunAcross};

/// With fewer ranks, a median says little about what is usual, and no rank stands out.
pub const FEWEST_RANKS: usize = 5;
/// A rank stands out if it is above the median by more than this many standard deviations. Among the 12,800
/// pairs of 64 ranks and 200 ops, one such pair is normal in 10⁵ runs.
pub const DEVIATIONS: f64 = 6.0;
/// And by at least this part of the time of the median rank. Less is not worth a sentence.
pub const LEAST_PART: f64 = 0.01;

/// Sums of some rows. `None`: of one of the rows, it is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sums {
    /// Outermost calls.
    pub calls: Option<i128>,
    /// Time of the calls in ns.
    pub total_ns: Option<i128>,
    /// The ends of the interval of `total_ns`.
    pub total_range_ns: Option<(i128, i128)>,
    /// Time without what is inside, in ns.
    pub own_ns: Option<i128>,
    /// Whether one of the rows is an estimate.
    pub is_estimate: bool,
}

impl Default for Sums {
    fn default() -> Self {
        let none = Some(0);
        let range = Some((0, 0));
        Self {
            calls: none,
            total_ns: none,
            total_range_ns: range,
            own_ns: none,
            is_estimate: false,
        }
    }
}

impl Sums {
    /// Adds other sums. 2⁶⁴ numbers of 63 bits fit.
    fn add(&mut self, other: &Self) {
        let plus = |a: Option<i128>, b: Option<i128>| Some(a?.saturating_add(b?));
        self.calls = plus(self.calls, other.calls);
        self.total_ns = plus(self.total_ns, other.total_ns);
        self.own_ns = plus(self.own_ns, other.own_ns);
        let (a, b) = (self.total_range_ns, other.total_range_ns);
        self.total_range_ns = a.zip(b).map(|((low, high), (other_low, other_high))| {
            (low.saturating_add(other_low), high.saturating_add(other_high))
        });
        self.is_estimate |= other.is_estimate;
    }
}

/// A row: an op in a process of a rank.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    /// The identity of the op in all ranks.
    pub key: &'a str,
    /// The row's name.
    pub name: &'a str,
    /// The numbers of the op in that rank.
    pub sums: Sums,
}

/// The identity of an op, as far as it was recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct About {
    /// The kind of call.
    pub role: String,
    /// Name of the op's library.
    pub library: String,
    /// Types and shapes of the op's arguments, or empty.
    pub arguments: String,
    /// Source location, if the compiler recorded one.
    pub source: Option<String>,
}

/// Where a rank ran.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Names of the rank's machines, sorted: one name, but for several recordings of a rank.
    pub hosts: Vec<String>,
    /// How many processes the rank had.
    pub processes: u64,
    /// How the rank's clock was aligned with those of other ranks when profiles were merged; `own`: not at all.
    pub clock: String,
    /// By how much that may be wrong, in ns; `None` if it is not known.
    pub clock_uncertainty_ns: Option<i64>,
    /// The offset to the first rank of the run, if clocks were aligned by an op.
    pub offset: Option<clocks::Offset>,
    /// Kinds of loss that change the rank's numbers.
    pub losses: u64,
}

/// What was gathered of one run.
#[derive(Debug, Default)]
struct Run {
    places: BTreeMap<u32, Place>,
    cells: HashMap<(u32, u32), Sums>,
    keys: HashMap<String, u32>,
    ops: Vec<Op>,
}

#[derive(Debug, Default)]
struct Op {
    key: String,
    name: String,
    about: Option<About>,
    durations: Histogram,
}

impl Run {
    fn op(&mut self, key: &str) -> u32 {
        match self.keys.get(key) {
            Some(known) => *known,
            None => {
                let new = self.ops.len() as u32;
                self.keys.insert(key.to_owned(), new);
                self.ops.push(Op { key: key.to_owned(), ..Op::default() });
                new
            }
        }
    }
}

/// What all ranks said.
#[derive(Debug, Default)]
pub struct Gathered {
    runs: BTreeMap<String, Run>,
}

impl Gathered {
    fn run(&mut self, run: &str) -> &mut Run {
        if !self.runs.contains_key(run) {
            self.runs.insert(run.to_owned(), Run::default());
        }
        self.runs.entry(run.to_owned()).or_default()
    }

    /// Where a rank ran; made when it is first asked for.
    pub fn place(&mut self, run: &str, rank: u32) -> &mut Place {
        self.run(run).places.entry(rank).or_default()
    }

    /// Adds a row of a rank.
    pub fn add(&mut self, run: &str, rank: u32, input: Input<'_>) {
        let of = self.run(run);
        of.places.entry(rank).or_default();
        let op = of.op(input.key);
        of.cells.entry((rank, op)).or_default().add(&input.sums);
        // Where some ranks are redacted, an op has two names. The choice must not depend on the order.
        let name = &mut of.ops[op as usize].name;
        if name.is_empty() || input.name < name.as_str() {
            input.name.clone_into(name);
        }
    }

    /// Says what an op is. The ranks say the same, but for those that are redacted.
    pub fn about(&mut self, run: &str, key: &str, about: About) {
        let of = self.run(run);
        let op = of.op(key);
        let known = &mut of.ops[op as usize].about;
        if known.as_ref().is_none_or(|known| about < *known) {
            *known = Some(about);
        }
    }

    /// Counts durations of an op of all ranks.
    pub fn histogram(&mut self, run: &str, key: &str) -> &mut Histogram {
        let of = self.run(run);
        let op = of.op(key);
        &mut of.ops[op as usize].durations
    }

    /// What follows from the sums, for each run.
    pub fn finish(self) -> Vec<RunAcross> {
        self.runs.into_iter().map(|(name, run)| result::of(name, run)).collect()
    }
}

#[cfg(test)]
mod tests;
