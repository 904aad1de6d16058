//! The contents of the run file (with which `counterpoint run` or a program asks for a profile), in
//! a form that is ready to use.

use std::ffi::{CStr, CString};
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

use counters::Plan;
use model::{Loss, glob};
use record::run_file::{LoopOptions, PluginOptions};
use record::{ClockKind, Pool, RunFile};

use crate::os::sys;
use crate::state::part_words::PartWords;

/// A recording, as this process sees it. It is never freed, and a forked child has a copy.
#[derive(Debug)]
pub struct Run {
    pub profile: String,
    pub pool: Pool,
    pub pool_path: CString,
    pub plan: Plan,
    /// One bit for each counter of the plan.
    pub counter_mask: u32,
    pub clock: ClockKind,
    /// Clock ticks per millisecond, approximately.
    pub ticks_per_ms: u64,
    /// Patterns for the names of the exports (functions) to record. If there are none, all exports
    /// are recorded.
    pub filters: Vec<String>,
    /// Whether counters are also read for bookkeeping ops (ops that only manage their host's data).
    pub bookkeeping: bool,
    /// The part of each thread's processor time that recording may take (the budget), if there is a
    /// limit.
    pub budget: Option<f64>,
    pub exact_counts: bool,
    pub loops: Option<LoopOptions>,
    pub plugins: Option<PluginOptions>,
    /// The data of this process about its part of the profile, zeroed in a forked child.
    pub part: &'static PartWords,
    /// Set at the end of a session (a recording that the program itself begins). After that,
    /// nothing may be added to the process's part.
    pub ended: AtomicBool,
    /// Number of threads whose state belongs to this run. They may use the run's pool (memory that
    /// `counterpoint run` shares with the processes of the run) even after the run's end.
    pub threads: AtomicU32,
}

static RUN: AtomicPtr<Run> = AtomicPtr::new(std::ptr::null_mut());

pub fn set(run: &'static Run) {
    RUN.store(std::ptr::from_ref(run).cast_mut(), Ordering::Release);
}

/// Clears the current run. From now on, [`current`] returns `None`. References that it returned
/// earlier stay valid.
pub fn forget() {
    RUN.store(std::ptr::null_mut(), Ordering::Release);
}

/// Returns the run, if one was loaded. May be called on hot paths and in signal handlers.
#[inline(always)]
pub fn current() -> Option<&'static Run> {
    // SAFETY: `RUN` is null or a value that `set` received, which is neither freed nor changed
    // afterwards.
    unsafe { RUN.load(Ordering::Acquire).as_ref() }
}
impl Run {
    pub fn records(&self, name: &str) -> bool {
        self.filters.is_empty() || self.filters.iter().any(|pattern| glob::matches(pattern, name))
    }
}

/// Reads a run file and maps its pool. The new run reuses the memory of the pool and of the part
/// words of `old`, a run that no thread uses any more.
pub fn read(path: &CStr, old: Option<&'static Run>) -> Option<Run> {
    let file = RunFile::from_bytes(&sys::read_file(path).ok()?).ok()?;
    let pool_path = CString::new(std::ffi::OsStr::new(&file.pool).as_bytes()).ok()?;
    let opened = match old {
        // SAFETY: the caller passes an old run only if no thread's state belongs to it, so no
        // thread uses a page of its pool.
        Some(old) => unsafe { Pool::open_in_place_of(old.pool, &pool_path) },
        None => Pool::open(&pool_path),
    };
    let pool = opened.map_err(|errno| lost_pool(&pool_path, errno)).ok()?;
    if pool.profile_id() != file.id {
        return None; // Another recording has replaced the pool.
    }
    let ticks_per_ms = ticks_per_ms(&file);
    let ns_per_tick = ns_per_tick(&file);
    let plan = Plan::new(file.counters).ok()?.with_steady_ticks(ns_per_tick);
    let count = plan.counters().len() as u32;
    let part = match old {
        Some(old) => Ok(old.part.begin_anew()),
        None => PartWords::make().map_err(|errno| {
            // Linux before 4.14 has no MADV_WIPEONFORK. Without it, the agent could not notice a
            // fork, so nothing is recorded.
            pool.run_row().lose(Loss::AgentDisabled, 1, errno);
        }),
    };
    Some(Run {
        part: part.ok()?,
        ended: AtomicBool::new(false),
        threads: AtomicU32::new(0),
        bookkeeping: file.bookkeeping,
        budget: file.budget,
        exact_counts: file.exact_counts,
        loops: file.loops,
        plugins: file.plugins,
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

/// Counts a loss if the pool could not be mapped because of a limit for memory. Often a single page
/// can still be mapped for a moment, which is enough to count the loss.
fn lost_pool(path: &CStr, errno: i32) {
    if matches!(errno, libc::EAGAIN | libc::ENOMEM) {
        let _ = record::pool::with_run_row(path, |row| row.lose(Loss::PoolTooSmall, 1, errno));
    }
}

/// Returns the length of a tick in nanoseconds, times 2³². It is computed from the first snapshot
/// of the clocks in the run file and the current time. Returns 0 if there is no usable snapshot, or
/// if the length is not needed.
fn ns_per_tick(file: &RunFile) -> u64 {
    /// If at least this much time has passed since the first snapshot, the errors of both clock
    /// readings (some ten nanoseconds) matter little. If the first snapshot is more recent, for
    /// example because a session has just begun, the loop below waits.
    const LONG_ENOUGH_NS: u64 = 1_000_000;
    let Some(first) = file.snapshots.first() else { return 0 };
    if file.clock != ClockKind::Tsc || file.counters.is_empty() {
        return 0;
    }
    loop {
        let before = file.clock.begin();
        let ns = record::clock::monotonic_ns().saturating_sub(first.monotonic_ns);
        let between = file.clock.begin().saturating_sub(before) / 2;
        let ticks = before.saturating_add(between).saturating_sub(first.ticks);
        if ticks == 0 || ns == 0 {
            return 0; // The snapshot is from another machine, or from before a reboot.
        }
        if ns >= LONG_ENOUGH_NS {
            return u64::try_from((u128::from(ns) << 32) / u128::from(ticks)).unwrap_or(0);
        }
    }
}

/// Returns the approximate rate of the run's clock. For the TSC, it is estimated from the first
/// snapshot of the clocks in the run file and the current time. Without a snapshot, 3 GHz are
/// assumed. The result determines how often records of the thread's clocks are written. In a run
/// with a budget, it also serves to convert the recorder's own costs between ticks and nanoseconds.
/// It is never used to convert times of calls.
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
