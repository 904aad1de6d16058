//! Defines the results that are computed from a sample: estimates with their intervals.

use crate::Estimate;
use crate::interval::Sum;

/// An estimate whose interval may be unknown, because too few calls were timed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimated {
    /// The estimate itself.
    pub value: f64,
    /// The value with its 95 % interval, if that is known.
    pub interval: Option<Estimate>,
}

impl From<Estimate> for Estimated {
    fn from(of: Estimate) -> Self {
        Self { value: of.value, interval: Some(of) }
    }
}

impl Estimated {
    pub(crate) fn of(sum: &Sum) -> Self {
        Self { value: sum.value(), interval: sum.interval() }
    }

    /// Makes the estimate of a sum. The lower end of its interval is at least `observed` (the known
    /// part of the sum), because the rest cannot be negative, but never above the estimate.
    pub(crate) fn at_least(sum: &Sum, observed: f64) -> Self {
        let cut = |mut all: Estimate| {
            all.low = all.low.max(observed).min(all.value);
            all
        };
        Self { value: sum.value(), interval: sum.interval().map(cut) }
    }

    /// Multiplies the estimate and its interval by a factor.
    pub fn times(self, factor: f64) -> Self {
        Self {
            value: self.value * factor,
            interval: self.interval.map(|interval| interval.times(factor)),
        }
    }

    pub fn is_exact(&self) -> bool {
        self.interval.is_some_and(|interval| interval.is_exact())
    }
}

/// The estimates of a row in a run with a budget for the cost of recording, where only some calls
/// are timed. Durations are in ticks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SampledRow {
    /// The number of all calls. `None` in rows by CPU, because the CPU is known for timed calls
    /// only.
    pub calls: Option<u64>,
    /// The number of calls with its interval, if a host (a runtime such as PyTorch) announced its
    /// calls only in some steps (iterations) of the program.
    pub by_steps: Option<Estimated>,
    /// Number of calls that were timed.
    pub timed: u64,
    /// Number of timed calls in which counters were read.
    pub counted: u64,
    /// The sum of the durations. `None` if it cannot be estimated.
    pub total: Option<Estimated>,
    /// Whether the row's self time is known. It is unknown if `total` is, or if calls of the row
    /// have other calls inside and not all calls of the row were timed.
    pub self_known: bool,
    /// The row's part of the sum of all durations. `None` in rows by CPU, and in other rows if
    /// calls of the run are nested, if one of the sums is not known, or if shares were not
    /// requested.
    pub share: Option<Estimated>,
    /// The effective number of timed calls: this many timed calls of equal weight would be as
    /// informative about the distribution.
    pub effective: Option<f64>,
    /// The estimates of each counter of the run. `None` if the counter's sum cannot be estimated.
    pub counters: Vec<Option<SampledCounter>>,
}

impl SampledRow {
    /// Returns the mean duration.
    pub fn mean(&self) -> Option<Estimated> {
        let calls = self.calls.filter(|calls| *calls > 0)?;
        Some(self.total?.times(1.0 / calls as f64))
    }
}

/// The sum of a counter over the calls of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SampledCounter {
    /// The estimated sum of the counter's values.
    pub total: Estimated,
    /// Number of calls that `total` covers. An op's calls on a thread are left out if some were
    /// recorded and none of these has a value of the counter. If none were recorded, they are left
    /// out if the counter has no value in their process.
    pub calls: u64,
    /// The number of calls that have a value.
    pub counted: u64,
}

impl SampledCounter {
    /// Returns the mean over the calls that `total` covers.
    pub fn mean(&self) -> Estimated {
        self.total.times(1.0 / self.calls as f64)
    }
}

/// The estimates of a whole run with a budget. Filters for ops or threads do not change them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SampledRun {
    /// The part of the processor time that recording was allowed to take, 0 to 1.
    pub budget: f64,
    /// The cost of recording that the recorder measured, divided by the processor time that the
    /// threads would have used without recording. `None` if it was not measured.
    pub price: Option<f64>,
    /// The estimates for all calls together. `counters` is empty. `total` is `None` if calls are
    /// nested and not all calls were timed.
    pub all: SampledRow,
    /// The estimated time in calls of each thread, by process and thread index.
    pub threads: Vec<((usize, usize), SampledRow)>,
}
