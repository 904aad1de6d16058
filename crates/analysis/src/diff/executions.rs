//! Finds the rows whose numbers of executions differ between A and B.
//!
//! If B does in one execution what A does in 64, then this execution takes longer than one of the
//! 64. Typical executions are not the same work then, so such a row is compared by what all of its
//! executions take together in a run, and all of its self time is its part of the whole:
//!
//! ```text
//!  row                  A: executions    B: executions    compared
//!  matmul                 640              640            typical execution
//!  fill                 7,200              110            all of them, in a run
//! ```
//!
//! If the numbers of most ops differ by the same factor, A and B did different amounts of the same
//! work, as benchmarks with a fixed duration do. Typical executions can be compared then, and times
//! in a run cannot.

use std::collections::HashSet;

use super::matching::Match;
use super::parts::{Part, difference};
use super::ranks::median;
use super::recorded::{Identity, RunRow};
use super::values::{Pairs, Sides, are_as_many, part_of};

/// `part_of`, `floor_of` or `fastest_of`.
pub type Scaled = fn(&RunRow) -> Option<f64>;

/// The rows of one side whose part of a run is not that of typical executions.
#[derive(Debug, Default)]
pub struct Parts {
    /// All self time of these rows is their part.
    pub all: HashSet<Identity>,
    /// The self time of these rows is not known in some run. They must be left out of all runs,
    /// because a run without them would seem to take less time.
    pub unknown: HashSet<Identity>,
}

impl Parts {
    /// Returns how much of a run's time a row would take if each execution took as long as `scaled`
    /// says. `None` if one of the needed times is not known.
    fn of(&self, row: &RunRow, scaled: Scaled) -> Option<f64> {
        match &row.identity {
            one if self.unknown.contains(one) => None,
            one if self.all.contains(one) => row.own_ns,
            _ => scaled(row),
        }
    }

    /// Returns the sum of the parts of a run's rows. `None` if the sum is not known or not above 0.
    pub fn sum(&self, rows: &[RunRow], scaled: Scaled) -> Option<f64> {
        let known = rows.iter().filter(|row| !self.unknown.contains(&row.identity));
        known.map(|row| self.of(row, scaled)).sum::<Option<f64>>().filter(|ns| *ns > 0.0)
    }
}

/// The numbers of executions of the rows of A and B.
#[derive(Debug, Default)]
pub struct Executions {
    /// For each match, the numbers of A and B if they differ by more than 10 %.
    pub differ: Vec<Option<[f64; 2]>>,
    /// The factor by which the numbers of most rows differ, if it is more than 10 %. `differ` has
    /// no numbers then.
    pub factor: Option<f64>,
    pub parts: [Parts; 2],
}

impl Executions {
    /// Compares the rows of ops.
    pub fn of_ops(sides: &[Sides; 2], found: &[Match], pairs: &Pairs<'_>) -> Self {
        let numbers: Vec<Option<[f64; 2]>> = found.iter().map(|one| numbers(sides, one)).collect();
        Self::new(sides, found, pairs, common_factor(&numbers))
    }

    /// Compares rows. `factor` is that of the ops.
    pub fn new(
        sides: &[Sides; 2],
        found: &[Match],
        pairs: &Pairs<'_>,
        factor: Option<f64>,
    ) -> Self {
        let differ = |one: &Match| {
            let differs = |[a, b]: &[f64; 2]| factor.is_none() && !are_as_many(*a, *b);
            numbers(sides, one).filter(differs)
        };
        let differ: Vec<Option<[f64; 2]>> = found.iter().map(differ).collect();
        let mut parts: [Parts; 2] = Default::default();
        for (one, differ) in found.iter().zip(&differ) {
            let rows = [&one.a, &one.b];
            let is_unknown = (0..2).any(|side| {
                let runs = pairs.runs_of(side).into_iter().map(|run| &sides[side].runs[run]);
                let mut all = runs.flat_map(|run| rows[side].iter().flat_map(|row| &run[*row]));
                all.any(|row| row.own_ns.is_none())
            });
            for ((parts, side), rows) in parts.iter_mut().zip(sides).zip(rows) {
                let identities = rows.iter().map(|row| side.identities[*row].clone());
                match (is_unknown, differ) {
                    (true, _) => parts.unknown.extend(identities),
                    (false, Some(_)) => parts.all.extend(identities),
                    (false, None) => {}
                }
            }
        }
        Self { differ, factor, parts }
    }

    /// Whether all self time of some row is its part of a run.
    pub fn any_differ(&self) -> bool {
        self.differ.iter().any(Option::is_some)
    }

    /// Returns a match's contribution to the difference between whole runs.
    pub fn difference(&self, sides: &[Sides; 2], one: &Match, pairs: &Pairs<'_>) -> Option<Part> {
        let rows = [&one.a, &one.b];
        let values = [0, 1].map(|side| {
            let of_run = |run: usize| {
                let found =
                    rows[side].iter().filter_map(|row| sides[side].runs[run][*row].as_ref());
                found.map(|row| self.parts[side].of(row, part_of)).sum::<Option<f64>>()
            };
            pairs.runs_of(side).into_iter().map(of_run).collect::<Option<Vec<f64>>>()
        });
        let [a, b] = values;
        difference(&a?, &b?, !pairs.pairs.is_empty())
    }
}

/// Returns the numbers of executions of A and B: the medians over all runs that have the row.
/// `None` if several rows correspond to one, if a number is not known or 0, or if the numbers are
/// estimates whose intervals overlap.
fn numbers(sides: &[Sides; 2], one: &Match) -> Option<[f64; 2]> {
    let ([a], [b]) = (one.a.as_slice(), one.b.as_slice()) else { return None };
    let rows = [*a, *b];
    let of = |side: usize| sides[side].runs.iter().flat_map(move |run| &run[rows[side]]);
    let by_dispatch = of(0).chain(of(1)).all(has_dispatches);
    let found = [0, 1].map(|side| {
        median(&of(side).map(|row| number(row, by_dispatch)).collect::<Vec<f64>>())
            .filter(|n| *n > 0.0)
    });
    let [Some(a), Some(b)] = found else { return None };
    if of(0).chain(of(1)).any(|row| row.estimated_calls.is_some()) {
        let ends = |side: usize| {
            let all: Option<Vec<[f64; 2]>> = of(side)
                .map(|row| match row.estimated_calls {
                    None => Some([row.calls as f64; 2]),
                    Some(calls) => calls.interval.map(|ends| [ends.low, ends.high]),
                })
                .collect();
            let all = all?;
            let end = |at: usize| median(&all.iter().map(|ends| ends[at]).collect::<Vec<f64>>());
            Some([end(0)?, end(1)?])
        };
        let ([low_a, high_a], [low_b, high_b]) = (ends(0)?, ends(1)?);
        if low_a <= high_b && low_b <= high_a {
            return None;
        }
    }
    Some([a, b])
}

/// Whether executions of the row are dispatches, and not calls.
pub fn has_dispatches(row: &RunRow) -> bool {
    row.dispatches.is_some_and(|n| n > 0)
}

/// Returns the number of executions: dispatches, or else calls.
pub fn number(row: &RunRow, by_dispatch: bool) -> f64 {
    row.dispatches.filter(|_| by_dispatch).unwrap_or(row.calls) as f64
}

/// Returns the factor (B divided by A) by which the numbers of at least half of the rows differ, up
/// to 10 %, if it differs from 1 by more than 10 %.
fn common_factor(numbers: &[Option<[f64; 2]>]) -> Option<f64> {
    let ratios: Vec<f64> = numbers.iter().flatten().map(|[a, b]| b / a).collect();
    let factor = median(&ratios).filter(|factor| !are_as_many(*factor, 1.0))?;
    let same = ratios.iter().filter(|ratio| are_as_many(**ratio, factor)).count();
    (2 * same >= ratios.len()).then_some(factor)
}

#[cfg(test)]
mod tests {
    use super::common_factor;

    #[test]
    fn most_rows_decide_whether_the_amount_of_work_differs() {
        let numbers = |all: &[(f64, f64)]| {
            let all: Vec<_> = all.iter().map(|(a, b)| Some([*a, *b])).collect();
            common_factor(&all)
        };
        assert_eq!(numbers(&[]), None);
        assert_eq!(numbers(&[(100.0, 100.0), (100.0, 105.0), (64.0, 1.0)]), None);
        assert_eq!(numbers(&[(100.0, 200.0), (50.0, 100.0), (64.0, 1.0)]), Some(2.0));
        // A program with one op may have a fixed duration.
        assert_eq!(numbers(&[(100.0, 125.0)]), Some(1.25));
        // The numbers of two ops differ in different ways.
        assert_eq!(numbers(&[(100.0, 100.0), (64.0, 1.0)]), None);
        assert_eq!(numbers(&[(100.0, 300.0), (100.0, 10.0), (10.0, 20.0)]), None);
    }
}
