//! Pages: where a thread writes its records, and how they are read back.
//!
//! ```text
//!   0                    256                            256 + committed        64 KiB
//!   ├─ header ────────────┼─ records ─────────────────────┼─ not yet committed ─┤
//! ```
//!
//! In the pool a page always has its full size; appended to `pages.cps` it ends after its last
//! record. One page belongs to one thread; a thread's pages are numbered by `sequence` without
//! gaps. Each page can be read alone: differences start from the header's base values.
//!
//! Records, all fields prefix varints ([`crate::wire`]):
//!
//! ```text
//!  call          tag u8 = 0000 r w c 1
//!                c: export, count x y z, location (node << 12 | cpu), worker   follow
//!                w: workgroup id x y z follow; otherwise x is one more than the last call's
//!                start − end of the record before (zigzag), duration             [ticks]
//!                per counter group of the page, in order:
//!                    0 = not read, or time enabled + 1;  if r: time running;  values
//!                    (all differences over the call; without r, running = enabled)
//!  thread clock  tag u8 = 2
//!                now − end of the record before (zigzag)                         [ticks]
//!                thread CPU time − header's base                                 [ns]
//!                CLOCK_MONOTONIC − header's base                                 [ns]
//!  values        tag u8 = 4, length
//!                key, 64 bits          of the call before, on the same page; as often as fits
//!  later kinds   tag even, length, payload: skipped by readers that do not know them
//! ```
//!
//! After `c` the workgroup id predicted for the call is 0,0,0. A call's context (the fields of
//! `c`) is all zero at the start of a page. With two counters a call takes 14 to 22 bytes.
//!
//! Keys: 0 correlation, 1 bytes of storage allocated, 2 bytes of workspace allocated, 3 failed;
//! from 16 on, [`crate::meta::ValueKey`] tells. A call without a value has none: it is not 0.
//!
//! The checksum of a flushed page covers its header and its records.

mod header;
mod owned;
mod reader;
mod writer;

pub use header::{PageError, PageHeader, PageStart, seal};
pub use owned::OwnedPage;
pub use reader::{GroupLayout, GroupTimes, PageReader, Record, TornRecord};
pub use writer::{Cursor, PageWriter};

/// Bytes of a page in the pool.
pub const PAGE_BYTES: usize = 64 * 1024;
/// Bytes of a page's header.
pub const HEADER_BYTES: usize = 256;
/// Marks the start of a page; also what readers look for after damage.
pub const PAGE_MAGIC: u64 = u64::from_le_bytes(*b"CPTPAGE1");
/// The version of the layout described above.
pub const PAGE_VERSION: u16 = 1;

/// No record is longer: 11 leading fields, and for each of 32 counters in 32 groups three more.
const LONGEST_RECORD: usize = 1 + (11 + 3 * model::MAX_COUNTERS) * 9 + crate::wire::VARINT_SLACK;

/// Values that one call can have.
pub const MOST_VALUES: usize = 24;
/// Bytes of a record of values at most: a length of two bytes.
const LONGEST_VALUES: usize = 3 + MOST_VALUES * (5 + 9) + crate::wire::VARINT_SLACK;

/// Key of a number that joins calls: a parallel region with its tasks.
pub const KEY_CORRELATION: u32 = 0;
/// Key of bytes of storage that the call allocated (tensors that outlive it).
pub const KEY_STORAGE_BYTES: u32 = 1;
/// Key of bytes of workspace that the call allocated (memory that it gives back at its end).
pub const KEY_WORKSPACE_BYTES: u32 = 2;
/// Key of calls that failed: 1.
pub const KEY_FAILED: u32 = 3;
/// Key of a failed run's innermost op that did not return: its export. Absent if no op was open.
pub const KEY_FAILED_OP: u32 = 4;
/// The first key that [`crate::meta::ValueKey`] explains.
pub const FIRST_USER_KEY: u32 = 16;

const TAG_CALL: u8 = 1;
const TAG_CONTEXT: u8 = 2;
const TAG_WORKGROUP: u8 = 4;
const TAG_RUNNING: u8 = 8;
const TAG_THREAD_CLOCK: u8 = 2;
const TAG_VALUES: u8 = 4;

/// The page was the thread's last one.
pub const FLAG_LAST: u32 = 1;
/// The page was appended to a file, and its checksum holds.
pub const FLAG_FLUSHED: u32 = 2;

/// A dispatch call as it is recorded: one workgroup of one exported function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Call {
    /// The exported function: numbered from 0 in the order in which the process saw its functions.
    /// A module that is unloaded and loaded again keeps its numbers.
    pub export: u32,
    /// Workgroups of the dispatch in x, y, z. 0,0,0, which no dispatch has: nobody told; then
    /// `workgroup` and `worker` are not known either.
    pub count: [u32; 3],
    /// This workgroup, each below `count`.
    pub workgroup: [u32; 3],
    /// `node << 12 | cpu` at the end of the call.
    pub location: u32,
    /// The runtime's worker number.
    pub worker: u32,
    /// Ticks at its begin.
    pub start: u64,
    /// Ticks at its end.
    pub end: u64,
}
