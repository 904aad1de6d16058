//! Subtracts from the values of a variable the amount that the recorder added, before a view shows
//! them.

use super::{Scope, Stats};
use crate::estimate::Estimate;
use crate::sampled::Estimated;
use crate::table::compensate;

/// The amount that the recorder added to the values of a variable, in the unit of the values. The
/// amount must be subtracted before the values are converted to another unit.
#[derive(Clone, Copy, Debug)]
pub struct Subtracted {
    added: Option<Estimate>,
    /// Whether the amount is already subtracted from the values, which is so for durations. Then
    /// the uncertainty of the amount still widens the interval.
    taken: bool,
}

impl Subtracted {
    /// Returns the amount for a variable. There is no amount if values are shown as recorded, if
    /// the brackets (the readings before and after a call) were not calibrated, or if the variable
    /// is a metric. For metrics, which are computed call by call, no amount is known.
    pub fn new(stats: &Stats, scope: &Scope, variable: usize) -> Self {
        let bracket = scope.brackets.get(variable).copied().flatten();
        let added = bracket.filter(|_| !stats.raw).map(|bracket| bracket.mean);
        Self { added, taken: variable == 0 }
    }

    /// Whether nothing is subtracted.
    pub fn is_nothing(self) -> bool {
        self.added.is_none_or(|of| of == Estimate::exact(0.0))
    }

    /// Subtracts the amount from a mean, or from another value of the variable. If there is an
    /// amount, neither the resulting value nor the upper end of its interval is negative.
    pub fn from(self, value: f64) -> Estimate {
        self.from_estimate(Estimate::exact(value))
    }

    /// Subtracts the amount from an estimated mean. The interval of the result includes the
    /// uncertainty of the mean and that of the amount.
    pub fn from_estimate(self, mean: Estimate) -> Estimate {
        let added = self.added.map(|of| if self.taken { of.less(of.value) } else { of });
        let rest = compensate(mean, added);
        let cut = |end: f64| if self.added.is_some() { end.max(0.0) } else { end };
        Estimate { value: cut(rest.value), high: cut(rest.high), ..rest }
    }
    /// Subtracts the amount from a mean whose interval may be unknown.
    pub fn from_estimated(self, mean: Estimated) -> Estimated {
        let known = mean.interval.map(|mean| self.from_estimate(mean));
        let value = known.unwrap_or_else(|| self.from(mean.value)).value;
        Estimated { value, interval: known }
    }
}
