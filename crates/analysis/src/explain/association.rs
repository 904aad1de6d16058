//! Measures how strongly two variables of the same calls are associated. The measures are the
//! correlation of their ranks, and the mutual information of classes of their values.

use std::collections::HashMap;

/// Returns the rank of each value, counted from 1. Equal values get the mean of the ranks that they
/// span. A missing value (NaN) has rank NaN and does not change the other ranks.
pub fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<u32> =
        (0..values.len() as u32).filter(|at| !values[*at as usize].is_nan()).collect();
    order.sort_unstable_by(|a, b| values[*a as usize].total_cmp(&values[*b as usize]));
    let mut ranks = vec![f64::NAN; values.len()];
    let mut before = 0;
    for class in order.chunk_by(|a, b| values[*a as usize] == values[*b as usize]) {
        let rank = before as f64 + (class.len() + 1) as f64 / 2.0;
        class.iter().for_each(|at| ranks[*at as usize] = rank);
        before += class.len();
    }
    ranks
}

/// Returns Pearson's correlation over the indices at which both variables have a value. 0 if one of
/// them is constant there.
pub fn correlation(a: &[f64], b: &[f64]) -> f64 {
    let both = || a.iter().zip(b).filter(|(a, b)| !a.is_nan() && !b.is_nan());
    let n = both().count() as f64;
    if n < 2.0 {
        return 0.0;
    }
    let (sum_a, sum_b) = both().fold((0.0, 0.0), |sum, (a, b)| (sum.0 + a, sum.1 + b));
    let (mean_a, mean_b) = (sum_a / n, sum_b / n);
    let (mut ab, mut aa, mut bb) = (0.0, 0.0, 0.0);
    for (a, b) in both() {
        let (a, b) = (a - mean_a, b - mean_b);
        (ab, aa, bb) = (ab + a * b, aa + a * a, bb + b * b);
    }
    if aa > 0.0 && bb > 0.0 { (ab / (aa * bb).sqrt()).clamp(-1.0, 1.0) } else { 0.0 }
}

/// Returns Spearman's correlation over the indices at which both variables have a value.
pub fn spearman(a: &[f64], b: &[f64]) -> f64 {
    let keep = |x: &[f64]| -> Vec<f64> {
        let both = x.iter().zip(a.iter().zip(b)).filter(|(_, (a, b))| !a.is_nan() && !b.is_nan());
        both.map(|(x, _)| *x).collect()
    };
    correlation(&ranks(&keep(a)), &ranks(&keep(b)))
}

/// Counts the calls for each pair of a class in `classes` and a class in `of`. The classes in `of`
/// are below `kinds`. The table `cells` has one row of `kinds` cells for each class of `classes`.
pub(super) fn cells(classes: &[u32], of: &[u8], kinds: usize, cells: &mut [u32]) {
    cells.fill(0);
    for (class, of) in classes.iter().zip(of) {
        let at = *class as usize * kinds + usize::from(*of);
        if let Some(cell) = cells.get_mut(at) {
            *cell += 1;
        }
    }
}

/// Returns the mutual information of a table of counts, in nats: Σ p(a,b) ln (p(a,b) / p(a) p(b)).
/// A row of the table has `kinds` cells.
pub(super) fn information_of(cells: &[u32], kinds: usize) -> f64 {
    let mut columns = vec![0u64; kinds];
    let (mut all, mut rows_part, mut cells_part) = (0u64, 0.0, 0.0);
    let entropy_part = |n: u64| if n > 0 { n as f64 * (n as f64).ln() } else { 0.0 };
    for row in cells.chunks(kinds) {
        let mut sum = 0;
        for (cell, column) in row.iter().zip(&mut columns) {
            let n = u64::from(*cell);
            sum += n;
            *column += n;
            cells_part += entropy_part(n);
        }
        rows_part += entropy_part(sum);
        all += sum;
    }
    if all == 0 {
        return 0.0;
    }
    let columns_part: f64 = columns.iter().map(|n| entropy_part(*n)).sum();
    ((cells_part - rows_part - columns_part + entropy_part(all)) / all as f64).max(0.0)
}

/// Returns the mutual information of two classifications of the same calls, in nats. `excess` is
/// `nats` minus (rows − 1) (columns − 1) / 2n, or 0 if that is negative. The subtracted term is the
/// approximate mean of `nats` for independent classifications (Miller, 1955). Calls with a class of
/// `u32::MAX` are left out.
pub fn information(a: &[u32], b: &[u32]) -> Information {
    let mut counts: HashMap<(u32, u32), u32> = HashMap::new();
    for pair in a.iter().copied().zip(b.iter().copied()) {
        if pair.0 != u32::MAX && pair.1 != u32::MAX {
            *counts.entry(pair).or_default() += 1;
        }
    }
    let number = |side: fn(&(u32, u32)) -> u32| {
        let mut all: Vec<u32> = counts.keys().map(side).collect();
        all.sort_unstable();
        all.dedup();
        all
    };
    let (rows, columns) = (number(|pair| pair.0), number(|pair| pair.1));
    let kinds = columns.len().max(1);
    let mut cells = vec![0; rows.len() * kinds];
    for ((row, column), n) in &counts {
        if let (Ok(row), Ok(column)) = (rows.binary_search(row), columns.binary_search(column)) {
            cells[row * kinds + column] = *n;
        }
    }
    let n: u64 = counts.values().map(|n| u64::from(*n)).sum();
    let freedom = rows.len().saturating_sub(1) * columns.len().saturating_sub(1);
    let nats = information_of(&cells, kinds);
    let entropy = |sums: Vec<u64>| -> f64 {
        sums.iter()
            .filter(|s| **s > 0)
            .map(|s| (*s as f64 / n as f64) * (n as f64 / *s as f64).ln())
            .sum()
    };
    let of_rows = cells.chunks(kinds).map(|row| row.iter().map(|n| u64::from(*n)).sum()).collect();
    let of_columns = (0..kinds)
        .map(|c| cells.iter().skip(c).step_by(kinds).map(|n| u64::from(*n)).sum())
        .collect();
    Information {
        nats,
        excess: (nats - freedom as f64 / (2.0 * n.max(1) as f64)).max(0.0),
        least_entropy: entropy(of_rows).min(entropy(of_columns)),
    }
}

/// The mutual information of two classifications of the same calls.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Information {
    /// The mutual information in nats, without a correction.
    pub nats: f64,
    /// `nats` minus the mean that independent classifications would have; at least 0.
    pub excess: f64,
    /// The smaller one of the two classifications' entropies, which the mutual information cannot
    /// exceed.
    pub least_entropy: f64,
}

/// Returns the absolute correlation of two normal variables that have this mutual information.
pub(super) fn as_correlation(excess: f64) -> f64 {
    (1.0 - (-2.0 * excess.max(0.0)).exp()).max(0.0).sqrt()
}

/// Divides the values, in the order of their ranks, into at most `most` classes of about equal
/// size. Equal values are in one class. `u32::MAX` stands for a missing value.
pub(super) fn classes(ranks: &[f64], most: usize) -> Vec<u32> {
    let n = ranks.iter().filter(|rank| !rank.is_nan()).count() as f64;
    let class = |rank: &f64| match rank.is_nan() {
        true => u32::MAX,
        false => (((rank - 0.5) / n * most as f64) as u32).min(most as u32 - 1),
    };
    ranks.iter().map(class).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_by_hand() {
        let found = ranks(&[30.0, 10.0, 30.0, f64::NAN]);
        assert_eq!(found[..3], [2.5, 1.0, 2.5]);
        assert!(found[3].is_nan());
        assert_eq!(classes(&found, 2), [1, 0, 1, u32::MAX]);
    }

    /// Two copies of a fair coin have a mutual information of ln 2.
    #[test]
    fn information_by_hand() {
        let same = information(&[0, 0, 1, 1], &[5, 5, 9, 9]);
        assert!(
            (same.nats - 2f64.ln()).abs() < 1e-12 && (same.least_entropy - 2f64.ln()).abs() < 1e-12
        );
        assert!((same.excess - (2f64.ln() - 0.125)).abs() < 1e-12);
        assert_eq!(information(&[0, 0, 1, 1], &[5, 9, 5, 9]).nats, 0.0);
        assert_eq!(information(&[], &[]), Information::default());
    }
}
