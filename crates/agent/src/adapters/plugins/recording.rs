//! The profiler plugins of one recording in this process. The agent usually calls each plugin on
//! threads that run nothing else ([`super::guest`]). If a plugin hangs on such a thread, only the
//! events that it has not handed over are lost.

use std::ffi::{CStr, c_void};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use plugin_host::catch::crash;
use record::pool::PluginControl;
use record::run_file::PluginOptions;

use super::guest::{Call, Guest};
use super::one::One;
use super::progress::Progress;
use super::{control, threads};
use crate::os::kept::keep;
use crate::os::sys;
use crate::process::part::Process;
use crate::process::plugin_ids;
use crate::process::plugins::{self, Loader};
use crate::recorder::collectors;
use crate::state::run::Run;

/// The plugins that record. The lock is not held during a call of a plugin. A forked child must not
/// use it, because another thread may have held it at the fork.
static GUESTS: Mutex<Vec<&'static Guest>> = Mutex::new(Vec::new());

/// Loads the plugins, and creates and starts their sessions. Returns false if this process cannot
/// use plugins or has no part of the profile. If `is_here` is set, calls the plugins on the calling
/// thread, which holds the dynamic linker's lock: plugins on other threads would wait for the lock.
/// `stop` must end the recording; a control thread calls it when the program has no thread of its
/// own any more.
pub fn begin(
    run: &'static Run,
    options: &'static PluginOptions,
    is_here: bool,
    stop: fn() -> bool,
) -> bool {
    let Some(process) = Process::current(run) else { return false };
    plugins::set_level(options.log_level);
    if let Some(why) = obstacle() {
        refuse(process, options, &why);
        return false;
    }
    let was_alone = threads::is_only_one();
    let patience = Duration::from_millis(options.patience_ms);
    let (mut guests, mut numbers) = (Vec::new(), Vec::new());
    for file in &options.files {
        let progress = Arc::new(Progress::default());
        // The plugin's file is begun before the plugin is loaded, because loading can crash.
        let Some(one) = One::new(process, options, file, Arc::clone(&progress)) else { continue };
        let guest: &'static Guest = keep(Guest::new(one, progress, patience));
        let (others, loader) = (numbers.clone(), Loader::default());
        let its = loader.clone();
        if call(guest, is_here, move |one| one.load(file, &its, &others)) {
            guest.with(|one| {
                numbers.extend(one.number());
                guest.set_number(one.number());
                one.take_events_with(take_events);
            });
        } else {
            loader.pass_over();
        }
        guests.push(guest);
    }
    for guest in &guests {
        call(guest, is_here, |one| one.create(options));
    }
    let word = run.pool.run_row().plugin_control.load(Ordering::SeqCst);
    let paused = PluginControl::of_word(word).paused;
    for guest in &guests {
        call(guest, is_here, move |one| one.start(paused));
    }
    if options.ids {
        let mut takers = Vec::new();
        for guest in &guests {
            guest.with(|one| takers.extend(one.correlations()));
        }
        collectors::set_plugin_ids(plugin_ids::begin(takers));
    }
    let have_threads = threads::note_guests(was_alone);
    GUESTS.lock().unwrap_or_else(PoisonError::into_inner).clone_from(&guests);
    control::start(run, options, &guests, have_threads, stop);
    true
}

/// Calls a plugin and waits until it returns. Returns false if the plugin was given up.
fn call(
    guest: &'static Guest,
    is_here: bool,
    body: impl FnOnce(&mut One) + Send + 'static,
) -> bool {
    if is_here {
        let _calm = sys::SignalsBlocked::for_new_threads();
        return guest.with(body);
    }
    guest.begin_call(body).wait()
}

/// Called on a thread of a plugin that wants to hand over events. Does not wait for a lock: the
/// thread that holds it may be calling the plugin, and the plugin may be waiting for the present
/// thread.
fn take_events(number: u32, session: *mut c_void) -> bool {
    if !plugins::are_usable() {
        return false;
    }
    let guest = match GUESTS.try_lock() {
        Ok(guests) => guests.iter().find(|guest| guest.number() == Some(number)).copied(),
        Err(_) => None,
    };
    let mut taken = false;
    if let Some(guest) = guest {
        guest.try_with(|one| taken = one.take_events(session));
    }
    taken
}

/// Stops all plugins, takes their events, and ends their files. All plugins are stopped before the
/// events of the first one are taken: taking them can take long, and the other plugins would still
/// be recording. `program_ends` is true if the process ends after this. In this case, faults (such
/// as SIGSEGV) in plugins are caught, because the other plugins and the program still have
/// something to write.
pub fn end(program_ends: bool) {
    let guests = std::mem::take(&mut *GUESTS.lock().unwrap_or_else(PoisonError::into_inner));
    control::wake();
    collectors::set_plugin_ids(false);
    plugin_ids::end();
    let caught = program_ends.then(crash::Caught::new);
    for step in [One::stop, One::end] {
        let begin = |guest: &&'static Guest| {
            if program_ends { guest.begin_last_call(step) } else { guest.begin_call(step) }
        };
        let calls: Vec<Call> = guests.iter().map(begin).collect();
        for call in calls {
            call.wait();
        }
    }
    drop(caught);
    if let (true, Some(signal), Some(guest)) = (program_ends, crash::Caught::last(), guests.first())
    {
        end_by_signal_after(guest.patience(), signal);
    }
}

/// Ends the process by `signal`, with which a plugin has crashed, if the process has not ended by
/// itself after `time`. A plugin that has crashed may hold a lock that the program's end needs,
/// such as that of `malloc`.
fn end_by_signal_after(time: Duration, signal: i32) {
    let _calm = sys::SignalsBlocked::for_new_threads();
    let work = move || {
        std::thread::sleep(time);
        sys::end_process_by(signal);
    };
    let _ = std::thread::Builder::new().name("cp plugin".into()).spawn(work);
}

/// Tools that check a whole process, each recognised by one of its symbols. They would report false
/// errors in plugins. ThreadSanitizer and MemorySanitizer see only a part of what a plugin does if
/// the plugin was not compiled for them. In a forked child, LeakSanitizer and valgrind report a
/// leak of memory that only a thread of the parent process has used.
const CHECKERS: [(&CStr, &str); 4] = [
    (c"__tsan_init", "ThreadSanitizer"),
    (c"__msan_init", "MemorySanitizer"),
    (c"__lsan_do_leak_check", "AddressSanitizer or LeakSanitizer"),
    // This symbol is in the library that valgrind preloads for all of its tools.
    (c"_vgnU_freeres", "valgrind"),
];

/// Returns why this process cannot use plugins, or `None` if it can.
fn obstacle() -> Option<String> {
    if !plugins::are_usable() {
        return Some(
            "cannot be used in a forked child of a process that has loaded plugins".to_owned(),
        );
    }
    // SAFETY: `symbol` is a C string, and dlsym takes RTLD_DEFAULT in place of a handle.
    let has =
        |symbol: &CStr| unsafe { !libc::dlsym(libc::RTLD_DEFAULT, symbol.as_ptr()).is_null() };
    let (_, name) = CHECKERS.into_iter().find(|(symbol, _)| has(symbol))?;
    Some(format!("is not used in a program with {name}, which would report the plugin's own work"))
}

/// Writes to the profile why this process uses no plugins.
fn refuse(process: Process, options: &PluginOptions, why: &str) {
    for file in &options.files {
        let Some(one) = One::new(process, options, file, Arc::default()) else { return };
        one.refuse(why);
    }
}
