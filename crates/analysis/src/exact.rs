//! Computes statistics that can be merged exactly. The result is the same to the last bit, however
//! the data was divided into parts, and in whatever order the parts are merged. Datasets of many
//! ranks contain such statistics.
//!
//! ```text
//!  Profile ─ walk ──► one adder per worker ─ merge ─► Exact: one row per process and op
//!                                                       ├─ durations: Histogram, in ns
//!                                                       └─ counters:  Moments with the duration
//! ```
//!
//! The statistics are over the outermost calls of each op in each process (those that are not
//! inside of another call of the op). Unless raw durations are requested, the time that the
//! recorder added is subtracted from each call's duration. After that, each duration is rounded to
//! a whole number of ns, as in the files of a dataset. The total of a [`crate::Row`] is computed
//! without this rounding, so [`Moments::x`] can differ from it by up to half a ns per call.
//!
//! The values of counters are used as they were read, because it is not known how much the recorder
//! added in a single call.
//!
//! In a run with a budget (a limit for the cost of recording), the durations of most calls are not
//! known, so the result has no rows. [`crate::Summary`] has estimates for such a run.

mod collect;
mod histogram;
mod moments;
mod wide;

use std::collections::BTreeMap;

pub use collect::exact;
pub use histogram::Histogram;
pub use moments::Moments;
pub use wide::{BEYOND, Sum};

/// The exact statistics of an op in a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExactRow {
    /// The durations, in ns.
    pub durations: Histogram,
    /// For each counter of the run, the moments of the duration in ns (`x`) and the counter (`y`),
    /// over the calls that have a value of the counter.
    pub counters: Vec<Moments>,
}

impl ExactRow {
    /// Adds the statistics of other calls of the same op.
    pub fn merge(&mut self, other: &Self) {
        self.durations.merge(&other.durations);
        if self.counters.len() < other.counters.len() {
            self.counters.resize(other.counters.len(), Moments::default());
        }
        self.counters.iter_mut().zip(&other.counters).for_each(|(own, new)| own.merge(new));
    }
}

/// The exact statistics of a profile. The keys are those of [`crate::By::OpInProcess`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exact {
    pub rows: BTreeMap<crate::Key, ExactRow>,
}

impl Exact {
    /// Adds the statistics of other calls of the same profile.
    pub fn merge(&mut self, other: Self) {
        for (key, row) in other.rows {
            self.rows.entry(key).or_default().merge(&row);
        }
    }
}

#[cfg(test)]
mod tests;
