//! The median or mean of readings, and its bootstrap interval.

/// A median or mean with the 95% interval of the percentile bootstrap.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Estimate {
    pub middle: f64,
    pub low: f64,
    pub high: f64,
    pub count: usize,
}

/// The number of resamples of a bootstrap. With this many, another seed would move the ends of the
/// interval by less than their last printed digit.
const RESAMPLES: usize = 10_000;

pub fn median_estimate(values: &[f64]) -> Option<Estimate> {
    estimate(values, median)
}

pub fn mean_estimate(values: &[f64]) -> Option<Estimate> {
    estimate(values, |values| mean(values))
}

/// Returns the statistic of some values, with its interval. The function `statistic` may sort the
/// values that it gets. The seed is constant, so the same readings give the same interval.
fn estimate(values: &[f64], statistic: fn(&mut [f64]) -> Option<f64>) -> Option<Estimate> {
    let middle = statistic(&mut values.to_vec())?;
    let mut state = 0x9e37_79b9_7f4a_7c15;
    let mut resample = vec![0.0; values.len()];
    let mut resampled: Vec<f64> = (0..RESAMPLES)
        .filter_map(|_| {
            for slot in &mut resample {
                // The high half of the product is a random index, computed without a division. The
                // indices are almost equally likely for so few values.
                let index = (u128::from(next(&mut state)) * values.len() as u128) >> 64;
                *slot = values[index as usize];
            }
            statistic(&mut resample)
        })
        .collect();
    resampled.sort_by(f64::total_cmp);
    let at = |share: f64| resampled[((RESAMPLES - 1) as f64 * share).round() as usize];
    Some(Estimate { middle, low: at(0.025), high: at(0.975), count: values.len() })
}

fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

fn median(values: &mut [f64]) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    let upper = *values.get(middle)?;
    Some(if values.len() % 2 == 1 { upper } else { (values[middle - 1] + upper) / 2.0 })
}

/// Returns the next number of SplitMix64 (Steele, Lea and Flood 2014).
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(median(&mut []), None);
        assert_eq!(median(&mut [3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&mut [4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }

    #[test]
    fn a_constant_has_no_spread() {
        let constant = median_estimate(&[7.0; 15]);
        assert_eq!(constant, Some(Estimate { middle: 7.0, low: 7.0, high: 7.0, count: 15 }));
    }

    /// Of 15 values, the 4th and the 12th enclose the median with a probability of 96.5% (binomial
    /// table), and the 5th and the 11th with one of 88.2%. The bootstrap's 95% interval must be at
    /// least as wide as the second of these intervals, and at most as wide as the first.
    #[test]
    fn interval_agrees_with_order_statistics() {
        let values: Vec<f64> = (1..=15).map(f64::from).collect();
        let Some(found) = median_estimate(&values) else { panic!("no estimate") };
        assert_eq!(found.middle, 8.0);
        assert!((4.0..=5.0).contains(&found.low), "{found:?}");
        assert!((11.0..=12.0).contains(&found.high), "{found:?}");
    }

    /// For 12 ones among 200 values, the exact binomial interval (Clopper and Pearson) is 0.0314 to
    /// 0.1025.
    #[test]
    fn rates_are_means() {
        let mut values = [0.0; 200];
        values[..12].fill(1.0);
        let Some(found) = mean_estimate(&values) else { panic!("no estimate") };
        assert_eq!(found.middle, 0.06);
        assert!(
            (0.03..0.04).contains(&found.low) && (0.09..0.1).contains(&found.high),
            "{found:?}"
        );
        assert_eq!(mean_estimate(&[]), None);
    }

    #[test]
    fn splitmix_matches_the_published_sequence() {
        let mut state = 1_234_567;
        assert_eq!(next(&mut state), 6_457_827_717_110_365_317);
        assert_eq!(next(&mut state), 3_203_168_211_198_807_973);
    }
}
