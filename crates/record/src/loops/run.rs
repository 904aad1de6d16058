//! Defines runs and their blocks. A run is a group of contiguous pages of the pool
//! ([`crate::pool`]) in which a thread counts loops. Each block of a run contains the thread's
//! counts for one instrumented module.

use std::mem::offset_of;
use std::sync::atomic::{AtomicU64, Ordering};

use super::entry::{ENTRY_WORDS, EVENT_BYTES, Event, Trips, word};
use super::frames::{EventsFrame, LoopFrame, ModuleFrame, Row, RowsFrame, TripsFrame};
use crate::meta::part_name;
use crate::page::PAGE_BYTES;

/// Marks the start of a run.
pub const RUN_MAGIC: u64 = u64::from_le_bytes(*b"CPTLOOP1");
/// The version of the layout of runs.
pub const RUN_VERSION: u32 = 2;
pub const RUN_HEADER_BYTES: usize = 256;
/// Size of a block's header in bytes.
pub const BLOCK_BYTES: usize = 128;

/// Maximum number of rows or events in one frame. This limit bounds the memory that is needed to
/// write a frame.
const MOST_IN_FRAME: usize = 4096;

/// The header of a run, as it is in memory.
#[repr(C)]
#[derive(Debug)]
pub struct RunHeader {
    /// [`RUN_MAGIC`], which the recorder stores last. 0 after the run was given back to the pool.
    pub magic: AtomicU64,
    /// [`RUN_VERSION`].
    pub version: u32,
    pub pages: u32,
    /// Process id.
    pub pid: u32,
    /// See [`crate::pool::Row::generation`].
    pub generation: u32,
    /// See [`crate::pool::Row::start_time`].
    pub start_time: u64,
    /// The kernel's id of the thread.
    pub tid: u32,
    /// Number of the run among the runs of its process. Readers recognize a run by this number, so
    /// they count its content only once, even if the content is also in a file.
    pub serial: u32,
    /// The thread's name when the run began.
    pub thread_name: [u8; 16],
    /// Number of bytes in use, including this header.
    pub used: AtomicU64,
    /// The time when the run began, in ticks of the clock with which hits of loops are timed.
    pub ticks: u64,
    /// `CLOCK_MONOTONIC` in ns at the moment `ticks`.
    pub monotonic_ns: u64,
    /// Reserved, 0.
    pub reserved: [u64; 22],
}

/// The header of a block, as it is in memory.
#[repr(C)]
#[derive(Debug)]
pub struct BlockHeader {
    /// The number that identifies the module in its process.
    pub module: u32,
    pub ids: u32,
    /// Number of counters whose sums follow the entries.
    pub counters: u32,
    /// Mode log: number of events (starts and ends of hits) for which the block has room.
    pub events: u32,
    /// Size of the block in bytes, including this header.
    pub bytes: u64,
    /// Mode log: number of events in the block.
    pub logged: AtomicU64,
    /// Mode log: number of events that were lost because the block was full, or because there was
    /// no memory to remember the hit.
    pub unlogged: AtomicU64,
    /// The load address of the module's object, which is subtracted from return addresses.
    pub base: u64,
    /// Mode log: maximum number of recorded hits for each id. The later hits are only counted.
    pub logged_first: u64,
    /// The module's identity, in case the frame of the module could not be written.
    pub id: [u8; 16],
    /// The mode in which hits are recorded.
    pub mode: u32,
    /// See [`ModuleFrame::gap_mask`].
    pub gap_mask: u32,
    /// See [`ModuleFrame::ticks_per_second`].
    pub ticks_per_second: u64,
    /// See [`ModuleFrame::first`].
    pub first: u32,
    /// Number of buckets of each id's histogram of iterations per hit. 1 if only the other
    /// statistics of the iterations are stored, and 0 if none are.
    pub buckets: u32,
    /// Reserved, 0.
    pub reserved: [u32; 8],
}

const _: () = assert!(size_of::<RunHeader>() == RUN_HEADER_BYTES);
const _: () = assert!(size_of::<BlockHeader>() == BLOCK_BYTES);

/// Number of the words before the buckets: `least`, `most`, `first` and `mask`.
const TRIP_WORDS: usize = 4;
const MOST_BUCKETS: u32 = 64;

/// The numbers that determine the sizes of a block's parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    /// See [`BlockHeader::ids`].
    pub ids: u32,
    /// See [`BlockHeader::counters`].
    pub counters: u32,
    /// See [`BlockHeader::events`].
    pub events: u32,
    /// See [`BlockHeader::buckets`].
    pub buckets: u32,
}

impl Shape {
    /// Returns the size of the block in bytes.
    pub fn bytes(&self) -> usize {
        (self.trips_offset() + self.ids as usize * self.trip_bytes()).next_multiple_of(64)
    }

    /// Returns the offset in the block at which the events of mode log begin.
    pub fn events_offset(&self) -> usize {
        let sums = if self.counters == 0 { 0 } else { 8 * (1 + self.counters as usize) };
        sums_offset(self.ids) + self.ids as usize * sums
    }

    /// Returns the offset in the block at which the statistics of the iterations per hit begin.
    pub fn trips_offset(&self) -> usize {
        self.events_offset() + self.events as usize * EVENT_BYTES
    }

    /// Returns the size in bytes of the statistics of the iterations of one id's hits.
    pub fn trip_bytes(&self) -> usize {
        if self.buckets == 0 { 0 } else { 8 * (TRIP_WORDS + self.buckets as usize) }
    }
}

/// Returns the offset of the sums of counters in a block.
pub fn sums_offset(ids: u32) -> usize {
    BLOCK_BYTES + ids as usize * 8 * ENTRY_WORDS
}

/// The reason why bytes are not a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunError {
    /// The bytes do not begin with the magic number of a run.
    NoMagic,
    /// The run has another version than [`RUN_VERSION`].
    Version(u32),
    /// A header contains an impossible number or size, or the bytes end too early.
    Inconsistent,
}

/// A run as it was in the pool.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    bytes: &'a [u8],
}

fn word32(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|word| u32::from_le_bytes(*word))
}

fn word64(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|word| u64::from_le_bytes(*word))
}

impl<'a> Run<'a> {
    /// Returns the number of pages of the run that starts with these bytes.
    ///
    /// # Errors
    /// Returns [`RunError`] for bytes that do not start a run of this version.
    pub fn pages(first: &[u8]) -> Result<usize, RunError> {
        let field = |at| word32(first, at).ok_or(RunError::Inconsistent);
        if word64(first, offset_of!(RunHeader, magic)) != Some(RUN_MAGIC) {
            return Err(RunError::NoMagic);
        }
        let version = field(offset_of!(RunHeader, version))?;
        if version != RUN_VERSION {
            return Err(RunError::Version(version));
        }
        match field(offset_of!(RunHeader, pages))? {
            0 => Err(RunError::Inconsistent),
            pages => Ok(pages as usize),
        }
    }

    /// Reads the header.
    ///
    /// # Errors
    /// Returns the errors of [`Run::pages`]. Returns [`RunError::Inconsistent`] if `used` is
    /// smaller than the run's header or larger than the run or `bytes`.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, RunError> {
        let pages = Self::pages(bytes)?;
        let run = Self { bytes };
        let used = run.used();
        let room = bytes.len().min(pages.saturating_mul(PAGE_BYTES));
        if bytes.len() < RUN_HEADER_BYTES || used < RUN_HEADER_BYTES || used > room {
            return Err(RunError::Inconsistent);
        }
        Ok(run)
    }

    /// Returns a run of which only the header can be read. Check the bytes with [`Run::pages`]
    /// first.
    pub fn header_of(first: &'a [u8]) -> Self {
        Self { bytes: first }
    }

    fn u32(&self, at: usize) -> u32 {
        word32(self.bytes, at).unwrap_or(0)
    }

    fn u64(&self, at: usize) -> u64 {
        word64(self.bytes, at).unwrap_or(0)
    }

    fn used(&self) -> usize {
        usize::try_from(self.u64(offset_of!(RunHeader, used))).unwrap_or(usize::MAX)
    }

    /// Returns the process's id, start time and generation ([`crate::pool::Row::generation`]).
    pub fn process(&self) -> (u32, u64, u32) {
        (
            self.u32(offset_of!(RunHeader, pid)),
            self.u64(offset_of!(RunHeader, start_time)),
            self.u32(offset_of!(RunHeader, generation)),
        )
    }

    /// Returns the name that the directory of the run's process has in a profile.
    pub fn part(&self) -> String {
        let (pid, start_time, generation) = self.process();
        part_name(pid, start_time, generation)
    }

    /// Returns the kernel's id of the thread.
    pub fn tid(&self) -> u32 {
        self.u32(offset_of!(RunHeader, tid))
    }

    /// Returns the run's number in its process.
    pub fn serial(&self) -> u32 {
        self.u32(offset_of!(RunHeader, serial))
    }

    /// Returns the ticks and `CLOCK_MONOTONIC` of the moment when the run began.
    pub fn moment(&self) -> (u64, u64) {
        (self.u64(offset_of!(RunHeader, ticks)), self.u64(offset_of!(RunHeader, monotonic_ns)))
    }

    fn thread_name(&self) -> [u8; 16] {
        let at = offset_of!(RunHeader, thread_name);
        self.bytes.get(at..).and_then(|rest| rest.first_chunk()).copied().unwrap_or_default()
    }

    /// Returns the run's blocks. If a block's header is inconsistent, the iterator returns an error
    /// for this block and ends.
    pub fn blocks(self) -> impl Iterator<Item = Result<Block<'a>, RunError>> {
        let (mut at, mut number) = (RUN_HEADER_BYTES, 0);
        let used = self.used().min(self.bytes.len());
        std::iter::from_fn(move || {
            if at >= used {
                return None;
            }
            let block = Block::parse(self, number, &self.bytes[at..used]);
            at = block.as_ref().map_or(used, |block| at + block.bytes.len());
            number += 1;
            Some(block)
        })
    }
}

/// The counts of one thread for one module.
#[derive(Clone, Copy, Debug)]
pub struct Block<'a> {
    run: Run<'a>,
    number: u32,
    shape: Shape,
    bytes: &'a [u8],
}

impl<'a> Block<'a> {
    fn parse(run: Run<'a>, number: u32, rest: &'a [u8]) -> Result<Self, RunError> {
        let field = |at| word32(rest, at).ok_or(RunError::Inconsistent);
        let ids = field(offset_of!(BlockHeader, ids))?;
        let counters = field(offset_of!(BlockHeader, counters))?;
        let events = field(offset_of!(BlockHeader, events))?;
        let buckets = field(offset_of!(BlockHeader, buckets))?;
        if counters as usize > model::MAX_COUNTERS || buckets > MOST_BUCKETS {
            return Err(RunError::Inconsistent);
        }
        let shape = Shape { ids, counters, events, buckets };
        let bytes = shape.bytes();
        if word64(rest, offset_of!(BlockHeader, bytes)) != Some(bytes as u64) {
            return Err(RunError::Inconsistent);
        }
        let bytes = rest.get(..bytes).ok_or(RunError::Inconsistent)?;
        Ok(Self { run, number, shape, bytes })
    }

    /// Returns the number that identifies the module in its process.
    pub fn module(&self) -> u32 {
        word32(self.bytes, offset_of!(BlockHeader, module)).unwrap_or(0)
    }

    /// Returns what the block's header says about the module.
    pub fn module_frame(&self) -> ModuleFrame {
        let (number, ids) = (self.module(), self.shape.ids);
        let short = |at: usize| word32(self.bytes, at).unwrap_or(0);
        let id = self.bytes.get(offset_of!(BlockHeader, id)..).and_then(|rest| rest.first_chunk());
        ModuleFrame {
            number,
            ids,
            id: id.copied().unwrap_or_default(),
            mode: short(offset_of!(BlockHeader, mode)),
            gap_mask: short(offset_of!(BlockHeader, gap_mask)),
            first: short(offset_of!(BlockHeader, first)),
            ticks_per_second: word64(self.bytes, offset_of!(BlockHeader, ticks_per_second))
                .unwrap_or(0),
            ..ModuleFrame::default()
        }
    }

    /// Returns the number of the block in its run.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Returns one row for each id (a loop or a function) with counts that are not 0, in the order
    /// of the ids.
    pub fn rows(&self) -> impl Iterator<Item = Row> + use<'a> {
        let Shape { ids, counters, .. } = self.shape;
        let (bytes, sums_at) = (self.bytes, sums_offset(ids));
        let (ids, counters) = (ids as usize, counters as usize);
        (0..ids).filter_map(move |id| {
            let at = BLOCK_BYTES + id * ENTRY_WORDS * 8;
            let mut words = [0u64; ENTRY_WORDS];
            for (i, word) in words.iter_mut().enumerate() {
                *word = word64(bytes, at + 8 * i)?;
            }
            // These words are not counts.
            (words[word::NEXT], words[word::RANDOM], words[word::TRIPS]) = (0, 0, 0);
            let at = sums_at + id * 8 * (1 + counters);
            let mut sums = Vec::new();
            if counters > 0 && word64(bytes, at)? != 0 {
                sums = (0..=counters).map(|i| word64(bytes, at + 8 * i)).collect::<Option<_>>()?;
            }
            let counted = words != [0; ENTRY_WORDS] || !sums.is_empty();
            counted.then_some(Row { id: id as u32, words, sums })
        })
    }

    /// Returns the statistics of the iterations per hit, in the order of the ids. An id without a
    /// hit in its statistics is left out.
    pub fn trips(&self) -> impl Iterator<Item = (u32, Trips)> + use<'a> {
        let (bytes, shape) = (self.bytes, self.shape);
        let ids = if shape.buckets == 0 { 0 } else { shape.ids };
        (0..ids).filter_map(move |id| {
            let at = shape.trips_offset() + id as usize * shape.trip_bytes();
            let word = |i: usize| word64(bytes, at + 8 * i);
            let (least, most, first) = (word(0)?, word(1)?, word(2)?);
            // If no hit was added, `least` still has its initial value, which is larger than
            // `most`.
            if least > most {
                return None;
            }
            let mut buckets = Vec::new();
            if shape.buckets > 1 {
                let all = (0..shape.buckets as usize).map(|i| word(TRIP_WORDS + i));
                buckets = all.collect::<Option<_>>()?;
                buckets.truncate(buckets.iter().rposition(|hits| *hits != 0).map_or(0, |i| i + 1));
            }
            Some((id, Trips { least, most, first, buckets }))
        })
    }

    /// Returns the events of mode log, in the order in which they were recorded.
    pub fn events(&self) -> impl Iterator<Item = Event> + use<'a> {
        let room = word32(self.bytes, offset_of!(BlockHeader, events)).unwrap_or(0) as usize;
        let made = word64(self.bytes, offset_of!(BlockHeader, logged)).unwrap_or(0);
        let made = usize::try_from(made).unwrap_or(usize::MAX).min(room);
        let start = self.shape.events_offset();
        let bytes = self.bytes;
        (0..made).filter_map(move |i| {
            let at = start + i * EVENT_BYTES;
            let word = |i: usize| word64(bytes, at + 8 * i);
            Some(Event::from_words([word(0)?, word(1)?, word(2)?]))
        })
    }

    /// Converts the block's content to frames. Calls `write` with the bytes of each frame, until
    /// `write` fails.
    ///
    /// # Errors
    /// Returns the error of `write`.
    pub fn write<E>(&self, mut write: impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        let (serial, tid, thread_name) =
            (self.run.serial(), self.run.tid(), self.run.thread_name());
        let (block, module) = (self.number, self.module());
        let mut rows = self.rows().peekable();
        while rows.peek().is_some() {
            let part: Vec<Row> = rows.by_ref().take(MOST_IN_FRAME).collect();
            let frame = RowsFrame {
                serial,
                block,
                module,
                tid,
                thread_name,
                counters: self.shape.counters,
                rows: part,
            };
            write(&LoopFrame::Rows(frame).to_bytes())?;
        }
        let mut trips = self.trips().peekable();
        while trips.peek().is_some() {
            let rows: Vec<(u32, Trips)> = trips.by_ref().take(MOST_IN_FRAME).collect();
            write(&LoopFrame::Trips(TripsFrame { serial, block, rows }).to_bytes())?;
        }
        let mut events = self.events().peekable();
        let mut first = 0;
        while events.peek().is_some() {
            let part: Vec<Event> = events.by_ref().take(MOST_IN_FRAME).collect();
            let count = part.len() as u64;
            let frame = EventsFrame { serial, block, module, tid, first, events: part };
            write(&LoopFrame::Events(frame).to_bytes())?;
            first += count;
        }
        Ok(())
    }
}

impl RunHeader {
    /// Returns whether a thread has begun to write this run and has not given it back to the pool.
    pub fn is_begun(&self) -> bool {
        self.magic.load(Ordering::Acquire) == RUN_MAGIC
    }
}
