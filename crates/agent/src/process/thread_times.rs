//! The processor time of all threads of the process, at its end. Threads that called nothing that is
//! recorded are seen here only.

use record::thread_times::{MOST_THREADS, ThreadCpu};

use crate::os::sys;

/// Reads the list of threads. `None` if the kernel does not say, or if the program has a seccomp
/// filter, which may kill it for a system call that it does not expect from itself.
pub fn read() -> Option<Vec<ThreadCpu>> {
    let status = sys::read_file(c"/proc/self/status").ok()?;
    let is_free = status.split(|b| *b == b'\n').any(|line| line == b"Seccomp:\t0");
    if !is_free {
        return None;
    }
    let ids = sys::numbers_in(c"/proc/self/task").ok()?;
    Some(ids.into_iter().take(MOST_THREADS).filter_map(one).collect())
}

/// Reads what the kernel says about one thread; `None` if the thread has ended meanwhile.
fn one(tid: u32) -> Option<ThreadCpu> {
    let file = |name| sys::read_file(&sys::path(format!("/proc/self/task/{tid}/{name}"))).ok();
    let name = sys::lossy(file("comm")?.trim_ascii_end().to_vec());
    let schedstat = sys::lossy(file("schedstat")?);
    let cpu_ns = schedstat.split_ascii_whitespace().next()?.parse().ok()?;
    Some(ThreadCpu { tid, name, cpu_ns })
}
