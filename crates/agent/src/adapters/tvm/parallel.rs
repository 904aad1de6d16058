//! Records parallel regions and their tasks, and adds up the bytes of workspaces (temporary memory
//! of an op). When TVM's FFI loads a compiled module, it gives the module the addresses of two
//! functions: one launches a parallel region, the other allocates a workspace. The agent replaces
//! both by functions in this file.
//!
//! ```text
//!  op ─► launch (ours): region begins ─► launch (TVM's) ─► task (ours) ─► task (the op's), per thread
//!                       region ends   ◄─
//! ```
//!
//! While nothing is recorded, a launch costs one additional load and a tail call. The number of
//! tasks in a launch may be 0; TVM then chooses the number, and only the tasks get to know it.

use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use abi::tvm_ffi::{AllocWorkspace, ParallelGroup, ParallelLaunch, ParallelTask};
use model::Loss;

use crate::adapters::op_calls::bracket::{self, How};
use crate::adapters::op_calls::inside::{self, Bracket, What};
use crate::adapters::tvm::{ADAPTER, call, ffi};
use crate::process::losses;
use crate::process::panics::guarded;
use crate::recorder::bracket::stack_address;
use crate::state::epoch;

/// The libraries that may contain the runtime's functions. Since TVM 0.25, they are in the first
/// one; before, they were in the second one.
const LIBRARIES: [&CStr; 2] = [c"libtvm_runtime.so", c"libtvm.so"];

const SET: i64 = 0;
const NO_FFI: i64 = 1;
const NO_RUNTIME: i64 = 2;
const REFUSED: i64 = 3;

static REAL_LAUNCH: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
static REAL_WORKSPACE: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

/// Replaces the two functions for modules that are loaded from now on. Returns [`SET`] or why this
/// failed.
pub fn watch() -> i64 {
    let Some(ffi) = ffi::get() else { return NO_FFI };
    let launch = ffi::find(&LIBRARIES, c"TVMBackendParallelLaunch");
    let workspace = ffi::find(&LIBRARIES, c"TVMBackendAllocWorkspace");
    let (Some(launch), Some(workspace)) = (launch, workspace) else { return NO_RUNTIME };
    REAL_LAUNCH.store(launch, Ordering::Release);
    REAL_WORKSPACE.store(workspace, Ordering::Release);
    let symbols = [
        (c"__TVMBackendParallelLaunch", parallel_launch as ParallelLaunch as *mut c_void),
        (c"__TVMBackendAllocWorkspace", alloc_workspace as AllocWorkspace as *mut c_void),
    ];
    for (name, ours) in symbols {
        // SAFETY: `register_context_symbol` is the FFI's own function. It keeps the addresses of
        // our functions, which are never unloaded.
        if unsafe { (ffi.register_context_symbol)(name.as_ptr(), ours) } != 0 {
            ffi.drop_error();
            return REFUSED;
        }
    }
    SET
}

/// The data that a region's tasks and its end need. It is on the stack of the launching thread,
/// which waits until all tasks have ended.
struct Launch {
    task: ParallelTask,
    data: *mut c_void,
    /// `None` if the region is only counted.
    bracket: Option<Bracket>,
    what: What,
}

#[inline(always)]
fn real_launch() -> ParallelLaunch {
    // SAFETY: `REAL_LAUNCH` was stored before any module got our function. It is the address of
    // TVM's `TVMBackendParallelLaunch`, which has this type.
    unsafe {
        std::mem::transmute::<*mut c_void, ParallelLaunch>(REAL_LAUNCH.load(Ordering::Relaxed))
    }
}

unsafe extern "C-unwind" fn parallel_launch(
    task: ParallelTask,
    data: *mut c_void,
    tasks: c_int,
) -> c_int {
    if !epoch::wanted() {
        // SAFETY: the module passed these arguments, and called us in place of the real function.
        return unsafe { real_launch()(task, data, tasks) };
    }
    // SAFETY: the module passed these arguments, and called us in place of the real function.
    unsafe { launch_recorded(task, data, tasks) }
}

#[inline(never)]
unsafe fn launch_recorded(task: ParallelTask, data: *mut c_void, tasks: c_int) -> c_int {
    let mut launch = std::mem::MaybeUninit::<Launch>::uninit();
    if !region_begins(task, data, &mut launch, stack_address()) {
        // SAFETY: the module passed these arguments, and called us in place of the real function.
        return unsafe { real_launch()(task, data, tasks) };
    }
    // SAFETY: `run_task` needs a pointer to a `Launch`, and gets one. TVM returns only after all
    // tasks have ended, so `launch` outlives them.
    let code = unsafe { real_launch()(run_task, launch.as_mut_ptr().cast(), tasks) };
    // SAFETY: `region_begins` returned true, so it has filled in `launch`.
    region_ends(unsafe { launch.assume_init_ref() }, code != 0);
    code
}

/// Begins a region, and writes its data to `launch`. Returns false if the region is neither
/// recorded nor counted.
#[inline(never)]
fn region_begins(
    task: ParallelTask,
    data: *mut c_void,
    launch: &mut std::mem::MaybeUninit<Launch>,
    frame: usize,
) -> bool {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let begin = || {
        point!(RegionBegin);
        let thread = bracket::thread(&ADAPTER);
        // SAFETY: `bracket::thread` returns null or the calling thread's own state.
        let state = unsafe { thread.as_ref() }?;
        let outside = || call::outside().map(|entry| (entry, How::Always));
        let (entry, how) = bracket::current_op(state, frame).or_else(outside)?;
        entry.vm.watching.note_region();
        if !entry.is_recorded(state) || !entry.tell_regions(state) {
            return None;
        }
        let correlation = LAST.fetch_add(1, Ordering::Relaxed) + 1;
        let mut what = What {
            export: entry.region(),
            entry,
            task: None,
            correlation: Some(correlation),
            counted: true,
            how,
        };
        let bracket = inside::begin_region(thread, &mut what, frame, inside::NOT_TIMED)?;
        launch.write(Launch { task, data, bracket, what });
        Some(())
    };
    guarded(begin).flatten().is_some()
}

#[inline(never)]
fn region_ends(launch: &Launch, failed: bool) {
    guarded(|| {
        point!(RegionEnd);
        if let Some(bracket) = &launch.bracket {
            inside::end(bracket, &launch.what, failed);
        }
    });
}

unsafe extern "C-unwind" fn run_task(
    number: c_int,
    group: *mut ParallelGroup,
    data: *mut c_void,
) -> c_int {
    // SAFETY: `data` points to the `Launch` on the stack of the launching thread, and that thread
    // waits for this task.
    let launch = unsafe { &*data.cast::<Launch>() };
    // SAFETY: the runtime passes null or its group of tasks, which outlives the task.
    let count = unsafe { group.as_ref() }.map_or(1, |group| group.tasks);
    let begun = task_begins(launch, number, count, stack_address());
    // SAFETY: the module passed `task` and `data` to the launch so that `task` is called with a
    // number, a group and `data`.
    let code = unsafe { (launch.task)(number, group, launch.data) };
    if let Some((bracket, what)) = begun {
        task_ends(&bracket, &what, code != 0);
    }
    code
}

#[inline(never)]
fn task_begins(
    launch: &Launch,
    number: c_int,
    count: c_int,
    frame: usize,
) -> Option<(Bracket, What)> {
    let begin = || {
        point!(TaskBegin);
        let thread = bracket::thread(&ADAPTER);
        let what = What {
            export: launch.what.entry.task(),
            task: Some((number.max(0) as u32, count.max(1) as u32)),
            ..launch.what
        };
        inside::begin_inside(thread, &what, frame, inside::NOT_TIMED).map(|bracket| (bracket, what))
    };
    let begun = guarded(begin).flatten();
    if begun.is_none() && launch.what.how != How::Never {
        losses::lose(Loss::TaskNotRecorded, 1, 0);
    }
    begun
}

#[inline(never)]
fn task_ends(bracket: &Bracket, what: &What, failed: bool) {
    guarded(|| {
        point!(TaskEnd);
        inside::end(bracket, what, failed);
    });
}

unsafe extern "C-unwind" fn alloc_workspace(
    device_type: c_int,
    device: c_int,
    bytes: u64,
    code: c_int,
    bits: c_int,
) -> *mut c_void {
    // SAFETY: `REAL_WORKSPACE` was stored before any module got our function. It is the address of
    // TVM's `TVMBackendAllocWorkspace`, which has this type.
    let real = unsafe {
        std::mem::transmute::<*mut c_void, AllocWorkspace>(REAL_WORKSPACE.load(Ordering::Relaxed))
    };
    // SAFETY: the module passed these arguments, and called us in place of the real function.
    let memory = unsafe { real(device_type, device, bytes, code, bits) };
    if !memory.is_null() && epoch::wanted() {
        note_workspace(bytes);
    }
    memory
}

#[inline(never)]
fn note_workspace(bytes: u64) {
    guarded(|| {
        point!(Workspace);
        bracket::add_workspace(bytes);
    });
}
