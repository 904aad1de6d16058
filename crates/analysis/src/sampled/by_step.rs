//! Estimates numbers of calls, with intervals, if calls were counted only in some steps
//! (iterations) of the program.
//!
//! A host (a runtime such as PyTorch) may announce its ops only in randomly chosen steps
//! ([`profile::CountedSteps`]). Steps without announcements are called *away*. The sample consists
//! of the n steps with announcements. A step of the sample makes c calls, and was chosen with the
//! probability 1/w, where w is its weight:
//!
//! ```text
//!   c̅ = Σ w·c / Σ w     m = (Σ w)² / Σ w²     s² = n/(n − 1) · (Σ w·c² / Σ w − c̅²)
//!   calls in the A steps that were away: A · c̅,  with the variance s² · A · (A + m) / m + (3 · A · c̅ / (1.96 · m))²
//! ```
//!
//! With equal weights, m is n. The first part of the variance is then N²·(1 − n/N)·s²/n, where N =
//! A + n is the number of all steps (Cochran, *Sampling Techniques*, chapter 2). The second part is
//! for steps that are unlike every step of the sample. With 95 % confidence, at most 3/m of all
//! steps are of this kind; they may make no call, or twice as many as the mean. Usually, all steps
//! make the same number of calls; then s² is 0, and only the second part is above 0. Skewness
//! shifts the ends of the interval, as in [`super::strata`]. There is no interval if m is below
//! [`FEWEST`], or if the steps of the sample made no calls. If it is not known whether the last
//! away step ended, the program may not have made all of this step's calls, so the lower end is
//! reduced by c̅. A row may have several exports (functions of executables) and threads. Their
//! numbers of calls are estimated from the same steps, so they are not independent, and the widths
//! of their intervals are added.

use profile::{CountedCalls, CountedSteps};

use super::Estimated;
use super::strata::Z;
use crate::estimate::Estimate;
use crate::interval::Sum;

/// The uncertainty of a row's number of calls if calls were not counted in some steps.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ByStep {
    is_any: bool,
    /// Whether any of the intervals that were added up is unknown.
    is_unknown: bool,
    /// The distance from the number of calls to the lower end of the interval.
    below: f64,
    /// The distance from the number of calls to the upper end of the interval.
    above: f64,
}

impl ByStep {
    pub fn add(&mut self, of: Option<&CountedSteps>) {
        let Some(of) = of else { return };
        self.is_any = true;
        match interval(of) {
            Some(found) => {
                self.below += found.value - found.low;
                self.above += found.high - found.value;
            }
            None => self.is_unknown = true,
        }
    }

    /// Returns `calls` with its interval. `None` if `calls` is exact.
    pub fn calls(&self, calls: u64) -> Option<Estimated> {
        let value = calls as f64;
        let (low, high) = (value - self.below, value + self.above);
        let interval = (!self.is_unknown).then_some(Estimate { value, low, high });
        self.is_any.then_some(Estimated { value, interval })
    }

    /// Widens the interval of a sum over `calls` calls, if this number of calls is an estimate.
    pub fn widen(&self, sum: Estimated, calls: u64) -> Estimated {
        if !self.is_any || calls == 0 {
            return sum;
        }
        let each = sum.value.abs() / calls as f64;
        let wider = |of: Estimate| Estimate {
            value: of.value,
            low: (of.low - each * self.below).max(of.low.min(0.0)),
            high: of.high + each * self.above,
        };
        let interval = sum.interval.filter(|_| !self.is_unknown).map(wider);
        Estimated { interval, ..sum }
    }
}

/// Returns the number of calls of an export (function of an executable) on a thread, with its
/// interval. `None` if the number is exact.
pub fn calls_of(of: &CountedCalls) -> Option<Estimated> {
    let mut one = ByStep::default();
    one.add(of.steps.as_ref());
    one.calls(of.calls)
}

/// The smallest m, the effective number of steps in the sample, for which there is an interval. It
/// was found by simulation (`tests/coverage.rs`): if one step in ten makes ten times as many calls,
/// intervals from 30 steps contain the true number in only half of all cases.
const FEWEST: f64 = 60.0;
/// Practically infinite degrees of freedom, for a variance that was not computed from a sample.
const MANY: f64 = 1e9;

/// Estimates the number of calls that were not counted. `None` if the sample has too few steps for
/// an interval, or if its steps made no calls.
fn interval(of: &CountedSteps) -> Option<Estimate> {
    let (n, weight, away) = (of.sampled as f64, of.weight as f64, of.away as f64);
    if of.sampled < 2 || of.weight == 0 || of.squared_weight == 0 || of.sum == 0 {
        return None;
    }
    let mean = of.sum as f64 / weight;
    let m = weight * weight / of.squared_weight as f64;
    if m < FEWEST {
        return None;
    }
    let variance = n / (n - 1.0) * (of.squares as f64 / weight - mean * mean);
    // The squares of large numbers are rounded, so a variance that should be 0 may be slightly
    // above or below it.
    let variance = if variance < 1e-9 * mean * mean { 0.0 } else { variance };
    let value = of.unseen as f64;
    // At most 3/m of the away steps are unlike all steps of the sample. The mean is taken as at
    // least 1, because a step that is unlike the others makes at least one call more or less.
    let doubt = 3.0 / m * away * mean.max(1.0) / Z;
    let freedom = if variance > 0.0 { m - 1.0 } else { MANY };
    let steps = away + m;
    let part = away / steps;
    // The third central moment, if most steps make no call and all others make equally many.
    let third = variance * variance / mean;
    let skew = steps.powi(3) * part * (2.0 * part - 1.0) * third / (m * m);
    let variance = variance * away * steps / m + doubt * doubt;
    let sum = Sum::sampled(value, Some(variance), freedom, skew);
    let found = sum.interval()?;
    let low = if of.is_open { found.low - mean } else { found.low };
    Some(Estimate { low: low.max(0.0).min(value), ..found })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(weights: &[(u64, u64)], away: u64) -> CountedSteps {
        let sum = |of: &dyn Fn(&(u64, u64)) -> u64| weights.iter().map(of).sum::<u64>();
        let (weight, calls) = (sum(&|(w, _)| *w), sum(&|(w, c)| w * c));
        CountedSteps {
            unseen: calls * away / weight,
            away,
            is_open: false,
            sampled: weights.len() as u64,
            weight,
            squared_weight: sum(&|(w, _)| w * w),
            sum: calls,
            squares: sum(&|(w, c)| w * c * c),
        }
    }

    /// The sample is 100 of 500 steps, which make 4, 6, 5 and 5 calls in turn: c̅ = 5, s² = 50/99.
    /// So the variance of the calls in the other 400 steps is 500² · (1 − 100/500) · (50/99)/100 =
    /// 1,010.1. For steps that are unlike these, (3 · 400 · 5 / 196)² = 937.1 is added. The
    /// skewness is below 0.01, and t(0.975; 99) = 1.9842.
    #[test]
    fn equal_weights_are_the_textbooks_sample() {
        let of = steps(&[(3, 4), (3, 6), (3, 5), (3, 5)].repeat(25), 400);
        let found = interval(&of).expect("an interval");
        assert_eq!((of.unseen, found.value), (2_000, 2_000.0));
        let half = 1.9842 * (1_010.1f64 + 937.1).sqrt();
        assert!((found.high - 2_000.0 - half).abs() < 0.5, "{found:?}, ± {half}");
    }

    #[test]
    fn at_most_3_of_as_many_steps_differ_from_steps_with_the_same_calls() {
        let of = steps(&[(4, 7)].repeat(100), 300);
        let found = interval(&of).expect("an interval");
        assert!(
            (found.high - 2_163.0).abs() < 0.01 && (found.low - 2_037.0).abs() < 0.01,
            "{found:?}"
        );
        let open = interval(&CountedSteps { is_open: true, ..of }).expect("an interval");
        assert!((open.low - 2_030.0).abs() < 0.01 && open.high == found.high, "{open:?}");
        // There is no interval if the sample has no calls, or too few steps.
        assert_eq!(interval(&steps(&[(4, 0)].repeat(100), 300)), None);
        assert_eq!(interval(&steps(&[(4, 7)].repeat(59), 300)), None);
    }

    #[test]
    fn one_step_says_nothing_of_others() {
        let mut row = ByStep::default();
        row.add(None);
        assert_eq!(row.calls(9), None);
        row.add(Some(&steps(&[(2, 7)], 3)));
        assert_eq!(row.calls(28), Some(Estimated { value: 28.0, interval: None }));
        let sum = Estimated { value: 5.0, interval: Some(Estimate::exact(5.0)) };
        assert_eq!(row.widen(sum, 28).interval, None);
    }

    /// 100 calls took 1,000. There may be up to 10 more calls, or up to 20 fewer.
    #[test]
    fn sums_are_as_uncertain_as_their_number_of_calls() {
        let row = ByStep { is_any: true, is_unknown: false, below: 20.0, above: 10.0 };
        let sum = Estimated { value: 1_000.0, interval: Some(Estimate::within(1_000.0, 50.0)) };
        let found = row.widen(sum, 100).interval.expect("an interval");
        assert_eq!((found.low, found.high), (750.0, 1_150.0));
    }
}
