//! Tests the drawing of calls. The durations of calls are made up, so that no result depends on the
//! speed of the machine.

use std::collections::BTreeMap;

use super::*;
use crate::recorder::budget::account::Cost;

/// A simulated thread, with only the parts that drawing needs. One tick is one nanosecond.
struct Caller {
    draws: Draws,
    entries: Vec<Entry>,
    /// The processor time up to now, in ns.
    now: f64,
    how: How,
}

#[derive(Default)]
struct Records {
    /// For each period: the number of timed calls, the number of calls that these represent, and
    /// the sum of the timed calls' durations.
    strata: BTreeMap<u32, (f64, f64, f64)>,
    /// The period of the last timed call.
    last: u32,
    /// Number of timed calls whose counters were read.
    read: f64,
    /// The expected value of `read`: the sum of 1 / counter period.
    expected_read: f64,
    read_variance: f64,
}

impl Caller {
    fn new(budget: f64, exports: usize, counts: bool, seed: u64) -> Self {
        // SAFETY: an entry consists of integers, so all-zero bytes are a valid entry.
        let mut entries: Vec<Entry> = (0..exports).map(|_| unsafe { std::mem::zeroed() }).collect();
        let mut draws = Draws::off(std::ptr::null_mut());
        draws.entries = entries.as_mut_ptr();
        draws.len = exports as u32;
        (draws.is_on, draws.counts) = (true, counts);
        draws.random = Random::new(seed);
        draws.account = Account::new(budget, 1.0, 0, counts);
        (draws.account.timed, draws.account.counted) = (Cost::new(100.0), Cost::new(1_100.0));
        draws.account.only_counted = Cost::new(1.0);
        draws.account.update_share(1_000_000, counts);
        Self { draws, entries, now: 1e6, how: How::Due }
    }

    fn call(&mut self, export: u32, ticks: u64, records: &mut Records) {
        self.now += ticks as f64;
        let entry = self.draws.entry(export).unwrap();
        if !count(entry) {
            return;
        }
        let (open, read) = self.draws.draw(export, self.how, ClockKind::Monotonic).unwrap();
        let stratum = records.strata.entry(open.drawn.period).or_default();
        stratum.0 += 1.0;
        stratum.1 += 1.0 + open.drawn.skipped as f64;
        stratum.2 += ticks as f64;
        records.last = open.drawn.period;
        let p = 1.0 / f64::from(open.drawn.counter_period);
        records.read += f64::from(u8::from(read));
        records.expected_read += p;
        records.read_variance += p * (1.0 - p);
        self.draws.add(&open, ticks, read, None);
        // The account's share (the part of the calls' time that timing may take) is updated every
        // millisecond, as in the recorder.
        if (self.now / 1e6) as u64 != ((self.now - ticks as f64) / 1e6) as u64 {
            self.draws.account.update_share(self.now as u64, self.draws.counts);
        }
    }

    /// Makes a call inside of a watched run of a model (the host announces the calls of the run).
    /// One run in `runs` is watched.
    fn call_watched(&mut self, export: u32, ticks: u64, runs: u32, records: &mut Records) {
        self.how = How::Watched(runs);
        self.call(export, ticks, records);
        self.how = How::Due;
    }

    fn calls(&self, export: usize) -> f64 {
        self.entries[export].calls.load(Ordering::Relaxed) as f64
    }
}

impl Records {
    /// Returns the estimated sum of all durations. The calls with the same period are a stratum.
    /// The calls after the last timed call belong to the stratum of that call.
    fn total(&self, calls: f64) -> f64 {
        let stood_for: f64 = self.strata.values().map(|(_, calls, _)| calls).sum();
        let rest = |period: u32| if period == self.last { calls - stood_for } else { 0.0 };
        let of = |(period, (timed, calls, sum)): (&u32, &(f64, f64, f64))| {
            (calls + rest(*period)) * sum / timed
        };
        self.strata.iter().map(of).sum()
    }
}

/// A name, and a function from the number of a call to its duration.
type Pattern = (&'static str, fn(u64) -> u64);

const PATTERNS: [Pattern; 5] = [
    ("constant", |_| 500),
    ("alternating", |i| if i % 2 == 0 { 100 } else { 900 }),
    ("every 32nd is long", |i| if i % 32 == 31 { 20_000 } else { 50 }),
    ("ramp", |i| 200 + i / 50),
    ("bursts", |i| if i / 1_000 % 2 == 0 { 100 } else { 2_000 }),
];

/// The mean of many estimates differs from the true sum by less than five standard errors. The
/// seeds are fixed. With random seeds, the test would fail for each pattern with a chance of about
/// one in a million, even if the estimates were unbiased.
#[test]
fn estimates_of_totals_are_unbiased() {
    const CALLS: u64 = 40_000;
    const RUNS: u64 = 100;
    for (name, duration) in PATTERNS {
        let truth: f64 = (0..CALLS).map(|i| duration(i) as f64).sum();
        let (mut estimates, mut timed) = (Vec::new(), 0.0);
        for seed in 0..RUNS {
            let mut caller = Caller::new(0.02, 1, false, seed);
            let mut records = Records::default();
            (0..CALLS).for_each(|i| caller.call(0, duration(i), &mut records));
            assert_eq!(caller.calls(0), CALLS as f64);
            estimates.push(records.total(CALLS as f64) / truth);
            timed += records.strata.values().map(|(timed, ..)| timed).sum::<f64>();
        }
        let runs = RUNS as f64;
        let mean = estimates.iter().sum::<f64>() / runs;
        let variance = estimates.iter().map(|e| (e - mean).powi(2)).sum::<f64>() / (runs - 1.0);
        let error = (variance / runs).sqrt();
        assert!((mean - 1.0).abs() <= 5.0 * error.max(1e-12), "{name}: {mean} ± {error}");
        let share = timed / runs / CALLS as f64;
        assert!((0.001..0.5).contains(&share), "{name}: {share} of the calls were timed");
    }
}

/// Simulates runs of a model that make five calls each. The first three runs are watched, and each
/// later run with the probability 1/8. On average, the weights (periods) of the timed calls add up
/// to the number of all calls, and the estimates are right.
#[test]
fn calls_in_runs_that_are_not_watched_are_estimated_without_bias() {
    const RUNS: usize = 20_000;
    let (mut sum, mut weights, mut rounds) = (0.0, 0.0, 0.0);
    let truth: f64 = (0..RUNS).map(|run| 5.0 * (100 + run % 100) as f64).sum();
    for seed in 0..40 {
        let mut caller = Caller::new(0.05, 1, false, seed);
        let mut random = Random::new(seed + 1_000);
        let mut records = Records::default();
        for run in 0..RUNS {
            let ticks = (100 + run % 100) as u64;
            let runs = if run < 3 { 1 } else { 8 };
            if random.one_in(runs) {
                (0..5).for_each(|_| caller.call_watched(0, ticks, runs, &mut records));
            } else {
                caller.now += 5.0 * ticks as f64;
                count_unwatched(caller.draws.entry(0).unwrap(), 5);
            }
        }
        assert_eq!(caller.calls(0), 5.0 * RUNS as f64);
        let timed: f64 = records.strata.values().map(|stratum| stratum.0).sum();
        // A call takes 150 ticks on average. 5 % of that are 7.5 ticks, and timing a call takes 100
        // ticks, so fewer than a tenth of the calls can be timed.
        assert!(timed < 0.1 * 5.0 * RUNS as f64, "{timed}");
        weights += records.strata.iter().map(|(period, s)| f64::from(*period) * s.0).sum::<f64>();
        sum += records.total(5.0 * RUNS as f64);
        rounds += 1.0;
    }
    let (mean, weight) = (sum / rounds, weights / rounds);
    assert!((mean / truth - 1.0).abs() < 0.01, "{mean} instead of {truth}");
    let calls = 5.0 * RUNS as f64;
    assert!(
        (weight / calls - 1.0).abs() < 0.03,
        "the weights add up to {weight} instead of {calls}"
    );
}

#[test]
fn the_price_stays_below_the_budget() {
    for budget in [0.005, 0.01, 0.02, 0.05, 0.1] {
        for (name, duration) in PATTERNS {
            for counts in [false, true] {
                let mut caller = Caller::new(budget, 1, counts, 3);
                let mut records = Records::default();
                (0..400_000).for_each(|i| caller.call(0, duration(i), &mut records));
                let price = caller.draws.account.price_ns() as f64 / caller.now;
                assert!(price <= budget, "{name}, budget {budget}, counters {counts}: {price}");
                // If hardly any call was timed, the price would be far below the budget.
                assert!(price >= budget / 8.0, "{name}, budget {budget}: {price}");
            }
        }
    }
}

/// Counters are read about as often as the probabilities in the records say, within five standard
/// deviations.
#[test]
fn counters_are_read_with_the_probability_that_is_stated() {
    for (seed, (name, duration)) in (0..).zip(PATTERNS) {
        let mut caller = Caller::new(0.05, 1, true, seed);
        let mut records = Records::default();
        (0..400_000).for_each(|i| caller.call(0, duration(i), &mut records));
        let Records { read, expected_read, read_variance, .. } = records;
        let far = (read - expected_read).abs();
        assert!(far <= 5.0 * read_variance.sqrt(), "{name}: {read} of {expected_read}");
        assert!(read > 50.0, "{name}: {read}");
    }
}

#[test]
fn each_export_pays_for_itself() {
    let mut caller = Caller::new(0.05, 2, false, 5);
    let (mut long, mut short) = (Records::default(), Records::default());
    for _ in 0..20_000 {
        caller.call(0, 100_000, &mut long);
        (0..10).for_each(|_| caller.call(1, 100, &mut short));
    }
    let timed = |records: &Records| records.strata.values().map(|(timed, ..)| timed).sum::<f64>();
    assert_eq!(timed(&long), 20_000.0);
    // The account uses four fifths of the budget of 5 %. 4 % of a call of 100 ns are 4 ns. Timing a
    // call costs 100 ns, so one call in 25 can be timed, and this period is rounded up to 32.
    let expected = 200_000.0 / 32.0;
    assert!((timed(&short) / expected - 1.0).abs() < 0.1, "{} {expected}", timed(&short));
}

/// If a drawn call is abandoned, the next record also represents this call.
#[test]
fn abandoned_calls_are_not_lost() {
    let mut caller = Caller::new(0.02, 1, false, 9);
    let (mut stood_for, mut abandoned) = (0, 0);
    for i in 0..10_000 {
        if !count(caller.draws.entry(0).unwrap()) {
            continue;
        }
        let (open, _) = caller.draws.draw(0, How::Due, ClockKind::Monotonic).unwrap();
        if i % 3 == 0 {
            caller.draws.give_back(0, &open.drawn);
            abandoned += 1;
            continue;
        }
        stood_for += 1 + open.drawn.skipped;
        caller.draws.add(&open, 500, false, None);
    }
    let entry = &caller.entries[0];
    let rest = entry.calls.load(Ordering::Relaxed) - entry.drawn.load(Ordering::Relaxed);
    assert!(abandoned > 0);
    assert_eq!(stood_for + rest + entry.carried.load(Ordering::Relaxed), 10_000);
}

/// A signal handler makes a call when another call has already been counted but is not drawn yet.
/// At most one record may represent each of the two calls.
#[test]
fn a_call_within_the_draw_of_another_counts_once() {
    let mut caller = Caller::new(0.02, 1, false, 9);
    let entry = caller.draws.entry(0).unwrap();
    // The outer call is counted, then the handler's call is counted and drawn.
    assert!(count(entry) && count(entry));
    let (inner, _) = caller.draws.draw(0, How::Due, ClockKind::Monotonic).unwrap();
    assert_eq!(inner.drawn.skipped, 1);
    assert!(caller.draws.draw(0, How::Due, ClockKind::Monotonic).is_none());
}
