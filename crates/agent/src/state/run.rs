//! What the run file says, made ready to use. It is loaded when there is something to record
//! ([`crate::process::load`]), or when a session begins.

use std::ffi::{CStr, CString};
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

use counters::Plan;
use model::{Loss, glob};
use record::run_file::LoopOptions;
use record::{ClockKind, Pool, RunFile};

use crate::os::sys;
use crate::state::part_words::PartWords;

/// One recording as this process sees it. Never freed; a forked child has it, too.
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
    /// How instrumented loops are recorded; `None`: they are not.
    pub loops: Option<LoopOptions>,
    /// What this process knows about its part. A forked child finds it zeroed.
    pub part: &'static PartWords,
    /// Set at the end of a session: nothing may become part of it any more.
    pub ended: AtomicBool,
    /// Threads whose state belongs to this run: they may use its pool, even after its end.
    pub threads: AtomicU32,
}

static RUN: AtomicPtr<Run> = AtomicPtr::new(std::ptr::null_mut());

/// Makes `run` the current one.
pub fn set(run: &'static Run) {
    RUN.store(std::ptr::from_ref(run).cast_mut(), Ordering::Release);
}

/// Forgets the current run. Whoever holds it may go on using it: it is never freed.
pub fn forget() {
    RUN.store(std::ptr::null_mut(), Ordering::Release);
}

/// The run, if one was loaded. For hot paths and for code that may run in signal handlers.
#[inline(always)]
pub fn current() -> Option<&'static Run> {
    // SAFETY: null, or what `set` was given, which is never freed nor changed again.
    unsafe { RUN.load(Ordering::Acquire).as_ref() }
}
impl Run {
    /// Whether calls of what has this name are to be recorded.
    pub fn records(&self, name: &str) -> bool {
        self.filters.is_empty() || self.filters.iter().any(|pattern| glob::matches(pattern, name))
    }
}

/// Reads a run file and maps its pool. `old`: a run that no thread uses any more, whose memory the
/// new one takes over.
pub fn read(path: &CStr, old: Option<&'static Run>) -> Option<Run> {
    let file = RunFile::from_bytes(&sys::read_file(path).ok()?).ok()?;
    let pool_path = CString::new(std::ffi::OsStr::new(&file.pool).as_bytes()).ok()?;
    let opened = match old {
        // SAFETY: no thread has a state of that run, so none has a page of it.
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
        None => PartWords::make().map_err(|errno| {
            // Linux before 4.14: a fork could not be noticed.
            pool.run_row().lose(Loss::AgentDisabled, 1, errno);
        }),
    };
    Some(Run {
        part: part.ok()?,
        ended: AtomicBool::new(false),
        threads: AtomicU32::new(0),
        bookkeeping: file.bookkeeping,
        loops: file.loops,
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

/// A program that may lock no more memory (`mlockall(MCL_FUTURE)`) can map no more, either. A single
/// page can often still be mapped for a moment, which is enough to count the loss.
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
