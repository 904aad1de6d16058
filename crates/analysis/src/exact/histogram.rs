//! Counts values in log-linear histograms, which can be merged exactly. [`model::buckets`] defines
//! the buckets.

use model::buckets::{bucket_of, middle_of};

/// The number of values in each bucket.
#[derive(Clone, Debug, Default)]
pub struct Histogram {
    /// The bucket of the first element of `counts`.
    first: u16,
    counts: Vec<u64>,
}

impl Histogram {
    /// Counts a value.
    #[inline]
    pub fn add(&mut self, value: u64) {
        self.count(bucket_of(value), 1);
    }

    #[inline]
    pub fn count(&mut self, bucket: u16, values: u64) {
        let place = usize::from(bucket.wrapping_sub(self.first));
        if bucket < self.first || place >= self.counts.len() {
            self.cover(bucket);
        }
        let place = usize::from(bucket - self.first);
        self.counts[place] = self.counts[place].saturating_add(values);
    }

    #[cold]
    fn cover(&mut self, bucket: u16) {
        if self.counts.is_empty() {
            self.first = bucket;
        }
        if bucket < self.first {
            let more = usize::from(self.first - bucket);
            self.counts.splice(0..0, std::iter::repeat_n(0, more));
            self.first = bucket;
        }
        let needed = usize::from(bucket - self.first) + 1;
        if self.counts.len() < needed {
            self.counts.resize(needed, 0);
        }
    }

    /// Adds the values of another histogram.
    pub fn merge(&mut self, other: &Self) {
        other.buckets().for_each(|(bucket, values)| self.count(bucket, values));
    }

    /// Returns the buckets that are not empty, in ascending order, each with its number of values.
    pub fn buckets(&self) -> impl Iterator<Item = (u16, u64)> {
        let all = (self.first..).zip(self.counts.iter().copied());
        all.filter(|(_, values)| *values > 0)
    }

    pub fn values(&self) -> u64 {
        self.counts.iter().fold(0, |sum, values| sum.saturating_add(*values))
    }

    /// Returns the quantile `q` (0 to 1), with a relative error of at most 1/128. The exact
    /// quantile is the smallest value *v* such that at least the fraction `q` of all values is not
    /// larger than *v*. `None` without values.
    pub fn quantile(&self, q: f64) -> Option<u64> {
        let values = self.values();
        // Ranks are counted from 1. A float has 53 significant bits, so the rank can be inexact for
        // more than 2⁵³ values.
        let rank = ((q.clamp(0.0, 1.0) * values as f64).ceil() as u64).clamp(1, values.max(1));
        let mut below = 0u64;
        let mut of_rank = self.buckets().skip_while(|(_, values)| {
            below = below.saturating_add(*values);
            below < rank
        });
        of_rank.next().and_then(|(bucket, _)| middle_of(bucket))
    }
}

impl PartialEq for Histogram {
    fn eq(&self, other: &Self) -> bool {
        self.buckets().eq(other.buckets())
    }
}

impl Eq for Histogram {}
