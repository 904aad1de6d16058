//! Compares the ranks of a job. Finds the slow rank, and the op that makes it slow.
//!
//! ```text
//!  rows of (run, rank, op), buckets of durations ─ Gathered ─► for each run:
//!    sums of each rank and of each op ─► imbalance, what a rank is of the mean
//!    self time of each op on each rank − its median over the ranks ─► what makes a rank slow
//! ```
//!
//! All sums are whole numbers, so they do not depend on the order in which rows are added. If a
//! rank never called an op, its time in that op is 0 ns and not unknown.
//!
//! The comparison uses self times, so that an op is not blamed for the calls inside of it. Each
//! rank is compared with the *median* over the ranks, because ranks often wait for each other, for
//! example in a collective op. In this case, the slow rank waits least, and the median of the
//! collective op contains the waiting of the other ranks. So the slow rank exceeds the median in
//! the op that makes it slow. In the op in which ranks wait, no rank is far above the median. The
//! sum over all ops hides the slow rank: ranks that wait for each other have about the same sum.

use std::collections::{BTreeMap, HashMap};

use crate::exact::Histogram;

pub mod clocks;
mod result;

pub use result::{Excess, OpAcross, RankAcross, RunAcross};

/// With fewer ranks than this, the median does not show what is usual, so no rank is reported as
/// slow.
pub const FEWEST_RANKS: usize = 5;
/// A rank stands out in an op only if its self time exceeds the median over the ranks by more than
/// this many standard deviations. The standard deviation is estimated from the ranks' median
/// distance from the median. With normal noise, 64 ranks and 200 ops, a rank exceeds this limit by
/// chance in about one run of 10⁵.
pub const DEVIATIONS: f64 = 6.0;
/// A rank stands out only if its excess is also at least this part of the self time that the median
/// rank has in all ops.
pub const LEAST_PART: f64 = 0.01;

/// Sums over some rows. A field is `None` if the number is not known for one of these rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sums {
    /// Number of outermost calls (those that are not inside of another call of the op).
    pub calls: Option<i128>,
    /// Time of the calls in ns.
    pub total_ns: Option<i128>,
    /// Lower and upper bound of `total_ns`.
    pub total_range_ns: Option<(i128, i128)>,
    /// Self time of the calls in ns.
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
    /// An `i128` has room for the sum of 2⁶⁴ numbers of 63 bits, so in practice, no sum saturates.
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

/// A row: an op in one process of a rank.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    /// The identity of the op, which is the same in all ranks.
    pub key: &'a str,
    /// The op's name.
    pub name: &'a str,
    /// The numbers of the op in this process.
    pub sums: Sums,
}

/// Properties of an op, as far as they were recorded.
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

/// The machines, processes and clock of a rank.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Names of the rank's machines, sorted. A rank that was recorded several times can have
    /// several.
    pub hosts: Vec<String>,
    /// Number of processes of the rank.
    pub processes: u64,
    /// How the rank's clock was aligned with the clocks of the other ranks. `own` if it was not
    /// aligned.
    pub clock: String,
    /// The largest possible error of the alignment in ns; `None` if it is not known.
    pub clock_uncertainty_ns: Option<i64>,
    /// The offset from the rank's clock to the clock of the run's first rank, if these clocks were
    /// aligned by calls of an op.
    pub offset: Option<clocks::Offset>,
    /// Number of kinds of losses that affect the rank's numbers.
    pub losses: u64,
}

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

/// Collects the rows of all ranks of all runs.
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

    /// Returns the place of a rank, which is created if it does not exist yet.
    pub fn place(&mut self, run: &str, rank: u32) -> &mut Place {
        self.run(run).places.entry(rank).or_default()
    }

    /// Adds a row of a rank.
    pub fn add(&mut self, run: &str, rank: u32, input: Input<'_>) {
        let of = self.run(run);
        of.places.entry(rank).or_default();
        let op = of.op(input.key);
        of.cells.entry((rank, op)).or_default().add(&input.sums);
        // If op names were redacted in only some ranks, an op has two names. The name that sorts
        // first is kept, so that the result does not depend on the order of the rows.
        let name = &mut of.ops[op as usize].name;
        if name.is_empty() || input.name < name.as_str() {
            input.name.clone_into(name);
        }
    }

    /// Adds the properties of an op. If names were redacted in only some ranks, the op's properties
    /// differ between ranks. The properties that sort first are kept.
    pub fn about(&mut self, run: &str, key: &str, about: About) {
        let of = self.run(run);
        let op = of.op(key);
        let known = &mut of.ops[op as usize].about;
        if known.as_ref().is_none_or(|known| about < *known) {
            *known = Some(about);
        }
    }

    /// Returns the histogram of an op's durations, which is common to all ranks.
    pub fn histogram(&mut self, run: &str, key: &str) -> &mut Histogram {
        let of = self.run(run);
        let op = of.op(key);
        &mut of.ops[op as usize].durations
    }

    /// Compares the ranks of each run.
    pub fn finish(self) -> Vec<RunAcross> {
        self.runs.into_iter().map(|(name, run)| result::of(name, run)).collect()
    }
}

#[cfg(test)]
mod tests;
