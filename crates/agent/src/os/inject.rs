//! Panics on demand, for the test that no error of ours reaches the host. Built only with the
//! feature `inject-panics`, which no release has.
//!
//! `COUNTERPOINT_INJECT=NAME:ACTION` names a point and what happens when it is reached: `panic`,
//! every time, or `signal`, which raises SIGUSR2 there the first time: as if a signal had come at
//! that very instruction. The library exports the list of points, so that a test meets each.

use std::ffi::{CStr, c_char};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

macro_rules! points {
    ($( $name:ident, )*) => {
        /// A place in the agent.
        #[derive(Clone, Copy, PartialEq, Eq)]
        #[repr(u32)]
        pub enum Point { $( $name, )* }

        const NAMES: &[&str] = &[ $( stringify!($name), )* ];
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
    Workspace, Exported, CollectorStart, CollectorStop,
    LoopRegister, LoopUnregister, LoopEnter, LoopLog, LoopBegin, LoopEnd, LoopThreadEnd,
}

/// The points' names, each ended by a line feed.
#[unsafe(no_mangle)]
pub extern "C" fn counterpoint_injection_points() -> *const c_char {
    LIST.as_ptr().cast()
}

const UNKNOWN: u32 = u32::MAX;
const NONE: u32 = u32::MAX - 1;
static CHOSEN: AtomicU32 = AtomicU32::new(UNKNOWN);
static SIGNALS: AtomicBool = AtomicBool::new(false);
static REACHED: AtomicU32 = AtomicU32::new(0);

/// Does what was asked for at this point. Inlined nowhere: the released code has no trace of it.
#[inline(never)]
pub fn reach(point: Point) {
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
    // SAFETY: an all-zero value is overwritten; without a handler the signal would kill.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(libc::SIGUSR2, std::ptr::null(), &mut action);
        if action.sa_sigaction > 1 && REACHED.fetch_add(1, Ordering::Relaxed) == 0 {
            libc::raise(libc::SIGUSR2);
        }
    }
}

fn choose() -> u32 {
    if crate::os::sys::has_more_rights() {
        return NONE;
    }
    // SAFETY: a C string; the result is null or one.
    let value = unsafe { libc::getenv(c"COUNTERPOINT_INJECT".as_ptr()) };
    if value.is_null() {
        return NONE;
    }
    // SAFETY: as above.
    let value = unsafe { CStr::from_ptr(value) }.to_str().unwrap_or_default();
    let (name, action) = value.split_once(':').unwrap_or((value, "panic"));
    SIGNALS.store(action == "signal", Ordering::Relaxed);
    NAMES.iter().position(|known| *known == name).map_or(NONE, |at| at as u32)
}
