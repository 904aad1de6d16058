//! The frames of the file of loops.

use super::code::{CodeFrame, KIND_CODE};
use super::entry::{ENTRY_WORDS, Event, Trips};
use crate::meta::{FRAME_PREFIX_BYTES, frame, raw_frame};
use crate::wire::{Decoder, Encoder, Truncated};

const KIND_MODULE: u16 = 1;
const KIND_ROWS: u16 = 2;
const KIND_EVENTS: u16 = 3;
const KIND_MOMENT: u16 = 4;
const KIND_TRIPS: u16 = 6;

/// Bit of a row's mask: sums of counters follow.
const HAS_SUMS: u32 = 1 << ENTRY_WORDS;

/// What empty hits of a module cost, in ticks: 10th percentile, median and 90th percentile each.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Costs {
    /// What a timed hit measures although there is nothing inside. Missing in a mode that times
    /// nothing.
    pub inside: Option<[f64; 3]>,
    /// What a timed hit takes as a whole.
    pub timed: Option<[f64; 3]>,
    /// What a hit takes that is only counted. Missing in a mode that times every hit.
    pub counted: Option<[f64; 3]>,
}

/// A module that was registered.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModuleFrame {
    /// Its number in the process.
    pub number: u32,
    /// Its identity.
    pub id: [u8; 16],
    /// How hits are recorded, as in its descriptor.
    pub mode: u32,
    /// How many ids it has.
    pub ids: u32,
    /// Ticks in a second where the processor states it; 0: not known.
    pub ticks_per_second: u64,
    /// Sampled: how many hits of each id are timed before the random ones.
    pub first: u32,
    /// Sampled: gaps between random hits are 1 + (random & mask).
    pub gap_mask: u32,
    /// File of the object that it is in; empty: in anonymous memory.
    pub object: String,
    /// The side table; empty: not embedded, or in the frame of another process.
    pub table: Vec<u8>,
    /// What empty hits cost; `None` without a rehearsal.
    pub costs: Option<Costs>,
    /// The first of the ids that the exports of its library have, if it is in a library of IREE.
    /// Profiles of earlier versions do not say.
    pub export: Option<u32>,
}

/// What a thread counted for one id: the words of its entry (those that are not counts are zero),
/// and how many hits counters were read for, followed by what each counter added.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// The id.
    pub id: u32,
    /// [`super::word`].
    pub words: [u64; ENTRY_WORDS],
    /// Empty if no counter was read.
    pub sums: Vec<u64>,
}

/// What one thread counted for one module, or a part of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RowsFrame {
    /// Number of the run of pages that it was in.
    pub serial: u32,
    /// Number of the block in that run. A row is known by both and its id.
    pub block: u32,
    /// Number of the module.
    pub module: u32,
    /// The kernel's id of the thread.
    pub tid: u32,
    /// The thread's name.
    pub thread_name: [u8; 16],
    /// Counters of the run.
    pub counters: u32,
    /// By id.
    pub rows: Vec<Row>,
}

/// Records of mode log of one thread and module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventsFrame {
    /// As [`RowsFrame::serial`].
    pub serial: u32,
    /// As [`RowsFrame::block`].
    pub block: u32,
    /// Number of the module.
    pub module: u32,
    /// The kernel's id of the thread.
    pub tid: u32,
    /// Number of the first of these records in the block.
    pub first: u64,
    /// The records.
    pub events: Vec<Event>,
}

/// The iterations of single hits of one thread and module, or a part of them. The rows of the same block
/// say which thread and module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TripsFrame {
    /// As [`RowsFrame::serial`].
    pub serial: u32,
    /// As [`RowsFrame::block`].
    pub block: u32,
    /// By id.
    pub rows: Vec<(u32, Trips)>,
}

/// One frame.
#[derive(Clone, Debug, PartialEq)]
pub enum LoopFrame {
    /// A module.
    Module(ModuleFrame),
    /// Counts of a thread.
    Rows(RowsFrame),
    /// Records of mode log.
    Events(EventsFrame),
    /// A moment: ticks, and `CLOCK_MONOTONIC` in ns.
    Moment(u64, u64),
    /// Where the machine code of a module is.
    Code(CodeFrame),
    /// The iterations of single hits.
    Trips(TripsFrame),
}

impl ModuleFrame {
    /// The bytes to append.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut e = Encoder::new();
        e.u32(self.number);
        self.id.iter().for_each(|byte| {
            e.u8(*byte);
        });
        e.u32(self.mode).u32(self.ids).u64(self.ticks_per_second).u32(self.first);
        e.u32(self.gap_mask).str(&self.object).bytes(&self.table);
        e.u8(self.costs.is_some().into());
        if let Some(Costs { inside, timed, counted }) = self.costs {
            for one in [inside, timed, counted] {
                e.u8(one.is_some().into());
                one.into_iter().flatten().for_each(|ticks| {
                    e.u64(ticks.to_bits());
                });
            }
        }
        // Readers of earlier versions stop before this.
        if let Some(export) = self.export {
            e.u32(export);
        }
        frame(KIND_MODULE, &e.finish())
    }

    fn get(d: &mut Decoder<'_>) -> Result<Self, Truncated> {
        let number = d.u32()?;
        let mut id = [0; 16];
        for byte in &mut id {
            *byte = d.u8()?;
        }
        let (mode, ids, ticks_per_second) = (d.u32()?, d.u32()?, d.u64()?);
        let (first, gap_mask, object) = (d.u32()?, d.u32()?, d.string()?);
        let table = d.bytes()?.to_vec();
        let one = |d: &mut Decoder<'_>| -> Result<Option<[f64; 3]>, Truncated> {
            if d.u8()? == 0 {
                return Ok(None);
            }
            let mut ticks = [0.0; 3];
            for one in &mut ticks {
                *one = f64::from_bits(d.u64()?);
            }
            Ok(Some(ticks).filter(|ticks| ticks.iter().all(|one| one.is_finite())))
        };
        let costs = match d.u8()? {
            0 => None,
            _ => Some(Costs { inside: one(d)?, timed: one(d)?, counted: one(d)? }),
        };
        let export = if d.remaining() > 0 { Some(d.u32()?) } else { None };
        Ok(Self {
            number,
            id,
            mode,
            ids,
            ticks_per_second,
            first,
            gap_mask,
            object,
            table,
            costs,
            export,
        })
    }
}

impl RowsFrame {
    /// The bytes to append.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut e = Encoder::new();
        e.u32(self.serial).u32(self.block).u32(self.module).u32(self.tid);
        self.thread_name.iter().for_each(|byte| {
            e.u8(*byte);
        });
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
        frame(KIND_ROWS, &e.finish())
    }

    fn get(d: &mut Decoder<'_>) -> Result<Self, Truncated> {
        let (serial, block, module, tid) = (d.u32()?, d.u32()?, d.u32()?, d.u32()?);
        let mut thread_name = [0; 16];
        for byte in &mut thread_name {
            *byte = d.u8()?;
        }
        let counters = d.u32()?;
        if counters as usize > model::MAX_COUNTERS {
            return Err(Truncated { at: 0 });
        }
        let count = d.u32()?;
        let mut rows = Vec::new();
        for _ in 0..count {
            let (id, mask) = (d.u32()?, d.u32()?);
            // No row says nothing: so none takes many times its bytes of memory.
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

impl EventsFrame {
    /// The bytes to append.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut e = Encoder::new();
        e.u32(self.serial).u32(self.block).u32(self.module).u32(self.tid).u64(self.first);
        e.u32(self.events.len() as u32);
        for event in &self.events {
            e.u32(event.id).u8(event.end.into()).u64(event.ticks).u64(event.address);
        }
        frame(KIND_EVENTS, &e.finish())
    }

    fn get(d: &mut Decoder<'_>) -> Result<Self, Truncated> {
        let (serial, block, module, tid) = (d.u32()?, d.u32()?, d.u32()?, d.u32()?);
        let (first, count) = (d.u64()?, d.u32()?);
        let one = |d: &mut Decoder<'_>| {
            let (id, end, ticks, address) = (d.u32()?, d.u8()? != 0, d.u64()?, d.u64()?);
            Ok(Event { id, end, ticks, address })
        };
        let mut events = Vec::new();
        for _ in 0..count {
            events.push(one(d)?);
        }
        Ok(Self { serial, block, module, tid, first, events })
    }
}

impl TripsFrame {
    /// The bytes to append.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut e = Encoder::new();
        e.u32(self.serial).u32(self.block).u32(self.rows.len() as u32);
        for (id, Trips { least, most, first, buckets }) in &self.rows {
            e.u32(*id).u64(*least).u64(*most).u64(*first).u8(buckets.len() as u8);
            for hits in buckets {
                e.u64(*hits);
            }
        }
        frame(KIND_TRIPS, &e.finish())
    }

    fn get(d: &mut Decoder<'_>) -> Result<Self, Truncated> {
        let (serial, block, count) = (d.u32()?, d.u32()?, d.u32()?);
        let one = |d: &mut Decoder<'_>| {
            let (id, least, most, first) = (d.u32()?, d.u64()?, d.u64()?, d.u64()?);
            let buckets = (0..d.u8()?).map(|_| d.u64()).collect::<Result<_, _>>()?;
            Ok((id, Trips { least, most, first, buckets }))
        };
        let mut rows = Vec::new();
        for _ in 0..count {
            rows.push(one(d)?);
        }
        Ok(Self { serial, block, rows })
    }
}

impl LoopFrame {
    /// The bytes to append.
    pub fn to_bytes(&self) -> Vec<u8> {
        match self {
            Self::Module(module) => module.to_bytes(),
            Self::Rows(rows) => rows.to_bytes(),
            Self::Events(events) => events.to_bytes(),
            Self::Code(code) => code.to_bytes(),
            Self::Trips(trips) => trips.to_bytes(),
            Self::Moment(ticks, ns) => {
                let mut e = Encoder::new();
                e.u64(*ticks).u64(*ns);
                frame(KIND_MOMENT, &e.finish())
            }
        }
    }

    /// The frame at the start of `bytes`, and its length. `None`: of a kind that this version does
    /// not know.
    ///
    /// # Errors
    /// The bytes end early, or their checksum does not hold.
    pub fn read(bytes: &[u8]) -> Result<(Option<Self>, usize), Truncated> {
        let (kind, payload, end) = raw_frame(bytes)?;
        let d = &mut Decoder::new(payload);
        let frame = match kind {
            KIND_MODULE => Some(Self::Module(ModuleFrame::get(d)?)),
            KIND_ROWS => Some(Self::Rows(RowsFrame::get(d)?)),
            KIND_EVENTS => Some(Self::Events(EventsFrame::get(d)?)),
            KIND_CODE => Some(Self::Code(CodeFrame::get(d)?)),
            KIND_TRIPS => Some(Self::Trips(TripsFrame::get(d)?)),
            KIND_MOMENT => Some(Self::Moment(d.u64()?, d.u64()?)),
            _ => None,
        };
        Ok((frame, end))
    }
}

/// Frames of a file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LoopFrames {
    /// Those that are whole, and of kinds that this version knows.
    pub frames: Vec<LoopFrame>,
    /// Stretches that are no frame.
    pub torn: u64,
}

/// Reads the frames of a file. Several threads append to it, so that a write that was cut short (the
/// disk was full) can stand in the middle: the search goes on at the next whole frame.
pub fn read_frames(bytes: &[u8]) -> LoopFrames {
    let mut all = LoopFrames::default();
    let (mut at, mut inside) = (0, false);
    // Whatever is in the file, its bytes are summed a few times at most.
    let mut budget = bytes.len().saturating_mul(4);
    while at < bytes.len() {
        let rest = &bytes[at..];
        let length = frame_length(rest).filter(|length| *length <= rest.len() && *length <= budget);
        let read = length.and_then(|length| {
            budget -= length;
            LoopFrame::read(rest).ok()
        });
        match read {
            Some((frame, length)) => {
                all.frames.extend(frame);
                at += length;
                inside = false;
            }
            None => {
                all.torn += u64::from(!inside);
                inside = true;
                at += 1;
            }
        }
    }
    all
}

/// How long the frame is that begins here, if what is before its payload looks like one.
fn frame_length(bytes: &[u8]) -> Option<usize> {
    let [a, b, c, d, _, high, zero, also, ..] = *bytes else { return None };
    let plausible = (high, zero, also) == (0, 0, 0);
    plausible.then(|| FRAME_PREFIX_BYTES + u32::from_le_bytes([a, b, c, d]) as usize)
}
