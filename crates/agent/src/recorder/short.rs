//! The *short ways* are fast versions of the functions in [`crate::recorder::bracket`]. They exist
//! for the calls that are most frequent in most programs.
//!
//! | calls | start and end | only if this is set |
//! |---|---|---|
//! | timed | [`Thread::try_open_timed`], [`Thread::try_end_timed`] | [`Thread::short_calls`] |
//! | ops | [`Thread::try_open_op`], [`Thread::try_end_op`] | [`Thread::short_ops`] |
//! | tasks | [`Thread::try_open_task`], [`Thread::try_end_task`] | [`Thread::short_ops`] |
//!
//! *Tasks* are the tasks of OpenMP's parallel regions, and these regions themselves. *Timed* calls
//! are calls for which no counters are read and that are not inside another call.
//! [`Thread::try_open_op`] begins only ops whose end the host reports even after an exception
//! ([`crate::recorder::bracket::Ending::Held`]). The usual cases have their own code, because the
//! cost of recording a call depends on how much code and data the recorder uses for it. The
//! program, and the system calls that read counters, displace most of this code and data from the
//! processor's caches. So the code and data must be fetched again for each call. If a `try_`
//! function returns false, it has changed nothing, and the caller must use the functions in
//! [`crate::recorder::bracket`] (the *long way*). The functions for timed calls contain no code that
//! could panic. So an adapter can use them where it must not catch panics: in functions between
//! stack frames of the host.

use counters::ReadStatus;
use record::page::{Cursor, KEY_CORRELATION, Task};
use record::{Call, ClockKind};

use crate::os::own_image;
use crate::recorder::bracket::stack_address;
use crate::recorder::busy::while_busy;
use crate::recorder::thread::{DEEPEST, OpenCall, Slot, State, Thread};

/// Returns whether a run without a budget (a limit for the cost of recording) allows the short way
/// for timed calls. `counting` says whether counters are read.
pub(super) fn has_short_calls(clock: ClockKind, counting: bool) -> bool {
    clock == SHORT_CLOCK && !counting && has_short_ops()
}

/// Returns whether a run without a budget allows the short way for ops.
pub(super) fn has_short_ops() -> bool {
    // With the feature `inject-panics`, tests must reach each `point!` of the long way.
    !cfg!(feature = "inject-panics")
}

/// The only clock with which timed calls can take the short way. A choice of clocks would make the
/// code longer.
#[cfg(target_arch = "x86_64")]
pub(crate) const SHORT_CLOCK: ClockKind = ClockKind::Tsc;
#[cfg(not(target_arch = "x86_64"))]
pub(crate) const SHORT_CLOCK: ClockKind = ClockKind::Monotonic;

/// Tells an x86-64 processor that these addresses will be accessed soon. Does nothing on other
/// processors. An adapter calls this after a recorded call, immediately before it reads the time of
/// the call's end. The instruction that reads the time waits for all earlier instructions, but not
/// for memory that is only prefetched. So the recorder's cache lines, which the call has displaced,
/// arrive in the meantime.
#[inline(always)]
pub(crate) fn fetch(addresses: [*const u8; 4]) {
    for at in addresses {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a prefetch is only a hint, and never faults, even if the address is invalid.
        unsafe {
            std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(at.cast());
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = at;
    }
}

impl Thread {
    /// Opens a timed call, if the short way is allowed, no other call is open, and the recorder is
    /// not busy. Returns whether the call was opened.
    #[inline(always)]
    pub(crate) fn try_open_timed(&mut self, export: u32, frame: usize) -> bool {
        if !self.short_calls || self.busy.is_set() || self.depth != 0 {
            return false;
        }
        while_busy!(self, {
            // An unused element of `calls` already has the state of a timed call.
            self.calls[0].frame = frame;
            // SAFETY: the caller has found this thread attached, so its writer has a page.
            unsafe { self.writer.set_open(1, export) };
            self.depth = 1;
        });
        true
    }

    /// Returns the addresses that the recorder will access at the end of a call of `export`, for
    /// [`fetch`].
    #[inline(always)]
    pub(crate) fn ahead(&self, export: u32) -> [*const u8; 4] {
        let [place, record, header] = self.writer.ahead(export);
        [std::ptr::from_ref(&self.writer).cast(), place, record, header]
    }

    /// Ends the open timed call, if no other call is open and nothing but its record must be
    /// written. Returns whether the call was ended.
    #[inline(always)]
    pub(crate) fn try_end_timed(&mut self, call: &Call, frame: usize) -> bool {
        let is_usual = self.short_calls
            && self.depth == 1
            && self.calls[0].frame == frame
            && self.writer.has_room()
            && call.end < self.next_clock;
        if !is_usual {
            return false;
        }
        while_busy!(self, {
            self.depth = 0;
            // SAFETY: the writer has a page, and the page has enough space for the record (checked
            // above).
            unsafe {
                let cursor = self.writer.call(call, false);
                self.writer.commit_call(cursor);
                self.writer.set_open(0, call.export);
            }
        });
        true
    }

    /// Opens and starts an op whose end the host reports even after an exception. Returns false in
    /// unusual cases, for example if the innermost call was abandoned. `entered` is what
    /// [`Thread::enter`] returned.
    #[inline(always)]
    pub(crate) fn try_open_op(
        &mut self,
        export: u32,
        frame: usize,
        slot: Slot,
        entered: u64,
    ) -> bool {
        let at = self.depth as usize;
        if !self.short_ops
            || self.busy.is_set()
            || at >= DEEPEST
            || (at > 0 && self.calls[at - 1].frame <= stack_address())
        {
            return false;
        }
        while_busy!(self, {
            self.depth = at as u32 + 1;
            let place = &mut self.calls[at];
            (place.frame, place.export) = (frame, export);
            (place.state, place.slot) = (State::OP.and(State::SLOT), slot);
            // SAFETY: the caller has found this thread attached, so its writer has a page.
            unsafe { self.writer.set_open(at as u32 + 1, export) };
            if self.counting {
                // A failed read is marked in the readings, and the end of the call checks the mark.
                // [`Thread::read_before`] says why the stack is touched.
                own_image::touch_stack::<704>();
                let _ = self.counters.read(&mut self.before[at]);
            }
        });
        let start = self.clock.begin();
        self.calls[at].start = start;
        self.first_half_ends(entered, start, self.counting);
        true
    }

    /// Ends the innermost call, if it is an op with this `frame` and nothing but its record and at
    /// most one value must be written. The op ended at the time `end`, on the processor `location`.
    /// `value` gets the numbers in the op's slot, and returns the value to record for them. It
    /// returns `None` if one value does not suffice, or if the long way must record it.
    #[inline(always)]
    pub(crate) fn try_end_op(
        &mut self,
        frame: usize,
        end: u64,
        location: u32,
        value: impl FnOnce([u64; 3]) -> Option<(u32, u64)>,
    ) -> bool {
        let at = (self.depth as usize).wrapping_sub(1);
        if !self.short_ops || at >= DEEPEST {
            return false;
        }
        let OpenCall { export, state, start, slot, .. } = self.calls[at];
        if self.calls[at].frame != frame
            || state.without(State::WORKERS) != State::OP.and(State::SLOT)
            || !self.writer.has_room_with_values()
            || end >= self.next_clock
        {
            return false;
        }
        let mut has_value = None;
        if slot.numbers != [0; 3] {
            has_value = value(slot.numbers);
            if has_value.is_none() {
                return false;
            }
        }
        while_busy!(self, {
            self.depth = at as u32;
            self.calls[at].state = state.after_end();
            let call = Call { export, location, start, end, ..Call::default() };
            // SAFETY: the writer has a page, and the page has enough space for the record (checked
            // above).
            unsafe {
                if !self.counting {
                    let cursor = self.writer.call(&call, false);
                    self.writer.commit_call(cursor);
                    self.writer.set_open(at as u32, call.export);
                } else if self.read_one_group(at) {
                    let cursor = self.writer.call(&call, false);
                    let cursor = self.put_one_group(cursor, at);
                    self.writer.commit_call(cursor);
                    self.writer.set_open(at as u32, call.export);
                } else {
                    self.record_otherwise(&call, &[]);
                }
                if let Some(value) = has_value {
                    self.record_value(value);
                }
            }
            self.second_half_begins(end, self.counting);
        });
        true
    }

    /// # Safety
    /// A page with enough space for values must be attached.
    #[inline(never)]
    unsafe fn record_value(&mut self, value: (u32, u64)) {
        // SAFETY: by contract, a page with enough space for values is attached.
        unsafe { self.writer.values(&[value]) };
    }

    /// Records the call that has just ended and whose counters have been read. Its index was
    /// `self.depth`.
    #[cold]
    #[inline(never)]
    fn record_otherwise(&mut self, call: &Call, values: &[(u32, u64)]) {
        self.record(call, values);
    }

    /// Opens a parallel region or a task, which ends in the same function. `frame` is an address in
    /// that function's stack frame. `reads` says whether counters are read, if the thread has any.
    /// Returns false in unusual cases, for example if the innermost call may have been abandoned.
    /// The caller has found the thread attached.
    #[inline(always)]
    pub(crate) fn try_open_task(
        &mut self,
        export: u32,
        frame: usize,
        slot: Slot,
        reads: bool,
    ) -> bool {
        let at = self.depth as usize;
        if !self.short_ops
            || self.busy.is_set()
            || at >= DEEPEST
            || (at > 0 && self.calls[(at - 1) % DEEPEST].frame <= frame)
        {
            return false;
        }
        while_busy!(self, {
            self.depth = at as u32 + 1;
            let uncounted = if reads { State::PLAIN } else { State::UNCOUNTED };
            let place = &mut self.calls[at % DEEPEST];
            (place.frame, place.export) = (frame, export);
            (place.state, place.slot) = (State::SLOT.and(uncounted), slot);
            // SAFETY: the caller has found this thread attached, so its writer has a page.
            unsafe { self.writer.set_open(at as u32 + 1, export) };
            if reads && self.counting {
                self.read_before(at);
            }
        });
        true
    }

    /// Ends the innermost call, if it is a region or a task that began at `frame` and nothing but
    /// its record must be written. The recorder must not be busy. `location` is the processor on
    /// which `task` ended. Returns whether the call was ended.
    #[inline(always)]
    pub(crate) fn try_end_task(&mut self, frame: usize, task: &Task, location: u32) -> bool {
        let at = (self.depth as usize).wrapping_sub(1);
        let Some(place) = self.calls.get_mut(at) else { return false };
        let state = place.state.without(State::WORKERS);
        let is_usual = self.short_ops
            && place.frame == frame
            && state.without(State::UNCOUNTED) == State::SLOT
            && place.slot.numbers == [0; 3]
            && (!self.counting || self.one_group != 0)
            && task.end < self.next_clock;
        if !is_usual {
            return false;
        }
        while_busy!(self, 'ended: {
            // This is checked while no signal handler can record a call.
            if !self.writer.has_room() || !self.writer.takes_task(location) {
                break 'ended false;
            }
            self.depth = at as u32;
            place.state = place.state.after_end();
            // SAFETY: the writer has a page, and the page has enough space for the record (checked
            // above).
            unsafe {
                if !self.counting {
                    let cursor = self.writer.task(task);
                    self.writer.commit_task(cursor);
                    self.writer.set_open(at as u32, task.export);
                } else {
                    self.record_task_with_counters(task, location, state.has(State::UNCOUNTED));
                }
            }
            true
        })
    }

    /// Records the region or task that has just ended, on a thread that has counters. Its index was
    /// `self.depth`.
    ///
    /// # Safety
    /// A page with enough space must be attached.
    #[inline(never)]
    unsafe fn record_task_with_counters(&mut self, task: &Task, location: u32, uncounted: bool) {
        let at = self.depth as usize;
        if !uncounted && !self.read_one_group(at) {
            let values = [(KEY_CORRELATION, task.correlation)];
            return self.record_otherwise(&task.to_call(location, 0), &values);
        }
        // SAFETY: by contract, a page with enough space is attached.
        unsafe {
            let mut cursor = self.writer.task(task);
            if uncounted {
                cursor.put(0);
            } else {
                cursor = self.put_one_group(cursor, at);
            }
            self.writer.commit_task(cursor);
            self.writer.set_open(at as u32, task.export);
        }
    }

    /// Reads the counters. Returns whether all counters are in one group, and this group was
    /// counting during the whole call with the index `at`. [`Thread::put_one_group`] can then write
    /// the counts.
    #[inline(always)]
    fn read_one_group(&mut self, at: usize) -> bool {
        let status = self.counters.read(&mut self.after);
        let counters = u32::from(self.one_group);
        let before = &self.before[at % DEEPEST];
        let of_group = !u32::MAX.unbounded_shl(counters);
        let missing = (before.missing() | self.after.missing()) & of_group;
        status == ReadStatus::Complete
            && (1..32).contains(&counters)
            && missing == 0
            && self.delta(at, 1) == self.delta(at, 2)
    }

    /// Appends the counts of the call with the index `at` to its record.
    ///
    /// # Safety
    /// [`Thread::read_one_group`] must have returned true for this call, and `cursor` must be in
    /// its record, on a page that had room.
    #[inline(always)]
    unsafe fn put_one_group(&self, mut cursor: Cursor, at: usize) -> Cursor {
        // SAFETY: by contract, `cursor` is in a record for which there was room.
        unsafe {
            cursor.put(self.delta(at, 1).wrapping_add(1));
            for i in 0..usize::from(self.one_group) {
                cursor.put(self.delta(at, 3 + 2 * i));
            }
        }
        cursor
    }

    /// Returns the difference between the two readings of the counters around the call with the
    /// index `at`, for one word of the readings.
    #[inline(always)]
    fn delta(&self, at: usize, word: usize) -> u64 {
        let (from, to) = (self.before[at % DEEPEST].words(), self.after.words());
        // SAFETY: callers read only words of the first group. Both readings have the layout of the
        // run's plan of counters, and `Plan` guarantees that the group's block is within the words.
        unsafe { to.get_unchecked(word).wrapping_sub(*from.get_unchecked(word)) }
    }
}
