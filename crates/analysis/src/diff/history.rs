//! Finds the points in a history of runs at which something became slower or faster.
//!
//! ```text
//!  one time for each point and row ─► ln ─► the best split of each row (E-divisive)
//!                                                    │  compared with the best of all rows
//!                                                    ▼  in histories in another order
//!                                    split where it is more than chance ─► both halves again
//! ```
//!
//! The method is E-divisive with a test by permutations (Matteson and James, *A nonparametric
//! approach for multiple change point analysis of multivariate data*, 2014), which Apache Otava and
//! MongoDB use for the same purpose. If a history is split into X with m points and Y with n
//! points, the size of the change is
//!
//! ```text
//!  Q = mn/(m+n) · (2/mn Σ|x−y| − Σ|x−x'| / C(m,2) − Σ|y−y'| / C(n,2))
//! ```
//!
//! divided by the mean |z−z'| over all pairs of points in X and Y, so that rows can be compared. If
//! nothing changed, any other order of the points would have been as likely. So the largest Q of
//! each row is compared with the largest Q of **all** rows in each of [`ORDERS`] orders: the order
//! of the history, and random ones. With this comparison, the probability that anything is found in
//! a history without a change is at most [`LEVEL`]. This holds for any number of rows, and if rows
//! depend on each other. After a change was found, the parts before and after it are tested in the
//! same way. But each row is tested separately, at the level divided by the number of rows.

use std::collections::HashMap;

use super::executions::{Parts, has_dispatches, number};
use super::flips::split_mix;
use super::ranks::median;
use super::recorded::{By, Identity, Recorded, RunRow};
use super::values::{are_as_many, part_of};

/// The highest probability with which anything is found in a history without a change.
pub const LEVEL: f64 = 0.02;
/// Number of compared orders, one of which is the order of the history.
pub const ORDERS: usize = 1_000;
/// A history, or a part of it, with fewer points is not tested: there are too few ways to divide
/// its points into two groups.
pub const FEWEST: usize = 10;
/// Callers should test only this many of the latest points, because the work grows with the square
/// of the number of points.
pub const MOST: usize = 300;
/// Each side of a split has at least this many points.
const LEAST: usize = 3;
/// The seed is fixed, so that each run of the command uses the same orders.
const SEED: u64 = 0x0005_eedc_4a26;

/// A point at which a row began to take more or less time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ChangePoint {
    /// The first point after the change.
    pub at: usize,
    /// The relative change (0.05 for 5 %): above 0 if the row became slower. It is the median of
    /// all ratios (a time after the change, divided by a time before it), minus 1. The points
    /// between the previous and the next change are used.
    pub change: f64,
    /// The 95 % interval of the change (Mann and Whitney), as if the position of the change had
    /// been known before the test.
    pub interval: [f64; 2],
    /// The probability of finding a Q that is at least as large if nothing changed in the tested
    /// history, or in the tested part of it.
    pub p: f64,
}

/// The times of a history, in ns.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct History {
    /// For each point, the time that all ops together would take if each execution took as long as
    /// the op's typical one. Ops whose numbers of executions differ count with all of their self
    /// time. `None` if this time is not known at some point.
    pub whole: Option<Vec<f64>>,
    /// The rows that have a time at each point.
    pub rows: Vec<HistoryRow>,
    /// Number of rows that have no time at some point. They are not tested.
    pub left_out: usize,
}

/// The values of a row at each point of a history.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HistoryRow {
    pub identity: Identity,
    /// The time of the typical execution or, if only a mean is known, the mean.
    pub times: Vec<f64>,
    /// The number of executions in a run.
    pub executions: Vec<f64>,
}

impl HistoryRow {
    /// Returns the medians of the numbers of executions before and after one of the row's change
    /// points, up to the neighbouring `changes`. `None` if they differ by at most 10 %.
    pub fn executions_around(&self, changes: &[ChangePoint], at: usize) -> Option<[f64; 2]> {
        let others = || changes.iter().map(|change| change.at);
        let begin = others().filter(|other| *other < at).max().unwrap_or(0);
        let end = others().filter(|other| *other > at).min().unwrap_or(self.executions.len());
        let [before, after] = [begin..at, at..end].map(|part| median(self.executions.get(part)?));
        let [before, after] = [before?, after?];
        (!are_as_many(before, after)).then_some([before, after])
    }
}

/// Returns the number of executions of each row in a run of each point. A row that some point does
/// not have is left out.
fn executions<'a>(
    points: &'a [Vec<Recorded>],
    rows: impl Fn(&'a Recorded) -> &'a [RunRow],
) -> HashMap<&'a Identity, Vec<f64>> {
    let mut all: HashMap<&Identity, Vec<Vec<&RunRow>>> = HashMap::new();
    for (at, runs) in points.iter().enumerate() {
        for row in runs.iter().flat_map(&rows) {
            let of_row = all.entry(&row.identity).or_insert_with(|| vec![vec![]; points.len()]);
            of_row[at].push(row);
        }
    }
    let numbers = |(identity, points): (&'a Identity, Vec<Vec<&RunRow>>)| {
        let by_dispatch = points.iter().flatten().all(|row| has_dispatches(row));
        let of_point = |runs: &Vec<&RunRow>| {
            median(&runs.iter().map(|row| number(row, by_dispatch)).collect::<Vec<f64>>())
        };
        Some((identity, points.iter().map(of_point).collect::<Option<Vec<f64>>>()?))
    };
    all.into_iter().filter_map(numbers).collect()
}

/// Whether at least [`LEAST`] points have more than 10 % more executions than as many others. So
/// a few runs that ended early do not count.
fn differ(executions: &[f64]) -> bool {
    let mut sorted = executions.to_vec();
    sorted.sort_by(f64::total_cmp);
    let few = sorted.get(LEAST - 1);
    let many = sorted.len().checked_sub(LEAST).and_then(|at| sorted.get(at));
    few.zip(many).is_some_and(|(few, many)| *few > 0.0 && !are_as_many(*few, *many))
}

/// Collects the times of runs. A point consists of one or several runs. The time of a row at a
/// point is the median over the runs of the point.
pub fn history(points: &[Vec<Recorded>], by: By) -> History {
    let time = |row: &RunRow| row.dispatch_p50_ns.or(row.mean_ns).filter(|ns| *ns > 0.0);
    let mut places: HashMap<&Identity, usize> = HashMap::new();
    let mut rows: Vec<(&Identity, Vec<Option<f64>>)> = Vec::new();
    for (at, runs) in points.iter().enumerate() {
        let mut of_point: HashMap<&Identity, Vec<f64>> = HashMap::new();
        for row in runs.iter().flat_map(|run| &run.rows) {
            if !places.contains_key(&row.identity) {
                places.insert(&row.identity, rows.len());
                rows.push((&row.identity, vec![None; points.len()]));
            }
            of_point.entry(&row.identity).or_default().extend(time(row));
        }
        for (identity, times) in of_point {
            rows[places[identity]].1[at] = median(&times);
        }
    }
    let unknown = points.iter().flatten().flat_map(|run| run.parts(by));
    let unknown = unknown.filter(|row| row.own_ns.is_none()).map(|row| row.identity.clone());
    let numbers = executions(points, |run| run.parts(by)).into_iter();
    let differing = numbers.filter(|(_, numbers)| differ(numbers));
    let parts = Parts {
        unknown: unknown.collect(),
        all: differing.map(|(identity, _)| identity.clone()).collect(),
    };
    let of_run = |run: &Recorded| parts.sum(run.parts(by), part_of);
    let whole = points.iter().map(|runs| {
        let all: Option<Vec<f64>> = runs.iter().map(of_run).collect();
        median(&all?)
    });
    let all = rows.len();
    let whole = whole.collect();
    let mut numbers = executions(points, |run| &run.rows);
    let known = |(identity, times): (&Identity, Vec<Option<f64>>)| {
        let times = times.into_iter().collect::<Option<Vec<f64>>>()?;
        let executions = numbers.remove(identity)?;
        Some(HistoryRow { identity: identity.clone(), times, executions })
    };
    let rows: Vec<HistoryRow> = rows.into_iter().filter_map(known).collect();
    History { whole, left_out: all - rows.len(), rows }
}

/// Returns the change points of each row, the earliest first. `rows` must contain a positive time
/// for each point of each row. With fewer than [`FEWEST`] points, there are no change points.
///
/// Cost: rows × points² × orders.
pub fn change_points(rows: &[Vec<f64>]) -> Vec<Vec<ChangePoint>> {
    let points = rows.first().map_or(0, Vec::len);
    let logs: Vec<Vec<f64>> =
        rows.iter().map(|row| row.iter().map(|value| value.ln()).collect()).collect();
    if points < FEWEST {
        return vec![Vec::new(); rows.len()];
    }
    let distances: Vec<Distances> = logs.iter().map(|row| Distances::new(row)).collect();
    let found = tested(&distances, LEVEL);
    let each = LEVEL / rows.len() as f64;
    let of_row = |(row, found): (&Vec<f64>, Option<(usize, f64)>)| {
        let Some((at, p)) = found else { return Vec::new() };
        let mut splits = vec![(at, p)];
        inside(row, 0, at, each, &mut splits);
        inside(row, at, points, each, &mut splits);
        splits.sort_by_key(|(at, _)| *at);
        let starts: Vec<usize> = splits.iter().map(|(at, _)| *at).collect();
        let end = |i: usize| starts.get(i + 1).copied().unwrap_or(points);
        let begin = |i: usize| if i == 0 { 0 } else { starts[i - 1] };
        let point = |(i, (at, p)): (usize, &(usize, f64))| {
            let (change, interval) = shift(&row[begin(i)..*at], &row[*at..end(i)]);
            ChangePoint { at: *at, change, interval, p: *p }
        };
        splits.iter().enumerate().map(point).collect()
    };
    logs.iter().zip(found).map(of_row).collect()
}

/// Adds the splits that are found between the points `from` and `to` of a row.
fn inside(row: &[f64], from: usize, to: usize, level: f64, splits: &mut Vec<(usize, f64)>) {
    if to - from < FEWEST {
        return;
    }
    let found = tested(&[Distances::new(&row[from..to])], level);
    if let Some((at, p)) = found.into_iter().next().flatten() {
        splits.push((from + at, p));
        inside(row, from, from + at, level, splits);
        inside(row, from + at, to, level, splits);
    }
}

/// Returns the best split of each row with its p-value. `None` if this p is above the level.
fn tested(rows: &[Distances], level: f64) -> Vec<Option<(usize, f64)>> {
    let points = rows.first().map_or(0, |row| row.points);
    let mut order: Vec<usize> = (0..points).collect();
    let best: Vec<(usize, f64)> = rows.iter().map(|row| row.best(&order)).collect();
    let mut reached = vec![1usize; rows.len()];
    let mut state = SEED;
    for _ in 1..ORDERS {
        for i in (1..points).rev() {
            order.swap(i, (split_mix(&mut state) % (i as u64 + 1)) as usize);
        }
        let largest = rows.iter().map(|row| row.best(&order).1).fold(0.0, f64::max);
        for (reached, (_, q)) in reached.iter_mut().zip(&best) {
            // In another order, the same numbers can add up to a slightly different sum, so there
            // is a small tolerance.
            *reached += usize::from(largest >= q * (1.0 - 1e-9));
        }
    }
    let p = |(n, (at, q)): (usize, (usize, f64))| {
        let p = n as f64 / ORDERS as f64;
        (q > 0.0 && p <= level).then_some((at, p))
    };
    reached.into_iter().zip(best).map(p).collect()
}

/// The distances between all points of a row, divided by the mean distance.
struct Distances {
    points: usize,
    all: Vec<f64>,
    /// For each point, the sum of its distances to all other points.
    sums: Vec<f64>,
    /// The sum of the distances over all pairs of points.
    total: f64,
}

impl Distances {
    fn new(row: &[f64]) -> Self {
        let points = row.len();
        let mut all: Vec<f64> =
            row.iter().flat_map(|a| row.iter().map(move |b| (a - b).abs())).collect();
        let pairs = (points * points.saturating_sub(1)) as f64;
        let mean = all.iter().sum::<f64>() / pairs.max(1.0);
        if mean > 0.0 {
            all.iter_mut().for_each(|one| *one /= mean);
        }
        let sums: Vec<f64> =
            (0..points).map(|a| all[a * points..(a + 1) * points].iter().sum()).collect();
        let total = sums.iter().sum::<f64>() / 2.0;
        Self { points, all, sums, total }
    }

    /// Returns the split with the largest Q for the points in this order, and its Q. Of splits with
    /// equal Q, the first one is returned.
    fn best(&self, order: &[usize]) -> (usize, f64) {
        let n = self.points;
        // The sums of the distances over three kinds of pairs: both points are before the split,
        // one is on each side, or both are after it.
        let (mut before, mut between, mut after) = (0.0, 0.0, self.total);
        let mut best = (LEAST, 0.0);
        for at in 1..n {
            // This point moves to the left side of the split.
            let moved = order[at - 1];
            let row = &self.all[moved * n..(moved + 1) * n];
            let to_left: f64 = order[..at - 1].iter().map(|b| row[*b]).sum();
            let to_right = self.sums[moved] - to_left;
            before += to_left;
            after -= to_right;
            between += to_right - to_left;
            if at < LEAST || n - at < LEAST {
                continue;
            }
            let (x, y) = (at as f64, (n - at) as f64);
            let inside = before / (x * (x - 1.0) / 2.0) + after / (y * (y - 1.0) / 2.0);
            let q = x * y / (x + y) * (2.0 * between / (x * y) - inside);
            if q > best.1 * (1.0 + 1e-12) {
                best = (at, q);
            }
        }
        best
    }
}

/// Returns the shift between two samples of logarithms as a relative change (0.05 for 5 %), with
/// its interval.
fn shift(before: &[f64], after: &[f64]) -> (f64, [f64; 2]) {
    let mut all: Vec<f64> = after.iter().flat_map(|b| before.iter().map(move |a| b - a)).collect();
    all.sort_by(f64::total_cmp);
    let (m, n) = (before.len() as f64, after.len() as f64);
    let outside = m * n / 2.0 - 1.96 * (m * n * (m + n + 1.0) / 12.0).sqrt();
    // With few points, the interval reaches from the smallest difference to the largest.
    let low = (outside.floor().max(0.0) as usize).min(all.len().saturating_sub(1) / 2);
    let part = |log: f64| log.exp_m1();
    let middle = median(&all).unwrap_or(0.0);
    (part(middle), [part(all[low]), part(all[all.len() - 1 - low])])
}
