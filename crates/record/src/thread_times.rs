//! The processor time of each thread of a process, at the end of the process or of its recording
//! session. Threads that recorded nothing are included.

use crate::wire::wire;

/// The processor time that one thread used since it started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ThreadCpu {
    /// The kernel's id of the thread.
    pub tid: u32,
    pub name: String,
    /// The thread's processor time in ns.
    pub cpu_ns: u64,
}

/// If a process has more threads than this, the times of its threads are not listed.
pub const MOST_THREADS: usize = 1024;

wire!(ThreadCpu { tid, cpu_ns, name });
