//! Defines the frames of the file of loops.

use super::code::CodeFrame;
use super::entry::{ENTRY_WORDS, Event, Trips};
use crate::meta::{Scanned, frames, scan};
use crate::wire::{Decoder, Encoder, Truncated, Wire, last, raw, wire};

/// The bit of a row's mask that says that the sums of counters follow.
const HAS_SUMS: u32 = 1 << ENTRY_WORDS;

/// The costs of a module's empty hits, each as its 10th percentile, median and 90th percentile, in
/// ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Costs {
    /// The duration that is measured for an empty hit; `None` if the mode times no hits.
    pub inside: Option<[f64; 3]>,
    /// The total time of an empty hit that is timed.
    pub timed: Option<[f64; 3]>,
    /// The total time of an empty hit that is only counted; `None` if the mode times every hit.
    pub counted: Option<[f64; 3]>,
}

/// An instrumented module that registered itself in the process.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModuleFrame {
    /// The module's number in the process.
    pub number: u32,
    /// The identity of the module, the same in all processes.
    pub id: [u8; 16],
    /// The mode, as in the module's descriptor.
    pub mode: u32,
    /// Number of ids of the module.
    pub ids: u32,
    /// The clock's ticks per second, if the processor states them; 0 if unknown.
    pub ticks_per_second: u64,
    /// Mode sampled: number of hits of each id that are timed before the random ones.
    pub first: u32,
    /// Mode sampled: the gap from one random hit to the next is 1 + (random & this mask).
    pub gap_mask: u32,
    /// The path of the module's object file. Empty for a module in anonymous memory, and in a frame
    /// that was made from a block in the pool.
    pub object: String,
    /// The side table of the module, which describes the loops and functions that its ids mean.
    /// Empty if it is not embedded in the object, if it is too large, or if this frame was made
    /// from a block in the pool.
    pub table: Vec<u8>,
    /// The costs of empty hits; `None` if they were not measured.
    pub costs: Option<Costs>,
    /// If the module is in a library of IREE: the id of the library's first export.
    pub export: Option<u32>,
}

/// The counts of a thread for one id (a loop or a function of the module). Words that are not
/// counts are zero.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Row {
    pub id: u32,
    /// See [`super::word`].
    pub words: [u64; ENTRY_WORDS],
    /// If counters were read: the number of hits with counters, then the sum of each counter.
    pub sums: Vec<u64>,
}

/// Counts of one thread for one module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RowsFrame {
    /// Number of the run (contiguous pages of the pool) that contained the thread's block.
    pub serial: u32,
    /// Number of the block in that run. The serial, the block and an id together identify a row.
    pub block: u32,
    pub module: u32,
    /// The kernel's id of the thread.
    pub tid: u32,
    pub thread_name: [u8; 16],
    /// See [`super::BlockHeader::counters`].
    pub counters: u32,
    /// The rows by id.
    pub rows: Vec<Row>,
}

/// The records of mode log that one thread made for one module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventsFrame {
    /// See [`RowsFrame::serial`].
    pub serial: u32,
    /// See [`RowsFrame::block`].
    pub block: u32,
    pub module: u32,
    /// The kernel's id of the thread.
    pub tid: u32,
    /// Index in the block of the first record in `events`.
    pub first: u64,
    pub events: Vec<Event>,
}

/// Statistics of the iterations per hit. The thread and the module are those of the [`RowsFrame`]
/// of the same block.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TripsFrame {
    /// See [`RowsFrame::serial`].
    pub serial: u32,
    /// See [`RowsFrame::block`].
    pub block: u32,
    /// The rows by id.
    pub rows: Vec<(u32, Trips)>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum LoopFrame {
    Module(ModuleFrame),
    /// Counts of a thread.
    Rows(RowsFrame),
    /// Records of mode log.
    Events(EventsFrame),
    /// A moment: ticks, and `CLOCK_MONOTONIC` in ns.
    Moment(u64, u64),
    /// Where the machine code of a module is.
    Code(CodeFrame),
    /// Statistics of the iterations per hit.
    Trips(TripsFrame),
    /// The time for reading counters at the start and the end of a hit, in ticks: 10th percentile,
    /// median and 90th percentile.
    Reading([f64; 3]),
}

wire!(ModuleFrame {
    number, id, mode, ids, ticks_per_second, first, gap_mask, object, table as raw, costs,
    export as last
});
wire!(EventsFrame { serial, block, module, tid, first, events });
wire!(TripsFrame { serial, block, rows });
wire!(Event { id, end, ticks, address });

impl Wire for Costs {
    fn put(&self, e: &mut Encoder) {
        [self.inside, self.timed, self.counted].iter().for_each(|ticks| ticks.put(e));
    }
    fn get(d: &mut Decoder<'_>) -> Result<Self, Truncated> {
        let mut finite = || {
            let ticks: Option<[f64; 3]> = Wire::get(d)?;
            Ok(ticks.filter(|ticks| ticks.iter().all(|one| one.is_finite())))
        };
        Ok(Self { inside: finite()?, timed: finite()?, counted: finite()? })
    }
}

impl Wire for Trips {
    fn put(&self, e: &mut Encoder) {
        e.u64(self.least).u64(self.most).u64(self.first).u8(self.buckets.len() as u8);
        self.buckets.iter().for_each(|hits| hits.put(e));
    }
    fn get(d: &mut Decoder<'_>) -> Result<Self, Truncated> {
        let (least, most, first) = (d.u64()?, d.u64()?, d.u64()?);
        let buckets = (0..d.u8()?).map(|_| d.u64()).collect::<Result<_, _>>()?;
        Ok(Self { least, most, first, buckets })
    }
}

impl Wire for RowsFrame {
    fn put(&self, e: &mut Encoder) {
        e.u32(self.serial).u32(self.block).u32(self.module).u32(self.tid);
        self.thread_name.put(e);
        e.u32(self.counters).u32(self.rows.len() as u32);
        for row in &self.rows {
            let set = |(i, word): (usize, &u64)| u32::from(*word != 0) << i;
            let mask: u32 = row.words.iter().enumerate().map(set).sum();
            let sums = row.sums.len() == 1 + self.counters as usize;
            e.u32(row.id).u32(mask | if sums { HAS_SUMS } else { 0 });
            let counted = row.words.iter().filter(|word| **word != 0);
            counted.chain(row.sums.iter().filter(|_| sums)).for_each(|word| {
                e.u64(*word);
            });
        }
    }

    fn get(d: &mut Decoder<'_>) -> Result<Self, Truncated> {
        let (serial, block, module, tid) = (d.u32()?, d.u32()?, d.u32()?, d.u32()?);
        let (thread_name, counters) = (Wire::get(d)?, d.u32()?);
        if counters as usize > model::MAX_COUNTERS {
            return Err(Truncated { at: 0 });
        }
        let count = d.u32()?;
        let mut rows = Vec::new();
        for _ in 0..count {
            let (id, mask) = (d.u32()?, d.u32()?);
            // A row without words is refused, because it needs few bytes in a file but much
            // memory.
            if mask == 0 {
                return Err(Truncated { at: 0 });
            }
            let mut words = [0; ENTRY_WORDS];
            for (i, word) in words.iter_mut().enumerate() {
                if mask >> i & 1 != 0 {
                    *word = d.u64()?;
                }
            }
            let mut sums = Vec::new();
            if mask & HAS_SUMS != 0 {
                sums = (0..=counters).map(|_| d.u64()).collect::<Result<_, _>>()?;
            }
            rows.push(Row { id, words, sums });
        }
        Ok(Self { serial, block, module, tid, thread_name, counters, rows })
    }
}

frames!(LoopFrame {
    Module(module) = 1,
    Rows(rows) = 2,
    Events(events) = 3,
    Moment(ticks, monotonic_ns) = 4,
    Code(code) = 5,
    Trips(trips) = 6,
    Reading(ticks) = 7,
});

/// The frames of a file of loops.
pub type LoopFrames = Scanned<LoopFrame>;

/// Reads the frames of a file of loops.
pub fn read_frames(bytes: &[u8]) -> LoopFrames {
    scan(bytes, LoopFrame::of)
}
