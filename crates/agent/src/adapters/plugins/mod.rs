//! The adapter for profiler plugins. It loads the plugins that the user named for this run of the
//! profiler, and calls them from the start of a program or session to its end.
//!
//! ```text
//!  before main, session begins ─► recording::begin    load, create, start   (a thread for each call)
//!  while the program runs ──────► control             pause, continue, hand over
//!  exit, exec, session ends ────► recording::end      stop, hand over, destroy   (the same)
//!                                      └─► a file of events for each plugin, in the process's part
//! ```
//!
//! | module | purpose |
//! |---|---|
//! | [`recording`] | begins and ends one recording with plugins |
//! | [`guest`] | a plugin in a recording, and the threads on which it is called |
//! | [`one`] | calls the functions of a plugin, and writes its file of events |
//! | [`control`] | threads that pause plugins and ask for their events while the program runs |
//! | [`threads`] | finds out which threads belong to the program |
//! | [`progress`] | measures how long a plugin has been in a call |
//!
//! The name of the run file says whether the user asked for plugins. If not, the adapter does
//! nothing more. In a forked child of a process that has loaded plugins, no plugin is called,
//! because the plugins' threads do not exist there.

mod control;
mod guest;
mod one;
mod progress;
mod recording;
mod threads;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use crate::os::sys::{self, ErrnoGuard};
use crate::process::panics::guarded;
use crate::process::plugins::{Loaded, Loader};
use crate::process::{load, plugins, program};
use crate::recorder::adapter::Adapter;
use crate::recorder::rehearsal;
use crate::state::run::{self, Run};
use crate::state::{epoch, run_file};

pub static ADAPTER: Adapter = Adapter {
    constructed,
    main_begins,
    session_began: || {
        if let Some(run) = run::current() {
            begin(run, false);
        }
    },
    session_ends: || _ = stop(false),
    at_exit: end,
    // This adapter records no calls, so it measures the recorder's cost per call with empty
    // functions.
    rehearse: rehearsal::rehearse_plain_calls,
    ..Adapter::NOTHING
};

/// The id of the process whose plugins record; 0 while no plugin records. A child process that
/// shares this memory (`vfork`) or has a copy of it has another id.
static RECORDS: AtomicU32 = AtomicU32::new(0);

/// Returns whether plugins record in this process. This costs one atomic load if no plugins record.
pub fn record_here() -> bool {
    let process = RECORDS.load(Ordering::Acquire);
    process != 0 && process == sys::process_id()
}

/// Called by this library's constructor. The plugins are usually loaded later, just before `main`:
/// now, other libraries may not be initialised yet, and `pthread_exit` needs what glibc sets up for
/// `main`. But if this library is loaded after `main` has begun, the plugins are loaded here. In
/// that case, the constructor's thread loads and starts them: it holds the dynamic linker's lock,
/// so another thread could not load a plugin.
fn constructed() {
    if run_file::asks_for_plugins() && !program::will_begin() {
        begin_environment(true);
    }
}

fn main_begins() {
    if run_file::asks_for_plugins() {
        begin_environment(false);
    }
}

fn begin_environment(is_here: bool) {
    if let Some(run) = load::load() {
        begin(run, is_here);
    }
}

/// Loads and starts the plugins that this run asks for in this program. If `is_here` is set, calls
/// them on the calling thread.
fn begin(run: &'static Run, is_here: bool) {
    let Some(options) = &run.plugins else { return };
    let are_for_it =
        options.are_for(&program_name()) && !(options.programs.is_empty() && is_zygote());
    if record_here() || epoch::is_off() || !are_for_it {
        return;
    }
    let _errno = ErrnoGuard::new();
    guarded(|| {
        point!(PluginBegin);
        if recording::begin(run, options, is_here, || stop(true)) {
            RECORDS.store(sys::process_id(), Ordering::Release);
            end_before_destructors();
        }
    });
}

/// Stops the plugins and takes their events. Returns whether they were recording. `program_ends` is
/// true if the process ends after this.
fn stop(program_ends: bool) -> bool {
    let own = sys::process_id();
    // If several threads end the program or the session at once, only one of them stops the
    // plugins.
    if !record_here()
        || RECORDS.compare_exchange(own, 0, Ordering::AcqRel, Ordering::Relaxed).is_err()
    {
        return false;
    }
    let _errno = ErrnoGuard::new();
    guarded(|| {
        point!(PluginEnd);
        recording::end(program_ends);
    });
    true
}

fn end() {
    stop(true);
}

/// Called before `exec` replaces the program. Returns whether plugins were recording.
pub fn before_exec() -> bool {
    stop(false)
}

/// Called before `unshare` and `setns`, which may fail in a process with several threads. If all
/// other threads belong to the agent or to plugins, ends the plugins' recording and with it these
/// threads. Returns whether it did that.
pub fn before_namespaces() -> bool {
    threads::others_are_guests() && stop(false) && {
        threads::wait_until_only_one();
        true
    }
}

/// Lets the plugins record again, into new files.
pub fn record_again() {
    if let Some(run) = run::current() {
        begin(run, false);
    }
}

/// Loads a plugin for another adapter, on a separate thread, which ends when the plugin is loaded.
/// Returns `None` if that thread has not ended within `patience`. Before it ends, it runs the
/// destructors of the plugin's thread-local objects. If no thread can be started, loads the plugin
/// on the calling thread, without a time limit.
pub fn load_apart(file: PathBuf, patience: Duration) -> Option<Vec<&'static Loaded>> {
    let (done, ended) = channel();
    let (deadline, loader) = (Instant::now() + patience, Loader::default());
    let (its, its_loader) = (file.clone(), loader.clone());
    let work = move || {
        let _own = threads::Own::register();
        let _ = done.send(guarded(|| its_loader.load(&[its])).unwrap_or_default());
    };
    let thread = {
        let _calm = sys::SignalsBlocked::for_new_threads();
        let thread = std::thread::Builder::new().name("cp plugin".into());
        thread.stack_size(guest::STACK).spawn(work)
    };
    let Ok(thread) = thread else { return Some(plugins::load(&[file])) };
    match ended.recv_timeout(patience) {
        Ok(loaded) => threads::join_until(thread, deadline).then_some(loaded),
        // The separate thread ended before it sent the list of plugins, for example by
        // `pthread_exit`.
        Err(RecvTimeoutError::Disconnected) => Some(Vec::new()),
        Err(RecvTimeoutError::Timeout) => {
            loader.pass_over();
            None
        }
    }
}

fn program_name() -> String {
    let path = sys::read_link(c"/proc/self/exe").unwrap_or_default();
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    String::from_utf8_lossy(name).into_owned()
}

/// Returns whether this is a zygote: a process of Chromium, or of a program that is built on
/// Chromium (Electron, Qt WebEngine), that only forks other processes. A zygote ends itself if it
/// finds a second thread in /proc/self/task, and its forked children could not use the plugins
/// anyway.
fn is_zygote() -> bool {
    let words = sys::read_file(c"/proc/self/cmdline").unwrap_or_default();
    words.split(|byte| *byte == 0).any(|word| word == b"--type=zygote")
}

/// Registers a handler that ends the plugins when the process exits. The C library runs exit
/// handlers and destructors in the reverse order of their registration. So this handler runs before
/// the destructors of the static C++ objects that exist now. Without this handler, this library's
/// destructor would end the recording after the plugins' own objects are destroyed.
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
    /// Number of plugins that were loaded when [`end_now`] was last registered.
    static KNOWN: AtomicUsize = AtomicUsize::new(0);
    let loaded = plugins::loaded().len();
    if KNOWN.swap(loaded, Ordering::Relaxed) < loaded {
        // SAFETY: `end_now` stays valid, because this library is never unloaded.
        unsafe { __cxa_atexit(end_now, std::ptr::null_mut(), std::ptr::null_mut()) };
    }
}
