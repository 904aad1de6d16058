//! Whether a seccomp filter kills the process that calls `perf_event_open`.
//!
//! Most filters make the call fail, and then we can say what is forbidden. A filter that kills
//! would end the whole command. So everything outside of the target asks [`survivable`] (or one
//! of the other functions here) before it opens a counter: a child process makes the call, once per process and only where a
//! filter is active. The child shares nothing with us (`clone` without flags: no handler of
//! `pthread_atfork` runs, no SIGCHLD is sent) and makes only system calls.
//!
//! The agent does not ask: a recorder that forks inside of somebody else's program would do more
//! harm than such a filter.

use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::OnceLock;

use model::PerfAttr;

use crate::files::Machine;
use counters::perf::{self, OpenError, Target};
use counters::plan::{Plan, SourceKind};
use counters::thread::OpenFailure;

/// Whether this process may call `perf_event_open` and live. The first call costs a file read, and
/// a child process where a filter is active. A filter that is installed later is not noticed.
///
/// # Errors
/// [`OpenError::KILLS`] if a filter would kill the process.
pub fn survivable() -> Result<(), OpenError> {
    static KILLS: OnceLock<bool> = OnceLock::new();
    match KILLS.get_or_init(|| Machine::here().is_filtered() && a_child_dies()) {
        true => Err(OpenError::KILLS),
        false => Ok(()),
    }
}

/// [`perf::reaches_the_kernel`], without being killed for it.
///
/// # Errors
/// As [`survivable`] and [`perf::reaches_the_kernel`].
pub fn reaches_the_kernel() -> Result<(), OpenError> {
    survivable()?;
    perf::reaches_the_kernel()
}

/// Whether `plan` may be opened: always, if the kernel counts nothing of it.
///
/// # Errors
/// As [`survivable`], for the first counter that the kernel would be asked for.
pub fn may_open(plan: &Plan) -> Result<(), OpenFailure> {
    match plan.groups().iter().find(|group| group.kind == SourceKind::Perf) {
        Some(group) => {
            survivable().map_err(|error| OpenFailure { counter: usize::from(group.first), error })
        }
        None => Ok(()),
    }
}

/// Opens a counter and closes it again, to see whether that works.
///
/// # Errors
/// As [`survivable`], or what the kernel said.
pub fn try_open(attr: &PerfAttr, target: Target) -> Result<(), OpenError> {
    survivable()?;
    let fd = perf::open(attr, target, -1)?;
    // SAFETY: opened just now, and nobody else knows the number.
    drop(unsafe { OwnedFd::from_raw_fd(fd) });
    Ok(())
}

/// Has a child make the call. False where there can be no child: then nothing is known.
fn a_child_dies() -> bool {
    // SAFETY: `clone` without flags and without a stack is `fork`: the child goes on here with a
    // copy of everything. It is the only thread of its process and makes only system calls.
    let child = unsafe { libc::syscall(libc::SYS_clone, 0, 0, 0, 0, 0) };
    if child == 0 {
        let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // No core file: it is expected to die.
        // SAFETY: a plain system call.
        unsafe { libc::syscall(libc::SYS_prlimit64, 0, libc::RLIMIT_CORE, &raw const none, 0) };
        // Passes no attributes, so that nothing is opened.
        let _ = perf::reaches_the_kernel();
        loop {
            // SAFETY: a plain system call.
            unsafe { libc::syscall(libc::SYS_exit_group, 0) };
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
