//! Replaces `unshare` and `setns`. For some kinds of namespaces, the kernel refuses calls of these
//! functions while the process has more than one thread. Threads of profiler plugins must not be
//! the reason for a refusal. So if the program has no further threads, the agent ends the plugins'
//! recording before the call, and lets the plugins record again after the call.
//!
//! This does not help a program that makes the system call without glibc (as Go does).

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::adapters::plugins;
use crate::os::sys::{self, ErrnoGuard};

/// A function that this file replaces: its name, and the address of the next definition.
struct Real(&'static std::ffi::CStr, AtomicPtr<c_void>);

static UNSHARE: Real = Real(c"unshare", AtomicPtr::new(std::ptr::null_mut()));
static SETNS: Real = Real(c"setns", AtomicPtr::new(std::ptr::null_mut()));

impl Real {
    fn get(&self) -> *mut c_void {
        let known = self.1.load(Ordering::Relaxed);
        if !known.is_null() {
            return known;
        }
        // SAFETY: the name is a C string. With RTLD_NEXT, dlsym finds the definition that comes
        // after this library's.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.0.as_ptr()) };
        self.1.store(found, Ordering::Relaxed);
        found
    }
}

/// Looks up the real functions. The constructor calls this, because a lookup takes the dynamic
/// linker's lock, which a forked child may find locked forever.
pub fn prepare() {
    UNSHARE.get();
    SETNS.get();
}

/// Calls `real`. If all other threads belong to the agent or to plugins, ends the plugins'
/// recording before the call, and lets the plugins record again after it.
fn alone(real: impl FnOnce() -> c_int) -> c_int {
    let stopped = {
        let _errno = ErrnoGuard::new();
        plugins::record_here() && plugins::before_namespaces()
    };
    let result = real();
    if stopped {
        let _errno = ErrnoGuard::new();
        plugins::record_again();
    }
    result
}

/// Replaces `unshare`.
///
/// # Safety
/// The requirements of `unshare(2)` apply.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unshare(flags: c_int) -> c_int {
    let real = UNSHARE.get();
    if real.is_null() {
        sys::set_errno(libc::ENOSYS);
        return -1;
    }
    // SAFETY: `real` is the C library's `unshare`, which has this type.
    let real =
        unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn(c_int) -> c_int>(real) };
    // SAFETY: the host passed these arguments, and called us in place of the C library's function.
    let go = || unsafe { real(flags) };
    // For these flags, the kernel requires a process with a single thread (unshare(2)).
    const SINGLE: c_int =
        libc::CLONE_NEWUSER | libc::CLONE_THREAD | libc::CLONE_SIGHAND | libc::CLONE_VM;
    if flags & SINGLE == 0 { go() } else { alone(go) }
}

/// Replaces `setns`.
///
/// # Safety
/// The requirements of `setns(2)` apply.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn setns(fd: c_int, kind: c_int) -> c_int {
    let real = SETNS.get();
    if real.is_null() {
        sys::set_errno(libc::ENOSYS);
        return -1;
    }
    type Setns = unsafe extern "C" fn(c_int, c_int) -> c_int;
    // SAFETY: `real` is the C library's `setns`, which has this type.
    let real = unsafe { std::mem::transmute::<*mut c_void, Setns>(real) };
    // SAFETY: the host passed these arguments, and called us in place of the C library's function.
    alone(|| unsafe { real(fd, kind) })
}
