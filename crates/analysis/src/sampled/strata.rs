//! Estimates the sum over all calls of an op on one thread if not all of them were timed.
//!
//! In a run with a budget for the cost of recording (`run --budget`), each thread chooses at random
//! which calls it times. A call is chosen with the probability 1/`weight`, independently of other
//! calls. Calls that are not chosen are only counted. The count is exact, so the size of the
//! population is known:
//!
//! ```text
//!   calls      t t t t t t t t · · t · · · · t · t · · · · · · · t · · ·      t timed   · only counted
//!   weight     1 1 1 1 1 1 1 1     4         4   4               8            (tail: 3 calls)
//!              └─ all timed ─┘ └───────── class 2 ──┘└── class 3 ──────┘
//! ```
//!
//! **Strata** (Cochran, *Sampling Techniques*, 3rd edition, chapter 5). Timed calls form a *class*
//! if their weights are equal after rounding down to a power of two. Calls that were only counted
//! belong to the class of the next timed call. But a call of weight 1 represents only itself: while
//! the weight is 1, every call is timed. So calls that were only counted before a call of weight 1,
//! or after the last timed call, belong to the class of the last timed call with a larger weight.
//!
//! ```text
//!   weight 1        T₁ = Σ y                                                 exact
//!   class h         y̅ = Σ w·y / Σ w      m = (Σ w)² / Σ w²
//!                   s² = n/(n − 1) · Σ w·(y − y̅)² / Σ w
//!                   T_h = N_h · y̅        V_h = N_h² · (1 − n/N_h) · s²/m
//!                   k = n²/((n − 1)(n − 2)) · Σ w·(y − y̅)³ / Σ w
//!                   K_h = N_h³ · (1 − n/N_h) · (1 − 2n/N_h) · k/m²
//!   total           T = T₁ + Σ T_h       V = Σ V_h       K = Σ K_h
//!   95 % interval   T ± t(0.975; ν) · √V,    ν = V² / Σ (V_h² / (m − 1))     (Satterthwaite)
//!                   and the skewness K/V^(3/2) shifts both ends: see `Sum::interval` of loops
//! ```
//!
//! **Rare slow calls** may be missing in the sample of an op. A [`Tail`] estimates, from the
//! samples of all ops, how much rare slow calls add to the variance. This amount is added to s².
//!
//! If all weights of a class are equal, the formulas above are those of the textbooks for a
//! stratified sample: y̅ is the mean, m is n, and s² is the variance of the sample. There is not
//! one stratum per weight, because the recorder, which adjusts the weight to keep the budget, may
//! choose a different weight for almost every timed call. With one stratum per weight, most strata
//! would have a single call, and no variance.
//!
//! **Equal values.** If all timed values of a class are equal, at most 3/m of the other values
//! differ from them, with 95 % confidence. Each differing value may be 0 or twice as large as the
//! timed values; if these are 0, it may be 1.
//!
//! **Few timed calls.** A class with a single timed call has no s². The s² of the nearest class
//! that has one is used instead. If no class has one, the interval is that for equal values. If
//! some calls were only counted, and no timed call has a weight above 1, there is no estimate: the
//! first calls of an op are not a sample of the others. (Their caches are cold. In a measurement, a
//! total that was estimated from first calls was up to 15 times too high.)
//! [`Pool`](super::pool::Pool) decides how many drawn calls a row needs.
//!
//! **Counters** are sampled in two stages: the recorder reads counters in some of the timed calls.
//! The weight is then the product of the weights of both stages. A timed call whose counters were
//! not read is treated like a call that was only counted.

use super::tail::Tail;
use crate::interval::Sum;

/// The calls of one op on one thread. They are added in the order in which they were recorded.
#[derive(Clone, Debug, Default)]
pub struct Strata {
    /// The values of the calls of weight 1, which represent only themselves.
    alone: Moments,
    /// The classes, sorted by their numbers: class `h` has the weights from 2^h to below 2^(h + 1).
    classes: Vec<(u32, Class)>,
    /// The class of the last call with a weight above 1, as an index in `classes`.
    last: Option<usize>,
    /// Number of calls without a known value that do not belong to a class yet.
    waiting: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Class {
    calls: u64,
    moments: Moments,
}

/// Weighted sums of values. The sums are updated value by value, so that large values with small
/// differences keep their precision.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Moments {
    n: u64,
    /// Sum of the values, without weights.
    total: f64,
    weight: f64,
    squared_weight: f64,
    mean: f64,
    /// Σ w·(y − mean)².
    squares: f64,
    /// Σ w·(y − mean)³.
    cubes: f64,
}

impl Moments {
    fn add(&mut self, weight: f64, value: f64) {
        self.n += 1;
        self.total += value;
        self.squared_weight += weight * weight;
        self.mix(weight, value, 0.0, 0.0);
    }

    pub fn count(&self) -> u64 {
        self.n
    }

    pub fn mean(&self) -> f64 {
        self.mean
    }

    pub fn join(&mut self, other: &Self) {
        if other.n == 0 {
            return;
        }
        self.n += other.n;
        self.total += other.total;
        self.squared_weight += other.squared_weight;
        self.mix(other.weight, other.mean, other.squares, other.cubes);
    }

    /// Adds a set of values, given the sum of the weights, the mean, and the weighted sums of the
    /// squares and cubes of the differences from the mean (Pébay, *Formulas for robust, one-pass
    /// parallel computation of covariances and arbitrary-order statistical moments*, 2008).
    fn mix(&mut self, weight: f64, mean: f64, squares: f64, cubes: f64) {
        let (own, all) = (self.weight, self.weight + weight);
        let difference = mean - self.mean;
        self.cubes += cubes
            + difference.powi(3) * own * weight * (own - weight) / (all * all)
            + 3.0 * difference * (own * squares - weight * self.squares) / all;
        self.squares += squares + difference * difference * own * weight / all;
        self.mean += difference * weight / all;
        self.weight = all;
    }

    /// Scales the weights so that they add up to the number of values.
    fn level(&self) -> Self {
        let factor = self.n as f64 / self.weight;
        Self {
            weight: self.weight * factor,
            squared_weight: self.squared_weight * factor * factor,
            squares: self.squares * factor,
            cubes: self.cubes * factor,
            ..*self
        }
    }

    /// Returns the effective number of calls: this many calls of equal weight would be as
    /// informative.
    fn effective(&self) -> f64 {
        self.weight * self.weight / self.squared_weight
    }

    /// Returns the variance of the values, estimated from this sample. `None` for fewer than two
    /// values.
    pub fn variance(&self) -> Option<f64> {
        let n = self.n as f64;
        (self.n > 1).then(|| (n / (n - 1.0) * self.squares / self.weight).max(0.0))
    }

    /// Returns the third central moment of the values, estimated from this sample; 0 for fewer than
    /// three values.
    fn third(&self) -> f64 {
        let n = self.n as f64;
        let factor = if self.n > 2 { n * n / ((n - 1.0) * (n - 2.0)) } else { 0.0 };
        factor * self.cubes / self.weight
    }
}

/// Sums over the classes of drawn calls. N_h is the number of calls that class h represents, y̅_h
/// is their estimated mean value, and m_h is the effective number of drawn calls in class h.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Drawn {
    /// Σ N_h.
    calls: f64,
    /// Σ N_h · y̅_h.
    sum: f64,
    /// Σ N_h²/m_h.
    squares: f64,
    any_other_than_0: bool,
}

impl Drawn {
    pub fn add(&mut self, other: &Self) {
        self.calls += other.calls;
        self.sum += other.sum;
        self.squares += other.squares;
        self.any_other_than_0 |= other.any_other_than_0;
    }

    /// Returns the effective number of drawn calls.
    pub fn effective(&self) -> f64 {
        if self.squares > 0.0 { self.calls * self.calls / self.squares } else { 0.0 }
    }

    pub fn mean(&self) -> f64 {
        if self.calls > 0.0 { self.sum / self.calls } else { 0.0 }
    }

    pub fn any_other_than_0(&self) -> bool {
        self.any_other_than_0
    }
}

impl Strata {
    /// Adds calls whose value is not known. They were made before the call that is added next.
    pub fn skip(&mut self, calls: u64) {
        self.waiting = self.waiting.saturating_add(calls);
    }

    /// Adds a call whose value is known. `weight` is 1 divided by the probability with which the
    /// call was drawn; 0 counts as 1.
    pub fn add(&mut self, weight: u64, value: f64) {
        if weight <= 1 {
            self.alone.add(1.0, value);
            if let Some((_, class)) = self.last.and_then(|last| self.classes.get_mut(last)) {
                class.calls = class.calls.saturating_add(std::mem::take(&mut self.waiting));
            }
            return;
        }
        let number = weight.ilog2();
        let place = match self.classes.binary_search_by_key(&number, |(number, _)| *number) {
            Ok(place) => place,
            Err(place) => {
                self.classes.insert(place, (number, Class::default()));
                place
            }
        };
        let class = &mut self.classes[place].1;
        class.calls =
            class.calls.saturating_add(std::mem::take(&mut self.waiting)).saturating_add(1);
        class.moments.add(weight as f64, value);
        self.last = Some(place);
    }

    /// Whether any call was drawn. If not, the known values are those of first calls, which are not
    /// a sample of the others.
    pub fn any_drawn(&self) -> bool {
        self.last.is_some()
    }

    /// Returns the number of known values.
    pub fn known(&self) -> u64 {
        self.alone.n + self.classes.iter().map(|(_, class)| class.moments.n).sum::<u64>()
    }

    /// Returns the number of calls that were added or skipped.
    pub fn mentioned(&self) -> u64 {
        let classes = self.classes.iter().map(|(_, class)| class.calls);
        classes.fold(self.alone.n.saturating_add(self.waiting), u64::saturating_add)
    }

    /// Returns the moments of all known values. The weights of each class are scaled so that they
    /// add up to the number of its known values.
    pub(super) fn known_values(&self) -> Moments {
        let mut all = self.alone;
        self.classes.iter().for_each(|(_, class)| all.join(&class.moments.level()));
        all
    }

    pub(super) fn seen(&self) -> f64 {
        self.alone.total + self.classes.iter().map(|(_, class)| class.moments.total).sum::<f64>()
    }

    /// Returns each class with the number of its calls, given the number of all calls.
    fn populations(&self, calls: u64) -> impl Iterator<Item = (u32, u64, &Moments)> {
        let after = calls.saturating_sub(self.mentioned()).saturating_add(self.waiting);
        self.classes.iter().enumerate().map(move |(place, (number, class))| {
            let more = if Some(place) == self.last { after } else { 0 };
            (*number, class.calls.saturating_add(more), &class.moments)
        })
    }

    /// Returns the sums over the calls that the drawn calls represent, given the number of all
    /// calls.
    pub(super) fn drawn(&self, calls: u64) -> Drawn {
        let mut drawn = Drawn::default();
        for (_, calls, moments) in self.populations(calls) {
            let calls = calls as f64;
            drawn.add(&Drawn {
                calls,
                sum: calls * moments.mean,
                squares: calls * calls / moments.effective(),
                any_other_than_0: moments.mean != 0.0,
            });
        }
        drawn
    }

    /// Returns, for each class, the factor by which its weights must be multiplied so that they add
    /// up to its number of calls.
    pub(super) fn factors(&self, calls: u64) -> Vec<(u32, f64)> {
        let factor = |(number, calls, moments): (u32, u64, &Moments)| {
            (number, calls as f64 / moments.weight)
        };
        self.populations(calls).map(factor).collect()
    }

    /// Estimates the sum of the values over all calls. The number of all calls is `calls`, or
    /// [`mentioned`](Self::mentioned) if that is larger. `None` if some values are not known and no
    /// call was drawn.
    pub fn total(&self, calls: u64) -> Option<Sum> {
        self.total_with(calls, &Tail::default())
    }

    /// Like [`Self::total`], but the interval also allows for rare slow calls, which the samples of
    /// all ops show (`tail`).
    pub fn total_with(&self, calls: u64, tail: &Tail) -> Option<Sum> {
        let calls = calls.max(self.mentioned());
        if self.last.is_none() {
            return (calls == self.known()).then(|| Sum::exact(self.alone.total));
        }
        let mut sum = Sum::exact(self.alone.total);
        for (place, (_, calls, moments)) in self.populations(calls).enumerate() {
            let other = || {
                let with = |place: &usize| {
                    self.classes.get(*place).filter(|(_, class)| class.moments.n > 1)
                };
                let distances = 1..self.classes.len();
                let near = distances.flat_map(|far| [place.wrapping_sub(far), place + far]);
                near.filter_map(|place| with(&place)).next().map(|(_, class)| class.moments)
            };
            // A class with a single timed call takes the variance of the nearest class with at
            // least two. Calls of weight 1 are not used for this, because first calls have cold
            // caches.
            let other = if moments.n < 2 { other() } else { None };
            sum.add(&stratum(calls, moments, other.as_ref(), tail));
        }
        Some(sum)
    }
}

/// If something happened in none of n calls, it happens in at most 3/n of all calls, with 95 %
/// confidence: 0.95 = 1 − e⁻³.
const UNSEEN: f64 = 3.0;
/// The quantile of the normal distribution for a two-sided 95 % interval.
pub(super) const Z: f64 = 1.96;
/// Practically infinite degrees of freedom, for a variance that was not computed from a sample.
const MANY: f64 = 1e9;

/// Estimates the sum over `calls` calls, of which some are known. If `other` is given, the variance
/// comes from it, because too few values are known.
fn stratum(calls: u64, known: &Moments, other: Option<&Moments>, tail: &Tail) -> Sum {
    let (all, n) = (calls as f64, known.n as f64);
    if calls <= known.n {
        return Sum::exact(known.total);
    }
    let value = all * known.mean;
    let (m, left_out) = (known.effective(), 1.0 - n / all);
    let from = other.unwrap_or(known);
    let of = |s: f64| all * all * left_out * (s + tail.variance(known.mean)) / m;
    let third = all.powi(3) * left_out * (2.0 * left_out - 1.0) * known.third() / (m * m);
    if let Some(scatter) = from.variance().filter(|variance| *variance > 0.0) {
        return Sum::sampled(value, Some(of(scatter)), from.effective() - 1.0, third);
    }
    // All known values are equal, or only one is known. But up to `differ` of the other calls may
    // have another value: 0, or twice the known value. The difference from the known value is taken
    // as at least 1.
    let differ = (all - n) * UNSEEN / from.effective();
    let half = differ * known.mean.abs().max(1.0);
    Sum::sampled(value, Some(of(0.0) + (half / Z).powi(2)), MANY, third)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strata(calls: &[(u64, u64, f64)]) -> Strata {
        let mut strata = Strata::default();
        for (weight, skipped, value) in calls {
            strata.skip(*skipped);
            strata.add(*weight, *value);
        }
        strata
    }

    /// Two calls have weight 1. Then three calls of weight 4 represent ten calls, with the mean 12
    /// and s² = 8/2 = 4. So T = 1,800 + 10 · 12 = 1,920, V = 100 · 0.7 · 4/3 = 93.33, and the root
    /// of V is 9.6609. t(0.975; 2) = 4.3027, so the interval is ± 41.568. The three values are
    /// symmetric around their mean, so the interval is symmetric, too.
    #[test]
    fn two_strata_on_paper() {
        let some = [(1, 0, 1_000.0), (1, 0, 800.0), (4, 2, 10.0), (4, 3, 14.0), (4, 1, 12.0)];
        let found = strata(&some).total(12).expect("values").interval().expect("an interval");
        assert_eq!(found.value, 1_920.0);
        assert!((found.high - 1_961.568).abs() < 0.001, "{found:?}");
        assert!((found.low - 1_878.432).abs() < 0.001, "{found:?}");
        // Here, two calls came after the last timed call, not only one.
        let short = strata(&[some[0], some[1], some[2], some[3], (4, 0, 12.0)]);
        assert_eq!((short.mentioned(), short.known()), (10, 5));
        assert_eq!(short.total(12).expect("values").interval(), Some(found));
    }

    /// Weights 4 and 6 are in one class. The mean is (4 · 10 + 6 · 20)/10 = 16, and there are three
    /// calls, so T = 3 · 16. s² = 2/1 · (4 · 36 + 6 · 16)/10 = 48; m = 100/52; V = 9 · 1/3 · 48 ·
    /// 0.52 = 74.88.
    #[test]
    fn different_weights_in_one_class() {
        let sum = strata(&[(4, 1, 10.0), (6, 0, 20.0)]).total(3).expect("values");
        let found = sum.interval().expect("an interval");
        assert!((sum.value() - 48.0).abs() < 1e-12, "{found:?}");
        assert!((found.high - 48.0 - 12.7062 * 74.88f64.sqrt()).abs() < 0.01, "{found:?}");
    }

    #[test]
    fn all_timed_is_exact() {
        let sum = strata(&[(1, 0, 5.0), (1, 0, 7.0), (1, 0, 100.0)]).total(3).expect("values");
        assert!(sum.is_exact() && (sum.value() - 112.0).abs() < 1e-9, "{sum:?}");
        // Both calls of weight 3 were timed, and there are no other calls.
        let sum = strata(&[(3, 0, 5.0), (3, 0, 7.0)]).total(2).expect("values");
        assert_eq!(sum.interval(), Some(crate::Estimate::exact(12.0)));
    }

    #[test]
    fn nothing_is_known_of_calls_that_were_only_counted() {
        assert_eq!(strata(&[]).total(7), None);
        assert!(strata(&[]).total(0).expect("no calls took no time").is_exact());
        assert_eq!(strata(&[(1, 0, 30.0)]).total(6), None);
        let alone = strata(&[(9, 4, 30.0)]).total(6).expect("a value");
        // One known value of 30 does not rule out that the other five values are 0 or much larger.
        let interval = alone.interval().expect("an interval");
        assert_eq!((alone.value(), interval.half().round()), (180.0, 450.0));
    }

    /// The counter was 0 in 50 timed calls of weight 4, so it was probably above 0 in at most 3/50
    /// of the 1,000 other calls. The cold first call represents only itself.
    #[test]
    fn what_was_not_seen_may_still_happen() {
        let mut calls = vec![(1, 0, 9_000.0)];
        calls.extend([(4, 20, 0.0)].repeat(50));
        let found = strata(&calls).total(1_051).expect("values").interval().expect("an interval");
        assert_eq!(found.value, 9_000.0);
        assert!((found.high - 9_000.0 - 1_000.0 * 3.0 / 50.0).abs() < 0.01, "{found:?}");
        let one = strata(&[(4, 0, 0.0)]).total(11).expect("a value").interval();
        assert!((one.expect("an interval").high - 30.0).abs() < 0.01, "{one:?}");
    }

    #[test]
    fn equal_values() {
        let found = strata(&[(2, 1, 700.0)].repeat(100)).total(200).expect("values").interval();
        let found = found.expect("an interval");
        assert_eq!(found.value, 140_000.0);
        assert!((found.half() - 100.0 * 0.03 * 700.0).abs() < 0.1, "{found:?}");
    }

    #[test]
    fn a_call_of_weight_1_stands_for_itself() {
        let found = strata(&[(4, 0, 10.0), (4, 0, 10.0), (1, 6, 900.0)]).total(9);
        assert_eq!(found.expect("values").value(), 900.0 + 8.0 * 10.0);
    }

    /// The class of weight 2 has a single call, so it uses the variance of the class of weight 4: V
    /// = 2² · 1/2 · 4 + 9 · 1/3 · 4/2.
    #[test]
    fn a_single_call_takes_the_variance_of_its_neighbour() {
        let lone = [(4, 0, 10.0 - 2f64.sqrt()), (4, 1, 10.0 + 2f64.sqrt()), (2, 1, 50.0)];
        let found = strata(&lone).total(5).expect("values").interval().expect("an interval");
        assert!((found.value - 130.0).abs() < 1e-9);
        assert!((found.half() - 12.7062 * 14f64.sqrt()).abs() < 0.01, "{found:?}");
    }
}
