//! Finds out whether a seccomp filter kills the process that calls `perf_event_open`.
//!
//! Most filters make the call fail, and then the command line can report what is forbidden. A
//! filter that kills would end the whole command. So the command line calls [`survivable`] (or
//! another function of this module) before it opens a counter. If a filter is active, a child
//! process tries `perf_event_open` first; later checks use that result. The child shares no memory
//! with its parent. It is made by `clone` without flags, so that no handler of `pthread_atfork`
//! runs and no SIGCHLD is sent. It makes only system calls.
//!
//! The agent makes no such child, because a fork inside of somebody else's program could do more
//! harm than such a filter.

use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::OnceLock;

use model::PerfAttr;

use crate::files::Machine;
use counters::perf::{self, OpenError, Target};
use counters::plan::{Plan, SourceKind};
use counters::thread::OpenFailure;

/// Checks that this process survives a call of `perf_event_open`. The first call asks the kernel
/// whether a filter is active, and if so, makes a child process. A filter that is installed after
/// the first call is not noticed.
///
/// # Errors
/// Fails with [`OpenError::KILLS`] if a filter would kill the process.
pub fn survivable() -> Result<(), OpenError> {
    static KILLS: OnceLock<bool> = OnceLock::new();
    match KILLS.get_or_init(|| Machine::here().is_filtered() && a_child_dies()) {
        true => Err(OpenError::KILLS),
        false => Ok(()),
    }
}

/// Like [`perf::reaches_the_kernel`], without the risk that a filter kills this process.
///
/// # Errors
/// Fails for the same reasons as [`survivable`] and [`perf::reaches_the_kernel`].
pub fn reaches_the_kernel() -> Result<(), OpenError> {
    survivable()?;
    perf::reaches_the_kernel()
}

/// Checks that this process survives opening the counters of `plan`.
///
/// # Errors
/// Fails if the plan has a counter of the kernel and [`survivable`] fails. The error names the
/// first such counter.
pub fn may_open(plan: &Plan) -> Result<(), OpenFailure> {
    match plan.groups().iter().find(|group| group.kind == SourceKind::Perf) {
        Some(group) => {
            survivable().map_err(|error| OpenFailure { counter: usize::from(group.first), error })
        }
        None => Ok(()),
    }
}

/// Finds out whether a counter can be opened, by opening and closing it.
///
/// # Errors
/// Fails if [`survivable`] fails, or with the error of the kernel.
pub fn try_open(attr: &PerfAttr, target: Target) -> Result<(), OpenError> {
    survivable()?;
    let fd = perf::open(attr, target, -1)?;
    // SAFETY: `fd` was just opened, so nothing else uses the number.
    drop(unsafe { OwnedFd::from_raw_fd(fd) });
    Ok(())
}

/// Calls `perf_event_open` in a child, and returns whether that killed the child. Returns false if
/// there can be no child.
fn a_child_dies() -> bool {
    // SAFETY: `clone` without flags and without a stack is `fork`: the child goes on here with a
    // copy of everything. The child is the only thread of its process and makes only system calls.
    let child = unsafe { libc::syscall(libc::SYS_clone, 0, 0, 0, 0, 0) };
    if child == 0 {
        let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // The child may die, which should not leave a core file.
        // SAFETY: `none` outlives the call, and the kernel accepts a null pointer for the old
        // limit.
        unsafe { libc::syscall(libc::SYS_prlimit64, 0, libc::RLIMIT_CORE, &raw const none, 0) };
        // This system call opens no counter, because it passes no attributes.
        let _ = perf::reaches_the_kernel();
        loop {
            // SAFETY: exit_group takes a number only, and ends the child.
            unsafe { libc::syscall(libc::SYS_exit_group, 0) };
        }
    }
    let mut status = 0i32;
    loop {
        // With `__WALL`, the call also waits for children that send no signal when they end.
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
