//! Defines the counts of instrumented loops: the tables that threads write in the pool (memory that
//! the processes of a run share), and the file to which the counts are moved. An entry contains a
//! thread's counts for one loop or function; `include/counterpoint/loops.h` explains its words.
//!
//! A thread's tables are stored in *runs*: contiguous pages of the pool. When a thread first enters
//! a function of an instrumented module, the thread adds a block (its table for this module) to its
//! last run. If the block does not fit, the thread claims a new run.
//!
//! ```text
//!  run     header, 256 bytes: process, thread, `used`
//!  +256    block ─ block ─ …                                    up to `used`, each aligned to 64
//!
//!  block   header, 128 bytes: module, ids, counters, events
//!          ids × entry                          128 bytes each
//!          ids × (hits counted, counter, …)     u64 each; only if counters are read
//!          events × { id and end, ticks, address }   24 bytes each; only in mode log
//!          ids × (least, most, first, mask, bucket, …)    u64 each; only if single hits are of interest
//! ```
//!
//! A block is valid as soon as `used` includes it. When the thread ends, the recorder appends the
//! numbers that are not zero to the file [`LOOPS_NAME`], and gives the pages back to the pool. The
//! file consists of frames like those of the metadata ([`crate::meta`]). After a crash, the command
//! that collects the pool appends the numbers. The frames are:
//!
//! | kind | frame | payload |
//! |---:|---|---|
//! | 1 | module | [`ModuleFrame`] |
//! | 2 | rows | the counts of a thread for ids of one block: [`RowsFrame`] |
//! | 3 | events | records of mode log: [`EventsFrame`] |
//! | 4 | moment | ticks, CLOCK_MONOTONIC in ns: u64 |
//! | 5 | code | the place of the machine code of a module: [`CodeFrame`] |
//! | 6 | trips | statistics of the iterations per hit, for ids of one block: [`TripsFrame`] |
//! | 7 | reading | the time that reading counters takes: [`LoopFrame::Reading`] |

mod code;
mod entry;
mod frames;
mod run;

pub use code::{Callee, CodeFrame, code_name};
pub use entry::{ENTRY_WORDS, EVENT_BYTES, Event, Trips, word};
pub use frames::{
    Costs, EventsFrame, LoopFrame, LoopFrames, ModuleFrame, Row, RowsFrame, TripsFrame, read_frames,
};
pub use run::{
    BLOCK_BYTES, Block, BlockHeader, RUN_HEADER_BYTES, RUN_MAGIC, RUN_VERSION, Run, RunError,
    RunHeader, Shape, sums_offset,
};

/// Name of the file of loops in the directory of a process.
pub const LOOPS_NAME: &str = "loops.cps";

#[cfg(test)]
mod tests;
