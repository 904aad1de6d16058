//! Estimates how long all hits of a loop took together, with an interval, if some of them were
//! timed.
//!
//! **Sampled hits.** For each loop and function, a thread times the first hits (entries), and from
//! then on hits at random distances. When the first random hit begins, the thread notes how many
//! timed hits have ended so far (`first_ended`), and their times. So the hits of a thread form two
//! strata (Cochran, *Sampling Techniques*, 3rd edition, chapter 5):
//!
//! ```text
//!   first stratum      n₁ = first_ended hits, all of them timed: their time S₁ is exact
//!   second stratum     N = hits − first_ended hits, of which m = begun − first_ended were timed
//!                      S = ticks − first_ticks,  Q = squares − first_squares
//!
//!   total              T = S₁ + N · S/m
//!   variance           V = N² · (1 − m/N) · s²/m          s² = (Q − S²/m) / (m − 1)
//!   95 % interval      T ± t(0.975; m − 1) · √V
//! ```
//!
//! `1 − m/N` is the finite population correction (Cochran, theorem 2.2): if every hit was timed, V
//! is 0 and T is exact. The formula is valid for a simple random sample. Timed hits at random
//! distances are practically such a sample: a regular pattern in the times of hits cannot stay in
//! step with random distances. If the times of hits drift, the interval is wider than necessary.
//!
//! **Rare slow hits.** If a few of a thread's hits are much longer than the others, most samples
//! contain too few of the long hits. In this case, the interval of a normal distribution is too
//! short. So the margin on both sides is the distance from T to the upper end of Hall's interval
//! (see [`Sum::interval`]), for the largest skewness that these hits can have:
//!
//! ```text
//!   Q₀ = Q − S²/m          the squares of the distances from the mean
//!   e  = min(longest − S/m, √Q₀)                no hit is farther above the mean
//!   third moment of T  ≤  (N/m)³ · (1 − m/N) · Q₀ · e       because Σ(x − x̄)³ ≤ e · Σ(x − x̄)²
//! ```
//!
//! No formula can account for slow hits of which the sample contains none. The module `numbers`
//! decides which rows have a valid interval nevertheless.
//!
//! Some timed hits never end: because of an exception, because of `longjmp`, or because the loop is
//! still running. Such a hit counts as one of the m hits, with a time of 0. So T is the time of the
//! hits that ended.
//!
//! With fewer than two random hits, s² does not exist. In this case, the strata become one sample:
//! n₁ = 0, N = hits, m = begun. As long as a thread has not begun a random hit, `first_ended` is 0,
//! so there is only this one sample.
//!
//! **Sums.** Each thread samples independently of the others, and separately for each registration
//! (load) of a module. So totals and variances add up. The degrees of freedom of a sum or of a
//! difference are computed as by Welch and Satterthwaite: (ΣVᵢ)² / Σ(Vᵢ²/νᵢ). *Self time* is the
//! inclusive time minus the inclusive times of the loops directly inside, and its variance is the
//! sum of the variances of all these times.
//!
//! **A mean** is T divided by the estimated number of hits that ended. Its margin is the margin of
//! T divided by the same number. **A share** c/p (the time c of a loop as a part of the time p of
//! its parent) has, to first order (the delta method), the variance (V(c) + (c/p)² V(p)) / p². The
//! time of a loop is part of its parent's time, so both vary together, and the true interval is
//! narrower.
//!
//! **Compensation.** [`HitCost`] contains the time that it costs to measure a hit. The measured
//! time of the hit includes the part `inside` of this cost. The time of the loop around the hit
//! includes the whole cost of timing the hit, or of counting it if it was not timed:
//!
//! ```text
//!   inclusive   T − inside · hits − Σ over everything inside: timed · begun + counted · (hits − begun)
//!               + reading · hits with counters
//!   self        the compensated inclusive time minus those of the loops directly inside
//! ```
//! The cost was measured with consecutive empty hits. In a program the cost differs for two
//! reasons, and both widen the interval. First, the processor overlaps the measuring code with the
//! program's code. In hot loops, this can hide the whole cost: in a matrix multiplication whose
//! innermost loop took 214 ns, the raw times equalled the times without instrumentation. So the
//! interval is extended to include the raw value. Second, the cost itself differs between processes
//! by up to 35 % ([`COST_UNCERTAINTY`]). The parts of the cost are measured independently, so the
//! squares of their errors are added. The cost of hits in functions that a loop calls is not
//! subtracted, because a side table (the description of a module's loops) does not contain these
//! calls.

use profile::loops::{HitCost, LoopRow};

use super::Mode;
use crate::interval::Sum;
use crate::interval::student::t95;

/// The assumed relative error of a measured cost: in measurements, the costs of an empty hit in two
/// processes differed by 29 % to 35 %.
pub const COST_UNCERTAINTY: f64 = 0.35;
/// If the mean hit of a loop takes less than this many times the cost of timing a hit, the loop's
/// times are only rough estimates, because measuring distorts them.
pub const SAMPLED_ONLY: f64 = 10.0;

/// A number and its interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    pub value: f64,
    /// Half of the length of the 95 % interval; 0 for an exact number. `None` if the interval is
    /// not known.
    pub margin: Option<f64>,
}

impl Estimate {
    /// Multiplies the estimate by a factor.
    pub fn scaled(self, factor: f64) -> Self {
        Self { value: self.value * factor, margin: self.margin.map(|m| m * factor.abs()) }
    }

    /// Returns this estimate divided by `whole`, of which it is a part. `None` if `whole` is not
    /// above 0.
    pub fn share_of(self, whole: Self) -> Option<Self> {
        if whole.value.is_nan() || whole.value <= 0.0 {
            return None;
        }
        let share = self.value / whole.value;
        let margin = |own: f64, of: f64| own.hypot(share * of) / whole.value;
        let margin = self.margin.zip(whole.margin).map(|(own, of)| margin(own, of));
        Some(Self { value: share, margin })
    }
}

impl Sum {
    /// Returns the sum with its interval.
    pub fn estimate(&self) -> Estimate {
        self.compensated(&Overhead::default())
    }

    /// Returns the sum with its interval, after subtracting the time that measuring has added.
    pub fn compensated(&self, overhead: &Overhead) -> Estimate {
        let sampling = match self.variance > 0.0 {
            true => {
                let freedom = self.variance * self.variance / self.satterthwaite;
                let (t, error) = (t95(freedom), self.variance.sqrt());
                let skew = self.lopsided / (error * self.variance);
                let far = match skew < 1e-3 {
                    true => t,
                    false => 3.0 / skew * (1.0 - (1.0 - skew * (t + skew / 6.0)).cbrt()),
                };
                far.max(t) * error
            }
            false => 0.0,
        };
        let costs = overhead.total().hypot(COST_UNCERTAINTY * overhead.length());
        let margin = sampling.hypot(costs);
        let known = !self.unknown && margin.is_finite();
        Estimate { value: self.value - overhead.total(), margin: known.then_some(margin) }
    }
}

/// The time that measuring hits added to a recorded time, in ticks: each part of [`HitCost`], times
/// how often it occurred.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Overhead {
    inside: f64,
    timed: f64,
    counted: f64,
    reading: f64,
}

impl Overhead {
    /// Computes the time that measuring added to the hits' own times.
    pub fn of_own(cost: &HitCost, hits: f64) -> Self {
        Self { inside: cost.inside * hits, ..Self::default() }
    }

    /// Computes the time that measuring hits adds to the loop or function around them. The
    /// arguments are the numbers of timed hits, of hits that were counted and not timed, and of
    /// hits that read counters.
    pub fn of_inner(cost: &HitCost, timed: f64, counted: f64, read: f64) -> Self {
        Self {
            inside: 0.0,
            timed: cost.timed * timed,
            counted: cost.counted * counted,
            reading: cost.reading * read,
        }
    }

    /// Returns the sum of two overheads.
    pub fn plus(self, other: &Self) -> Self {
        Self {
            inside: self.inside + other.inside,
            timed: self.timed + other.timed,
            counted: self.counted + other.counted,
            reading: self.reading + other.reading,
        }
    }

    /// Returns the difference of two overheads. An error that both have in common cancels out.
    pub fn minus(self, other: &Self) -> Self {
        Self {
            inside: self.inside - other.inside,
            timed: self.timed - other.timed,
            counted: self.counted - other.counted,
            reading: self.reading - other.reading,
        }
    }

    /// Returns the whole overhead, in ticks.
    pub fn total(&self) -> f64 {
        self.inside + self.timed + self.counted + self.reading
    }

    fn length(&self) -> f64 {
        self.inside.hypot(self.timed).hypot(self.counted).hypot(self.reading)
    }
}

/// The time of the hits of one function or loop in one thread.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Total {
    /// The time of all hits that ended; an estimate if not all hits were timed.
    pub time: Sum,
    /// The number of hits that ended; an estimate if not all hits were timed.
    pub ended: f64,
}

/// The reason why a row has no time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoTime {
    /// No hit was timed.
    NotTimed,
    /// The numbers of the row contradict each other.
    Damaged,
}

/// Computes the time of all hits of a row.
///
/// # Errors
/// Fails if the row is damaged, or if no hit was timed. In modes sampled and timed, a thread with
/// only one hit, which was not timed, gets the time 0 and no error.
pub fn total(row: &LoopRow, mode: Mode) -> Result<Total, NoTime> {
    if row.first_ended > row.ended
        || row.first_ticks > row.ticks
        || row.first_squares > row.squares
        || row.child_ticks > row.ticks && mode == Mode::Timed
    {
        return Err(NoTime::Damaged);
    }
    // If the recorder read a row while its thread was still running, the numbers may be from
    // different moments. So `ended` may be larger than `begun`, and `begun` larger than `hits`.
    let begun = row.begun.max(row.ended);
    let hits = row.hits.max(begun);
    match mode {
        Mode::Count | Mode::Other(_) => return Err(NoTime::NotTimed),
        // In modes sampled and timed, each thread times its first hit of a loop. A killed thread
        // may have counted this hit without having begun to time it. Such a hit counts as one that
        // did not end.
        _ if begun == 0 && hits > u64::from(mode != Mode::Log) => return Err(NoTime::NotTimed),
        _ if begun == 0 => return Ok(Total { time: Sum::default(), ended: 0.0 }),
        Mode::Timed => {
            let time = Sum::exact(row.ticks as f64);
            return Ok(Total { time, ended: row.ended as f64 });
        }
        Mode::Sampled | Mode::Log => {}
    }
    let two_strata = row.first_ended > 0 && begun - row.first_ended >= 2;
    let (first_ended, first_ticks, first_squares) = match two_strata {
        true => (row.first_ended, row.first_ticks, row.first_squares),
        false => (0, 0, 0),
    };
    let (population, samples) = (hits - first_ended, begun - first_ended);
    let (sum, squares) = (row.ticks - first_ticks, row.squares - first_squares);
    let (n, m) = (population as f64, samples as f64);
    let ended = first_ended as f64 + n * ((row.ended - first_ended) as f64 / m);
    // This order of operations gives exactly `first_ticks + sum` if every hit was timed.
    let value = first_ticks as f64 + sum as f64 * (n / m);
    let mut time = Sum::exact(value);
    if population > samples {
        match spread(samples.into(), sum.into(), squares) {
            Some(squared) => {
                time.variance = n * n * (1.0 - m / n) * squared / m;
                time.satterthwaite = time.variance * time.variance / (m - 1.0);
                let distances = squared * (m - 1.0);
                let longest = match row.child_ticks {
                    0 => f64::INFINITY,
                    longest => (longest as f64 - sum as f64 / m).max(0.0),
                };
                let most = distances.sqrt().min(longest);
                time.lopsided = (n / m).powi(3) * (1.0 - m / n) * distances * most;
            }
            None => time.unknown = true,
        }
        // Mode log records only the first hits, and it is not known whether the later hits are like
        // them.
        time.unknown |= mode == Mode::Log;
        time.sampled = true;
    }
    Ok(Total { time, ended })
}

/// Returns the variance s² of `n` values with this sum and this sum of squares. `None` for fewer
/// than two values, and if no values can have such sums.
pub(super) fn spread(n: u128, sum: u128, squares: u128) -> Option<f64> {
    let divisor = n.checked_sub(1).filter(|n| *n > 0)? as f64;
    // Integers keep the difference n·Q − S² of two large and nearly equal terms, which floats would
    // lose.
    let centred = match (n.checked_mul(squares), sum.checked_mul(sum)) {
        (Some(of_squares), Some(of_sum)) => of_squares.checked_sub(of_sum)? as f64,
        _ => {
            let rest = squares as f64 - sum as f64 / n as f64 * sum as f64;
            return (rest >= 0.0).then_some(rest / divisor);
        }
    };
    Some(centred / n as f64 / divisor)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes a row with `hits` hits. `first` contains the times of the first timed hits, and
    /// `random` those of the randomly chosen hits.
    fn row(hits: u64, first: &[u64], random: &[u64]) -> LoopRow {
        let squares = |all: &[u64]| all.iter().map(|t| u128::from(*t).pow(2)).sum::<u128>();
        let timed = (first.len() + random.len()) as u64;
        let noted = if random.is_empty() { &[][..] } else { first };
        LoopRow {
            hits,
            begun: timed,
            ended: timed,
            ticks: first.iter().chain(random).sum(),
            squares: squares(first) + squares(random),
            first_ended: noted.len() as u64,
            first_ticks: noted.iter().sum(),
            first_squares: squares(noted),
            ..LoopRow::default()
        }
    }

    fn of(row: &LoopRow) -> Estimate {
        total(row, Mode::Sampled).expect("a time").time.estimate()
    }

    #[test]
    fn all_timed_is_exact() {
        let row = row(3, &[5, 7, 100], &[]);
        assert_eq!(of(&row), Estimate { value: 112.0, margin: Some(0.0) });
        assert_eq!(total(&row, Mode::Timed).expect("a time").time.estimate(), of(&row));
        assert_eq!(total(&row, Mode::Count), Err(NoTime::NotTimed));
        // This thread was killed after it had counted its first hit, and before it began to time
        // that hit.
        let killed = LoopRow { hits: 1, ..LoopRow::default() };
        assert_eq!(of(&killed), Estimate { value: 0.0, margin: Some(0.0) });
    }

    /// The first two hits took 1,000 and 800. Of the other ten hits, three were timed and took 10,
    /// 12 and 14: mean 12, s² = (4 + 0 + 4)/2 = 4. T = 1,800 + 10 · 12 = 1,920; V = 100 · 0.7 ·
    /// 4/3 = 93.33, whose root is 9.6609; t(0.975; 2) = 4.3027. The row does not contain the
    /// longest time, so e = √Q₀ = √8 = 2.8284. So the third moment is at most (10/3)³ · 0.7 · 8 ·
    /// 2.8284 = 586.61, and the skewness is 586.61/9.6609³ = 0.65058. By Hall's formula, the margin
    /// is 3/0.65058 · (1 − ∛(1 − 0.65058 · (4.3027 + 0.10843))) = 10.292 times 9.6609, which is
    /// 99.429.
    #[test]
    fn two_strata_on_paper() {
        let found = of(&row(12, &[1_000, 800], &[10, 12, 14]));
        assert_eq!(found.value, 1_920.0);
        assert!((found.margin.expect("a margin") - 99.429).abs() < 0.001, "{found:?}");
    }

    /// With one random hit, the strata become one sample of three hits: mean (30 + 40 + 20)/3 = 30,
    /// s² = (0 + 100 + 100)/2 = 100. T = 10 · 30; V = 100 · 0.7 · 100/3 = 2,333.3, whose root is
    /// 48.305. The skewness is as in `two_strata_on_paper`, so the margin is 10.292 times the root:
    /// 497.15. If the longest hit is known to be 40, e = 10, and the skewness is 37.037 · 0.7 ·
    /// 200 · 10/48.305³ = 0.46004. So the root is multiplied by
    /// 3/0.46004 · (1 − ∛(1 − 0.46004 · (4.3027 + 0.076672))) = 13.074.
    #[test]
    fn one_random_hit_is_no_stratum() {
        let found = of(&row(10, &[30, 40], &[20]));
        assert_eq!(found.value, 300.0);
        assert!((found.margin.expect("a margin") - 497.15).abs() < 0.01, "{found:?}");
        let known = LoopRow { child_ticks: 40, ..row(10, &[30, 40], &[20]) };
        let found = of(&known).margin.expect("a margin") / 48.305;
        assert!((found - 13.074).abs() < 0.001, "{found}");
        assert_eq!(of(&row(4, &[30], &[])), Estimate { value: 120.0, margin: None });
    }

    /// Two of the four random hits did not end. So half of the 20 hits after the first one are
    /// assumed to have ended, with a time of 8 each.
    #[test]
    fn a_hit_that_did_not_end_has_no_time() {
        let mut row = row(21, &[100], &[8, 8]);
        row.begun += 2;
        let found = total(&row, Mode::Sampled).expect("a time");
        assert_eq!((found.time.value(), found.ended), (180.0, 11.0));
    }

    #[test]
    fn what_cannot_be_is_damaged() {
        let good = row(12, &[1_000, 800], &[10, 12, 14]);
        for bad in [
            LoopRow { first_ended: 6, ..good.clone() },
            LoopRow { first_ticks: 2_000, ..good.clone() },
            LoopRow { first_squares: u128::MAX, ..good.clone() },
        ] {
            assert_eq!(total(&bad, Mode::Sampled), Err(NoTime::Damaged));
        }
        // This row was read while its thread was still running, so it has fewer hits than timed
        // hits.
        assert_eq!(of(&LoopRow { hits: 3, ..good.clone() }).value, 1_836.0);
        // The sum of squares is smaller than it would be for equal values, which is impossible.
        let torn = LoopRow { squares: good.first_squares, ..good };
        assert_eq!(of(&torn).margin, None);
    }

    /// The values differ by 1 in 10⁹. The difference would be lost if the sums of squares were
    /// floats.
    #[test]
    fn small_differences_of_large_values_are_kept() {
        let values: Vec<u128> = (0..100).map(|i| 1_000_000_000 + i % 2).collect();
        let sum = values.iter().sum();
        let squares = values.iter().map(|v| v.pow(2)).sum();
        assert_eq!(spread(100, sum, squares), Some(25.0 / 99.0));
        // The product of this number of values and this sum of squares does not fit into 128 bits.
        let huge = spread(u64::MAX.into(), u64::MAX.into(), u128::MAX).expect("a variance");
        assert!((huge / 2f64.powi(64) - 1.0).abs() < 1e-6, "{huge}");
    }

    /// An overhead of 3·10 + 4·5 = 50 is subtracted from 60. The processor may have
    /// executed the whole overhead of 50 while it executed the program's code, and the overhead may
    /// be wrong by 0.35 · √(30² + 20²) = 12.619. So the margin is √(50² + 12.619²) = 51.568.
    #[test]
    fn compensation_adds_doubt() {
        let cost = HitCost { inside: 10.0, timed: 5.0, counted: 1.0, reading: 0.0 };
        let overhead = Overhead::of_own(&cost, 3.0).plus(&Overhead::of_inner(&cost, 4.0, 0.0, 0.0));
        let found = Sum::exact(60.0).compensated(&overhead);
        assert_eq!(found.value, 10.0);
        assert!((found.margin.expect("a margin") - 51.568).abs() < 0.001, "{found:?}");
        assert_eq!(overhead.minus(&overhead), Overhead::default());
    }

    #[test]
    fn shares() {
        let part = Estimate { value: 30.0, margin: Some(3.0) };
        let whole = Estimate { value: 60.0, margin: Some(8.0) };
        // The margin of the share is √(3² + (0.5 · 8)²) / 60 = 5/60.
        let share = part.share_of(whole).expect("a share");
        assert_eq!((share.value, share.margin), (0.5, Some(5.0 / 60.0)));
        assert_eq!(part.share_of(Estimate { value: -1.0, margin: None }), None);
    }
}
