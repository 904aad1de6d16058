//! Computes verdicts from the values of statistics in each run.

use super::flips::{adjusted_p, paired_t, winsorised};
use super::ranks::{Interval, deviation, interval, median};
use super::{Statistic, Untested};

/// The highest probability with which a difference is reported although no row differs.
pub const LEVEL: f64 = 0.05;
/// The largest number of pairs that a verdict proposes. If more would be needed, the machine is too
/// noisy.
const MOST_PAIRS: f64 = 60.0;
/// This is 1.96 + 0.84, the normal quantiles for the level and for the power. With the number of
/// pairs that is computed from this sum, a difference as large as the threshold is found in 4 of 5
/// series (a power of 80 %).
const POWER: f64 = 2.8;

/// One statistic of a row that must be tested for a verdict.
#[derive(Clone, Debug)]
pub struct Asked {
    pub statistic: Statistic,
    /// The value of the statistic in each run of A and of B; `None` if the run has no value. Paired
    /// runs are in the order of the pairs.
    pub values: [Vec<Option<f64>>; 2],
}

/// The comparison of one statistic of a row.
#[derive(Clone, Debug, PartialEq)]
pub struct Compared {
    pub statistic: Statistic,
    /// The medians over the runs of A and of B: times in ns, counters in their unit.
    pub medians: [f64; 2],
    /// The relative difference: B divided by A, minus 1. It is computed from the Hodges-Lehmann
    /// estimate over the pairs or, if the statistic was not tested, from the medians. Infinite for
    /// a counter whose median is 0 in A but not in B.
    pub change: f64,
    /// The ends of the 95 % interval of `change`. `None` if the statistic was not tested.
    pub interval: Option<[f64; 2]>,
    /// The ends of the 90 % interval of `change`.
    pub interval_90: Option<[f64; 2]>,
    /// The adjusted p-value: the probability that chance alone makes such a large difference in any
    /// of the tested rows. `None` if the statistic was not tested.
    pub p: Option<f64>,
    /// The standard deviation, over the pairs, of the difference of the logarithms.
    pub deviation: Option<f64>,
    /// |t| of the winsorised differences.
    pub t: Option<f64>,
    /// The number of pairs; 0 if the statistic was not tested.
    pub pairs: usize,
}

/// A relative difference with its interval: 0.05 for 5 % more.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Change {
    /// The statistic in which the row differs.
    pub statistic: Statistic,
    /// The estimated change. Negative if B's value is smaller.
    pub by: f64,
    /// The ends of the 95 % interval.
    pub interval: [f64; 2],
    /// Whether the typical execution (a median) changed, but the floor (a 10th percentile) did not:
    /// no difference was found in the floor or the fastest call, and the floor's 95 % interval
    /// contains 0. Possible causes are contention, caches, or a change in some of the calls.
    pub floor_unchanged: bool,
}

/// The verdict about a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Verdict {
    /// The row is slower or faster in B.
    Differs(Change),
    /// The row takes the same time on both sides, up to this relative threshold: 0.03 for 3 %.
    Same(f64),
    /// It could not be decided whether the row differs.
    Unknown {
        /// Half of the length of the difference's 95 % interval.
        half_width: f64,
        /// The proposed number of pairs, which is more than were recorded. `None` if more than 60
        /// pairs would be needed: then the machine is too noisy.
        pairs: Option<u32>,
    },
    /// The row was not tested, because the runs are not paired, or because there are too few pairs.
    Untested(Untested),
    /// No statistic has a value on both sides. If rows are tested, a statistic needs a value in
    /// both runs of each pair.
    Missing,
    /// Only B has the row.
    New,
    /// Only A has the row.
    Gone,
}

impl Verdict {
    /// Returns the difference, if there is one.
    pub fn change(&self) -> Option<&Change> {
        match self {
            Self::Differs(change) => Some(change),
            _ => None,
        }
    }
}

/// The comparison of each statistic of a row, and the verdict.
#[derive(Clone, Debug)]
pub struct Decided {
    /// One element for each statistic that has a value on both sides.
    pub compared: Vec<Compared>,
    /// The verdict from all statistics together.
    pub verdict: Verdict,
}

/// Compares the values of A and B for each element of `asked`. `None` if a side has no value.
///
/// If `is_paired`, all elements with a value in both runs of each pair are tested together. So if A
/// and B do not differ at all, the probability that a difference is found in any element is at most
/// [`LEVEL`].
pub fn answer(asked: &[Asked], is_paired: bool) -> Vec<Option<Compared>> {
    let mut differences: Vec<Option<Vec<f64>>> =
        asked.iter().map(|one| differences(one).filter(|_| is_paired)).collect();
    let family: Vec<Vec<f64>> = differences.iter().flatten().cloned().collect();
    let mut adjusted = adjusted_p(&family).into_iter();
    asked
        .iter()
        .zip(&mut differences)
        .map(|(one, found)| {
            let known = |side: usize| {
                median(&one.values[side].iter().copied().flatten().collect::<Vec<f64>>())
            };
            let medians = [known(0)?, known(1)?];
            let part = |log: f64| log.exp_m1();
            let ends = |found: Interval| [part(found.low), part(found.high)];
            let of_pairs = found.take();
            let exact = of_pairs.as_ref().and_then(|d| interval(d, 0.95));
            let p = of_pairs.as_ref().and_then(|_| adjusted.next());
            Some(Compared {
                statistic: one.statistic,
                medians,
                change: exact.map_or(medians[1] / medians[0] - 1.0, |found| part(found.estimate)),
                interval: exact.map(ends),
                interval_90: of_pairs.as_ref().and_then(|d| interval(d, 0.9)).map(ends),
                p: p.filter(|_| exact.is_some()),
                deviation: of_pairs.as_ref().and_then(|d| deviation(d)),
                t: of_pairs.as_ref().map(|d| paired_t(&winsorised(d))),
                pairs: of_pairs.as_ref().map_or(0, Vec::len),
            })
        })
        .collect()
}

/// Returns the difference of the logarithms for each pair. `None` if there are no pairs, or a pair
/// lacks a value or has no finite difference.
fn differences(one: &Asked) -> Option<Vec<f64>> {
    let [a, b] = &one.values;
    if a.len() != b.len() || a.is_empty() {
        return None;
    }
    a.iter().zip(b).map(|(a, b)| Some(((*b)? / (*a)?).ln()).filter(|d| d.is_finite())).collect()
}

/// Combines the comparisons of a row's statistics into a verdict. If no difference counts, and the
/// 90 % intervals of all statistics but the fastest call are within ± `threshold`, the verdict is
/// `Same`.
pub fn decide(answers: &[Option<Compared>], untested: Option<Untested>, threshold: f64) -> Decided {
    let compared: Vec<Compared> = answers.iter().flatten().cloned().collect();
    let verdict = match untested {
        _ if compared.is_empty() => Verdict::Missing,
        Some(why) => Verdict::Untested(why),
        None => tested(&compared, threshold),
    };
    Decided { compared, verdict }
}

fn differs(one: &Compared) -> bool {
    one.p.is_some_and(|p| p <= LEVEL)
}

/// Returns whether a difference was found in the fastest call that counts for a verdict. The fastest
/// call decides only where the other statistics are too noisy. If they are known well enough to
/// contradict it, that call is unlike the others. It is so exact that other addresses, or a
/// neighbour that leaves other data in the cache, change it by a part of a percent. So a change of
/// less than half of `threshold` does not count either.
pub fn fastest_counts(compared: &[Compared], threshold: f64) -> bool {
    let is_fastest = |one: &&Compared| one.statistic == Statistic::Fastest;
    let Some(fastest) = compared.iter().find(is_fastest).filter(|one| differs(one)) else {
        return false;
    };
    let is_large = fastest.change.ln_1p().abs() >= (threshold / 2.0).ln_1p();
    let mut others = compared.iter().filter(|one| !is_fastest(one) && one.p.is_some());
    is_large && others.all(|other| allows(other, fastest.change))
}

fn tested(compared: &[Compared], threshold: f64) -> Verdict {
    let known: Vec<&Compared> = compared.iter().filter(|one| one.p.is_some()).collect();
    if known.is_empty() {
        return Verdict::Missing;
    }
    let others = || known.iter().copied().filter(|one| one.statistic != Statistic::Fastest);
    let fastest_counts = fastest_counts(compared, threshold);
    let counts =
        |one: &Compared| differs(one) && (one.statistic != Statistic::Fastest || fastest_counts);
    // If several statistics differ, the verdict contains the typical execution, because users notice
    // its difference.
    let changed = known.iter().filter(|one| counts(one)).max_by_key(|one| one.statistic);
    if let Some(one) = changed
        && let Some(interval) = one.interval
    {
        let statistic = one.statistic;
        // The floor can differ even if the test found no difference in it, so its interval must
        // contain 0, too.
        let may_be_equal =
            |one: &Compared| one.interval.is_some_and(|[low, high]| low <= 0.0 && high >= 0.0);
        let of = |statistic| known.iter().find(|one| one.statistic == statistic);
        let floor_unchanged = statistic == Statistic::Typical
            && of(Statistic::Floor).is_some_and(|one| !differs(one) && may_be_equal(one))
            && !of(Statistic::Fastest).is_some_and(|one| differs(one));
        return Verdict::Differs(Change { statistic, by: one.change, interval, floor_unchanged });
    }
    let limit = threshold.ln_1p();
    let within = |one: &&Compared| is_within(one.interval_90, limit);
    if others().all(|one| within(&one)) {
        return Verdict::Same(threshold);
    }
    // Of the statistics whose interval is not within the threshold, the noisiest one is the reason
    // why nothing can be decided. The fastest call is left out, because it alone does not say how
    // typical calls changed.
    let spread = |one: &Compared| one.deviation.unwrap_or(f64::INFINITY);
    let open = others().filter(|one| !within(one));
    let noisiest = open.max_by(|x, y| spread(x).total_cmp(&spread(y)));
    let half_width = noisiest
        .and_then(|one| one.interval)
        .map_or(f64::INFINITY, |[low, high]| ((high.ln_1p() - low.ln_1p()) / 2.0).exp_m1());
    let deviation = noisiest.map_or(f64::INFINITY, spread);
    // The recorded pairs were not enough, so at least one more is proposed.
    let recorded = noisiest.map_or(0, |one| one.pairs);
    let pairs = (POWER * deviation / limit).powi(2).ceil() + 2.0;
    let pairs = pairs.max((recorded + 1) as f64);
    let pairs = (pairs <= MOST_PAIRS).then_some(pairs as u32);
    Verdict::Unknown { half_width, pairs }
}

/// Whether an interval is known, and within ± `limit` (a logarithm).
fn is_within(interval: Option<[f64; 2]>, limit: f64) -> bool {
    interval.is_some_and(|[low, high]| low.ln_1p() >= -limit && high.ln_1p() <= limit)
}

/// Whether a change is possible according to a statistic: whether it is in the statistic's 95 %
/// interval, made twice as wide, because such an interval misses the true change in 5 % of cases.
fn allows(statistic: &Compared, change: f64) -> bool {
    statistic.interval.is_some_and(|[low, high]| {
        let half = (high - low) / 2.0;
        (low - half..=high + half).contains(&change)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes a result without a difference, whose pairs scatter by `deviation`.
    fn compared(statistic: Statistic, deviation: f64, half: f64) -> Compared {
        let interval = Some([(-half).exp_m1(), half.exp_m1()]);
        Compared {
            statistic,
            medians: [1.0, 1.0],
            change: 0.0,
            interval,
            interval_90: interval,
            p: Some(0.9),
            deviation: Some(deviation),
            t: Some(0.1),
            pairs: 10,
        }
    }

    /// The number of pairs is computed from the noisy statistic, for which nothing could be
    /// decided.
    #[test]
    fn a_statistic_that_is_known_does_not_say_how_many_pairs_it_takes() {
        let quiet = compared(Statistic::Floor, 0.005, 0.004);
        let noisy = compared(Statistic::Typical, 0.05, 0.04);
        let settled = decide(&[Some(quiet), Some(noisy.clone())], None, 0.03);
        let Verdict::Unknown { half_width, pairs } = settled.verdict else {
            panic!("{:?}", settled.verdict)
        };
        // In logarithms, the interval reaches from −0.04 to 0.04.
        assert!((half_width - 0.04f64.exp_m1()).abs() < 1e-12, "{half_width}");
        let expected = (POWER * 0.05 / 0.03f64.ln_1p()).powi(2).ceil() + 2.0;
        assert_eq!(pairs, Some(expected as u32));
        let many = Compared { pairs: 40, ..noisy };
        let Verdict::Unknown { pairs, .. } = decide(&[Some(many)], None, 0.03).verdict else {
            panic!("it is known")
        };
        assert_eq!(pairs, Some(41));
    }

    /// A change of the fastest call that was found, with an interval of ± 0.2 %.
    fn found(by: f64) -> Compared {
        let interval = Some([by - 0.002, by + 0.002]);
        let of = compared(Statistic::Fastest, 0.003, 0.0);
        Compared {
            change: by,
            interval,
            interval_90: interval,
            p: Some(0.002),
            t: Some(90.0),
            ..of
        }
    }

    #[test]
    fn the_fastest_call_decides_where_typical_calls_vary() {
        let others = |deviation: f64, half: f64| {
            [Statistic::Floor, Statistic::Typical].map(|one| Some(compared(one, deviation, half)))
        };
        let verdict = |by: f64, [floor, typical]: [Option<Compared>; 2]| {
            decide(&[Some(found(by)), floor, typical], None, 0.03).verdict
        };
        let slower = verdict(0.05, others(0.14, 0.1));
        let change = slower.change().expect("the fastest call differs");
        assert_eq!((change.statistic, change.by), (Statistic::Fastest, 0.05));
        assert!(!change.floor_unchanged);
        // The intervals of the other two statistics end at 10.5 %; made twice as wide, they end at
        // 20.5 %, so 30 % is outside.
        let Verdict::Unknown { half_width, .. } = verdict(0.3, others(0.14, 0.1)) else {
            panic!("typical calls cannot be 30 % slower")
        };
        assert!((half_width - 0.1f64.exp_m1()).abs() < 1e-12, "{half_width}");
        assert_eq!(verdict(0.3, others(0.01, 0.008)), Verdict::Same(0.03));
        // A change of the fastest call by less than half of the threshold does not count.
        assert!(matches!(verdict(0.014, others(0.14, 0.1)), Verdict::Unknown { .. }));
        assert!(verdict(0.016, others(0.14, 0.1)).change().is_some());
    }

    #[test]
    fn a_floor_is_unchanged_if_the_fastest_call_is_too() {
        let typical = Compared { statistic: Statistic::Typical, ..found(0.05) };
        let floor = compared(Statistic::Floor, 0.01, 0.08);
        let of = |fastest: Compared| {
            let all = [Some(fastest), Some(floor.clone()), Some(typical.clone())];
            let change = decide(&all, None, 0.03).verdict.change().copied();
            change.map(|change| (change.statistic, change.floor_unchanged))
        };
        assert_eq!(of(found(0.05)), Some((Statistic::Typical, false)));
        let same = compared(Statistic::Fastest, 0.003, 0.002);
        assert_eq!(of(same.clone()), Some((Statistic::Typical, true)));
        // Nothing was found in the floor, but its 95 % interval does not contain 0.
        let floor = Compared { interval: Some([0.01, 0.07]), ..floor };
        let all = [Some(same), Some(floor), Some(typical)];
        let change = decide(&all, None, 0.03).verdict.change().copied();
        assert_eq!(change.map(|change| change.floor_unchanged), Some(false));
    }
}
