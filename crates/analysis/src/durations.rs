//! Stores many durations compactly, and computes exact quantiles of them.

/// Durations in ticks. Each takes four bytes; the few that are longer than 2³²−1 ticks are stored
/// separately.
#[derive(Clone, Debug, Default)]
pub struct Durations {
    short: Vec<u32>,
    long: Vec<u64>,
}

impl Durations {
    /// Adds a duration.
    #[inline]
    pub fn push(&mut self, ticks: u64) {
        match u32::try_from(ticks) {
            Ok(ticks) => self.short.push(ticks),
            Err(_) => self.long.push(ticks),
        }
    }

    /// The number of durations.
    pub fn len(&self) -> usize {
        self.short.len() + self.long.len()
    }

    /// Whether there are no durations.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds the durations of `other`.
    pub fn append(&mut self, mut other: Self) {
        if self.short.len() < other.short.len() {
            std::mem::swap(self, &mut other);
        }
        self.short.extend_from_slice(&other.short);
        self.long.append(&mut other.long);
    }

    /// The value below which the part `q` (0 to 1) of all durations lies, interpolated linearly
    /// between the closest ranks, as numpy's `percentile` does by default. `None` if there is no
    /// duration. Reorders the durations; takes linear time.
    pub fn quantile(&mut self, q: f64) -> Option<f64> {
        let last = self.len().checked_sub(1)?;
        let place = last as f64 * q.clamp(0.0, 1.0);
        let rank = (place.floor() as usize).min(last);
        let low = self.rank(rank)?;
        let part = place - rank as f64;
        if part == 0.0 || rank == last {
            return Some(low as f64);
        }
        let high = self.rank_above(rank)?;
        let step = (high - low) as f64;
        // Both forms are mathematically equal; numpy uses the one that starts from the nearer end.
        Some(if part >= 0.5 { high as f64 - step * (1.0 - part) } else { low as f64 + step * part })
    }

    /// The `rank`-th smallest duration, counted from 0.
    fn rank(&mut self, rank: usize) -> Option<u64> {
        match rank.checked_sub(self.short.len()) {
            None => Some((*self.short.select_nth_unstable(rank).1).into()),
            Some(rank) if rank < self.long.len() => Some(*self.long.select_nth_unstable(rank).1),
            Some(_) => None,
        }
    }

    /// The duration after the `rank`-th. The call of `rank` before this one has partitioned the
    /// values.
    fn rank_above(&mut self, rank: usize) -> Option<u64> {
        let next = rank + 1;
        match next.checked_sub(self.short.len()) {
            None => self.short[next..].iter().min().map(|v| (*v).into()),
            Some(0) => self.long.iter().min().copied(),
            Some(next) => self.long.get(next..)?.iter().min().copied(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[u64]) -> Durations {
        let mut all = Durations::default();
        values.iter().for_each(|v| all.push(*v));
        all
    }

    #[test]
    fn quantiles_by_hand() {
        assert_eq!(of(&[]).quantile(0.5), None);
        assert_eq!(of(&[7]).quantile(0.99), Some(7.0));
        assert_eq!(of(&[30, 10]).quantile(0.5), Some(20.0));
        // Ranks are 0..=4; 0.99 · 4 = 3.96, which is 0.96 of the way from 40 to 1000: 961.6.
        assert_eq!(
            of(&[1000, 10, 40, 20, 30]).quantile(0.99),
            Some(1000.0 - 960.0 * (1.0 - 3.96 + 3.0))
        );
        assert_eq!(of(&[1000, 10, 40, 20, 30]).quantile(0.0), Some(10.0));
        assert_eq!(of(&[1000, 10, 40, 20, 30]).quantile(1.0), Some(1000.0));
    }

    #[test]
    fn quantiles_between_short_and_long_durations() {
        let big = 1u64 << 40;
        let mut all = of(&[big, 3, big + 8, 1]);
        // The median is halfway between rank 1 (3) and rank 2 (2^40).
        assert_eq!(all.quantile(0.5), Some((1u64 << 39) as f64 + 1.5));
        assert_eq!(all.quantile(1.0), Some((big + 8) as f64));
        // 0.75 · 3 = 2.25, a quarter of the way between the two long durations.
        assert_eq!(all.quantile(0.75), Some(big as f64 + 2.0));
    }

    #[test]
    fn appended_is_the_same_as_pushed() {
        let mut a = of(&[5, 1 << 33, 9]);
        a.append(of(&[7, 1, 1 << 35, 2]));
        assert_eq!(a.len(), 7);
        assert_eq!(a.quantile(0.5), Some(7.0));
    }
}
