//! Measures how long the recorder's brackets around calls take, for a few calls that are chosen at
//! random ([`record::brackets`] says why). A bracket has two halves: the recorder's work before the
//! call and after it.
//!
//! ```text
//!  enter(BEFORE) ··· read counters ··· start │ call │ end ··· read counters ··· record ··· bracket_ends
//! ```
//!
//! If a call does not end in the function of the agent in which it began, the measurement is kept
//! in the thread's state ([`Halves`]):
//!
//! ```text
//!  enter_and_keep(BEFORE) ··· kept_first_half_ends │ call │ second_half_begins ··· kept_bracket_ends
//!          └─ only counted: counted_half_ends(BEFORE)       counted_half_ends(AFTER) ─┘
//! ```
//!
//! Usually, the second half begins with the time stamp that ends the call. In this case, the
//! recorder decides after it has read the counters whether to time this half. So the same code runs
//! between the two readings of the counters in all calls. But for an op in a run with a budget (a
//! limit for the cost of recording), `enter_and_keep(AFTER)` begins the second half, if it is
//! timed.
//!
//! For a call that is not chosen, each half costs one decrement. The first and the second half are
//! chosen independently, because some hosts call the agent separately before and after a call.

use record::brackets::{BUCKETS, Brackets, Histogram, bucket_of};

use super::Thread;

pub(crate) const BEFORE: usize = 0;
pub(crate) const AFTER: usize = 1;

/// Unless all brackets are timed, a thread's first timed bracket is that of its call with this
/// number, counted from 1. In earlier calls, caches are colder.
pub(crate) const FIRST: u16 = 8;
/// The first brackets, up to about this number, are timed in quick succession, so that short
/// programs have some durations.
const SOON: u32 = 48;

/// The data about the halves that are being timed at present. It is in the thread's first cache
/// line and not in [`BracketTimes`], because the recorder reads it in each call.
#[derive(Clone, Copy)]
pub(crate) struct Halves {
    /// For hosts that call the agent before and after a call: the time at which the half that is
    /// being timed began; 0 if none is.
    entered: u64,
    /// For hosts that call the agent before and after a call: the duration of the first half in
    /// ticks, if this half was timed; otherwise 0. The duration is added to the histogram when the
    /// call has ended. This field has only four bytes, so that the struct fits into the first cache
    /// line of the thread's state.
    before: u32,
    /// Whether counters were read for the call whose first half was timed.
    before_counted: bool,
    /// Whether counters were read for the call whose second half is timed.
    counted: bool,
}

impl Halves {
    pub(crate) const NONE: Self =
        Self { entered: 0, before: 0, before_counted: false, counted: false };
}

pub(crate) struct BracketTimes {
    /// Number of times that each half was timed.
    timed: [u32; 2],
    /// State of the random number generator, never 0.
    random: u32,
    /// Whether the bracket of every call is timed.
    all: bool,
    /// Number of measured halves. The indices are: whether counters were read for the call, the
    /// half, and the bucket of the duration.
    counts: [[[u32; BUCKETS]; 2]; 2],
}

impl BracketTimes {
    /// Sets all fields in place, because the struct is too large for a small stack.
    ///
    /// # Safety
    /// `this` must be valid for writes.
    pub(crate) unsafe fn reset(this: *mut Self, seed: u32) {
        // SAFETY: by contract, `this` is valid for writes, and zeros are a value of every field.
        unsafe {
            this.write_bytes(0, 1);
            (*this).random = seed | 1;
        }
    }
}

impl Thread {
    /// Begins a half of a bracket. The recorder must call this function before all its other work
    /// in the half. Returns the present time if the half is timed, otherwise 0. If the call is not
    /// recorded after all, the half of the next call is timed instead.
    #[inline(always)]
    pub(crate) fn enter(&mut self, half: usize) -> u64 {
        let until = &mut self.until_timed[half];
        *until = until.saturating_sub(1);
        if *until == 0 { self.draw() } else { 0 }
    }

    /// Does what [`Thread::enter`] does for the first half, if calls may be nested. Of nested
    /// calls, only one is timed. Otherwise, calls inside of a timed call would be timed more often
    /// than others.
    #[inline(always)]
    pub(crate) fn enter_inside(&mut self) -> u64 {
        if self.halves.before != 0 {
            return 0;
        }
        let entered = self.enter(BEFORE);
        if entered != 0 {
            self.until_timed[BEFORE] = u16::MAX;
        }
        entered
    }

    /// Called if no call is recorded after [`Thread::enter_inside`]. The bracket of the next call
    /// is timed instead.
    #[inline(always)]
    pub(crate) fn lose_inside(&mut self, entered: u64) {
        if entered != 0 {
            self.until_timed[BEFORE] = 1;
        }
    }

    /// Ends a first half that began with [`Thread::enter`], for a call that ends in another
    /// function. The call starts at `start`.
    #[inline(always)]
    pub(crate) fn first_half_ends(&mut self, entered: u64, start: u64, counted: bool) {
        if entered != 0 {
            self.halves.entered = entered;
            self.kept_first_half_ends(start, counted);
        }
    }

    /// Does what [`Thread::enter`] does, and stores the result in the thread's state.
    #[inline(always)]
    pub(crate) fn enter_and_keep(&mut self, half: usize) {
        self.halves.entered = self.enter(half);
    }

    /// Returns the present time. This function does not write to memory, because it may be called
    /// between the two readings of the counters. After a fork, the first write to a page is a page
    /// fault, which would be counted.
    #[cold]
    #[inline(never)]
    fn draw(&self) -> u64 {
        self.clock.begin()
    }

    fn draw_next(&mut self, half: usize) {
        let times = &mut self.brackets;
        // This is Marsaglia's xorshift generator.
        times.random ^= times.random << 13;
        times.random ^= times.random >> 17;
        times.random ^= times.random << 5;
        self.until_timed[half] = match times.timed[half] {
            _ if times.all => 1,
            few if few < SOON => 1 + (times.random % 4) as u16,
            _ => 32 + (times.random % 64) as u16,
        };
        times.timed[half] = times.timed[half].saturating_add(1);
    }

    /// Ends a first half that began with [`Thread::enter_and_keep`].
    #[inline(always)]
    pub(crate) fn kept_first_half_ends(&mut self, start: u64, counted: bool) {
        if self.halves.entered != 0 {
            let took = start.wrapping_sub(self.halves.entered);
            self.halves.before = took.clamp(1, u32::MAX.into()) as u32;
            self.halves.before_counted = counted;
            self.halves.entered = 0;
        }
    }

    /// Ends a half of a call that is only counted, or whose bracket is not to be measured after
    /// all. The half began with [`Thread::enter_and_keep`]. Returns its duration in ticks if it was
    /// timed.
    #[inline(always)]
    pub(crate) fn counted_half_ends(&mut self, half: usize) -> Option<u64> {
        let entered = std::mem::take(&mut self.halves.entered);
        if entered == 0 {
            return None;
        }
        let took = self.clock.begin().wrapping_sub(entered);
        self.draw_next(half);
        Some(took)
    }

    /// Ends the second half of a bracket, for a call that does not end in the function in which it
    /// began.
    #[inline(always)]
    pub(crate) fn kept_bracket_ends(&mut self) {
        if self.halves.entered | u64::from(self.halves.before) != 0 {
            self.count_kept();
        }
    }

    /// Ends the second half of a bracket. The recorder must call this function after all its other
    /// work in the half. `entered` is the result of [`Thread::enter`], and the call took from
    /// `start` to `end`.
    #[inline(always)]
    pub(crate) fn bracket_ends(&mut self, entered: u64, (start, end): (u64, u64), counted: bool) {
        let after = self.timed_end(end);
        if entered | after != 0 {
            self.count_whole([entered, after], start, counted);
        }
    }

    /// Returns `end` if the second half is timed, otherwise 0. Called after the counters were read,
    /// because until then, the recorder must run the same code in all calls.
    #[inline(always)]
    fn timed_end(&mut self, end: u64) -> u64 {
        let until = &mut self.until_timed[AFTER];
        *until = until.wrapping_sub(1);
        if *until == 0 { end } else { 0 }
    }

    #[cold]
    #[inline(never)]
    fn count_kept(&mut self) {
        let (before, after) = (self.halves.before, self.halves.entered);
        (self.halves.before, self.halves.entered) = (0, 0);
        if after != 0 {
            self.count_whole([0, after], 0, self.halves.counted);
        }
        if before != 0 {
            self.count_bracket(BEFORE, self.halves.before_counted, before.into());
        }
    }

    #[cold]
    #[inline(never)]
    fn count_whole(&mut self, entered: [u64; 2], start: u64, counted: bool) {
        let now = self.clock.begin();
        if entered[AFTER] != 0 {
            // A half that contains a flush (handing over a full page of records) is left out: pages
            // store the time of flushes separately.
            let flushed = entered[AFTER] <= self.start.base_ticks;
            let took = (!flushed).then(|| now.wrapping_sub(entered[AFTER]));
            match took {
                Some(ticks) => self.count_bracket(AFTER, counted, ticks),
                None => self.draw_next(AFTER),
            }
        }
        if entered[BEFORE] != 0 {
            self.count_bracket(BEFORE, counted, start.wrapping_sub(entered[BEFORE]));
        }
    }

    #[cold]
    #[inline(never)]
    fn count_bracket(&mut self, half: usize, counted: bool, ticks: u64) {
        self.draw_next(half);
        let halves = &mut self.brackets.counts[usize::from(counted)];
        if let Some(count) = halves.get_mut(half).and_then(|all| all.get_mut(bucket_of(ticks))) {
            *count = count.saturating_add(1);
        }
    }

    /// Begins the second half for a call that ended at `end`; [`Thread::kept_bracket_ends`] ends
    /// it. Called after the counters were read, because this function writes to memory, and after a
    /// fork, the first write to a page is a page fault. In a run with a budget (a limit for the
    /// cost of recording), this function begins the half only if `short_ops` is set. Otherwise,
    /// [`Thread::enter_and_keep`] has begun the half if it is timed.
    #[inline(always)]
    pub(crate) fn second_half_begins(&mut self, end: u64, counted: bool) {
        if !self.short_ops && self.draws.is_on() {
            self.halves.counted = counted;
            return;
        }
        let entered = self.timed_end(end);
        if entered != 0 {
            self.halves.entered = entered;
            self.halves.counted = counted;
        }
    }

    /// Times every bracket until [`Thread::time_some_brackets`] is called.
    pub(crate) fn time_all_brackets(&mut self) {
        self.brackets.all = true;
        self.until_timed = [1; 2];
    }

    pub(crate) fn time_some_brackets(&mut self) {
        let random = self.brackets.random;
        // SAFETY: the pointer was made from a reference, so it is valid for writes.
        unsafe { BracketTimes::reset(&raw mut self.brackets, random) };
        self.halves = Halves::NONE;
        self.until_timed = [FIRST; 2];
    }

    /// Returns the durations of the brackets timed so far: first for calls without counters, then
    /// for calls with counters.
    pub(crate) fn bracket_times(&self, rehearsed: bool) -> impl Iterator<Item = Brackets> {
        let kinds = self.brackets.counts.iter().zip([0, self.run.counter_mask]);
        let thread_uid = self.start.thread_uid;
        kinds.filter_map(move |(of, counters)| {
            let (before, after) = (Histogram::new(&of[BEFORE]), Histogram::new(&of[AFTER]));
            let any = !before.0.is_empty() || !after.0.is_empty();
            any.then_some(Brackets { thread_uid, counters, rehearsed, before, after })
        })
    }
}
