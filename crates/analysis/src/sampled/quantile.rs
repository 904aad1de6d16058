//! Computes quantiles of values with weights.

/// Values of timed calls, each with the number of calls that it represents.
#[derive(Clone, Debug, Default)]
pub struct Weighted {
    values: Vec<(u64, u64)>,
    sorted: bool,
}

impl Weighted {
    /// Adds a value.
    pub fn push(&mut self, value: u64, weight: u64) {
        self.values.push((value, weight));
        self.sorted = false;
    }

    /// Adds the values of `other`.
    pub fn append(&mut self, mut other: Self) {
        self.values.append(&mut other.values);
        self.sorted = false;
    }

    /// Adds up the weights of the sorted values, and returns the first value at which this sum is
    /// at least the part `q` of all weights. This is numpy's `quantile(…, weights=…,
    /// method="inverted_cdf")`. `None` without values.
    pub fn quantile(&mut self, q: f64) -> Option<u64> {
        if !self.sorted {
            self.values.sort_unstable();
            self.sorted = true;
        }
        let all: f64 = self.values.iter().map(|(_, weight)| *weight as f64).sum();
        let mut so_far = 0.0;
        let reaches = |(_, weight): &&(u64, u64)| {
            so_far += *weight as f64;
            // The sum is divided before the comparison, as in numpy, so that rounding errors are
            // the same.
            so_far / all >= q
        };
        self.values.iter().find(reaches).or(self.values.last()).map(|(value, _)| *value)
    }

    /// Replaces each weight by what `weight` returns for it.
    pub(super) fn reweigh(&mut self, weight: impl Fn(u64) -> u64) {
        self.values.iter_mut().for_each(|(_, of)| *of = weight(*of));
    }

    /// Returns the values with their weights, in no particular order.
    pub(super) fn values(&self) -> &[(u64, u64)] {
        &self.values
    }

    /// Returns the effective number of values, (Σw)² / Σw²: this many values of equal weight would
    /// be as informative. `None` without values.
    pub fn effective(&self) -> Option<f64> {
        let weights = || self.values.iter().map(|(_, weight)| *weight as f64);
        let (sum, squares) = (weights().sum::<f64>(), weights().map(|w| w * w).sum::<f64>());
        (squares > 0.0).then(|| sum * sum / squares)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values 10, 20, 30 have the weights 1, 6, 3.
    #[test]
    fn by_hand() {
        let mut all = Weighted::default();
        assert_eq!((all.quantile(0.5), all.effective()), (None, None));
        [(30, 3), (10, 1), (20, 6)].iter().for_each(|(value, weight)| all.push(*value, *weight));
        let found = [0.0, 0.1, 0.11, 0.5, 0.7, 0.71, 1.0].map(|q| all.quantile(q).expect("values"));
        assert_eq!(found, [10, 10, 20, 20, 20, 30, 30]);
        assert_eq!(all.effective(), Some(100.0 / 46.0));
    }
}
