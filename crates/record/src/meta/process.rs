//! Describes the process to which a part belongs, and what recording cost this process.

use crate::clock::ClockKind;
use crate::wire::wire;

/// See [`crate::meta::Frame::Cost`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessCost {
    /// Processor time of the constructor of the recorder's library, in ns.
    pub constructor_ns: u64,
    /// Processor time for reading the run file, creating the process's part, registering libraries,
    /// and setting up the hooks of a language's package, in ns.
    pub loading_ns: u64,
    /// How much longer a piece of code takes right after counters were read, in ticks, because the
    /// reading has displaced it from the caches. 0 if no counters are read.
    pub after_reading_ticks: u64,
    /// Processor time of the whole process at its end, in ns. 0 if unknown, or if the recording
    /// session ended before the process.
    pub process_cpu_ns: u64,
}

/// See [`crate::meta::Frame::Leaving`]. A page cannot contain the cost of appending itself, so this
/// cost is written at the end of the process or of the recording session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Leaving {
    /// Number of pages that threads appended when they ended.
    pub pages: u32,
    /// Total CPU time in ns that the threads needed to append these pages and the threads' last
    /// metadata.
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
    /// Number of earlier parts of the same process, for example from before an `exec`. For parts
    /// with events of plugins, see [`crate::meta::FIRST_PLUGIN_GENERATION`].
    pub generation: u32,
    /// The clock that was read for the ticks in the process's pages.
    pub clock: ClockKind,
    /// Path of the process's program (`/proc/self/exe`).
    pub program: String,
    pub arguments: Vec<String>,
}

wire!(ProcessCost { constructor_ns, loading_ns, after_reading_ticks, process_cpu_ns });
wire!(Leaving { pages, cpu_ns });
wire!(Process { pid, parent, start_time, generation, clock, program, arguments });
