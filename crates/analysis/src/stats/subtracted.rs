//! What is subtracted from the values of a variable when they are shown.

use super::{Scope, Stats};
use crate::estimate::Estimate;
use crate::sampled::Estimated;
use crate::table::compensate;

/// What is subtracted from the values of a variable before they are scaled: what the recorder added.
#[derive(Clone, Copy, Debug)]
pub struct Subtracted {
    added: Option<Estimate>,
    /// Whether the amount was taken from each duration before.
    taken: bool,
}

impl Subtracted {
    /// Nothing is subtracted if values are as they were recorded, if it was not calibrated, and from
    /// metrics, which are computed from single calls.
    pub fn new(stats: &Stats, scope: &Scope, variable: usize) -> Self {
        let bracket = scope.brackets.get(variable).copied().flatten();
        let added = bracket.filter(|_| !stats.raw).map(|bracket| bracket.mean);
        Self { added, taken: variable == 0 }
    }

    /// Whether values are as they were recorded.
    pub fn is_nothing(self) -> bool {
        self.added.is_none_or(|of| of == Estimate::exact(0.0))
    }

    /// A mean, or another value of the variable, without it. It has not added more than there is.
    pub fn from(self, value: f64) -> Estimate {
        self.from_estimate(Estimate::exact(value))
    }

    /// A mean that is an estimate, without what was added to it, and with both kinds of uncertainty.
    pub fn from_estimate(self, mean: Estimate) -> Estimate {
        let added = self.added.map(|of| if self.taken { of.less(of.value) } else { of });
        let rest = compensate(mean, added);
        let cut = |end: f64| if self.added.is_some() { end.max(0.0) } else { end };
        Estimate { value: cut(rest.value), high: cut(rest.high), ..rest }
    }
    /// A mean of which it may not be known how far off it is, without what was added to it.
    pub fn from_estimated(self, mean: Estimated) -> Estimated {
        let known = mean.interval.map(|mean| self.from_estimate(mean));
        let value = known.unwrap_or_else(|| self.from(mean.value)).value;
        Estimated { value, interval: known }
    }
}
