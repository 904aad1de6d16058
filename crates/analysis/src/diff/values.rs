//! Computes the value of a row of the comparison in each run.

use std::collections::HashMap;

use super::matching::{Match, Relation};
use super::ranks::median;
use super::recorded::{Identity, Recorded, RunRow};
use super::verdict::{Asked, Verdict};
use super::{DiffRow, Side, Statistic};
use crate::estimate::Estimate;
use crate::sampled::Estimated;

/// Numbers of calls that differ by at most this factor are taken for equal.
const AS_MANY: f64 = 1.1;

/// The rows of all runs of one side.
pub struct Sides {
    /// Every row that occurs in any of the runs.
    pub identities: Vec<Identity>,
    /// Number of rows of the first run. In `identities`, these rows come first, in the order of the
    /// first run. Other rows follow, because their place in the order is not known.
    pub in_first: usize,
    /// For each run, its rows, at the same indices as in `identities`. `None` if the run does not
    /// have the row.
    pub runs: Vec<Vec<Option<RunRow>>>,
}

impl Sides {
    pub fn new(runs: &[Recorded], rows_of: impl Fn(&Recorded) -> Vec<RunRow>) -> Self {
        let mut identities: Vec<Identity> = Vec::new();
        let mut numbers: HashMap<Identity, usize> = HashMap::new();
        let rows: Vec<Vec<RunRow>> = runs.iter().map(rows_of).collect();
        let in_first = rows.first().map_or(0, Vec::len);
        for row in rows.iter().flatten() {
            numbers.entry(row.identity.clone()).or_insert_with(|| {
                identities.push(row.identity.clone());
                identities.len() - 1
            });
        }
        let runs = rows.into_iter().map(|rows| {
            let mut placed = vec![None; identities.len()];
            for row in rows {
                let place = numbers[&row.identity];
                placed[place] = Some(row);
            }
            placed
        });
        let runs = runs.collect();
        Self { identities, in_first, runs }
    }

    /// Returns the given rows of a run, which are one side of a match. `None` if one of them is
    /// missing, or if `rows` is empty.
    fn of(&self, run: usize, rows: &[usize]) -> Option<Vec<&RunRow>> {
        let found: Option<Vec<&RunRow>> =
            rows.iter().map(|row| self.runs[run][*row].as_ref()).collect();
        found.filter(|found| !found.is_empty())
    }

    fn side(&self, rows: &[usize]) -> Option<Side> {
        let found: Vec<Vec<&RunRow>> =
            (0..self.runs.len()).filter_map(|run| self.of(run, rows)).collect();
        let sum = |of: &dyn Fn(&RunRow) -> Option<f64>| {
            let sums = found.iter().filter_map(|rows| rows.iter().map(|row| of(row)).sum());
            median(&sums.collect::<Vec<f64>>())
        };
        let (calls, total_ns) = (sum(&|row| Some(row.calls as f64))?, sum(&|row| row.total_ns));
        Some(Side {
            runs: found.len(),
            calls,
            executions: sum(&|row| Some(row.executions()))?,
            total_ns,
            own_ns: sum(&|row| row.own_ns),
            estimated_calls: estimated(
                &found,
                calls,
                |row| Some(row.calls as f64),
                |row| row.estimated_calls,
            ),
            estimated_total_ns: total_ns.and_then(|total| {
                estimated(&found, total, |row| row.total_ns, |row| row.estimated_total_ns)
            }),
        })
    }
}

/// Returns `value` (the median over several runs) with an interval. The interval's ends are the
/// medians of the ends of the runs' intervals, widened if necessary to contain `value`. `None` if
/// no run's value is an estimate.
fn estimated(
    found: &[Vec<&RunRow>],
    value: f64,
    exact: fn(&RunRow) -> Option<f64>,
    of: fn(&RunRow) -> Option<Estimated>,
) -> Option<Estimated> {
    let mut all = found.iter().flatten().filter_map(|row| of(row)).peekable();
    all.peek()?;
    let is_known = all.all(|one| one.interval.is_some());
    let end = |end: fn(Estimate) -> f64| {
        let of_row = |row: &&RunRow| match of(row) {
            Some(one) => one.interval.map(end),
            None => exact(row),
        };
        let sums = found.iter().filter_map(|rows| rows.iter().map(of_row).sum::<Option<f64>>());
        median(&sums.collect::<Vec<f64>>())
    };
    let ends = end(|all| all.low).zip(end(|all| all.high)).filter(|_| is_known);
    let within =
        |(low, high): (f64, f64)| Estimate { value, low: low.min(value), high: high.max(value) };
    Some(Estimated { value, interval: ends.map(within) })
}

/// The pairs of runs (of A and of B), and the number of runs on each side.
pub struct Pairs<'a> {
    pub pairs: &'a [(usize, usize)],
    pub runs: [usize; 2],
}

impl Pairs<'_> {
    /// Returns the runs of a side that are compared: those of the pairs, in the order of the pairs,
    /// or all if there are no pairs.
    pub fn runs_of(&self, side: usize) -> Vec<usize> {
        match self.pairs.is_empty() {
            true => (0..self.runs[side]).collect(),
            false => self.pairs.iter().map(|(a, b)| [*a, *b][side]).collect(),
        }
    }
}

/// A row without its verdict, and the statistics that must be tested for the verdict.
pub struct Prepared {
    pub row: DiffRow,
    pub asked: Vec<Asked>,
}

/// `other_executions` are the numbers of executions if they differ (see `executions`).
pub fn row(
    sides: &[Sides; 2],
    one: &Match,
    pairs: &Pairs<'_>,
    other_executions: Option<[f64; 2]>,
) -> Prepared {
    let rows = [&one.a, &one.b];
    let of: [Option<Side>; 2] = [0, 1].map(|side| sides[side].side(rows[side]));
    let both = of[0].is_some() && of[1].is_some();
    let known = |statistic| {
        let any = |side: usize| {
            let all = sides[side].runs.iter().flat_map(|run| rows[side].iter().map(|r| &run[*r]));
            all.flatten().any(|row| of_row(row, statistic, false).is_some())
        };
        any(0) && any(1)
    };
    let as_many = of[0].zip(of[1]).is_some_and(|(a, b)| are_as_many(a.calls, b.calls));
    let statistics = match both {
        false => vec![],
        true if other_executions.is_some() => vec![Statistic::Run],
        true if known(Statistic::Typical) => {
            let fastest = Statistic::Fastest;
            let of_row = Some(fastest).filter(|_| known(fastest) && as_many);
            of_row.into_iter().chain([Statistic::Floor, Statistic::Typical]).collect()
        }
        true => vec![Statistic::Mean],
    };
    let asked = statistics.into_iter().map(|statistic| ask(sides, one, pairs, statistic, &of));
    let identities = |side: usize| {
        rows[side].iter().map(|row| sides[side].identities[*row].clone()).collect::<Vec<_>>()
    };
    let asked = asked.collect();
    let row = DiffRow {
        relation: one.relation,
        a: identities(0),
        b: identities(1),
        sides: of,
        compared: vec![],
        verdict: Verdict::New,
        part: None,
        calls_differ: both && calls_differ(sides, rows),
        other_executions,
        readings: vec![],
    };
    Prepared { row, asked }
}

/// Whether the numbers of calls, or of executions, of the two sides differ by at most 10 %.
/// Otherwise, the shortest calls are not comparable, because the shortest of more calls is usually
/// shorter.
pub fn are_as_many(a: f64, b: f64) -> bool {
    (a / b).ln().abs() <= AS_MANY.ln()
}

/// Whether each side has the same exact number of calls in all of its runs, and the two numbers
/// differ.
fn calls_differ(sides: &[Sides; 2], rows: [&Vec<usize>; 2]) -> bool {
    let calls = |side: usize| {
        let runs = 0..sides[side].runs.len();
        let all: Option<Vec<u64>> = runs
            .map(|run| {
                let rows = sides[side].of(run, rows[side])?;
                let exact =
                    |row: &&RunRow| Some(row.calls).filter(|_| row.estimated_calls.is_none());
                rows.iter().map(exact).sum()
            })
            .collect();
        all.filter(|all| all.windows(2).all(|two| two[0] == two[1]))?.first().copied()
    };
    calls(0).zip(calls(1)).is_some_and(|(a, b)| a != b)
}

fn of_row(row: &RunRow, statistic: Statistic, by_dispatch: bool) -> Option<f64> {
    match statistic {
        Statistic::Fastest if by_dispatch => row.dispatch_min_ns,
        Statistic::Fastest => row.call_min_ns,
        Statistic::Floor if by_dispatch => row.dispatch_p10_ns,
        Statistic::Floor => row.call_p10_ns,
        Statistic::Typical => row.dispatch_p50_ns,
        Statistic::Mean => row.mean_ns,
        Statistic::Run => row.total_ns,
        Statistic::ProcessorTime => None,
    }
}

/// Returns the value of one statistic in each compared run. If one row corresponds to several rows
/// of the other side, the values of the several rows are added up. Each value is multiplied by its
/// row's number of executions per execution of the single row. If the two sides have different
/// numbers of workgroups per dispatch (different tilings), their single calls are not comparable.
/// In this case, and if one row corresponds to several, the floor (the 10th percentile) is computed
/// from dispatches.
fn ask(
    sides: &[Sides; 2],
    one: &Match,
    pairs: &Pairs<'_>,
    statistic: Statistic,
    of: &[Option<Side>; 2],
) -> Asked {
    let rows = [&one.a, &one.b];
    let single = match one.relation {
        Relation::Split => of[0],
        Relation::Joined => of[1],
        _ => None,
    };
    let per = |side: Option<Side>| side.map(|side| side.calls / side.executions.max(1.0));
    let by_dispatch = single.is_some() || per(of[0]) != per(of[1]);
    let values = [0, 1].map(|side| {
        let of_run = |run: usize| {
            let found = sides[side].of(run, rows[side])?;
            let value = |row: &RunRow| of_row(row, statistic, by_dispatch);
            let sum = match (found.as_slice(), single) {
                ([row], _) => value(row),
                (rows, Some(single)) => rows
                    .iter()
                    .map(|row| Some(value(row)? * row.executions() / single.executions.max(1.0)))
                    .sum(),
                _ => None,
            };
            // Ratios need a value above 0. The corrected time of a row that takes no longer than an
            // empty call may be 0 or less.
            sum.filter(|ns| *ns > 0.0)
        };
        pairs.runs_of(side).into_iter().map(of_run).collect()
    });
    Asked { statistic, values }
}

/// Returns how much of a run's time a row would take if each execution took as long as the typical
/// one. Counts self time. `None` if one of the needed times is not known.
pub fn part_of(row: &RunRow) -> Option<f64> {
    scaled(row, row.dispatch_p50_ns)
}

/// Like [`part_of`], but as if each execution took as long as the floor.
pub fn floor_of(row: &RunRow) -> Option<f64> {
    scaled(row, row.dispatch_p10_ns)
}

/// Like [`part_of`], as if each execution took as long as the fastest one.
pub fn fastest_of(row: &RunRow) -> Option<f64> {
    scaled(row, row.dispatch_min_ns)
}

fn scaled(row: &RunRow, execution: Option<f64>) -> Option<f64> {
    let (own, total) = (row.own_ns?, row.total_ns?);
    if total <= 0.0 {
        // The time is known, but not longer than the time that the recorder adds.
        return Some(0.0);
    }
    Some(own * (execution? * row.executions() / total))
}
