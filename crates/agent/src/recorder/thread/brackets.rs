//! Times brackets around the program's own calls, for a few calls that are drawn at random
//! ([`record::brackets`] says why).
//!
//! ```text
//!  enter(BEFORE) ··· read counters ··· start │ call │ end ··· read counters ··· record ··· bracket_ends
//! ```
//!
//! If a call ends in another function of ours, the results of the first half and of the end of the call are
//! kept with the thread ([`Halves`]):
//!
//! ```text
//!  enter_and_keep(BEFORE) ··· kept_first_half_ends │ call │ second_half_begins ··· kept_bracket_ends
//!          └─ only counted: counted_half_ends(BEFORE)       counted_half_ends(AFTER) ─┘
//! ```
//!
//! The second half begins with the time stamp that ends the call. Whether it is timed is decided when
//! the counters have been read, so that all calls do the same between the two readings.
//!
//! A call that is not drawn costs one decrement in each half. The halves are drawn independently,
//! because some hosts call us once before and once after a call.

use record::brackets::{BUCKETS, Brackets, Histogram, bucket_of};

use super::Thread;

/// The two halves of a bracket.
pub(crate) const BEFORE: usize = 0;
pub(crate) const AFTER: usize = 1;

/// A thread's first calls find cold caches in a way that later ones do not.
pub(crate) const FIRST: u16 = 8;
/// The number of first brackets that are timed soon after one another, so that short programs have
/// some; later ones are timed rarely.
const SOON: u32 = 48;

/// The halves in progress that are timed. They are not in [`BracketTimes`], because each call reads
/// them.
#[derive(Clone, Copy)]
pub(crate) struct Halves {
    /// For hosts that call us before and after a call: the time at which the half in progress
    /// began, if it is timed; otherwise 0.
    entered: u64,
    /// For such hosts: the duration of the first half, if it was timed; otherwise 0. It is counted
    /// when the call has ended. It has four bytes, so that all of this is in the thread's first
    /// cache line.
    before: u32,
    /// Whether counters were read for the call whose first half was timed.
    before_counted: bool,
    /// Whether counters were read for the call whose second half is timed.
    counted: bool,
}

impl Halves {
    /// The value if neither half is timed.
    pub(crate) const NONE: Self =
        Self { entered: 0, before: 0, before_counted: false, counted: false };
}

/// The times of the brackets of a thread.
pub(crate) struct BracketTimes {
    /// Number of timed halves, for each half.
    timed: [u32; 2],
    /// State of the random numbers, which is never 0.
    random: u32,
    /// Whether every call is timed.
    all: bool,
    /// The numbers of times: for calls without and with counters, for each half, and for each
    /// bucket.
    counts: [[[u32; BUCKETS]; 2]; 2],
}

impl BracketTimes {
    /// Sets all fields at `this`. The state is too large for a small stack.
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
    /// Begins a half of a bracket. This must be the first thing that the recorder does in the half. Returns
    /// the time if the half is timed, and otherwise 0. If a timed half is lost because the call is not
    /// recorded, the next half is timed instead.
    #[inline(always)]
    pub(crate) fn enter(&mut self, half: usize) -> u64 {
        let until = &mut self.until_timed[half];
        *until = until.saturating_sub(1);
        if *until == 0 { self.draw() } else { 0 }
    }

    /// Does what [`Thread::enter`] does for the first half of a call that [`Thread::bracket_ends`] ends and that may
    /// be inside of others, and have others inside. Of calls around one another, only one is timed: calls inside of
    /// a drawn one would otherwise be drawn more often than others.
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

    /// Notes that a bracket is lost that [`Thread::enter_inside`] has begun with this result: the next one is
    /// timed instead.
    #[inline(always)]
    pub(crate) fn lose_inside(&mut self, entered: u64) {
        if entered != 0 {
            self.until_timed[BEFORE] = 1;
        }
    }

    /// Ends a first half that began with [`Thread::enter`], which returned `entered`.
    #[inline(always)]
    pub(crate) fn first_half_ends(&mut self, entered: u64, start: u64, counted: bool) {
        if entered != 0 {
            self.halves.entered = entered;
            self.kept_first_half_ends(start, counted);
        }
    }

    /// Does what [`Thread::enter`] does, and keeps the result for [`Thread::kept_first_half_ends`] or
    /// [`Thread::kept_bracket_ends`].
    #[inline(always)]
    pub(crate) fn enter_and_keep(&mut self, half: usize) {
        self.halves.entered = self.enter(half);
    }

    /// Returns the present time, for a half that is drawn. Writes nothing, because this is called
    /// inside of the bracket of the counters, and after a fork the first write to a page is a page
    /// fault, which would be counted.
    #[cold]
    #[inline(never)]
    fn draw(&self) -> u64 {
        self.run.clock.begin()
    }

    /// Draws the next call whose half is timed.
    fn draw_next(&mut self, half: usize) {
        let times = &mut self.brackets;
        // Marsaglia's xorshift.
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

    /// Ends the first half at the moment `start`, when the call begins. The half began with
    /// [`Thread::enter_and_keep`].
    #[inline(always)]
    pub(crate) fn kept_first_half_ends(&mut self, start: u64, counted: bool) {
        if self.halves.entered != 0 {
            let took = start.wrapping_sub(self.halves.entered);
            self.halves.before = took.clamp(1, u32::MAX.into()) as u32;
            self.halves.before_counted = counted;
            self.halves.entered = 0;
        }
    }

    /// Ends a half of a call that is only counted. The half began with [`Thread::enter_and_keep`]. Returns
    /// how long it took, in ticks, if it was timed.
    #[inline(always)]
    pub(crate) fn counted_half_ends(&mut self, half: usize) -> Option<u64> {
        let entered = std::mem::take(&mut self.halves.entered);
        if entered == 0 {
            return None;
        }
        let took = self.run.clock.begin().wrapping_sub(entered);
        self.draw_next(half);
        Some(took)
    }

    /// Ends the second half of a call that ends in another function.
    #[inline(always)]
    pub(crate) fn kept_bracket_ends(&mut self) {
        if self.halves.entered | u64::from(self.halves.before) != 0 {
            self.count_kept();
        }
    }

    /// Ends the second half, which began with the end of the call. This must be the last thing that the
    /// recorder does. `entered` is the result of [`Thread::enter`], and the call took from `start` to `end`.
    #[inline(always)]
    pub(crate) fn bracket_ends(&mut self, entered: u64, (start, end): (u64, u64), counted: bool) {
        let after = self.timed_end(end);
        if entered | after != 0 {
            self.count_whole([entered, after], start, counted);
        }
    }

    /// Returns `end`, the time at which the call ended, if the second half is timed, and otherwise
    /// 0. Called when the counters have been read, because code that differs between calls must not
    /// run before.
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
        let now = self.run.clock.begin();
        if entered[AFTER] != 0 {
            // The time of flushing a page is known for each page.
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

    /// Begins the second half of a call that ended at `end`, for [`Thread::kept_bracket_ends`]; `counted`
    /// says whether its counters were read. Called when they have been read: after a fork, the first write to
    /// a page is a page fault. In a run with a budget, [`Thread::enter_and_keep`] has begun the half.
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

    /// Times every bracket from now on, until [`Thread::time_some_brackets`].
    pub(crate) fn time_all_brackets(&mut self) {
        self.brackets.all = true;
        self.until_timed = [1; 2];
    }

    /// Forgets all times, and times some brackets from now on.
    pub(crate) fn time_some_brackets(&mut self) {
        let random = self.brackets.random;
        // SAFETY: the pointer comes from a reference, so it is valid for writes.
        unsafe { BracketTimes::reset(&raw mut self.brackets, random) };
        self.halves = Halves::NONE;
        self.until_timed = [FIRST; 2];
    }

    /// Returns the times so far, without and with counters. Buckets without times are left out.
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
