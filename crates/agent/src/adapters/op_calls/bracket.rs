//! The brackets around the work of a model. An op lies between two calls that the host makes to us; a
//! run, region or task lies inside one call of ours.

use std::ffi::c_void;

use model::Loss;
use record::Call;
use record::page::{
    KEY_CORRELATION, KEY_FAILED, KEY_FAILED_OP, KEY_FORWARD, KEY_PLUGIN_ID, KEY_STORAGE_BYTES,
    KEY_WORKSPACE_BYTES,
};

use crate::adapters::op_calls::op::Entry;
use crate::os::scratch;
use crate::process::losses;
use crate::recorder::adapter::Adapter;
use crate::recorder::attach;
use crate::recorder::bracket::{Newcomer, fetch, held, stack_address};
use crate::recorder::collectors::{self, Room};
use crate::recorder::draw::ops::NewOp;
pub use crate::recorder::draw::state::How;
use crate::recorder::thread::{self, AFTER, BEFORE, Slot, Started, Thread};
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
pub(super) fn recording() -> Option<*mut Thread> {
    let thread = thread::current();
    // SAFETY: null, or this thread's own state.
    unsafe {
        let usable = !thread.is_null() && (*thread).is_attached() && !(*thread).busy.is_set();
        usable.then_some(thread)
    }
}

/// The first thing that a host's call does before an op, so that its time can be taken.
#[inline(always)]
pub fn enter_before() {
    if let Some(thread) = recording() {
        // SAFETY: this is the thread's own state.
        unsafe { (*thread).enter_apart(BEFORE) };
    }
}

/// Does the same for a host that calls [`begin_held_op`], which needs the result. The host is measured as
/// well ([`left_held`]). In a run with a budget, it tells what an op costs that is only counted.
#[inline(always)]
pub fn enter_held() -> u64 {
    let Some(thread) = recording() else { return 0 };
    // SAFETY: this is the thread's own state.
    unsafe { (*thread).announcing.begins() };
    // SAFETY: as above.
    enter_of(unsafe { &mut *thread })
}

/// Does the same for a host that is not measured and calls [`left_announced`].
#[inline(always)]
pub fn enter_announced() -> u64 {
    // SAFETY: this is the thread's own state.
    recording().map_or(0, |thread| enter_of(unsafe { &mut *thread }))
}

#[inline(always)]
fn enter_of(thread: &mut Thread) -> u64 {
    if !thread.usual && thread.draws.is_on() {
        thread.enter_apart(BEFORE);
        return 0;
    }
    thread.enter(BEFORE)
}

/// The last thing that the call of such a host does after an op. Returns how many times the host shall
/// announce an op that does nothing, to measure what this takes.
#[inline(always)]
pub fn left_held() -> i32 {
    let Some(thread) = recording() else { return 0 };
    // SAFETY: this is the thread's own state.
    let thread = unsafe { &mut *thread };
    left_of(thread);
    thread.announcements_due()
}

/// The last thing that the call of a host does after an op that began with [`enter_announced`].
#[inline(always)]
pub fn left_announced() {
    if let Some(thread) = recording() {
        // SAFETY: this is the thread's own state.
        left_of(unsafe { &mut *thread });
    }
}

#[inline(always)]
fn left_of(thread: &mut Thread) {
    if thread.usual || !thread.draws.is_on() {
        // In a run with a budget, brackets of such hosts have no times.
        thread.left_apart();
    }
}

/// The first thing that a host's call does after an op. In a run with a budget, it tells what an op costs
/// that is only counted. In other runs, the second half begins with the end of the op, so that nothing
/// differs between calls before the counters are read.
#[inline(always)]
pub fn enter_after() {
    if let Some(thread) = recording() {
        // SAFETY: this is the thread's own state.
        let thread = unsafe { &mut *thread };
        if thread.draws.is_on() {
            thread.enter_apart(AFTER);
        }
    }
}

/// The last thing that a host's call does after an op.
#[inline(always)]
pub fn left() {
    if let Some(thread) = recording() {
        // SAFETY: this is the thread's own state.
        unsafe { (*thread).left_apart() };
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
    unsafe { begin(adapter, entry, 0, frame, Newcomer::Bracketed, |_| [storage, 0, 0]) }
}

/// Begins an op that the host ends even if it throws, and that it identifies by `address` until then.
/// `entered` is the result of [`enter_held`] or [`enter_announced`], or 0. `forward(thread)` is one more than the export of the op's forward op, or 0 if there is none.
///
/// # Safety
/// Same as for [`begin_op`].
#[inline(always)]
pub unsafe fn begin_held_op(
    adapter: &Adapter,
    entry: &'static Entry,
    entered: u64,
    address: usize,
    forward: impl FnOnce(&Thread) -> u64,
) {
    let numbers = |thread: &Thread| [0, 0, forward(thread)];
    // SAFETY: the caller guarantees this.
    unsafe { begin(adapter, entry, entered, held(address), Newcomer::Held, numbers) };
}

/// # Safety
/// Same as for [`begin_op`].
#[inline(always)]
unsafe fn begin(
    adapter: &Adapter,
    entry: &'static Entry,
    entered: u64,
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
        && thread.begin_usual(entry.id, frame, slot(entry, numbers), entered)
    {
        return false;
    }
    let op = Begun { entry, entered, frame, newcomer, numbers, counted };
    match newcomer {
        Newcomer::Held => begin_held_otherwise(thread, &op),
        _ => begin_otherwise(thread, &op),
    }
}

/// An op that begins, for [`begin_otherwise`].
struct Begun {
    entry: &'static Entry,
    entered: u64,
    frame: usize,
    newcomer: Newcomer,
    numbers: [u64; 3],
    counted: bool,
}

/// Does what [`begin_otherwise`] does. What follows the collectors is a function of its own, so that the code of
/// the usual case is short: the program displaces it from the processor's caches between two ops. And collectors
/// need much of the stack; below the same frame, both were more than an entry may use.
#[inline(always)]
fn begin_held_otherwise(thread: &mut Thread, op: &Begun) -> bool {
    let started = collectors::start(thread, op.entry.device, op.frame, op.newcomer);
    begin_held_started(thread, op, &started)
}

#[inline(never)]
fn begin_held_started(thread: &mut Thread, op: &Begun, started: &Option<Started>) -> bool {
    begin_started(thread, op, started)
}

/// Begins an op in any case. Returns true if a collector was interrupted.
#[inline(always)]
fn begin_otherwise(thread: &mut Thread, op: &Begun) -> bool {
    let started = collectors::start(thread, op.entry.device, op.frame, op.newcomer);
    begin_started(thread, op, &started)
}

/// Begins an op whose collectors have started.
#[inline(always)]
fn begin_started(thread: &mut Thread, op: &Begun, started: &Option<Started>) -> bool {
    let Begun { entry, entered, frame, newcomer, numbers, counted } = *op;
    let interrupted = started.as_ref().is_some_and(|started| started.interrupted);
    // A collector is called for each op, so each op has a record that can hold its values.
    let is_always = started.is_some() || !entry.is_op();
    let runs = if thread.draws.is_on() { entry.vm.watching.one_in() } else { 1 };
    let how = match (is_always, runs) {
        (true, 1) => How::Always,
        (true, runs) => How::AlwaysWatched(runs),
        (false, 1) => How::Due,
        (false, runs) => How::Watched(runs),
    };
    let subject = std::ptr::from_ref(entry).cast();
    let op = NewOp { export: entry.id, frame, newcomer, may_read: counted, how, subject };
    if interrupted || !thread.begin_op(&op) {
        collectors::give_up(*started);
        return interrupted;
    }
    let at = thread.depth as usize - 1;
    thread.set_slot(at, slot(entry, numbers));
    collectors::keep(thread, at, *started);
    let start = thread.begin_wrapped(entry.id);
    let counted = counted && thread.counting;
    match newcomer {
        Newcomer::Held => thread.begun_since(entered, start, counted),
        _ => thread.begun(start, counted),
    }
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
    unsafe { end_begun(frame) }.is_some_and(|ended| ended.interrupted)
}

/// Ends the op that [`begin_held_op`] began with this address, and returns the index that it had among
/// the calls in progress. Returns `None` if there is none, or if its counters were not drawn.
///
/// # Safety
/// Same as for [`begin_op`].
#[inline(always)]
pub unsafe fn end_held_op(address: usize) -> Option<usize> {
    // SAFETY: the caller guarantees this.
    unsafe { end_begun(held(address)) }.filter(|ended| ended.is_read).map(|ended| ended.at)
}

/// A recorded op that has just ended.
struct Ended {
    /// The index that it had among the calls in progress.
    at: usize,
    /// Whether its counters were read.
    is_read: bool,
    /// Whether a collector was interrupted.
    interrupted: bool,
}

/// # Safety
/// Same as for [`begin_op`].
#[inline(always)]
unsafe fn end_begun(frame: usize) -> Option<Ended> {
    let thread = recording()?;
    // SAFETY: this is the thread's own state.
    let thread = unsafe { &mut *thread };
    if thread.end_counted_op(frame) {
        return None;
    }
    if thread.usual {
        let at = (thread.depth as usize).wrapping_sub(1);
        fetch(thread.ahead(thread.apart.get(at).map_or(0, |begun| begun.export)));
    }
    let (end, location) = thread.clock.end();
    if thread.end_usual(frame, end, location, only_forward) {
        return Some(Ended { at: thread.depth as usize, is_read: true, interrupted: false });
    }
    end_otherwise(thread, frame, (end, location))
}

/// The value of a call that has no other numbers than its forward op.
#[inline(always)]
fn only_forward([storage, workspace, forward]: [u64; 3]) -> Option<(u32, u64)> {
    (storage | workspace == 0).then(|| (KEY_FORWARD, forward.wrapping_sub(1)))
}

/// Ends an op in any case. It is a function of its own, so that the code of the usual case is short.
#[inline(never)]
fn end_otherwise(thread: &mut Thread, frame: usize, (end, location): (u64, u32)) -> Option<Ended> {
    let at = thread.wrapped_at(frame)?;
    let is_read = thread.reads_call(at);
    let counted = thread.is_counted_at(at);
    let begun = thread.end_wrapped(at);
    let call = Call { export: begun.export, location, start: begun.start, end, ..Call::default() };
    let numbers = thread.take_slot(at).numbers;
    // An op may have an id although plugins take none any more.
    if numbers == [0; 3] && !collectors::any() && collectors::only_id(thread, at).is_none() {
        end_without_values(thread, &call, frame);
        thread.has_ended(end, counted);
        return Some(Ended { at, is_read, interrupted: false });
    }
    let interrupted = end_with_values(thread, &call, frame, numbers, at);
    thread.has_ended(end, counted);
    Some(Ended { at, is_read, interrupted })
}

/// A function of its own, so that the stack that it needs is not needed where there are values, too.
#[inline(never)]
fn end_without_values(thread: &mut Thread, call: &Call, frame: usize) {
    thread.end(call, frame, &[]);
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
    let id = collectors::take_id(thread, at);
    if thread.has_collected >> at & 1 == 0 {
        let mut values = Values::<OWN>::new();
        push_numbers(&mut values, numbers);
        if let Some(id) = id {
            values.push(KEY_PLUGIN_ID, id);
        }
        thread.end(call, frame, values.as_slice());
        collectors::give_up_id(id.unwrap_or(0));
        return false;
    }
    end_collected(thread, call, frame, numbers, at)
}

/// Ends a call that has collectors, which may give many values.
#[inline(never)]
fn end_collected(
    thread: &mut Thread,
    call: &Call,
    frame: usize,
    numbers: [u64; 3],
    at: usize,
) -> bool {
    let Some(room) = scratch::take::<Room>() else {
        collect_nothing(thread, at);
        end_with(thread, call, frame, &Values::<0>::new());
        return false;
    };
    let interrupted = collect(thread, room, numbers, at);
    // SAFETY: taken above; `collect` has written the values.
    unsafe {
        end_with(thread, call, frame, &(*room).values);
        scratch::give_back(room);
    }
    interrupted
}

/// Writes the values of a call to `room`. The collectors of calls that a collector makes have their own.
/// Its frame is not on the stack while the call is recorded.
#[inline(never)]
fn collect(thread: &mut Thread, room: *mut Room, numbers: [u64; 3], at: usize) -> bool {
    // SAFETY: the caller's memory, which nobody else uses.
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

/// Its frame is not on the stack while collectors run.
#[inline(never)]
fn end_with<const N: usize>(thread: &mut Thread, call: &Call, frame: usize, values: &Values<N>) {
    thread.end(call, frame, values.as_slice());
}

/// Values of a call that are not of collectors, at most: those of [`push_numbers`], and an id for plugins.
const OWN: usize = 4;

fn push_numbers<const N: usize>(values: &mut Values<N>, numbers: [u64; 3]) {
    push_bytes(values, numbers);
    if numbers[FORWARD] != 0 {
        values.push(KEY_FORWARD, numbers[FORWARD] - 1);
    }
}

fn push_bytes<const N: usize>(values: &mut Values<N>, bytes: [u64; 3]) {
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
    /// How it is drawn in a run with a budget.
    pub how: How,
}

/// Begins a bracket that will end in the same function, at `frame`. Returns `None` if it cannot be
/// recorded, or if it is only counted.
#[inline(always)]
pub fn begin_inside(thread: *mut Thread, what: &What, frame: usize) -> Option<Bracket> {
    // SAFETY: this is the calling thread's own state, and it is attached.
    let state = unsafe { thread.as_mut() }?;
    if !state.begin_inside(what.export, frame, what.counted, what.how) {
        return None;
    }
    state.set_slot(state.depth as usize - 1, slot(what.entry, [0; 3]));
    Some(Bracket { thread, frame, start: state.run.clock.begin() })
}

/// Begins the bracket of a region. If the region is only counted, there is no bracket, and `what.how` says
/// that its tasks are only counted as well. Returns `None` if nothing is done with either.
pub fn begin_region(thread: *mut Thread, what: &mut What, frame: usize) -> Option<Option<Bracket>> {
    let bracket = begin_inside(thread, what, frame);
    if bracket.is_none() {
        // SAFETY: this is the calling thread's own state.
        unsafe { thread.as_ref() }.filter(|thread| thread.draws.is_on())?;
        what.how = How::Never;
    }
    Some(bracket)
}

/// Ends the bracket. Returns whether its counters were read.
pub fn end(bracket: &Bracket, what: &What, failed: bool) -> bool {
    // SAFETY: this is the calling thread's own state, whose memory stays mapped as long as the
    // thread lives.
    let Some(thread) = (unsafe { bracket.thread.as_mut() }) else { return false };
    if !thread.is_attached() || thread.busy.is_set() {
        return false;
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
        return false;
    };
    let is_read = thread.reads_call(at);
    let mut values = Values::<OWN>::new();
    if let Some(number) = what.correlation {
        values.push(KEY_CORRELATION, number);
    }
    push_bytes(&mut values, thread.take_slot(at).numbers);
    if failed {
        values.push(KEY_FAILED, 1);
        if let Some(export) = failed_op(thread, at) {
            values.push(KEY_FAILED_OP, export.into());
        }
    }
    thread.end(&call, bracket.frame, values.as_slice());
    is_read
}

/// Returns the export of the innermost op inside call `at` that has not ended.
fn failed_op(thread: &Thread, at: usize) -> Option<u32> {
    let recorded = thread.innermost_wrapped(at);
    let counted = thread.counted_op(Some(recorded.unwrap_or(at)), 0);
    // SAFETY: the subject of an op is an entry, which is never freed.
    let counted = counted.and_then(|subject| unsafe { subject.cast::<Entry>().as_ref() });
    let export = || recorded.and_then(|at| thread.apart.get(at)).map(|begun| begun.export);
    counted.map(|entry| entry.id).or_else(export)
}

/// Returns the op in which the calling thread is, or for which it works, and how its regions are
/// drawn. `frame` is a stack address of the caller.
#[inline(always)]
pub fn current_op(thread: &Thread, frame: usize) -> Option<(&'static Entry, How)> {
    let last = thread.innermost_slot(owner());
    let (subject, how) = match (thread.counted_op(last, frame), last) {
        (Some(subject), _) => (subject, How::Never),
        (None, Some(last)) => {
            // SAFETY: `last` is the index of a call.
            let slot = unsafe { thread.slots.get_unchecked(last) };
            (slot.subject, thread.like_call(last))
        }
        (None, None) => return None,
    };
    // SAFETY: the subject of a slot of ours is null or an entry, which is never freed.
    let entry = unsafe { subject.cast::<Entry>().as_ref() };
    entry.filter(|entry| entry.is_op()).map(|entry| (entry, how))
}

/// Adds workspace to the innermost call of the calling thread.
pub fn add_workspace(bytes: u64) {
    let Some(thread) = recording().filter(|_| epoch::wanted()) else { return };
    // SAFETY: this is the thread's own state.
    let thread = unsafe { &mut *thread };
    let last = thread.innermost_slot(owner());
    if thread.counted_op(last, stack_address()).is_some() {
        return;
    }
    if let Some(last) = last {
        let total = &mut thread.slots[last].numbers[WORKSPACE];
        *total = total.saturating_add(bytes);
    }
}

/// Returns the slot of a call: its entry, and its numbers.
#[inline(always)]
pub(super) fn slot(entry: &'static Entry, numbers: [u64; 3]) -> Slot {
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
