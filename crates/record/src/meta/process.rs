//! Describes the process of a part, and the cost of recording the process.

use crate::clock::ClockKind;
use crate::wire::wire;

/// See [`crate::meta::Frame::Cost`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessCost {
    /// Processor time of the library's constructor, in ns.
    pub constructor_ns: u64,
    /// Processor time, in ns, of reading the run file, making the process's part, taking in
    /// libraries, and of hooks that a language's package needs.
    pub loading_ns: u64,
    /// The additional time of some code right after counters were read, compared with a second run
    /// of the same code, in ticks: the reading has displaced its data and instructions. 0 without
    /// counters.
    pub after_reading_ticks: u64,
    /// Processor time of the whole process when this was written, in ns; 0 if that was not at its
    /// end.
    pub process_cpu_ns: u64,
}

/// See [`crate::meta::Frame::Leaving`]. A page cannot contain the cost of its own appending, so the process
/// writes it when it ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Leaving {
    /// Number of pages that threads appended when they ended.
    pub pages: u32,
    /// CPU time that those pages took in total, in ns.
    pub cpu_ns: u64,
}

/// See [`crate::meta::Frame::Process`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Process id in the process's own namespace.
    pub pid: u32,
    /// Process id of the process's parent.
    pub parent: u32,
    /// Start time in clock ticks since boot (`/proc/PID/stat`, field 22).
    pub start_time: u64,
    /// Number of parts that the same process made before this one, for example before an `exec`.
    pub generation: u32,
    /// The clock of the process's pages.
    pub clock: ClockKind,
    /// Path of the process's program (`/proc/self/exe`).
    pub program: String,
    pub arguments: Vec<String>,
}

wire!(ProcessCost { constructor_ns, loading_ns, after_reading_ticks, process_cpu_ns });
wire!(Leaving { pages, cpu_ns });
wire!(Process { pid, parent, start_time, generation, clock, program, arguments });
