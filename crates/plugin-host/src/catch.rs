//! Calls functions of a plugin so that, on Linux, an exception or `pthread_exit` only ends the call
//! and becomes a [`Left`]. While the module `crash` catches faults, a fault also ends only the
//! call.
//!
//! Rust cannot catch foreign exceptions: its `catch_unwind` ends the process. Besides, the agent
//! and plugins may contain unwinders of their own. Rust's stack frames call the host's unwinder,
//! even if another unwinder is at work. So the call goes through a function in assembly, whose
//! personality function does not call the unwinder:
//!
//! ```text
//!  call ──► trampoline ──► the plugin's function ──► throw
//!   ▲           │ saves registers and the               │ unwinder, first phase: our personality
//!   │           │ stack pointer (`Frame`)               │   says that it handles the exception
//!   │           ▼                                       ▼ second phase: destructors of the plugin run,
//!   └──────── land ◄──────────── personality ◄──────────┘   then the personality jumps back
//! ```
//!
//! The jump abandons the unwinder's stack frames. Unwinders hold no lock while they call a
//! personality function (sources of libgcc and LLVM's libunwind).
//!
//! While the plugin's function runs, a request to cancel the thread waits. So a forced unwinding
//! means `pthread_exit` by the plugin.

#[cfg(target_os = "linux")]
mod call;
#[cfg(target_os = "linux")]
pub mod crash;
#[cfg(target_os = "linux")]
mod cxx_exceptions;
#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod linker_locks;

use std::ffi::{c_int, c_void};
use std::fmt;

#[cfg(target_os = "linux")]
pub(crate) use call::call;

/// How a plugin's function ended, if it did not return.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Left {
    /// An exception ended it. The text has the exception's type and message, if they are known.
    Exception(String),
    /// `pthread_exit` ended it. The thread continues.
    ThreadExit,
    /// A fault or `abort` ended it, with this signal. The plugin's state is unknown.
    Fault(c_int),
}

impl fmt::Display for Left {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exception(what) => write!(f, "threw {what}"),
            Self::ThreadExit => f.write_str("called pthread_exit"),
            Self::Fault(signal) => write!(f, "crashed with signal {signal}"),
        }
    }
}

/// The beginning of every exception (Itanium C++ ABI, exception handling, section 1.2.1).
#[cfg(target_os = "linux")]
#[repr(C)]
struct RawException {
    class: u64,
    cleanup: Option<unsafe extern "C" fn(c_int, *mut RawException)>,
}

/// Calls the function directly, so a plugin's exception ends the process.
///
/// # Safety
/// `function` must be a C function that takes these arguments.
#[cfg(not(target_os = "linux"))]
pub(crate) unsafe fn call(
    function: *const c_void,
    first: *const c_void,
    second: *const c_void,
) -> Result<usize, Left> {
    // SAFETY: by contract, `function` is a C function that takes these arguments.
    Ok(unsafe {
        let function: unsafe extern "C" fn(*const c_void, *const c_void) -> usize =
            std::mem::transmute(function);
        function(first, second)
    })
}

/// Like [`call`], for a function with one argument and an `int` result.
///
/// # Safety
/// As for [`call`].
///
/// # Errors
/// Fails if the function did not return.
pub(crate) unsafe fn call_one<P>(
    function: unsafe extern "C" fn(*mut P) -> c_int,
    argument: *mut P,
) -> Result<c_int, Left> {
    // SAFETY: `call` has the same contract as this function. The `int` that `function` returns is
    // the low half of the register that `call` returns.
    unsafe { call(function as *const c_void, argument.cast(), std::ptr::null()) }
        .map(|value| value as c_int)
}

/// Calls `dlopen` so that exceptions from the library's constructors are caught.
///
/// # Safety
/// The caller must trust the file, because its constructors run.
///
/// # Errors
/// Fails if a constructor did not return.
#[cfg(unix)]
pub(crate) unsafe fn open(name: &std::ffi::CStr, flags: c_int) -> Result<*mut c_void, Left> {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    let held = linker_locks::Held::now();
    // SAFETY: dlopen is a C function that takes a C string and a number.
    let opened = unsafe {
        call(libc::dlopen as *const c_void, name.as_ptr().cast(), flags as usize as *const c_void)
    };
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    if opened.is_err() {
        // SAFETY: the call of dlopen that took the locks did not return, so it will not release
        // them.
        unsafe { held.restore() };
    }
    opened.map(|handle| handle as *mut c_void)
}
