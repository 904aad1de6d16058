//! Defines the table of a report. Its rows add up calls by op, thread, CPU or process, or by
//! properties of activities.

mod fill;
mod finish;
mod places;
mod sum;

use std::collections::BTreeSet;

use profile::{OpId, Profile, Role};

use crate::estimate::Estimate;
use crate::metrics::{self, MetricValues};
use crate::sampled::values::SampledRow;

pub(crate) use fill::Table;
pub use places::Counts;
pub(crate) use places::{Places, Selection, devices};

/// What the calls of a row have in common.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum By {
    /// One exported function; [`profile::ops`] defines when two functions are the same.
    #[default]
    Op,
    /// One exported function in one process.
    OpInProcess,
    Thread,
    Cpu,
    Process,
    /// One rank of a distributed job, with all processes of the rank.
    Rank,
    /// One kind of activities, identified by its name in the trace (`cuda_runtime`).
    Kind,
    /// One device, or everything that is not on a device.
    Device,
    /// One stream of a device, or everything that is not on a device.
    Stream,
}

/// Identifies a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    /// An op of the profile.
    Op(OpId),
    /// An export whose metadata is missing: process index and export id.
    Unknown(usize, u32),
    /// Process index, and an op of the profile.
    OpIn(usize, OpId),
    /// Process index and thread index.
    Thread(usize, usize),
    /// Number of the CPU and of the node.
    Cpu(u32, u32),
    /// Process index.
    Process(usize),
    /// Index of the first process of the rank: see [`Profile::ranks`].
    Rank(usize),
    /// A kind of activities, identified by the first op of this kind.
    Kind(OpId),
    /// Process index of a device; `None` for everything that is not on a device.
    Device(Option<usize>),
    /// Process index of a device and thread index of a stream; `None` for everything that is not on
    /// a device.
    Stream(Option<(usize, usize)>),
}

impl Key {
    /// Whether the calls of this row belong to no thread: asynchronous spans, or the own work of
    /// the profiler that wrote an imported trace.
    pub fn is_apart(self, profile: &Profile) -> bool {
        let (Self::Op(op) | Self::OpIn(_, op) | Self::Kind(op)) = self else { return false };
        profile.ops.get(op).is_some_and(|op| op.role.is_apart())
    }
}

/// One row. Times are in ticks, without the recorder's time unless
/// [`Summary::raw`](crate::Summary::raw) is set. `first`, `exhausted`, `own`, `dispatches`,
/// `threads` and `cpus` are those of all calls of the row. All other values are those of its
/// outermost calls, which are not inside of another call of the row.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    pub key: Key,
    /// The first calls of the row, one per thread.
    pub first: FirstCalls,
    /// Number of outermost calls.
    pub calls: u64,
    /// Number of calls inside of other calls of the row.
    pub inner: u64,
    /// Number of calls, outermost or inner, whose self time is 0 after the correction.
    pub exhausted: u64,
    /// Number of calls with workgroup id 0,0,0, of which a dispatch has one. `None` if the
    /// workgroup of some call is unknown, or if some call is no workgroup.
    pub dispatches: Option<u64>,
    /// Sum of the durations.
    pub total: Estimate,
    /// Sum of the self times ([`crate::innermost`]).
    pub own: Estimate,
    /// The time of brackets (the recorder's work before and after calls) that was subtracted from
    /// `total` and `own`. `None` if the brackets were not calibrated for all of the calls.
    pub taken: Option<Taken>,
    /// The part of the recorded durations that as many empty calls would have taken, from 0 to 1.
    /// `None` if empty calls were not calibrated.
    pub empty_share: Option<f64>,
    /// Shortest duration.
    pub min: f64,
    /// Longest duration.
    pub max: f64,
    /// 10th percentile, interpolated linearly between the closest ranks.
    pub p10: f64,
    /// Median, interpolated in the same way.
    pub p50: f64,
    /// 99th percentile, interpolated in the same way.
    pub p99: f64,
    /// One entry for each counter of the run; `None` if no call of this row has a usable value.
    pub counters: Vec<Option<CounterTotal>>,
    /// The value of each requested metric.
    pub metrics: MetricValues,
    /// The row's numbers in each pass (a repetition of the program with other counters). Empty in a
    /// profile without passes.
    pub passes: Vec<PassTotal>,
    /// Threads that made the row's calls: process index and thread index.
    pub threads: BTreeSet<(usize, usize)>,
    /// CPUs on which the calls ended.
    pub cpus: BTreeSet<u32>,
    /// In a run with a budget: the estimates for all calls. Other fields then have the same
    /// estimated values, without intervals. `min`, `max`, `first` and `cpus` describe the timed
    /// calls. If [`SampledRow::timed`] is 0, only `calls` and `threads` are known.
    pub sampled: Option<Box<SampledRow>>,
}

/// The time of brackets that was subtracted from the times of a row, in ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Taken {
    /// The time subtracted from `Row::total`: the durations of empty calls, and the whole brackets
    /// of the calls inside.
    pub total: Estimate,
    /// The time subtracted from `Row::own`: the durations of empty calls and, for each call
    /// directly inside, the part of its bracket that is outside of its duration.
    pub own: Estimate,
}

/// Subtracts from a recorded sum the time or the counts that brackets added, if they were
/// calibrated. In a run with a budget, `brackets` must be scaled to the same number of calls as the
/// sum.
pub fn compensate(recorded: Estimate, brackets: Option<Estimate>) -> Estimate {
    brackets.map_or(recorded, |brackets| recorded.minus(brackets))
}

/// The numbers of a row in one pass.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PassTotal {
    /// Number of outermost calls.
    pub calls: u64,
    /// Number of calls whose workgroup id is known to be 0,0,0.
    pub dispatches: u64,
    /// Sum of the durations.
    pub total_ticks: f64,
}

/// The sum of a counter over the calls that have a value of it
/// ([`profile::columns::Columns::value`]). In these calls the counter was read and was counting all
/// the time, or, in a run with `--multiplex`, part of the time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CounterTotal {
    /// Sum of the values as they were read, including estimates.
    pub total: u128,
    /// The sum without what the brackets added, unless [`Summary::raw`](crate::Summary::raw) is
    /// set.
    pub value: Estimate,
    pub calls: u64,
    /// Number of calls whose value was estimated because the counter counted part of the time.
    /// Without such estimates, this and the next two fields are 0.
    pub estimated: u64,
    /// Time in ns for which the counter's group was enabled, summed over all calls in which the
    /// group was read.
    pub enabled_ns: u128,
    /// The part of `enabled_ns` in which the group counted.
    pub running_ns: u128,
    /// What the brackets added to `total` in the calls that have a value. `None` if the brackets
    /// were not calibrated for all of these calls.
    pub brackets: Option<Estimate>,
    /// In a run with a budget: the sum, estimated from the calls in which the counter was read.
    /// `None` if its interval is not known, and in other runs.
    pub sampled: Option<Estimate>,
}

impl CounterTotal {
    /// Returns the mean over the calls that have a value.
    pub fn mean(&self) -> Estimate {
        self.value.times(1.0 / self.calls.max(1) as f64)
    }

    /// Returns the part of the time in which the counter counted, 0 to 1; `None` without estimates.
    pub fn covered(&self) -> Option<f64> {
        (self.enabled_ns > 0).then(|| self.running_ns as f64 / self.enabled_ns as f64)
    }

    /// Returns the part of the sum that empty brackets added, from 0 to 1. `None` if they were not
    /// calibrated.
    pub fn empty_share(&self) -> Option<f64> {
        metrics::empty_share(self.total as f64, self.brackets)
    }

    /// Computes `value`. A negative result is set to 0, because brackets cannot have counted more
    /// than the sum.
    pub(crate) fn set_value(&mut self, raw: bool) {
        let recorded = self.sampled.unwrap_or(Estimate::exact(self.total as f64));
        let rest = compensate(recorded, self.brackets.filter(|_| !raw));
        self.value = Estimate { value: rest.value.max(0.0), high: rest.high.max(0.0), ..rest };
    }

    fn count(&mut self, value: u64) {
        self.total += u128::from(value);
        self.calls += 1;
    }

    fn add(&mut self, other: Self) {
        self.total += other.total;
        self.calls += other.calls;
        self.estimated += other.estimated;
        self.enabled_ns += other.enabled_ns;
        self.running_ns += other.running_ns;
    }
}

impl Row {
    /// Whether `number` returns the same for every pass. True without passes.
    pub fn passes_agree(&self, number: impl Fn(&PassTotal) -> u64) -> bool {
        self.passes.windows(2).all(|pair| number(&pair[0]) == number(&pair[1]))
    }

    /// Whether the durations of the row's calls are known. They are not if all calls were only
    /// counted.
    pub fn is_timed(&self) -> bool {
        self.sampled.as_ref().is_none_or(|sampled| sampled.timed > 0)
    }

    /// Makes a row of calls that were only counted.
    pub(crate) fn of_counts(key: Key, counters: usize) -> Self {
        Self {
            key,
            first: FirstCalls::default(),
            calls: 0,
            inner: 0,
            exhausted: 0,
            dispatches: None,
            total: Estimate::default(),
            own: Estimate::default(),
            taken: None,
            empty_share: None,
            min: 0.0,
            max: 0.0,
            p10: 0.0,
            p50: 0.0,
            p99: 0.0,
            counters: vec![None; counters],
            metrics: MetricValues::default(),
            passes: Vec::new(),
            threads: BTreeSet::new(),
            cpus: BTreeSet::new(),
            sampled: None,
        }
    }

    /// Returns the mean duration in ticks.
    pub fn mean(&self) -> Estimate {
        self.total.times(1.0 / self.calls.max(1) as f64)
    }

    /// Returns `ticks`, a quantile, the shortest or the longest of the durations, with the interval
    /// of the time that was subtracted from each call.
    pub fn call(&self, ticks: f64) -> Estimate {
        let each = 1.0 / self.calls.max(1) as f64;
        let taken = self.taken.map_or(Estimate::default(), |taken| taken.total.times(each));
        let (low, high) = (taken.value - taken.high, taken.value - taken.low);
        Estimate { value: ticks, low: ticks + low, high: ticks + high }
    }
}

/// Numbers of calls that belong to no thread, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Apart {
    /// Number of asynchronous spans.
    pub spans: u64,
    /// Number of entries about the own work of a trace's profiler.
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
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FirstCalls {
    /// The number of first calls.
    pub calls: u64,
    /// The sum of their durations.
    pub total: f64,
    /// The longest of their durations.
    pub max: f64,
}
