//! Random numbers for drawing calls (choosing the calls that are timed): a generator for one
//! thread, and geometrically distributed gaps between drawn calls.
//!
//! Calls that are drawn independently with the probability 1/p have gaps with the distribution
//! P(gap > k) = (1 − 1/p)^k for k = 0, 1, …. Such a gap is ⌊c·E⌋ + 1, where E is exponentially
//! distributed with mean 1 and c = −1 / ln(1 − 1/p), because P(c·E ≥ k) = e^(−k/c). Drawing a gap
//! once is cheaper than a random decision for each call, and has the same effect: each call is
//! drawn with the same probability. If every p-th call were drawn, a program whose calls repeat
//! with the same period would bias the estimates. With random gaps, it does not.

/// Wang Yi's wyrand. It has 64 bits of state, and needs one multiplication for each random number.
#[derive(Clone, Copy, Debug)]
pub struct Random(u64);

impl Random {
    /// Different seeds give unrelated sequences, even if they differ only a little.
    pub fn new(seed: u64) -> Self {
        // This is the finalizer of splitmix64. Seeds are often close to each other, and it mixes
        // their bits.
        let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Self(z ^ (z >> 31))
    }

    #[inline(always)]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0xa076_1d64_78bd_642f);
        let product = u128::from(self.0) * u128::from(self.0 ^ 0xe703_7ed1_a0b4_28db);
        (product >> 64) as u64 ^ product as u64
    }

    /// Returns true with the probability 1 / `period`; a period of 0 is treated as 1.
    #[inline(always)]
    pub fn one_in(&mut self, period: u32) -> bool {
        // The upper 64 bits of the product are an integer from 0 to period − 1, with nearly equal
        // probabilities.
        period <= 1 || (u128::from(self.next()) * u128::from(period)) >> 64 == 0
    }

    /// Returns the number of calls until the next drawn one, at least 1, if each call is drawn with
    /// the probability 1 / `period`.
    #[inline(always)]
    pub fn gap(&mut self, period: u32) -> u64 {
        if period <= 1 {
            return 1;
        }
        // The product is below 45 × 2^32, so it fits into a `u64`.
        1 + (self.exponential() * scale(period)) as u64
    }

    /// Returns an exponentially distributed number with mean 1: −ln(u / 2^64) for a random u > 0.
    #[inline(always)]
    fn exponential(&mut self) -> f64 {
        let bits = self.next() | 1;
        let zeros = bits.leading_zeros();
        // u = 2^(63 − zeros) · m, with m in [1, 2)
        let top = bits << zeros;
        let index = (top >> 56) as usize & (PIECES - 1);
        let m = (top >> 11) as f64 * (1.0 / (1u64 << 52) as f64);
        // m = middle · (1 + r), |r| < 1/256; the error of the series for ln(1 + r) is below 10^-10.
        let r = m * INVERSE[index] - 1.0;
        let ln_m = LN[index] + r * (1.0 - r * (0.5 - r * (1.0 / 3.0)));
        f64::from(zeros + 1) * std::f64::consts::LN_2 - ln_m
    }
}

/// The number of equal pieces of the interval [1, 2). [`LN`] contains the logarithm of the middle
/// of each piece, and [`INVERSE`] the reciprocal of the middle.
const PIECES: usize = 128;
const INVERSE: [f64; PIECES] = table(true);
const LN: [f64; PIECES] = table(false);

const fn table(inverse: bool) -> [f64; PIECES] {
    let mut table = [0.0; PIECES];
    let mut i = 0;
    while i < PIECES {
        let middle = 1.0 + (i as f64 + 0.5) / PIECES as f64;
        table[i] = if inverse { 1.0 / middle } else { ln(middle) };
        i += 1;
    }
    table
}

/// Returns the natural logarithm, for numbers from 1/64 to 64.
const fn ln(x: f64) -> f64 {
    // ln x = 2 artanh s = 2 (s + s³/3 + s⁵/5 + …), s = (x − 1) / (x + 1)
    let s = (x - 1.0) / (x + 1.0);
    let square = s * s;
    let (mut power, mut sum, mut odd) = (s, 0.0, 1.0);
    while odd < 2001.0 {
        sum += power / odd;
        power *= square;
        odd += 2.0;
    }
    2.0 * sum
}

const SMALL: usize = 64;
const SCALE: [f64; SMALL] = {
    let mut table = [0.0; SMALL];
    let mut p = 2;
    while p < SMALL {
        table[p] = -1.0 / ln(1.0 - 1.0 / p as f64);
        p += 1;
    }
    table
};

/// Returns −1 / ln(1 − 1/p) for a period of at least 2.
#[inline(always)]
fn scale(period: u32) -> f64 {
    match SCALE.get(period as usize) {
        Some(scale) => *scale,
        // These are the first terms of the series for −1 / ln(1 − 1/p). The next term is below
        // 10^-6 of the result.
        None => f64::from(period) - 0.5 - 1.0 / (12.0 * f64::from(period)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_are_those_of_the_definition() {
        for p in [2u32, 3, 7, 63, 64, 65, 1_000, 1 << 20] {
            let exact = -1.0 / (-1.0 / f64::from(p)).ln_1p();
            let error = (scale(p) / exact - 1.0).abs();
            assert!(error < 1e-6, "period {p}: {} instead of {exact}", scale(p));
        }
    }

    /// Computes the chi-squared statistic of `gaps` against a geometric distribution, in about
    /// `cells` equally likely cells. Cells with equal upper bounds are merged. Returns the
    /// statistic and the number of cells.
    fn chi_squared(gaps: &[u64], period: u32, cells: usize) -> (f64, usize) {
        let q = 1.0 - 1.0 / f64::from(period);
        // The upper bounds of the cells. Gaps up to `bound` have the probability 1 − q^bound.
        let mut bounds: Vec<u64> = (1..cells)
            .map(|i| ((1.0 - i as f64 / cells as f64).ln() / q.ln()).ceil().max(1.0) as u64)
            .collect();
        bounds.dedup();
        let below = |bound: u64| 1.0 - q.powf(bound as f64);
        let mut counts = vec![0u64; bounds.len() + 1];
        gaps.iter().for_each(|gap| counts[bounds.partition_point(|bound| bound < gap)] += 1);
        let mut statistic = 0.0;
        for (i, count) in counts.iter().enumerate() {
            let low = if i == 0 { 0.0 } else { below(bounds[i - 1]) };
            let high = bounds.get(i).map_or(1.0, |bound| below(*bound));
            let expected = (high - low) * gaps.len() as f64;
            assert!(expected > 5.0);
            statistic += (*count as f64 - expected).powi(2) / expected;
        }
        (statistic, counts.len())
    }

    /// Returns the value of `scipy.stats.chi2.isf(1e-6, degrees)`.
    fn critical(degrees: usize) -> f64 {
        const VALUES: [f64; 19] = [
            23.9281, 27.6310, 30.6648, 33.3768, 35.8882, 38.2583, 40.5218, 42.7009, 44.8109,
            46.8630, 48.8656, 50.8253, 52.7471, 54.6353, 56.4934, 58.3244, 60.1306, 61.9142,
            63.6771,
        ];
        VALUES[degrees - 1]
    }

    #[test]
    fn gaps_are_geometric() {
        for (seed, period) in [(1, 2), (2, 3), (3, 7), (4, 63), (5, 64), (6, 1_000), (7, 1 << 20)] {
            let mut random = Random::new(seed);
            let gaps: Vec<u64> = (0..200_000).map(|_| random.gap(period)).collect();
            let wanted = match period {
                2 => 4,
                3 => 6,
                7 => 10,
                _ => 20,
            };
            let (statistic, cells) = chi_squared(&gaps, period, wanted);
            let critical = critical(cells - 1);
            assert!(statistic < critical, "period {period}, {cells} cells: {statistic}");
            // The mean is the period, within five standard errors.
            let mean = gaps.iter().sum::<u64>() as f64 / gaps.len() as f64;
            let error = f64::from(period) / (gaps.len() as f64).sqrt();
            assert!((mean - f64::from(period)).abs() < 5.0 * error, "period {period}: mean {mean}");
        }
    }

    /// A gap does not depend on the gap before it: short and long gaps follow each other as often
    /// as the product of their probabilities says.
    #[test]
    fn gaps_are_independent() {
        let mut random = Random::new(11);
        let gaps: Vec<bool> = (0..200_001).map(|_| random.gap(100) <= 69).collect();
        // P(gap ≤ 69) = 1 − 0.99^69
        let short = 1.0 - 0.99f64.powi(69);
        let mut statistic = 0.0;
        for (first, second) in [(false, false), (false, true), (true, false), (true, true)] {
            let is_pair = |pair: &&[bool]| pair[0] == first && pair[1] == second;
            // Every second pair is used, so that pairs share no gap.
            let pairs = gaps.windows(2).step_by(2).filter(is_pair).count() as f64;
            let part = |is_short: bool| if is_short { short } else { 1.0 - short };
            let expected = 100_000.0 * part(first) * part(second);
            statistic += (pairs - expected).powi(2) / expected;
        }
        assert!(statistic < critical(3), "{statistic}");
    }

    #[test]
    fn one_in_so_many_is_drawn() {
        for (seed, period) in [(1, 1), (2, 2), (3, 5), (4, 1_000)] {
            let mut random = Random::new(seed);
            let drawn = (0..1_000_000).filter(|_| random.one_in(period)).count() as f64;
            let p = 1.0 / f64::from(period);
            let deviation = (1_000_000.0 * p * (1.0 - p)).sqrt();
            assert!((drawn - 1_000_000.0 * p).abs() <= 5.0 * deviation, "{period}: {drawn}");
        }
        assert_eq!(Random::new(1).gap(0), 1);
    }
}
