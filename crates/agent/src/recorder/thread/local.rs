//! The recorder's thread-local variable. On x86-64, the variable is in the static TLS block, so
//! reading it allocates no memory and is safe in a signal handler.

use std::ffi::c_void;

use super::Thread;

/// A pointer to the thread's state, and a few fields that stay valid after that state is gone.
#[repr(C)]
pub(crate) struct Local {
    pub(crate) thread: *mut Thread,
    /// Nonzero while the thread is attaching. During this time, a signal handler must not attach
    /// the thread again.
    pub(crate) attaching: u8,
    /// Number of times that the agent has detached the thread because the thread exits. (If a
    /// destructor then makes a call, the thread can be attached again.)
    pub(crate) lives: u8,
    /// After a failed attempt to attach: the number of calls until the thread tries again.
    pub(crate) retry: u32,
    /// Address of a copy of the thread's state while the thread forks; otherwise null.
    saved: *mut c_void,
}

#[cfg(target_arch = "x86_64")]
mod place {
    use super::Local;

    // With the initial-exec model, access needs neither a call nor an allocation, unlike Rust's
    // `thread_local` in a shared object. The 24 bytes fit into the dynamic linker's reserve of
    // static TLS, even if the library is loaded late.
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
        // SAFETY: by the x86-64 TLS ABI, fs:0 contains the thread pointer, and the GOT contains the
        // offset of `cp_local` from the thread pointer.
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

/// Returns the calling thread's state, or null. Safe in signal handlers.
#[inline(always)]
pub fn current() -> *mut Thread {
    // SAFETY: `place::get` returns the calling thread's thread-local, which exists as long as the
    // thread.
    unsafe { (*place::get()).thread }
}

pub(crate) fn set_saved(saved: *mut c_void) {
    // SAFETY: `place::get` returns the calling thread's thread-local, which exists as long as the
    // thread.
    unsafe { (*place::get()).saved = saved }
}

pub(crate) fn take_saved() -> *mut c_void {
    // SAFETY: `place::get` returns the calling thread's thread-local, which exists as long as the
    // thread.
    unsafe { std::mem::replace(&mut (*place::get()).saved, std::ptr::null_mut()) }
}

#[inline(always)]
pub(crate) fn get() -> *mut Local {
    place::get()
}

/// Makes `thread` the calling thread's state while `body` runs. So calibration can make empty calls
/// while the thread is still attaching.
pub(crate) fn with_current<T>(thread: *mut Thread, body: impl FnOnce() -> T) -> T {
    let local = get();
    // SAFETY: `local` is the calling thread's thread-local. A signal handler that runs meanwhile
    // finds a complete state in it.
    unsafe {
        let before = std::mem::replace(&mut (*local).thread, thread);
        let result = body();
        (*local).thread = before;
        result
    }
}
