//! Tests whether differences between paired runs are more than chance. The test flips the signs of
//! all differences of a pair at once. A step-down procedure tests all ops and statistics together.
//!
//! If two programs are equal, the two runs of a pair could as well have been exchanged. That would
//! change the signs of all differences of this pair, for all ops and statistics. The test compares
//! the observed |t| (defined below) with the |t| after such changes of sign, called *flips*. With
//! few pairs, all flips are tried; with more pairs, the identity and random flips (see [`DRAWN`]).
//! The test assumes nothing about the distribution of the differences, or about how ops depend on
//! each other.
//!
//! **Statistic.** |t| of the winsorised differences d of the n pairs: every |d| above the k-th
//! largest is cut to that size, with k = ⌊n/4⌋ + 1. Flips change neither the |d| nor the size to
//! which they are cut, so the test stays exact. Because of the cut, one pair in which the machine
//! was disturbed cannot hide a difference that all other pairs show.
//!
//! **Step-down** (Westfall and Young, 1993, algorithm 2.8): the largest |t| is compared with the
//! largest |t| of all ops in each flip. The second largest |t| is compared with the largest |t| of
//! all ops except the one with the largest observed |t|, and so on. So the probability of any false
//! report is at most the level of the test, even if some ops differ.

/// With at most this many pairs, all flips are tried.
const ALL_FLIPS: usize = 10;
/// Number of flips that are tried with more than `ALL_FLIPS` pairs: the identity and random flips.
pub const DRAWN: usize = 5_000;
/// The seed is fixed, so that each run of the command uses the same flips.
const SEED: u64 = 0x005e_ed0f_d1ff;

/// Limits the size of each of the n differences to the (⌊n/4⌋ + 1)-th largest size. Each difference
/// keeps its sign.
pub fn winsorised(differences: &[f64]) -> Vec<f64> {
    let mut sizes: Vec<f64> = differences.iter().map(|d| d.abs()).collect();
    sizes.sort_by(|a, b| b.total_cmp(a));
    let Some(cap) = sizes.get(differences.len() / 4).copied() else { return Vec::new() };
    differences.iter().map(|d| d.clamp(-cap, cap)).collect()
}

/// Returns |t| of paired differences; infinite if all differences are the same and not 0.
pub fn paired_t(differences: &[f64]) -> f64 {
    let n = differences.len() as f64;
    let sum: f64 = differences.iter().sum();
    let squares: f64 = differences.iter().map(|d| d * d).sum();
    t_of(sum, squares, n)
}

fn t_of(sum: f64, squares: f64, n: f64) -> f64 {
    let mean = sum / n;
    let variance = ((squares - n * mean * mean) / (n - 1.0)).max(0.0);
    match (mean == 0.0, variance == 0.0) {
        (true, _) => 0.0,
        (false, true) => f64::INFINITY,
        (false, false) => mean.abs() / (variance / n).sqrt(),
    }
}

/// Returns the p-value of each row, adjusted for the number of rows. A row contains one difference
/// for each pair. All rows have the same order of pairs. With fewer than two pairs, all p are 1.
///
/// Cost: rows × pairs × flips.
pub fn adjusted_p(rows: &[Vec<f64>]) -> Vec<f64> {
    let pairs = rows.first().map_or(0, Vec::len);
    if pairs < 2 {
        return vec![1.0; rows.len()];
    }
    // A flip changes the sum of a row's differences, but not the sum of their squares. |Σ d|,
    // divided by the root of n Σ d², is the same increasing function of |t| for all rows. So the
    // test uses this quotient instead of |t|.
    let scaled: Vec<Vec<f64>> = rows
        .iter()
        .map(|row| {
            let row = winsorised(row);
            let squares: f64 = row.iter().map(|d| d * d).sum();
            let scale = (squares * pairs as f64).sqrt();
            row.iter().map(|d| if scale > 0.0 { d / scale } else { 0.0 }).collect()
        })
        .collect();
    let observed: Vec<f64> = scaled.iter().map(|row| row.iter().sum::<f64>().abs()).collect();
    let mut order: Vec<usize> = (0..rows.len()).collect();
    order.sort_by(|a, b| observed[*b].total_cmp(&observed[*a]));
    let mut reached = vec![0u64; rows.len()];
    let mut all = 0u64;
    for_each_flip(pairs, |signs| {
        all += 1;
        let mut largest: f64 = 0.0;
        for row in order.iter().rev() {
            let sum: f64 = scaled[*row].iter().zip(signs).map(|(d, sign)| d * sign).sum();
            largest = largest.max(sum.abs());
            // Because of rounding, sums that are mathematically equal can differ slightly, so a
            // small tolerance is subtracted.
            reached[*row] += u64::from(largest >= observed[*row] - 1e-12);
        }
    });
    let mut adjusted = vec![1.0; rows.len()];
    let mut before: f64 = 0.0;
    for row in order {
        before = before.max(reached[row] as f64 / all as f64);
        adjusted[row] = before;
    }
    adjusted
}

/// Calls `with` once for each flip, with the sign of each pair. The first flip is the identity.
fn for_each_flip(pairs: usize, mut with: impl FnMut(&[f64])) {
    let mut signs = vec![1.0; pairs];
    if pairs <= ALL_FLIPS {
        for flip in 0u32..1 << pairs {
            for (bit, sign) in signs.iter_mut().enumerate() {
                *sign = if flip >> bit & 1 == 1 { -1.0 } else { 1.0 };
            }
            with(&signs);
        }
        return;
    }
    with(&signs);
    let mut state = SEED;
    for _ in 1..DRAWN {
        let mut bits = 0;
        for (bit, sign) in signs.iter_mut().enumerate() {
            if bit % 64 == 0 {
                bits = split_mix(&mut state);
            }
            *sign = if bits & 1 == 1 { -1.0 } else { 1.0 };
            bits >>= 1;
        }
        with(&signs);
    }
}

/// Returns the next number of SplitMix64 (Steele, Lea and Flood, 2014). `run` also uses such
/// numbers to choose the order of the runs of a series.
pub fn split_mix(state: &mut u64) -> u64 {
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
    fn the_third_largest_of_ten_is_the_cap() {
        let ten = [1.0, -2.0, 3.0, -4.0, 5.0, 6.0, -7.0, 8.0, -90.0, 100.0];
        let cut = [1.0, -2.0, 3.0, -4.0, 5.0, 6.0, -7.0, 8.0, -8.0, 8.0];
        assert_eq!(winsorised(&ten), cut);
        assert_eq!(winsorised(&[]), Vec::<f64>::new());
    }

    #[test]
    fn small_cases_by_hand() {
        // The six differences have the same sign. Only two of the 64 flips are as extreme: those
        // that flip none or all of them.
        let same = vec![1.0, 1.1, 1.2, 1.3, 1.4, 1.5];
        assert_eq!(adjusted_p(std::slice::from_ref(&same)), [2.0 / 64.0]);
        assert_eq!(adjusted_p(&[same.clone(), same]), [2.0 / 64.0, 2.0 / 64.0]);
        assert_eq!(adjusted_p(&[vec![0.0; 6]]), [1.0]);
        assert_eq!(adjusted_p(&[vec![1.0]]), [1.0]);
        // t of 1, 2, 3: mean 2, deviation 1, t = 2 √3.
        assert!((paired_t(&[1.0, 2.0, 3.0]) - 2.0 * 3.0f64.sqrt()).abs() < 1e-12);
        assert_eq!(paired_t(&[2.0, 2.0]), f64::INFINITY);
        assert_eq!(paired_t(&[0.0, 0.0]), 0.0);
    }

    /// The reference values of Vigna's splitmix64.c for the seed 1234567.
    #[test]
    fn numbers_of_split_mix() {
        let mut state = 1_234_567;
        let expected = [6_457_827_717_110_365_317, 3_203_168_211_198_807_973];
        assert_eq!([split_mix(&mut state), split_mix(&mut state)], expected);
    }
}
