//! A value together with its 95 % confidence interval.
//!
//! Values that are not exact were scaled up from a sample of the calls, or the cost of an empty
//! call was subtracted from them. The interval has the unit of the value, and need not be
//! symmetric.

use serde::Serialize;

/// A value with its 95 % confidence interval. For an exact value, `low` = `high` = `value`.
///
/// `low` may be negative even if the quantity cannot be negative. In this case, the value cannot be
/// distinguished from zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Estimate {
    /// The estimated value.
    pub value: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
}

impl Estimate {
    /// Makes a value without any uncertainty.
    pub const fn exact(value: f64) -> Self {
        Self { value, low: value, high: value }
    }

    /// Makes a value whose interval reaches `half` to both sides, whatever the sign of `half`.
    pub fn within(value: f64, half: f64) -> Self {
        let half = half.abs();
        Self { value, low: value - half, high: value + half }
    }

    /// Whether the interval is a single value.
    pub fn is_exact(&self) -> bool {
        self.low == self.high
    }

    /// Returns the larger one of the distances from the value to the ends of the interval.
    pub fn half(&self) -> f64 {
        (self.value - self.low).max(self.high - self.value)
    }

    /// Returns [`Estimate::half`] divided by the absolute value: 0.04 for ±4 %. `None` if the value
    /// is zero but not exact.
    pub fn relative(&self) -> Option<f64> {
        match (self.is_exact(), self.value) {
            (true, _) => Some(0.0),
            (false, 0.0) => None,
            (false, value) => Some(self.half() / value.abs()),
        }
    }

    /// Whether the value is exact, or the lower end of its interval is above zero.
    pub fn is_resolved(&self) -> bool {
        self.is_exact() || self.low > 0.0
    }

    /// Whether `value` is in the interval.
    pub fn contains(&self, value: f64) -> bool {
        self.low <= value && value <= self.high
    }

    /// Multiplies the value and its interval by a factor.
    pub fn times(self, factor: f64) -> Self {
        let (a, b) = (self.low * factor, self.high * factor);
        Self { value: self.value * factor, low: a.min(b), high: a.max(b) }
    }

    /// Subtracts an exact number from the value and its interval.
    pub fn less(self, exact: f64) -> Self {
        Self { value: self.value - exact, low: self.low - exact, high: self.high - exact }
    }

    /// Reduces the value and its interval to `limit`, for a quantity that is known to be at most
    /// `limit`.
    pub fn at_most(self, limit: Self) -> Self {
        let value = self.value.min(limit.value);
        Self { value, low: self.low.min(value), high: self.high.min(limit.high).max(value) }
    }

    /// Returns the sum of two values whose errors are independent: the distances to the ends are
    /// added as squares.
    pub fn plus(self, other: Self) -> Self {
        let value = self.value + other.value;
        let below = (self.value - self.low).hypot(other.value - other.low);
        let above = (self.high - self.value).hypot(other.high - other.value);
        Self { value, low: value - below, high: value + above }
    }

    /// Returns the difference of two values whose errors are independent.
    pub fn minus(self, other: Self) -> Self {
        self.plus(other.times(-1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn independent_errors_add_as_squares() {
        let sum = Estimate::within(10.0, 3.0).plus(Estimate::within(5.0, 4.0));
        assert_eq!(sum, Estimate { value: 15.0, low: 10.0, high: 20.0 });
        let difference = Estimate::within(10.0, 3.0).minus(Estimate::within(5.0, 4.0));
        assert_eq!(difference, Estimate { value: 5.0, low: 0.0, high: 10.0 });
    }

    #[test]
    fn a_difference_takes_the_opposite_end_of_what_is_subtracted() {
        let bracket = Estimate { value: 2.0, low: 1.0, high: 5.0 };
        let rest = Estimate::exact(10.0).minus(bracket);
        assert_eq!(rest, Estimate { value: 8.0, low: 5.0, high: 9.0 });
    }

    #[test]
    fn a_limit_moves_what_is_above_it() {
        let limit = Estimate::within(10.0, 1.0);
        assert_eq!(Estimate::within(5.0, 2.0).at_most(limit), Estimate::within(5.0, 2.0));
        let cut = Estimate { value: 10.0, low: 9.0, high: 11.0 };
        assert_eq!(Estimate { value: 12.0, low: 9.0, high: 15.0 }.at_most(limit), cut);
        let above = Estimate { value: 12.0, low: 11.5, high: 15.0 };
        assert_eq!(above.at_most(limit), Estimate { low: 10.0, ..cut });
    }

    #[test]
    fn an_exact_value_stays_exact() {
        let value = Estimate::exact(3.0).plus(Estimate::exact(4.0)).times(-2.0);
        assert_eq!(value, Estimate::exact(-14.0));
        assert_eq!((value.is_exact(), value.relative()), (true, Some(0.0)));
        assert_eq!(Estimate::within(0.0, 1.0).relative(), None);
        assert_eq!(Estimate::within(-50.0, 2.0).relative(), Some(0.04));
    }
}
