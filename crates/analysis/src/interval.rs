//! Adds up independent estimates, and computes the 95 % confidence interval of the sum.
//!
//! Such sums are used for runs with a budget for the cost of recording ([`crate::sampled`]), and
//! for loops of which only some hits (entries) are timed ([`crate::loops`](mod@crate::loops)).
//! Comparisons of runs ([`crate::diff`](mod@crate::diff)) use the quantiles of Student's t
//! distribution in `student`.

pub(crate) mod student;

use crate::Estimate;
use student::t95;

/// A sum of independent estimates.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sum {
    pub(crate) value: f64,
    /// The variance of the estimate; 0 for an exact value.
    pub(crate) variance: f64,
    /// Σ Vᵢ²/νᵢ over the estimates, where Vᵢ is the variance of an estimate and νᵢ its degrees of
    /// freedom. The degrees of freedom of the sum are computed from this.
    pub(crate) satterthwaite: f64,
    /// The third central moment of the estimate, for its skewness; 0 if it is not known.
    pub(crate) third: f64,
    /// For loops of which some hits are not timed: an upper bound of the third central moment. 0
    /// for other estimates.
    pub(crate) lopsided: f64,
    /// Whether the sum includes an estimate for hits that were not timed.
    pub(crate) sampled: bool,
    /// Whether the variance of a part of the sum is unknown, for example because of too few
    /// samples.
    pub(crate) unknown: bool,
}

impl Sum {
    /// Makes a sum without any uncertainty.
    pub fn exact(value: f64) -> Self {
        Self { value, ..Self::default() }
    }

    /// Makes an estimate with this variance, these degrees of freedom and this third central
    /// moment. `variance` is `None` if there are too few samples to know it.
    pub fn sampled(value: f64, variance: Option<f64>, freedom: f64, third: f64) -> Self {
        let Some(variance) = variance else {
            return Self { value, unknown: true, ..Self::default() };
        };
        let satterthwaite = variance * variance / freedom.max(1.0);
        Self { value, variance, satterthwaite, third, ..Self::default() }
    }

    /// Returns the 95 % interval, or `None` if it is not known. It need not be symmetric. Most
    /// samples of a skewed population (where a few calls are very slow) contain too few of the slow
    /// calls. So the value is mostly too small, and the interval must reach further up than down.
    /// The ends are computed as by Hall, *On the removal of skewness by transformation* (Journal of
    /// the Royal Statistical Society B 54, 1992).
    pub fn interval(&self) -> Option<Estimate> {
        let Self { value, variance, .. } = *self;
        if self.unknown || !value.is_finite() || !variance.is_finite() {
            return None;
        }
        // A variance that should be 0 may be slightly above it, because of rounding errors.
        if variance <= (value * 1e-12).powi(2) {
            return Some(Estimate::exact(value));
        }
        let (t, error) = (t95(variance * variance / self.satterthwaite), variance.sqrt());
        let skew = self.third / (error * variance);
        // With so little skewness, the correction would change the distance from the value to each
        // end by less than 1 %.
        if skew.abs() < 1e-3 {
            return Some(Estimate::within(value, t * error));
        }
        let end = |t: f64| 3.0 / skew * ((1.0 + skew * (t - skew / 6.0)).cbrt() - 1.0) * error;
        let (low, high) = (value - end(t), value - end(-t));
        (low.is_finite() && high.is_finite()).then(|| Estimate {
            value,
            low: low.min(value),
            high: high.max(value),
        })
    }

    pub fn value(&self) -> f64 {
        self.value
    }

    /// Whether the sum has no uncertainty.
    pub fn is_exact(&self) -> bool {
        self.variance == 0.0 && !self.unknown
    }

    /// Returns the sum without `part`, which must be one of the independent estimates in it.
    pub fn without(&self, part: &Self) -> Self {
        Self {
            value: self.value - part.value,
            variance: (self.variance - part.variance).max(0.0),
            satterthwaite: (self.satterthwaite - part.satterthwaite).max(0.0),
            third: self.third - part.third,
            lopsided: (self.lopsided - part.lopsided).max(0.0),
            sampled: self.sampled,
            unknown: self.unknown,
        }
    }

    /// Returns the fraction a/(a + b) where a is this sum and b is `rest`. The two must be
    /// independent. `None` if a + b is not above 0. To first order (the delta method), the variance
    /// of the fraction is (b² V(a) + a² V(b)) / (a + b)⁴.
    pub fn part_with(&self, rest: &Self) -> Option<Self> {
        let whole = self.value + rest.value;
        if whole.is_nan() || whole <= 0.0 {
            return None;
        }
        let (of_self, of_rest) =
            ((rest.value / whole / whole).powi(2), (self.value / whole / whole).powi(2));
        Some(Self {
            value: self.value / whole,
            variance: of_self * self.variance + of_rest * rest.variance,
            third: (rest.value / whole / whole).powi(3) * self.third
                - (self.value / whole / whole).powi(3) * rest.third,
            satterthwaite: of_self * of_self * self.satterthwaite
                + of_rest * of_rest * rest.satterthwaite,
            unknown: self.unknown || rest.unknown,
            ..Self::default()
        })
    }

    /// Adds another independent sum.
    pub fn add(&mut self, other: &Self) {
        self.value += other.value;
        self.third += other.third;
        self.doubt(other);
    }

    /// Subtracts another sum. The variance of a difference of independent sums is the sum of their
    /// variances.
    pub fn subtract(&mut self, other: &Self) {
        self.value -= other.value;
        self.third -= other.third;
        self.doubt(other);
    }

    fn doubt(&mut self, other: &Self) {
        self.variance += other.variance;
        self.satterthwaite += other.satterthwaite;
        self.lopsided += other.lopsided;
        self.sampled |= other.sampled;
        self.unknown |= other.unknown;
    }

    /// Marks the sum as an estimate for hits that were not timed.
    #[cfg(test)]
    pub(crate) fn of_sample(self) -> Self {
        Self { sampled: true, ..self }
    }

    pub(crate) fn is_sampled(&self) -> bool {
        self.sampled
    }
}
