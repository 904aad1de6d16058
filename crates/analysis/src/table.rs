//! The table of a report: calls added up by op, thread, CPU or process.
//!
//! ```text
//!  pages ─► fill: the row of each call ─► sum: one accumulator per row ─► finish: rows
//! ```
//!
//! Each worker fills a table of its own; the tables are merged before the rows are finished.

mod fill;
mod finish;
mod sum;

use std::collections::BTreeSet;

use profile::{OpId, Role};

use crate::metrics::{self, MetricValue};

pub(crate) use fill::Table;

/// What a row of the table stands for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum By {
    /// One exported function; see [`profile::ops`] for when two are the same.
    #[default]
    Op,
    /// One thread.
    Thread,
    /// One CPU.
    Cpu,
    /// One process.
    Process,
}

/// Names a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    /// An op of the profile.
    Op(OpId),
    /// An export whose metadata is missing: process index and export id.
    Unknown(usize, u32),
    /// Process index and thread index.
    Thread(usize, usize),
    /// CPU and node.
    Cpu(u32, u32),
    /// Process index.
    Process(usize),
}

/// One row. Durations in ticks.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// What it stands for.
    pub key: Key,
    /// The first call of each thread among them.
    pub first: FirstCalls,
    /// Workgroup calls.
    pub calls: u64,
    /// Calls whose workgroup id is 0,0,0: one per dispatch. `None` if it is not known of some
    /// call which workgroup it was, and where some is a virtual machine's.
    pub dispatches: Option<u64>,
    /// Sum of the durations.
    pub total_ticks: u128,
    /// The part of the durations that empty calls would have taken, 0 to 1; `None` where that was
    /// not calibrated.
    pub empty_share: Option<f64>,
    /// Sum of the self times: the durations less the time in which a call that began later on the
    /// same thread owned the moment ([`crate::innermost`]).
    pub self_ticks: u128,
    /// Shortest.
    pub min_ticks: u64,
    /// Longest.
    pub max_ticks: u64,
    /// Median, linear between closest ranks.
    pub p50_ticks: f64,
    /// 99th percentile, likewise.
    pub p99_ticks: f64,
    /// For each counter of the run; `None` if no call of this row has a usable value.
    pub counters: Vec<Option<CounterTotal>>,
    /// Each metric that was asked for.
    pub metrics: Vec<MetricValue>,
    /// What each pass that recorded something has of all this; empty in a profile without passes.
    /// A pass that was not run is missing here, not 0.
    pub passes: Vec<PassTotal>,
    /// Threads that made these calls: process index and thread index.
    pub threads: BTreeSet<(usize, usize)>,
    /// CPUs on which they ended.
    pub cpus: BTreeSet<u32>,
}

/// The part of one pass in a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PassTotal {
    /// Workgroup calls.
    pub calls: u64,
    /// Calls whose workgroup id is known and 0,0,0.
    pub dispatches: u64,
    /// Sum of the durations.
    pub total_ticks: u128,
}

/// A counter over the calls that have a value of it ([`profile::columns::Columns::value`]): in which it was read
/// and counting all the time, or, in a run that asked for estimates, part of the time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CounterTotal {
    /// Sum of the values, estimates included.
    pub total: u128,
    /// Number of those calls.
    pub calls: u64,
    /// How many of them have an estimate. The fields below are 0 in a run without estimates.
    pub estimated: u64,
    /// Time for which its group was enabled in every call in which it was read, also where it
    /// never counted, ns.
    pub enabled_ns: u128,
    /// Time of that for which it counted, ns.
    pub running_ns: u128,
    /// Those of the calls whose bracket was calibrated.
    pub calibrated: u64,
    /// What empty calls would have read in those.
    pub empty: u128,
    /// What was taken off.
    pub subtracted: bool,
}

impl CounterTotal {
    /// Per call that has a value.
    pub fn mean(&self) -> f64 {
        self.total as f64 / self.calls as f64
    }

    /// The part of the time for which it counted, 0 to 1; `None` without estimates.
    pub fn covered(&self) -> Option<f64> {
        (self.enabled_ns > 0).then(|| self.running_ns as f64 / self.enabled_ns as f64)
    }

    /// The part of what was read that is an empty bracket's, 0 to 1; `None` where that was not
    /// calibrated. Of what is left after `--subtract-probe` it is what was taken off.
    pub fn empty_share(&self) -> Option<f64> {
        let read = if self.subtracted { self.total + self.empty } else { self.total };
        metrics::empty_share(read, self.empty, self.calibrated)
    }

    /// Adds a call's value. `bracket`: what an empty call reads, if that was calibrated.
    fn count(&mut self, value: u64, bracket: Option<u64>, subtract: bool) {
        let empty = bracket.unwrap_or(0);
        self.total += u128::from(if subtract { value.saturating_sub(empty) } else { value });
        self.calls += 1;
        self.calibrated += u64::from(bracket.is_some());
        self.empty += u128::from(empty);
        self.subtracted |= subtract && bracket.is_some();
    }

    fn add(&mut self, other: Self) {
        self.calibrated += other.calibrated;
        self.empty += other.empty;
        self.subtracted |= other.subtracted;
        self.total += other.total;
        self.calls += other.calls;
        self.estimated += other.estimated;
        self.enabled_ns += other.enabled_ns;
        self.running_ns += other.running_ns;
    }
}

impl Row {
    /// Whether every pass made the same number of calls and dispatches. True without passes.
    pub fn passes_agree(&self) -> bool {
        let same =
            |a: &PassTotal, b: &PassTotal| (a.calls, a.dispatches) == (b.calls, b.dispatches);
        self.passes.windows(2).all(|pair| same(&pair[0], &pair[1]))
    }

    /// Mean duration in ticks.
    pub fn mean_ticks(&self) -> f64 {
        self.total_ticks as f64 / self.calls as f64
    }
}

/// How many calls are on no thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Apart {
    /// Asynchronous spans.
    pub spans: u64,
    /// What a profiler wrote about its own work.
    pub bookkeeping: u64,
}

impl Apart {
    fn add(&mut self, role: Role, calls: u64) {
        match role {
            Role::Span => self.spans += calls,
            _ => self.bookkeeping += calls,
        }
    }
}

/// The first calls of a row, one per thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FirstCalls {
    /// How many: one for each thread.
    pub calls: u64,
    /// Their durations together.
    pub total_ticks: u128,
    /// The longest of them.
    pub max_ticks: u64,
}
