//! Panics or raises signals on demand. With this, tests check that no internal error of the agent
//! reaches the host. This file is compiled only with the feature `inject-panics`, which no release
//! enables.
//!
//! `COUNTERPOINT_INJECT=NAME:ACTION` names a point (a place in the agent's code, marked by
//! `point!`) and an action. The action `panic` panics each time the agent reaches the point. The
//! action `signal` raises SIGUSR2 once, when the point is reached and the host has a handler for
//! this signal. The host sees this as a signal that arrived at that instruction. The library
//! exports the list of points, so that a test can try all of them.
//!
//! If `COUNTERPOINT_INJECT_LOG=FILE` is set, the name of each point is appended to the file when a
//! process first reaches the point.

use std::ffi::{CStr, c_char};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

macro_rules! points {
    ($( $name:ident, )*) => {
        /// A place in the agent at which a test can inject a panic or a signal.
        #[derive(Clone, Copy, PartialEq, Eq)]
        #[repr(u32)]
        pub enum Point { $( $name, )* }

        const NAMES: &[&str] = &[ $( stringify!($name), )* ];
        /// The names of the points, each followed by a line feed.
        const LINES: &[&str] = &[ $( concat!(stringify!($name), "\n"), )* ];
        const LIST: &str = concat!($( stringify!($name), "\n", )* "\0");
    };
}

points! {
    Constructor, Destructor,
    Dlsym, WrapQuery, TakeIn, Mmap, Mprotect,
    Load, ProcessStart, ForkedChild, HookPrepare, HookReport,
    Attach, ThreadMade, Calibrate, ThreadExit,
    Begin, BeginNested, End, Record, ClockRecord, Flush, Append,
    CallHookBegin, CallHookMeet, CallHookEnd,
    ExecLook, ExecCount,
    SanitizerOptions,
    SessionBegin, SessionEnd,
    OpBefore, OpAfter, OpMake, OpTell, RunBegin, RunEnd, RegionBegin, RegionEnd, TaskBegin, TaskEnd,
    HostMachine, HostOpBegin, HostOpEnd,
    Workspace, Exported, CollectorStart, CollectorStop,
    TorchBegin, TorchEnd, TorchBeginApart, TorchEndApart, TorchWatch,
    TorchRegionBegin, TorchRegionEnd, TorchTaskBegin, TorchTaskEnd,
    TorchPluginsLoad, TorchPluginsCreate, TorchPluginsStart, TorchPluginsStop, TorchPluginsProcess,
    TorchPluginsDestroy, TorchLogBegin, TorchLogEntry, TorchLogEnd, TorchLogFile, TorchLogInvalid,
    PluginBegin, PluginControl, PluginWrite, PluginEnd,
    LoopRegister, LoopCode, LoopUnregister, LoopEnter, LoopLog, LoopBegin, LoopEnd, LoopThreadEnd,
}

/// Returns the names of the points, each followed by a line feed.
#[unsafe(no_mangle)]
pub extern "C" fn counterpoint_injection_points() -> *const c_char {
    LIST.as_ptr().cast()
}

const UNKNOWN: u32 = u32::MAX;
const NONE: u32 = u32::MAX - 1;
static CHOSEN: AtomicU32 = AtomicU32::new(UNKNOWN);
static SIGNALS: AtomicBool = AtomicBool::new(false);
static REACHED: AtomicU32 = AtomicU32::new(0);

/// Logs the point, and performs the requested action if the environment names this point.
#[inline(never)]
pub fn reach(point: Point) {
    log(point);
    let mut chosen = CHOSEN.load(Ordering::Relaxed);
    if chosen == UNKNOWN {
        chosen = choose();
        CHOSEN.store(chosen, Ordering::Relaxed);
    }
    if chosen != point as u32 {
        return;
    }
    if !SIGNALS.load(Ordering::Relaxed) {
        panic!("injected");
    }
    // SAFETY: a `sigaction` may consist of zeros, and the call overwrites them. SIGUSR2 is raised
    // only if there is a handler, because without one it would kill the process.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(libc::SIGUSR2, std::ptr::null(), &mut action);
        if action.sa_sigaction > 1 && REACHED.fetch_add(1, Ordering::Relaxed) == 0 {
            libc::raise(libc::SIGUSR2);
        }
    }
}

/// One bit for each point that this process has logged.
static LOGGED: [AtomicU32; NAMES.len().div_ceil(32)] =
    [const { AtomicU32::new(0) }; NAMES.len().div_ceil(32)];

/// Appends the point's name to the file of `COUNTERPOINT_INJECT_LOG` when the process reaches the
/// point for the first time. Changes neither `errno` nor the host's open descriptors.
fn log(point: Point) {
    let (word, bit) = (point as usize / 32, 1 << (point as u32 % 32));
    if LOGGED[word].fetch_or(bit, Ordering::Relaxed) & bit != 0 || crate::os::sys::has_more_rights()
    {
        return;
    }
    let line = LINES[point as usize];
    // SAFETY: the names are C strings, `getenv` returns null or a C string, and `line` has the
    // length that is passed.
    unsafe {
        let file = libc::getenv(c"COUNTERPOINT_INJECT_LOG".as_ptr());
        if file.is_null() {
            return;
        }
        let errno = *libc::__errno_location();
        let flags = libc::O_WRONLY | libc::O_APPEND | libc::O_CLOEXEC;
        let file = libc::syscall(libc::SYS_openat, libc::AT_FDCWD, file, flags);
        if file >= 0 {
            libc::syscall(libc::SYS_write, file, line.as_ptr(), line.len());
            libc::syscall(libc::SYS_close, file);
        }
        *libc::__errno_location() = errno;
    }
}

fn choose() -> u32 {
    if crate::os::sys::has_more_rights() {
        return NONE;
    }
    // SAFETY: the name is a C string, so `getenv` returns null or a C string.
    let value = unsafe { libc::getenv(c"COUNTERPOINT_INJECT".as_ptr()) };
    if value.is_null() {
        return NONE;
    }
    // SAFETY: `getenv` returned a C string, and tests do not change this variable.
    let value = unsafe { CStr::from_ptr(value) }.to_str().unwrap_or_default();
    let (name, action) = value.split_once(':').unwrap_or((value, "panic"));
    SIGNALS.store(action == "signal", Ordering::Relaxed);
    NAMES.iter().position(|known| *known == name).map_or(NONE, |at| at as u32)
}
