//! The processor time of the threads of a process at the end of the process or of the recording
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

/// The largest number of threads that are listed for one process.
pub const MOST_THREADS: usize = 1024;

wire!(ThreadCpu { tid, cpu_ns, name });
