//! Handles programs whose host announces its ops only in some *steps* of the program (such as
//! iterations of a training loop), in a run with a budget (a limit for the cost of recording).
//!
//! If the announcements alone would cost more than the budget, the adapter removes the observer (to
//! which the host announces its ops) for whole steps, chosen at random. Calls in a step without the
//! observer (a step that is *away*) are not seen. Each thread computes how many calls of each
//! export (recorded function) there are on average in a seen step, and adds as many for each step
//! that was away:
//!
//! ```text
//!  adapter   step ends, next one drawn ─► Totals, number and weight of the step that begins
//!  thread    first call in another step ─► its counts of the last step ─► sums ─► calls of steps away
//! ```
//!
//! A thread reads only its own counts and a few totals of the process, so no thread waits for
//! another. [`record::counts::steps`] describes the estimate.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use record::counts::Entry;
use record::counts::steps::Steps;

use super::sampling::{Draws, OwnSteps, count_unwatched};

/// Changes whenever a step begins or is cut ([`Step::Cut`]); 0 if the process has no steps.
static NUMBER: AtomicU64 = AtomicU64::new(0);
/// The number of steps that the step in progress represents (its weight in the sample of seen
/// steps); 0 if the step is not in the sample.
static WEIGHT: AtomicU32 = AtomicU32::new(0);
/// Stored in `WEIGHT` instead of a weight after a step was cut ([`Step::Cut`]).
const OF_CUT: u32 = u32::MAX;
/// Whether the host does not announce its ops at present.
static IS_AWAY: AtomicU32 = AtomicU32::new(0);

/// Totals of the process, which only grow. The first three are about the ended steps in the sample:
/// their number, the sum of their weights, and that of their squared weights. The last one is the
/// number of steps that were away when they began, including the step in progress.
static SAMPLED: AtomicU64 = AtomicU64::new(0);
static WEIGHTS: AtomicU64 = AtomicU64::new(0);
static SQUARES: AtomicU64 = AtomicU64::new(0);
static AWAY: AtomicU64 = AtomicU64::new(0);

/// Whether the host announces the ops of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Announced. The step is not in the sample, so it represents only itself.
    Certain,
    /// Announced. The step is in the sample with this weight.
    Sampled(u32),
    Away,
    /// The step was away, but took too long. So its ops are announced from now on.
    Cut,
}

#[inline(always)]
pub fn is_away() -> bool {
    IS_AWAY.load(Ordering::Relaxed) != 0
}

/// Returns how many calls a call represents because of the step in which it is made.
#[inline(always)]
pub fn weight() -> u32 {
    match WEIGHT.load(Ordering::Relaxed) {
        0 | OF_CUT => 1,
        weight => weight,
    }
}

/// Called when a step ends and the next one begins. Only one thread calls this at a time.
pub fn next(ended: Step, begins: Step) {
    if let Step::Sampled(weight) = ended {
        let weight = u64::from(weight);
        SAMPLED.fetch_add(1, Ordering::Relaxed);
        WEIGHTS.fetch_add(weight, Ordering::Relaxed);
        SQUARES.fetch_add(weight * weight, Ordering::Relaxed);
    }
    AWAY.fetch_add(u64::from(begins == Step::Away), Ordering::Relaxed);
    set(begins);
}

pub fn set(now: Step) {
    let weight = match now {
        Step::Sampled(weight) => weight,
        Step::Cut => OF_CUT,
        Step::Certain | Step::Away => 0,
    };
    WEIGHT.store(weight, Ordering::Relaxed);
    IS_AWAY.store(u32::from(now == Step::Away), Ordering::Relaxed);
    NUMBER.fetch_add(1, Ordering::Release);
}

impl Draws {
    /// Called when the thread begins to count calls.
    pub(super) fn begin_steps(&mut self) {
        self.steps = OwnSteps {
            number: NUMBER.load(Ordering::Acquire),
            weight: WEIGHT.load(Ordering::Relaxed),
            before: [&SAMPLED, &WEIGHTS, &SQUARES].map(|of| of.load(Ordering::Relaxed)),
            calls: 0,
        };
        let away = AWAY.load(Ordering::Relaxed);
        self.table.change_steps(|steps| *steps = Steps::default());
        if away > 0 {
            self.table.change_steps(|steps| (steps.away_before, steps.away) = (away, away));
        }
    }

    /// If a new step has begun or the step in progress was cut, adds up the calls that the thread
    /// has made since the last such change. Must be called before a call is counted, because that
    /// call may be in the new step.
    #[inline(always)]
    pub(crate) fn look_at_step(&mut self) {
        if NUMBER.load(Ordering::Relaxed) != self.steps.number {
            self.change_step();
        }
    }

    /// Adds up the thread's calls in the step that has ended or was cut, and estimates the calls of
    /// steps that were away.
    #[cold]
    #[inline(never)]
    pub(crate) fn change_step(&mut self) {
        let ended = self.steps.weight;
        self.steps.number = NUMBER.load(Ordering::Acquire);
        self.steps.weight = WEIGHT.load(Ordering::Relaxed);
        let totals = self.totals();
        // If the step in progress was cut, its missed calls are estimated only when it has ended.
        self.add_step(ended, totals, u64::from(self.steps.weight == OF_CUT));
    }

    /// Adds up the thread's calls of a step that had the weight `ended`. `totals` describes the
    /// sample up to now. For the last `for_later` steps that were away, no calls are estimated yet.
    fn add_step(&mut self, ended: u32, totals: [u64; 3], for_later: u64) {
        let [sampled, weight, squared_weight] = totals;
        let away = AWAY.load(Ordering::Relaxed);
        let mut missed = 0;
        self.table.change_steps(|steps| {
            missed = away.wrapping_sub(steps.away_before).saturating_sub(for_later);
            (steps.sampled, steps.weight, steps.squared_weight) = (sampled, weight, squared_weight);
            steps.away = away;
        });
        let mut of_step = 0;
        for export in 0..self.len {
            if let Some(entry) = self.entry(export)
                && entry.calls.load(Ordering::Relaxed) > 0
                && entry.is_always.load(Ordering::Relaxed) == 0
            {
                of_step += add_step_to(entry, ended, missed, weight);
            }
        }
        if of_step > 0 {
            self.steps.calls = of_step;
        }
    }

    /// Returns the totals of the sample since the thread attached: number of steps, sum of the
    /// weights, sum of the squared weights.
    fn totals(&self) -> [u64; 3] {
        let now = [&SAMPLED, &WEIGHTS, &SQUARES].map(|of| of.load(Ordering::Relaxed));
        std::array::from_fn(|i| now[i].wrapping_sub(self.steps.before[i]))
    }

    /// Adds up the thread's calls of the step in progress, when the thread ends.
    pub(super) fn end_steps(&mut self) {
        if NUMBER.load(Ordering::Relaxed) != 0 {
            self.look_at_step();
            // For this thread, the step in progress ends here. It is in the sample if it has a
            // weight.
            let weight = self.steps.weight;
            let mut totals = self.totals();
            if weight != 0 && weight != OF_CUT {
                let weight = u64::from(weight);
                let last = [1, weight, weight * weight];
                totals.iter_mut().zip(last).for_each(|(total, of_last)| *total += of_last);
            }
            self.add_step(weight, totals, 0);
            let state = if is_away() { Steps::ENDED_AWAY } else { Steps::ENDED };
            self.table.change_steps(|steps| steps.has_ended = state);
        }
    }

    pub(crate) fn tell_of_steps(&mut self, change: impl FnOnce(&mut Steps)) {
        self.table.change_steps(change);
    }

    /// Returns the period of seen steps: the ops of one step in so many are announced. A step that
    /// is away takes `without` ns, and a seen step takes `more` ns longer. Each step, seen or not,
    /// costs the recorder `own` ns.
    pub(crate) fn steps_per_seen(&self, more: f64, without: f64, own: f64, current: u32) -> u32 {
        self.account.runs_per_watched(more, without, own, current)
    }

    /// Returns the number of the thread's calls in the last step with calls.
    pub(crate) fn calls_of_step(&self) -> u64 {
        self.steps.calls
    }

    pub(crate) fn gap(&mut self, period: u32) -> u64 {
        self.random.gap(period)
    }

    /// Marks an export whose calls the host announces in every step, so that no further calls of it
    /// are estimated.
    pub(crate) fn is_always_announced(&self, export: u32) {
        if let Some(entry) = self.entry(export) {
            entry.is_always.store(1, Ordering::Relaxed);
        }
    }
}

/// Adds the calls of a step to the numbers of an export. `ended` is the weight of the step, `away`
/// is the number of steps without announcements, and `weights` is the sum of all weights in the
/// sample. If the estimate for the `away` steps has become larger, the difference is added to the
/// entry's `calls`. Returns the number of calls in the step.
fn add_step_to(entry: &Entry, ended: u32, away: u64, weights: u64) -> u64 {
    let order = Ordering::Relaxed;
    let calls = entry.calls.load(order);
    let of_step = calls.saturating_sub(entry.before_step.load(order));
    if ended == OF_CUT {
        // A cut step counts as a step that was away. The calls that were counted after the cut are
        // subtracted from the estimate, but at most the mean number of calls per step.
        let in_cut = &entry.in_cut;
        let mean = entry.sum.load(order).checked_div(weights).unwrap_or(0);
        in_cut.store(in_cut.load(order).saturating_add(of_step.min(mean)), order);
    } else if ended > 0 {
        let weighted = of_step.saturating_mul(ended.into());
        entry.sum.store(entry.sum.load(order).saturating_add(weighted), order);
        let squares = weighted.saturating_mul(of_step).saturating_add(entry.squares.load(order));
        entry.squares.store(squares, order);
    }
    let sum = u128::from(entry.sum.load(order));
    let estimate = (sum * u128::from(away) + u128::from(weights / 2)).checked_div(weights.into());
    let estimate = estimate.unwrap_or(0).min(u128::from(u64::MAX / 4)) as u64;
    let estimate = estimate.saturating_sub(entry.in_cut.load(order));
    let more = estimate.saturating_sub(entry.unseen.load(order));
    if more > 0 {
        entry.unseen.store(estimate, order);
        count_unwatched(entry, more);
    }
    entry.before_step.store(calls.saturating_add(more), order);
    of_step
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry() -> Entry {
        // SAFETY: an entry consists of integers, so all-zero bytes are a valid entry.
        unsafe { std::mem::zeroed() }
    }

    fn numbers(entry: &Entry) -> [u64; 4] {
        [&entry.calls, &entry.sum, &entry.squares, &entry.unseen]
            .map(|of| of.load(Ordering::Relaxed))
    }

    /// There are 5 calls in a step that is not in the sample, 3 in a step of weight 1, and 4 in a
    /// step of weight 2. So a step that was away has (3 + 2 · 4) / 3 calls on average, and 6 such
    /// steps have 22.
    #[test]
    fn calls_of_steps_that_were_away_are_those_of_the_sample() {
        let entry = entry();
        entry.calls.store(5, Ordering::Relaxed);
        add_step_to(&entry, 0, 0, 0);
        assert_eq!(numbers(&entry), [5, 0, 0, 0]);
        entry.calls.store(8, Ordering::Relaxed);
        add_step_to(&entry, 1, 0, 1);
        assert_eq!(numbers(&entry), [8, 3, 9, 0]);
        // Nothing is counted twice.
        add_step_to(&entry, 0, 0, 1);
        assert_eq!(numbers(&entry), [8, 3, 9, 0]);
        entry.calls.store(12, Ordering::Relaxed);
        add_step_to(&entry, 2, 6, 3);
        assert_eq!(numbers(&entry), [34, 11, 41, 22]);
        assert_eq!(entry.before_step.load(Ordering::Relaxed), 34);
        // If the estimate becomes smaller, no calls are subtracted.
        add_step_to(&entry, 0, 6, 4);
        assert_eq!(numbers(&entry), [34, 11, 41, 22]);
        // The seventh step that was away was cut, and 2 of its calls were counted afterwards. Seven
        // steps have 26 calls (11/3 · 7, rounded), 4 more than six steps. Of these 4 calls, 2 were
        // counted, so the other 2 are added. In the next cut step, 100 calls were counted, more
        // than estimated, so none are added.
        entry.calls.store(36, Ordering::Relaxed);
        add_step_to(&entry, OF_CUT, 7, 3);
        assert_eq!(numbers(&entry), [38, 11, 41, 24]);
        entry.calls.store(138, Ordering::Relaxed);
        add_step_to(&entry, OF_CUT, 8, 3);
        assert_eq!(numbers(&entry), [138, 11, 41, 24]);
    }
}
