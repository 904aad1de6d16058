//! Defines pages: the memory to which a thread writes its records, and how to read the records
//! back.
//!
//! ```text
//!   0                    256                            256 + committed        64 KiB
//!   ├─ header ────────────┼─ records ─────────────────────┼─ not yet committed ─┤
//! ```
//!
//! In the pool, a page always has its full size; in `pages.cps`, it ends after its last record. One
//! page belongs to one thread, and `sequence` is the page's number among its thread's pages,
//! without gaps. Each page can be read by itself, because the differences in it are relative to the
//! base values in its header.
//!
//! All fields of records are prefix varints ([`crate::wire`]):
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
//!  later kinds   tag even, length, payload: skipped by readers that do not know them
//! ```
//!
//! `context.rs` explains how earlier calls are remembered and how the next call is predicted. At
//! the start of a page, no call is remembered, and the location and worker of the call before are
//! zero. The record of a call without counters typically takes 3 to 5 bytes. With two counters, it
//! takes 9 to 15 bytes.
//!
//! The keys of values are: 0 for a correlation number, 1 for the bytes of storage allocated, 2 for
//! the bytes of workspace allocated, 3 for a failure, 4 for the op that failed, 5 for the forward
//! op of a call of a backward pass, and 6 for the id that profiler plugins got for the call. The
//! meaning of a key from 16 on is in [`crate::meta::ValueKey`]. A value that a call does not have
//! is absent; it is not 0.
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
/// Marks the start of a page. Readers also search for this number after damage.
pub const PAGE_MAGIC: u64 = u64::from_le_bytes(*b"CPTPAGE1");
/// The version of the layout described above.
pub const PAGE_VERSION: u16 = 2;

/// Upper bound for the length of a record: 14 leading fields, and three fields for each of 32
/// counters in 32 groups.
const LONGEST_RECORD: usize = 1 + (14 + 3 * model::MAX_COUNTERS) * 9 + crate::wire::VARINT_SLACK;

/// Maximum number of values that one call can have.
pub const MOST_VALUES: usize = 24;
/// Maximum length of a record of values in bytes, with a length field of two bytes.
const LONGEST_VALUES: usize = 3 + MOST_VALUES * (5 + 9) + crate::wire::VARINT_SLACK;

/// Key of a correlation number: a parallel region and its tasks have the same number.
pub const KEY_CORRELATION: u32 = 0;
/// Key of the bytes of storage that the call allocated. Storage is the memory of tensors that
/// outlive the call.
pub const KEY_STORAGE_BYTES: u32 = 1;
/// Key of the bytes of workspace that the call allocated. Workspace is memory that the call frees
/// before it ends.
pub const KEY_WORKSPACE_BYTES: u32 = 2;
/// Key that marks failed calls with the value 1.
pub const KEY_FAILED: u32 = 3;
/// Key for a failed run: the export of the innermost op that did not return. Absent if no op was in
/// progress.
pub const KEY_FAILED_OP: u32 = 4;
/// Key of the export of the forward op to which a call of the backward pass belongs.
pub const KEY_FORWARD: u32 = 5;
/// Key of the id that profiler plugins got for the call (`run --plugin-ids`). An id belongs to at
/// most one call of a process.
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

/// Flag: the page was the thread's last one.
pub const FLAG_LAST: u32 = 1;
/// Flag: the page was appended to a file, and its checksum is valid.
pub const FLAG_FLUSHED: u32 = 2;

/// One recorded call of one export: for example a workgroup of an exported function, or an op.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Call {
    /// The exported function. Functions are numbered from 0 in the order in which the process first
    /// saw them. A module that is unloaded and loaded again keeps its numbers.
    pub export: u32,
    /// Number of workgroups of the dispatch in x, y, z. No dispatch has the value 0,0,0. It means
    /// that the runtime did not report the number, and then `workgroup` and `worker` are unknown,
    /// too.
    pub count: [u32; 3],
    /// This workgroup's id. Each of its three components is less than the same component of
    /// `count`.
    pub workgroup: [u32; 3],
    /// `node << 12 | cpu` at the end of the call.
    pub location: u32,
    /// The runtime's worker number.
    pub worker: u32,
    /// Ticks when the call began.
    pub start: u64,
    /// Ticks when the call ended.
    pub end: u64,
}

/// How a recorded call was chosen in a run with a budget. Such a run times only some calls, and
/// counts or estimates the others ([`crate::counts`]). Each record contains the probability with
/// which the recorder chose its call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drawn {
    /// The call was timed with the probability 1 / `period`; at least 1. The recorder chose the
    /// period before the call, from what had happened until then.
    pub period: u32,
    /// If a call was timed, its counters were read with the probability 1 / `counter_period`. The
    /// period is at least 1. It is stored whether or not the counters of this call were read.
    pub counter_period: u32,
    /// Number of calls of the same export on the same thread that were only counted after the
    /// previous record of the export on this thread.
    pub skipped: u64,
}

impl Default for Drawn {
    /// Describes a call of a run without a budget, in which every call is recorded.
    fn default() -> Self {
        Self { period: 1, counter_period: 1, skipped: 0 }
    }
}
