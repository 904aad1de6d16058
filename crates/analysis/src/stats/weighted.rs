//! Computes statistics for a run with a budget, in which only some calls were timed. Each timed
//! call counts as if it had occurred `weight` times.
//!
//! Imagine a longer list in which each call is repeated `weight` times. The definitions of
//! [`super`] (of means, ranks, buckets, ties and tables) apply to this list. The list is not built:
//! equal values with the weights w₁, w₂, … together take w₁ + w₂ + … consecutive sorted positions.
//! The standard deviation takes into account that the list comes from fewer calls: for n calls, the
//! sum of squares is divided by (n − 1)/n · Σw.

use super::samples::{ColumnSlice, Slice};
use super::{Cell, Pair, Scope, Table, Variable};
use crate::sampled::SCALE;
use crate::stats::Number;

/// Which weights apply to the values of a variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The weights of timed calls, for variables that need no counter.
    Timed,
    /// The weights of calls whose counters were read. Only these calls have a value.
    Counted,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Weights<'a> {
    timed: ColumnSlice<'a>,
    counted: ColumnSlice<'a>,
    /// The number by which stored weights are divided: [`SCALE`] if the results are in whole calls,
    /// otherwise 1.
    scale: u64,
}

impl<'a> Weights<'a> {
    /// Takes the weights of `len` calls, in units of 1/[`SCALE`] call. If every weight is a whole
    /// number of calls, the weights are converted to calls.
    pub fn new(timed: ColumnSlice<'a>, counted: ColumnSlice<'a>, len: usize) -> Self {
        let whole = |of: &ColumnSlice<'_>| (0..len).all(|i| of.raw(i).is_multiple_of(SCALE));
        let scale = if whole(&timed) && whole(&counted) { SCALE } else { 1 };
        Self { timed, counted, scale }
    }

    fn of(&self, kind: Kind, i: usize) -> u64 {
        let weight = match kind {
            Kind::Timed => self.timed.raw(i),
            Kind::Counted => self.counted.raw(i),
        };
        (weight / self.scale).max(1)
    }
}

struct Ranked {
    variable: Variable,
    /// For each call with a value: the value, its rank and its bucket.
    places: Vec<Option<(f64, f64, u8)>>,
}

/// Describes calls. `kinds` contains the kind of weights of each variable.
pub(super) fn describe(
    calls: &Slice<'_>,
    weights: &Weights<'_>,
    kinds: &[Kind],
    buckets: usize,
    tables: bool,
) -> Scope {
    let columns = calls.columns.iter().zip(kinds);
    let ranked: Vec<Ranked> =
        columns.map(|(column, kind)| rank(column, calls.len, weights, *kind, buckets)).collect();
    let mut pairs = Vec::new();
    for given in 0..ranked.len() {
        for of in 0..given {
            let kind = match (kinds[of], kinds[given]) {
                (Kind::Timed, Kind::Timed) => Kind::Timed,
                _ => Kind::Counted,
            };
            let mut pair = pair(&ranked[of], &ranked[given], weights, kind, buckets, tables);
            (pair.of, pair.given) = (of, given);
            pairs.push(pair);
        }
    }
    let all = (0..calls.len).map(|i| weights.of(Kind::Timed, i));
    Scope {
        calls: calls.len as u64,
        locations: Default::default(),
        variables: ranked.into_iter().map(|ranked| ranked.variable).collect(),
        pairs,
        effective: effective(all),
        sampled: None,
        inner: 0,
        brackets: Vec::new(),
    }
}

/// Returns (Σw)² / Σw²; `None` without calls.
fn effective(weights: impl Iterator<Item = u64>) -> Option<f64> {
    let add = |(sum, squares): (f64, f64), weight: u64| {
        let weight = weight as f64;
        (sum + weight, squares + weight * weight)
    };
    let (sum, squares) = weights.fold((0.0, 0.0), add);
    (squares > 0.0).then(|| sum * sum / squares)
}

fn rank(
    column: &ColumnSlice<'_>,
    len: usize,
    weights: &Weights<'_>,
    kind: Kind,
    buckets: usize,
) -> Ranked {
    let there = (0..len).filter(|i| column.is_there(*i));
    let mut sorted: Vec<(u64, usize)> = there.map(|i| (column.raw(i), i)).collect();
    sorted.sort_unstable();
    let all: u128 = sorted.iter().map(|(_, i)| u128::from(weights.of(kind, *i))).sum();
    let calls = sorted.len() as u64;
    let min = sorted.first().map_or(0, |(value, _)| *value);
    let mut places = vec![None; len];
    let mut at = 0u128;
    // For each bucket: the sum of the weighted differences from the smallest value, and the sum of
    // the weights.
    let mut sums = vec![(0.0, 0u128); buckets];
    let start_of = |bucket: usize| all.saturating_mul(bucket as u128) / buckets as u128;
    let mut bucket = 0;
    for class in sorted.chunk_by(|a, b| a.0 == b.0) {
        let weight: u128 = class.iter().map(|(_, i)| u128::from(weights.of(kind, *i))).sum();
        let (start, end) = (at, at + weight);
        at = end;
        while start_of(bucket + 1) <= start {
            bucket += 1;
        }
        let above = (class[0].0 - min) as f64;
        let rank = start as f64 + (weight as f64 + 1.0) / 2.0;
        for (value, i) in class {
            places[*i] = Some((*value as f64, rank, bucket as u8));
        }
        let mut from = start;
        loop {
            let to = end.min(start_of(bucket + 1));
            let (sum, of) = &mut sums[bucket];
            *sum += above * (to - from) as f64;
            *of += to - from;
            from = to;
            if from == end {
                break;
            }
            bucket += 1;
        }
    }
    let total = all as f64;
    let mean_above: f64 = sums.iter().map(|(sum, _)| sum).sum::<f64>() / total;
    let squares: f64 = sorted
        .iter()
        .map(|(value, i)| {
            let difference = (value - min) as f64 - mean_above;
            weights.of(kind, *i) as f64 * difference * difference
        })
        .sum();
    let n = calls as f64;
    let number = |place: Option<&(u64, usize)>| place.map(|(value, _)| Number::Whole(*value));
    let mean_of = |(sum, of): &(f64, u128)| (*of > 0).then(|| min as f64 + sum / *of as f64);
    let variable = Variable {
        calls,
        mean: (calls > 0).then_some(min as f64 + mean_above),
        standard_deviation: (calls > 1).then(|| (squares / total * n / (n - 1.0)).sqrt()),
        min: number(sorted.first()),
        max: number(sorted.last()),
        bucket_means: sums.iter().map(mean_of).collect(),
        effective: effective(sorted.iter().map(|(_, i)| weights.of(kind, *i))),
    };
    Ranked { variable, places }
}

fn pair(
    of: &Ranked,
    given: &Ranked,
    weights: &Weights<'_>,
    kind: Kind,
    buckets: usize,
    tables: bool,
) -> Pair {
    let both: Vec<_> = of
        .places
        .iter()
        .zip(&given.places)
        .enumerate()
        .filter_map(|(i, (a, b))| Some(((*a)?, (*b)?, weights.of(kind, i))))
        .collect();
    let values = both.iter().map(|(a, b, weight)| (a.0, b.0, *weight as f64));
    let pearson = correlation(values);
    // The ranks are computed again among the calls that have both values. The sort keeps calls with
    // equal old ranks together, so they get equal ranks again.
    let mut again = [Vec::new(), Vec::new()];
    for (side, ranks) in again.iter_mut().enumerate() {
        let old = |i: usize| if side == 0 { both[i].0.1 } else { both[i].1.1 };
        let mut order: Vec<usize> = (0..both.len()).collect();
        order.sort_unstable_by(|a, b| old(*a).total_cmp(&old(*b)));
        *ranks = vec![0.0; both.len()];
        let mut at = 0.0;
        for class in order.chunk_by(|a, b| old(*a) == old(*b)) {
            let weight: f64 = class.iter().map(|i| both[*i].2 as f64).sum();
            class.iter().for_each(|i| ranks[*i] = at + (weight + 1.0) / 2.0);
            at += weight;
        }
    }
    let ranks = (0..both.len()).map(|i| (again[0][i], again[1][i], both[i].2 as f64));
    let spearman = correlation(ranks);
    let table = tables.then(|| {
        let mut cells = vec![(0u32, 0.0); buckets * buckets];
        for (a, b, weight) in &both {
            let cell = &mut cells[usize::from(b.2) * buckets + usize::from(a.2)];
            cell.0 += 1;
            cell.1 += *weight as f64;
        }
        let found = cells.iter().enumerate().filter(|(_, (calls, _))| *calls > 0);
        let cells = found.map(|(i, (calls, weight))| Cell {
            given: (i / buckets) as u8,
            of: (i % buckets) as u8,
            calls: *calls,
            weight: *weight,
        });
        Table { cells: cells.collect() }
    });
    let effective = effective(both.iter().map(|(.., weight)| *weight));
    Pair { of: 0, given: 0, calls: both.len() as u64, pearson, spearman, table, effective }
}

/// Returns the correlation of values with weights; `None` if one of the variables is constant.
fn correlation(values: impl Iterator<Item = (f64, f64, f64)> + Clone) -> Option<f64> {
    let (mut all, mut x, mut y) = (0.0, 0.0, 0.0);
    for (a, b, weight) in values.clone() {
        all += weight;
        x += (a - x) * weight / all;
        y += (b - y) * weight / all;
    }
    let (mut products, mut of_x, mut of_y) = (0.0, 0.0, 0.0);
    let (mut first, mut varies_x, mut varies_y) = (None, false, false);
    for (a, b, weight) in values {
        let (from_x, from_y) = *first.get_or_insert((a, b));
        varies_x |= a != from_x;
        varies_y |= b != from_y;
        products += weight * (a - x) * (b - y);
        of_x += weight * (a - x) * (a - x);
        of_y += weight * (b - y) * (b - y);
    }
    (varies_x && varies_y).then(|| (products / of_x.sqrt() / of_y.sqrt()).clamp(-1.0, 1.0))
}

#[cfg(test)]
mod tests {
    use testkit::random::Random;

    use super::super::samples::Samples;
    use super::*;

    /// `cli/tests/it/stats_oracle.rs` compares statistics without weights with numpy and scipy.
    #[test]
    fn as_if_each_call_were_there_several_times() {
        let mut random = Random(7);
        for case in 0..40 {
            let calls = random.place(200);
            let (mut columns, mut long) = (vec![Vec::new(); 5], vec![Vec::new(); 3]);
            for _ in 0..calls {
                let (timed, counted) = (1 + random.below(5), 1 + random.below(3));
                let ticks = random.below(if case % 2 == 0 { 20 } else { 1 << 40 });
                let read = random.odd(2);
                let values =
                    [Some(ticks), read.then_some(ticks / 2), read.then_some(random.below(9))];
                // In the long list, all variables of a call are repeated equally often. So both
                // kinds of weights are equal in this test.
                let weight = if case % 4 < 2 { timed } else { timed * counted };
                for (column, value) in columns.iter_mut().zip(values) {
                    column.push(value);
                }
                columns[3].push(Some(weight));
                columns[4].push(Some(weight));
                for _ in 0..weight {
                    long.iter_mut().zip(values).for_each(|(column, value)| column.push(value));
                }
            }
            let buckets = 1 + random.place(16);
            let all = Samples::new(&columns);
            let mut slice = all.slice(0, all.len());
            let [timed, counted] = [slice.columns[3], slice.columns[4]];
            slice.columns.truncate(3);
            let kinds = [Kind::Timed, Kind::Counted, Kind::Counted];
            let weights = Weights { timed, counted, scale: 1 };
            let found = describe(&slice, &weights, &kinds, buckets, true);
            let expected = crate::stats::describe(&Samples::new(&long), buckets, true);
            let close = |a: Option<f64>, b: Option<f64>| match (a, b) {
                (Some(a), Some(b)) => (a - b).abs() <= 1e-9 * b.abs().max(1.0),
                (a, b) => a == b,
            };
            assert_eq!(found.calls, calls as u64);
            for (a, b) in found.variables.iter().zip(&expected.variables) {
                assert!(close(a.mean, b.mean), "{a:?} {b:?}");
                assert_eq!((a.min, a.max), (b.min, b.max));
                let mut means = a.bucket_means.iter().zip(&b.bucket_means);
                assert!(means.all(|(a, b)| close(*a, *b)), "{a:?} {b:?}");
                let factor = |calls: u64| ((calls as f64 - 1.0) / calls as f64).sqrt();
                if let (Some(one), Some(other)) = (a.standard_deviation, b.standard_deviation) {
                    let pair = (one * factor(a.calls), other * factor(b.calls));
                    assert!(close(Some(pair.0), Some(pair.1)), "{a:?} {b:?}");
                }
            }
            for (a, b) in found.pairs.iter().zip(&expected.pairs) {
                assert!(
                    close(a.pearson, b.pearson) && close(a.spearman, b.spearman),
                    "{a:?} {b:?}"
                );
                let tables = [a, b].map(|pair| pair.table.as_ref().expect("asked for"));
                let [a, b] = tables.map(|table| table.probabilities(buckets));
                let mut cells = a.iter().flatten().zip(b.iter().flatten());
                assert!(cells.all(|(a, b)| close(*a, *b)));
            }
        }
    }

    #[test]
    fn effective_numbers() {
        assert_eq!(effective([].into_iter()), None);
        assert_eq!(effective([7, 7, 7].into_iter()), Some(3.0));
        assert_eq!(effective([1, 3].into_iter()), Some(1.6));
    }
}
