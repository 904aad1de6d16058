//! Collects the sums of integers from which the correlation of two variables can be computed.

use super::wide::{Sum, Wide};

/// Sums over the calls in which two variables both have a value. The sums do not depend on the
/// order of the calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moments {
    pub calls: u64,
    /// Σx.
    pub x: Sum,
    /// Σy.
    pub y: Sum,
    /// Σx².
    pub xx: Sum,
    /// Σxy.
    pub xy: Sum,
    /// Σy².
    pub yy: Sum,
}

impl Moments {
    /// Adds the two values of a call.
    #[inline]
    pub fn add(&mut self, x: u64, y: u64) {
        let (x, y) = (u128::from(x), u128::from(y));
        self.calls = self.calls.saturating_add(1);
        self.x.add(Some(x));
        self.y.add(Some(y));
        // A product of two 64-bit numbers fits into 128 bits.
        self.xx.add(Some(x * x));
        self.xy.add(Some(x * y));
        self.yy.add(Some(y * y));
    }

    /// Adds the sums of another set of calls.
    pub fn merge(&mut self, other: &Self) {
        self.calls = self.calls.saturating_add(other.calls);
        self.x.merge(other.x);
        self.y.merge(other.y);
        self.xx.merge(other.xx);
        self.xy.merge(other.xy);
        self.yy.merge(other.yy);
    }

    /// Returns Pearson's correlation, with an error of some 5·10⁻¹⁶. The differences nΣxy − ΣxΣy,
    /// nΣx² − (Σx)² and nΣy² − (Σy)² are computed exactly, and each is rounded once. `None` if a
    /// variable is constant, or if a sum has more than 38 digits.
    pub fn pearson(&self) -> Option<f64> {
        let n = u128::from(self.calls);
        let (x, y) = (self.x.get()?, self.y.get()?);
        let spread = |squares: u128, sum: u128| {
            // By the inequality of Cauchy and Schwarz, `all` is never less than `mean`.
            let (all, mean) = (Wide::product(n, squares), Wide::product(sum, sum));
            (all > mean).then(|| all.less(mean).to_f64())
        };
        let (of_x, of_y) = (spread(self.xx.get()?, x)?, spread(self.yy.get()?, y)?);
        let (all, means) = (Wide::product(n, self.xy.get()?), Wide::product(x, y));
        let together = match all >= means {
            true => all.less(means).to_f64(),
            false => -means.less(all).to_f64(),
        };
        Some((together / (of_x.sqrt() * of_y.sqrt())).clamp(-1.0, 1.0))
    }
}
