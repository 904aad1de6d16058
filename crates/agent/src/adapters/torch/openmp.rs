//! Parallel regions of OpenMP, which libtorch_cpu launches through `GOMP_parallel`.
//!
//! ```text
//!  op ─► GOMP_parallel (ours): region begins ─► GOMP_parallel (libgomp's) ─► task (ours) ─► body
//!                              region ends   ◄─                              on each thread
//! ```
//!
//! For the region and for the task on the launching thread, only times are recorded, because the
//! counters that are read around their op count them, too. Counters are read for the tasks on the
//! other threads.

use std::ffi::{CStr, c_int, c_uint, c_void};
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use abi::torch::ops::COUNTERS;
use model::Loss;
use record::meta::Role;

use crate::adapters::op_calls::bracket::{self, Bracket, How, What};
use crate::adapters::op_calls::op::{self, Entry};
use crate::adapters::torch::ADAPTER;
use crate::adapters::torch::host::host;
use crate::os::scratch;
use crate::process::losses;
use crate::process::panics::guarded;
use crate::recorder::bracket::stack_address;
use crate::recorder::budget::steps;
use crate::recorder::thread::{self, Thread, Workers};
use crate::state::epoch;
use crate::state::run::{self, Run};

/// The function that the compiler has made from the body of a region.
pub type Body = unsafe extern "C-unwind" fn(*mut c_void);
pub type Parallel = unsafe extern "C-unwind" fn(Body, *mut c_void, c_uint, c_uint);
type Number = unsafe extern "C" fn() -> c_int;

/// The addresses of libgomp's functions ([`NAMES`]), stored before any library calls [`parallel`].
static REAL: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
static THREAD_NUM: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
static NUM_THREADS: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

/// The names of the functions whose addresses [`set_real`] takes, in the order of its argument.
pub const NAMES: [&CStr; 3] = [c"GOMP_parallel", c"omp_get_thread_num", c"omp_get_num_threads"];

pub fn set_real(functions: [*mut c_void; 3]) {
    THREAD_NUM.store(functions[1], Ordering::Relaxed);
    NUM_THREADS.store(functions[2], Ordering::Relaxed);
    REAL.store(functions[0], Ordering::Release);
}

pub fn real() -> *mut c_void {
    REAL.load(Ordering::Acquire)
}

/// The data of one region and its tasks. They are in memory outside the program's stack
/// ([`scratch`]) until the launching thread has waited for all tasks.
#[repr(C)]
struct Launch {
    shared: Shared,
    /// `None` if the region gets no record, because the recorder only counts it as a call (in a run
    /// with a budget).
    bracket: Option<Bracket>,
    what: What,
    /// Whether the run has counters. This copy is needed at the region's end: if a signal handler
    /// has forked since the region began, the thread's state in the child may not say this any
    /// more.
    has_counters: bool,
    /// The counts of the tasks on other threads. They are used only if the run has counters.
    workers: Sums,
    /// A copy of the sums in `workers`, made at the region's end to be added to the op around the
    /// region.
    added: Workers,
}

/// The data that each task reads. It fits into one cache line. The launching thread has just
/// written this line, so the processors of the other threads must fetch it from that thread's
/// processor, and the launching thread waits for them.
#[repr(C, align(64))]
struct Shared {
    body: Body,
    data: *mut c_void,
    entry: &'static Entry,
    thread: *const Thread,
    correlation: u64,
    how: How,
}

const _: () = assert!(size_of::<Shared>() == 64);

fn has_counters(run: &Run) -> bool {
    !run.plan.counters().is_empty()
}

/// The counts of the region's tasks that ran on other threads than the launching one.
#[repr(align(64))]
struct Sums {
    /// Number of tasks on other threads.
    tasks: AtomicU32,
    /// One bit for each counter: set if the value of some task is not known.
    unknown: AtomicU32,
    sums: [AtomicU64; COUNTERS],
}

#[inline(always)]
fn call_real(body: Body, data: *mut c_void, threads: c_uint, flags: c_uint) {
    // SAFETY: `REAL` was stored before any library could call [`parallel`]. It is the address of
    // `GOMP_parallel`, which has this type.
    unsafe {
        let real = std::mem::transmute::<*mut c_void, Parallel>(REAL.load(Ordering::Relaxed));
        real(body, data, threads, flags);
    }
}

fn number(function: &AtomicPtr<c_void>, otherwise: u32) -> u32 {
    let at = function.load(Ordering::Relaxed);
    if at.is_null() {
        return otherwise;
    }
    // SAFETY: `at` is the address of a function of the OpenMP runtime whose name implies this type.
    let number = unsafe { std::mem::transmute::<*mut c_void, Number>(at)() };
    u32::try_from(number).unwrap_or(otherwise)
}

/// Libraries call this function instead of libgomp's `GOMP_parallel`.
pub unsafe extern "C-unwind" fn parallel(
    body: Body,
    data: *mut c_void,
    threads: c_uint,
    flags: c_uint,
) {
    if !epoch::wanted() || steps::is_away() {
        return call_real(body, data, threads, flags);
    }
    launch_recorded(body, data, threads, flags);
}

#[inline(never)]
fn launch_recorded(body: Body, data: *mut c_void, threads: c_uint, flags: c_uint) {
    let Some(launch) = scratch::take::<Launch>() else {
        losses::lose(Loss::TaskNotRecorded, 1, libc::ENOMEM);
        return call_real(body, data, threads, flags);
    };
    let begun = region_begins(body, data, launch, stack_address());
    if begun {
        call_real(run_task, launch.cast(), threads, flags);
        // SAFETY: `region_begins` has filled in `launch`, and no task uses it any more.
        region_ends(unsafe { &mut *launch });
    }
    // SAFETY: `scratch::take` returned `launch` above, and nobody uses it after this.
    unsafe { scratch::give_back(launch) };
    if !begun {
        call_real(body, data, threads, flags);
    }
}

/// Begins a region, and writes its data to `launch`. Returns false if the region is neither
/// recorded nor counted as a call.
#[inline(never)]
fn region_begins(body: Body, data: *mut c_void, launch: *mut Launch, frame: usize) -> bool {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let begin = || {
        point!(TorchRegionBegin);
        let thread = bracket::thread(&ADAPTER);
        let entered = bracket::enter_inside(thread);
        // SAFETY: `bracket::thread` returns null or the calling thread's own state.
        let state = unsafe { thread.as_mut() }?;
        let Some((entry, how)) = op_of_region(state, frame) else {
            bracket::lose_inside(state, entered);
            return None;
        };
        // The highest bit distinguishes these numbers from those of TVM's regions.
        let correlation = 1 << 63 | LAST.fetch_add(1, Ordering::Relaxed);
        let mut what = What {
            export: entry.region(),
            entry,
            task: None,
            correlation: Some(correlation),
            counted: false,
            how,
        };
        let has_counters = has_counters(state.run);
        let bracket = bracket::begin_region(thread, &mut what, frame, entered)?;
        let how = what.how;
        // `launch` is written field by field, because otherwise the whole struct would first be put
        // on the stack.
        // SAFETY: the caller has taken `launch`, and nobody else uses it. Zeros are valid values
        // for its numbers.
        unsafe {
            (&raw mut (*launch).has_counters).write(has_counters);
            if has_counters {
                (&raw mut (*launch).workers).write_bytes(0, 1);
                (&raw mut (*launch).added).write_bytes(0, 1);
            }
            (&raw mut (*launch).bracket).write(bracket);
            (&raw mut (*launch).what).write(what);
            let shared = Shared { body, data, entry, thread, correlation, how };
            (&raw mut (*launch).shared).write(shared);
        }
        Some(())
    };
    guarded(begin).flatten().is_some()
}

/// Returns the op of a region, and the rule that decides whether the region is recorded. Returns
/// `None` if the user's filter excludes the op, or if the op's entry cannot be made or its metadata
/// cannot be written.
#[inline(always)]
fn op_of_region(thread: &Thread, frame: usize) -> Option<(&'static Entry, How)> {
    let outside = || outside().map(|entry| (entry, How::Always));
    let (entry, how) = bracket::current_op(thread, frame).or_else(outside)?;
    (entry.is_recorded(thread) && entry.tell_regions(thread)).then_some((entry, how))
}

#[inline(never)]
fn region_ends(launch: &mut Launch) {
    guarded(|| {
        point!(TorchRegionEnd);
        if let Some(region) = &launch.bracket {
            bracket::end(region, &launch.what, false);
        }
        if launch.has_counters && launch.workers.tasks.load(Ordering::Acquire) != 0 {
            add_workers(launch);
        }
    });
}

/// Adds the counts of the tasks on other threads to the op around the region. This is a separate
/// function so that the end of the region needs less of the stack.
#[inline(never)]
fn add_workers(launch: &mut Launch) {
    let thread = thread::current();
    // SAFETY: `thread::current` returns null or the calling thread's own state.
    if let Some(thread) = unsafe { thread.as_mut() }
        && let Some(at) = bracket::innermost(thread)
    {
        let sums = launch.added.sums.iter_mut().zip(&launch.workers.sums);
        sums.for_each(|(to, from)| *to = from.load(Ordering::Relaxed));
        launch.added.known = !launch.workers.unknown.load(Ordering::Relaxed);
        thread.add_workers(at, &launch.added);
    }
}

/// Libgomp calls this function on each thread of a region, instead of the region's body. This
/// function runs the body as a task.
unsafe extern "C-unwind" fn run_task(data: *mut c_void) {
    // SAFETY: `data` is the `Launch` of the region. The launching thread waits for all tasks, so
    // the `Launch` outlives this task.
    let launch = unsafe { &*data.cast::<Launch>() };
    let frame = stack_address();
    let begun = task_begins(launch, frame);
    // SAFETY: the library passed `body` and `data` to `GOMP_parallel` so that `body` is called with
    // `data`.
    unsafe { (launch.shared.body)(launch.shared.data) };
    match begun {
        Some(Task::Recorded(bracket, what)) => task_ends(&bracket, &what, launch),
        Some(Task::Counted) => counted_task_ends(frame),
        None => {}
    }
}

enum Task {
    Recorded(Bracket, What),
    /// The task gets no record, because the recorder only counts it as a call (in a run with a
    /// budget). While the task runs, the thread's state contains the op to which nested regions
    /// belong.
    Counted,
}

#[inline(never)]
fn task_begins(launch: &Launch, frame: usize) -> Option<Task> {
    let shared = &launch.shared;
    let begin = || {
        point!(TorchTaskBegin);
        let thread = bracket::thread(&ADAPTER);
        let entered = bracket::enter_inside(thread);
        let (number, count) = (number(&THREAD_NUM, 0), number(&NUM_THREADS, 1));
        let is_elsewhere = !std::ptr::eq(thread, shared.thread);
        let what = What {
            export: shared.entry.task(),
            entry: shared.entry,
            task: Some((number, count.max(1))),
            correlation: Some(shared.correlation),
            counted: is_elsewhere,
            how: shared.how,
        };
        if let Some(bracket) = bracket::begin_inside(thread, &what, frame, entered) {
            return Some(Task::Recorded(bracket, what));
        }
        // A task on the launching thread need not be counted, because that thread's state already
        // contains the op.
        if shared.how == How::Never && is_elsewhere {
            // SAFETY: `bracket::thread` returns null or the calling thread's own state.
            let state = unsafe { thread.as_mut() }?;
            bracket::begin_counted_task(state, shared.entry, frame);
            return Some(Task::Counted);
        }
        None
    };
    let begun = guarded(begin).flatten();
    if !matches!(begun, Some(Task::Recorded(..))) {
        if run::current().is_some_and(has_counters) {
            add_unknown(&launch.workers);
        }
        if shared.how != How::Never {
            losses::lose(Loss::TaskNotRecorded, 1, 0);
        }
    }
    begun
}

#[inline(never)]
fn counted_task_ends(frame: usize) {
    guarded(|| {
        let thread = thread::current();
        // SAFETY: `thread::current` returns null or the calling thread's own state.
        if let Some(thread) = unsafe { thread.as_mut() } {
            thread.end_counted_task(frame);
        }
    });
}

#[inline(never)]
fn task_ends(bracket: &Bracket, what: &What, launch: &Launch) {
    guarded(|| {
        point!(TorchTaskEnd);
        let is_read = bracket::end(bracket, what, false);
        if what.counted {
            add_counts(launch, is_read);
        }
    });
}

/// Counts a task whose counters could not be read: the sums of its region are then unknown.
fn add_unknown(workers: &Sums) {
    workers.unknown.store(u32::MAX, Ordering::Relaxed);
    workers.tasks.fetch_add(1, Ordering::Release);
}

fn add_counts(launch: &Launch, is_read: bool) {
    let thread = thread::current();
    // SAFETY: `thread::current` returns null or the calling thread's own state.
    let Some(thread) = unsafe { thread.as_ref() }.filter(|thread| thread.is_attached()) else {
        // The thread's session has ended, or this is a forked child.
        return add_unknown(&launch.workers);
    };
    if !has_counters(thread.run) {
        return;
    }
    let Some(before) = thread.before.get(thread.depth as usize) else { return };
    let workers = &launch.workers;
    for (i, sum) in workers.sums.iter().enumerate().take(thread.run.plan.counters().len()) {
        match thread.after.since(before, i).filter(|_| thread.counting && is_read) {
            Some(value) => {
                sum.fetch_add(value, Ordering::Relaxed);
            }
            None => {
                workers.unknown.fetch_or(1 << i, Ordering::Relaxed);
            }
        }
    }
    workers.tasks.fetch_add(1, Ordering::Release);
}

fn outside() -> Option<&'static Entry> {
    op::by_name(host()?, Role::Op, b"(outside of ops)")
}

pub fn rehearse(entry: &'static Entry, frame: usize) {
    let (export, task, correlation) = (entry.region(), None, Some(1));
    let what = What { export, entry, task, correlation, counted: false, how: How::Always };
    if let Some(bracket) =
        bracket::begin_inside(thread::current(), &what, frame, bracket::NOT_TIMED)
    {
        bracket::end(&bracket, &what, false);
    }
}
