//! Reads the counts of instrumented loops. `include/counterpoint/loops.h` explains the numbers in a
//! row.
//!
//! ```text
//!  processes/*/loops.cps ─ frames ─┐
//!  runs of pages in the pool ──────┴─► Profile::loops ─► modules, rows, events, losses
//!                            └─ collect ─► loops.cps
//! ```

mod pool;
mod read;

pub(crate) use pool::{LoopRun, append, find};
pub use record::loops::Callee;

use crate::ledger::LossCount;

/// The data about loops in a profile.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Loops {
    /// Modules, ordered by process and by their registration.
    pub modules: Vec<LoopModule>,
    /// Rows, ordered by process and by when their runs (a thread's contiguous pages in the pool)
    /// began.
    pub rows: Vec<LoopRow>,
    /// Records of mode log. Events of one thread and module are in the order in which they were
    /// made.
    pub events: Vec<LoopEvent>,
    /// The damage that was found.
    pub losses: Vec<LossCount>,
}

/// An instrumented module (an object file or code from a JIT compiler) of a process. A module that
/// is loaded from two files, or is compiled both by a JIT and into a file, has two entries with the
/// same identity. A module that is unloaded and loaded again from the same file usually has one
/// entry.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LoopModule {
    /// Index of the process in the profile.
    pub process: usize,
    /// The module's number in the process.
    pub number: u32,
    /// Identity of the instrumented text (LLVM IR) and its side table.
    pub id: [u8; 16],
    /// The mode: 0 sampled, 1 timed, 2 count, 3 log.
    pub mode: u32,
    /// Number of ids of the module; each function and each loop has one.
    pub ids: u32,
    /// The side table (JSON about the functions and loops), if it is embedded in the module.
    pub table: Option<String>,
    /// The path of the executable or shared object that contains the module; `None` for code from a
    /// JIT.
    pub object: Option<String>,
    /// If the module is in a library of IREE: the id of the library's first exported function. The
    /// library's exported functions have the names of functions of the module.
    pub export: Option<u32>,
    /// Number of ticks of the loops' clock in a second; NaN if unknown.
    pub ticks_per_second: f64,
    /// Mode sampled: number of hits (entries) that each thread times for each id before hits are
    /// chosen at random.
    pub first: u32,
    /// Mode sampled: the gap from one random hit to the next is 1 + (random & this mask).
    pub gap_mask: u32,
    /// The medians of the measured costs of an empty hit. `None` if they were not measured.
    pub cost: Option<HitCost>,
    /// The 10th and the 90th percentile of the measurements.
    pub cost_range: Option<[HitCost; 2]>,
    /// Where the module's machine code is; `None` if unknown.
    pub code: Option<LoopCode>,
}

/// Where the machine code of a module is. Addresses are those of the module's ELF file. For code
/// without a file, they are addresses in the memory of the process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoopCode {
    /// The address of the module's descriptor.
    pub descriptor: u64,
    /// The architecture, as `e_machine` of ELF files numbers it.
    pub machine: u16,
    /// The build id of the module's file; `None` if it has none.
    pub build_id: Option<Vec<u8>>,
    /// The size of the module's file in bytes, and when it was modified last (ns since 1970).
    /// `None` if there was no file that could be opened.
    pub file: Option<(u64, u64)>,
    /// The number of the file with a copy of the code
    /// ([`Profile::kept_code`](crate::Profile::kept_code)); `None` if there is no copy.
    pub kept: Option<u32>,
    /// The pieces of code that the copy contains one after the other: first address and number of
    /// bytes. Empty if the copy is the whole ELF file.
    pub pieces: Vec<(u64, u64)>,
    /// For code without a file: the library functions that the code calls.
    pub callees: Vec<Callee>,
}

/// The cost of an empty hit of a module, in ticks. A kind of hit that the module's mode does not
/// have costs 0.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct HitCost {
    /// The duration that is measured for an empty hit.
    pub inside: f64,
    /// The total time of an empty hit that is timed.
    pub timed: f64,
    /// The total time of an empty hit that is only counted.
    pub counted: f64,
    /// The additional time for reading counters, which is not part of the time measured for the
    /// hit.
    pub reading: f64,
}

/// What one thread has counted for one id.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LoopRow {
    /// Index of the module in [`Loops::modules`].
    pub module: usize,
    /// Index of the thread in the process, if the profile knows the thread.
    pub thread: Option<usize>,
    /// The operating system's id of the thread.
    pub tid: u32,
    /// The id of the function or loop.
    pub id: u32,
    /// Number of times that the loop or function was entered.
    pub hits: u64,
    /// Number of timed hits that began.
    pub begun: u64,
    /// Number of timed hits that ended.
    pub ended: u64,
    /// The inclusive time of the hits in `ended`, in ticks.
    pub ticks: u64,
    /// Sum of the squares of the times in `ticks`.
    pub squares: u128,
    /// Mode timed: the part of `ticks` that was spent in instrumented loops directly inside this
    /// one. Mode sampled: the longest time in `ticks`; 0 if unknown.
    pub child_ticks: u64,
    /// Sum of the iterations of the hits in `iterated`.
    pub iterations: u64,
    /// Number of hits whose iterations are known.
    pub iterated: u64,
    /// Mode sampled: the value of `ended` when the first randomly chosen hit began.
    pub first_ended: u64,
    /// The value of `ticks` at the moment of `first_ended`.
    pub first_ticks: u64,
    /// The value of `squares` at the moment of `first_ended`.
    pub first_squares: u128,
    /// Number of timed hits for which counters were read.
    pub counted: u64,
    /// What the hits in `counted` added to each counter of the process's pass; empty if no counters
    /// were read.
    pub counters: Vec<u64>,
    /// Statistics of the iterations per hit, if they were kept.
    pub trips: Option<LoopTrips>,
}

/// Statistics of the iterations per hit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoopTrips {
    /// The smallest number of iterations of a hit.
    pub least: u64,
    /// The largest number of iterations of a hit.
    pub most: u64,
    /// Mode sampled: the sum of the iterations of the hits that ended before the first randomly
    /// chosen hit began.
    pub first: u64,
    /// A histogram of the hits by their numbers of iterations; if there is a single bucket, it
    /// counts all hits. Otherwise, bucket 0 counts the hits with 0 iterations, and bucket `b` those
    /// with 2^(b-1) to 2^b - 1. The last bucket (63) has no upper limit. Empty without `run
    /// --loops=trips`.
    pub buckets: Vec<u64>,
}

/// A record of mode log: the start or the end of a hit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoopEvent {
    /// Index of the module in [`Loops::modules`].
    pub module: usize,
    /// The operating system's id of the thread.
    pub tid: u32,
    /// The id of the function or loop.
    pub id: u32,
    pub end: bool,
    /// The return address of the call to the runtime's handler. For a module in a file, this field
    /// is the ELF virtual address, relative to where the object is loaded; otherwise, the address
    /// in memory.
    pub address: u64,
    /// The time of the event in ticks.
    pub ticks: u64,
}
