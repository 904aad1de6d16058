//! Replays calls that a program has made, and draws (chooses at random) some of them, as a thread
//! does in a run with a budget (a limit for the cost of recording). The test compares the
//! confidence intervals of the estimated totals with the true totals of the same calls. So
//! differences between runs of the program play no role.
//!
//! ```text
//!  recording ─► calls of each thread ─► Draws, with another seed each time ─► Strata ─► interval
//!                     └─► totals of each op ────────────────────────────────────────────► holds it?
//! ```
//!
//! A recording is a text. Each line is a call. The calls of a thread are in the order in which they
//! began. A line contains the thread's number, the op's number, two times in ns, and optionally the
//! value of a counter. The first time is the gap between the end of the thread's previous call and
//! the start of this call. The second is the call's duration. `benches/budget_intervals.py` makes
//! such texts.
//!
//! If `COUNTERPOINT_TEST_RECORDING` is set, the test replays that recording and writes its results
//! to the file that `COUNTERPOINT_TEST_RESULT` names, as lines `NAME VALUE UNIT` (`cargo xtask
//! bench budget-intervals`). Otherwise, it checks the recordings in `replay/`.

use std::fmt::Write;

use analysis::Sum;
use analysis::sampled::quantile::Weighted;
use analysis::sampled::tail::Tail;
use analysis::sampled::{Pool, Strata};
use record::ClockKind;
use record::counts::Entry;

use super::account::{Account, Cost};
use super::random::Random;
use super::sampling::{Draws, How, count};

/// The recordings in the repository; `replay/README.md` describes them.
const KEPT: [(&str, &str); 2] = [
    ("transformer", include_str!("replay/transformer.txt")),
    ("mlp", include_str!("replay/mlp.txt")),
];
const BUDGETS: [(&str, f64); 4] = [("1%", 0.01), ("2%", 0.02), ("5%", 0.05), ("10%", 0.1)];
const REPLAYS: u64 = 100;
/// Longer gaps between two calls are reduced to this length in ns: the thread is assumed to have
/// waited, and waiting takes no processor time.
const LONGEST_GAP: u64 = 50_000;
/// An assumption: attaching a thread to the recorder takes this time in ns.
const ATTACHING: u64 = 200_000;
/// Further assumptions: the cost in ns of a record of the thread's clocks, the cost in ns of
/// handing over a full page (memory block) of records, and the number of records on a page.
const CLOCK_RECORD: f64 = 500.0;
const PAGE: f64 = 15_000.0;
const RECORDS: u64 = 12_000;

#[derive(Clone, Copy, Debug)]
struct Made {
    op: usize,
    gap: u64,
    duration: u64,
    counter: Option<u64>,
}

struct Recording {
    threads: Vec<Vec<Made>>,
    ops: usize,
}

impl Recording {
    fn parse(text: &str) -> Self {
        let mut it = Self { threads: Vec::new(), ops: 0 };
        for line in text.lines() {
            let numbers: Vec<u64> = line.split(' ').map(|word| word.parse().unwrap()).collect();
            let &[thread, op, gap, duration, ref more @ ..] = &numbers[..] else {
                panic!("{line}")
            };
            let (thread, op) = (thread as usize, op as usize);
            it.threads.resize_with(it.threads.len().max(thread + 1), Vec::new);
            it.threads[thread].push(Made { op, gap, duration, counter: more.first().copied() });
            it.ops = it.ops.max(op + 1);
        }
        it
    }

    /// Returns the sum of `value` over all calls of an op, or `None` if `value` returns `None` for
    /// one of these calls.
    fn truth(&self, op: usize, value: impl Fn(&Made) -> Option<u64>) -> Option<u64> {
        self.threads.iter().flatten().filter(|made| made.op == op).map(value).sum()
    }

    fn has_counter(&self) -> bool {
        self.threads.iter().flatten().all(|made| made.counter.is_some())
    }
}

/// What is known about the calls of an op on one thread after some of these calls were drawn.
#[derive(Clone, Default)]
struct Unit {
    calls: u64,
    /// The number of timed calls, and the number of calls whose counter was read.
    known: [u64; 2],
    durations: Strata,
    counter: Strata,
    values: [Weighted; 2],
}

/// Replays the calls of a thread. Returns what is known about each op afterwards.
fn replay(made: &[Made], ops: usize, budget: f64, counts: bool, seed: u64) -> Vec<Unit> {
    // SAFETY: an entry consists of integers, so all-zero bytes are a valid entry.
    let mut entries: Vec<Entry> = (0..ops).map(|_| unsafe { std::mem::zeroed() }).collect();
    let mut units = vec![Unit::default(); ops];
    let mut draws = Draws::off(std::ptr::null_mut());
    (draws.entries, draws.len) = (entries.as_mut_ptr(), ops as u32);
    (draws.is_on, draws.counts) = (true, counts);
    draws.random = Random::new(seed);
    draws.account = Account::new(budget, 1.0, 0, counts);
    draws.account.only_counted = Cost::new(2.0);
    draws.account.add_attaching(ATTACHING);
    draws.account.update_share(ATTACHING, counts);
    // The recorder's measurements of its own cost vary. A separate generator imitates this
    // variation, so that the random numbers with which calls are drawn stay the same.
    let mut noise = Random::new(!seed);
    let (mut now, mut records) = (ATTACHING, 0);
    for made in made {
        let before = now;
        now += made.gap.min(LONGEST_GAP) + made.duration;
        let unit = &mut units[made.op];
        unit.calls += 1;
        let is_due = draws.entry(made.op as u32).is_some_and(count);
        if is_due
            && let Some((open, read)) = draws.draw(made.op as u32, How::Due, ClockKind::Monotonic)
        {
            let (drawn, weight) = (open.drawn, u64::from(open.drawn.period));
            // The crate `analysis` does the same with the records of a profile.
            unit.known[0] += 1;
            unit.durations.skip(drawn.skipped);
            unit.durations.add(weight, made.duration as f64);
            unit.values[0].push(made.duration, weight);
            unit.counter.skip(drawn.skipped);
            match made.counter.filter(|_| read) {
                Some(value) => {
                    let weight = weight * u64::from(drawn.counter_period);
                    unit.known[1] += 1;
                    unit.counter.add(weight, value as f64);
                    unit.values[1].push(value, weight);
                }
                None => unit.counter.skip(1),
            }
            // Timing a call is assumed to cost the recorder 40 to 103 ns, and reading counters
            // another 1.1 to 1.6 µs.
            let own = 40 + noise.next() % 64 + if read { 1_100 + noise.next() % 512 } else { 0 };
            draws.add(&open, made.duration, read, (open.begun != 0).then_some(own));
            records += 1;
            if records % RECORDS == 0 {
                draws.account.add_fixed(PAGE);
            }
        }
        if now / 1_000_000 != before / 1_000_000 {
            draws.account.add_fixed(CLOCK_RECORD);
            draws.account.update_share(now, counts);
        }
    }
    units
}

/// Statistics about the estimates of one quantity (the durations or the counter of an op) over all
/// replays.
#[derive(Clone, Debug, Default)]
struct Judged {
    /// The number of intervals that contain the true value (`held`), of those that do not
    /// (`missed`), and of estimates without an interval (`unknown`).
    held: u64,
    missed: u64,
    unknown: u64,
    /// The number of replays without an estimate, because too few calls were drawn.
    silent: u64,
    /// The number of intervals that end below the true value.
    too_low: u64,
    /// The sums of the relative errors of the estimates, and of their squares.
    error: f64,
    squares: f64,
    /// The number of calls that were timed (for durations) or whose counter was read (for the
    /// counter), in all replays with an estimate.
    known: u64,
    /// The sum of the half lengths of the intervals, relative to the true value.
    half: f64,
}

impl Judged {
    fn add(&mut self, sum: Option<Sum>, truth: f64, known: u64) {
        let Some(sum) = sum else {
            self.silent += 1;
            return;
        };
        let error = (sum.value() - truth) / truth;
        (self.error, self.squares) = (self.error + error, self.squares + error * error);
        self.known += known;
        let Some(interval) = sum.interval() else {
            self.unknown += 1;
            return;
        };
        self.half += interval.half() / truth;
        // The interval of an exact estimate has the length 0, so rounding errors must be allowed
        // for.
        let room = 1e-9 * truth;
        let held = interval.low - room <= truth && truth <= interval.high + room;
        *(if held { &mut self.held } else { &mut self.missed }) += 1;
        self.too_low += u64::from(interval.high + room < truth);
    }

    fn estimates(&self) -> f64 {
        (self.held + self.missed + self.unknown) as f64
    }

    /// Returns the share of the intervals that contain the true value, if there are any.
    fn share(&self) -> Option<f64> {
        let stated = self.held + self.missed;
        (stated > 0).then(|| self.held as f64 / stated as f64)
    }

    /// Returns the mean error of the estimates, as a multiple of its standard error. It is near 0
    /// if the estimates are right on average.
    fn bias(&self) -> f64 {
        let n = self.estimates();
        let mean = self.error / n;
        let variance = (self.squares / n - mean * mean).max(0.0);
        if variance < 1e-20 { 0.0 } else { mean / (variance / n).sqrt() }
    }
}

/// Returns the results for the durations of each op and, if the recording has a counter, for the
/// counter of each op.
fn judge(recording: &Recording, budget: f64, replays: u64, seed: u64) -> [Vec<Judged>; 2] {
    let (ops, counts) = (recording.ops, recording.has_counter());
    let mut judged = [vec![Judged::default(); ops], vec![Judged::default(); ops]];
    for number in 0..replays {
        let mut pools = vec![[Pool::default(), Pool::default()]; ops];
        let mut known = vec![[0; 2]; ops];
        let threads = recording.threads.iter().enumerate().map(|(thread, made)| {
            let seed = (seed + number) << 8 | thread as u64;
            replay(made, ops, budget, counts, seed)
        });
        let threads: Vec<Vec<Unit>> = threads.collect();
        let tails = [0, 1].map(|what| {
            let mut all = vec![Weighted::default(); ops];
            for (op, unit) in threads.iter().flat_map(|units| units.iter().enumerate()) {
                all[op].append(unit.values[what].clone());
            }
            Tail::of(&mut all)
        });
        for (op, unit) in threads.iter().flat_map(|units| units.iter().enumerate()) {
            if unit.calls > 0 {
                known[op][0] += unit.known[0];
                known[op][1] += unit.known[1];
                pools[op][0].add(&unit.durations, unit.calls, &tails[0]);
                if counts && unit.counter.known() > 0 {
                    pools[op][1].add(&unit.counter, unit.calls, &tails[1]);
                }
            }
        }
        for op in 0..ops {
            let truths = [
                recording.truth(op, |made| Some(made.duration)),
                recording.truth(op, |made| made.counter),
            ];
            for (what, truth) in truths.into_iter().enumerate() {
                if let Some(truth) = truth.filter(|truth| *truth > 0) {
                    judged[what][op].add(pools[op][what].sum(), truth as f64, known[op][what]);
                }
            }
        }
    }
    judged
}

/// For each recorded program, budget and quantity, at least 90 % of the intervals contain the true
/// total. For each op with an estimate in all replays, the estimates are right on average. The
/// seeds are fixed.
///
/// The 90 % refer to all ops of a program together. They need not hold for a single op with few
/// calls. For example, if one call took a tenth of the op's time, a sample without this call cannot
/// show that.
#[test]
fn intervals_hold_the_totals_of_recorded_programs() {
    if let Some(path) = std::env::var_os("COUNTERPOINT_TEST_RECORDING") {
        let result = std::env::var_os("COUNTERPOINT_TEST_RESULT").unwrap();
        let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
        let text = std::fs::read_to_string(path).unwrap();
        let replays = number("COUNTERPOINT_TEST_REPLAYS").unwrap_or(REPLAYS);
        let seed = number("COUNTERPOINT_TEST_SEED").unwrap_or(0);
        std::fs::write(result, lines(&Recording::parse(&text), replays, seed)).unwrap();
        return;
    }
    for (name, text) in KEPT {
        let recording = Recording::parse(text);
        for (budget, part) in BUDGETS {
            let judged = judge(&recording, part, REPLAYS, 0);
            for (what, all) in ["duration", "counter"].into_iter().zip(judged) {
                if what == "counter" && !recording.has_counter() {
                    continue;
                }
                let sum = |of: fn(&Judged) -> u64| all.iter().map(of).sum::<u64>();
                let (held, missed) = (sum(|one| one.held), sum(|one| one.missed));
                let what = format!("{name}, budget {budget}, {what}: {held} held, {missed} missed");
                assert!(held >= 9 * missed, "{what}: {all:?}");
                // The recordings are short, so most estimates have no interval. So the bias is
                // computed from all estimates, with or without an interval.
                let always = all.iter().filter(|one| one.silent == 0 && one.estimates() > 0.0);
                let biases: Vec<f64> = always.map(Judged::bias).collect();
                assert!(biases.iter().all(|bias| bias.abs() < 5.0), "{what}: {biases:?}");
            }
        }
    }
}

fn lines(recording: &Recording, replays: u64, seed: u64) -> String {
    let mut lines = String::new();
    for (budget, part) in BUDGETS {
        let judged = judge(recording, part, replays, seed);
        for (what, all) in ["duration", "counter"].into_iter().zip(&judged) {
            let place = format!("{budget}.{what}");
            let stated = all.iter().filter_map(|one| one.share().map(|share| (share, one)));
            let mut shares: Vec<f64> = stated.clone().map(|(share, _)| share).collect();
            shares.sort_by(f64::total_cmp);
            let sum = |of: &dyn Fn(&Judged) -> f64| all.iter().map(of).sum::<f64>();
            let held = sum(&|one| one.held as f64);
            let known = held + sum(&|one| one.missed as f64);
            let Some(worst) = shares.first() else { continue };
            let _ = writeln!(lines, "{place}.held {} part", held / known);
            let _ = writeln!(lines, "{place}.worst-op {worst} part");
            let unknown = sum(&|one| one.unknown as f64);
            let _ = writeln!(lines, "{place}.unknown {} part", unknown / (known + unknown));
            for (op, one) in all.iter().enumerate().filter(|(_, one)| one.estimates() > 0.0) {
                let n = one.estimates();
                let _ = writeln!(
                    lines,
                    "{place}.op{op} {} part: {} known of {} calls, {} too low, {} unknown, ±{:.4}, bias {:.1} errors",
                    one.share().unwrap_or(f64::NAN),
                    one.known as f64 / n,
                    recording.threads.iter().flatten().filter(|made| made.op == op).count(),
                    one.too_low,
                    one.unknown,
                    one.half / n,
                    one.bias(),
                );
            }
        }
    }
    lines
}
