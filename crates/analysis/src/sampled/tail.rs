//! Estimates, from the samples of all ops, how much rare slow calls add to the variance of an op's
//! values.
//!
//! An interrupt, another program on the same processor, or a page that is not in memory makes a
//! call slow, whatever its op is. There are few such calls. But they are up to a thousand times as
//! slow as others, so they may take a large part of an op's total time. A sample of some hundred
//! calls of one op usually contains none of them, and its variance does not show that they exist.
//! But the samples of all ops together show it. Such interruptions are assumed to be equally likely
//! at any time. So the number of an op's slow calls is proportional to the total time of the op.
//!
//! ```text
//!   op        q = weighted 99th percentile of its values     e = max(0, y − q)
//!   all ops   D = Σ w·e² / Σ w·y
//!   class h   s² + y̅·D in the place of s²
//! ```
//!
//! The additional variance makes intervals wider, and does not change estimates. If an op's own
//! sample contains rare slow calls, they are counted twice, in s² and in D. The op's interval is
//! then wider than necessary, by a factor of at most √2. A value that more than 1 % of the calls of
//! an op reach does not count as rare. So if an op has both many long and many short calls, its
//! long calls do not widen the intervals of other ops.
//!
//! The skewness that rare slow calls cause is left out on purpose. If an op's sample contains no
//! slow call, the skewness would move the lower end of the op's interval up to the estimate itself.
//! (Measured with calls of real programs: with the skewness, 50 to 80 of 100 intervals contained
//! the total; without it, 90 to 100 did.)
//!
//! Slow calls that are in no op's sample cannot be taken into account.

use super::quantile::Weighted;

/// Only values above this quantile of an op's values count as rare.
const RARE: f64 = 0.99;

/// D in the head of this file: the sum of the squared excesses (e²) of rare slow calls, divided by
/// the sum of all values. A tail has the unit of the values.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tail(f64);

impl Tail {
    /// Computes the tail from the values of each op, with their weights.
    pub fn of<'a>(ops: impl IntoIterator<Item = &'a mut Weighted>) -> Self {
        let (mut sum, mut squares) = (0.0, 0.0);
        for op in ops {
            let Some(most) = op.quantile(RARE) else { continue };
            for (value, weight) in op.values() {
                let (weight, more) = (*weight as f64, value.saturating_sub(most) as f64);
                sum += weight * *value as f64;
                squares += weight * more * more;
            }
        }
        Self(if sum > 0.0 { squares / sum } else { 0.0 })
    }

    /// Converts the tail to another unit of the values.
    pub(super) fn times(self, factor: f64) -> Self {
        Self(self.0 * factor)
    }

    /// Returns how much rare slow calls add to the variance of an op whose values have this mean.
    pub(super) fn variance(self, mean: f64) -> f64 {
        mean.max(0.0) * self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 199 calls took 10 and one took 1,010, all with weight 1. So q = 10, and e = 1,000 for one
    /// call. Σ y = 3,000, so D = 10⁶ / 3,000. Another op has 100 calls of 5 and 100 calls of 25,
    /// all with weight 2: Σ w·y = 6,000, and nothing is rare.
    #[test]
    fn on_paper() {
        let mut one = Weighted::default();
        (0..199).for_each(|_| one.push(10, 1));
        one.push(1_010, 1);
        let alone = Tail::of([&mut one]);
        assert!((alone.0 - 1e6 / 3e3).abs() < 1e-9, "{alone:?}");
        let mut two = Weighted::default();
        (0..100).for_each(|_| [5, 25].into_iter().for_each(|value| two.push(value, 2)));
        let both = Tail::of([&mut one, &mut two]);
        assert!((both.0 - 1e6 / 9e3).abs() < 1e-9, "{both:?}");
        assert_eq!(Tail::of([&mut two]), Tail::default());
        assert_eq!(Tail::of([]), Tail::default());
    }
}
