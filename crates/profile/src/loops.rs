//! Reads the loops of instrumented modules: the numbers of each thread for each id of each module.
//! `include/counterpoint/loops.h` explains the numbers of a row.
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

/// All data about loops in a profile.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Loops {
    /// Modules by process, in the order in which they were registered.
    pub modules: Vec<LoopModule>,
    /// The rows by process, in the order in which threads ended; the rows of threads that have not
    /// ended come last.
    pub rows: Vec<LoopRow>,
    /// Records of mode log. Those of one thread and module are in the order in which they were
    /// made.
    pub events: Vec<LoopEvent>,
    /// The damage that was found.
    pub losses: Vec<LossCount>,
}

/// A module that was registered in a process. A module that is loaded from two files, or was
/// compiled both by a JIT and into a file, has two entries with the same identity. A module that is
/// unloaded and loaded again from the same place has only one entry (in mode log, only if it got
/// the same address).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LoopModule {
    /// Index of the process in the profile.
    pub process: usize,
    /// The module's number in the process.
    pub number: u32,
    /// Identity of the instrumented text and its side table.
    pub id: [u8; 16],
    /// The mode: 0 sampled, 1 timed, 2 count, 3 log.
    pub mode: u32,
    /// Number of ids of the module.
    pub ids: u32,
    /// The side table, if it was embedded.
    pub table: Option<String>,
    /// The file of the executable or shared object that contains the module; a JIT's module has
    /// none.
    pub object: Option<String>,
    /// The id of the first export of the module's library, if it is in a library of IREE. The names
    /// of the library's exports are those of the module's functions.
    pub export: Option<u32>,
    /// Ticks in a second. NaN if not known, because the profile has another clock and the process
    /// noted no two moments that are at least a millisecond apart.
    pub ticks_per_second: f64,
    /// Mode sampled: number of hits of each id and thread that were timed before the random ones.
    pub first: u32,
    /// Mode sampled: gaps between random hits are 1 + (random & this mask).
    pub gap_mask: u32,
    /// The cost of an empty hit: medians of measurements. Missing if the module has no rehearsal,
    /// and in mode log.
    pub cost: Option<HitCost>,
    /// The 10th and the 90th percentile of the same measurements.
    pub cost_range: Option<[HitCost; 2]>,
    /// The place of the module's machine code. `None` if it is not known.
    pub code: Option<LoopCode>,
}

/// The place of the machine code of a module. Addresses refer to its ELF file, or, for code without
/// a file, to the memory of the process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoopCode {
    /// The address of the module's descriptor.
    pub descriptor: u64,
    /// The architecture, as `e_machine` of ELF files numbers it.
    pub machine: u16,
    /// The build id of the module's file.
    pub build_id: Option<Vec<u8>>,
    /// Bytes of the module's file, and when it was modified last (ns since 1970), if it had one that could be
    /// opened.
    pub file: Option<(u64, u64)>,
    /// The copy in the profile: the number of its file ([`Profile::kept_code`](crate::Profile::kept_code)).
    pub kept: Option<u32>,
    /// The addresses of the bytes of the copy, one piece after the other: first address and number
    /// of bytes. Empty if the copy is a copy of the ELF file.
    pub pieces: Vec<(u64, u64)>,
    /// Functions of libraries that code without a file calls.
    pub callees: Vec<Callee>,
}

/// The cost of an empty hit (one start and one end) of a module, in ticks. 0 for a kind of hit that
/// the module's mode does not have.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct HitCost {
    /// The time that a timed hit measures although there is nothing inside.
    pub inside: f64,
    /// The time that a timed hit takes as a whole.
    pub timed: f64,
    /// The time of a hit that is only counted.
    pub counted: f64,
    /// The additional time for reading counters at the start and the end of a hit. No part of it is
    /// in the time of the hit itself.
    pub reading: f64,
}

/// The numbers of one thread for one id.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LoopRow {
    /// Index in the modules.
    pub module: usize,
    /// Index of the thread in the process, if the profile knows the thread.
    pub thread: Option<usize>,
    /// The kernel's number of the thread.
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
    /// Sum of the squares of the times of the hits in `ended`.
    pub squares: u128,
    /// Mode timed: the part of `ticks` that was spent in instrumented loops directly inside. Mode
    /// sampled: the longest time in `ticks`; 0 if it is not known.
    pub child_ticks: u64,
    /// Iterations of the hits in `iterated`.
    pub iterations: u64,
    /// Number of hits whose iterations are known.
    pub iterated: u64,
    /// Mode sampled: number of hits in `ended` before the first random one.
    pub first_ended: u64,
    /// The time of the hits in `first_ended`, in ticks.
    pub first_ticks: u64,
    /// Sum of the squares of the times of the hits in `first_ended`.
    pub first_squares: u128,
    /// Number of timed hits for which counters were read.
    pub counted: u64,
    /// The amount that each counter of the process's pass added in these hits; empty if none were
    /// read.
    pub counters: Vec<u64>,
    /// The iterations of single hits. Missing if none were counted or if they were not asked for,
    /// and in mode log.
    pub trips: Option<LoopTrips>,
}

/// The iterations of the single hits that [`LoopRow::iterated`] counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoopTrips {
    /// The smallest number of iterations of a hit.
    pub least: u64,
    /// The largest number of iterations of a hit.
    pub most: u64,
    /// Mode sampled: the iterations of the hits that ended before the first random one began.
    pub first: u64,
    /// Number of hits by the bits of their iterations: bucket 0 has the hits of 0 iterations, and
    /// bucket `b` those of 2^(b-1) to 2^b - 1 (the 64th bucket has all from 2^62 on). Empty if it
    /// was not asked for (`run --loops=trips`).
    pub buckets: Vec<u64>,
}

/// A start or an end of mode log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoopEvent {
    /// Index in the modules.
    pub module: usize,
    /// The kernel's number of the thread.
    pub tid: u32,
    /// The id of the function or loop.
    pub id: u32,
    pub end: bool,
    /// Return address of the handler's call, as an offset in its object (file offset semantics of
    /// the ELF virtual address); in anonymous memory the address itself.
    pub address: u64,
    /// The time in ticks.
    pub ticks: u64,
}
