//! Compares two sets of runs, A and B, for example of two versions of a program. The verdict about
//! all rows (usually ops) together, and about each row, says that B is slower than A, is faster, or
//! takes the same time, or that this cannot be decided.
//!
//! ```text
//!  Profile ─ recorded ─► rows of one run, each with its two statistics
//!  runs of A, runs of B ─ matching ─► which row is which
//!                       ─ executions ► rows that B executes more or less often than A
//!                       ─ values ───► one number for each run, row and statistic
//!                       ─ verdict ──► differences of pairs: test (flips), interval (ranks), words
//!                       ─ whole ────► the verdict about all rows together, and what each adds to the difference
//!                       ─ counters ─► counters and metrics
//! ```
//!
//! Calls of one run are not independent of each other, and runs that follow each other have more in
//! common than runs an hour apart. So a statistic has one value for each run, and the comparison
//! compares these values of the two runs of a pair. The runs of a pair were recorded back to back,
//! in random order. docs/diff.md describes this procedure and its measured rates of wrong verdicts.
//!
//! Most rows, such as those of ops, have two statistics in each run (and a third if their fastest
//! calls can be compared). The *floor* is usually the 10th percentile of the durations of single
//! calls. Other work on the machine changes it little. The *typical* execution is the median of the
//! durations of dispatches (of calls if the row has no dispatches). The duration of a dispatch is
//! the sum over its workgroups. For rows that are loops or modules, only a mean is known.

pub mod across;
pub mod counters;
mod executions;
pub mod flips;
pub mod history;
pub mod matching;
mod parts;
pub mod ranks;
pub mod recorded;
mod values;
pub mod verdict;
mod whole;

use counters::ReadingDiff;
use executions::Executions;
use matching::{Relation, matches};
pub use parts::Part;
use recorded::{By, Identity, Recorded, RunRow};
use verdict::{Compared, Decided, Verdict, decide};
pub use whole::Whole;

use crate::sampled::Estimated;

/// With fewer pairs than this, no difference is tested. The test compares the observed signs of the
/// pairs' differences with all other combinations of signs. With 5 pairs, there are 32
/// combinations, of which at least two are as extreme as the observed one: itself and its opposite.
/// 2 of 32 is more than 5 %.
pub const FEWEST_PAIRS: usize = 6;

/// The options of a comparison.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The kind of the rows, for example ops.
    pub by: By,
    /// A row counts as the same if no difference was found and its 90 % intervals, except that of
    /// the fastest call, are within ± this threshold (0.03 for 3 %). It must be above 0.
    pub threshold: f64,
}

/// The reason why nothing is tested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Untested {
    /// The runs are not in pairs that were recorded in random order.
    NotPaired,
    /// There are fewer than [`FEWEST_PAIRS`] pairs.
    TooFew(usize),
}

/// A statistic that is computed for each run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Statistic {
    /// The shortest call. If A and B have different numbers of calls in a dispatch, or if a row is
    /// split or joined, the shortest dispatch.
    Fastest,
    /// 10th percentile of single calls. If A and B have different numbers of calls in a dispatch,
    /// or if a row is split or joined, of dispatches.
    Floor,
    /// Median over dispatches.
    Typical,
    /// Mean over calls.
    Mean,
    /// The sum of the durations of all calls in a run.
    Run,
    /// The processor time of the whole run.
    ProcessorTime,
}

impl Statistic {
    pub fn name(self) -> &'static str {
        match self {
            Self::Fastest => "fastest",
            Self::Floor => "floor",
            Self::Typical => "typical",
            Self::Mean => "mean",
            Self::Run => "run",
            Self::ProcessorTime => "processor_time",
        }
    }
}

/// The result of [`compare`].
#[derive(Clone, Debug)]
pub struct Diff {
    /// Number of pairs of runs; 0 if the runs are not paired.
    pub pairs: usize,
    /// Number of runs of A and of B.
    pub runs: [usize; 2],
    /// The reason why nothing is tested; `None` if the rows are tested.
    pub untested: Option<Untested>,
    /// The factor by which B has more executions of most ops than A, if it is more or less than 1 by
    /// over 10 %. A and B then did different amounts of work.
    pub factor: Option<f64>,
    /// The comparison of all rows together.
    pub whole: Whole,
    /// The comparison of the processor times of the whole program.
    pub processor: Decided,
    /// The rows: first those that A has, then those that only B has. Both are in the order in which
    /// they were matched.
    pub rows: Vec<DiffRow>,
}

/// A row of a comparison.
#[derive(Clone, Debug)]
pub struct DiffRow {
    /// How the rows of the two sides were matched.
    pub relation: Relation,
    /// The rows of A; several if B joins them in one row.
    pub a: Vec<Identity>,
    /// The rows of B; several if a row of A is split in B.
    pub b: Vec<Identity>,
    /// The row's numbers on each side, as medians over the runs; `None` if no run of the side has
    /// the row.
    pub sides: [Option<Side>; 2],
    /// The compared statistics: floor, typical execution and, if it can be compared, the fastest
    /// one; or only the mean; or only all executions together.
    pub compared: Vec<Compared>,
    pub verdict: Verdict,
    /// The row's contribution to the difference between the runs. `None` if a time that is needed
    /// for it is not known, or is no part of a run's time.
    pub part: Option<Part>,
    /// Whether the exact number of calls of the row is the same in all runs of A and in all runs of
    /// B, but differs between A and B.
    pub calls_differ: bool,
    /// The numbers of executions in a run of A and of B, if they differ by more than 10 %. What is
    /// compared is then what all of them take together ([`Statistic::Run`]).
    pub other_executions: Option<[f64; 2]>,
    /// The comparison of each counter and metric.
    pub readings: Vec<ReadingDiff>,
}

impl DiffRow {
    /// Returns the first identity in `b` or, if B does not have the row, in `a`.
    pub fn identity(&self) -> Option<&Identity> {
        self.b.first().or(self.a.first())
    }

    pub fn of(&self, statistic: Statistic) -> Option<&Compared> {
        self.compared.iter().find(|one| one.statistic == statistic)
    }
}

/// The numbers of a row on one side, as medians over the runs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Side {
    /// Number of runs that have the row.
    pub runs: usize,
    pub calls: f64,
    /// Number of dispatches, or of calls if there are no dispatches.
    pub executions: f64,
    /// Sum of the durations.
    pub total_ns: Option<f64>,
    /// Sum of the self times.
    pub own_ns: Option<f64>,
    /// The number of calls with its interval. `None` if no run's number of calls is an estimate.
    pub estimated_calls: Option<Estimated>,
    /// The sum of the durations with its interval. `None` if no run's sum is an estimate.
    pub estimated_total_ns: Option<Estimated>,
}

/// Compares runs. Each element of `pairs` contains the indices, in `a` and in `b`, of two runs that
/// were recorded back to back, in random order. `pairs` is empty if the runs are not paired.
pub fn compare(
    a: &[Recorded],
    b: &[Recorded],
    pairs: &[(usize, usize)],
    options: &Options,
) -> Diff {
    let untested = match pairs.len() {
        0 => Some(Untested::NotPaired),
        n if n < FEWEST_PAIRS => Some(Untested::TooFew(n)),
        _ => None,
    };
    let matched = |by: By, rows: fn(&Recorded) -> &[RunRow]| {
        let sides = [a, b].map(|runs| values::Sides::new(runs, |run| rows(run).to_vec()));
        // The rows of modules, activities and datasets are not in the order of the program.
        let is_program = !matches!(by, By::Module | By::Activity)
            && !a.iter().chain(b).any(|run| run.is_unordered);
        let in_order = [0, 1].map(|side| if is_program { sides[side].in_first } else { 0 });
        let found = matches(&sides[0].identities, &sides[1].identities, in_order);
        (sides, found)
    };
    let in_pairs = values::Pairs { pairs, runs: [a.len(), b.len()] };
    let (sides, found) = matched(options.by, |run| &run.rows);
    let of_ops = match options.by {
        By::Op => Executions::of_ops(&sides, &found, &in_pairs),
        _ => {
            let (sides, found) = matched(By::Op, |run| &run.ops);
            Executions::of_ops(&sides, &found, &in_pairs)
        }
    };
    let executions = Executions::new(&sides, &found, &in_pairs, of_ops.factor);
    let mut rows: Vec<(DiffRow, usize)> = Vec::new();
    let mut asked: Vec<verdict::Asked> = Vec::new();
    for (one, differ) in found.iter().zip(&executions.differ) {
        let row = values::row(&sides, one, &in_pairs, *differ);
        let from = asked.len();
        asked.extend(row.asked);
        rows.push((row.row, from));
    }
    let all_parts = whole::Parts::new(a, b, options.by, &in_pairs, &of_ops);
    let from = asked.len();
    asked.extend(all_parts.asked());
    let answers = verdict::answer(&asked, untested.is_none());
    let decided = |from: usize, to: usize| -> Decided {
        decide(&answers[from..to], untested, options.threshold)
    };
    let ends: Vec<usize> = rows.iter().skip(1).map(|(_, from)| *from).chain([from]).collect();
    let mut rows: Vec<DiffRow> = rows
        .into_iter()
        .zip(ends)
        .map(|((mut row, from), to)| {
            let decided = decided(from, to);
            row.compared = decided.compared;
            row.verdict = match row.relation {
                Relation::New => Verdict::New,
                Relation::Gone => Verdict::Gone,
                _ => decided.verdict,
            };
            row
        })
        .collect();
    let whole = all_parts.finish(decided(from, answers.len()), &in_pairs, a, b);
    let processor = processor([a, b], &in_pairs, untested, options.threshold);
    for (row, one) in rows.iter_mut().zip(&found) {
        row.part = executions.difference(&sides, one, &in_pairs);
    }
    counters::judge(&mut rows, &sides, &found, &in_pairs, untested, options.threshold);
    rows.sort_by_key(|row| row.relation == Relation::New);
    Diff {
        pairs: pairs.len(),
        runs: [a.len(), b.len()],
        untested,
        factor: of_ops.factor,
        whole,
        processor,
        rows,
    }
}

/// Compares the processor time of runs. It is tested separately from the times of calls, so it does
/// not change their verdicts.
fn processor(
    sides: [&[Recorded]; 2],
    pairs: &values::Pairs<'_>,
    untested: Option<Untested>,
    threshold: f64,
) -> Decided {
    let of_side = |side: usize| {
        let runs = pairs.runs_of(side).into_iter();
        runs.map(|run| sides[side][run].processor_ns.filter(|ns| *ns > 0.0)).collect()
    };
    let (statistic, values) = (Statistic::ProcessorTime, [0, 1].map(of_side));
    let asked = [verdict::Asked { statistic, values }];
    decide(&verdict::answer(&asked, untested.is_none()), untested, threshold)
}
