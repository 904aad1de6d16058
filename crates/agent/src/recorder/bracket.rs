//! The bracket around a call. This is the hot path, whichever adapter brackets the call.
//!
//! ```text
//!  begin   read counters ─ ticks ─►  original call  ─► ticks ─ read counters ─ record  end
//! ```
//!
//! The clock is read inside the counters, so that reading counters does not lengthen the recorded
//! time. The counters therefore include the two clock reads and half of each `read` (see
//! [`crate::recorder::calibrate`]). The bracket does not allocate, lock or panic. It makes system
//! calls only for counters, and without touching `errno`. The memory written here belongs to the
//! thread, is present, and is not shared with a forked child, so an empty call counts no page
//! fault.

use std::ffi::c_void;

use counters::Readings;
use model::Loss;
use record::{Call, ClockKind, Drawn};

use crate::process::losses;
use crate::recorder::busy::while_busy;
use crate::recorder::draw::state::Open;
use crate::recorder::thread::{Apart, DEEPEST, Slot, Thread, Workers};
use crate::state::run::Run;

/// How a new call is bracketed. This determines what its `frame` refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Newcomer {
    /// One function of ours makes the call. The frame is that function's.
    Synchronous,
    /// The host calls us once before the call and once after it. The frame is that of the function
    /// that called us before it.
    Bracketed,
    /// The same, but the host makes the second call whatever happens, even if the call throws. The
    /// frame is made by [`held`] and is no stack address, so the call never counts as abandoned.
    Held,
}

/// Returns a frame for a call that the host identifies by this address. It is higher than every
/// stack address, and it differs for different addresses.
#[inline(always)]
pub fn held(address: usize) -> usize {
    address | 1 << (usize::BITS - 1)
}

/// Maximum number of stack bytes that the host may use between the frame of a wrapped call and the
/// functions that the call itself calls. Such a function may therefore begin above the frame.
pub const WRAPPERS: usize = 4096;

/// Returns an address in the caller's stack frame. Frames of calls in progress lie above those of
/// later calls.
#[inline(always)]
pub fn stack_address() -> usize {
    let marker = 0u8;
    (&raw const marker) as usize
}

/// Returns whether calls take the short way: [`Thread::begin_plain`] and [`Thread::end_plain`].
pub(super) fn is_plain(clock: ClockKind, counting: bool) -> bool {
    // With the feature, each `point!` of the long way must be reached.
    clock == PLAIN_CLOCK && !counting && !cfg!(feature = "inject-panics")
}

/// The only clock of calls that take the short way. A choice between clocks would make it longer.
#[cfg(target_arch = "x86_64")]
pub(crate) const PLAIN_CLOCK: ClockKind = ClockKind::Tsc;
#[cfg(not(target_arch = "x86_64"))]
pub(crate) const PLAIN_CLOCK: ClockKind = ClockKind::Monotonic;

/// Tells the processor that these addresses will be accessed soon. It comes right before the second
/// time stamp, which waits for all earlier instructions but not for memory that is only fetched. So
/// cache lines of ours that the call has displaced arrive meanwhile.
#[inline(always)]
pub(crate) fn fetch(addresses: [*const u8; 4]) {
    for at in addresses {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a hint, which never faults.
        unsafe {
            std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(at.cast());
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = at;
    }
}

impl Thread {
    /// Does what [`Thread::begin`] does, for the usual case: the call is only timed and no other
    /// call is in progress. Returns false, and has done nothing, in any other case.
    ///
    /// The usual case has code of its own because a program needs the processor's caches for its
    /// own code and data between two calls. Where each line of ours must be fetched again, their
    /// number decides what a call costs. There is nothing in it that could panic, so that an
    /// adapter can have it between the frames of the host.
    #[inline(always)]
    pub(crate) fn begin_plain(&mut self, export: u32, frame: usize) -> bool {
        if !self.plain || self.busy.is_set() || self.depth != 0 {
            return false;
        }
        while_busy!(self, {
            self.frames[0] = frame;
            // SAFETY: a page is attached.
            unsafe { self.writer.set_open(1, export) };
            self.depth = 1;
        });
        true
    }

    /// Returns addresses that [`Thread::end_plain`] will access, for [`fetch`].
    #[inline(always)]
    pub(crate) fn ahead(&self, export: u32) -> [*const u8; 4] {
        let [place, record, header] = self.writer.ahead(export);
        [std::ptr::from_ref(&self.writer).cast(), place, record, header]
    }

    /// Does what [`Thread::end`] does, for the usual case: the only call in progress ends, and
    /// nothing but its record is due. Returns false, and has done nothing, in any other case.
    #[inline(always)]
    pub(crate) fn end_plain(&mut self, call: &Call, frame: usize) -> bool {
        let is_usual = self.plain
            && self.depth == 1
            && self.frames[0] == frame
            && self.writer.has_room()
            && call.end < self.next_clock;
        if !is_usual {
            return false;
        }
        while_busy!(self, {
            self.depth = 0;
            // SAFETY: a page with room is attached.
            unsafe {
                let cursor = self.writer.call(call, false);
                self.writer.commit_call(cursor);
                self.writer.set_open(0, call.export);
            }
        });
        true
    }

    /// Starts a bracket. Returns false if the call cannot be recorded now and must pass through.
    #[inline(always)]
    pub(crate) fn begin(&mut self, export: u32, frame: usize, newcomer: Newcomer) -> bool {
        self.begin_bracket(export, frame, newcomer, true)
    }

    /// Starts the bracket of a call that is recorded; `counted` says whether counters are read for it.
    #[inline(always)]
    pub(super) fn begin_bracket(
        &mut self,
        export: u32,
        frame: usize,
        newcomer: Newcomer,
        counted: bool,
    ) -> bool {
        self.begin_drawn_bracket(export, frame, newcomer, counted, None)
    }

    /// Does the same. If `open` says how the call was drawn, that is stored before counters are read.
    #[inline(always)]
    pub(super) fn begin_drawn_bracket(
        &mut self,
        export: u32,
        frame: usize,
        newcomer: Newcomer,
        counted: bool,
        open: Option<&Open>,
    ) -> bool {
        if self.busy.is_set() {
            losses::lose(Loss::ProbeReentered, 1, 0);
            return self.refuse(open);
        }
        let begun = while_busy!(self, 'changed: {
            point!(Begin);
            if self.depth > 0 && !self.begin_nested(frame, newcomer) {
                break 'changed false;
            }
            let depth = self.depth as usize;
            if let Some(open) = open {
                self.draws.set_open(depth, open);
            }
            // SAFETY: `begin_nested` refuses a depth beyond the arrays, and a page is attached.
            unsafe {
                *self.frames.get_unchecked_mut(depth) = frame;
                self.writer.set_open(self.depth + 1, export);
                let mut works =
                    || !self.counting || !self.draws.is_on() || self.open_for_call(depth);
                if !counted || !works() {
                    self.uncounted |= 1 << depth;
                } else if self.counting {
                    self.read_before(depth);
                }
            }
            self.depth += 1;
            true
        });
        begun || self.refuse(open)
    }

    /// Reads the counters for call `depth`, which begins. Like everything that only runs with
    /// counters, this is a function of its own, so that the code of a call that is only timed is
    /// short: between two calls, the program needs the processor's cache for its own code.
    ///
    /// # Safety
    /// `depth` must be below [`DEEPEST`].
    #[inline(never)]
    unsafe fn read_before(&mut self, depth: usize) {
        // A failed read leaves its mark in the readings, which `end` checks.
        // SAFETY: by contract.
        let _ = self.counters.read(unsafe { self.before.get_unchecked_mut(depth) });
    }

    /// Reads the counters for the call that ends, which began at this stack address.
    #[inline(never)]
    fn read_after(&mut self, frame: usize) {
        if self.uncounted == 0 || self.is_counted(frame) {
            let _ = self.counters.read(&mut self.after);
        }
    }

    /// Notes that the call that has just begun will end in another call of the host, and when it
    /// began, which is returned. This is the last thing that a bracket does before the call.
    #[inline(always)]
    pub(crate) fn begin_apart(&mut self, export: u32) -> u64 {
        let at = self.depth as usize - 1;
        self.is_apart |= 1 << at;
        let start = self.run.clock.begin();
        // SAFETY: `begin` refuses a depth beyond the arrays.
        unsafe { *self.apart.get_unchecked_mut(at) = Apart { export, start } };
        start
    }

    /// Does what [`Thread::begin_apart`] does, for a host that may have its own frames between the
    /// begin and the call.
    #[inline(always)]
    pub(crate) fn begin_wrapped(&mut self, export: u32) -> u64 {
        self.is_wrapped |= 1 << (self.depth - 1);
        self.begin_apart(export)
    }

    /// Returns what [`Thread::begin_apart`] stored for call `at`, which is about to end.
    #[inline(always)]
    pub(crate) fn end_apart(&mut self, at: usize) -> Apart {
        self.is_apart &= !(1 << at);
        // SAFETY: `at` is the index of a call in progress.
        unsafe { *self.apart.get_unchecked(at) }
    }

    /// Returns what [`Thread::begin_wrapped`] stored for call `at`, which is about to end.
    #[inline(always)]
    pub(crate) fn end_wrapped(&mut self, at: usize) -> Apart {
        self.is_wrapped &= !(1 << at);
        self.end_apart(at)
    }

    /// Returns the index of the wrapped call in progress that began at this stack address.
    #[inline(always)]
    pub(crate) fn wrapped_at(&self, frame: usize) -> Option<usize> {
        let mut at = self.depth as usize;
        while at > 0 {
            at -= 1;
            // SAFETY: `at` is below the depth.
            if self.is_wrapped >> at & 1 == 1 && unsafe { *self.frames.get_unchecked(at) } == frame
            {
                return Some(at);
            }
        }
        None
    }

    /// Returns the index of the innermost wrapped call inside call `at` that has not ended. If
    /// call `at` ends with an error, that is the call that threw it.
    pub(crate) fn innermost_wrapped(&self, at: usize) -> Option<usize> {
        (at + 1..self.depth as usize).rev().find(|inner| self.is_wrapped >> inner & 1 == 1)
    }

    /// Stores a slot for call `at`, which is in progress. So far, no other thread has worked for it.
    #[inline(always)]
    pub(crate) fn set_slot(&mut self, at: usize, slot: Slot) {
        self.has_slot |= 1 << at;
        self.has_workers &= !(1 << at);
        // SAFETY: `begin` refuses a depth beyond the arrays.
        unsafe { *self.slots.get_unchecked_mut(at) = slot };
    }

    /// Takes the slot of call `at`, which is about to end.
    #[inline(always)]
    pub(crate) fn take_slot(&mut self, at: usize) -> &Slot {
        self.has_slot &= !(1 << at);
        // SAFETY: `at` is the index of a call in progress.
        unsafe { self.slots.get_unchecked(at) }
    }

    /// Returns the index of the innermost call in progress that has a slot of this owner.
    #[inline(always)]
    pub(crate) fn innermost_slot(&self, owner: *const c_void) -> Option<usize> {
        let mut left = self.has_slot;
        while left != 0 {
            let at = (31 - left.leading_zeros()) as usize;
            if self.slots[at].owner == owner {
                return Some(at);
            }
            left &= !(1 << at);
        }
        None
    }

    /// Adds what other threads counted in a parallel region of call `at`, which is in progress.
    pub(crate) fn add_workers(&mut self, at: usize, more: &Workers) {
        let Some(sum) = self.workers.get_mut(at) else { return };
        if self.has_workers >> at & 1 == 0 {
            self.has_workers |= 1 << at;
            *sum = *more;
            return;
        }
        sum.known &= more.known;
        sum.sums.iter_mut().zip(&more.sums).for_each(|(sum, more)| *sum = sum.wrapping_add(*more));
    }

    /// Reads the counters for a call that is not among the calls in progress, because it may end
    /// while other calls that began later are still in progress. Returns false if the recorder is
    /// busy.
    pub(crate) fn read_apart(&mut self, into: &mut Readings) -> bool {
        if self.busy.is_set() {
            losses::lose(Loss::ProbeReentered, 1, 0);
            return false;
        }
        while_busy!(self, {
            if self.counting && !self.draws.is_on() {
                // A failed read leaves its mark in the readings.
                let _ = self.counters.read(into);
            }
        });
        true
    }

    /// Records such a call, which began with the reading `before` and has just ended.
    pub(crate) fn record_apart(&mut self, call: &Call, before: &Readings) -> bool {
        if self.busy.is_set() || self.depth as usize >= DEEPEST {
            losses::lose(Loss::ProbeReentered, 1, 0);
            return false;
        }
        while_busy!(self, 'changed: {
            let is_drawn = self.draws.is_on();
            if is_drawn {
                if !self.count_apart(call.export) {
                    break 'changed false;
                }
                // Counters are not open between the two readings.
                self.uncounted |= 1 << self.depth;
            } else if self.counting {
                let _ = self.counters.read(&mut self.after);
            }
            // The place of the next call is free, and the next call overwrites it.
            if let Some(place) = self.before.get_mut(self.depth as usize) {
                place.clone_from(before);
            }
            self.record(call, &[]);
            if is_drawn {
                self.settle_apart(call);
            }
            true
        })
    }

    /// Returns the index of the innermost call of `export` in progress that begins and ends in two
    /// separate calls of the host.
    #[inline(always)]
    pub(crate) fn innermost_apart(&self, export: u32) -> Option<usize> {
        (0..(self.depth as usize).min(DEEPEST))
            .rev()
            .find(|at| self.is_apart >> at & 1 == 1 && self.apart[*at].export == export)
    }

    /// Ends a bracket and records the call.
    #[inline(always)]
    pub(crate) fn end(&mut self, call: &Call, frame: usize, values: &[(u32, u64)]) {
        while_busy!(self, {
            point!(End);
            if self.counting {
                self.read_after(frame);
            }
            let top = self.frames.get((self.depth as usize).wrapping_sub(1)).copied();
            if top != Some(frame) {
                self.forget_abandoned(|_, open| open != frame);
            }
            if self.depth > 0 {
                self.depth -= 1;
                let is_drawn = self.draws.is_drawn(self.depth as usize);
                self.record(call, values);
                if self.draws.is_on() {
                    self.finish_draw(call, is_drawn);
                }
            }
        });
    }

    /// Returns whether counters are read for the call in progress that began at this stack address.
    fn is_counted(&self, frame: usize) -> bool {
        let at = self.frames.iter().take(self.depth as usize).rposition(|open| *open == frame);
        at.is_none_or(|at| self.uncounted >> at & 1 == 0)
    }

    #[inline(always)]
    pub(super) fn record(&mut self, call: &Call, values: &[(u32, u64)]) {
        // Values must be on the same page as their call.
        let fits = match values {
            [] => self.writer.has_room(),
            _ => self.writer.has_room_with_values(),
        };
        if !fits {
            self.flush();
        }
        let depth = self.depth as usize;
        let drawn = self.draws.take(depth);
        // SAFETY: `depth` was the index of this call's begin, and a page with room is attached.
        unsafe {
            if self.counting {
                self.record_with_counters(call, drawn.as_ref(), depth);
            } else {
                self.uncounted &= !(1 << depth);
                let cursor = begin_record(&mut self.writer, call, drawn.as_ref(), false);
                point!(Record);
                self.writer.commit_call(cursor);
            }
            if !values.is_empty() {
                self.writer.values(values);
            }
            self.writer.set_open(self.depth, call.export);
        }
        if call.end >= self.next_clock {
            self.clock_record();
        }
    }

    /// Writes the record of a call of a thread that has counters.
    ///
    /// # Safety
    /// `depth` must be the index of the call's begin, and a page with room must be attached.
    #[inline(never)]
    unsafe fn record_with_counters(&mut self, call: &Call, drawn: Option<&Drawn>, depth: usize) {
        // SAFETY: by contract.
        unsafe {
            if self.uncounted >> depth & 1 == 1 {
                self.uncounted &= !(1 << depth);
                return record_uncounted(&mut self.writer, call, drawn, self.run);
            }
            let missing = self.before.get_unchecked(depth).missing() | self.after.missing();
            if missing & self.run.counter_mask != 0 {
                self.count_missing();
            }
            let before = self.before.get_unchecked(depth);
            record_counted(&mut self.writer, call, drawn, before, &self.after, self.run);
        }
    }

    #[cold]
    #[inline(never)]
    fn count_missing(&mut self) {
        if self.rehearsing {
            return;
        }
        self.process().lose(Loss::CounterReadFailed, 1, 0);
        if !self.counters.is_open() && !self.lost_noted {
            self.lost_noted = true;
            self.process().lose(Loss::DescriptorLost, 1, 0);
        }
    }
}

/// Begins the record of a call, drawn or not.
///
/// # Safety
/// A page with room must be attached to `writer`.
#[inline(always)]
unsafe fn begin_record(
    writer: &mut record::PageWriter,
    call: &Call,
    drawn: Option<&Drawn>,
    scaled: bool,
) -> record::page::Cursor {
    // SAFETY: by contract.
    unsafe {
        match drawn {
            Some(drawn) if *drawn != Drawn::default() => writer.drawn_call(call, scaled, drawn),
            _ => writer.call(call, scaled),
        }
    }
}

/// Writes a call for which no counter was read to a page of calls with counters.
///
/// # Safety
/// A page with room must be attached to `writer`.
unsafe fn record_uncounted(
    writer: &mut record::PageWriter,
    call: &Call,
    drawn: Option<&Drawn>,
    run: &Run,
) {
    // SAFETY: by contract.
    unsafe {
        let mut cursor = begin_record(writer, call, drawn, false);
        run.plan.groups().iter().for_each(|_| cursor.put(0));
        writer.commit_call(cursor);
    }
}

/// # Safety
/// A page with room must be attached to `writer`, and both readings must follow `run`'s plan.
#[inline(always)]
unsafe fn record_counted(
    writer: &mut record::PageWriter,
    call: &Call,
    drawn: Option<&Drawn>,
    before: &Readings,
    after: &Readings,
    run: &Run,
) {
    let groups = run.plan.groups();
    let missing = before.missing() | after.missing();
    let (from, to) = (before.words(), after.words());
    // SAFETY: `Plan` guarantees that its blocks fit into the words.
    let delta =
        |word: usize| unsafe { to.get_unchecked(word).wrapping_sub(*from.get_unchecked(word)) };
    let mut scaled = false;
    let mut at = 0;
    for group in groups {
        scaled |= missing & group.mask() == 0 && delta(at + 1) != delta(at + 2);
        at += 3 + 2 * usize::from(group.len);
    }
    // SAFETY: by contract.
    unsafe {
        let mut cursor = begin_record(writer, call, drawn, scaled);
        point!(Record);
        at = 0;
        for group in groups {
            if missing & group.mask() != 0 {
                cursor.put(0);
            } else {
                cursor.put(delta(at + 1).wrapping_add(1));
                if scaled {
                    cursor.put(delta(at + 2));
                }
                for i in 0..usize::from(group.len) {
                    cursor.put(delta(at + 3 + 2 * i));
                }
            }
            at += 3 + 2 * usize::from(group.len);
        }
        writer.commit_call(cursor);
    }
}
