//! Defines the counts of calls in runs with a budget (a limit for the cost of recording): a table
//! in memory for each thread, and the file to which the counts are moved.
//!
//! In a run with a budget, the recorder counts all calls that it sees, but times only some of them.
//! A thread counts in its *table*: contiguous pages of the pool (memory that the processes of a run
//! share), with one entry for each export (recorded function or op).
//!
//! ```text
//!  table   header, 256 bytes: process, thread, number of entries, price
//!  +256    entry ─ entry ─ …           128 bytes each, by export; zeros where nothing was called
//! ```
//!
//! Counts in the pool survive if the process is killed. When a thread ends, the recorder appends
//! the thread's counts to the file [`COUNTS_NAME`], and gives the table's pages back to the pool.
//! The file consists of frames like those of the metadata ([`crate::meta`]). If a crash left tables
//! in the pool, the command that collects the pool appends their counts. A thread that needs more
//! entries copies its table into a larger one, so a reader may find two counts for one export and
//! thread. The larger count is right, because counts never decrease.
//!
//! **Steps.** A host (a runtime such as PyTorch) may announce its ops only in some of the program's
//! steps, such as iterations of a training loop. If so, the recorder estimates the calls in the
//! other steps ([`steps`]). The table also contains the sums for this estimate.
//!
//! | kind | frame | payload |
//! |---:|---|---|
//! | 1 | counts of a thread | [`CountsFrame`] |

use std::mem::offset_of;
use std::sync::atomic::{AtomicU32, AtomicU64};

use crate::meta::{Scanned, frame, part_name, scan};
use crate::page::PAGE_BYTES;
use crate::wire::{Decoder, Encoder, Truncated, Wire, wire};

pub mod steps;

use steps::{STEPS_WORDS, SampledCalls, Steps, ThreadSteps};

/// Name of the file of counts in the directory of a process.
pub const COUNTS_NAME: &str = "counts.cps";
/// Marks the start of a table.
pub const TABLE_MAGIC: u64 = u64::from_le_bytes(*b"CPTCNTS1");
/// The version of the layout of tables.
pub const TABLE_VERSION: u32 = 2;
pub const TABLE_HEADER_BYTES: usize = 256;
pub const ENTRY_BYTES: usize = 128;

const KIND_COUNTS: u16 = 1;

/// The header of a table, as it is in memory.
#[repr(C)]
#[derive(Debug)]
pub struct TableHeader {
    /// [`TABLE_MAGIC`], which the recorder stores last. 0 after the table was given back to the
    /// pool.
    pub magic: AtomicU64,
    /// [`TABLE_VERSION`].
    pub version: u32,
    pub pages: u32,
    /// Process id.
    pub pid: u32,
    /// See [`crate::pool::Row::generation`].
    pub generation: u32,
    /// See [`crate::pool::Row::start_time`].
    pub start_time: u64,
    /// See [`crate::page::PageStart::thread_uid`].
    pub thread_uid: u32,
    /// The kernel's id of the thread.
    pub tid: u32,
    pub entries: u32,
    /// Reserved, 0.
    pub reserved: u32,
    /// See [`Spent::cpu_ns`].
    pub cpu_ns: AtomicU64,
    /// See [`Spent::price_ns`].
    pub price_ns: AtomicU64,
    /// See [`Spent::told_calls`].
    pub told_calls: AtomicU64,
    /// See [`Spent::told_ns`].
    pub told_ns: AtomicU64,
    /// See [`Steps`].
    pub steps: [AtomicU64; STEPS_WORDS],
    /// Reserved, 0.
    pub more: [u64; 22 - STEPS_WORDS],
}

/// The numbers that a thread keeps about one export, as they are in memory. The fields that each
/// call needs are in the first 64 bytes.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Entry {
    /// Number of calls, including those that were estimated (`unseen`).
    pub calls: AtomicU64,
    /// The value of `calls` at which the next call will be timed.
    pub next: AtomicU64,
    /// The value of `calls` at the last call that was chosen to be timed.
    pub drawn: AtomicU64,
    /// Number of calls up to `drawn` that belong to no record yet. A record stands for its own call
    /// and for the calls before it that were only counted. If it is abandoned, these calls are
    /// added here, and the export's next record stands for them, too.
    pub carried: AtomicU64,
    /// Number of calls that were timed.
    pub timed: AtomicU64,
    /// Number of calls whose counters were read.
    pub counted: AtomicU64,
    /// Sum of the durations of the timed calls, in ticks.
    pub ticks: AtomicU64,
    /// The next timed call is chosen so that each call is timed with the probability 1 / `period`.
    pub period: AtomicU32,
    /// The counters of the next timed call are read with the probability 1 / `counter_period`.
    pub counter_period: AtomicU32,
    /// The value of `calls` when the step in progress began.
    pub before_step: AtomicU64,
    /// See [`SampledCalls::sum`].
    pub sum: AtomicU64,
    /// See [`SampledCalls::squares`].
    pub squares: AtomicU64,
    /// See [`SampledCalls::unseen`].
    pub unseen: AtomicU64,
    /// Not 0 if the host announces calls of this export in each step.
    pub is_always: AtomicU64,
    /// See [`SampledCalls::in_cut`].
    pub in_cut: AtomicU64,
    /// Reserved, 0.
    pub more: [u64; 2],
}

const _: () = assert!(size_of::<TableHeader>() == TABLE_HEADER_BYTES);
const _: () = assert!(size_of::<Entry>() == ENTRY_BYTES);

/// Returns the number of pages of a table with at least this many entries.
pub fn pages_for(entries: usize) -> usize {
    (TABLE_HEADER_BYTES + entries * ENTRY_BYTES).div_ceil(PAGE_BYTES)
}

/// Returns the number of entries for which this many pages have room.
pub fn entries_in(pages: usize) -> usize {
    (pages * PAGE_BYTES).saturating_sub(TABLE_HEADER_BYTES) / ENTRY_BYTES
}

/// The processor time of a thread, and the part of it that recording took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// Processor time of the thread since the recorder attached to it, in ns.
    pub cpu_ns: u64,
    /// An estimate of the part of `cpu_ns` that recording took.
    pub price_ns: u64,
    /// Number of calls that were counted without being timed, except those that a stub (code in
    /// place of an exported function) counted. An example is a call of an op that the host
    /// announced.
    pub told_calls: u64,
    /// The part of `price_ns` that the [`Self::told_calls`] took.
    pub told_ns: u64,
}

/// The calls of one export on one thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CountsRow {
    pub export: u32,
    pub calls: u64,
    /// Number of the calls that were timed.
    pub timed: u64,
    /// Number of the timed calls whose counters were read.
    pub counted: u64,
}

wire!(CountsRow { export, calls, timed, counted });

/// The counts of one thread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CountsFrame {
    /// The thread's number in its process.
    pub thread_uid: u32,
    /// The kernel's id of the thread.
    pub tid: u32,
    /// See [`Spent`].
    pub spent: Spent,
    /// The exports that were called, in ascending order.
    pub rows: Vec<CountsRow>,
    /// The counts about the program's steps; `None` if all of them are 0, for example in a program
    /// without steps.
    pub steps: Option<ThreadSteps>,
}

impl CountsFrame {
    /// Returns the bytes to append to the file of counts.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut e = Encoder::new();
        e.u32(self.thread_uid).u32(self.tid);
        e.u64(self.spent.cpu_ns).u64(self.spent.price_ns);
        self.rows.put(&mut e);
        e.u64(self.spent.told_calls).u64(self.spent.told_ns);
        if let Some(steps) = &self.steps {
            steps.put(&mut e);
        }
        frame(KIND_COUNTS, &e.finish())
    }

    fn get(d: &mut Decoder<'_>) -> Result<Self, Truncated> {
        let (thread_uid, tid) = (d.u32()?, d.u32()?);
        let mut spent = Spent { cpu_ns: d.u64()?, price_ns: d.u64()?, ..Spent::default() };
        let rows = Wire::get(d)?;
        (spent.told_calls, spent.told_ns) = (d.u64()?, d.u64()?);
        let steps = if d.remaining() > 0 { Some(Wire::get(d)?) } else { None };
        Ok(Self { thread_uid, tid, spent, rows, steps })
    }
}

/// The frames of a file of counts.
pub type CountsFrames = Scanned<CountsFrame>;

/// Reads the frames of a file of counts.
pub fn read_frames(bytes: &[u8]) -> CountsFrames {
    scan(bytes, |kind, payload| match kind {
        KIND_COUNTS => CountsFrame::get(&mut Decoder::new(payload)).map(Some),
        _ => Ok(None),
    })
}

/// The reason why bytes are not a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableError {
    /// The bytes do not begin with the magic number of a table.
    NoMagic,
    /// The table has another version than [`TABLE_VERSION`].
    Version(u32),
    /// The header states an impossible size, or the bytes end too early.
    Inconsistent,
}

/// A table as it was in the pool.
#[derive(Clone, Copy, Debug)]
pub struct Table<'a> {
    bytes: &'a [u8],
}

impl<'a> Table<'a> {
    /// Returns the number of pages of the table that starts with these bytes.
    ///
    /// # Errors
    /// Returns [`TableError`] for bytes that do not start a table of this version.
    pub fn pages(first: &[u8]) -> Result<usize, TableError> {
        let head = Table { bytes: first };
        let magic = first.len() >= TABLE_HEADER_BYTES
            && head.u64(offset_of!(TableHeader, magic)) == TABLE_MAGIC;
        if !magic {
            return Err(TableError::NoMagic);
        }
        let version = head.u32(offset_of!(TableHeader, version));
        if version != TABLE_VERSION {
            return Err(TableError::Version(version));
        }
        match head.u32(offset_of!(TableHeader, pages)) {
            0 => Err(TableError::Inconsistent),
            pages => Ok(pages as usize),
        }
    }

    /// Returns a table of which only the header can be read. Check the bytes with [`Table::pages`]
    /// first.
    pub fn header_of(first: &'a [u8]) -> Self {
        Self { bytes: first }
    }

    /// Reads the header.
    ///
    /// # Errors
    /// Returns the errors of [`Table::pages`], and [`TableError::Inconsistent`] if the header
    /// states more entries than fit into the table's pages or into the bytes.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, TableError> {
        let pages = Self::pages(bytes)?;
        let table = Self { bytes };
        let room = entries_in(pages.min(bytes.len() / PAGE_BYTES));
        if table.entries() > room {
            return Err(TableError::Inconsistent);
        }
        Ok(table)
    }

    fn u32(&self, at: usize) -> u32 {
        let word = self.bytes.get(at..).and_then(|rest| rest.first_chunk());
        word.map_or(0, |word| u32::from_le_bytes(*word))
    }

    fn u64(&self, at: usize) -> u64 {
        let word = self.bytes.get(at..).and_then(|rest| rest.first_chunk());
        word.map_or(0, |word| u64::from_le_bytes(*word))
    }

    fn entries(&self) -> usize {
        self.u32(offset_of!(TableHeader, entries)) as usize
    }

    /// Returns the process's id, start time and generation ([`crate::pool::Row::generation`]).
    pub fn process(&self) -> (u32, u64, u32) {
        (
            self.u32(offset_of!(TableHeader, pid)),
            self.u64(offset_of!(TableHeader, start_time)),
            self.u32(offset_of!(TableHeader, generation)),
        )
    }

    /// Returns the name that the directory of the table's process has in a profile.
    pub fn part(&self) -> String {
        let (pid, start_time, generation) = self.process();
        part_name(pid, start_time, generation)
    }

    /// Returns the thread's number in its process.
    pub fn thread_uid(&self) -> u32 {
        self.u32(offset_of!(TableHeader, thread_uid))
    }

    fn steps(&self) -> Option<ThreadSteps> {
        let at = offset_of!(TableHeader, steps);
        let steps = Steps::from_words(std::array::from_fn(|word| self.u64(at + 8 * word)));
        let row = |export: usize| {
            let at = |field| self.u64(TABLE_HEADER_BYTES + export * ENTRY_BYTES + field);
            let (sum, unseen) = (at(offset_of!(Entry, sum)), at(offset_of!(Entry, unseen)));
            let (squares, in_cut) = (at(offset_of!(Entry, squares)), at(offset_of!(Entry, in_cut)));
            let (export, is_any) = (export as u32, sum > 0 || unseen > 0);
            is_any.then_some(SampledCalls { export, sum, squares, unseen, in_cut })
        };
        let rows = || (0..self.entries()).filter_map(row).collect();
        (steps != Steps::default()).then(|| ThreadSteps { steps, rows: rows() })
    }

    /// Returns the content of the table, without exports that were not called.
    pub fn frame(&self) -> CountsFrame {
        let row = |export: usize| {
            let at = |field| self.u64(TABLE_HEADER_BYTES + export * ENTRY_BYTES + field);
            let calls = at(offset_of!(Entry, calls));
            (calls > 0).then(|| CountsRow {
                export: export as u32,
                calls,
                timed: at(offset_of!(Entry, timed)),
                counted: at(offset_of!(Entry, counted)),
            })
        };
        CountsFrame {
            thread_uid: self.thread_uid(),
            tid: self.u32(offset_of!(TableHeader, tid)),
            spent: Spent {
                cpu_ns: self.u64(offset_of!(TableHeader, cpu_ns)),
                price_ns: self.u64(offset_of!(TableHeader, price_ns)),
                told_calls: self.u64(offset_of!(TableHeader, told_calls)),
                told_ns: self.u64(offset_of!(TableHeader, told_ns)),
            },
            rows: (0..self.entries()).filter_map(row).collect(),
            steps: self.steps(),
        }
    }
}

#[cfg(test)]
mod tests;
