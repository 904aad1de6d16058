//! Measures the processor time that this library uses outside of recorded calls: for its
//! constructor, for loading the run file, and for registering libraries. The time for preparing a
//! thread to record is stored in the thread's first page of records instead.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use record::meta::ProcessCost;

use crate::os::sys;

static CONSTRUCTOR_NS: AtomicU64 = AtomicU64::new(0);
static AFTER_READING_TICKS: AtomicU64 = AtomicU64::new(0);
static LOADING_NS: AtomicU64 = AtomicU64::new(0);

/// The id of the process that has spent the times above. A forked child has another id, so it does
/// not report its parent's times as its own.
static OF: AtomicU32 = AtomicU32::new(0);

fn timed<T>(sum: &AtomicU64, body: impl FnOnce() -> T) -> T {
    let begun_ns = record::clock::thread_cpu_ns();
    let result = body();
    sum.fetch_add(record::clock::thread_cpu_ns().wrapping_sub(begun_ns), Ordering::Relaxed);
    result
}

pub fn of_constructor<T>(body: impl FnOnce() -> T) {
    OF.store(sys::process_id(), Ordering::Relaxed);
    timed(&CONSTRUCTOR_NS, body);
}

/// Runs work that must be done before calls can be recorded, and measures its time.
pub fn of_loading<T>(body: impl FnOnce() -> T) -> T {
    timed(&LOADING_NS, body)
}

/// Adds processor time that other parts of Counterpoint used for loading, such as the hook for
/// Python programs.
pub fn add(cpu_ns: u64) {
    LOADING_NS.fetch_add(cpu_ns, Ordering::Relaxed);
}

/// Stores how many ticks longer other code takes if it runs immediately after a reading of the
/// counters.
pub fn set_after_reading(ticks: u64) {
    AFTER_READING_TICKS.store(ticks, Ordering::Relaxed);
}

pub fn so_far() -> ProcessCost {
    let mine = OF.load(Ordering::Relaxed) == sys::process_id();
    let own = |sum: &AtomicU64| if mine { sum.load(Ordering::Relaxed) } else { 0 };
    ProcessCost {
        constructor_ns: own(&CONSTRUCTOR_NS),
        loading_ns: own(&LOADING_NS),
        after_reading_ticks: AFTER_READING_TICKS.load(Ordering::Relaxed),
        process_cpu_ns: 0,
    }
}

/// Returns the costs, and sets the times of constructor and loading to 0 for the next session (a
/// recording that the program itself begins).
pub fn take(process_ends: bool) -> ProcessCost {
    let process_cpu_ns = if process_ends { record::clock::process_cpu_ns() } else { 0 };
    let cost = ProcessCost { process_cpu_ns, ..so_far() };
    CONSTRUCTOR_NS.store(0, Ordering::Relaxed);
    LOADING_NS.store(0, Ordering::Relaxed);
    cost
}
