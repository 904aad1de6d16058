//! Estimates a difference and its interval from ranks, with the method of Hodges and Lehmann.
//!
//! The estimate is the median of the *Walsh averages*, (dᵢ + dⱼ) / 2 for all i ≤ j. The ends of the
//! interval are two of the sorted averages: one is as far from the start of the list as the other
//! is from its end. A quantile of Wilcoxon's signed-rank statistic gives this distance. If the
//! distribution of the differences is symmetric, the interval contains its centre with at least the
//! requested probability (Hollander, Wolfe and Chicken, Nonparametric Statistical Methods, 3.3).
//! This is the interval of R's `wilcox.test(conf.int = TRUE)`.

/// With more differences than this, the normal approximation replaces the exact quantile.
const EXACT: usize = 120;

/// An estimate with an interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// The Hodges-Lehmann estimate.
    pub estimate: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
}

impl Interval {
    pub fn half_width(&self) -> f64 {
        (self.high - self.low) / 2.0
    }

    /// Whether the whole interval is inside of ± `limit`.
    pub fn is_within(&self, limit: f64) -> bool {
        -limit <= self.low && self.high <= limit
    }
}

/// Returns the median of the Walsh averages. `None` without differences.
pub fn hodges_lehmann(differences: &[f64]) -> Option<f64> {
    median_of_sorted(&walsh(differences))
}

/// Returns the estimate and its interval with this confidence (0.95 for 95 %). `None` if there are
/// too few differences: 6 are needed for 95 %, and 5 for 90 %.
pub fn interval(differences: &[f64], confidence: f64) -> Option<Interval> {
    let averages = walsh(differences);
    let estimate = median_of_sorted(&averages)?;
    let rank = signed_rank_quantile((1.0 - confidence) / 2.0, differences.len());
    let below = rank.checked_sub(1)?;
    let above = averages.len().checked_sub(rank)?;
    Some(Interval { estimate, low: *averages.get(below)?, high: *averages.get(above)? })
}

/// Returns the quantile `p` of the sum of positive ranks of `n` differences, if each rank is
/// positive with probability 1/2.
pub fn signed_rank_quantile(p: f64, n: usize) -> usize {
    let most = n * (n + 1) / 2;
    if n > EXACT {
        let (mean, n) = (most as f64 / 2.0, n as f64);
        let deviation = (n * (n + 1.0) * (2.0 * n + 1.0) / 24.0).sqrt();
        return (mean + normal_quantile(p) * deviation).round().max(0.0) as usize;
    }
    // The probability of each sum. The loop takes one more rank into account in each step.
    let mut probabilities = vec![0.0; most + 1];
    probabilities[0] = 1.0;
    for rank in 1..=n {
        for sum in (0..=rank * (rank + 1) / 2).rev() {
            let without = probabilities[sum] / 2.0;
            let with = if sum >= rank { probabilities[sum - rank] / 2.0 } else { 0.0 };
            probabilities[sum] = without + with;
        }
    }
    let mut below = 0.0;
    probabilities
        .iter()
        .position(|probability| {
            below += probability;
            // As in R, the comparison allows for rounding errors, because `p` may have been
            // rounded.
            below >= p * (1.0 - 64.0 * f64::EPSILON)
        })
        .unwrap_or(most)
}

/// Approximates the normal quantile by Abramowitz and Stegun, 26.2.23, with an error below 4.5e-4.
fn normal_quantile(p: f64) -> f64 {
    let tail = p.min(1.0 - p).max(f64::MIN_POSITIVE);
    let t = (-2.0 * tail.ln()).sqrt();
    let numerator = 2.515_517 + t * (0.802_853 + t * 0.010_328);
    let denominator = 1.0 + t * (1.432_788 + t * (0.189_269 + t * 0.001_308));
    let quantile = t - numerator / denominator;
    if p < 0.5 { -quantile } else { quantile }
}

/// Returns the Walsh averages in ascending order.
fn walsh(differences: &[f64]) -> Vec<f64> {
    let mut all: Vec<f64> = differences
        .iter()
        .enumerate()
        .flat_map(|(i, a)| differences[i..].iter().map(move |b| (a + b) / 2.0))
        .collect();
    all.sort_by(f64::total_cmp);
    all
}

/// Returns the median of values in any order. `None` without values.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    median_of_sorted(&sorted)
}

fn median_of_sorted(sorted: &[f64]) -> Option<f64> {
    let middle = sorted.len() / 2;
    let upper = *sorted.get(middle)?;
    match sorted.len() % 2 {
        0 => Some((sorted[middle - 1] + upper) / 2.0),
        _ => Some(upper),
    }
}

/// Returns the standard deviation of a sample (`ddof=1`). `None` with fewer than two values.
pub fn deviation(values: &[f64]) -> Option<f64> {
    let n = values.len() as f64;
    if values.len() < 2 {
        return None;
    }
    let mean = values.iter().sum::<f64>() / n;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    Some((squares / (n - 1.0)).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected values are from the tables of Hollander and Wolfe (A.4).
    #[test]
    fn quantiles_of_tables() {
        // The published critical value is the largest sum `s` for which P(sum ≤ `s`) ≤ 2.5 %. The
        // quantile is the next larger sum.
        for (n, critical) in [(6, 0), (7, 2), (8, 3), (10, 8), (12, 13), (15, 25), (20, 52)] {
            assert_eq!(signed_rank_quantile(0.025, n), critical + 1, "n = {n}");
        }
        assert_eq!(signed_rank_quantile(0.025, 5), 0);
        assert_eq!(signed_rank_quantile(0.05, 5), 1);
    }

    #[test]
    fn by_hand() {
        // Walsh averages of 1, 2, 6: 1, 1.5, 3.5, 2, 4, 6; sorted 1, 1.5, 2, 3.5, 4, 6.
        assert_eq!(hodges_lehmann(&[6.0, 1.0, 2.0]), Some(2.75));
        assert_eq!(hodges_lehmann(&[]), None);
        // For six differences, the 95 % interval is the whole range, which contains the centre with
        // probability 31/32.
        let six = [3.0, 1.0, 2.0, 5.0, 4.0, 6.0];
        let found = interval(&six, 0.95).unwrap();
        assert_eq!((found.low, found.high, found.estimate), (1.0, 6.0, 3.5));
        assert_eq!(interval(&six[..5], 0.95), None);
        assert_eq!(interval(&six[..5], 0.9).map(|found| found.low), Some(1.0));
    }
}
