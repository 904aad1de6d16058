//! The adapter for profiler plugins: loads those that the run asks for, and drives them from the
//! start of the program, or of a session, to its end.
//!
//! ```text
//!  constructor, session begins ─► Recording::begin    load, create, start
//!  while the program runs ──────► control             pause, continue, hand over
//!  exit, exec, session ends ────► ending              stop, hand over, destroy   (a helper thread)
//!                                      └─► a file of events for each plugin, in the process's part
//! ```
//!
//! | module | purpose |
//! |---|---|
//! | [`recording`] | the plugins of one recording, and what each of them is doing |
//! | [`held`] | the recording while it goes on, and how long its plugins may take |
//! | [`ending`] | ends a recording, and gives up a plugin that takes too long |
//! | [`control`] | a thread that pauses plugins and asks for their events while the program runs |
//!
//! A program that the run does not ask to load plugins runs none of this: the constructor looks at
//! the end of a path that it has copied anyway. A forked child runs none of it either, because the
//! plugins' threads are not there.

mod control;
mod ending;
mod held;
mod recording;

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use crate::adapters::iree;
use crate::os::sys::{self, ErrnoGuard};
use crate::process::guard::guarded;
use crate::process::{load, plugins};
use crate::recorder::adapter::Adapter;
use crate::state::run::{self, Run};
use crate::state::{epoch, run_file};

use recording::Recording;

/// What the recorder knows about this adapter.
pub static ADAPTER: Adapter = Adapter {
    prepare: || {},
    constructed,
    session_began: || {
        if let Some(run) = run::current() {
            begin(run);
        }
    },
    session_ends: end,
    at_exit: end,
    // Plugins have no calls that are bracketed.
    rehearse: |thread, calls, uncounted| (iree::ADAPTER.rehearse)(thread, calls, uncounted),
    has_uncounted: false,
    run_source: None,
};

/// The id of the process whose plugins record; 0 while none do. A child that shares our memory
/// (`vfork`) or has a copy of it has another id.
static RECORDS: AtomicU32 = AtomicU32::new(0);

/// Whether plugins of this very process record. One load if none do.
pub fn record_here() -> bool {
    let process = RECORDS.load(Ordering::Acquire);
    process != 0 && process == sys::process_id()
}

/// Called by the constructor.
fn constructed() {
    if !run_file::asks_for_plugins() {
        return;
    }
    if let Some(run) = load::load() {
        begin(run);
    }
}

/// Loads and starts the plugins that this run asks for, if they are for this program.
fn begin(run: &'static Run) {
    let Some(options) = &run.plugins else { return };
    if record_here() || epoch::is_off() || !options.are_for(&program_name()) {
        return;
    }
    let _errno = ErrnoGuard::new();
    guarded(|| {
        point!(PluginBegin);
        let Some(recording) = Recording::begin(run, options) else { return };
        let needs_control = recording.can_be_controlled();
        held::keep(recording, run);
        RECORDS.store(sys::process_id(), Ordering::Release);
        end_before_destructors();
        if needs_control {
            control::start(run, options);
        }
    });
}

/// Stops the plugins and takes their events. Returns whether they were recording.
fn stop() -> bool {
    let own = sys::process_id();
    // Only one of several threads that end the program or the session does it.
    if !record_here()
        || RECORDS.compare_exchange(own, 0, Ordering::AcqRel, Ordering::Relaxed).is_err()
    {
        return false;
    }
    let _errno = ErrnoGuard::new();
    guarded(|| {
        point!(PluginEnd);
        ending::end();
    });
    true
}

fn end() {
    stop();
}

/// Called before `exec` replaces the program. Returns whether plugins were recording.
pub fn before_exec() -> bool {
    stop()
}

/// Called if `exec` has failed after all, and the program goes on: the plugins record again, into
/// files of their own.
pub fn exec_failed() {
    if let Some(run) = run::current() {
        begin(run);
    }
}

/// The name of this program's file, without its directory.
fn program_name() -> String {
    let path = sys::read_link(c"/proc/self/exe").unwrap_or_default();
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    String::from_utf8_lossy(name).into_owned()
}

/// A path of the run file.
fn path_of(text: &str) -> CString {
    CString::new(std::ffi::OsStr::new(text).as_bytes()).unwrap_or_default()
}

/// Has the plugins end before the static objects of C++ libraries that are loaded by now are
/// destroyed: handlers run in the reverse order of their registration. Without this, a session that
/// the program does not end itself would be ended by our destructor, after the plugins' own objects
/// are gone.
fn end_before_destructors() {
    unsafe extern "C" {
        fn __cxa_atexit(
            function: unsafe extern "C" fn(*mut std::ffi::c_void),
            argument: *mut std::ffi::c_void,
            library: *mut std::ffi::c_void,
        ) -> std::ffi::c_int;
    }
    unsafe extern "C" fn end_now(_: *mut std::ffi::c_void) {
        end();
    }
    /// How many plugins were loaded when it was done last.
    static KNOWN: AtomicUsize = AtomicUsize::new(0);
    let loaded = plugins::loaded().len();
    if KNOWN.swap(loaded, Ordering::Relaxed) < loaded {
        // SAFETY: the function lives as long as the process, because this library is never unloaded.
        unsafe { __cxa_atexit(end_now, std::ptr::null_mut(), std::ptr::null_mut()) };
    }
}
