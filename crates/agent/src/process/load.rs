//! Loads the run (the contents of the run file) that the environment asks for.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::os::kept::keep;
use crate::os::sys;
use crate::process::cost;
use crate::process::panics::guarded_apart;
use crate::state::run::{self, Run};
use crate::state::{epoch, run_file, source};

/// The progress of loading: 0 before it begins, and [`LOADED`] once the run is loaded or cannot be
/// loaded. In between, the value identifies the thread that is loading: the process id is in the
/// upper half, the thread id in the lower half.
static LOADING: AtomicU64 = AtomicU64::new(0);
const LOADED: u64 = u64::MAX;

/// Stores that the loading has ended. Called by [`load`], and when a session (a recording that the
/// program itself begins) has set its own run, which [`load`] then returns.
pub fn note_loaded() {
    LOADING.store(LOADED, Ordering::Release);
}

/// Returns the run, and loads it if necessary. Returns `None` if nothing is being recorded, in a
/// signal handler that has interrupted the loading, or if the run cannot be loaded. A run that
/// cannot be loaded usually cannot be reported, because the run says where the profile is.
pub fn load() -> Option<&'static Run> {
    if !epoch::wanted() {
        return None;
    }
    if LOADING.load(Ordering::Acquire) == LOADED {
        return run::current();
    }
    let _calm = sys::SignalsBlocked::new();
    let me = u64::from(sys::process_id()) << 32 | u64::from(sys::thread_id());
    let mut holder = 0;
    loop {
        match LOADING.compare_exchange(holder, me, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => break,
            Err(LOADED) => return run::current(),
            // The value `me` shows that this is a signal handler that has interrupted the loading
            // on this thread. It must not wait for its own thread.
            Err(other) if other == me => return None,
            // The other process id shows that this is a forked child; the loading thread exists
            // only in the parent.
            Err(other) if other >> 32 != me >> 32 => holder = other,
            Err(_) => {
                holder = 0;
                sys::nap();
            }
        }
    }
    let read_now = || {
        point!(Load);
        read().map(|run| run::set(keep(run)))
    };
    // A panic is caught here, so `note_loaded` is called in any case. Otherwise, the other threads
    // would wait for ever.
    if cost::of_loading(|| guarded_apart(read_now)).flatten().is_none() {
        epoch::switch_off();
    }
    note_loaded();
    run::current()
}

/// Reads the run file. An adapter that asks for a profile in its own way (a source of runs) makes
/// this file first.
fn read() -> Option<Run> {
    // SAFETY: only this thread loads the run, and no other thread reads the path before this thread
    // is done.
    if source::current().is_some_and(|source| !(source.prepare)(unsafe { run_file::path_mut() })) {
        return None;
    }
    // SAFETY: only this thread loads the run, so nobody writes the path now.
    run::read(unsafe { run_file::path() }, None)
}
