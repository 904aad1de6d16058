//! The bracket around a call: the hot path.
//!
//! ```text
//!  begin   read counters ─ ticks ─►  original call  ─► ticks ─ read counters ─ record  end
//! ```
//!
//! The clock is read inside the counters, so that reading counters does not lengthen the recorded
//! time; counters therefore see the two clock reads and half of each `read` (see
//! [`crate::recorder::calibrate`]). No allocation, lock or panic; system calls only for counters, made
//! without touching `errno`. Memory that is written here is the thread's own, present, and not
//! shared with a forked child, so that an empty call counts no page fault.

use std::ffi::c_int;
use std::sync::atomic::{Ordering, compiler_fence};

use abi::iree::{Dispatch, DispatchState, Environment, WorkgroupState};
use counters::Readings;
use model::Loss;
use record::Call;

use crate::process::part;
use crate::recorder::thread::{self, DEEPEST, Hooked, Probe, Thread, guarded};

/// Calls `original` with the probe around it.
///
/// # Safety
/// The arguments are what the runtime passes to a dispatch function, and `original` is that
/// function. May be left by an unwinding exception or `longjmp` of the original; the next call
/// of the thread notices.
#[inline(always)]
pub unsafe fn call(
    export: u32,
    original: Dispatch,
    environment: *const Environment,
    dispatch: *const DispatchState,
    workgroup: *const WorkgroupState,
) -> c_int {
    let mut thread = thread::current();
    // SAFETY: null or this thread's own state, which is unmapped only at thread exit, after the
    // pointer was cleared.
    if thread.is_null() || !unsafe { (*thread).is_attached() } {
        thread = thread::attach(Probe::Dispatch);
        if thread.is_null() {
            // SAFETY: the runtime's own call, passed on.
            return unsafe { original(environment, dispatch, workgroup) };
        }
    }
    touch_stack();
    let frame = stack_address();
    // SAFETY: attached just now or before.
    if !unsafe { begin_guarded(thread, export, frame) } {
        // SAFETY: as above.
        return unsafe { original(environment, dispatch, workgroup) };
    }
    // SAFETY: attached; the clock is a copy.
    let clock = unsafe { (*thread).run.clock };
    let start = clock.begin();
    // SAFETY: as above.
    let result = unsafe { original(environment, dispatch, workgroup) };
    let (end, location) = clock.end();
    // The dispatch and workgroup states live until we return: the caller passed them by address.
    // SAFETY: as above; in a child that the original forked, `epoch` is 0 and nothing is done.
    unsafe {
        if (*thread).is_attached() {
            let call = Call {
                export,
                count: [
                    (*dispatch).workgroup_count_x,
                    (*dispatch).workgroup_count_y,
                    (*dispatch).workgroup_count_z.into(),
                ],
                workgroup: [
                    (*workgroup).workgroup_id_x,
                    (*workgroup).workgroup_id_y,
                    (*workgroup).workgroup_id_z.into(),
                ],
                location,
                worker: (*workgroup).processor_id,
                start,
                end,
            };
            end_guarded(thread, &call, frame);
        }
    }
    result
}

// Functions of their own, so that `call`, whose frame lies under the original's, has no landing
// pads: with them it would have a personality routine, and the program's unwinder, which passes
// exceptions of the original through here, would call ours, which belongs to the unwinder that is
// linked into this library (measured: the process crashes).

/// # Safety
/// `thread` is the calling thread's.
#[inline(never)]
unsafe fn begin_guarded(thread: *mut Thread, export: u32, frame: usize) -> bool {
    // SAFETY: by contract.
    guarded(|| unsafe { (*thread).begin(export, frame, Newcomer::Synchronous) }) == Some(true)
}

/// # Safety
/// As `begin_guarded`.
#[inline(never)]
unsafe fn end_guarded(thread: *mut Thread, call: &Call, frame: usize) {
    // SAFETY: by contract.
    guarded(|| unsafe { (*thread).end(call, frame, &[]) });
}

/// Writes where the original's return address will be, so that a stack page that is not there yet
/// (or was shared by a fork) faults before the counters are read: the call itself is ours.
#[inline(always)]
fn touch_stack() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: below the stack pointer nothing is kept. Without `nostack` the compiler keeps its
    // own red zone out of the way.
    unsafe {
        std::arch::asm!("mov byte ptr [rsp - 8], 0", options(preserves_flags));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above.
    unsafe {
        std::arch::asm!("strb wzr, [sp, #-16]", options(preserves_flags));
    }
}

/// The begin of a call that the runtime itself brackets. `frame`: a stack address above everything
/// that it calls before the end.
///
/// # Safety
/// Called by the runtime on the thread that makes the call.
#[inline(always)]
pub unsafe fn begin_hooked(export: u32, frame: usize) {
    let mut thread = thread::current();
    // SAFETY: as in `call`.
    unsafe {
        if thread.is_null() || !(*thread).is_attached() {
            thread = thread::attach(Probe::Dispatch);
            if thread.is_null() {
                return;
            }
        }
        if (*thread).begin(export, frame, Newcomer::Bracketed) {
            let at = (*thread).depth as usize - 1;
            (*thread).is_hooked |= 1 << at;
            let start = (*thread).run.clock.begin();
            *(*thread).hooked.get_unchecked_mut(at) = Hooked { export, start };
        }
    }
}

/// The end of a call whose begin was [`begin_hooked`]. Without one, nothing happens.
///
/// # Safety
/// As `begin_hooked`.
#[inline(always)]
pub unsafe fn end_hooked(export: u32) {
    let thread = thread::current();
    // SAFETY: as in `call`.
    unsafe {
        if thread.is_null()
            || !(*thread).is_attached()
            || (*thread).busy.load(Ordering::Relaxed) != 0
        {
            return;
        }
        let (end, location) = (*thread).run.clock.end();
        let Some(at) = (*thread).innermost_hooked(export) else { return };
        let start = (*thread).hooked.get_unchecked(at).start;
        let frame = *(*thread).frames.get_unchecked(at);
        // Nobody tells which workgroup it is; no dispatch has a count of zero.
        let call = Call { export, location, start, end, ..Call::default() };
        (*thread).is_hooked &= !(1 << at);
        (*thread).end(&call, frame, &[]);
    }
}

/// How a call that begins is bracketed, which says where its `frame` is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Newcomer {
    /// By one function of ours that calls it: the frame is that function's.
    Synchronous,
    /// By two calls of the host: the frame is that of the first one's caller.
    Bracketed,
}

/// What the host may put on the stack between itself and the first of the two calls that bracket an
/// op, at most: what the op itself calls may begin above that.
const WRAPPERS: usize = 4096;

/// An address in the caller's stack frame: frames of calls in progress lie above later ones.
#[inline(always)]
pub fn stack_address() -> usize {
    let marker = 0u8;
    (&raw const marker) as usize
}

impl Thread {
    /// Starts a bracket. False: the call cannot be recorded now, pass it through.
    #[inline(always)]
    pub(crate) fn begin(&mut self, export: u32, frame: usize, newcomer: Newcomer) -> bool {
        self.begin_call(export, frame, newcomer, true)
    }

    /// [`Thread::begin`]; `counted`: whether counters are read for this call.
    #[inline(always)]
    pub(crate) fn begin_call(
        &mut self,
        export: u32,
        frame: usize,
        newcomer: Newcomer,
        counted: bool,
    ) -> bool {
        if self.busy.load(Ordering::Relaxed) != 0 {
            part::lose(Loss::ProbeReentered, 1, 0);
            return false;
        }
        self.busy.store(1, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        point!(Begin);
        if self.depth > 0 && !self.begin_nested(frame, newcomer) {
            self.busy.store(0, Ordering::Relaxed);
            return false;
        }
        let depth = self.depth as usize;
        // SAFETY: `begin_nested` refuses a depth beyond the arrays; a page is attached.
        unsafe {
            *self.frames.get_unchecked_mut(depth) = frame;
            self.writer.set_open(self.depth + 1, export);
            if !counted {
                self.uncounted |= 1 << depth;
            } else if self.counting {
                // A failed read leaves its mark in the readings; `end` sees it.
                let _ = self.counters.read(self.before.get_unchecked_mut(depth));
            }
        }
        self.depth += 1;
        compiler_fence(Ordering::SeqCst);
        self.busy.store(0, Ordering::Relaxed);
        true
    }

    /// A call within a call. Forgets those that were passed by (their frames are below or at the
    /// new one), and refuses what is too deep.
    #[cold]
    #[inline(never)]
    fn begin_nested(&mut self, frame: usize, newcomer: Newcomer) -> bool {
        point!(BeginNested);
        let ops = if newcomer == Newcomer::Synchronous { self.is_op } else { 0 };
        self.forget_abandoned(|at, open| open + WRAPPERS * (ops >> at & 1) as usize <= frame);
        if self.depth as usize >= DEEPEST {
            self.process().lose(Loss::ProbeReentered, 1, 0);
            return false;
        }
        true
    }

    #[cold]
    #[inline(never)]
    fn forget_abandoned(&mut self, abandoned: impl Fn(u32, usize) -> bool) {
        while self.depth > 0 {
            let open = self.frames.get(self.depth as usize - 1).copied().unwrap_or(0);
            if !abandoned(self.depth - 1, open) {
                return;
            }
            self.depth -= 1;
            crate::adapters::tvm::abandon(self, self.depth as usize);
            self.is_hooked &= !(1 << self.depth);
            self.is_op &= !(1 << self.depth);
            self.has_entry &= !(1 << self.depth);
            self.uncounted &= !(1 << self.depth);
            self.process().lose(Loss::CallAbandoned, 1, 0);
        }
    }

    /// Index of the innermost call in progress that the runtime brackets and that is of `export`.
    #[inline(always)]
    fn innermost_hooked(&self, export: u32) -> Option<usize> {
        (0..(self.depth as usize).min(DEEPEST))
            .rev()
            .find(|at| self.is_hooked >> at & 1 == 1 && self.hooked[*at].export == export)
    }

    /// Ends a bracket and records the call.
    #[inline(always)]
    pub(crate) fn end(&mut self, call: &Call, frame: usize, values: &[(u32, u64)]) {
        self.busy.store(1, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        point!(End);
        if self.counting && (self.uncounted == 0 || self.is_counted(frame)) {
            let _ = self.counters.read(&mut self.after);
        }
        let top = self.frames.get((self.depth as usize).wrapping_sub(1)).copied();
        if top != Some(frame) {
            self.forget_abandoned(|_, open| open != frame);
        }
        if self.depth > 0 {
            self.depth -= 1;
            self.record(call, values);
        }
        compiler_fence(Ordering::SeqCst);
        self.busy.store(0, Ordering::Relaxed);
    }

    /// Whether counters are read for the call in progress that began at this stack address.
    fn is_counted(&self, frame: usize) -> bool {
        let at = self.frames.iter().take(self.depth as usize).rposition(|open| *open == frame);
        at.is_none_or(|at| self.uncounted >> at & 1 == 0)
    }

    #[inline(always)]
    fn record(&mut self, call: &Call, values: &[(u32, u64)]) {
        // Values stand on their call's page.
        let fits = match values {
            [] => self.writer.has_room(),
            _ => self.writer.has_room_with_values(),
        };
        if !fits {
            self.flush();
        }
        let depth = self.depth as usize;
        // SAFETY: `depth` was the index of this call's begin; a page with room is attached.
        unsafe {
            if self.counting && self.uncounted >> depth & 1 == 1 {
                self.uncounted &= !(1 << depth);
                record_uncounted(&mut self.writer, call, self.run);
            } else if self.counting {
                let missing = self.before.get_unchecked(depth).missing() | self.after.missing();
                if missing & self.run.counter_mask != 0 {
                    self.count_missing();
                }
                let before = self.before.get_unchecked(depth);
                record_counted(&mut self.writer, call, before, &self.after, self.run);
            } else {
                self.uncounted &= !(1 << depth);
                let cursor = self.writer.call(call, false);
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

/// A call for which no counter was read, on a page of calls with counters.
///
/// # Safety
/// A page with room is attached to `writer`.
unsafe fn record_uncounted(
    writer: &mut record::PageWriter,
    call: &Call,
    run: &crate::state::run::Run,
) {
    // SAFETY: by contract.
    unsafe {
        let mut cursor = writer.call(call, false);
        run.plan.groups().iter().for_each(|_| cursor.put(0));
        writer.commit_call(cursor);
    }
}

/// # Safety
/// A page with room is attached to `writer`; both readings were taken with `run`'s plan.
#[inline(always)]
unsafe fn record_counted(
    writer: &mut record::PageWriter,
    call: &Call,
    before: &Readings,
    after: &Readings,
    run: &crate::state::run::Run,
) {
    let groups = run.plan.groups();
    let missing = before.missing() | after.missing();
    let (from, to) = (before.words(), after.words());
    // SAFETY: a plan's blocks fit into the words, as `Plan` guarantees.
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
        let mut cursor = writer.call(call, scaled);
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
