//! Counts the calls in runs of a model without watching these runs, if recording has a budget (a
//! limit for its cost). A run is *watched* if the host announces each of its calls to the recorder.
//!
//! A virtual machine announces each op, including ops that are only counted. If ops are short, the
//! announcements alone can take more than the budget. But many functions of models make the same
//! calls in each run. The adapter can let such a function run without announcements, and the
//! recorder still counts the calls of that run:
//!
//! ```text
//!  run 1 2 3        watched: do they make the same calls?
//!  then, drawn      watched, one in `period`: ops are drawn among these; the calls are compared
//!                   all others: the run is counted and drawn, and the known calls are counted with it
//! ```
//!
//! Announcements make a watched run longer. So the duration of a watched run is recorded only while
//! all runs of the function are watched.
//!
//! If a watched run of a function succeeds but does not make the known calls, the function's later
//! runs are all watched.

use model::Loss;

use crate::process::losses;
use crate::recorder::thread::Thread;

/// Runs are left unwatched only after this many successive runs have made the same calls.
const ALIKE: u32 = 3;
/// Until a function's calls are known, a run can fail or make other calls than the run before.
/// After this many such runs, all runs of the function are watched.
const MOST_DIFFERENT: u32 = 8;
/// One in this many unwatched runs is timed. Must be a power of two.
const TIME_EVERY: u32 = 16;
/// The first unwatched runs, up to this number, are all timed.
const FIRST_TIMED: u32 = 4;
const WEIGHT: f64 = 1.0 / 8.0;

/// The knowledge about the runs of one function of a model.
#[derive(Debug, Default)]
pub struct Pattern {
    /// Serial number of the part of the profile to which the other fields belong.
    serial: u32,
    /// Number of successive runs that made the same calls, at most [`ALIKE`].
    alike: u32,
    different: u32,
    /// A hash of the sequence of calls that each run makes.
    hash: u64,
    /// Number of calls that the host announces in each watched run.
    told: u32,
    /// The exports (recorded functions) that are called in each run, and the number of calls of
    /// each.
    calls: Vec<(u32, u64)>,
    /// One run in `period` is watched; `left` is the number of runs until the next watched one.
    period: u32,
    left: u64,
    /// Three means, in ticks: the duration of a run that is not watched; how much longer a watched
    /// run takes; and the recorder's cost for a run that is not watched.
    run_ticks: Mean,
    more_ticks: Mean,
    own_ticks: Mean,
    unwatched: u32,
    since: u64,
}

/// A running mean. A value above four times the mean is reduced to four times the mean, because the
/// recorder was probably interrupted.
#[derive(Clone, Copy, Debug, Default)]
struct Mean(f64);

impl Mean {
    fn add(&mut self, value: f64) {
        if self.0 > 0.0 {
            self.0 += (value.min(4.0 * self.0) - self.0) * WEIGHT;
        } else {
            self.0 = value;
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// All ops of the run are announced, and this module does nothing with them.
    Ordinary,
    /// The run is watched, and its calls must then be passed to [`Pattern::learn`].
    Learn,
    /// The run is watched. It was drawn with the probability 1 divided by this number.
    Watched(u32),
    /// The run is not watched. The value says whether it is to be timed.
    Unwatched(bool),
}

/// The calls that the host announced in a watched run: their hash and their number.
#[derive(Clone, Copy, Debug)]
pub struct Calls {
    pub hash: u64,
    pub told: u32,
}

impl Pattern {
    /// Decides how the next run of the function is recorded. Recording must have a budget.
    pub fn next(&mut self, thread: &mut Thread) -> Next {
        if self.serial != thread.serial {
            *self = Self { serial: thread.serial, ..Self::default() };
        }
        if self.different >= MOST_DIFFERENT {
            return Next::Ordinary;
        }
        if self.alike < ALIKE {
            return Next::Learn;
        }
        if self.left > 1 {
            self.left -= 1;
            let is_timed =
                self.unwatched < FIRST_TIMED || self.unwatched.is_multiple_of(TIME_EVERY);
            return Next::Unwatched(is_timed);
        }
        let drawn_with = self.period;
        self.draw(thread);
        Next::Watched(drawn_with)
    }

    fn draw(&mut self, thread: &mut Thread) {
        let account = &thread.draws.account;
        // A new period is at most twice the last one (or 2, if that is larger). The limit is needed
        // because the period is computed from measured runs, of which the first are slow.
        let longest = self.period.saturating_mul(2).max(2);
        let (cost, run, own) = (self.more_ticks.0, self.run_ticks.0, self.own_ticks.0);
        let wanted = account.runs_per_watched(cost, run, own, self.period.max(1));
        self.period = wanted.min(longest);
        self.left = thread.draws.random.gap(self.period);
    }

    /// Called after a run of the kind [`Next::Learn`], with the called exports and the number of
    /// calls of each.
    pub fn learn(
        &mut self,
        thread: &mut Thread,
        seen: Calls,
        calls: Vec<(u32, u64)>,
        ticks: u64,
        failed: bool,
    ) {
        if failed || self.serial != thread.serial {
            self.different += u32::from(failed);
            return;
        }
        if self.alike > 0 && (seen.hash, seen.told) != (self.hash, self.told) {
            self.alike = 0;
            self.different += 1;
        }
        (self.hash, self.told, self.calls) = (seen.hash, seen.told, calls);
        self.alike += 1;
        if self.alike == ALIKE {
            // Later measurements of watched and unwatched runs correct these estimates.
            let told = f64::from(seen.told) * thread.draws.account.only_counted.ticks();
            let run = (ticks as f64 - told).max(ticks as f64 / 8.0);
            (self.run_ticks, self.more_ticks) = (Mean(run), Mean(ticks as f64 - run));
            self.draw(thread);
        }
    }

    /// Called after a run of the kind [`Next::Watched`], which took `ticks`. Compares the run's
    /// calls with the known ones.
    pub fn compare(&mut self, thread: &mut Thread, seen: Calls, ticks: u64, failed: bool) {
        if self.serial != thread.serial {
            return;
        }
        if !failed && self.unwatched > 0 {
            self.more_ticks.add((ticks as f64 - self.run_ticks.0).max(0.0));
        }
        thread.draws.account.add_run(0, self.more_ticks.0);
        if !failed && (seen.hash, seen.told) != (self.hash, self.told) {
            self.different = MOST_DIFFERENT;
            losses::lose(Loss::RunsUnlike, self.since.max(1), 0);
        }
        if !failed {
            self.since = 0;
        }
    }

    /// Called after a run that was not watched. Counts the known calls for it. `ticks` contains the
    /// run's duration and the recorder's cost for it, if the run was timed. Returns the number of
    /// calls that the host would have announced in a watched run. Returns 0 if nothing was counted,
    /// because the run failed or the thread now records into another part of the profile.
    pub fn count(&mut self, thread: &mut Thread, ticks: Option<(u64, u64)>, failed: bool) -> u32 {
        if self.serial != thread.serial {
            return 0;
        }
        if failed {
            // The failed run may have made only some of the function's calls, and it is unknown
            // which. So none is counted.
            losses::lose(Loss::RunsUnlike, 1, 0);
            return 0;
        }
        self.since += 1;
        self.unwatched = self.unwatched.wrapping_add(1);
        if let Some((run, own)) = ticks {
            self.own_ticks.add(own as f64);
            if self.unwatched == 1 {
                self.run_ticks = Mean(run as f64);
            } else {
                self.run_ticks.add(run as f64);
            }
        }
        let mut all = 0;
        for &(export, calls) in &self.calls {
            thread.count_unwatched(export, calls);
            all += calls;
        }
        thread.draws.account.add_run(all, self.own_ticks.0);
        self.told
    }
}
