//! The brackets of ops (a bracket is the pair of readings of counters and clock around a call). They
//! begin and end in two calls that the host makes to the agent.
//!
//! ```text
//!  enter_before ─ begin_op or begin_held_op ─ leave │ op │ enter_after ─ end_op or end_held_op ─ leave
//!                   │ short way: try_open_op                 │ short way: try_end_op
//!                   │ else collectors start, begin, start    │ else finish, collectors stop, end
//! ```
//!
//! The brackets of runs, parallel regions and tasks are in [`super::inside`].
//! [`crate::recorder::bracket`] describes the states of a call.

use std::ffi::c_void;

use model::Loss;
use record::Call;
use record::page::{KEY_FORWARD, KEY_PLUGIN_ID, KEY_STORAGE_BYTES, KEY_WORKSPACE_BYTES};

use crate::adapters::op_calls::op::Entry;
use crate::os::scratch;
use crate::process::losses;
use crate::recorder::adapter::Adapter;
use crate::recorder::attach;
use crate::recorder::bracket::{Ending, Finished, NewCall, held, stack_address};
pub use crate::recorder::budget::sampling::How;
use crate::recorder::budget::steps;
use crate::recorder::collectors::{self, Room};
use crate::recorder::short::fetch;
use crate::recorder::thread::{self, AFTER, BEFORE, DEEPEST, Slot, Started, State, Thread};
use crate::recorder::values::Values;
use crate::state::epoch;

/// Indices of two numbers in a call's slot (the data that an adapter keeps about an open call): the
/// bytes of storage and of workspace that the call has allocated.
const STORAGE: usize = 0;
const WORKSPACE: usize = 1;
/// Index of a third number in the slot. For an op of the backward pass, this number is the export
/// id of its forward op (which identifies that op in a profile) plus 1. For other ops, it is 0.
const FORWARD: usize = 2;

#[cold]
#[inline(never)]
fn attach(adapter: &Adapter) -> *mut Thread {
    attach::attach(adapter)
}

/// Returns the calling thread's state, and attaches the thread if necessary. Returns null if it
/// cannot be attached.
#[inline(always)]
pub fn thread(adapter: &Adapter) -> *mut Thread {
    let thread = thread::current();
    // SAFETY: `thread::current` returns null or the calling thread's own state.
    if thread.is_null() || !unsafe { (*thread).is_attached() } {
        return attach(adapter);
    }
    thread
}

/// Returns the calling thread's state if the thread is attached and is not executing the recorder.
#[inline(always)]
pub(super) fn recording() -> Option<*mut Thread> {
    let thread = thread::current();
    // SAFETY: `thread::current` returns null or the calling thread's own state.
    unsafe {
        let usable = !thread.is_null() && (*thread).is_attached() && !(*thread).busy.is_set();
        usable.then_some(thread)
    }
}

/// The kinds of calls that hosts make to the agent before and after ops. Their duration is the cost
/// of a bracket. The recorder measures it differently for each kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    /// The agent's instrument: a function that a virtual machine calls before and after each op. In
    /// a run with a budget (a limit for the cost of recording), some of these calls are timed, even
    /// if the op is only counted.
    Instrument,
    /// A host that identifies its ops by an address, and ends them even if they throw
    /// ([`begin_held_op`]).
    Holder,
    /// A host like `Holder`, whose own time to announce an op is measured as well.
    MeasuredHolder,
}

/// Must be the first thing in the function of the agent that a host calls before an op, so that
/// this function's duration can be measured. The result is for [`begin_held_op`]; [`begin_op`] does
/// not need it.
#[inline(always)]
pub fn enter_before(caller: Caller) -> u64 {
    let Some(thread) = recording() else { return 0 };
    // SAFETY: `recording` returns the calling thread's own state, which no other code uses
    // meanwhile.
    let thread = unsafe { &mut *thread };
    if caller == Caller::MeasuredHolder {
        thread.announcing.begins();
    }
    let keeps = match caller {
        Caller::Instrument => true,
        _ => !thread.short_ops && thread.draws.is_on(),
    };
    if keeps {
        thread.enter_and_keep(BEFORE);
        return 0;
    }
    thread.enter(BEFORE)
}

/// Must be the first thing in the instrument's function after an op. In a run with a budget, this
/// begins to time the second half of the bracket (the agent's work after the op). In other runs,
/// this does nothing: [`end_op`] decides whether the second half is timed, after it has read the
/// counters. So in these runs, the same code runs before the counters are read, whether or not the
/// half is timed.
#[inline(always)]
pub fn enter_after() {
    if let Some(thread) = recording() {
        // SAFETY: `recording` returns the calling thread's own state, which no other code uses
        // meanwhile.
        let thread = unsafe { &mut *thread };
        if thread.draws.is_on() {
            thread.enter_and_keep(AFTER);
        }
    }
}

/// Must be the last thing in the function of the agent that a host calls after an op. Returns how
/// many empty ops the host must announce, so that the duration of an announcement is measured.
#[inline(always)]
pub fn leave(caller: Caller) -> i32 {
    let Some(thread) = recording() else { return 0 };
    // SAFETY: `recording` returns the calling thread's own state, which no other code uses
    // meanwhile.
    let thread = unsafe { &mut *thread };
    // In a run with a budget, durations of brackets are collected only for [`Caller::Instrument`].
    if caller == Caller::Instrument || thread.short_ops || !thread.draws.is_on() {
        thread.kept_bracket_ends();
    }
    if caller == Caller::MeasuredHolder { thread.announcements_due() } else { 0 }
}

/// Begins an op that allocates `storage` bytes. `frame` is the stack address that will be passed to
/// [`end_op`]. It must be higher than the stack frames of all calls that the op makes. Returns true
/// if a user's collector (which measures values for each op) was interrupted; the op must then not
/// be called.
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
    // SAFETY: `begin` has the same contract as this function.
    unsafe { begin(adapter, entry, 0, frame, Ending::ByFrame, |_| [storage, 0, 0]) }
}

/// Begins an op that the host ends even if the op throws. The host identifies the op by `address`.
/// `entered` is the result of [`enter_before`], or 0. `forward(thread)` returns one more than the
/// export id of the op's forward op, or 0.
///
/// # Safety
/// The requirements of [`begin_op`] apply.
#[inline(always)]
pub unsafe fn begin_held_op(
    adapter: &Adapter,
    entry: &'static Entry,
    entered: u64,
    address: usize,
    forward: impl FnOnce(&Thread) -> u64,
) {
    let numbers = |thread: &Thread| [0, 0, forward(thread)];
    // SAFETY: `begin` has the same contract as this function.
    unsafe { begin(adapter, entry, entered, held(address), Ending::Held, numbers) };
}

/// # Safety
/// The requirements of [`begin_op`] apply.
#[inline(always)]
unsafe fn begin(
    adapter: &Adapter,
    entry: &'static Entry,
    entered: u64,
    frame: usize,
    ending: Ending,
    numbers: impl FnOnce(&Thread) -> [u64; 3],
) -> bool {
    let thread = thread(adapter);
    // SAFETY: `thread` returns null or the calling thread's own state.
    let Some(thread) = (unsafe { thread.as_mut() }) else { return false };
    if !entry.is_recorded(thread) {
        return false;
    }
    let numbers = numbers(thread);
    let counted = !entry.bookkeeping || thread.run.bookkeeping;
    if ending == Ending::Held
        && counted
        && !collectors::any()
        && thread.try_open_op(entry.id, frame, slot(entry, numbers), entered)
    {
        return false;
    }
    let started = collectors::start(thread, entry.device, frame, ending);
    let op = NewOp { entry, entered, frame, numbers, counted };
    match ending {
        Ending::Held => begin_held_started(thread, &op, &started),
        _ => begin_started(thread, &op, ending, &started),
    }
}

struct NewOp {
    entry: &'static Entry,
    entered: u64,
    frame: usize,
    numbers: [u64; 3],
    counted: bool,
}

/// Does what [`begin_started`] does, for an op that the host ends even if the op throws. This is a
/// separate function so that the code of the short way ([`Thread::try_open_op`]) is small. Between
/// two ops, the program displaces that code from the processor's caches, so it must be fetched
/// again for each op. Also, collectors run while the caller's frame is on the program's stack, and
/// need much of the stack themselves. So the caller's frame must be small.
#[inline(never)]
fn begin_held_started(thread: &mut Thread, op: &NewOp, started: &Option<Started>) -> bool {
    begin_started(thread, op, Ending::Held, started)
}

/// Begins an op after its collectors, if it has any, have started. Returns true if a collector was
/// interrupted.
#[inline(always)]
fn begin_started(
    thread: &mut Thread,
    op: &NewOp,
    ending: Ending,
    started: &Option<Started>,
) -> bool {
    let NewOp { entry, entered, frame, numbers, counted } = *op;
    let interrupted = started.as_ref().is_some_and(|started| started.interrupted);
    // A user's collector is called for each op, so each op must have a record for the collector's
    // values.
    let is_always = started.is_some() || !entry.is_op();
    let runs = if thread.draws.is_on() { entry.vm.watching.one_in() } else { 1 };
    let seen = if thread.draws.is_on() { steps::weight() } else { 1 };
    let how = match (is_always, runs) {
        (false, 1) if seen > 1 => How::Seen(seen),
        (true, 1) => How::Always,
        (true, runs) => How::AlwaysWatched(runs),
        (false, 1) => How::Due,
        (false, runs) => How::Watched(runs),
    };
    let call = NewCall {
        export: entry.id,
        frame,
        ending,
        may_read: counted,
        is_counted: false,
        how,
        subject: std::ptr::from_ref(entry).cast(),
    };
    let begun = !interrupted && thread.begin(&call);
    if thread.draws.is_on() && !entry.is_op() {
        thread.draws.is_always_announced(entry.id);
    }
    if !begun {
        collectors::give_up(*started);
        return interrupted;
    }
    thread.set_slot(slot(entry, numbers));
    collectors::keep(thread, thread.depth as usize - 1, *started);
    let start = thread.start();
    let counted = counted && thread.counting;
    match ending {
        Ending::Held => thread.first_half_ends(entered, start, counted),
        _ => thread.kept_first_half_ends(start, counted),
    }
    false
}

pub struct Ended {
    /// The index that the call had among the open calls.
    pub at: usize,
    /// Whether the call's counters were read, if the thread has counters.
    pub is_read: bool,
    pub interrupted: bool,
}

/// Ends the op that [`begin_held_op`] began with this address, see [`end_op`].
///
/// # Safety
/// The requirements of [`begin_op`] apply.
#[inline(always)]
pub unsafe fn end_held_op(address: usize) -> Option<Ended> {
    // SAFETY: `end_op` has the same contract as this function.
    unsafe { end_op(held(address)) }
}

/// Ends the op that began at `frame`. Returns `None` if there is no such op, or if it was only
/// counted.
///
/// # Safety
/// The requirements of [`begin_op`] apply.
#[inline(always)]
pub unsafe fn end_op(frame: usize) -> Option<Ended> {
    let thread = recording()?;
    // SAFETY: `recording` returns the calling thread's own state, which no other code uses
    // meanwhile.
    let thread = unsafe { &mut *thread };
    if thread.end_counted_op(frame) {
        return None;
    }
    if thread.short_ops {
        let at = (thread.depth as usize).wrapping_sub(1);
        fetch(thread.ahead(thread.calls.get(at).map_or(0, |open| open.export)));
    }
    let (end, location) = thread.clock.end();
    if thread.try_end_op(frame, end, location, only_forward) {
        return Some(Ended { at: thread.depth as usize, is_read: true, interrupted: false });
    }
    end_op_otherwise(thread, frame, (end, location))
}

/// Returns the value to record for a call whose only number is that of its forward op.
#[inline(always)]
fn only_forward([storage, workspace, forward]: [u64; 3]) -> Option<(u32, u64)> {
    (storage | workspace == 0).then(|| (KEY_FORWARD, forward.wrapping_sub(1)))
}

/// Ends an op that [`Thread::try_end_op`] refused to end. This is a separate function, so that the
/// code of the short way is small.
#[inline(never)]
fn end_op_otherwise(
    thread: &mut Thread,
    frame: usize,
    (end, location): (u64, u32),
) -> Option<Ended> {
    let at = thread.wrapped_at(frame)?;
    let is_read = thread.reads_call(at);
    let Finished { export, start, numbers } = thread.finish(at);
    let call = Call { export, location, start, end, ..Call::default() };
    // Even if no plugin takes ids at present, the op may have got one earlier.
    let has_no_values =
        numbers == [0; 3] && !collectors::any() && collectors::only_id(thread, at).is_none();
    let interrupted = if has_no_values {
        end_without_values(thread, &call, at);
        false
    } else {
        end_with_values(thread, &call, numbers, at)
    };
    thread.second_half_begins(end, is_read && thread.counting);
    Some(Ended { at, is_read, interrupted })
}

/// This function is not inlined, so that calls with values do not need its stack frame.
#[inline(never)]
fn end_without_values(thread: &mut Thread, call: &Call, at: usize) {
    thread.end(at, call, &[]);
}

#[cold]
#[inline(never)]
fn end_with_values(thread: &mut Thread, call: &Call, numbers: [u64; 3], at: usize) -> bool {
    let id = collectors::take_id(thread, at);
    if !collectors::has_any(thread, at) {
        let mut values = Values::<OWN>::new();
        push_numbers(&mut values, numbers);
        if let Some(id) = id {
            values.push(KEY_PLUGIN_ID, id);
        }
        thread.end(at, call, values.as_slice());
        collectors::give_up_id(id.unwrap_or(0));
        return false;
    }
    end_collected(thread, call, numbers, at)
}

/// Ends a call with users' collectors, which may produce many values.
#[inline(never)]
fn end_collected(thread: &mut Thread, call: &Call, numbers: [u64; 3], at: usize) -> bool {
    let Some(room) = scratch::take::<Room>() else {
        collect_nothing(thread, at);
        end_with(thread, call, at, &Values::<0>::new());
        return false;
    };
    let interrupted = collect(thread, room, numbers, at);
    // SAFETY: `scratch::take` returned `room`, and nobody else uses it, and `collect` has written
    // the values.
    unsafe {
        end_with(thread, call, at, &(*room).values);
        scratch::give_back(room);
    }
    interrupted
}

/// Writes the values of a call to `room`. This is a separate function so that its frame is no
/// longer on the stack when the call is recorded.
#[inline(never)]
fn collect(thread: &mut Thread, room: *mut Room, numbers: [u64; 3], at: usize) -> bool {
    // SAFETY: the caller has taken `room`, and nobody else uses it. Its values are written before
    // they are read.
    unsafe {
        (&raw mut (*room).values).write(Values::new());
        push_numbers(&mut (*room).values, numbers);
        collectors::stop(thread, at, &mut *room)
    }
}

#[cold]
#[inline(never)]
fn collect_nothing(thread: &mut Thread, at: usize) {
    collectors::abandon(thread, at);
    losses::lose(Loss::CollectorFailed, 1, libc::ENOMEM);
}

/// This is a separate function, so that its frame is not on the stack while collectors run.
#[inline(never)]
fn end_with<const N: usize>(thread: &mut Thread, call: &Call, at: usize, values: &Values<N>) {
    thread.end(at, call, values.as_slice());
}

/// The most values that one call can have, not counting those from collectors.
pub(super) const OWN: usize = 4;

fn push_numbers<const N: usize>(values: &mut Values<N>, numbers: [u64; 3]) {
    push_bytes(values, numbers);
    if numbers[FORWARD] != 0 {
        values.push(KEY_FORWARD, numbers[FORWARD] - 1);
    }
}

pub(super) fn push_bytes<const N: usize>(values: &mut Values<N>, bytes: [u64; 3]) {
    for (key, index) in [(KEY_STORAGE_BYTES, STORAGE), (KEY_WORKSPACE_BYTES, WORKSPACE)] {
        if bytes[index] != 0 {
            values.push(key, bytes[index]);
        }
    }
}

/// Returns the op that the calling thread executes, or the op to which the thread's present task
/// belongs. Also returns the rule that decides whether the op's regions are recorded. `frame` is a
/// stack address of the caller.
#[inline(always)]
pub fn current_op(thread: &Thread, frame: usize) -> Option<(&'static Entry, How)> {
    let last = thread.innermost_slot(owner());
    let (subject, how) = match (thread.counted_op(last, frame), last) {
        (Some(subject), _) => (subject, How::Never),
        (None, Some(last)) => (thread.calls[last % DEEPEST].slot.subject, thread.like_call(last)),
        (None, None) => return None,
    };
    // SAFETY: the subject comes from a counted op, or from a slot with the `owner` of this file.
    // Both contain null or an entry, which is never freed.
    let entry = unsafe { subject.cast::<Entry>().as_ref() };
    entry.filter(|entry| entry.is_op()).map(|entry| (entry, how))
}

/// Returns the op of the innermost open call, if this call is an op.
#[inline(always)]
pub fn innermost_op(thread: &Thread) -> Option<&'static Entry> {
    let call = thread.calls.get((thread.depth as usize).wrapping_sub(1))?;
    let is_ours = call.state.has(State::SLOT) && call.slot.owner == owner();
    // SAFETY: a slot with the `owner` of this file contains null or an entry, which is never freed.
    let entry = is_ours.then(|| unsafe { call.slot.subject.cast::<Entry>().as_ref() }).flatten();
    entry.filter(|entry| entry.is_op())
}

/// Adds `bytes` to the workspace of the calling thread's innermost call, if this call is recorded.
pub fn add_workspace(bytes: u64) {
    let Some(thread) = recording().filter(|_| epoch::wanted()) else { return };
    // SAFETY: `recording` returns the calling thread's own state, which no other code uses
    // meanwhile.
    let thread = unsafe { &mut *thread };
    let last = thread.innermost_slot(owner());
    if thread.counted_op(last, stack_address()).is_some() {
        return;
    }
    if let Some(last) = last {
        let total = &mut thread.calls[last % DEEPEST].slot.numbers[WORKSPACE];
        *total = total.saturating_add(bytes);
    }
}

#[inline(always)]
pub(super) fn slot(entry: &'static Entry, numbers: [u64; 3]) -> Slot {
    Slot { owner: owner(), subject: std::ptr::from_ref(entry).cast(), numbers }
}

/// Returns the index of the innermost recorded call (op, run, region or task) that the calling
/// thread executes.
pub fn innermost(thread: &Thread) -> Option<usize> {
    thread.innermost_slot(owner())
}

/// Returns the address that distinguishes slots of this file from other adapters' slots. All
/// adapters that use this file use the same address, so that a region finds its op whichever host
/// called the op.
#[inline(always)]
pub(super) fn owner() -> *const c_void {
    static OWNER: u8 = 0;
    (&raw const OWNER).cast()
}
