//! Computes how the rate of a counter during calls changed over the recording. The rate in a part
//! of the recording is computed from the calls that began in it: the sum of their values, divided
//! by the sum of their durations.
//!
//! Outer calls and the calls inside of them are added to both sums. Both sums are over the same
//! calls, so the rate of a part is the mean of the calls' rates, weighted by durations. It does not
//! exceed the highest rate of a call.

use super::drift::FIRST_WIDTH;

/// Sums of a counter's values and of the durations of the same calls, for each part of the
/// recording.
#[derive(Clone, Debug)]
pub struct Rates {
    /// The largest number of parts.
    most: usize,
    width: u64,
    /// The sum of the values and the sum of the durations in ticks, for each part up to the last
    /// one with calls.
    sums: Vec<[f64; 2]>,
}

impl Rates {
    pub(super) fn new(parts: usize) -> Self {
        Self { most: parts.max(1), width: FIRST_WIDTH, sums: Vec::new() }
    }

    /// Adds `calls` calls that began `at` ticks after the first call of the recording, each with
    /// this value and duration.
    pub(super) fn add(&mut self, at: u64, value: u64, ticks: u64, calls: u64) {
        while at / self.width >= self.most as u64 {
            self.double();
        }
        let part = (at / self.width) as usize;
        self.add_to(part, [value, ticks].map(|one| one as f64 * calls as f64));
    }

    fn add_to(&mut self, part: usize, sums: [f64; 2]) {
        if self.sums.len() <= part {
            self.sums.resize(part + 1, [0.0; 2]);
        }
        let known = &mut self.sums[part];
        *known = [known[0] + sums[0], known[1] + sums[1]];
    }

    fn double(&mut self) {
        self.width = self.width.saturating_mul(2);
        for (part, sums) in std::mem::take(&mut self.sums).into_iter().enumerate() {
            self.add_to(part / 2, sums);
        }
    }

    pub(super) fn merge(&mut self, mut other: Self) {
        while self.width < other.width {
            self.double();
        }
        while other.width < self.width {
            other.double();
        }
        other.sums.into_iter().enumerate().for_each(|(part, sums)| self.add_to(part, sums));
    }

    /// Returns the width of a part in ticks.
    pub fn width(&self) -> u64 {
        self.width
    }

    /// Returns the counter's value per tick for each part up to the last one with calls. `None` for
    /// a part without calls, or whose calls took no time.
    pub fn per_tick(&self) -> Vec<Option<f64>> {
        let rate = |[value, ticks]: &[f64; 2]| (*ticks > 0.0).then(|| value / ticks);
        self.sums.iter().map(rate).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_divided_by_durations() {
        let mut rates = Rates::new(4);
        rates.add(0, 10, 100, 1);
        rates.add(5, 30, 100, 1);
        rates.add(2 * FIRST_WIDTH, 7, 70, 3);
        rates.add(3 * FIRST_WIDTH, 1, 0, 1);
        assert_eq!(rates.per_tick(), [Some(0.2), None, Some(0.1), None]);
    }

    /// If the recording is too long for the largest number of parts, neighbouring parts are joined
    /// in pairs.
    #[test]
    fn parts_are_joined() {
        let [mut early, mut late] = [Rates::new(2), Rates::new(2)];
        early.add(0, 10, 100, 1);
        early.add(FIRST_WIDTH, 50, 100, 1);
        late.add(3 * FIRST_WIDTH, 4, 8, 1);
        assert_eq!(late.width(), 2 * FIRST_WIDTH);
        let mut reversed = late.clone();
        reversed.merge(early.clone());
        early.merge(late);
        assert_eq!(early.per_tick(), [Some(0.3), Some(0.5)]);
        assert_eq!(reversed.per_tick(), early.per_tick());
    }
}
