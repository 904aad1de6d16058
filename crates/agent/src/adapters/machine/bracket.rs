//! The brackets around the work of a model. An op lies between two calls that the host makes to us; a
//! run, region or task lies inside one call of ours.

use std::ffi::c_void;
use std::sync::atomic::Ordering;

use record::Call;
use record::page::{
    KEY_CORRELATION, KEY_FAILED, KEY_FAILED_OP, KEY_FORWARD, KEY_STORAGE_BYTES, KEY_WORKSPACE_BYTES,
};

use crate::adapters::machine::op::Entry;
use crate::recorder::adapter::Adapter;
use crate::recorder::attach;
use crate::recorder::bracket::{Newcomer, held};
use crate::recorder::collectors;
use crate::recorder::thread::{self, Slot, Thread};
use crate::recorder::values::Values;
use crate::state::epoch;

/// Indices into the numbers of a call's slot: bytes of storage and of workspace that it has
/// allocated.
const STORAGE: usize = 0;
const WORKSPACE: usize = 1;
/// Index of one more than the export of the forward op; 0 if there is none.
const FORWARD: usize = 2;

#[cold]
#[inline(never)]
fn attach(adapter: &Adapter) -> *mut Thread {
    attach::attach(adapter)
}

/// Returns the calling thread's state, and attaches the thread for `adapter` first if necessary; null
/// if it cannot be recorded.
#[inline(always)]
pub fn thread(adapter: &Adapter) -> *mut Thread {
    let thread = thread::current();
    // SAFETY: null, or this thread's own state.
    if thread.is_null() || !unsafe { (*thread).is_attached() } {
        return attach(adapter);
    }
    thread
}

/// Returns the calling thread's state if it is attached and not inside the recorder itself.
#[inline(always)]
fn recording() -> Option<*mut Thread> {
    let thread = thread::current();
    // SAFETY: null, or this thread's own state.
    unsafe {
        let usable = !thread.is_null()
            && (*thread).is_attached()
            && (*thread).busy.load(Ordering::Relaxed) == 0;
        usable.then_some(thread)
    }
}

/// Begins an op that allocates `storage` bytes. `frame` is a stack address that is the same when the
/// op ends, and lies above those of the calls that the op makes. Returns true if a collector was
/// interrupted; the op must then not be called.
///
/// # Safety
/// Must be called on the thread that will call the op next.
#[inline(always)]
pub unsafe fn begin_op(
    adapter: &Adapter,
    entry: &'static Entry,
    storage: u64,
    frame: usize,
) -> bool {
    // SAFETY: the caller guarantees this.
    unsafe { begin(adapter, entry, frame, Newcomer::Bracketed, |_| [storage, 0, 0]) }
}

/// Begins an op that the host ends even if it throws, and that it identifies by `address` until then.
/// `forward(thread)` is one more than the export of the op's forward op, or 0 if there is none.
///
/// # Safety
/// Same as for [`begin_op`].
#[inline(always)]
pub unsafe fn begin_held_op(
    adapter: &Adapter,
    entry: &'static Entry,
    address: usize,
    forward: impl FnOnce(&Thread) -> u64,
) {
    let numbers = |thread: &Thread| [0, 0, forward(thread)];
    // SAFETY: the caller guarantees this.
    unsafe { begin(adapter, entry, held(address), Newcomer::Held, numbers) };
}

/// # Safety
/// Same as for [`begin_op`].
#[inline(always)]
unsafe fn begin(
    adapter: &Adapter,
    entry: &'static Entry,
    frame: usize,
    newcomer: Newcomer,
    numbers: impl FnOnce(&Thread) -> [u64; 3],
) -> bool {
    let thread = thread(adapter);
    // SAFETY: null, or this thread's own state.
    let Some(thread) = (unsafe { thread.as_mut() }) else { return false };
    if !entry.is_recorded(thread) {
        return false;
    }
    let numbers = numbers(thread);
    let counted = !entry.bookkeeping || thread.run.bookkeeping;
    if newcomer == Newcomer::Held
        && counted
        && !collectors::any()
        && thread.begin_usual(entry.id, frame, slot(entry, numbers))
    {
        return false;
    }
    let started = collectors::start(thread, entry.device);
    let interrupted = started.is_some_and(|started| started.interrupted);
    if interrupted || !thread.begin_call(entry.id, frame, newcomer, counted) {
        collectors::give_up(started);
        return interrupted;
    }
    let at = thread.depth as usize - 1;
    thread.set_slot(at, slot(entry, numbers));
    collectors::keep(thread, at, started);
    thread.begin_wrapped(entry.id);
    false
}

/// Ends the op that began at `frame`. Does nothing if there is none. Returns true if a collector
/// was interrupted.
///
/// # Safety
/// Same as for [`begin_op`].
#[inline(always)]
pub unsafe fn end_op(frame: usize) -> bool {
    // SAFETY: the caller guarantees this.
    unsafe { end_begun(frame) }.is_some_and(|(_, interrupted)| interrupted)
}

/// Ends the op that [`begin_held_op`] began with this address, and returns the index that it had among
/// the calls in progress. Returns `None` if there is none.
///
/// # Safety
/// Same as for [`begin_op`].
#[inline(always)]
pub unsafe fn end_held_op(address: usize) -> Option<usize> {
    // SAFETY: the caller guarantees this.
    unsafe { end_begun(held(address)) }.map(|(at, _)| at)
}

/// # Safety
/// Same as for [`begin_op`].
#[inline(always)]
unsafe fn end_begun(frame: usize) -> Option<(usize, bool)> {
    let thread = recording()?;
    // SAFETY: this is the thread's own state.
    let thread = unsafe { &mut *thread };
    let (end, location) = thread.clock.end();
    if thread.end_usual(frame, end, location) {
        return Some((thread.depth as usize, false));
    }
    let at = thread.wrapped_at(frame)?;
    let begun = thread.end_wrapped(at);
    let call = Call { export: begun.export, location, start: begun.start, end, ..Call::default() };
    let numbers = thread.take_slot(at).numbers;
    if numbers == [0; 3] && !collectors::any() {
        thread.end(&call, frame, &[]);
        return Some((at, false));
    }
    Some((at, end_with_values(thread, &call, frame, numbers, at)))
}

#[cold]
#[inline(never)]
fn end_with_values(
    thread: &mut Thread,
    call: &Call,
    frame: usize,
    numbers: [u64; 3],
    at: usize,
) -> bool {
    let mut values = Values::new();
    push_bytes(&mut values, numbers);
    if numbers[FORWARD] != 0 {
        values.push(KEY_FORWARD, numbers[FORWARD] - 1);
    }
    let interrupted = collectors::stop(thread, at, &mut values);
    thread.end(call, frame, values.as_slice());
    interrupted
}

fn push_bytes(values: &mut Values, bytes: [u64; 3]) {
    for (key, index) in [(KEY_STORAGE_BYTES, STORAGE), (KEY_WORKSPACE_BYTES, WORKSPACE)] {
        if bytes[index] != 0 {
            values.push(key, bytes[index]);
        }
    }
}

/// A bracket in progress whose begin and end are in the same function of ours.
pub struct Bracket {
    thread: *mut Thread,
    start: u64,
    frame: usize,
}

/// What such a bracket records.
pub struct What {
    pub export: u32,
    pub entry: &'static Entry,
    /// The task's number and the count of tasks, for a task.
    pub task: Option<(u32, u32)>,
    /// A number that a region and its tasks share.
    pub correlation: Option<u64>,
    /// Whether counters are read. If not, the call that contains it has counted the same.
    pub counted: bool,
}

/// Begins a bracket that will end in the same function, at `frame`. Returns `None` if it cannot be
/// recorded.
#[inline(always)]
pub fn begin_inside(thread: *mut Thread, what: &What, frame: usize) -> Option<Bracket> {
    // SAFETY: this is the calling thread's own state, and it is attached.
    let state = unsafe { thread.as_mut() }?;
    if !state.begin_call(what.export, frame, Newcomer::Synchronous, what.counted) {
        return None;
    }
    state.set_slot(state.depth as usize - 1, slot(what.entry, [0; 3]));
    Some(Bracket { thread, frame, start: state.run.clock.begin() })
}

/// Ends the bracket.
pub fn end(bracket: &Bracket, what: &What, failed: bool) {
    // SAFETY: this is the calling thread's own state, whose memory stays mapped as long as the
    // thread lives.
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

/// Returns the op in which the calling thread is, or for which it works.
#[inline(always)]
pub fn current_op(thread: &Thread) -> Option<&'static Entry> {
    let last = thread.innermost_slot(owner())?;
    // SAFETY: `last` is the index of a call; the subject of a slot of ours is null or an entry,
    // which is never freed.
    unsafe { thread.slots.get_unchecked(last).subject.cast::<Entry>().as_ref() }
}

/// Adds workspace to the innermost call of the calling thread.
pub fn add_workspace(bytes: u64) {
    let Some(thread) = recording().filter(|_| epoch::wanted()) else { return };
    // SAFETY: this is the thread's own state.
    let thread = unsafe { &mut *thread };
    if let Some(last) = thread.innermost_slot(owner()) {
        let total = &mut thread.slots[last].numbers[WORKSPACE];
        *total = total.saturating_add(bytes);
    }
}

/// Returns the slot of a call: its entry, and its numbers.
#[inline(always)]
fn slot(entry: &'static Entry, numbers: [u64; 3]) -> Slot {
    Slot { owner: owner(), subject: std::ptr::from_ref(entry).cast(), numbers }
}

/// Returns the index of the op in which the calling thread is.
pub fn innermost(thread: &Thread) -> Option<usize> {
    thread.innermost_slot(owner())
}

/// Returns the address that distinguishes our slots from those of other adapters. The hosts that use
/// this module share it, so that a region finds its op whichever host called it.
#[inline(always)]
fn owner() -> *const c_void {
    static OWNER: u8 = 0;
    (&raw const OWNER).cast()
}
