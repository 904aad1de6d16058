//! The brackets around what a model does: ops between two calls of the VM; runs, regions and tasks
//! around a call of ours.

use std::sync::atomic::Ordering;

use record::Call;
use record::page::{
    KEY_CORRELATION, KEY_FAILED, KEY_FAILED_OP, KEY_STORAGE_BYTES, KEY_WORKSPACE_BYTES, MOST_VALUES,
};

use crate::adapters::tvm::op::Entry;
use crate::recorder::bracket::Newcomer;
use crate::recorder::collectors;
use crate::recorder::thread::{self, Probe, Thread};
use crate::state::run;

/// Index in [`Thread::bytes`].
const STORAGE: usize = 0;
const WORKSPACE: usize = 1;

/// Values behind one call.
pub struct Values {
    all: [(u32, u64); MOST_VALUES],
    count: usize,
}

impl Values {
    #[inline(always)]
    pub fn new() -> Self {
        Self { all: [(0, 0); MOST_VALUES], count: 0 }
    }

    pub fn push(&mut self, key: u32, value: u64) {
        if let Some(place) = self.all.get_mut(self.count) {
            *place = (key, value);
            self.count += 1;
        }
    }

    fn as_slice(&self) -> &[(u32, u64)] {
        self.all.get(..self.count).unwrap_or_default()
    }
}

/// The calling thread, attached now if need be; null if it cannot be recorded.
#[inline(always)]
pub fn thread() -> *mut Thread {
    let thread = thread::current();
    // SAFETY: null or this thread's own state.
    if thread.is_null() || !unsafe { (*thread).is_attached() } {
        return thread::attach(Probe::Op);
    }
    thread
}

/// The calling thread, if it is attached and not in the recorder itself.
#[inline(always)]
fn recording() -> Option<*mut Thread> {
    let thread = thread::current();
    // SAFETY: as above.
    unsafe {
        let usable = !thread.is_null()
            && (*thread).is_attached()
            && (*thread).busy.load(Ordering::Relaxed) == 0;
        usable.then_some(thread)
    }
}

/// Begins an op. `frame`: the stack address of the VM's call of us, the same at its end. True: a
/// collector was interrupted, the op must not be called.
///
/// # Safety
/// Called on the thread that calls the op next.
#[inline(always)]
pub unsafe fn begin_op(entry: &'static Entry, storage: u64, frame: usize) -> bool {
    let thread = thread();
    // SAFETY: null or this thread's own state.
    let Some(thread) = (unsafe { thread.as_mut() }) else { return false };
    if !entry.is_recorded(thread) {
        return false;
    }
    let started = collectors::start(thread, entry.device);
    let interrupted = started.is_some_and(|started| started.interrupted);
    let counted = !entry.bookkeeping || thread.run.bookkeeping;
    if interrupted || !thread.begin_call(entry.id, frame, Newcomer::Bracketed, counted) {
        collectors::give_up(started);
        return interrupted;
    }
    let at = thread.depth as usize - 1;
    thread.note(at, entry, storage);
    collectors::keep(thread, at, started);
    thread.is_hooked |= 1 << at;
    thread.is_op |= 1 << at;
    // SAFETY: `begin` refuses a depth beyond the arrays.
    unsafe {
        let hooked = thread.hooked.get_unchecked_mut(at);
        hooked.export = entry.id;
        hooked.start = thread.run.clock.begin();
    }
    false
}

/// Ends the op that began at `frame`; without one, nothing happens. True: a collector was
/// interrupted.
///
/// # Safety
/// As [`begin_op`].
#[inline(always)]
pub unsafe fn end_op(frame: usize) -> bool {
    let Some(thread) = recording() else { return false };
    // SAFETY: this thread's own state.
    let thread = unsafe { &mut *thread };
    let (end, location) = thread.run.clock.end();
    let Some(at) = thread.op_at(frame) else { return false };
    // SAFETY: `at` is below the depth.
    let hooked = unsafe { *thread.hooked.get_unchecked(at) };
    let call =
        Call { export: hooked.export, location, start: hooked.start, end, ..Call::default() };
    thread.is_hooked &= !(1 << at);
    thread.is_op &= !(1 << at);
    thread.has_entry &= !(1 << at);
    // SAFETY: as above.
    let bytes = unsafe { *thread.bytes.get_unchecked(at) };
    if bytes == [0; 2] && !collectors::any() {
        thread.end(&call, frame, &[]);
        false
    } else {
        end_with_values(thread, &call, frame, bytes, at)
    }
}

#[cold]
#[inline(never)]
fn end_with_values(
    thread: &mut Thread,
    call: &Call,
    frame: usize,
    bytes: [u64; 2],
    at: usize,
) -> bool {
    let mut values = Values::new();
    push_bytes(&mut values, bytes);
    let interrupted = collectors::stop(thread, at, &mut values);
    thread.end(call, frame, values.as_slice());
    interrupted
}

fn push_bytes(values: &mut Values, bytes: [u64; 2]) {
    for (key, index) in [(KEY_STORAGE_BYTES, STORAGE), (KEY_WORKSPACE_BYTES, WORKSPACE)] {
        if bytes[index] != 0 {
            values.push(key, bytes[index]);
        }
    }
}

/// A bracket of ours in progress.
pub struct Bracket {
    thread: *mut Thread,
    start: u64,
    frame: usize,
}

/// What a bracket of ours is about.
pub struct What {
    pub export: u32,
    pub entry: &'static Entry,
    /// Number and count of a task.
    pub task: Option<(u32, u32)>,
    /// What a region and its tasks have in common.
    pub correlation: Option<u64>,
}

/// Begins a bracket whose end comes in the same function, at `frame`. `None`: it cannot be recorded.
#[inline(always)]
pub fn begin(thread: *mut Thread, what: &What, frame: usize) -> Option<Bracket> {
    // SAFETY: the calling thread's own state, attached.
    let state = unsafe { thread.as_mut() }?;
    if !state.begin(what.export, frame, Newcomer::Synchronous) {
        return None;
    }
    state.note(state.depth as usize - 1, what.entry, 0);
    Some(Bracket { thread, frame, start: state.run.clock.begin() })
}

/// Ends it.
pub fn end(bracket: &Bracket, what: &What, failed: bool) {
    // SAFETY: as in `begin`; memory of a state stays one as long as its thread lives.
    let Some(thread) = (unsafe { bracket.thread.as_mut() }) else { return };
    if !thread.is_attached() || thread.busy.load(Ordering::Relaxed) != 0 {
        return;
    }
    let (end, location) = thread.run.clock.end();
    let mut call =
        Call { export: what.export, location, start: bracket.start, end, ..Call::default() };
    if let Some((number, count)) = what.task {
        (call.count, call.workgroup) = ([count, 1, 1], [number, 0, 0]);
    }
    let Some(at) =
        thread.frames.iter().take(thread.depth as usize).rposition(|f| *f == bracket.frame)
    else {
        return;
    };
    let mut values = Values::new();
    if let Some(number) = what.correlation {
        values.push(KEY_CORRELATION, number);
    }
    push_bytes(&mut values, thread.bytes[at]);
    if failed {
        values.push(KEY_FAILED, 1);
        if let Some(export) = thread.innermost_op(at) {
            values.push(KEY_FAILED_OP, export.into());
        }
    }
    thread.has_entry &= !(1 << at);
    thread.end(&call, bracket.frame, values.as_slice());
}

/// The op that the calling thread is in the middle of, or works for.
#[inline(always)]
pub fn current_op(thread: &Thread) -> Option<&'static Entry> {
    let last = 32u32.checked_sub(thread.has_entry.leading_zeros() + 1)?;
    // SAFETY: a bit's number.
    unsafe { *thread.entries.get_unchecked(last as usize) }
}

/// Notes workspace for the innermost call of the calling thread.
pub fn add_workspace(bytes: u64) {
    let Some(thread) = recording().filter(|_| run::wanted()) else { return };
    // SAFETY: this thread's own state.
    let thread = unsafe { &mut *thread };
    if let Some(last) = 32u32.checked_sub(thread.has_entry.leading_zeros() + 1) {
        let total = &mut thread.bytes[last as usize][WORKSPACE];
        *total = total.saturating_add(bytes);
    }
}

impl Thread {
    #[inline(always)]
    fn note(&mut self, at: usize, entry: &'static Entry, storage: u64) {
        self.has_entry |= 1 << at;
        // SAFETY: `begin` refuses a depth beyond the arrays.
        unsafe {
            *self.entries.get_unchecked_mut(at) = Some(entry);
            *self.bytes.get_unchecked_mut(at) = [storage, 0];
        }
    }

    /// The innermost op inside of call `at` that has not ended: the one that threw, if the call ends
    /// with an error.
    fn innermost_op(&self, at: usize) -> Option<u32> {
        let ops = (at + 1..self.depth as usize).rev().find(|inner| self.is_op >> inner & 1 == 1)?;
        self.hooked.get(ops).map(|op| op.export)
    }

    /// The op in progress that began at this stack address.
    #[inline(always)]
    fn op_at(&self, frame: usize) -> Option<usize> {
        let mut at = self.depth as usize;
        while at > 0 {
            at -= 1;
            // SAFETY: below the depth.
            if self.is_op >> at & 1 == 1 && unsafe { *self.frames.get_unchecked(at) } == frame {
                return Some(at);
            }
        }
        None
    }
}
