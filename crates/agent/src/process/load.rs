//! Loading the run of the environment: at the first thing to record, by whichever thread meets it.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::os::kept::keep;
use crate::os::sys;
use crate::process::guard::guarded;
use crate::state::run::{self, Run};
use crate::state::{epoch, run_file, source};

/// 0 before; [`LOADED`] once the run is loaded or known to be impossible; otherwise which thread is
/// loading it, the process id in the high half and the thread id in the low one.
static LOADING: AtomicU64 = AtomicU64::new(0);
const LOADED: u64 = u64::MAX;

/// Nothing is left to be loaded: a session has brought its own run.
pub fn note_loaded() {
    LOADING.store(LOADED, Ordering::Release);
}

/// The run, loaded now if need be. `None`: no profile was asked for, or it cannot be opened; then
/// there is nowhere to report that, and the process goes on as if we were not there.
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
            // A signal has interrupted this very thread while it was loading: not this time.
            Err(other) if other == me => return None,
            // The thread that was loading was not copied into this forked child: take over.
            Err(other) if other >> 32 != me >> 32 => holder = other,
            Err(_) => {
                holder = 0;
                sys::nap();
            }
        }
    }
    let read_now = || {
        point!(Load);
        read()
    };
    // A panic must not leave the others waiting.
    if let Some(run) = guarded(read_now).flatten() {
        run::set(keep(run));
    } else {
        epoch::switch_off();
    }
    note_loaded();
    run::current()
}

/// Reads the run file, which a source of runs makes first if there is one.
fn read() -> Option<Run> {
    // SAFETY: only this thread loads, and nobody reads the path before it is done.
    if source::current().is_some_and(|source| !(source.prepare)(unsafe { run_file::path_mut() })) {
        return None;
    }
    // SAFETY: as above.
    run::read(unsafe { run_file::path() }, None)
}
