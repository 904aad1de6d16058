//! Describes pairs of variables of the same calls: the correlation of the values, that of the
//! ranks, and the number of calls in each combination of buckets.

use super::ranks::{BLOCK, Ranked, mean};
use super::samples::{ColumnSlice, ValueSlice};
use super::{Cell, Pair, Table};

pub(super) struct Side<'a> {
    pub column: ColumnSlice<'a>,
    pub ranked: &'a Ranked,
    /// The doubled rank of each call.
    pub ranks: &'a [u32],
    /// The bucket of each call.
    pub places: &'a [u8],
}

#[derive(Debug, Default)]
pub(super) struct PairScratch {
    cells: Vec<u32>,
    ranks: [Vec<u32>; 2],
}

/// Computes everything about a pair except the indices of its variables.
pub(super) fn pair(
    of: &Side<'_>,
    given: &Side<'_>,
    buckets: usize,
    tables: bool,
    scratch: &mut PairScratch,
) -> Pair {
    let complete = of.column.missing.is_none() && given.column.missing.is_none();
    let mut pair = match complete {
        true => whole(of, given),
        false => partly(of, given, scratch),
    };
    pair.table = tables.then(|| table(of, given, complete, buckets, &mut scratch.cells));
    pair
}

/// Computes a correlation from the sum of products and the two sums of squares. The result is
/// clamped, because a rounding error could take it beyond ±1. The product of the two sums of
/// squares is between 2⁻⁶⁴ and 2³²⁰, so it neither overflows nor underflows, and its root can be
/// computed at once. Unlike the product of two roots, this root is exact if both sums of squares
/// are equal.
fn correlation(products: f64, squares: f64, other_squares: f64) -> Option<f64> {
    (squares > 0.0 && other_squares > 0.0)
        .then(|| (products / (squares * other_squares).sqrt()).clamp(-1.0, 1.0))
}

/// Describes a pair in which both variables have a value in every call.
fn whole(of: &Side<'_>, given: &Side<'_>) -> Pair {
    let (x, y) = (of.ranked, given.ranked);
    let products = match (of.column.values, given.column.values) {
        (ValueSlice::Narrow(a), ValueSlice::Narrow(b)) => products(a, x, b, y),
        (ValueSlice::Narrow(a), ValueSlice::Wide(b)) => products(a, x, b, y),
        (ValueSlice::Wide(a), ValueSlice::Narrow(b)) => products(a, x, b, y),
        (ValueSlice::Wide(a), ValueSlice::Wide(b)) => products(a, x, b, y),
    };
    let middle = x.calls as i64 + 1;
    let rank_products: i128 = of
        .ranks
        .iter()
        .zip(given.ranks)
        .map(|(a, b)| i128::from((i64::from(*a) - middle) * (i64::from(*b) - middle)))
        .sum();
    Pair {
        calls: x.calls,
        pearson: correlation(products, x.squares, y.squares),
        spearman: correlation(rank_products as f64, x.rank_squares as f64, y.rank_squares as f64),
        ..Pair::default()
    }
}

/// For each call, multiplies the two values' differences from their means. Returns the sum of these
/// products.
fn products<A: Copy + Into<u64>, B: Copy + Into<u64>>(
    a: &[A],
    x: &Ranked,
    b: &[B],
    y: &Ranked,
) -> f64 {
    let blocks = a.chunks(BLOCK).zip(b.chunks(BLOCK)).map(|(a, b)| {
        let terms = a.iter().zip(b).map(|(a, b)| {
            let (a, b): (u64, u64) = ((*a).into(), (*b).into());
            ((a - x.min) as f64 - x.mean_above_min) * ((b - y.min) as f64 - y.mean_above_min)
        });
        terms.sum::<f64>()
    });
    blocks.sum()
}

/// Describes a pair in which a variable has missing values: means, squares and ranks are computed
/// from the calls that have both values.
fn partly(of: &Side<'_>, given: &Side<'_>, scratch: &mut PairScratch) -> Pair {
    let sides = [of, given];
    let both = || {
        let there = |i: &usize| sides.iter().all(|side| side.column.is_there(*i));
        (0..of.ranks.len()).filter(there)
    };
    let (mut calls, mut sums, mut mins) = (0u64, [0u128; 2], [u64::MAX; 2]);
    for i in both() {
        calls += 1;
        for (side, (sum, min)) in sides.iter().zip(sums.iter_mut().zip(&mut mins)) {
            let value = side.column.raw(i);
            *sum += u128::from(value);
            *min = value.min(*min);
        }
    }
    if calls == 0 {
        return Pair::default();
    }
    let above: Vec<f64> = sums
        .iter()
        .zip(mins)
        .map(|(sum, min)| mean(sum - u128::from(min) * u128::from(calls), calls))
        .collect();
    for (side, ranks) in sides.iter().zip(&mut scratch.ranks) {
        rank_again(side, calls, both(), ranks);
    }
    let middle = calls as i64 + 1;
    let (mut total, mut block) = ([0.0; 3], [0.0; 3]);
    let mut ranks = [0i128; 3];
    for (n, i) in both().enumerate() {
        let value = |s: usize| (sides[s].column.raw(i) - mins[s]) as f64 - above[s];
        let rank = |s: usize| i64::from(scratch.ranks[s][class(sides[s].ranks[i])]) - middle;
        let ((x, y), (a, b)) = ((value(0), value(1)), (rank(0), rank(1)));
        for (sum, term) in block.iter_mut().zip([x * y, x * x, y * y]) {
            *sum += term;
        }
        for (sum, term) in ranks.iter_mut().zip([a * b, a * a, b * b]) {
            *sum += i128::from(term);
        }
        if n % BLOCK == BLOCK - 1 {
            for (sum, more) in total.iter_mut().zip(&mut block) {
                *sum += std::mem::take(more);
            }
        }
    }
    let [products, x, y] = [0, 1, 2].map(|i| total[i] + block[i]);
    Pair {
        calls,
        pearson: correlation(products, x, y),
        spearman: correlation(ranks[0] as f64, ranks[1] as f64, ranks[2] as f64),
        ..Pair::default()
    }
}

/// Returns the index of a class of equal values. Two classes have different indices, because their
/// doubled ranks differ by at least two. An index is at most the number of values.
fn class(doubled_rank: u32) -> usize {
    (doubled_rank / 2) as usize
}

/// Ranks `some` of the calls: stores the doubled rank of each class in `ranks`, by the class's
/// index.
fn rank_again(
    side: &Side<'_>,
    calls: u64,
    some: impl Iterator<Item = usize>,
    ranks: &mut Vec<u32>,
) {
    ranks.clear();
    ranks.resize(side.ranks.len() + 1, 0);
    some.for_each(|i| ranks[class(side.ranks[i])] += 1);
    let mut at = 0u64;
    for count in ranks.iter_mut() {
        let end = at + u64::from(*count);
        *count = (at + 1 + end) as u32;
        at = end;
    }
    debug_assert_eq!(at, calls);
}

fn table(
    of: &Side<'_>,
    given: &Side<'_>,
    complete: bool,
    buckets: usize,
    cells: &mut Vec<u32>,
) -> Table {
    cells.clear();
    cells.resize(buckets * buckets, 0);
    let mut add = |of: u8, given: u8| cells[usize::from(given) * buckets + usize::from(of)] += 1;
    let places = of.places.iter().zip(given.places);
    if complete {
        places.for_each(|(of, given)| add(*of, *given));
    } else {
        for (i, (a, b)) in places.enumerate() {
            if of.column.is_there(i) && given.column.is_there(i) {
                add(*a, *b);
            }
        }
    }
    let found = cells.iter().enumerate().filter(|(_, calls)| **calls > 0);
    let cells = found.map(|(i, calls)| Cell {
        given: (i / buckets) as u8,
        of: (i % buckets) as u8,
        calls: *calls,
        weight: f64::from(*calls),
    });
    Table { cells: cells.collect() }
}
