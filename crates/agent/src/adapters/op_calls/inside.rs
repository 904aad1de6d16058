//! The brackets of a model's run, of a parallel region, and of a region's task. Each begins and ends
//! inside of one function of the agent. (A bracket is the pair of readings of counters and clock
//! around a call.)
//!
//! ```text
//!  run               begin_inside ───────────────────────────── │ run │ ── end
//!  region or task    try_begin_task (short way) ─────────────── │ task │ ─ end_task
//!                      └─ else begin_region or begin_inside
//! ```
//!
//! [`crate::recorder::bracket`] describes the states of a call.

use std::ptr::NonNull;

use record::Call;
use record::page::{KEY_CORRELATION, KEY_FAILED, KEY_FAILED_OP, Task};

use crate::adapters::op_calls::bracket::{OWN, push_bytes, slot};
use crate::adapters::op_calls::op::Entry;
use crate::recorder::bracket::{Ending, NewCall};
use crate::recorder::budget::sampling::How;
use crate::recorder::short::fetch;
use crate::recorder::thread::Thread;
use crate::recorder::values::Values;

/// An open bracket that begins and ends in the same function of the agent.
pub struct Bracket {
    /// Never null, so that an `Option<Bracket>` is not larger than a `Bracket`.
    thread: NonNull<Thread>,
    start: u64,
    frame: usize,
    /// What [`enter_inside`] returned.
    entered: u64,
}

impl Bracket {
    /// Returns the state of the thread that began the bracket.
    #[inline(always)]
    pub fn thread(&self) -> *const Thread {
        self.thread.as_ptr()
    }
}

pub struct What {
    pub export: u32,
    pub entry: &'static Entry,
    /// For a task: its number, and how many tasks its region has.
    pub task: Option<(u32, u32)>,
    /// A number that a region and its tasks share, so that readers can connect them.
    pub correlation: Option<u64>,
    /// Whether counters are read. This is not necessary if the counts of the call around this one
    /// include this call.
    pub counted: bool,
    pub how: How,
}

/// The result of [`enter_inside`] if the bracket is not timed.
pub const NOT_TIMED: u64 = u64::MAX;

/// Begins to time the bracket of a region or task, in a run without a budget. This must be the
/// agent's first work for the region or task. The result is for [`begin_inside`] or
/// [`lose_inside`].
#[inline(always)]
pub fn enter_inside(thread: *mut Thread) -> u64 {
    // SAFETY: `thread` is null or the calling thread's own state.
    let Some(thread) = (unsafe { thread.as_mut() }) else { return NOT_TIMED };
    let has_budget = !thread.short_ops && thread.draws.is_on();
    if has_budget || thread.busy.is_set() { NOT_TIMED } else { thread.enter_inside() }
}

/// Gives up the timing that [`enter_inside`] began, because the bracket cannot begin or cannot end.
#[inline(always)]
pub fn lose_inside(thread: &mut Thread, entered: u64) {
    if entered != NOT_TIMED {
        thread.lose_inside(entered);
    }
}

/// Begins a bracket that ends in the same function. `frame` is an address in that function's stack
/// frame. `entered` is the result of [`enter_inside`], or [`NOT_TIMED`]. Returns `None` if the call
/// cannot be recorded or is only counted.
#[inline(always)]
pub fn begin_inside(
    thread: *mut Thread,
    what: &What,
    frame: usize,
    entered: u64,
) -> Option<Bracket> {
    // SAFETY: `thread` is null or the calling thread's own state, which the caller has attached.
    let state = unsafe { thread.as_mut() }?;
    let call = NewCall {
        export: what.export,
        frame,
        ending: Ending::Here,
        may_read: what.counted,
        is_counted: false,
        how: what.how,
        subject: std::ptr::null(),
    };
    if !state.begin(&call) {
        lose_inside(state, entered);
        return None;
    }
    state.set_slot(slot(what.entry, [0; 3]));
    let start = state.run.clock.begin();
    Some(Bracket { thread: state.into(), frame, start, entered })
}

/// Does what [`begin_inside`] does, in the usual case of a region or task, with less code
/// ([`crate::recorder::short`]). In other cases, returns `None` and has changed nothing.
#[inline(always)]
pub fn try_begin_task(
    thread: *mut Thread,
    (export, entry): (u32, &'static Entry),
    counted: bool,
    frame: usize,
    entered: u64,
) -> Option<Bracket> {
    // SAFETY: `thread` is null or the calling thread's own state, which the caller has attached.
    let state = unsafe { thread.as_mut() }?;
    if !state.try_open_task(export, frame, slot(entry, [0; 3]), counted) {
        return None;
    }
    let start = state.clock.begin();
    Some(Bracket { thread: state.into(), frame, start, entered })
}

/// Begins the bracket of a region. If the region is only counted, the result contains no bracket,
/// and `what.how` is set so that its tasks are only counted as well. Returns `None` if neither the
/// region nor its tasks are to be recorded or counted.
pub fn begin_region(
    thread: *mut Thread,
    what: &mut What,
    frame: usize,
    entered: u64,
) -> Option<Option<Bracket>> {
    let bracket = begin_inside(thread, what, frame, entered);
    if bracket.is_none() {
        // SAFETY: `thread` is null or the calling thread's own state.
        unsafe { thread.as_ref() }.filter(|thread| thread.draws.is_on())?;
        what.how = How::Never;
    }
    Some(bracket)
}

/// Begins a task that is only counted. Regions inside of the task belong to `entry`'s op.
pub fn begin_counted_task(thread: &mut Thread, entry: &'static Entry, frame: usize) {
    thread.begin_counted_task(frame, std::ptr::from_ref(entry).cast());
}

/// Ends a bracket. `failed` says whether the call returned an error. Returns whether counters were
/// read for the call.
pub fn end(bracket: &Bracket, what: &What, failed: bool) -> bool {
    let Some(thread) = recording_again(bracket) else { return false };
    let (end, location) = thread.run.clock.end();
    let mut call =
        Call { export: what.export, location, start: bracket.start, end, ..Call::default() };
    if let Some((number, count)) = what.task {
        (call.count, call.workgroup) = ([count, 1, 1], [number, 0, 0]);
    }
    end_at(thread, bracket, &call, what.correlation, failed)
}

/// Ends the bracket of a region or task. Sets its start and end in `task`. `counted` says whether
/// its counters are read. Returns whether they were.
#[inline(always)]
pub fn end_task(bracket: &Bracket, mut task: Task, counted: bool) -> bool {
    let Some(thread) = recording_again(bracket) else { return false };
    if thread.short_ops {
        fetch(thread.ahead(task.export));
    }
    let (end, location) = thread.clock.end();
    (task.start, task.end) = (bracket.start, end);
    if !thread.try_end_task(bracket.frame, &task, location) {
        let call = task.to_call(location, 0);
        return end_at(thread, bracket, &call, Some(task.correlation), false);
    }
    let is_read = counted && thread.counting;
    if bracket.entered != NOT_TIMED {
        thread.bracket_ends(bracket.entered, (bracket.start, end), is_read);
    }
    is_read
}

/// Returns the state of the calling thread, which began the bracket, if it still records.
#[inline(always)]
fn recording_again(bracket: &Bracket) -> Option<&'static mut Thread> {
    // SAFETY: `bracket.thread` is the state of the thread that began the bracket, which is the
    // calling thread. The state's memory stays mapped as long as the thread lives.
    let thread = unsafe { &mut *bracket.thread.as_ptr() };
    (thread.is_attached() && !thread.busy.is_set()).then_some(thread)
}

/// Ends a bracket whose call has ended, as `call` says.
#[inline(never)]
fn end_at(
    thread: &mut Thread,
    bracket: &Bracket,
    call: &Call,
    correlation: Option<u64>,
    failed: bool,
) -> bool {
    let Some(at) = thread.call_at(bracket.frame) else {
        lose_inside(thread, bracket.entered);
        return false;
    };
    let mut values = Values::<OWN>::new();
    if let Some(number) = correlation {
        values.push(KEY_CORRELATION, number);
    }
    push_bytes(&mut values, thread.finish(at).numbers);
    if failed {
        values.push(KEY_FAILED, 1);
        if let Some(export) = failed_op(thread, at) {
            values.push(KEY_FAILED_OP, export.into());
        }
    }
    let is_read = thread.end(at, call, values.as_slice());
    if bracket.entered != NOT_TIMED {
        thread.bracket_ends(bracket.entered, (call.start, call.end), is_read);
    }
    is_read
}

/// Returns the export id of the op that failed: the innermost open op that began inside of the call
/// with the index `at`.
fn failed_op(thread: &Thread, at: usize) -> Option<u32> {
    let recorded = thread.wrapped_inside(at);
    let counted = thread.counted_op(Some(recorded.unwrap_or(at)), 0);
    // SAFETY: the subject of an op is null or an entry, which is never freed.
    let counted = counted.and_then(|subject| unsafe { subject.cast::<Entry>().as_ref() });
    let export = || recorded.and_then(|at| thread.calls.get(at)).map(|open| open.export);
    counted.map(|entry| entry.id).or_else(export)
}
