//! Decides what a sample shows about all calls of a row: an estimate with an interval, an estimate
//! without an interval, or nothing.
//!
//! A [`Pool`] adds up the [`Strata`] of the threads and ops of a row. The result depends on the
//! number of *drawn* calls, which were chosen at random to be timed. If their weights differ, it
//! depends on their effective number ([`Pool::drawn`]). The first calls of an op are timed anyway,
//! so they are not drawn.
//!
//! | known | result |
//! |---|---|
//! | every value | the exact sum |
//! | at least [`FEWEST_WITH_INTERVAL`] drawn calls | the estimate with its interval |
//! | at least nine tenths of the values, and [`FEWEST`] of them | the estimate with its interval, which allows the other values to be twice as large |
//! | at least [`FEWEST`] drawn calls, not all values 0 | the estimate without an interval |
//! | less | no estimate |
//!
//! The limits were found by simulation (`tests/coverage.rs`). The simulated times and counts are,
//! for example, constant, bimodal, drifting or periodic, or much larger in one call in 500; 1 to 10
//! % of the calls are drawn. If one call in 500 is slow, a sample of n calls contains no slow call
//! in e^(−n/500) of all cases. The scatter of such a sample does not show that slow calls exist.
//! With 300 drawn calls, 30 of 100 intervals contained the true sum; with 2,000 drawn calls, 95 of
//! 100.
//!
//! **Threads and ops without a drawn call.** Only the first of their calls have known values. If at
//! most a tenth of the row's calls have no known value for this reason, they are assumed to be like
//! the drawn calls. (With fewer than [`FEWEST`] drawn calls, they are assumed to be like all known
//! calls.) The interval then allows the sum over these calls to be 0, or twice the estimate.
//! Otherwise there is no estimate. The known values do not suffice then, because the first calls of
//! an op run with cold caches.
//!
//! **Zeros.** If a counter was 0 in all of n drawn calls, its mean over the other calls is at most
//! 3/n (with 95 % confidence, if it counts at most one event in a call). With few drawn calls this
//! limit is useless, so below [`FEWEST_WITH_INTERVAL`] there is no estimate, unless nine tenths of
//! the values are known.

use super::strata::{Drawn, Moments, Strata, Z};
use super::tail::Tail;
use super::values::Estimated;
use crate::interval::Sum;

/// With fewer drawn calls than this, there is usually no estimate. There is one if all values are
/// known, or if nine tenths of them and at least this many are.
pub const FEWEST: f64 = 30.0;
/// With fewer drawn calls than this, an estimate has no interval, unless nine tenths of the values
/// are known.
pub const FEWEST_WITH_INTERVAL: f64 = 2_000.0;
/// Calls without a known value are few if they are at most one in this many of the row's calls.
const MANY_TIMES: u64 = 10;
/// Practically infinite degrees of freedom, for a variance that was not computed from a sample.
const MANY: f64 = 1e9;

/// All calls of a row: how many there are, what is known of their values, and the estimated sum.
#[derive(Clone, Debug)]
pub struct Pool {
    calls: u64,
    /// Number of calls whose value is not known.
    left_out: u64,
    /// The part of `left_out` that belongs to threads and ops without a drawn call.
    lost: u64,
    /// The estimated sum over all calls except those that `lost` counts.
    sum: Sum,
    seen: f64,
    known: Moments,
    drawn: Drawn,
}

impl Default for Pool {
    fn default() -> Self {
        Self {
            calls: 0,
            left_out: 0,
            lost: 0,
            sum: Sum::exact(0.0),
            seen: 0.0,
            known: Moments::default(),
            drawn: Drawn::default(),
        }
    }
}

impl Pool {
    /// Estimates the sum over the `lost` calls, with the mean of the drawn calls of other threads
    /// and ops. Does nothing if `lost` is more than a tenth of all calls, or if fewer than
    /// [`FEWEST`] calls were drawn.
    pub(super) fn estimate_undrawn(&mut self) {
        let few = self.lost.saturating_mul(MANY_TIMES) <= self.calls;
        if self.lost > 0 && few && self.drawn() >= FEWEST {
            self.sum.add(&self.of_lost(self.drawn.mean()));
            self.lost = 0;
        }
    }

    fn of_lost(&self, mean: f64) -> Sum {
        Sum::sampled(self.lost as f64 * mean, Some(self.doubt(self.lost, mean)), MANY, 0.0)
    }

    /// Returns the variance of a sum over `calls` calls without known values, if the sum was
    /// estimated from a mean of other calls. The standard deviation is at least the estimate
    /// itself, so the interval reaches from 0 to twice the estimate or further. If the mean is 0,
    /// the interval reaches to 3/n per call, where n is the number of known calls: with 95 %
    /// confidence, an event that happened in none of n calls happens in at most 3/n of all calls.
    fn doubt(&self, calls: u64, mean: f64) -> f64 {
        if mean <= 0.0 {
            let most = 3.0 * calls as f64 / self.known.count().max(1) as f64;
            return (most / Z).powi(2);
        }
        let scatter = calls as f64 * self.known.variance().unwrap_or(0.0);
        (calls as f64 * mean).powi(2) + scatter
    }

    pub(super) fn join(&mut self, other: &Self) {
        self.calls = self.calls.saturating_add(other.calls);
        self.left_out = self.left_out.saturating_add(other.left_out);
        self.lost = self.lost.saturating_add(other.lost);
        self.sum.add(&other.sum);
        self.seen += other.seen;
        self.known.join(&other.known);
        self.drawn.add(&other.drawn);
    }

    /// Adds the calls of one op on one thread. Their number is `calls`, or the number in `strata`
    /// if that is larger. Returns the estimated sum over these calls. Without a drawn call, returns
    /// the sum of the known values.
    pub fn add(&mut self, strata: &Strata, calls: u64, tail: &Tail) -> f64 {
        let calls = calls.max(strata.mentioned());
        let (known, seen) = (strata.known_values(), strata.seen());
        let left_out = calls - known.count();
        self.calls = self.calls.saturating_add(calls);
        self.left_out = self.left_out.saturating_add(left_out);
        self.seen += seen;
        self.known.join(&known);
        if left_out == 0 || !strata.any_drawn() {
            self.sum.add(&Sum::exact(seen));
            self.lost = self.lost.saturating_add(left_out);
            return seen;
        }
        self.drawn.add(&strata.drawn(calls));
        let Some(sum) = strata.total_with(calls, tail) else { return seen };
        self.sum.add(&sum);
        sum.value()
    }

    /// Returns the number of calls.
    pub fn calls(&self) -> u64 {
        self.calls
    }

    /// Returns the number of calls whose value is known.
    pub fn known(&self) -> u64 {
        self.known.count()
    }

    /// Returns the effective number of drawn calls: this many calls that are drawn with equal
    /// weights would be as informative.
    pub fn drawn(&self) -> f64 {
        self.drawn.effective()
    }

    /// Returns the estimated sum over all calls. `None` if there is no estimate.
    pub fn sum(&self) -> Option<Sum> {
        if self.left_out == 0 {
            return Some(self.sum);
        }
        let drawn = self.drawn();
        let few_left = self.left_out.saturating_mul(MANY_TIMES) <= self.calls;
        let few_lost = self.lost.saturating_mul(MANY_TIMES) <= self.calls;
        let enough = self.known.count() as f64 >= FEWEST;
        let mut sum = self.sum;
        if self.lost > 0 {
            let mean = if drawn >= FEWEST { self.drawn.mean() } else { self.known.mean() };
            sum.add(&self.of_lost(mean));
        }
        if drawn >= FEWEST_WITH_INTERVAL && few_lost {
            return Some(sum);
        }
        if few_left && enough {
            let variance = Some(self.doubt(self.left_out, self.known.mean()));
            sum.add(&Sum::sampled(0.0, variance, MANY, 0.0));
            return Some(sum);
        }
        let tells = drawn >= FEWEST && few_lost && self.drawn.any_other_than_0();
        tells.then(|| Sum::sampled(sum.value(), None, 1.0, 0.0))
    }

    /// Returns the estimated sum, with its interval if that is known.
    pub fn total(&self) -> Option<Estimated> {
        Some(Estimated::at_least(&self.sum()?, self.seen))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strata(drawn: u64, weight: u64, value: impl Fn(u64) -> f64) -> Strata {
        let mut strata = Strata::default();
        for i in 0..drawn {
            strata.skip(weight - 1);
            strata.add(weight, value(i));
        }
        strata
    }

    fn of(strata: &Strata, calls: u64) -> Option<Estimated> {
        let mut pool = Pool::default();
        pool.add(strata, calls, &Tail::default());
        pool.total()
    }

    /// A counter was 0 in 950 of 1,000 calls, and was not read in the other 50. In these 50 calls,
    /// it counted at most 3/950 per call.
    #[test]
    fn nothing_in_most_calls_is_not_nothing_in_all() {
        let mut zeros = Strata::default();
        (0..950).for_each(|_| zeros.add(1, 0.0));
        let all = of(&zeros, 1_000).unwrap();
        assert_eq!(all.value, 0.0);
        assert!(!all.is_exact(), "{all:?}");
        let high = all.interval.unwrap().high;
        assert!((150.0 / 950.0..300.0 / 950.0).contains(&high), "{high}");
    }

    /// Eight first calls, with cold caches, show nothing about the op's 92 other calls. If at most
    /// a tenth of the calls are unknown, they are assumed to be like the known ones.
    #[test]
    fn first_calls_stand_for_themselves() {
        let mut cold = Strata::default();
        (0..8).for_each(|_| cold.add(1, 900.0));
        assert_eq!(of(&cold, 100), None);
        assert!(of(&cold, 8).is_some_and(|all| all.is_exact() && all.value == 7_200.0));
        assert_eq!(of(&cold, 9), None);
        let mut pool = Pool::default();
        (0..10).for_each(|_| {
            pool.add(&cold, 8, &Tail::default());
        });
        pool.add(&Strata::default(), 5, &Tail::default());
        let all = pool.total().expect("few are missing");
        let interval = all.interval.expect("an interval");
        assert_eq!((all.value, interval.low), (76_500.0, 72_000.0));
        assert!(interval.high > 81_000.0, "{all:?}");
    }

    #[test]
    fn the_number_of_drawn_calls_decides() {
        let some = |n: u64| strata(n, 20, |i| 100.0 + (i % 3) as f64);
        assert_eq!(of(&some(29), 29 * 20), None);
        let found = of(&some(30), 600).expect("30 calls were drawn");
        assert!((found.value - 60_600.0).abs() < 1e-6 && found.interval.is_none(), "{found:?}");
        let found = of(&some(2_000), 40_000).expect("2,000 calls were drawn");
        let interval = found.interval.expect("an interval");
        assert!(interval.contains(40_000.0 * 101.0) && interval.half() < 2_000.0, "{found:?}");
    }

    /// The counter was 0 in all drawn calls. If 2,000 of 40,000 calls were drawn, it counted at
    /// most 38,000 · 3/2,000 = 57 in the other calls.
    #[test]
    fn zeros() {
        let zeros = |n: u64| strata(n, 20, |_| 0.0);
        assert_eq!(of(&zeros(500), 10_000), None);
        let found = of(&zeros(2_000), 40_000).expect("2,000 calls were drawn");
        let interval = found.interval.expect("an interval");
        assert_eq!((found.value, interval.low), (0.0, 0.0));
        assert!((interval.high - 57.0).abs() < 0.01, "{found:?}");
    }

    /// If a thread without a drawn call made a twentieth of all calls, the interval allows that
    /// thread's calls to take twice as long as estimated. If it made about a fifth of all calls,
    /// there is no estimate.
    #[test]
    fn threads_without_drawn_calls() {
        let mut pool = Pool::default();
        pool.add(&strata(2_000, 19, |_| 100.0), 38_000, &Tail::default());
        let before = pool.total().expect("drawn").interval.expect("an interval");
        pool.add(&Strata::default(), 2_000, &Tail::default());
        let all = pool.total().expect("few are missing");
        let interval = all.interval.expect("an interval");
        assert!((all.value - 4e6).abs() < 1.0, "{all:?}");
        assert!(interval.low >= before.low - 2e5 && interval.contains(4.2e6), "{all:?}");
        pool.add(&Strata::default(), 8_000, &Tail::default());
        assert_eq!(pool.total(), None);
    }
}
