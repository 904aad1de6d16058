//! Compares whole runs, and divides their difference into a part that typical executions explain
//! and a remainder.
//!
//! Whole runs are compared at typical cost: the time that all ops together would take if each
//! execution took as long as the typical one. They are also compared at the floor: as if each
//! execution took as long as the op's 10th percentile. An op with another number of executions in B
//! counts with all of its self time (see `executions`). For paired runs, the contribution of a row
//! to the difference is the mean of the pairs' differences. Such means can be added, so the
//! contributions of the rows and the remainder add up to the difference of the recorded times. The
//! *remainder* is the time that typical executions do not explain, for example slow calls and first
//! calls.

use super::Statistic;
use super::executions::{Executions, Scaled};
use super::parts::{Part, difference};
use super::ranks::median;
use super::recorded::{By, Recorded};
use super::values::{Pairs, are_as_many, fastest_of, floor_of, part_of};
use super::verdict::{Asked, Compared, Decided, Verdict};

/// The comparison of all ops together.
#[derive(Clone, Debug)]
pub struct Whole {
    /// The fastest, the floor and the typical execution, each summed over all ops. Ops with another
    /// number of executions count with all of their self time.
    pub compared: Vec<Compared>,
    pub verdict: Verdict,
    /// Time in recorded calls, in ns: the median over the runs of each side.
    pub total_ns: [Option<f64>; 2],
    /// Whether `total_ns` is an estimate, because some run of the side had a budget (a limit for
    /// the cost of recording).
    pub estimated: [bool; 2],
    /// The sum of the threads' wall times outside of recorded calls, in ns: the median over the
    /// runs of each side.
    pub between_ns: [Option<f64>; 2],
    /// The difference of the recorded times. For paired runs, it is the mean of the pairs'
    /// differences, which need not be the difference of the medians in `total_ns`. It is the sum of
    /// `explained` and `remainder`.
    pub difference: Option<Part>,
    /// The difference if each execution took as long as the op's typical one. Ops with another number
    /// of executions count with all of their self time.
    pub explained: Option<Part>,
    /// The part of `difference` that `explained` does not include.
    pub remainder: Option<Part>,
    /// Whether some op has another number of executions.
    pub counts_all: bool,
}

/// The time of all ops together at typical cost and at the floor, for each side and run.
pub struct Parts {
    typical: [Vec<Option<f64>>; 2],
    floor: [Vec<Option<f64>>; 2],
    fastest: [Vec<Option<f64>>; 2],
    /// [`Whole::counts_all`].
    counts_all: bool,
}

impl Parts {
    pub fn new(
        a: &[Recorded],
        b: &[Recorded],
        by: By,
        pairs: &Pairs<'_>,
        executions: &Executions,
    ) -> Self {
        let sum = |side: usize, of: Scaled| {
            let runs = [a, b][side];
            let all = pairs
                .runs_of(side)
                .into_iter()
                .map(|run| executions.parts[side].sum(runs[run].parts(by), of));
            all.collect::<Vec<_>>()
        };
        // The number of calls of the ops in which the time is: the geometric mean over all ops,
        // weighted by their own time.
        let calls = [0, 1].map(|side| {
            let of_run = |run: usize| {
                let (mut sum, mut all) = (0.0, 0.0);
                for row in [a, b][side][run].parts(by).iter().filter(|row| row.calls > 0) {
                    let own = row.own_ns.unwrap_or(0.0);
                    (sum, all) = (sum + own * (row.calls as f64).ln(), all + own);
                }
                (all > 0.0).then(|| (sum / all).exp())
            };
            let all = pairs.runs_of(side).into_iter().filter_map(of_run);
            median(&all.collect::<Vec<f64>>())
        });
        let fastest = match calls {
            [Some(a), Some(b)] if are_as_many(a, b) => [0, 1].map(|side| sum(side, fastest_of)),
            _ => [vec![], vec![]],
        };
        Self {
            typical: [0, 1].map(|side| sum(side, part_of)),
            floor: [0, 1].map(|side| sum(side, floor_of)),
            fastest,
            counts_all: executions.any_differ(),
        }
    }

    pub fn asked(&self) -> Vec<Asked> {
        let all = [
            (Statistic::Fastest, &self.fastest),
            (Statistic::Floor, &self.floor),
            (Statistic::Typical, &self.typical),
        ];
        let is_known = |side: &Vec<Option<f64>>| side.iter().any(Option::is_some);
        let known = all.into_iter().filter(|(statistic, values)| {
            *statistic != Statistic::Fastest || values.iter().all(is_known)
        });
        known.map(|(statistic, values)| Asked { statistic, values: values.clone() }).collect()
    }

    pub fn finish(
        self,
        decided: Decided,
        pairs: &Pairs<'_>,
        a: &[Recorded],
        b: &[Recorded],
    ) -> Whole {
        let of = |side: usize, value: &dyn Fn(&Recorded) -> Option<f64>| {
            let runs = [a, b][side];
            pairs.runs_of(side).into_iter().map(|run| value(&runs[run])).collect::<Vec<_>>()
        };
        let known = |values: Vec<Option<f64>>| values.into_iter().collect::<Option<Vec<f64>>>();
        let middle =
            |values: Vec<Option<f64>>| median(&values.into_iter().flatten().collect::<Vec<f64>>());
        let is_paired = !pairs.pairs.is_empty();
        let [typical_a, typical_b] = self.typical.map(known);
        let totals = [0, 1].map(|side| known(of(side, &|run| run.total_ns)));
        let explained = typical_a
            .as_ref()
            .zip(typical_b.as_ref())
            .and_then(|(a, b)| difference(a, b, is_paired));
        let rest = |side: usize, typical: &Option<Vec<f64>>| {
            let totals = totals[side].as_ref()?;
            let typical = typical.as_ref()?;
            Some(totals.iter().zip(typical).map(|(all, part)| all - part).collect::<Vec<f64>>())
        };
        let all = totals[0].as_ref().zip(totals[1].as_ref());
        let all = all.and_then(|(a, b)| difference(a, b, is_paired));
        let rests = rest(0, &typical_a).zip(rest(1, &typical_b));
        let remainder = match (is_paired, all, explained) {
            (true, ..) => rests.and_then(|(a, b)| difference(&a, &b, true)),
            // Differences of medians do not add up, so the remainder is computed by subtraction.
            (false, Some(all), Some(of)) => Some(Part { ns: all.ns - of.ns, interval: None }),
            (false, ..) => None,
        };
        Whole {
            compared: decided.compared,
            verdict: decided.verdict,
            total_ns: [0, 1].map(|side| middle(of(side, &|run| run.total_ns))),
            estimated: [a, b].map(|runs| runs.iter().any(|run| run.sampled)),
            between_ns: [0, 1].map(|side| middle(of(side, &|run| run.between_ns))),
            difference: all,
            explained,
            remainder,
            counts_all: self.counts_all,
        }
    }
}
