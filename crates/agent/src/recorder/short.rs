//! The short ways through the states of [`crate::recorder::bracket`], for the calls that most programs make.
//!
//! | calls | start and end | condition |
//! |---|---|---|
//! | that are only timed, and inside of no other | [`Thread::try_open_timed`], [`Thread::try_end_timed`] | `short_calls` |
//! | ops that the host holds; their end is that of every op | [`Thread::try_open_op`], [`Thread::try_end_op`] | `short_ops` |
//!
//! [`crate::recorder::bracket`] handles every case. The usual case has code of its own, because the
//! cost of a call depends on how much code and data it touches: the program, and the system calls
//! that read counters, leave little of ours in the processor's caches. Where each line of ours must
//! be fetched again, the number of lines decides what a call costs. Each function checks everything
//! first; if it returns false, it has done nothing, and the caller goes the long way. The ways of
//! timed calls contain nothing that could panic, so that an adapter can use them between the frames
//! of the host.

use counters::ReadStatus;
use record::{Call, ClockKind};

use crate::os::own_image;
use crate::recorder::bracket::stack_address;
use crate::recorder::busy::while_busy;
use crate::recorder::thread::{DEEPEST, OpenCall, Slot, State, Thread};

/// Returns whether timed calls take the short way in a run without a budget.
pub(super) fn has_short_calls(clock: ClockKind, counting: bool) -> bool {
    clock == SHORT_CLOCK && !counting && has_short_ops()
}

/// Returns whether ops may take the short way in a run without a budget.
pub(super) fn has_short_ops() -> bool {
    // With the feature, each `point!` of the long way must be reached.
    !cfg!(feature = "inject-panics")
}

/// The only clock of timed calls that take the short way. A choice between clocks would make it longer.
#[cfg(target_arch = "x86_64")]
pub(crate) const SHORT_CLOCK: ClockKind = ClockKind::Tsc;
#[cfg(not(target_arch = "x86_64"))]
pub(crate) const SHORT_CLOCK: ClockKind = ClockKind::Monotonic;

/// Tells the processor that these addresses will be accessed soon. It is called right before the
/// second time stamp, which waits for all earlier instructions but not for memory that is only
/// fetched. So cache lines of ours that the call has displaced arrive while the time stamp waits.
#[inline(always)]
pub(crate) fn fetch(addresses: [*const u8; 4]) {
    for at in addresses {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a prefetch is a hint, which never faults, whatever the address.
        unsafe {
            std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(at.cast());
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = at;
    }
}

impl Thread {
    /// Opens a call that is only timed, if no other call is open.
    #[inline(always)]
    pub(crate) fn try_open_timed(&mut self, export: u32, frame: usize) -> bool {
        if !self.short_calls || self.busy.is_set() || self.depth != 0 {
            return false;
        }
        while_busy!(self, {
            // A free place already has the state of a call that is only timed.
            self.calls[0].frame = frame;
            // SAFETY: the caller has found this thread attached, so its writer has a page.
            unsafe { self.writer.set_open(1, export) };
            self.depth = 1;
        });
        true
    }

    /// Returns addresses that the end of a call will access, for [`fetch`].
    #[inline(always)]
    pub(crate) fn ahead(&self, export: u32) -> [*const u8; 4] {
        let [place, record, header] = self.writer.ahead(export);
        [std::ptr::from_ref(&self.writer).cast(), place, record, header]
    }

    /// Ends the only open call, which is only timed, if nothing but its record is due.
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
            // SAFETY: the writer has a page, in which there was room for the record.
            unsafe {
                let cursor = self.writer.call(call, false);
                self.writer.commit_call(cursor);
                self.writer.set_open(0, call.export);
            }
        });
        true
    }

    /// Opens and starts an op that the host holds, with this slot, if the thread is not inside the
    /// recorder and no open call was abandoned. `entered` is the result of [`Thread::enter`].
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
                // A failed read leaves its mark in the readings, which the end checks.
                // See `Thread::read_before`.
                own_image::touch_stack::<704>();
                let _ = self.counters.read(&mut self.before[at]);
            }
        });
        let start = self.clock.begin();
        self.calls[at].start = start;
        self.first_half_ends(entered, start, self.counting);
        true
    }

    /// Finishes and ends the innermost call, an op that [`Thread::try_open_op`] or the long way opened with this
    /// frame, if nothing but its record is due. It has ended at `end` on `location`. `value` is the one value of a
    /// call with these numbers, or `None` if it has several.
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
            // SAFETY: the writer has a page, in which there was room for the record.
            unsafe {
                if !self.counting {
                    let cursor = self.writer.call(&call, false);
                    self.writer.commit_call(cursor);
                    self.writer.set_open(at as u32, call.export);
                } else if !self.record_one_group(&call, at) {
                    self.record_otherwise(&call);
                }
                if let Some(value) = has_value {
                    self.record_value(value);
                }
            }
            self.second_half_begins(end, self.counting);
        });
        true
    }

    /// Records a value of the call that was recorded last.
    ///
    /// # Safety
    /// A page with room for values must be attached.
    #[inline(never)]
    unsafe fn record_value(&mut self, value: (u32, u64)) {
        // SAFETY: by contract, a page with room for values is attached.
        unsafe { self.writer.values(&[value]) };
    }

    /// Records the call at index `depth`, whose counters have been read.
    #[cold]
    #[inline(never)]
    fn record_otherwise(&mut self, call: &Call) {
        self.record(call, &[]);
    }

    /// Reads the counters, and records call `at` if all counters are in one group that was counting
    /// all the time. If it returns false, the counters have been read, and nothing was recorded.
    ///
    /// # Safety
    /// A page with room must be attached.
    #[inline(always)]
    unsafe fn record_one_group(&mut self, call: &Call, at: usize) -> bool {
        let status = self.counters.read(&mut self.after);
        let counters = self.one_group as usize;
        let before = &self.before[at];
        let missing = (before.missing() | self.after.missing()) & !(u32::MAX << counters);
        let (from, to) = (before.words(), self.after.words());
        // SAFETY: both readings follow the thread's plan, and `Plan` guarantees that the group's
        // block fits into the words.
        let delta =
            |word: usize| unsafe { to.get_unchecked(word).wrapping_sub(*from.get_unchecked(word)) };
        let enabled = delta(1);
        if status != ReadStatus::Complete
            || !(1..32).contains(&counters)
            || missing != 0
            || enabled != delta(2)
        {
            return false;
        }
        // SAFETY: by contract, a page with room is attached.
        unsafe {
            let mut cursor = self.writer.call(call, false);
            cursor.put(enabled.wrapping_add(1));
            for i in 0..counters {
                cursor.put(delta(3 + 2 * i));
            }
            self.writer.commit_call(cursor);
            self.writer.set_open(at as u32, call.export);
        }
        true
    }
}
