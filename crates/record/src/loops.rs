//! Counts of instrumented loops: the tables that threads write in the pool, and the file that they
//! end in. `include/counterpoint/loops.h` says what an entry means.
//!
//! A thread's tables are in *runs*: contiguous pages of the pool, which it claims when it first
//! enters a function of a module for which it has no table.
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
//! A block counts once `used` covers it. When its thread ends, what is not zero is appended to the
//! part's file, [`LOOPS_NAME`], as frames like those of the metadata ([`crate::meta`]), and the pages
//! are given back. What is still in the pool after a crash is moved there by the collector. Frames:
//!
//! | kind | frame | payload |
//! |---:|---|---|
//! | 1 | module | [`ModuleFrame`] |
//! | 2 | rows | what a thread counted for ids of one block: [`RowsFrame`] |
//! | 3 | events | records of mode log: [`EventsFrame`] |
//! | 4 | moment | ticks, CLOCK_MONOTONIC in ns: u64 |
//! | 5 | code | where the machine code of a module is: [`CodeFrame`] |
//! | 6 | trips | the iterations of single hits of ids of one block: [`TripsFrame`] |

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

/// Name of the file of loops in a process's part.
pub const LOOPS_NAME: &str = "loops.cps";

#[cfg(test)]
mod tests;
