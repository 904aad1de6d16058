//! The brackets around what a model does: ops between two calls of the VM; runs, regions and tasks
//! around a call of ours.

use std::ffi::c_void;
use std::sync::atomic::Ordering;

use record::Call;
use record::page::{
    KEY_CORRELATION, KEY_FAILED, KEY_FAILED_OP, KEY_STORAGE_BYTES, KEY_WORKSPACE_BYTES,
};

use crate::adapters::tvm::ADAPTER;
use crate::adapters::tvm::op::Entry;
use crate::recorder::attach;
use crate::recorder::bracket::Newcomer;
use crate::recorder::collectors;
use crate::recorder::thread::{self, Slot, Thread};
use crate::recorder::values::Values;
use crate::state::epoch;

/// Index in the numbers of a call's slot, which are bytes that it has allocated.
const STORAGE: usize = 0;
const WORKSPACE: usize = 1;

#[cold]
#[inline(never)]
fn attach() -> *mut Thread {
    attach::attach(&ADAPTER)
}

/// The calling thread, attached now if need be; null if it cannot be recorded.
#[inline(always)]
pub fn thread() -> *mut Thread {
    let thread = thread::current();
    // SAFETY: null or this thread's own state.
    if thread.is_null() || !unsafe { (*thread).is_attached() } {
        return attach();
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
    thread.set_slot(at, slot(entry, storage));
    collectors::keep(thread, at, started);
    thread.begin_wrapped(entry.id);
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
    let Some(at) = thread.wrapped_at(frame) else { return false };
    let begun = thread.end_wrapped(at);
    let call = Call { export: begun.export, location, start: begun.start, end, ..Call::default() };
    let bytes = thread.take_slot(at).numbers;
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
    state.set_slot(state.depth as usize - 1, slot(what.entry, 0));
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
    push_bytes(&mut values, thread.take_slot(at).numbers);
    if failed {
        values.push(KEY_FAILED, 1);
        if let Some(export) = thread.innermost_wrapped(at) {
            values.push(KEY_FAILED_OP, export.into());
        }
    }
    thread.end(&call, bracket.frame, values.as_slice());
}

/// The op that the calling thread is in the middle of, or works for.
#[inline(always)]
pub fn current_op(thread: &Thread) -> Option<&'static Entry> {
    let last = thread.innermost_slot(owner())?;
    // SAFETY: a bit's number; the subject of a slot of ours is null or an entry, which is never freed.
    unsafe { thread.slots.get_unchecked(last).subject.cast::<Entry>().as_ref() }
}

/// Notes workspace for the innermost call of the calling thread.
pub fn add_workspace(bytes: u64) {
    let Some(thread) = recording().filter(|_| epoch::wanted()) else { return };
    // SAFETY: this thread's own state.
    let thread = unsafe { &mut *thread };
    if let Some(last) = thread.innermost_slot(owner()) {
        let total = &mut thread.slots[last].numbers[WORKSPACE];
        *total = total.saturating_add(bytes);
    }
}

/// What a call keeps: what it is about, and how much it has allocated.
#[inline(always)]
fn slot(entry: &'static Entry, storage: u64) -> Slot {
    Slot { owner: owner(), subject: std::ptr::from_ref(entry).cast(), numbers: [storage, 0] }
}

/// Tells our slots from those of other adapters.
#[inline(always)]
fn owner() -> *const c_void {
    (&raw const ADAPTER).cast()
}
