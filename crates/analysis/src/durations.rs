//! Stores many durations compactly, and computes exact quantiles of them.
//!
//! The durations are stored in pieces. To grow, a list gets one more piece. To join two lists, the
//! pieces are moved. So neither growing nor joining needs a second copy of all durations. Quantiles
//! of many durations are found by counting in two passes. The first pass counts the values of the
//! upper 16 bits. The second pass counts the values of the lower 16 bits, only among durations
//! whose upper bits are those of a wanted quantile. Two passes suffice for all quantiles together.

const PIECE: usize = 1 << 16;
/// With fewer durations than this, a copy of them is partitioned, which takes less time than
/// counting.
const FEW: usize = 1 << 17;
/// Number of values that half of a duration's 32 bits can have.
const HALF: usize = 1 << 16;

/// Durations in ticks. A duration takes four bytes. Usually, at most an eighth of the memory is not
/// used. The few durations longer than 2³²−1 ticks are stored separately.
#[derive(Clone, Debug, Default)]
pub struct Durations {
    /// Pieces to which no more durations are added.
    full: Vec<Vec<u32>>,
    last: Vec<u32>,
    in_full: usize,
    long: Vec<u64>,
}

impl Durations {
    /// Adds a duration.
    #[inline]
    pub fn push(&mut self, ticks: u64) {
        match u32::try_from(ticks) {
            Ok(ticks) => {
                if self.last.len() == self.last.capacity() {
                    self.begin_piece();
                }
                self.last.push(ticks);
            }
            Err(_) => self.long.push(ticks),
        }
    }

    #[cold]
    fn begin_piece(&mut self) {
        let full = std::mem::take(&mut self.last);
        if !full.is_empty() {
            self.in_full += full.len();
            self.full.push(full);
        }
        self.last.reserve_exact((self.in_full / 8).clamp(16, PIECE));
    }

    pub fn len(&self) -> usize {
        self.short() + self.long.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn short(&self) -> usize {
        self.in_full + self.last.len()
    }

    fn pieces(&self) -> impl Iterator<Item = &[u32]> {
        self.full.iter().chain([&self.last]).map(Vec::as_slice)
    }

    /// Adds the durations of `other`.
    pub fn append(&mut self, mut other: Self) {
        // The longer one of the two last pieces remains the last piece.
        if self.last.len() < other.last.len() {
            std::mem::swap(&mut self.last, &mut other.last);
        }
        self.in_full += other.short();
        self.full.append(&mut other.full);
        if !other.last.is_empty() {
            other.last.shrink_to_fit();
            self.full.push(other.last);
        }
        self.long.append(&mut other.long);
    }

    /// Returns the quantile `q` (0 to 1) of all durations, interpolated linearly between the
    /// closest ranks, as numpy's `percentile` does by default. `None` without durations. Takes
    /// linear time.
    pub fn quantile(&self, q: f64) -> Option<f64> {
        let [value] = self.quantiles([q]);
        value
    }

    /// Returns several quantiles, in little more time than a single quantile takes.
    pub fn quantiles<const N: usize>(&self, parts: [f64; N]) -> [Option<f64>; N] {
        let Some(last) = self.len().checked_sub(1) else { return [None; N] };
        let places = parts.map(|q| last as f64 * q.clamp(0.0, 1.0));
        let rank_of = |place: f64| (place.floor() as usize).min(last);
        let ranks = places.iter().flat_map(|place| {
            let rank = rank_of(*place);
            [rank, (rank + 1).min(last)]
        });
        let values = self.of_ranks(&ranks.collect::<Vec<usize>>());
        let mut pairs = values.chunks_exact(2);
        places.map(|place| {
            let (low, high) = pairs.next().map(|pair| (pair[0], pair[1]))?;
            let part = place - rank_of(place) as f64;
            let step = (high - low) as f64;
            // The last two expressions below are mathematically equal. As in numpy, the expression
            // used is the one that starts from the nearer of `low` and `high`.
            let from_high = part >= 0.5;
            Some(match from_high {
                _ if part == 0.0 || step == 0.0 => low as f64,
                true => high as f64 - step * (1.0 - part),
                false => low as f64 + step * part,
            })
        })
    }

    /// Returns the durations of these ranks, counted from 0 for the smallest duration.
    fn of_ranks(&self, ranks: &[usize]) -> Vec<u64> {
        let all = self.short();
        let is_short = |rank: &&usize| **rank < all;
        let of_short: Vec<usize> = ranks.iter().filter(is_short).copied().collect();
        let short = match all {
            0..FEW => self.partition(&of_short),
            _ => self.count(&of_short),
        };
        let mut short = short.into_iter();
        let mut long: Vec<u64> = Vec::new();
        if of_short.len() < ranks.len() {
            long.clone_from(&self.long);
            long.sort_unstable();
        }
        let of_rank = |rank: &usize| match rank.checked_sub(all) {
            None => short.next().map_or(0, u64::from),
            Some(rank) => long.get(rank).copied().unwrap_or(0),
        };
        ranks.iter().map(of_rank).collect()
    }

    fn partition(&self, ranks: &[usize]) -> Vec<u32> {
        if ranks.is_empty() {
            return Vec::new();
        }
        let mut values: Vec<u32> = Vec::with_capacity(self.short());
        self.pieces().for_each(|piece| values.extend_from_slice(piece));
        ranks.iter().map(|rank| *values.select_nth_unstable(*rank).1).collect()
    }

    fn count(&self, ranks: &[usize]) -> Vec<u32> {
        let mut upper = vec![0u64; HALF];
        for piece in self.pieces() {
            piece.iter().for_each(|value| upper[(*value >> 16) as usize] += 1);
        }
        // For each rank, the upper half of its value's bits, and its rank among the values with
        // that half.
        let found: Vec<(u32, u64)> = ranks.iter().map(|rank| place(&upper, *rank as u64)).collect();
        let mut halves: Vec<u32> = found.iter().map(|(half, _)| *half).collect();
        halves.sort_unstable();
        halves.dedup();
        let mut lower = vec![vec![0u64; HALF]; halves.len()];
        for piece in self.pieces() {
            for value in piece {
                let half = halves.iter().zip(&mut lower).find(|(half, _)| **half == *value >> 16);
                if let Some((_, lower)) = half {
                    lower[(*value & 0xffff) as usize] += 1;
                }
            }
        }
        let of_rank = |(half, rank): &(u32, u64)| {
            let at = halves.binary_search(half).unwrap_or(0);
            let low = lower.get(at).map_or(0, |lower| place(lower, *rank).0);
            *half << 16 | low
        };
        found.iter().map(of_rank).collect()
    }
}

/// Returns the index at which the value of this rank is counted, and its rank among the values that
/// are counted there.
fn place(counts: &[u64], rank: u64) -> (u32, u64) {
    let mut below = 0;
    for (place, count) in (0..).zip(counts) {
        if rank < below + count {
            return (place, rank - below);
        }
        below += count;
    }
    (0, 0)
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
        // 0.99 · 4 = 3.96, so the quantile is 0.96 of the way from 40 to 1000.
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
        let all = of(&[big, 3, big + 8, 1]);
        // The median is halfway between rank 1 (3) and rank 2 (2^40).
        assert_eq!(all.quantile(0.5), Some((1u64 << 39) as f64 + 1.5));
        assert_eq!(all.quantile(1.0), Some((big + 8) as f64));
        // 0.75 · 3 = 2.25: a quarter of the way between the two long durations.
        assert_eq!(all.quantile(0.75), Some(big as f64 + 2.0));
    }

    #[test]
    fn appended_is_the_same_as_pushed() {
        let mut a = of(&[5, 1 << 33, 9]);
        a.append(of(&[7, 1, 1 << 35, 2]));
        assert_eq!(a.len(), 7);
        assert_eq!(a.quantile(0.5), Some(7.0));
    }

    #[test]
    fn many_are_counted() {
        // There are values with equal upper halves and values with equal lower halves.
        let value = |i: u64| [i * 7_919 % 50_000, 70_000 + i % 3, i << 12, 1 << 40][i as usize % 4];
        for calls in [FEW as u64 - 1, 3 * FEW as u64 + 5] {
            let (mut a, mut b) = (Durations::default(), Durations::default());
            let mut sorted: Vec<u64> = (0..calls).map(value).collect();
            for (i, value) in sorted.iter().enumerate() {
                if i % 3 == 0 { a.push(*value) } else { b.push(*value) }
            }
            a.append(b);
            sorted.sort_unstable();
            let last = sorted.len() - 1;
            for of in [0, 1, last / 3, last / 2, last - last / 4, last - 1, last] {
                assert_eq!(a.of_ranks(&[of, last]), [sorted[of], sorted[last]], "{of} of {calls}");
            }
            assert_eq!(a.len(), sorted.len());
        }
    }
}
