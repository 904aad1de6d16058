//! Defines the table of a report. Its rows add up calls by op, thread, CPU, process or rank, or by
//! the kind, device or stream of activities (such as the entries of an imported trace).

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
    /// One op, such as an exported function; [`profile::ops`] defines when two functions are the
    /// same op.
    #[default]
    Op,
    /// One op in one process.
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
    /// An exported function whose metadata is missing: process index, and id of the function in
    /// this process.
    Unknown(usize, u32),
    /// Process index, and an op of the profile.
    OpIn(usize, OpId),
    /// Process index and thread index.
    Thread(usize, usize),
    /// Number of the CPU and of the NUMA node.
    Cpu(u32, u32),
    /// Process index.
    Process(usize),
    /// Index of the first process of the rank: see [`Profile::ranks`].
    Rank(usize),
    /// A kind of activities, identified by the first op of this kind.
    Kind(OpId),
    /// A device, which the profile stores like a process: its process index. `None` for everything
    /// that is not on a device.
    Device(Option<usize>),
    /// A stream, which the profile stores like a thread: process index of its device, and its
    /// thread index. `None` for everything that is not on a device.
    Stream(Option<(usize, usize)>),
}

impl Key {
    /// Whether the calls of this row belong to no thread. Such calls come from an imported trace:
    /// they are asynchronous spans, or work that the trace's profiler did for itself.
    pub fn is_apart(self, profile: &Profile) -> bool {
        let (Self::Op(op) | Self::OpIn(_, op) | Self::Kind(op)) = self else { return false };
        profile.ops.get(op).is_some_and(|op| op.role.is_apart())
    }
}

/// One row. Times are in ticks, without the recorder's time unless
/// [`Summary::raw`](crate::Summary::raw) is set. `first`, `exhausted`, `own`, `dispatches`,
/// `threads` and `cpus` describe all calls of the row. Unless their comment says otherwise, the
/// other fields describe only the outermost calls (those that are not inside of another call of the
/// row).
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    pub key: Key,
    /// The first calls of the row, one per thread.
    pub first: FirstCalls,
    /// Number of outermost calls.
    pub calls: u64,
    /// Number of calls inside of other calls of the row.
    pub inner: u64,
    /// Number of calls, outermost or inner, whose self time is 0 after the recorder's time was
    /// subtracted.
    pub exhausted: u64,
    /// Number of calls with workgroup id 0,0,0. Every dispatch has one such call. `None` if the
    /// workgroup id of some call is unknown, or if some call is not a workgroup.
    pub dispatches: Option<u64>,
    /// Sum of the durations.
    pub total: Estimate,
    /// Sum of the self times ([`crate::innermost`]).
    pub own: Estimate,
    /// The time of brackets (the recorder's work before and after calls) that was subtracted from
    /// `total` and from `own`. `None` if nothing is subtracted (`Summary::raw`), or if the brackets
    /// of some calls were not calibrated.
    pub taken: Option<Taken>,
    /// The part of the recorded durations that brackets took, from 0 to 1. `None` if the brackets
    /// of some calls were not calibrated.
    pub empty_share: Option<f64>,
    /// Shortest duration.
    pub min: f64,
    /// Longest duration.
    pub max: f64,
    /// 10th percentile of the durations, interpolated linearly between the closest ranks.
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
    /// In a run with a budget: the estimates for all calls. The estimates are also copied into the
    /// fields above. `min`, `max`, `first`, `exhausted` and `cpus` describe only the timed calls.
    /// If [`SampledRow::timed`] is 0, only numbers of calls and the `threads` are known.
    pub sampled: Option<Box<SampledRow>>,
}

/// The time of brackets (the recorder's work before and after calls) that was subtracted from the
/// times of a row, in ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Taken {
    /// The time subtracted from `Row::total`. For each call, this is the part of its bracket that
    /// is in its duration, and the whole brackets of all calls inside.
    pub total: Estimate,
    /// The time subtracted from `Row::own`. For each call, this is the part of its bracket that is
    /// in its duration. For each call directly inside, the part of that call's bracket outside of
    /// that call's duration is added.
    pub own: Estimate,
}

/// Subtracts from a recorded sum (of times or of a counter's values) what brackets added to it.
/// Returns the sum unchanged if the brackets were not calibrated (`None`). In a run with a budget,
/// `brackets` must be scaled to the same number of calls as the sum.
pub fn compensate(recorded: Estimate, brackets: Option<Estimate>) -> Estimate {
    brackets.map_or(recorded, |brackets| recorded.minus(brackets))
}

/// The numbers of a row in one pass (a repetition of the program with other counters).
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
    /// Sum of the values, from which nothing is subtracted. The values of the `estimated` calls are
    /// included.
    pub total: u128,
    /// The sum without what the brackets added, unless [`Summary::raw`](crate::Summary::raw) is
    /// set.
    pub value: Estimate,
    pub calls: u64,
    /// Number of calls whose value was estimated because the counter counted only part of the time.
    /// In a run without `--multiplex`, this and the next two fields are 0.
    pub estimated: u64,
    /// Time in ns for which the counter's group (counters that are read together) was enabled,
    /// summed over all calls in which the group was read.
    pub enabled_ns: u128,
    /// The part of `enabled_ns` in which the group counted.
    pub running_ns: u128,
    /// What the brackets added to `total` in the calls that have a value. `None` if the brackets
    /// were not calibrated for all of these calls.
    pub brackets: Option<Estimate>,
    /// In a run with a budget: the sum, estimated from the calls in which the counter was read.
    /// `None` if the interval of this sum is not known, and in a run without a budget.
    pub sampled: Option<Estimate>,
}

impl CounterTotal {
    /// Returns the mean over the calls that have a value.
    pub fn mean(&self) -> Estimate {
        self.value.times(1.0 / self.calls.max(1) as f64)
    }

    /// Returns the part of `enabled_ns` in which the counter counted, from 0 to 1. `None` if
    /// `enabled_ns` is 0, as in every run without `--multiplex`.
    pub fn covered(&self) -> Option<f64> {
        (self.enabled_ns > 0).then(|| self.running_ns as f64 / self.enabled_ns as f64)
    }

    /// Returns the part of `total` that brackets added, from 0 to 1. `None` if the brackets of some
    /// calls were not calibrated.
    pub fn empty_share(&self) -> Option<f64> {
        metrics::empty_share(self.total as f64, self.brackets)
    }

    /// Computes `value`. A negative result is set to 0, because brackets cannot have added more
    /// than the whole sum.
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
    /// Whether `number` returns the same for every pass. This is also true if there are no passes.
    pub fn passes_agree(&self, number: impl Fn(&PassTotal) -> u64) -> bool {
        self.passes.windows(2).all(|pair| number(&pair[0]) == number(&pair[1]))
    }

    /// Whether the durations of the row's calls are known. They are unknown if all calls were only
    /// counted.
    pub fn is_timed(&self) -> bool {
        self.sampled.as_ref().is_none_or(|sampled| sampled.timed > 0)
    }

    /// Makes a row for calls that were only counted. All its numbers are still missing or 0.
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

    /// Returns `ticks` with an interval: the uncertainty of the mean time that was subtracted from
    /// a call. `ticks` is a quantile of the durations, or the shortest or the longest one.
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
    /// Number of entries of imported traces for work that the profiler did for itself.
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
