//! Profiler plugins inside PyTorch's own profiler. The shim (a small library compiled against the
//! user's PyTorch) calls this module's functions through a table, which
//! `include/counterpoint/torch_plugins.h` documents.
//!
//! ```text
//!  torch.profiler ──► child profiler (shim) ──► Recording ──► plugin_host ──► plugin
//!                                                                              │ events
//!  kineto's results ◄── child profiler (shim) ◄── HandOver: safe texts, ids ◄──┘
//! ```
//!
//! | module | purpose |
//! |---|---|
//! | [`hand_over`] | converts a plugin's events into events that are safe for PyTorch's writer |
//! | [`kinds`] | decides which types of events a plugin is asked for |
//! | [`safe_text`] | makes names and JSON values safe |
//!
//! Each plugin is loaded once in a process ([`crate::process::plugins`]), and another adapter can
//! use it at the same time.

mod hand_over;
mod kinds;
mod safe_text;

use std::ffi::{CStr, CString, c_char};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use abi::torch::plugins::{NO_CUPTI, Session as RawSession, Sink, Table, VERSION};
use plugin_host::session::Stack;
use plugin_host::{Correlation, Problem, Profiler, Session, Setup, discover, fit};

use crate::adapters::plugins::load_apart;
use crate::os::sys::{self, ErrnoGuard};
use crate::process::panics::guarded;
use crate::process::plugins::{self, Loaded};
use hand_over::HandOver;

/// The table documented in `include/counterpoint/torch_plugins.h`.
#[allow(non_upper_case_globals, reason = "a C name")]
#[unsafe(no_mangle)]
pub static counterpoint_torch_plugins: Table = Table {
    size: size_of::<Table>() as u32,
    version: VERSION,
    say,
    switches,
    load,
    name,
    create,
    stacks,
    start,
    toggle,
    stop,
    process,
    destroy,
    push,
    pop,
};

/// A child profiler (PyTorch's term): one profiler of a plugin, as the shim registers it with
/// PyTorch.
struct Child {
    plugin: &'static Loaded,
    profiler: &'static Profiler,
    name: CString,
}

static CHILDREN: OnceLock<Vec<Child>> = OnceLock::new();

/// Whether this process has already printed that it records no plugins because it was forked.
static CHILD_TOLD: AtomicBool = AtomicBool::new(false);

/// One profiler of a plugin, while PyTorch's profiler makes one recording.
struct Recording {
    child: &'static Child,
    /// [`Recording::control`] holds this lock while it calls the session.
    session: Mutex<Session<'static>>,
    correlation: Correlation,
}

extern "C" fn switches() -> u32 {
    let value = variable(c"KINETO_DISABLE_CUPTI");
    if value.is_some_and(|value| !matches!(value, b"" | b"0")) { NO_CUPTI } else { 0 }
}

unsafe extern "C" fn say(line: *const c_char) {
    guarded(|| {
        if !line.is_null() {
            // SAFETY: torch_plugins.h requires that `line` is null or a C string.
            complain(&unsafe { CStr::from_ptr(line) }.to_string_lossy());
        }
    });
}

fn variable(name: &CStr) -> Option<&'static [u8]> {
    // SAFETY: `name` is a C string, so `getenv` returns null or a C string. Its bytes stay valid as
    // long as nobody changes this variable. PyTorch's own calls of `getenv` assume the same.
    unsafe {
        let value = libc::getenv(name.as_ptr());
        (!value.is_null()).then(|| CStr::from_ptr(value).to_bytes())
    }
}

fn complain(line: &str) {
    sys::complain(&format!("counterpoint: {line}\n"));
}

/// Passed to [`complain_once`] for lines about the user's settings.
const SETTINGS: u32 = u32::MAX;

/// Writes a line to stderr, at most once for each `about` (usually the number of a plugin). With a
/// schedule, PyTorch's profiler makes any number of recordings, which would all write the same
/// line.
fn complain_once(about: u32, line: &str) {
    static TOLD: Mutex<Vec<u32>> = Mutex::new(Vec::new());
    let mut told = TOLD.lock().unwrap_or_else(PoisonError::into_inner);
    if !told.contains(&about) {
        told.push(about);
        complain(line);
    }
}

extern "C" fn load() -> u32 {
    let count = guarded(|| {
        point!(TorchPluginsLoad);
        CHILDREN.get_or_init(children).len() as u32
    });
    count.unwrap_or(0)
}

/// Loads the plugins from the directory that `KINETO_PLUGIN_LIB_DIR_PATH` names, and returns their
/// profilers.
fn children() -> Vec<Child> {
    let Some(directory) = variable(abi::kineto::DIRECTORY_VARIABLE).filter(|path| !path.is_empty())
    else {
        return Vec::new();
    };
    // A process with more rights than its user (setuid) must not load what the user chooses.
    if sys::has_more_rights() {
        return Vec::new();
    }
    let directory =
        Path::new(<std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(directory));
    let files = match discover(directory) {
        Ok(files) => files,
        Err(error) => {
            complain(&format!("read plugins from {}: {error}", directory.display()));
            return Vec::new();
        }
    };
    if files.is_empty() {
        complain(&format!(
            "there is no plugin (a file that ends in .so) in {}",
            directory.display()
        ));
    }
    let files: Vec<_> = files.into_iter().filter(|file| may_load(file)).collect();
    let patience = patience();
    let mut loaded: Vec<&'static Loaded> = Vec::new();
    for file in files {
        let Some(found) = load_apart(file.clone(), patience) else {
            let seconds = patience.as_secs();
            complain(&format!(
                "plugin {}: loading it took longer than {seconds} s",
                file.display()
            ));
            continue;
        };
        for one in found {
            // The directory may contain the same file under two names.
            if !loaded.iter().any(|other| other.number == one.number) {
                loaded.push(one);
            }
        }
    }
    loaded.iter().for_each(|plugin| tell(plugin));
    let children = loaded.into_iter().flat_map(|plugin| {
        plugin.plugin.profilers.iter().map(move |profiler| Child {
            plugin,
            profiler,
            name: safe_text::name(profiler.name.as_bytes()),
        })
    });
    children.collect()
}

fn patience() -> Duration {
    let seconds = variable(c"COUNTERPOINT_PLUGIN_TIMEOUT");
    let seconds = seconds.and_then(|text| std::str::from_utf8(text).ok()?.trim().parse().ok());
    Duration::from_secs(seconds.unwrap_or(30).max(1))
}

/// Returns whether this process may load a plugin from this file. A process of root may not if all
/// users, or a group other than root's, could change the file or its path
/// ([`fit::exposed_to_others`]). As root, prints a line if any other user could change the file or
/// its path.
fn may_load(file: &Path) -> bool {
    let Some(exposed) = fit::exposed_to_others(file, true) else { return true };
    let does = if exposed.is_refused { "does not load it" } else { "loads it all the same" };
    complain(&format!("plugin {}: root {does}: {exposed}", file.display()));
    !exposed.is_refused
}

/// Prints the lines that a plugin has logged, and its problems. Each problem is printed once per
/// process.
fn tell(plugin: &Loaded) {
    static TOLD: Mutex<Vec<(u32, Problem)>> = Mutex::new(Vec::new());
    let file = plugin.plugin.file.display();
    for line in plugins::take_lines(plugin.number) {
        complain(&format!("{file}: {}", line.text));
    }
    let mut told = TOLD.lock().unwrap_or_else(PoisonError::into_inner);
    for (problem, count) in plugin.plugin.problems.all() {
        let known = (plugin.number, problem);
        if !told.contains(&known) {
            let often = if count > 1 { format!(" ({count} times)") } else { String::new() };
            complain(&format!("{file}: {}{often}", known.1));
            told.push(known);
        }
    }
}

fn child(profiler: u32) -> Option<&'static Child> {
    CHILDREN.get()?.get(profiler as usize)
}

extern "C" fn name(profiler: u32) -> *const c_char {
    guarded(|| child(profiler).map_or(std::ptr::null(), |child| child.name.as_ptr()))
        .unwrap_or(std::ptr::null())
}

unsafe extern "C" fn create(
    profiler: u32,
    requested: *const u32,
    count: usize,
    configuration: *const c_char,
) -> RawSession {
    let recording = guarded(|| {
        point!(TorchPluginsCreate);
        if !plugins::are_usable() {
            // A forked child records no plugins, because other threads of the parent may have held
            // our locks at the fork.
            if !CHILD_TOLD.swap(true, Ordering::Relaxed) {
                complain(
                    "PyTorch records no plugins in this process, which was forked from one that \
                     has loaded them; start it with multiprocessing's method spawn",
                );
            }
            return None;
        }
        // SAFETY: torch_plugins.h requires that `requested` points to `count` numbers and that
        // `configuration` is null or a C string.
        let (requested, configuration) = unsafe {
            let requested: &[u32] =
                if count == 0 { &[] } else { std::slice::from_raw_parts(requested, count) };
            let text = if configuration.is_null() {
                &[][..]
            } else {
                CStr::from_ptr(configuration).to_bytes()
            };
            (requested, text)
        };
        let child = child(profiler)?;
        let (wanted, complaint) = kinds::wanted(
            requested,
            configuration,
            &child.profiler.types,
            &child.plugin.host.types(),
        );
        if let Some(complaint) = complaint {
            complain_once(SETTINGS, &complaint);
        }
        let text = kinds::setting(configuration, "COUNTERPOINT_PLUGIN_CONFIG", "CUSTOM_CONFIG")
            .or_else(|| variable(c"COUNTERPOINT_PLUGIN_CONFIG"));
        let text = CString::new(text.unwrap_or_default()).unwrap_or_default();
        let setup = Setup { types: &wanted, configuration: &text, ..Setup::default() };
        let session = child.profiler.create(&setup);
        if session.is_none() {
            tell(child.plugin);
        }
        let session = session?;
        let correlation = session.correlation();
        Some(Box::new(Recording { child, session: Mutex::new(session), correlation }))
    });
    recording.flatten().map_or(std::ptr::null_mut(), |recording| Box::into_raw(recording).cast())
}

/// Calls `body` with the recording that `session` points to. Returns `None` if `session` is null or
/// `body` panics.
///
/// # Safety
/// `session` must be null or a recording that was not destroyed.
unsafe fn with<R>(session: RawSession, body: impl FnOnce(&Recording) -> R) -> Option<R> {
    let _errno = ErrnoGuard::new();
    // SAFETY: by contract, `session` is null or a recording that was not destroyed.
    let recording = unsafe { session.cast::<Recording>().as_ref() }?;
    guarded(|| body(recording))
}

fn result(agreed: Option<bool>) -> i32 {
    if agreed == Some(true) { 0 } else { -1 }
}

impl Recording {
    /// Calls the session while the calling thread holds the session's lock, so that such calls do
    /// not overlap. Returns the result of `call`. In a process that was forked from the one that
    /// loaded the plugins, only returns false.
    fn control(&self, call: impl FnOnce(&mut Session<'static>) -> bool) -> bool {
        // In a forked child, the lock may be held for ever, because its holder exists only in the
        // parent.
        plugins::are_usable()
            && call(&mut self.session.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

unsafe extern "C" fn stacks(session: RawSession) -> u32 {
    // SAFETY: torch_plugins.h requires that `session` is a recording that was not destroyed.
    let wanted = unsafe {
        with(session, |recording| {
            let ops = u32::from(recording.correlation.wants(Stack::Ops));
            ops | u32::from(recording.correlation.wants(Stack::User)) << 1
        })
    };
    wanted.unwrap_or(0)
}

unsafe extern "C" fn start(session: RawSession) -> i32 {
    // SAFETY: torch_plugins.h requires that `session` is a recording that was not destroyed.
    result(unsafe {
        with(session, |recording| {
            point!(TorchPluginsStart);
            recording.control(Session::start)
        })
    })
}

unsafe extern "C" fn toggle(session: RawSession, enabled: u32) -> i32 {
    // SAFETY: torch_plugins.h requires that `session` is a recording that was not destroyed.
    result(unsafe { with(session, |recording| recording.control(|s| s.toggle(enabled != 0))) })
}

unsafe extern "C" fn stop(session: RawSession) -> i32 {
    // SAFETY: torch_plugins.h requires that `session` is a recording that was not destroyed.
    result(unsafe {
        with(session, |recording| {
            point!(TorchPluginsStop);
            recording.control(Session::stop)
        })
    })
}

unsafe extern "C" fn process(session: RawSession, sink: *const Sink) -> i32 {
    // SAFETY: torch_plugins.h requires a recording that was not destroyed, and a sink that lives
    // during the call.
    result(unsafe {
        with(session, |recording| {
            point!(TorchPluginsProcess);
            let Some(sink) = sink.as_ref().filter(|sink| sink.size as usize >= size_of::<Sink>())
            else {
                return false;
            };
            let mut hand_over = HandOver::new(sink, recording.child.plugin.host);
            let agreed = recording.control(|session| session.process(&mut hand_over));
            if let Some(complaint) = hand_over.finish() {
                let line = format!("{}: {complaint}", recording.child.plugin.plugin.file.display());
                complain_once(recording.child.plugin.number, &line);
            }
            agreed
        })
    })
}

unsafe extern "C" fn destroy(session: RawSession) {
    let _errno = ErrnoGuard::new();
    guarded(|| {
        point!(TorchPluginsDestroy);
        if session.is_null() {
            return;
        }
        // SAFETY: `create` made the recording with `Box::into_raw`, and torch_plugins.h forbids any
        // further use of it.
        let recording = unsafe { Box::from_raw(session.cast::<Recording>()) };
        let plugin = recording.child.plugin;
        let usable = plugins::are_usable();
        drop(recording);
        if usable {
            tell(plugin);
        }
    });
}

fn stack(number: u32) -> Stack {
    if number == Stack::Ops as u32 { Stack::Ops } else { Stack::User }
}

unsafe extern "C" fn push(session: RawSession, number: u32, id: u64) {
    // SAFETY: torch_plugins.h requires that `session` is a recording that was not destroyed.
    unsafe { with(session, |recording| recording.correlation.push(stack(number), id)) };
}

unsafe extern "C" fn pop(session: RawSession, number: u32) {
    // SAFETY: torch_plugins.h requires that `session` is a recording that was not destroyed.
    unsafe { with(session, |recording| recording.correlation.pop(stack(number))) };
}
