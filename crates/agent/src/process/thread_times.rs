//! Reads the processor time of all threads of the process, at the end of recording. For a thread
//! that made no recorded call, a profile contains only the data that is read here.

use libc::{EINVAL, ENOENT, ESRCH};
use record::thread_times::{MOST_THREADS, ThreadCpu};

use crate::os::sys;

/// Returns the threads of the process. Returns `None` if the kernel's data cannot be read, if there
/// are more than [`MOST_THREADS`] threads, or if this thread has a seccomp filter. Such a filter
/// may kill the program for a system call that the program itself never makes.
pub fn read() -> Option<Vec<ThreadCpu>> {
    let status = sys::read_file(c"/proc/thread-self/status").ok()?;
    let is_free = status.split(|b| *b == b'\n').any(|line| line == b"Seccomp:\t0");
    if !is_free {
        return None;
    }
    let ids = sys::numbers_in(c"/proc/self/task").ok()?;
    if ids.len() > MOST_THREADS {
        return None;
    }
    ids.into_iter().filter_map(|tid| one(tid).transpose()).collect::<Result<_, i32>>().ok()
}

/// Returns the kernel's data about one thread, or `None` if the thread has ended.
///
/// # Errors
/// Returns the error number if a file of the thread could not be read for another reason.
fn one(tid: u32) -> Result<Option<ThreadCpu>, i32> {
    let name = sys::read_file(&sys::path(format!("/proc/self/task/{tid}/comm")));
    let known = name.and_then(|name| Ok((name, cpu_ns(tid)?)));
    match known {
        Ok((name, cpu_ns)) => {
            let name = sys::lossy(name.trim_ascii_end().to_vec());
            Ok(Some(ThreadCpu { tid, name, cpu_ns }))
        }
        Err(ENOENT | ESRCH | EINVAL) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// Returns a thread's processor time up to now, in ns. The time is read from the thread's clock,
/// because `schedstat` is only updated at the thread's scheduler ticks.
fn cpu_ns(tid: u32) -> Result<u64, i32> {
    // The kernel's macro `MAKE_THREAD_CPUCLOCK` computes the number of a thread's clock in this way
    // (with `CPUCLOCK_SCHED`).
    let clock = (!(tid as i32) << 3) | 4 | 2;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` has space for the time that the call writes, and outlives the call.
    match unsafe { libc::syscall(libc::SYS_clock_gettime, clock, &raw mut time) } {
        0 => Ok(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64),
        // The thread does not exist any more.
        _ => Err(EINVAL),
    }
}
