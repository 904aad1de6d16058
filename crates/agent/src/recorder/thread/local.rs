//! The thread-local: two words in the static TLS block and what goes with them. Reading it never
//! allocates and is safe in a signal handler.

use std::ffi::c_void;

use super::Thread;

/// The thread-local: where this thread's state is, and what became of it before.
#[repr(C)]
pub(crate) struct Local {
    pub(crate) thread: *mut Thread,
    /// Not zero while attaching: a signal handler must not attach too.
    pub(crate) attaching: u8,
    /// How often this thread's exit destructor ran.
    pub(crate) lives: u8,
    /// Calls to pass through before trying to attach again.
    pub(crate) retry: u32,
    /// A copy of the state, while this thread forks.
    saved: *mut c_void,
}

#[cfg(target_arch = "x86_64")]
mod place {
    use super::Local;

    // The initial-exec model needs no call and no allocation, unlike Rust's `thread_local` in a
    // shared object. 24 bytes fit into the static TLS reserve even when loaded late.
    std::arch::global_asm!(
        ".pushsection .tbss.cp_local,\"awT\",@nobits",
        ".balign 16",
        ".globl cp_local",
        ".hidden cp_local",
        ".type cp_local,@object",
        ".size cp_local,24",
        "cp_local:",
        ".zero 24",
        ".popsection",
    );

    #[inline(always)]
    pub fn get() -> *mut Local {
        let at: *mut Local;
        // SAFETY: the x86-64 TLS ABI: fs:0 holds the thread pointer, the GOT the offset.
        unsafe {
            std::arch::asm!(
                "mov {0}, qword ptr fs:0",
                "add {0}, qword ptr [rip + cp_local@GOTTPOFF]",
                out(reg) at,
                options(nostack, readonly),
            );
        }
        at
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod place {
    use super::Local;
    use std::cell::UnsafeCell;

    thread_local! {
        static LOCAL: UnsafeCell<Local> = const {
            UnsafeCell::new(Local {
                thread: std::ptr::null_mut(),
                attaching: 0,
                lives: 0,
                retry: 0,
                saved: std::ptr::null_mut(),
            })
        };
    }

    #[inline(always)]
    pub fn get() -> *mut Local {
        LOCAL.with(UnsafeCell::get)
    }
}

const _: () = assert!(size_of::<Local>() == 24);

/// The calling thread's state if it is attached, else null. Safe in signal handlers.
#[inline(always)]
pub fn current() -> *mut Thread {
    // SAFETY: the thread-local exists as long as the thread.
    unsafe { (*place::get()).thread }
}

/// Keeps the copy of the calling thread's state while it forks.
pub(crate) fn set_saved(saved: *mut c_void) {
    // SAFETY: the thread-local exists as long as the thread.
    unsafe { (*place::get()).saved = saved }
}

/// Returns that copy, once.
pub(crate) fn take_saved() -> *mut c_void {
    // SAFETY: as above.
    unsafe { std::mem::replace(&mut (*place::get()).saved, std::ptr::null_mut()) }
}

/// The calling thread's own.
#[inline(always)]
pub(crate) fn get() -> *mut Local {
    place::get()
}

/// Makes `thread` the calling thread's state while `body` runs: for calibration, which brackets
/// empty calls before the thread counts as attached.
pub(crate) fn with_current<T>(thread: *mut Thread, body: impl FnOnce() -> T) -> T {
    let local = get();
    // SAFETY: this thread's own; a signal handler in between finds a state that is ready.
    unsafe {
        let before = std::mem::replace(&mut (*local).thread, thread);
        let result = body();
        (*local).thread = before;
        result
    }
}
