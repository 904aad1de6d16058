//! Collects how durations changed over the recording. The recording is divided into parts, and the
//! durations of the calls that began in a part are counted in bins.

use std::collections::HashMap;

use super::bins::{Bins, middle};

/// The initial width of a part of the recording, in ticks. It is doubled whenever there would be
/// too many parts.
pub(super) const FIRST_WIDTH: u64 = 1 << 10;

/// How many calls began in each part of the recording, by bin of their durations. All parts are
/// equally wide.
#[derive(Clone, Debug)]
pub struct Drift {
    /// The largest number of parts.
    most: u64,
    width: u64,
    counts: HashMap<(u64, u16), u64>,
}

impl Default for Drift {
    fn default() -> Self {
        Self::new(1)
    }
}

/// The durations of the calls that began in one part of the recording, in ns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Part {
    /// The 10th percentile of the durations, as the middle of its bin.
    pub p10: f64,
    /// The median of the durations, as the middle of its bin.
    pub p50: f64,
    /// The 90th percentile of the durations, as the middle of its bin.
    pub p90: f64,
    /// The duration of the longest call, as the middle of its bin.
    pub longest: f64,
}

impl Drift {
    pub(super) fn new(parts: usize) -> Self {
        Self { most: parts.max(1) as u64, width: FIRST_WIDTH, counts: HashMap::new() }
    }

    /// Adds `count` calls that began `at` ticks after the first call of the recording, with
    /// durations in `bin`.
    pub(super) fn add(&mut self, at: u64, bin: u16, count: u64) {
        while at / self.width >= self.most {
            self.double();
        }
        *self.counts.entry((at / self.width, bin)).or_default() += count;
    }

    fn double(&mut self) {
        self.width = self.width.saturating_mul(2);
        let old = std::mem::take(&mut self.counts);
        for ((part, bin), count) in old {
            *self.counts.entry((part / 2, bin)).or_default() += count;
        }
    }

    pub(super) fn merge(&mut self, mut other: Self) {
        while self.width < other.width {
            self.double();
        }
        while other.width < self.width {
            other.double();
        }
        for (place, count) in other.counts {
            *self.counts.entry(place).or_default() += count;
        }
    }

    /// Returns the width of a part in ticks.
    pub fn width(&self) -> u64 {
        self.width
    }

    /// Returns the parts up to the last one with calls. `None` stands for a part without calls.
    pub fn parts(&self) -> Vec<Option<Part>> {
        let last = self.counts.keys().map(|(part, _)| *part).max();
        let mut bins = vec![Bins::default(); last.map_or(0, |last| last as usize + 1)];
        for ((part, bin), count) in &self.counts {
            bins[*part as usize].add(*bin, *count);
        }
        let part = |bins: &Bins| {
            let (first, counts) = bins.counts()?;
            Some(Part {
                p10: bins.quantile(0.1)?,
                p50: bins.quantile(0.5)?,
                p90: bins.quantile(0.9)?,
                longest: middle(first + counts.len() as u16 - 1),
            })
        };
        bins.iter().map(part).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::details::bins::bin;

    #[test]
    fn parts_do_not_depend_on_the_order() {
        let calls: Vec<(u64, u16)> =
            (0..10_000).map(|i| (i * 7_919, bin(100.0 + i as f64))).collect();
        let mut all = Drift::new(80);
        calls.iter().for_each(|(at, bin)| all.add(*at, *bin, 1));
        let (mut a, mut b) = (Drift::new(80), Drift::new(80));
        calls.iter().rev().step_by(2).for_each(|(at, bin)| a.add(*at, *bin, 1));
        calls.iter().rev().skip(1).step_by(2).for_each(|(at, bin)| b.add(*at, *bin, 1));
        a.merge(b);
        assert_eq!((a.width(), a.parts()), (all.width(), all.parts()));
        let parts = all.parts();
        assert!((41..=80).contains(&parts.len()), "{}", parts.len());
        let medians: Vec<f64> = parts.iter().map(|part| part.unwrap().p50).collect();
        assert!(medians.is_sorted() && medians[0] < medians[parts.len() - 1]);
    }
}
