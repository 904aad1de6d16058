//! Compares the counters and metrics of the two sides.
//!
//! A counter of a row is *exact* if all runs of A (at least two) have the same sum and number of
//! calls, and so have all runs of B. An example is the number of page faults of a program that does
//! the same in each run. If an exact counter differs between A and B, this is a fact that needs no
//! test. Other counters, and all metrics, are tested like times if their values are above 0. All
//! rows of one counter or metric are tested together.
//!
//! Counters are compared per call. In a row with another number of executions
//! ([`DiffRow::other_executions`]), they are compared by their sums in a run, as its time is.

use super::matching::Match;
use super::ranks::median;
use super::values::{Pairs, Sides};
use super::verdict::{Asked, Compared, Verdict, answer, decide};
use super::{DiffRow, Statistic, Untested};

/// The comparison of a counter or metric of a row.
#[derive(Clone, Debug)]
pub struct ReadingDiff {
    /// The name of the counter or metric.
    pub name: String,
    /// The unit of the counter or metric.
    pub unit: String,
    pub is_metric: bool,
    /// For a counter, compares the means per call or the sums in a run; for a metric, its values.
    pub compared: Option<Compared>,
    /// [`Statistic::Run`] if sums in a run are compared, else [`Statistic::Mean`].
    pub statistic: Statistic,
    /// The result of the comparison.
    pub reading: Known,
}

/// The result of comparing a counter or metric.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Known {
    /// All runs of both sides have the same sum and number of calls; or the same sum, if it is 0 or
    /// if sums in a run are compared.
    Equal,
    /// The counter is exact on both sides, but A and B are not equal.
    Fact {
        /// The sum in each run of A and of B.
        sums: [u128; 2],
        calls: [u64; 2],
    },
    /// The verdict of the test of a metric, or of a counter that is not exact.
    Tested(Verdict),
}

/// The value of a counter or metric in one run.
#[derive(Clone, Copy)]
struct Value {
    /// The mean per call, the sum in the run, or the value of a metric.
    value: f64,
    /// [`super::recorded::Reading::exact`].
    exact: Option<(u128, u64)>,
}

/// Adds the comparison of counters and metrics to each row of the comparison that matches exactly
/// one row of A with one row of B. Counters and metrics without values on one side are left out.
pub fn judge(
    rows: &mut [DiffRow],
    sides: &[Sides; 2],
    found: &[Match],
    pairs: &Pairs<'_>,
    untested: Option<Untested>,
    threshold: f64,
) {
    let mut names: Vec<(String, String, bool)> = Vec::new();
    for row in sides[0].runs.iter().flatten().flatten() {
        for one in &row.readings {
            let name = (one.name.clone(), one.unit.clone(), one.is_metric);
            if !names.contains(&name) {
                names.push(name);
            }
        }
    }
    for (name, unit, is_metric) in names {
        let mut of_rows = Vec::new();
        let mut asked = Vec::new();
        let mut shown = Vec::new();
        for (at, one) in found.iter().enumerate() {
            let ([a], [b]) = (one.a.as_slice(), one.b.as_slice()) else { continue };
            let statistic = match rows[at].other_executions {
                Some(_) if !is_metric => Statistic::Run,
                _ => Statistic::Mean,
            };
            let values = [0, 1].map(|side| {
                let row = [*a, *b][side];
                let of_run = |run: usize| {
                    let row = sides[side].runs[run][row].as_ref()?;
                    let reading = row.readings.iter().find(|one| one.name == name)?;
                    let calls = if statistic == Statistic::Run { row.calls as f64 } else { 1.0 };
                    Some(Value { value: reading.value * calls, exact: reading.exact })
                };
                pairs.runs_of(side).into_iter().map(of_run).collect::<Vec<Option<Value>>>()
            });
            if values.iter().any(|side| side.iter().all(Option::is_none)) {
                continue;
            }
            of_rows.push((at, [exact(&values[0]), exact(&values[1])]));
            let value = |side: &Vec<Option<Value>>| {
                side.iter().map(|one| Some((*one)?.value).filter(|v| *v > 0.0)).collect()
            };
            let with_zeros = values.iter().flatten().flatten().any(|one| one.value <= 0.0);
            shown.push(medians(statistic, &values).filter(|_| with_zeros));
            asked.push(Asked { statistic, values: [0, 1].map(|s| value(&values[s])) });
        }
        // A difference between exact counters is a fact, so it is not tested.
        let open: Vec<Asked> = asked
            .iter()
            .zip(&of_rows)
            .filter(|(_, (_, exact))| exact.iter().any(Option::is_none))
            .map(|(one, _)| one.clone())
            .collect();
        let mut answers = answer(&open, untested.is_none()).into_iter();
        for (((at, exact), one), shown) in of_rows.into_iter().zip(asked).zip(shown) {
            let statistic = one.statistic;
            let (compared, reading) = match exact {
                [Some(a), Some(b)] => {
                    let alone = answer(&[one], false).into_iter().next().flatten();
                    let fact = Known::Fact { sums: [a.0, b.0], calls: [a.1, b.1] };
                    let by_sum = a.0 == 0 || statistic == Statistic::Run;
                    let is_equal = a.0 == b.0 && (a.1 == b.1 || by_sum);
                    (alone, if is_equal { Known::Equal } else { fact })
                }
                _ => {
                    let decided = decide(&[answers.next().flatten()], untested, threshold);
                    (decided.compared.into_iter().next(), Known::Tested(decided.verdict))
                }
            };
            // The test needs ratios of values above 0. If some value is not above 0, the medians
            // are shown without a test.
            let compared = shown.or(compared);
            let (name, unit) = (name.clone(), unit.clone());
            rows[at].readings.push(ReadingDiff {
                name,
                unit,
                is_metric,
                compared,
                statistic,
                reading,
            });
        }
    }
}

/// Returns the medians of both sides without a test; values can be 0. `None` if a side has no
/// values.
fn medians(statistic: Statistic, values: &[Vec<Option<Value>>; 2]) -> Option<Compared> {
    let middle = |side: &Vec<Option<Value>>| {
        median(&side.iter().flatten().map(|one| one.value).collect::<Vec<f64>>())
    };
    let medians = [middle(&values[0])?, middle(&values[1])?];
    let change = if medians[0] == medians[1] { 0.0 } else { medians[1] / medians[0] - 1.0 };
    let (interval, interval_90) = (None, None);
    let (p, deviation, t) = (None, None, None);
    let pairs = 0;
    Some(Compared { statistic, medians, change, interval, interval_90, p, deviation, t, pairs })
}

/// Returns the sum and the number of calls, if there are several runs and these two numbers are the
/// same in all of them.
fn exact(runs: &[Option<Value>]) -> Option<(u128, u64)> {
    let all: Option<Vec<(u128, u64)>> = runs.iter().map(|one| (*one)?.exact).collect();
    let all = all.filter(|all| all.len() > 1 && all.windows(2).all(|two| two[0] == two[1]))?;
    all.first().copied()
}
