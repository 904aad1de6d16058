//! The short way of a call that the host begins and ends with one call each to us. Ops of PyTorch begin
//! here, and ops of every host end here.
//!
//! [`crate::recorder::bracket`] handles every case. The usual case has code of its own, because what a
//! call costs depends on how much code and data it touches: the program, and the system calls that read
//! counters, leave little of ours in the processor's caches. Each function checks everything first; if
//! it returns false, it has done nothing, and the caller goes the long way.

use counters::ReadStatus;
use record::Call;

use crate::recorder::bracket::stack_address;
use crate::recorder::busy::while_busy;
use crate::recorder::thread::{DEEPEST, Slot, Thread};

/// Returns whether calls may take the short way in a run without a budget.
pub(super) fn is_usual() -> bool {
    // With the feature, each `point!` of the long way must be reached.
    !cfg!(feature = "inject-panics")
}

impl Thread {
    /// Begins a call that the host holds, with this slot, if the thread is not inside the recorder and no
    /// call in progress was abandoned. `entered` is what [`Thread::enter`] returned.
    #[inline(always)]
    pub(crate) fn begin_usual(
        &mut self,
        export: u32,
        frame: usize,
        slot: Slot,
        entered: u64,
    ) -> bool {
        let at = self.depth as usize;
        if !self.usual
            || self.busy.is_set()
            || at >= DEEPEST
            || (at > 0 && self.frames[at - 1] <= stack_address())
        {
            return false;
        }
        while_busy!(self, {
            let bit = 1 << at;
            self.depth = at as u32 + 1;
            self.is_apart |= bit;
            self.is_wrapped |= bit;
            self.has_slot |= bit;
            self.has_workers &= !bit;
            self.frames[at] = frame;
            self.apart[at].export = export;
            self.slots[at] = slot;
            // SAFETY: a page is attached.
            unsafe { self.writer.set_open(at as u32 + 1, export) };
            if self.counting {
                // A failed read leaves its mark in the readings, which the end checks.
                let _ = self.counters.read(&mut self.before[at]);
            }
        });
        let start = self.clock.begin();
        self.apart[at].start = start;
        self.begun_since(entered, start, self.counting);
        true
    }

    /// Ends the innermost call, which [`Thread::begin_usual`] or the long way began with this frame, if
    /// nothing but its record is due. It has ended at `end` on `location`. `value` is the one value of a call
    /// with these numbers, or `None` if it has several.
    #[inline(always)]
    pub(crate) fn end_usual(
        &mut self,
        frame: usize,
        end: u64,
        location: u32,
        value: impl FnOnce([u64; 3]) -> Option<(u32, u64)>,
    ) -> bool {
        let at = (self.depth as usize).wrapping_sub(1);
        let bit = 1u32.wrapping_shl(at as u32);
        if !self.usual
            || at >= DEEPEST
            || self.frames[at] != frame
            || self.is_wrapped & self.has_slot & bit == 0
            || self.has_collected & bit != 0
            || self.uncounted != 0
            || !self.writer.has_room_with_values()
            || end >= self.next_clock
        {
            return false;
        }
        let numbers = self.slots[at].numbers;
        let mut has_value = None;
        if numbers != [0; 3] {
            has_value = value(numbers);
            if has_value.is_none() {
                return false;
            }
        }
        while_busy!(self, {
            let begun = self.apart[at];
            self.depth = at as u32;
            self.is_apart &= !bit;
            self.is_wrapped &= !bit;
            self.has_slot &= !bit;
            let call =
                Call { export: begun.export, location, start: begun.start, end, ..Call::default() };
            // SAFETY: a page with room is attached.
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
            self.has_ended(end, self.counting);
        });
        true
    }

    /// Records a value of the call that was recorded last.
    ///
    /// # Safety
    /// A page with room for values must be attached.
    #[inline(never)]
    unsafe fn record_value(&mut self, value: (u32, u64)) {
        // SAFETY: by contract.
        unsafe { self.writer.values(&[value]) };
    }

    /// Records the call at index `depth`, whose counters have been read.
    #[cold]
    #[inline(never)]
    fn record_otherwise(&mut self, call: &Call) {
        self.record(call, &[]);
    }

    /// Reads the counters, and records call `at` if all of them are in one group that was counting all
    /// the time. If it returns false, the counters have been read, and nothing was recorded.
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
        // SAFETY: `Plan` guarantees that the group's block fits into the words.
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
        // SAFETY: by contract.
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
