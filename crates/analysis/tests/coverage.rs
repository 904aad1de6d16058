//! Checks estimates for runs with a budget, in which only a sample of the calls is timed. Their
//! intervals must contain the true values, and there must be no estimate if the value cannot be
//! known. The tests draw many samples from populations whose sums are known.
//!
//! For each population, at least 93 % of the intervals must contain the true value. The share may
//! be up to two standard errors lower, by chance. Over all populations together, at least 95 % of
//! the intervals must contain it. `COUNTERPOINT_SHOW=1` prints the results of each population.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use analysis::sampled::tail::Tail;
use analysis::sampled::{Pool, Strata, calls_of};
use profile::{CountedCalls, CountedSteps};
use testkit::Random;

const DRAWS: u32 = 150;
/// An op's first calls are always timed. This is the number of these calls.
const FIRST: usize = 8;

fn part(random: &mut Random) -> f64 {
    (random.next() >> 11) as f64 / (1u64 << 53) as f64
}

/// Returns a number from the standard normal distribution (Box and Muller).
fn normal(random: &mut Random) -> f64 {
    let (a, b) = (part(random), part(random));
    (-2.0 * (1.0 - a).ln()).sqrt() * (std::f64::consts::TAU * b).cos()
}

/// Makes the values (times or counts) of one op's calls on one thread. The second argument is the
/// number of calls.
type Population = fn(&mut Random, usize) -> Vec<f64>;

/// Makes times that scatter by 2 % around what `of` returns, as the times of equal work usually do.
fn times(r: &mut Random, calls: usize, of: impl Fn(usize, &mut Random) -> f64) -> Vec<f64> {
    (0..calls).map(|i| of(i, r) * (1.0 + 0.02 * normal(r)).max(0.5)).collect()
}

fn counts(r: &mut Random, calls: usize, of: impl Fn(usize, &mut Random) -> u64) -> Vec<f64> {
    (0..calls).map(|i| of(i, r) as f64).collect()
}

const POPULATIONS: [(&str, Population); 24] = [
    ("time, equal", |_, n| vec![700.0; n]),
    ("time, constant", |r, n| times(r, n, |_, _| 700.0)),
    ("time, bimodal", |r, n| times(r, n, |_, r| if r.odd(2) { 1_000.0 } else { 100.0 })),
    ("time, bimodal 1 in 10", |r, n| times(r, n, |_, r| if r.odd(10) { 1_000.0 } else { 100.0 })),
    ("time, 10 times as slow 1 in 500", |r, n| {
        times(r, n, |i, _| if i % 500 == 250 { 1_000.0 } else { 100.0 })
    }),
    ("time, 100 times as slow 1 in 500", |r, n| {
        times(r, n, |i, _| if i % 500 == 250 { 10_000.0 } else { 100.0 })
    }),
    ("time, 1000 times as slow 1 in 500", |r, n| {
        times(r, n, |_, r| if r.odd(500) { 100_000.0 } else { 100.0 })
    }),
    ("time, cold", |r, n| times(r, n, |i, _| if i < FIRST { 5_000.0 } else { 100.0 })),
    ("time, drifting", |r, n| times(r, n, |i, _| 100.0 + 900.0 * i as f64 / n as f64)),
    ("time, phases", |r, n| times(r, n, |i, _| if 2 * i < n { 200.0 } else { 5_000.0 })),
    ("time, periodic", |r, n| times(r, n, |i, _| if i / 50 % 2 == 0 { 1_000.0 } else { 100.0 })),
    ("time, every seventh", |r, n| times(r, n, |i, _| if i % 7 == 0 { 2_000.0 } else { 100.0 })),
    ("time, lognormal", |r, n| times(r, n, |_, r| (6.0 + normal(r)).exp())),
    // Some calls are off the processor for 10 to 400 times their duration, at random moments.
    ("time, preempted", |r, n| {
        times(r, n, |_, r| 100.0 + if r.odd(500) { 1_000.0 + 39_000.0 * part(r) } else { 0.0 })
    }),
    ("counter, equal", |_, n| vec![8.0; n]),
    ("counter, 1 in 500", |r, n| counts(r, n, |_, r| u64::from(r.odd(500)))),
    ("counter, 60 in 1 of 500", |r, n| counts(r, n, |i, _| if i % 500 == 250 { 60 } else { 0 })),
    ("counter, cold", |r, n| counts(r, n, |i, _| if i < FIRST { 900 } else { 0 })),
    ("counter, 1 in 20", |r, n| counts(r, n, |_, r| if r.odd(20) { 1 + r.below(8) } else { 0 })),
    ("counter, bimodal", |r, n| counts(r, n, |_, r| if r.odd(2) { 4_096 } else { 64 })),
    ("counter, drifting", |r, n| counts(r, n, |i, r| 100 + 900 * i as u64 / n as u64 + r.below(5))),
    ("counter, periodic", |r, n| counts(r, n, |i, _| if i / 50 % 2 == 0 { 512 } else { 0 })),
    ("counter, every seventh", |r, n| counts(r, n, |i, _| if i % 7 == 0 { 64 } else { 1 })),
    // Another program displaces data from the caches, and the misses are counted in the call.
    ("counter, preempted", |r, n| {
        counts(r, n, |_, r| {
            1_000 + r.below(20) + if r.odd(500) { 500 + r.below(20_000) } else { 0 }
        })
    }),
];

#[derive(Debug, Default)]
struct Said {
    nothing: u32,
    value: u32,
    interval: u32,
    held: u32,
    /// The sum of the relative errors.
    error: f64,
    /// The sum of the squares of the relative errors.
    squares: f64,
}

/// Draws a sample of `values`. The sample contains the first `FIRST` values. Each of the others is
/// drawn with probability 1/weight, independently of the rest.
fn draw(values: &[f64], weight: u64, random: &mut Random) -> Strata {
    let mut strata = Strata::default();
    values[..FIRST.min(values.len())].iter().for_each(|value| strata.add(1, *value));
    let miss = (1.0 - 1.0 / weight as f64).ln();
    let mut at = FIRST;
    loop {
        let gap = ((1.0 - part(random)).ln() / miss) as usize;
        at = at.saturating_add(gap);
        let Some(value) = values.get(at) else { return strata };
        strata.skip(gap as u64);
        strata.add(weight, *value);
        at += 1;
    }
}

fn say(random: &mut Random, values: &[f64], weight: u64) -> Said {
    let truth: f64 = values.iter().sum();
    let mut said = Said::default();
    for _ in 0..DRAWS {
        let mut pool = Pool::default();
        pool.add(&draw(values, weight, random), values.len() as u64, &Tail::default());
        let Some(total) = pool.total() else {
            said.nothing += 1;
            continue;
        };
        if truth > 0.0 {
            let error = total.value / truth - 1.0;
            said.error += error;
            said.squares += error * error;
        }
        let room = 1e-9 * truth;
        match total.interval {
            None => said.value += 1,
            Some(interval) => {
                said.interval += 1;
                let holds = interval.low - room <= truth && truth <= interval.high + room;
                said.held += u32::from(holds);
            }
        }
    }
    said
}

#[test]
fn intervals_that_are_stated_hold_what_is_true() {
    let mut random = Random(0x5eed_c0de);
    let (mut stated, mut silent) = (0, 0);
    let (mut all_held, mut all_stated) = (0, 0);
    let mut wrong = Vec::new();
    for (name, population) in POPULATIONS {
        for calls in [5, 300, 30_000, 120_000] {
            let values = population(&mut random, calls);
            for weight in [100, 50, 20, 10] {
                let said = say(&mut random, &values, weight);
                let what = format!("{name}, {calls} calls, {} %", 100 / weight);
                let drawn = (calls as f64 - FIRST as f64) / weight as f64;
                if said.interval > 0 {
                    stated += 1;
                    all_held += said.held;
                    all_stated += said.interval;
                    let n = f64::from(said.interval);
                    if f64::from(said.held) < 0.93 * n - 2.0 * (0.93 * 0.07 * n).sqrt() {
                        wrong.push(format!("{what}: {said:?}"));
                    }
                } else {
                    silent += 1;
                }
                // Unless nearly all values are known, an estimate needs 30 drawn calls. If fewer
                // than 10 are expected, no sample has 30.
                if calls > FIRST && drawn < 10.0 {
                    assert_eq!(said.nothing, DRAWS, "{what}: {said:?}");
                }
                if drawn < 1_000.0 && calls > FIRST {
                    assert_eq!(said.interval, 0, "{what}: {said:?}");
                }
                if drawn > 2_200.0 {
                    assert_eq!(said.interval, DRAWS, "{what}: {said:?}");
                }
                // The mean error of the estimates must be near 0, if there is an estimate for every
                // sample.
                if said.nothing == 0 {
                    let n = f64::from(DRAWS);
                    let mean = said.error / n;
                    let error = ((said.squares / n - mean * mean).max(0.0) / n).sqrt();
                    assert!(mean.abs() <= 4.5 * error + 1e-9, "{what}: {mean} ± {error}");
                }
                if std::env::var_os("COUNTERPOINT_SHOW").is_some() {
                    println!("{what}: {said:?}");
                }
            }
        }
    }
    assert_eq!(wrong, [""; 0]);
    assert!(f64::from(all_held) >= 0.95 * f64::from(all_stated), "{all_held} of {all_stated}");
    assert!(stated > 100 && silent > 100, "{stated} {silent}");
}

/// Ops run on several threads, and their calls differ from thread to thread. One thread has no
/// drawn call.
#[test]
fn rows_of_several_threads() {
    let mut random = Random(0x5eed_70a1);
    for (threads, few) in [(4, 5), (8, 40)] {
        let (mut held, mut stated) = (0, 0);
        for _ in 0..DRAWS {
            let mut pool = Pool::default();
            let mut truth = 0.0;
            for thread in 0..threads {
                let mean = 100.0 * f64::from(1 + thread % 3);
                let values = times(&mut random, 12_000, |_, _| mean);
                truth += values.iter().sum::<f64>();
                pool.add(&draw(&values, 20, &mut random), 12_000, &Tail::default());
            }
            // One more thread has so few calls that only its first calls were timed.
            let values = times(&mut random, FIRST + few, |_, _| 300.0);
            truth += values.iter().sum::<f64>();
            let mut first = Strata::default();
            values[..FIRST].iter().for_each(|value| first.add(1, *value));
            pool.add(&first, values.len() as u64, &Tail::default());
            let interval = pool.total().unwrap().interval.unwrap();
            stated += 1;
            held += u32::from(interval.contains(truth));
        }
        assert!(f64::from(held) >= 0.93 * f64::from(stated), "{threads} threads: {held}");
    }
}

/// Makes the number of an op's calls in each step. The second argument is the number of steps.
type StepPopulation = fn(&mut Random, usize) -> Vec<u64>;

fn steps(r: &mut Random, steps: usize, of: impl Fn(usize, &mut Random) -> u64) -> Vec<u64> {
    (0..steps).map(|i| of(i, r)).collect()
}

const STEP_POPULATIONS: [(&str, StepPopulation); 11] = [
    ("equal", |_, n| vec![40; n]),
    ("bimodal", |r, n| steps(r, n, |_, r| if r.odd(2) { 5 } else { 50 })),
    ("bimodal 1 in 10", |r, n| steps(r, n, |_, r| if r.odd(10) { 500 } else { 40 })),
    ("twice as many 1 in 500", |_, n| {
        (0..n).map(|i| if i % 500 == 250 { 80 } else { 40 }).collect()
    }),
    ("only in 1 of 500", |_, n| (0..n).map(|i| if i % 500 == 250 { 60 } else { 0 }).collect()),
    ("cold", |_, n| (0..n).map(|i| if i < 8 { 90 } else { 10 }).collect()),
    ("drifting", |_, n| (0..n).map(|i| 10 + 90 * i as u64 / n as u64).collect()),
    ("phases", |_, n| (0..n).map(|i| if 2 * i < n { 20 } else { 200 }).collect()),
    ("periodic", |_, n| (0..n).map(|i| if i / 50 % 2 == 0 { 100 } else { 10 }).collect()),
    ("every seventh", |_, n| (0..n).map(|i| if i % 7 == 0 { 100 } else { 10 }).collect()),
    // In some steps, another program has the processor for a while. A thread that waits meanwhile
    // calls the op more often.
    ("preempted", |r, n| {
        steps(r, n, |_, r| 20 + r.below(30) + if r.odd(20) { r.below(60) } else { 0 })
    }),
];

/// Draws steps as the agent (Counterpoint's part in the profiled program) does for PyTorch. PyTorch
/// announces ops in the first 8 steps, of which the last 4 belong to the sample. Then PyTorch
/// announces ops in each later step with the probability 1/`period`. Returns the counts of these
/// steps, and the true number of calls of all steps.
fn draw_steps(calls: &[u64], period: u64, random: &mut Random) -> (CountedCalls, u64) {
    let mut of = CountedSteps::default();
    let mut seen = 0;
    let mut add = |at: usize, weight: u64| {
        (of.sampled, of.weight) = (of.sampled + weight.min(1), of.weight + weight);
        of.squared_weight += weight * weight;
        of.sum += weight * calls[at];
        of.squares += weight * calls[at] * calls[at];
        (seen, of.away) = (seen + calls[at], of.away + 1);
    };
    (0..8).for_each(|at| add(at, u64::from(at >= 4)));
    let miss = (1.0 - 1.0 / period as f64).ln();
    let mut at = 8;
    loop {
        at += ((1.0 - part(random)).ln() / miss) as usize;
        if at >= calls.len() {
            break;
        }
        add(at, period);
        at += 1;
    }
    of.away = calls.len() as u64 - of.away;
    of.unseen = (of.sum * of.away + of.weight / 2) / of.weight;
    let counted =
        CountedCalls { calls: seen + of.unseen, steps: Some(of), ..CountedCalls::default() };
    (counted, calls.iter().sum::<u64>())
}

/// The tested periods (2 to 16 steps) are those that result from budgets of 1 to 10 %.
#[test]
fn intervals_of_calls_by_steps_hold_what_is_true() {
    let mut random = Random(0x5eed_57e9);
    let (mut all_held, mut all_stated, mut silent) = (0, 0, 0);
    let mut wrong = Vec::new();
    for (name, population) in STEP_POPULATIONS {
        for count in [30, 400, 4_000, 40_000] {
            let calls = population(&mut random, count);
            for period in [2, 4, 8, 16] {
                let (mut held, mut stated) = (0, 0);
                for _ in 0..DRAWS {
                    let (counted, truth) = draw_steps(&calls, period, &mut random);
                    let said = calls_of(&counted).expect("an estimate");
                    let Some(interval) = said.interval else { continue };
                    stated += 1;
                    assert!(interval.contains(said.value), "{said:?}");
                    // Numbers of calls are whole, so the ends of the interval are rounded outwards.
                    let holds = interval.low.floor() <= truth as f64
                        && truth as f64 <= interval.high.ceil();
                    held += u32::from(holds);
                }
                silent += DRAWS - stated;
                (all_held, all_stated) = (all_held + held, all_stated + stated);
                let n = f64::from(stated);
                let what = format!("{name}, {count} steps, 1 of {period}: {held} of {stated}");
                // If few samples result in an interval, it is not checked how often these intervals
                // contain the true number.
                let some = 5 * stated > DRAWS;
                if some && f64::from(held) < 0.93 * n - 2.0 * (0.93 * 0.07 * n).sqrt() {
                    wrong.push(what.clone());
                }
                if std::env::var_os("COUNTERPOINT_SHOW").is_some() {
                    println!("{what}");
                }
                // With 30 steps, there is no interval. With 4,000 or more, there is always one,
                // except for an op that runs only in 1 of 500 steps.
                assert!(count > 30 || stated == 0, "{what}");
                assert!(count < 4_000 || name == "only in 1 of 500" || stated == DRAWS, "{what}");
            }
        }
    }
    assert_eq!(wrong, [""; 0]);
    assert!(f64::from(all_held) >= 0.95 * f64::from(all_stated), "{all_held} of {all_stated}");
    assert!(silent > 1_000, "{silent}");
}
