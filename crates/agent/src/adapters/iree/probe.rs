//! The bracket (the pair of readings of counters and clock) around a call of a dispatch function:
//! the hot path of the IREE adapter. [`crate::recorder::bracket`] says what this code must not do.

use std::ffi::c_int;

use abi::iree::{Dispatch, DispatchState, Environment, WorkgroupState};
use record::Call;
use record::page::KEY_PLUGIN_ID;

use crate::adapters::iree::ADAPTER;
use crate::process::panics::guarded;
use crate::recorder::adapter::Took;
use crate::recorder::attach;
use crate::recorder::bracket::{Ending, NewCall, stack_address};
use crate::recorder::budget::sampling::How;
use crate::recorder::collectors;
use crate::recorder::rehearsal;
use crate::recorder::short::{SHORT_CLOCK, fetch};
use crate::recorder::thread::{self, BEFORE, Thread};

#[cold]
#[inline(never)]
fn attach() -> *mut Thread {
    attach::attach(&ADAPTER)
}

/// Calls `original` inside a bracket. In a run with a budget (a limit for the cost of recording), a
/// call that is not chosen for recording is only counted, without a bracket.
///
/// # Safety
/// The arguments must be those that the runtime passes to a dispatch function, and `original` must
/// be that function. An exception or `longjmp` in `original` may unwind through this function; the
/// recorder notices that at the thread's next call.
#[inline(always)]
pub unsafe fn call(
    export: u32,
    original: Dispatch,
    environment: *const Environment,
    dispatch: *const DispatchState,
    workgroup: *const WorkgroupState,
) -> c_int {
    let thread = thread::current();
    let frame = stack_address();
    let mut entered = 0;
    // SAFETY: `thread` is null or the calling thread's own state, which is unmapped only at thread
    // exit, after `thread::current` was made to return null.
    let is_plain = unsafe {
        !thread.is_null() && (*thread).is_attached() && (*thread).short_calls && {
            entered = (*thread).enter(BEFORE);
            (*thread).try_open_timed(export, frame)
        }
    };
    if !is_plain {
        // SAFETY: the arguments meet this function's contract, which `call_otherwise` shares.
        return unsafe {
            call_otherwise(export, original, environment, dispatch, workgroup, false)
        };
    }
    touch_stack();
    // SAFETY: `is_plain` is true only if `thread` is the calling thread's attached state.
    let ahead = unsafe { (*thread).ahead(export) };
    let start = SHORT_CLOCK.begin();
    // SAFETY: by contract, `original` is the function that the runtime wanted to call, with these
    // arguments.
    let result = unsafe { original(environment, dispatch, workgroup) };
    fetch(ahead);
    let (end, location) = SHORT_CLOCK.end();
    // SAFETY: `thread` is the calling thread's own state, which stays mapped. If `original` forked,
    // the state's `epoch` is 0 in the child, so the thread is not attached there and nothing is
    // done. `dispatch` and `workgroup` are the pointers that the runtime passed.
    unsafe {
        if (*thread).is_attached() {
            let call = described(export, dispatch, workgroup, (start, end), location);
            if !(*thread).try_end_timed(&call, frame) {
                end_otherwise(thread, frame, export, dispatch, workgroup, (start, end), location);
            }
            (*thread).bracket_ends(entered, (start, end), false);
        }
    }
    result
}

/// Returns the description of this call, which computes one workgroup. `dispatch` and `workgroup`
/// are still valid when the call has ended, because the runtime owns them.
///
/// # Safety
/// `dispatch` and `workgroup` must be the pointers that the runtime passed.
#[inline(always)]
unsafe fn described(
    export: u32,
    dispatch: *const DispatchState,
    workgroup: *const WorkgroupState,
    (start, end): (u64, u64),
    location: u32,
) -> Call {
    // SAFETY: by contract, `dispatch` and `workgroup` are the pointers that the runtime passed.
    unsafe {
        Call {
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
        }
    }
}

/// Does what [`call`] does, in all cases: `call` itself handles only the most frequent one. In a
/// run with a budget, `is_counted` says whether the call was already counted and must be recorded.
///
/// # Safety
/// The requirements of [`call`] apply.
#[inline(never)]
pub unsafe fn call_otherwise(
    export: u32,
    original: Dispatch,
    environment: *const Environment,
    dispatch: *const DispatchState,
    workgroup: *const WorkgroupState,
    is_counted: bool,
) -> c_int {
    let mut thread = thread::current();
    // SAFETY: `thread` is null or the calling thread's own state, which is unmapped only at thread
    // exit, after `thread::current` was made to return null.
    if thread.is_null() || !unsafe { (*thread).is_attached() } {
        thread = attach();
        if thread.is_null() {
            // SAFETY: by contract, `original` is the function that the runtime wanted to call, with
            // these arguments.
            return unsafe { original(environment, dispatch, workgroup) };
        }
    }
    // SAFETY: `thread` is the calling thread's state, and it is attached: it was already, or
    // `attach` has attached it.
    let entered = unsafe { (*thread).enter(BEFORE) };
    touch_stack();
    let frame = stack_address();
    // SAFETY: `thread` is the calling thread's state.
    if !unsafe { begin_guarded(thread, export, frame, is_counted) } {
        // SAFETY: by contract, `original` is the function that the runtime wanted to call, with
        // these arguments.
        return unsafe { original(environment, dispatch, workgroup) };
    }
    // SAFETY: `thread` is the calling thread's attached state. Its `run` (the settings of the
    // recording) is never freed. The clock is copied.
    let clock = unsafe { (*thread).run.clock };
    let start = clock.begin();
    // SAFETY: by contract, `original` is the function that the runtime wanted to call, with these
    // arguments.
    let result = unsafe { original(environment, dispatch, workgroup) };
    let (end, location) = clock.end();
    // SAFETY: `thread` is the calling thread's own state, which stays mapped. If `original` forked,
    // the state's `epoch` is 0 in the child, so the thread is not attached there and nothing is
    // done. `dispatch` and `workgroup` are the pointers that the runtime passed.
    unsafe {
        if (*thread).is_attached() {
            let call = described(export, dispatch, workgroup, (start, end), location);
            let counted = end_guarded(thread, &call, frame);
            (*thread).bracket_ends(entered, (start, end), counted);
        }
    }
    result
}

/// # Safety
/// The requirements of `begin_guarded` and `described` apply.
#[cold]
#[inline(never)]
unsafe fn end_otherwise(
    thread: *mut Thread,
    frame: usize,
    export: u32,
    dispatch: *const DispatchState,
    workgroup: *const WorkgroupState,
    times: (u64, u64),
    location: u32,
) {
    // SAFETY: by contract, `thread` is the calling thread's state, and `dispatch` and `workgroup`
    // are the pointers that the runtime passed.
    unsafe {
        let call = described(export, dispatch, workgroup, times, location);
        end_guarded(thread, &call, frame);
    }
}

// `begin_guarded` and `end_guarded` are separate functions so that `call` and `call_otherwise` have
// no landing pads. With landing pads, the two would have a personality routine. They call the
// original, so an exception of the original passes through their frames, and the program's unwinder
// would then call this personality routine. But the routine belongs to the unwinder that is linked
// into this library. A version with landing pads was tried, and the process crashed.

/// # Safety
/// `thread` must be the calling thread's state.
#[inline(never)]
unsafe fn begin_guarded(thread: *mut Thread, export: u32, frame: usize, is_counted: bool) -> bool {
    let call = NewCall { is_counted, ..new_call(export, frame, Ending::Here) };
    // SAFETY: by contract, `thread` is the calling thread's state, which no other thread uses.
    guarded(|| begin_with_id(unsafe { &mut *thread }, &call)) == Some(true)
}

#[inline(always)]
fn new_call(export: u32, frame: usize, ending: Ending) -> NewCall {
    let (may_read, is_counted, how) = (true, false, How::Due);
    let subject = std::ptr::null();
    NewCall { export, frame, ending, may_read, is_counted, how, subject }
}

/// Begins a call, and gives it an id for profiler plugins if a plugin takes ids. Returns whether
/// the call was begun.
#[inline(always)]
fn begin_with_id(thread: &mut Thread, call: &NewCall) -> bool {
    let id = collectors::give_id(thread, call.frame, call.ending);
    let begun = thread.begin(call);
    if begun {
        collectors::keep_id(thread, thread.depth as usize - 1, id);
    } else {
        collectors::give_up_id(id);
    }
    begun
}

/// # Safety
/// The requirements of `begin_guarded` apply.
#[inline(never)]
unsafe fn end_guarded(thread: *mut Thread, call: &Call, frame: usize) -> bool {
    let ended = guarded(|| {
        // SAFETY: by contract, `thread` is the calling thread's state, which no other thread uses.
        let thread = unsafe { &mut *thread };
        thread.call_at(frame).is_some_and(|at| end_with_id(thread, at, call))
    });
    ended == Some(true)
}

/// Ends the open call with the index `at`. The call may have an id for plugins. Returns whether its
/// counters were read.
#[inline(always)]
fn end_with_id(thread: &mut Thread, at: usize, call: &Call) -> bool {
    match collectors::take_id(thread, at) {
        Some(id) => {
            let is_read = thread.end(at, call, &[(KEY_PLUGIN_ID, id)]);
            collectors::give_up_id(id);
            is_read
        }
        None => thread.end(at, call, &[]),
    }
}

/// Writes to the place on the stack where the return address of the original function will be, or
/// close to it. If the page at this place is not present yet, or was shared by a fork, the page
/// fault happens now instead of after the counters are read. The agent's use of the stack causes
/// this fault, so the call's counters must not include the fault.
#[inline(always)]
fn touch_stack() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the store goes below the stack pointer, where nothing is kept: without `nostack`, the
    // compiler keeps no values in the red zone across this block.
    unsafe {
        std::arch::asm!("mov byte ptr [rsp - 8], 0", options(preserves_flags));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: the store goes below the stack pointer, where nothing is kept.
    unsafe {
        std::arch::asm!("strb wzr, [sp, #-16]", options(preserves_flags));
    }
}

/// Begins a call that the runtime reports through its own hook. `frame` is a stack address above
/// the frames of the functions that the runtime calls before the call ends.
///
/// # Safety
/// The runtime must call this on the thread that makes the call.
#[inline(always)]
pub unsafe fn begin_hooked(export: u32, frame: usize) {
    let mut thread = thread::current();
    // SAFETY: `thread::current` returns null or the calling thread's own state.
    unsafe {
        if thread.is_null() || !(*thread).is_attached() {
            thread = attach();
            if thread.is_null() {
                return;
            }
        }
        let call = new_call(export, frame, Ending::ByExport);
        if begin_with_id(&mut *thread, &call) {
            (*thread).start();
        }
    }
}

/// Ends a call that [`begin_hooked`] began. Does nothing if there is no such call.
///
/// # Safety
/// The requirements of `begin_hooked` apply.
#[inline(always)]
pub unsafe fn end_hooked(export: u32) {
    let thread = thread::current();
    // SAFETY: `thread::current` returns null or the calling thread's own state.
    unsafe {
        if thread.is_null() || !(*thread).is_attached() || (*thread).busy.is_set() {
            return;
        }
        let (end, location) = (*thread).run.clock.end();
        let Some(at) = (*thread).innermost_split(export) else { return };
        let start = (*thread).finish(at).start;
        // The hook is told neither the workgroup nor the number of workgroups, so `workgroup` and
        // `count` stay zero. No real dispatch has zero workgroups, so this `count` cannot be
        // mistaken for a real one.
        let call = Call { export, location, start, end, ..Call::default() };
        end_with_id(&mut *thread, at, &call);
    }
}

unsafe extern "C-unwind" fn nothing(
    _: *const Environment,
    _: *const DispatchState,
    _: *const WorkgroupState,
) -> c_int {
    0
}

/// Calls an empty dispatch function without and with a bracket, to measure what the bracket costs
/// (calibration).
pub fn rehearse(thread: &mut Thread, calls: usize, _: bool) -> Took {
    let dispatch = DispatchState {
        workgroup_size_x: 1,
        workgroup_size_y: 1,
        workgroup_size_z: 1,
        constant_count: 0,
        workgroup_count_x: 1,
        workgroup_count_y: 1,
        workgroup_count_z: 1,
        max_concurrency: 1,
        binding_count: 0,
        constants: std::ptr::null(),
        binding_ptrs: std::ptr::null(),
        binding_lengths: std::ptr::null(),
    };
    let workgroup = WorkgroupState {
        workgroup_id_x: 0,
        workgroup_id_y: 0,
        workgroup_id_z: 0,
        reserved: 0,
        processor_id: 0,
        local_memory: std::ptr::null_mut(),
        local_memory_size: 0,
    };
    let empty = std::hint::black_box(nothing as abi::iree::Dispatch);
    // SAFETY: `empty` has the type of a dispatch function and reads none of its arguments.
    let bare = || _ = unsafe { empty(&Environment::ZERO, &dispatch, &workgroup) };
    rehearsal::rehearse(thread.run.clock, calls, bare, || {
        // SAFETY: `empty` is a dispatch function that reads none of its arguments; `dispatch` and
        // `workgroup` outlive the call.
        unsafe { call(0, empty, &Environment::ZERO, &dispatch, &workgroup) };
    })
}
