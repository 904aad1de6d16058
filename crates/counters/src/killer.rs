//! Filters that kill: whether a seccomp filter ends the process that calls `perf_event_open`.
//!
//! Most filters let the call fail, and we say what is forbidden. One that kills would take the
//! whole command with it, so a child finds out, once in a process and only where a filter is
//! active. The child shares nothing with us (`clone` without flags: no handler of `pthread_atfork`
//! runs, no SIGCHLD is sent) and makes nothing but system calls.
//!
//! What the agent does inside of the target is not looked at here: a process that forks behind its
//! program's back would do more harm than a filter.

use std::sync::OnceLock;

use crate::machine::Machine;
use crate::sys;

/// Whether whoever calls `perf_event_open` in this process is killed. The first call costs a file
/// read, and a child where a filter is active. A filter that is installed later is not noticed.
pub(crate) fn kills() -> bool {
    static KILLS: OnceLock<bool> = OnceLock::new();
    *KILLS.get_or_init(|| Machine::here().is_filtered() && a_child_dies())
}

/// Has a child make the call. False where there can be no child: then nothing is known.
fn a_child_dies() -> bool {
    // SAFETY: `clone` without flags and without a stack is `fork`: the child goes on here with a
    // copy of everything. It is the only thread of its process and calls no library function.
    let child = unsafe { libc::syscall(libc::SYS_clone, 0, 0, 0, 0, 0) };
    if child == 0 {
        let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // No core file: it is expected to die.
        // SAFETY: plain system calls; no attributes, so that nothing is opened.
        unsafe {
            libc::syscall(libc::SYS_prlimit64, 0, libc::RLIMIT_CORE, &raw const none, 0);
            sys::perf_event_open(std::ptr::null_mut(), 0, -1, -1, 0);
            loop {
                libc::syscall(libc::SYS_exit_group, 0);
            }
        }
    }
    let mut status = 0i32;
    loop {
        // `__WALL`: also children whose end sends no signal.
        // SAFETY: `status` outlives the call.
        let waited = unsafe { libc::waitpid(child as i32, &mut status, libc::__WALL) };
        if waited == child as i32 {
            return libc::WIFSIGNALED(status);
        }
        let interrupted = std::io::Error::last_os_error().raw_os_error() == Some(libc::EINTR);
        if child < 0 || !interrupted {
            return false;
        }
    }
}
