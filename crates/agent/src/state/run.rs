//! Start-up. The constructor only remembers where the run file is, or that variables of the
//! original hook ask for one ([`crate::adapters::iree::hook_variables`]); everything else waits until there is something to
//! record. Without either, recording can begin and end later ([`crate::entry::session`]).
//!
//! What is recorded has a number, the *epoch*: 1 for what the environment asks for, one more for
//! each session. A thread's state is of an epoch, too, and good only while the two are the same:
//! one relaxed load tells a thread that there is nothing to record, that it has to begin anew, or
//! that the agent is off.

use std::ffi::{CStr, CString};
use std::os::unix::ffi::OsStrExt;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use abi::agent::AgentState;
use counters::Plan;
use model::Loss;
use record::pool::Row;
use record::run_file::RUN_FILE_VARIABLE;
use record::{ClockKind, Pool, RunFile};

use crate::adapters::iree::hook_variables;
use crate::adapters::iree::interpose;
use crate::entry::c_interface;
use crate::entry::exec;
use crate::entry::sanitizer;
use crate::os::kept::keep;
use crate::os::sys;
use crate::process::part::{Lock, PartState, Process};
use crate::recorder::fork;
use crate::recorder::thread;

/// What the run file says, made ready to use. Lives for ever, shared by forked children.
#[derive(Debug)]
pub struct Run {
    /// The profile directory.
    pub profile: String,
    /// The pool.
    pub pool: Pool,
    /// Its path.
    pub pool_path: CString,
    /// What to count.
    pub plan: Plan,
    /// Mask of all counters of the plan.
    pub counter_mask: u32,
    /// The clock.
    pub clock: ClockKind,
    /// Ticks in a millisecond, roughly.
    pub ticks_per_ms: u64,
    /// Patterns of the exports to record; empty: all.
    pub filters: Vec<String>,
    /// Whether counters are read for book-keeping ops of virtual machines, too.
    pub bookkeeping: bool,
    /// What this process has of it. A forked child finds it zeroed.
    pub part: &'static PartState,
    /// Set at the end of a session: nobody may become part of it any more.
    pub ended: AtomicBool,
    /// Threads whose state is of this run: those may use its pool, whatever has ended.
    pub threads: AtomicU32,
}

/// Nothing records.
pub const IDLE: u32 = u32::MAX - 1;
/// Nothing ever will: an error of our own, or no way to record.
const OFF: u32 = u32::MAX;
/// What the environment asks for.
const OF_ENVIRONMENT: u32 = 1;

static EPOCH: AtomicU32 = AtomicU32::new(IDLE);

const PATH_BYTES: usize = 4096;

/// The run file's path, copied before the program can change its environment. Written by the
/// constructor, which the dynamic linker runs before there are threads, or by the one thread that
/// loads the run.
static mut RUN_FILE_PATH: [u8; PATH_BYTES] = [0; PATH_BYTES];
/// Whether the environment asked for a profile.
static WANTED: AtomicBool = AtomicBool::new(false);
/// Set where another agent was in the process first.
static QUIET: AtomicBool = AtomicBool::new(false);
static RUN: AtomicPtr<Run> = AtomicPtr::new(std::ptr::null_mut());
/// 0 not yet loaded; [`LOADED`]: loaded or impossible; otherwise who is at it, process id in the
/// high half and thread id in the low one.
static LOADING: AtomicU64 = AtomicU64::new(0);
const LOADED: u64 = u64::MAX;

#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = constructor;

extern "C" fn constructor() {
    std::panic::set_hook(Box::new(|_| {}));
    thread::guarded(|| {
        interpose::prepare();
        note_variables();
        point!(Constructor);
        if is_asked_for() && c_interface::another_is_first() {
            with_run_row(|row| row.lose(Loss::SecondAgent, 1, 0));
            QUIET.store(true, Ordering::Relaxed);
            WANTED.store(false, Ordering::Release);
        }
        if is_asked_for() && sanitizer::checks_races() {
            with_run_row(|row| row.lose(Loss::ChildSanitized, 1, 0));
            WANTED.store(false, Ordering::Release);
        }
        if is_asked_for() {
            EPOCH.store(OF_ENVIRONMENT, Ordering::Release);
            exec::prepare();
            fork::prepare();
        }
    });
}

/// Nothing of the environment is read in a process that has more rights than its user: whoever
/// started it has chosen the environment, and must not choose what such a process reads and writes.
fn note_variables() {
    if sys::has_more_rights() {
        return;
    }
    // SAFETY: the name is a C string; the result points into the environment, which nothing
    // changes while the dynamic linker runs constructors.
    let value = unsafe { libc::getenv(VARIABLE.as_ptr()) };
    if value.is_null() {
        WANTED.store(hook_variables::is_asked_for(), Ordering::Release);
        return;
    }
    // SAFETY: `getenv` returns C strings.
    let bytes = unsafe { CStr::from_ptr(value) }.to_bytes();
    if bytes.is_empty() || bytes.len() >= PATH_BYTES {
        return;
    }
    // SAFETY: still one thread, see RUN_FILE_PATH; the length was checked.
    unsafe {
        let path = (&raw mut RUN_FILE_PATH).cast::<u8>();
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), path, bytes.len());
    }
    WANTED.store(true, Ordering::Release);
}

#[used]
#[unsafe(link_section = ".fini_array")]
static DESTRUCTOR: extern "C" fn() = destructor;

/// Runs when the process exits in an orderly way, on the thread that ends it.
extern "C" fn destructor() {
    if current().is_none() {
        return;
    }
    let _errno = sys::ErrnoGuard::new();
    // After an error of our own the report of what there is until then, and nothing else.
    if !is_off() {
        thread::guarded(end);
    }
    thread::guarded(|| {
        if let Some(run) = current().filter(|_| hook_variables::is_on()) {
            hook_variables::report(&run.profile);
        }
    });
}

fn end() {
    point!(Destructor);
    thread::at_process_exit();
    if let Some(process) = current().and_then(Process::existing) {
        process.at_exit();
    }
}

const VARIABLE: &CStr = c"COUNTERPOINT_RUN_FILE";
const _: () = assert!(VARIABLE.to_bytes().len() == RUN_FILE_VARIABLE.len());

/// Whether the environment asked for a profile, whatever became of it.
pub fn is_asked_for() -> bool {
    WANTED.load(Ordering::Relaxed)
}

/// Calls `body` with the run's own row of losses, also in a process that has not loaded the run and
/// never will. Neither allocates nor locks. Nothing happens where there is no run file (yet).
pub fn with_run_row(body: impl FnOnce(&Row)) {
    if let Some(run) = current() {
        return body(run.pool.run_row());
    }
    if !is_asked_for() || hook_variables::is_on() {
        return;
    }
    // SAFETY: written by the constructor, and terminated.
    let path = unsafe { CStr::from_ptr((&raw const RUN_FILE_PATH).cast()) };
    let mut pool = [0u8; PATH_BYTES];
    if let Ok(file) = sys::Descriptor::open(path, libc::O_RDONLY)
        && let Some(pool) = RunFile::find_pool(|at, to| file.read_at(at, to), &mut pool)
    {
        let _ = record::pool::with_run_row(pool, body);
    }
}

/// Whether there is anything to do in this process at all. One relaxed load.
#[inline(always)]
pub fn wanted() -> bool {
    EPOCH.load(Ordering::Relaxed) < IDLE
}

/// What is being recorded; equal to no thread's where nothing is. One relaxed load.
#[inline(always)]
pub fn epoch() -> u32 {
    EPOCH.load(Ordering::Relaxed)
}

/// Switches the agent off for good. Calls pass through; what was recorded stays.
pub fn switch_off() {
    EPOCH.store(OFF, Ordering::SeqCst);
}

/// Makes `run` what is recorded, for a session. The caller holds the process's lock, and nothing
/// records.
pub fn begin(run: &'static Run) {
    static LAST: AtomicU32 = AtomicU32::new(OF_ENVIRONMENT);
    RUN.store(std::ptr::from_ref(run).cast_mut(), Ordering::Release);
    LOADING.store(LOADED, Ordering::Release);
    // After four thousand million of them, the numbers begin anew.
    let mut epoch = LAST.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
    if !(2..IDLE).contains(&epoch) {
        epoch = 2;
        LAST.store(epoch, Ordering::Relaxed);
    }
    let _ = EPOCH.compare_exchange(IDLE, epoch, Ordering::SeqCst, Ordering::Relaxed);
}

/// Records no more, unless the agent is off, which it stays.
pub fn pause() {
    let epoch = epoch();
    if epoch != OFF {
        let _ = EPOCH.compare_exchange(epoch, IDLE, Ordering::SeqCst, Ordering::Relaxed);
    }
}

/// Forgets the run. Whoever holds it may go on using it: it is never freed.
pub fn forget() {
    RUN.store(std::ptr::null_mut(), Ordering::Release);
}

/// Notes that another agent records.
pub fn be_quiet() {
    QUIET.store(true, Ordering::Relaxed);
}

/// What this agent is doing, for whoever asks.
pub fn state() -> AgentState {
    if QUIET.load(Ordering::Relaxed) {
        AgentState::Quiet
    } else if is_off() {
        AgentState::Off
    } else if !wanted() {
        AgentState::Idle
    } else if current().is_none() {
        AgentState::Waiting
    } else {
        AgentState::Recording
    }
}

/// Whether [`switch_off`] was called.
pub fn is_off() -> bool {
    epoch() == OFF
}

/// After a panic of ours: switches the agent off and says so, once.
pub fn fail() {
    let before = EPOCH.swap(OFF, Ordering::SeqCst);
    if before == OFF || before == IDLE && !is_asked_for() {
        return;
    }
    if let Some(process) = current().and_then(Process::existing) {
        return process.lose(Loss::AgentDisabled, 1, 0);
    }
    let mut counted = false;
    with_run_row(|row| {
        row.lose(Loss::AgentDisabled, 1, 0);
        counted = true;
    });
    if !counted {
        sys::complain("counterpoint: the recorder turned itself off after an error of its own\n");
    }
}

/// The run, if one was loaded. For hot paths and for code that may run in signal handlers.
#[inline(always)]
pub fn current() -> Option<&'static Run> {
    // SAFETY: null, or leaked by `load` or a session and never changed again.
    unsafe { RUN.load(Ordering::Acquire).as_ref() }
}

/// The run, loaded now if need be. `None`: no profile was asked for, or it cannot be had; then
/// there is nowhere to say so, and the process goes on as if we were not there.
pub fn load() -> Option<&'static Run> {
    if !wanted() {
        return None;
    }
    if LOADING.load(Ordering::Acquire) == LOADED {
        return current();
    }
    let _calm = sys::SignalsBlocked::new();
    let me = u64::from(sys::process_id()) << 32 | u64::from(sys::thread_id());
    let mut holder = 0;
    loop {
        match LOADING.compare_exchange(holder, me, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => break,
            Err(LOADED) => return current(),
            // A signal interrupted this very thread in the middle of it: not this time.
            Err(other) if other == me => return None,
            // Whoever was at it was not copied into this forked child: take over.
            Err(other) if other >> 32 != me >> 32 => holder = other,
            Err(_) => {
                holder = 0;
                sys::nap();
            }
        }
    }
    let read_now = || {
        point!(Load);
        prepare().then(read).flatten()
    };
    // A panic must not leave the others waiting.
    if let Some(run) = thread::guarded(read_now).flatten() {
        RUN.store(ptr::from_ref(keep(run)).cast_mut(), Ordering::Release);
    } else {
        switch_off();
    }
    LOADING.store(LOADED, Ordering::Release);
    current()
}

/// Makes sure that RUN_FILE_PATH names a run file.
fn prepare() -> bool {
    if !hook_variables::is_on() {
        return true;
    }
    // SAFETY: this thread alone loads, and nobody reads the path before it is done.
    let path =
        unsafe { std::slice::from_raw_parts_mut((&raw mut RUN_FILE_PATH).cast(), PATH_BYTES) };
    hook_variables::prepare(path)
}

fn read() -> Option<Run> {
    // SAFETY: written once, by the constructor or by `prepare`, and terminated by both.
    let path = unsafe { CStr::from_ptr((&raw const RUN_FILE_PATH).cast()) };
    read_from(path)
}

/// Reads a run file and maps its pool.
fn read_from(path: &CStr) -> Option<Run> {
    read_again(path, None)
}

/// Runs of sessions that have ended: the next session takes over the memory of one that no thread
/// uses any more. Under the process's lock.
static mut ENDED: Vec<&'static Run> = Vec::new();

/// Reads the run file of a session.
pub fn read_session(path: &CStr, _: &Lock) -> Option<Run> {
    // SAFETY: the lock is held.
    let ended = unsafe { (&raw mut ENDED).as_mut() }?;
    // A thread that is attaching may have looked at the run before the session ended.
    let calm = thread::nobody_attaches();
    let free = |run: &&Run| calm && run.threads.load(Ordering::SeqCst) == 0;
    let place = ended.iter().position(free);
    let run = read_again(path, place.map(|place| ended[place]))?;
    if let Some(place) = place {
        ended.swap_remove(place);
    }
    Some(run)
}

/// Keeps the run of a session that has ended, for its memory. Under the process's lock.
pub fn retire(run: &'static Run, _: &Lock) {
    // SAFETY: the lock is held.
    if let Some(ended) = unsafe { (&raw mut ENDED).as_mut() } {
        ended.push(run);
    }
}

/// `old`: a run whose pool and part no thread uses, to be made again.
fn read_again(path: &CStr, old: Option<&'static Run>) -> Option<Run> {
    let file = RunFile::from_bytes(&sys::read_file(path).ok()?).ok()?;
    let pool_path = CString::new(std::ffi::OsStr::new(&file.pool).as_bytes()).ok()?;
    let opened = match old {
        // SAFETY: no thread has a state of that run, and so none has a page.
        Some(old) => unsafe { Pool::open_in_place_of(old.pool, &pool_path) },
        None => Pool::open(&pool_path),
    };
    let pool = opened.map_err(|errno| lost_pool(&pool_path, errno)).ok()?;
    if pool.profile_id() != file.id {
        return None; // Another recording has taken its place.
    }
    let ticks_per_ms = ticks_per_ms(&file);
    let plan = Plan::new(file.counters).ok()?;
    let count = plan.counters().len() as u32;
    let part = match old {
        Some(old) => Ok(old.part.begin_anew()),
        None => PartState::make().map_err(|errno| {
            // Linux before 4.14: a fork could not be noticed.
            pool.run_row().lose(Loss::AgentDisabled, 1, errno);
        }),
    };
    Some(Run {
        part: part.ok()?,
        ended: AtomicBool::new(false),
        threads: AtomicU32::new(0),
        bookkeeping: file.bookkeeping,
        profile: file.profile,
        pool,
        pool_path,
        counter_mask: if count == 0 { 0 } else { u32::MAX >> (32 - count) },
        plan,
        clock: file.clock,
        ticks_per_ms,
        filters: file.filters,
    })
}

/// A program that may lock no more memory (`mlockall(MCL_FUTURE)`) maps no more, either. A single
/// page, for a moment, may still be had.
fn lost_pool(path: &CStr, errno: i32) {
    if matches!(errno, libc::EAGAIN | libc::ENOMEM) {
        let _ = record::pool::with_run_row(path, |row| row.lose(Loss::PoolTooSmall, 1, errno));
    }
}

/// From the first snapshot of `run` to now; 3 GHz if there is none. Only paces the thread clock
/// records, never converts anything.
fn ticks_per_ms(file: &RunFile) -> u64 {
    if file.clock == ClockKind::Monotonic {
        return 1_000_000;
    }
    let Some(first) = file.snapshots.first() else { return 3_000_000 };
    let ticks = file.clock.begin().saturating_sub(first.ticks);
    let ns = record::clock::monotonic_ns().saturating_sub(first.monotonic_ns);
    let rate = (u128::from(ticks) * 1_000_000).checked_div(ns.into()).unwrap_or(3_000_000);
    (rate as u64).clamp(10_000, 20_000_000)
}
