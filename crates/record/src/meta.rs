//! The metadata of one process: a file of frames, which is appended to while the process runs.
//!
//! ```text
//!  frame   payload length u32 · kind u16 · 0 u16 · XXH64 of payload u64 · payload
//! ```
//!
//! Each frame is appended with one `write`, so a crash truncates at most the last one. Readers skip
//! kinds that they do not know. Names are copied into frames when an executable is first seen,
//! because its own memory goes away when it is unloaded.
//!
//! | module | purpose |
//! |---|---|
//! | `names` | names of the files of a process's part |
//! | `process` | the process itself, and what recording costs it |
//! | `exports` | libraries, their functions, and other exports |
//! | `values` | what values mean, and texts |
//! | `calibration` | what an empty probe costs |
//!
//! The writer and the reader of a kind of frame are in the same file, because they would drift apart
//! in two.

mod calibration;
mod exports;
mod names;
mod process;
#[cfg(test)]
mod tests;
mod values;

use crate::brackets::Brackets;
use crate::clock::{ClockKind, Granularity, Snapshot};
use crate::host::Host;
use crate::job::Job;
pub use crate::role::Role;
use crate::run_file::{get_snapshot, put_snapshot};
use crate::thread_times::{self, ThreadCpu};
use crate::wire::{Decoder, Encoder, Truncated, xxh64};
pub use calibration::{Calibration, Moments, Spread, Sums};
use calibration::{get_spread, get_sums, put_spread, put_sums};
pub use exports::{Export, LONGEST_NAME, Library, OpExport};
use exports::{get_library, get_op, put_library};
pub use names::{
    EVENTS_NAMES, FIRST_PLUGIN_GENERATION, META_NAME, PAGES_NAME, PARTS_NAME, TRACE_NAMES,
    events_name, events_number, part_name, trace_name, trace_number,
};
pub use process::{Leaving, Process, ProcessCost};
pub use values::{Text, ValueKey, ValueKind};

const PREFIX_BYTES: usize = 16;
const KIND_PROCESS: u16 = 1;
const KIND_SNAPSHOT: u16 = 2;
const KIND_LIBRARY: u16 = 3;
const KIND_CALIBRATION: u16 = 4;
const KIND_OP: u16 = 5;
const KIND_VALUE: u16 = 6;
const KIND_TEXT: u16 = 7;
const KIND_LEAVING: u16 = 8;
const KIND_CLOCK: u16 = 9;
const KIND_BRACKETS: u16 = 12;
const KIND_COST: u16 = 13;
const KIND_JOB: u16 = 14;
const KIND_THREADS: u16 = 15;
const KIND_ANNOUNCED: u16 = 16;
const KIND_HOST: u16 = 17;

/// One frame.
#[derive(Clone, Debug, PartialEq)]
pub enum Frame {
    /// The identity of the process; the first frame.
    Process(Process),
    /// A moment on all clocks.
    Snapshot(Snapshot),
    /// An executable library was loaded, or a machine of a host was first seen.
    Library(Library),
    /// A host with its number, which its libraries refer to. Of several with the same number, the
    /// first one counts.
    Host(u8, Box<Host>),
    /// The cost and the readings of an empty probe in this process.
    Calibration(Calibration),
    /// An export that is not a function of a library was first seen.
    Op(OpExport),
    /// The meaning of one kind of value.
    Value(ValueKey),
    /// A text that values refer to.
    Text(Text),
    /// The cost of the last pages of threads that have ended.
    Leaving(Leaving),
    /// The steps of the clock, as this process measured them.
    Clock(Granularity),
    /// How long brackets took around the program's own calls. A later frame of the same thread
    /// with the same counters replaces an earlier one.
    Brackets(Brackets),
    /// How long the host itself took to announce ops to the recorder, before and after them, by the
    /// thread and with 0 as the counters. A later frame of the same thread replaces an earlier one.
    Announced(Brackets),
    /// What recording costs outside of calls and threads. A later frame replaces an earlier one.
    Cost(ProcessCost),
    /// The place of the process in a distributed job.
    Job(Job),
    /// The processor time of all threads that the process had when it, or the session, ended.
    Threads(Vec<ThreadCpu>),
}

impl Frame {
    /// Returns the bytes to append.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut e = Encoder::new();
        let kind = match self {
            Self::Process(p) => {
                e.u32(p.pid).u32(p.parent).u64(p.start_time).u32(p.generation);
                e.u8(p.clock as u8).str(&p.program).u32(p.arguments.len() as u32);
                p.arguments.iter().for_each(|a| {
                    e.str(a);
                });
                KIND_PROCESS
            }
            Self::Snapshot(s) => {
                put_snapshot(&mut e, s);
                KIND_SNAPSHOT
            }
            Self::Library(library) => {
                put_library(&mut e, library);
                KIND_LIBRARY
            }
            Self::Host(number, host) => {
                host.put(*number, &mut e);
                KIND_HOST
            }
            Self::Calibration(c) => {
                e.u32(c.calls).u32(c.counters).u64(c.inside_ticks).u64(c.total_ticks);
                e.u32(c.inside_values.len() as u32);
                c.inside_values.iter().for_each(|v| {
                    e.u64(*v);
                });
                if let Some(spread) = &c.spread {
                    put_spread(&mut e, spread);
                    if let Some(sums) = &c.sums {
                        put_sums(&mut e, sums);
                    }
                }
                KIND_CALIBRATION
            }
            Self::Op(op) => {
                e.u32(op.id).u32(op.library).u8(op.role as u8).u8(op.asynchronous.into());
                e.str(&op.name).str(&op.arguments).str(&op.device);
                KIND_OP
            }
            Self::Value(value) => {
                e.u32(value.id).u8(value.kind as u8).str(&value.name);
                KIND_VALUE
            }
            Self::Text(text) => {
                e.u32(text.id).str(&text.text);
                KIND_TEXT
            }
            Self::Leaving(leaving) => {
                e.u32(leaving.pages).u64(leaving.cpu_ns);
                KIND_LEAVING
            }
            Self::Clock(steps) => {
                e.u64(steps.smallest_ticks).u64(steps.typical_ticks);
                KIND_CLOCK
            }
            Self::Brackets(brackets) => {
                brackets.put(&mut e);
                KIND_BRACKETS
            }
            Self::Announced(times) => {
                times.put(&mut e);
                KIND_ANNOUNCED
            }
            Self::Cost(cost) => {
                e.u64(cost.constructor_ns).u64(cost.loading_ns);
                e.u64(cost.after_reading_ticks).u64(cost.process_cpu_ns);
                KIND_COST
            }
            Self::Job(job) => {
                // A number of ranks that is not above the rank means that it is not known.
                e.u32(job.rank).u32(job.size.unwrap_or(0));
                KIND_JOB
            }
            Self::Threads(threads) => {
                thread_times::put(&mut e, threads);
                KIND_THREADS
            }
        };
        frame(kind, &e.finish())
    }
}

/// A frame of this kind, ready to append.
pub(crate) fn frame(kind: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = Encoder::new();
    frame.u32(payload.len() as u32).u16(kind).u16(0).u64(xxh64(payload));
    let mut bytes = frame.finish();
    bytes.extend_from_slice(payload);
    bytes
}

/// All frames of a metadata file, up to its end or to the first damaged frame.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Frames {
    /// The frames of kinds that this version knows.
    pub frames: Vec<Frame>,
    /// Byte offset of the damage, if the file is damaged or truncated.
    pub torn_at: Option<usize>,
}

/// Number of bytes before the payload of a frame.
pub const FRAME_PREFIX_BYTES: usize = PREFIX_BYTES;

/// Returns the length of the frame that begins with these bytes, including the prefix.
pub fn frame_bytes(prefix: [u8; PREFIX_BYTES]) -> usize {
    let [a, b, c, d, ..] = prefix;
    PREFIX_BYTES.saturating_add(u32::from_le_bytes([a, b, c, d]) as usize)
}

/// Reads a metadata file.
pub fn read_frames(bytes: &[u8]) -> Frames {
    let mut result = Frames::default();
    let mut at = 0;
    while at < bytes.len() {
        match read_frame(&bytes[at..]) {
            Ok((frame, length)) => {
                result.frames.extend(frame);
                at += length;
            }
            Err(_) => {
                result.torn_at = Some(at);
                break;
            }
        }
    }
    result
}

/// The frame at the start of `bytes`: its kind, its payload and its length.
pub(crate) fn raw_frame(bytes: &[u8]) -> Result<(u16, &[u8], usize), Truncated> {
    let mut prefix = Decoder::new(bytes);
    let (length, kind, _, checksum) =
        (prefix.u32()? as usize, prefix.u16()?, prefix.u16()?, prefix.u64()?);
    let end = PREFIX_BYTES.checked_add(length).ok_or(Truncated { at: 0 })?;
    let payload = bytes.get(PREFIX_BYTES..end).ok_or(Truncated { at: bytes.len() })?;
    if xxh64(payload) != checksum {
        return Err(Truncated { at: PREFIX_BYTES });
    }
    Ok((kind, payload, end))
}

fn read_frame(bytes: &[u8]) -> Result<(Option<Frame>, usize), Truncated> {
    let (kind, payload, end) = raw_frame(bytes)?;
    let d = &mut Decoder::new(payload);
    let frame = match kind {
        KIND_PROCESS => {
            let (pid, parent, start_time, generation) = (d.u32()?, d.u32()?, d.u64()?, d.u32()?);
            let clock = ClockKind::from_u8(d.u8()?).ok_or(Truncated { at: PREFIX_BYTES })?;
            let program = d.string()?;
            let arguments = (0..d.u32()?).map(|_| d.string()).collect::<Result<_, _>>()?;
            Some(Frame::Process(Process {
                pid,
                parent,
                start_time,
                generation,
                clock,
                program,
                arguments,
            }))
        }
        KIND_SNAPSHOT => Some(Frame::Snapshot(get_snapshot(d)?)),
        KIND_LIBRARY => Some(Frame::Library(get_library(d)?)),
        KIND_HOST => {
            let (number, host) = Host::get(d)?;
            Some(Frame::Host(number, Box::new(host)))
        }
        KIND_CALIBRATION => {
            let (calls, counters) = (d.u32()?, d.u32()?);
            let (inside_ticks, total_ticks) = (d.u64()?, d.u64()?);
            let inside_values = (0..d.u32()?).map(|_| d.u64()).collect::<Result<_, _>>()?;
            // Earlier versions end here, or after the spread.
            let spread = if d.remaining() == 0 { None } else { Some(get_spread(d)?) };
            let sums = if d.remaining() == 0 { None } else { Some(get_sums(d)?) };
            Some(Frame::Calibration(Calibration {
                calls,
                counters,
                inside_ticks,
                total_ticks,
                inside_values,
                spread,
                sums,
            }))
        }
        KIND_OP => Some(Frame::Op(get_op(d)?)),
        KIND_VALUE => {
            let (id, kind, name) = (d.u32()?, d.u8()?, d.string()?);
            // A kind of a later version cannot be read, so the key is treated as if it had no
            // frame.
            ValueKind::from_u8(kind).map(|kind| Frame::Value(ValueKey { id, name, kind }))
        }
        KIND_TEXT => Some(Frame::Text(Text { id: d.u32()?, text: d.string()? })),
        KIND_LEAVING => Some(Frame::Leaving(Leaving { pages: d.u32()?, cpu_ns: d.u64()? })),
        KIND_CLOCK => {
            let (smallest_ticks, typical_ticks) = (d.u64()?, d.u64()?);
            Some(Frame::Clock(Granularity { smallest_ticks, typical_ticks }))
        }
        KIND_BRACKETS => Some(Frame::Brackets(Brackets::get(d)?)),
        KIND_ANNOUNCED => Some(Frame::Announced(Brackets::get(d)?)),
        KIND_COST => {
            let (constructor_ns, loading_ns) = (d.u64()?, d.u64()?);
            let (after_reading_ticks, process_cpu_ns) = (d.u64()?, d.u64()?);
            Some(Frame::Cost(ProcessCost {
                constructor_ns,
                loading_ns,
                after_reading_ticks,
                process_cpu_ns,
            }))
        }
        KIND_JOB => {
            let (rank, size) = (d.u32()?, d.u32()?);
            Some(Frame::Job(Job { rank, size: Some(size).filter(|size| *size > rank) }))
        }
        KIND_THREADS => Some(Frame::Threads(thread_times::get(d)?)),
        _ => None,
    };
    Ok((frame, end))
}
