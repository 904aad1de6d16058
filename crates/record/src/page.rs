//! Defines pages: the memory to which a thread writes its records.
//!
//! ```text
//!   0                    256                            256 + committed        64 KiB
//!   ├─ header ────────────┼─ records ─────────────────────┼─ not yet committed ─┤
//! ```
//!
//! In the pool ([`crate::pool`]), a page has its full size; in the file `pages.cps`, it ends after
//! its last record. A page belongs to one thread, and `sequence` is its number among the thread's
//! pages, without gaps. A page can be read by itself: its records refer only to earlier records of
//! the page and to the base values in its header.
//!
//! After the tag, all fields of a record are prefix varints ([`crate::wire`]):
//!
//! ```text
//!  call          tag u8 = 0 l e d r w c 1
//!                c: export, count x y z follow;  e: export follows, its count is as before
//!                   (never both; with neither, the export is the expected one)
//!                l: location (node << 12 | cpu), worker follow; otherwise as before
//!                w: workgroup id x y z follow; otherwise it is the predicted one
//!                start − end of the record before (zigzag), duration             [ticks]
//!                d: period, counter period, skipped   follow; otherwise 1, 1, 0: see [`Drawn`]
//!                per counter group of the page, in order:
//!                    0 = not read, or time enabled + 1;  if r: time running;  values
//!                    (all differences over the call; without r, running = enabled)
//!  thread clock  tag u8 = 2
//!                now − end of the record before (zigzag)                         [ticks]
//!                thread CPU time − header's base                                 [ns]
//!                CLOCK_MONOTONIC − header's base                                 [ns]
//!  values        tag u8 = 4, length
//!                key, 64 bits          repeated; belong to the call before, on the same page
//!  task          tag u8 = 6, length
//!                export, task's number, number of tasks (0: the call is a region)
//!                start − end of the record before (zigzag), duration             [ticks]
//!                correlation number, its bits rotated left by one
//!                per counter group as in a call without r
//!  later kinds   tag even, length, payload: skipped by readers that do not know them
//! ```
//!
//! `context.rs` explains how the next call is predicted. At the start of a page, no earlier call is
//! remembered, and the predicted location and worker are 0. A call without counters typically takes
//! 3 to 5 bytes, and one with two counters 9 to 15 bytes.
//!
//! A parallel region or one of its tasks has either the record of a call with values, or a record
//! of a task ([`Task`]), which takes less code to write. The latter has the location and the worker
//! of the call before it, and is not remembered for predictions.
//!
//! The constants `KEY_…` are the keys of values with a fixed meaning. The keys from 16 on are
//! defined by [`crate::meta::ValueKey`]. A value that a call does not have is absent; it is not 0.
//!
//! The checksum of a flushed page includes its header and its records.

mod context;
mod header;
mod owned;
mod reader;
mod writer;

pub use header::{PageError, PageHeader, PageStart, seal, seal_in_place};
pub use owned::OwnedPage;
pub use reader::{GroupLayout, GroupTimes, PageReader, Record, TornRecord};
pub use writer::{Cursor, PageWriter};

/// Size of a page in the pool, in bytes.
pub const PAGE_BYTES: usize = 64 * 1024;
/// Size of a page's header, in bytes.
pub const HEADER_BYTES: usize = 256;
/// Marks the start of a page. After damaged bytes in a file, readers search for this number to find
/// the next page.
pub const PAGE_MAGIC: u64 = u64::from_le_bytes(*b"CPTPAGE1");
/// The version of the layout described above.
pub const PAGE_VERSION: u16 = 3;
/// The oldest version that can be read. It has no records of tasks.
pub const OLDEST_PAGE_VERSION: u16 = 2;

/// Upper bound for the length of a call's record in bytes. After the tag, the record has at most 14
/// fields, and three fields for each of 32 counters, if each is in its own group.
const LONGEST_RECORD: usize = 1 + (14 + 3 * model::MAX_COUNTERS) * 9 + crate::wire::VARINT_SLACK;

/// Maximum number of values that one call can have.
pub const MOST_VALUES: usize = 24;
/// Upper bound for the length in bytes of a record of values, whose length field has two bytes.
const LONGEST_VALUES: usize = 3 + MOST_VALUES * (5 + 9) + crate::wire::VARINT_SLACK;

/// Key of a correlation number, which a parallel region and its tasks share.
pub const KEY_CORRELATION: u32 = 0;
/// Key of the number of bytes of storage that the call allocated. Storage is the memory of tensors
/// that outlive the call.
pub const KEY_STORAGE_BYTES: u32 = 1;
/// Key of the number of bytes of workspace that the call allocated. Workspace is memory that the
/// call frees before it ends.
pub const KEY_WORKSPACE_BYTES: u32 = 2;
/// Key that marks a failed call. The value is 1.
pub const KEY_FAILED: u32 = 3;
/// Key for a failed run (call of a model's entry function). The value is the export of the
/// innermost op that did not return. The key is absent if there was no such op.
pub const KEY_FAILED_OP: u32 = 4;
/// Key for an op of a backward pass. The value is the export of the forward op to which this op
/// belongs.
pub const KEY_FORWARD: u32 = 5;
/// Key of the id that profiler plugins got for the call (`run --plugin-ids`).
pub const KEY_PLUGIN_ID: u32 = 6;
/// The first key whose meaning is stored in a [`crate::meta::ValueKey`].
pub const FIRST_USER_KEY: u32 = 16;

const TAG_CALL: u8 = 1;
const TAG_CONTEXT: u8 = 2;
const TAG_WORKGROUP: u8 = 4;
const TAG_RUNNING: u8 = 8;
const TAG_DRAWN: u8 = 16;
const TAG_EXPORT: u8 = 32;
const TAG_PLACE: u8 = 64;
const TAG_THREAD_CLOCK: u8 = 2;
const TAG_VALUES: u8 = 4;
const TAG_TASK: u8 = 6;

/// Flag: the page is the thread's last one.
pub const FLAG_LAST: u32 = 1;
/// Flag: the page was or is about to be appended to a file, and its checksum is valid.
pub const FLAG_FLUSHED: u32 = 2;

/// One recorded call, for example of a workgroup or of an op.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Call {
    /// The export's number. The recorder numbers the exports of a process from 0, in the order in
    /// which it first sees them. If the program loads a library again, its exports keep their
    /// numbers.
    pub export: u32,
    /// Number of workgroups of the dispatch in x, y, z. If the runtime did not report this number,
    /// `count` is 0,0,0, and `workgroup` and `worker` are unknown, too.
    pub count: [u32; 3],
    /// This workgroup's id.
    pub workgroup: [u32; 3],
    /// The NUMA node and the CPU on which the call ended: `node << 12 | cpu`.
    pub location: u32,
    /// The runtime's worker number.
    pub worker: u32,
    /// Ticks when the call began.
    pub start: u64,
    /// Ticks when the call ended.
    pub end: u64,
}

/// A recorded parallel region, or one of its tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Task {
    /// The export's number, see [`Call::export`].
    pub export: u32,
    /// The task's number among those of its region, from 0.
    pub number: u32,
    /// Number of tasks of the region; 0 for the region itself.
    pub count: u32,
    /// Ticks when the task or region began.
    pub start: u64,
    /// Ticks when the task or region ended.
    pub end: u64,
    /// A number that the region and its tasks share.
    pub correlation: u64,
}

impl Task {
    /// Returns the same task or region as a call, without its correlation number.
    pub fn to_call(&self, location: u32, worker: u32) -> Call {
        let count = if self.count == 0 { [0; 3] } else { [self.count, 1, 1] };
        Call {
            export: self.export,
            count,
            workgroup: [self.number, 0, 0],
            location,
            worker,
            start: self.start,
            end: self.end,
        }
    }
}

/// How the recorder chose a call that it recorded. In a run with a budget (a limit for the cost of
/// recording), the recorder times only some calls ([`crate::counts`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drawn {
    /// The call was timed with the probability 1 / `period`. The period is at least 1. The recorder
    /// chose this period before the call.
    pub period: u32,
    /// The counters of a timed call were read with the probability 1 / `counter_period`. The period
    /// is at least 1. It is stored whether or not the counters were read.
    pub counter_period: u32,
    /// Number of calls of the same export that this thread counted, but did not record, since it
    /// last recorded a call of the export.
    pub skipped: u64,
}

impl Default for Drawn {
    /// Returns the fields for a call in a run without a budget.
    fn default() -> Self {
        Self { period: 1, counter_period: 1, skipped: 0 }
    }
}
