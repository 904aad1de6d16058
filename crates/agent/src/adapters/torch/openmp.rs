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
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use abi::torch::ops::COUNTERS;
use model::Loss;
use record::meta::Role;
use record::page::Task;

use crate::adapters::op_calls::bracket::{self, How};
use crate::adapters::op_calls::inside::{self, Bracket, What};
use crate::adapters::op_calls::op::{self, Entry};
use crate::adapters::torch::ADAPTER;
use crate::adapters::torch::host::host;
use crate::os::scratch;
use crate::process::losses;
use crate::process::panics::guarded;
use crate::recorder::bracket::stack_address;
use crate::recorder::budget::steps;
use crate::recorder::thread::{self, Thread};
use crate::state::epoch;

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

/// The data that the tasks of a region need. They are on the stack of the launching thread, which
/// waits for all tasks.
///
/// In a run without a budget, tasks read only the fields up to `workers`, which are in one cache
/// line or in two neighbouring ones. The launching thread has just written them, so the processors
/// of the other threads must fetch these lines from that thread's processor, and the launching
/// thread waits for them. The struct is not aligned to a cache line, because that would take up to
/// 127 more bytes of the program's stack.
#[repr(C)]
struct Launch {
    body: Body,
    data: *mut c_void,
    /// The op around the region.
    entry: &'static Entry,
    /// The state of the launching thread.
    thread: *const Thread,
    correlation: u64,
    task_export: u32,
    /// The counts of the tasks on other threads, in memory from [`scratch`]. Null if the run has no
    /// counters.
    workers: *mut Sums,
    how: How,
    /// `None` if the region gets no record, because the recorder only counts it as a call (in a run
    /// with a budget).
    bracket: Option<Bracket>,
}

const _: () = assert!(std::mem::offset_of!(Launch, how) <= 64);

impl Launch {
    /// Returns the counts of the tasks on other threads, if the run has counters.
    #[inline(always)]
    fn workers(&self) -> Option<&Sums> {
        // SAFETY: `workers` is null or from `take_sums`, which has initialised the sums in use.
        unsafe { self.workers.as_ref() }
    }

    /// Returns whether this is not the state of the launching thread.
    #[inline(always)]
    fn is_elsewhere(&self, thread: *const Thread) -> bool {
        !std::ptr::eq(thread, self.thread)
    }

    /// Returns the region, without its times.
    #[inline(always)]
    fn region(&self) -> Task {
        self.task(self.entry.region(), (0, 0))
    }

    /// Returns a task with the export id `export`, without its times.
    #[inline(always)]
    fn task(&self, export: u32, (number, count): Place) -> Task {
        Task { export, number, count, start: 0, end: 0, correlation: self.correlation }
    }

    /// Returns what the long way needs to begin the region or a task.
    fn what(&self, task: Task, counted: bool) -> What {
        What {
            export: task.export,
            entry: self.entry,
            task: (task.count > 0).then_some((task.number, task.count)),
            correlation: Some(self.correlation),
            counted,
            how: self.how,
        }
    }
}

/// The counts of the region's tasks that ran on other threads than the launching one.
#[repr(C)]
struct Sums {
    /// Number of tasks on other threads.
    tasks: AtomicU32,
    /// One bit for each counter: set if the value of some task is not known.
    unknown: AtomicU32,
    /// Number of counters of the run.
    counters: u32,
    /// The sums of the run's counters; the other elements are not initialised.
    sums: [MaybeUninit<AtomicU64>; COUNTERS],
}

impl Sums {
    /// Returns the sums of the run's counters.
    fn used(&self) -> impl Iterator<Item = &AtomicU64> {
        let sums = self.sums.iter().take(self.counters as usize);
        // SAFETY: `take_sums` has initialised these elements.
        sums.map(|sum| unsafe { sum.assume_init_ref() })
    }
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
    let mut launch = MaybeUninit::<Launch>::uninit();
    let thread = guarded(|| bracket::thread(&ADAPTER)).unwrap_or(std::ptr::null_mut());
    let (frame, entered) = (stack_address(), inside::enter_inside(thread));
    let mut region = Region { body, data, launch: &mut launch, thread, frame, entered };
    if !region_begins(&mut region) && !region_begins_otherwise(&mut region) {
        return call_real(body, data, threads, flags);
    }
    call_real(run_task, launch.as_mut_ptr().cast(), threads, flags);
    // SAFETY: the region has begun, so `launch` is filled in, and no task uses it any more.
    region_ends(unsafe { launch.assume_init_ref() });
}

/// A region that is to begin.
struct Region<'a> {
    body: Body,
    data: *mut c_void,
    launch: &'a mut MaybeUninit<Launch>,
    /// The calling thread's state, or null.
    thread: *mut Thread,
    frame: usize,
    /// What [`inside::enter_inside`] returned.
    entered: u64,
}

/// Begins a region if it can take the short way, and fills in its data. Returns whether the region
/// has begun.
#[inline(never)]
fn region_begins(region: &mut Region<'_>) -> bool {
    let begin = || {
        point!(TorchRegionBegin);
        let Region { thread, frame, entered, .. } = *region;
        // SAFETY: `thread` is null or the calling thread's own state.
        let state = unsafe { thread.as_ref() }?;
        let entry = op_of_usual_region(state)?;
        let workers = take_sums(state)?;
        let begun = inside::try_begin_task(thread, (entry.region(), entry), false, frame, entered);
        if begun.is_none() {
            give_back_sums(workers);
            return None;
        }
        fill_in(region, entry, workers, How::Always).bracket = begun;
        Some(())
    };
    guarded(begin).flatten().is_some()
}

/// Begins a region that cannot take the short way, and fills in its data. Returns false if the
/// region is neither recorded nor counted as a call.
#[inline(never)]
fn region_begins_otherwise(region: &mut Region<'_>) -> bool {
    let begin = || {
        // SAFETY: `thread` is null or the calling thread's own state.
        let state = unsafe { region.thread.as_mut() }?;
        let Some((entry, how)) = op_of_region(state, region.frame) else {
            inside::lose_inside(state, region.entered);
            return None;
        };
        let Some(workers) = take_sums(state) else {
            losses::lose(Loss::TaskNotRecorded, 1, libc::ENOMEM);
            inside::lose_inside(state, region.entered);
            return None;
        };
        let (frame, entered) = (region.frame, region.entered);
        let launch = fill_in(region, entry, workers, how);
        let begun = region_begins_the_long_way(launch, state, frame, entered);
        if begun.is_none() {
            give_back_sums(workers);
        }
        begun
    };
    guarded(begin).flatten().is_some()
}

/// This is a separate function so that less of the stack is used while the op of the region is
/// looked up.
#[inline(never)]
fn region_begins_the_long_way(
    launch: &mut Launch,
    thread: *mut Thread,
    frame: usize,
    entered: u64,
) -> Option<()> {
    let mut what = launch.what(launch.region(), false);
    launch.bracket = inside::begin_region(thread, &mut what, frame, entered)?;
    launch.how = what.how;
    Some(())
}

/// Returns memory for the counts of the tasks on other threads, or null if the run has no counters.
/// Returns `None` if there is no memory.
#[inline(always)]
fn take_sums(thread: &Thread) -> Option<*mut Sums> {
    if thread.counters_of_run == 0 {
        return Some(std::ptr::null_mut());
    }
    let sums = scratch::take::<Sums>()?;
    let counters = usize::from(thread.counters_of_run).min(COUNTERS);
    // SAFETY: the memory is large enough, and nobody else uses it. Zeros are valid values.
    unsafe {
        sums.cast::<u8>().write_bytes(0, std::mem::offset_of!(Sums, sums) + 8 * counters);
        (&raw mut (*sums).counters).write(counters as u32);
    }
    Some(sums)
}

/// Gives back what [`take_sums`] returned. It must not be used any more.
#[inline(always)]
fn give_back_sums(sums: *mut Sums) {
    if !sums.is_null() {
        // SAFETY: the memory is from `scratch::take`. Only the functions of this file use it, and
        // they do not after this.
        unsafe { scratch::give_back(sums) };
    }
}

/// Returns the op of a region that can take the short way: the innermost open call, if it is an op,
/// and if the frames of its regions are in the profile.
#[inline(always)]
fn op_of_usual_region(thread: &Thread) -> Option<&'static Entry> {
    let entry = bracket::innermost_op(thread).filter(|_| thread.short_ops)?;
    (entry.told() == Entry::told_to(thread) && entry.tell_regions(thread)).then_some(entry)
}

/// Fills in the data of a region. Writes field by field, because otherwise the whole struct would
/// first be put on the stack. `workers` is the result of [`take_sums`].
#[inline(always)]
fn fill_in<'a>(
    region: &'a mut Region<'_>,
    entry: &'static Entry,
    workers: *mut Sums,
    how: How,
) -> &'a mut Launch {
    static LAST: AtomicU64 = AtomicU64::new(0);
    // The highest bit distinguishes these numbers from those of TVM's regions.
    let correlation = 1 << 63 | LAST.fetch_add(1, Ordering::Relaxed);
    let launch = region.launch.as_mut_ptr();
    // SAFETY: `launch` is valid for writes, and all of its fields are written.
    unsafe {
        (&raw mut (*launch).body).write(region.body);
        (&raw mut (*launch).data).write(region.data);
        (&raw mut (*launch).entry).write(entry);
        (&raw mut (*launch).thread).write(region.thread);
        (&raw mut (*launch).correlation).write(correlation);
        (&raw mut (*launch).task_export).write(entry.task());
        (&raw mut (*launch).workers).write(workers);
        (&raw mut (*launch).how).write(how);
        (&raw mut (*launch).bracket).write(None);
        region.launch.assume_init_mut()
    }
}

/// Returns the op of a region, and the rule that decides whether the region is recorded. Returns
/// `None` if the user's filter excludes the op, or if the op's entry cannot be made or its metadata
/// cannot be written.
#[inline(never)]
fn op_of_region(thread: &Thread, frame: usize) -> Option<(&'static Entry, How)> {
    let outside = || outside().map(|entry| (entry, How::Always));
    let (entry, how) = bracket::current_op(thread, frame).or_else(outside)?;
    (entry.is_recorded(thread) && entry.tell_regions(thread)).then_some((entry, how))
}

#[inline(never)]
fn region_ends(launch: &Launch) {
    guarded(|| {
        point!(TorchRegionEnd);
        if let Some(bracket) = &launch.bracket {
            inside::end_task(bracket, launch.region(), false);
        }
        if let Some(workers) = launch.workers() {
            if workers.tasks.load(Ordering::Acquire) != 0 {
                add_workers(workers);
            }
            give_back_sums(launch.workers);
        }
    });
}

/// Adds the counts of the tasks on other threads to the op around the region. This is a separate
/// function so that the end of the region needs less of the stack.
#[inline(never)]
fn add_workers(workers: &Sums) {
    let thread = thread::current();
    // SAFETY: `thread::current` returns null or the calling thread's own state.
    if let Some(thread) = unsafe { thread.as_mut() }
        && let Some(at) = bracket::innermost(thread)
    {
        let known = !workers.unknown.load(Ordering::Relaxed);
        let sums = workers.used().map(|sum| sum.load(Ordering::Relaxed));
        thread.add_workers(at, known, sums);
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
    unsafe { (launch.body)(launch.data) };
    match begun {
        Some((Begun::Recorded(bracket), place)) => task_ends(&bracket, place, launch),
        Some((Begun::Counted, _)) => counted_task_ends(frame),
        None => {}
    }
}

/// The number of a task, and the number of tasks of its region.
type Place = (u32, u32);

/// A task that has begun.
enum Begun {
    Recorded(Bracket),
    /// The task gets no record, because the recorder only counts it as a call (in a run with a
    /// budget). While the task runs, the thread's state contains the op to which nested regions
    /// belong.
    Counted,
}

#[inline(never)]
fn task_begins(launch: &Launch, frame: usize) -> Option<(Begun, Place)> {
    let begin = || {
        point!(TorchTaskBegin);
        let thread = bracket::thread(&ADAPTER);
        let entered = inside::enter_inside(thread);
        let is_elsewhere = launch.is_elsewhere(thread);
        // The launching thread always executes the task with the number 0.
        let number_here = if is_elsewhere { number(&THREAD_NUM, 0) } else { 0 };
        let place = (number_here, number(&NUM_THREADS, 1).max(1));
        let task = (launch.task_export, launch.entry);
        if let Some(bracket) = inside::try_begin_task(thread, task, is_elsewhere, frame, entered) {
            return Some((Begun::Recorded(bracket), place));
        }
        let what = launch.what(launch.task(launch.task_export, place), is_elsewhere);
        Some((task_begins_otherwise(&what, frame, (thread, entered))?, place))
    };
    let begun = guarded(begin).flatten();
    if !matches!(begun, Some((Begun::Recorded(_), _))) {
        task_is_not_recorded(launch);
    }
    begun
}

#[inline(never)]
fn task_begins_otherwise(
    what: &What,
    frame: usize,
    (thread, entered): (*mut Thread, u64),
) -> Option<Begun> {
    if let Some(bracket) = inside::begin_inside(thread, what, frame, entered) {
        return Some(Begun::Recorded(bracket));
    }
    // A task on the launching thread need not be counted, because that thread's state already
    // contains the op.
    if what.how == How::Never && what.counted {
        // SAFETY: `bracket::thread` returned null or the calling thread's own state.
        let state = unsafe { thread.as_mut() }?;
        inside::begin_counted_task(state, what.entry, frame);
        return Some(Begun::Counted);
    }
    None
}

#[cold]
#[inline(never)]
fn task_is_not_recorded(launch: &Launch) {
    if let Some(workers) = launch.workers() {
        add_unknown(workers);
    }
    if launch.how != How::Never {
        losses::lose(Loss::TaskNotRecorded, 1, 0);
    }
}

#[cold]
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
fn task_ends(bracket: &Bracket, place: Place, launch: &Launch) {
    guarded(|| {
        point!(TorchTaskEnd);
        let is_elsewhere = launch.is_elsewhere(bracket.thread());
        let task = launch.task(launch.task_export, place);
        let is_read = inside::end_task(bracket, task, is_elsewhere);
        if let Some(workers) = launch.workers().filter(|_| is_elsewhere) {
            add_counts(workers, is_read);
        }
    });
}

/// Counts a task whose counters could not be read: the sums of its region are then unknown.
fn add_unknown(workers: &Sums) {
    workers.unknown.store(u32::MAX, Ordering::Relaxed);
    workers.tasks.fetch_add(1, Ordering::Release);
}

#[inline(never)]
fn add_counts(workers: &Sums, is_read: bool) {
    let thread = thread::current();
    // SAFETY: `thread::current` returns null or the calling thread's own state.
    let Some(thread) = unsafe { thread.as_ref() }.filter(|thread| thread.is_attached()) else {
        // The thread's session has ended, or this is a forked child.
        return add_unknown(workers);
    };
    let Some(before) = thread.before.get(thread.depth as usize) else { return };
    for (i, sum) in workers.used().enumerate() {
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
    let (export, correlation) = (entry.region(), 1);
    let (thread, entered) = (thread::current(), inside::NOT_TIMED);
    let begun =
        inside::try_begin_task(thread, (export, entry), false, frame, entered).or_else(|| {
            let (task, correlation) = (None, Some(correlation));
            let what = What { export, entry, task, correlation, counted: false, how: How::Always };
            inside::begin_inside(thread, &what, frame, entered)
        });
    if let Some(bracket) = begun {
        let region = Task { export, number: 0, count: 0, start: 0, end: 0, correlation };
        inside::end_task(&bracket, region, false);
    }
}
