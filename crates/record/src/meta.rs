//! Defines the metadata of one process: a file to which frames are appended while the process runs.
//!
//! ```text
//!  frame   payload length u32 · kind u16 · 0 u16 · XXH64 of payload u64 · payload
//! ```
//!
//! A frame is appended with one `write`, so a crash truncates at most the last one. Readers skip
//! frames of kinds that they do not know. The recorder copies the names of an executable library
//! into a frame when it first sees the library, because the program may unload the library later.
//!
//! | module | purpose |
//! |---|---|
//! | `names` | names of the parts of a profile and of their files |
//! | `process` | the process itself, and the cost of recording it |
//! | `exports` | libraries, their functions, and other exports |
//! | `values` | the meanings of the values that calls can have, and texts |
//! | `calibration` | the cost of recording an empty call |
//!
//! The macro `wire!` generates the code that writes and reads the payload of a frame.

mod calibration;
mod exports;
mod names;
mod process;
#[cfg(test)]
mod tests;
mod values;

use crate::brackets::Brackets;
use crate::clock::{Granularity, Snapshot};
use crate::host::Host;
use crate::job::Job;
pub use crate::role::Role;
use crate::thread_times::ThreadCpu;
use crate::wire::{Decoder, Encoder, Truncated, xxh64};
pub use calibration::{Calibration, Moments, Spread, Sums};
pub use exports::{Export, LONGEST_NAME, Library, OpExport};
pub use names::{
    EVENTS_NAMES, FIRST_PLUGIN_GENERATION, META_NAME, PAGES_NAME, PARTS_NAME, TRACE_NAMES,
    events_name, events_number, part_name, trace_name, trace_number,
};
pub use process::{Leaving, Process, ProcessCost};
pub use values::{Text, ValueKey, ValueKind};

const PREFIX_BYTES: usize = 16;
const KIND_VALUE: u16 = 6;

#[derive(Clone, Debug, PartialEq)]
pub enum Frame {
    /// The identity of the process; the first frame.
    Process(Process),
    /// A moment on all clocks.
    Snapshot(Snapshot),
    /// A library was loaded, or a virtual machine of a host was first seen.
    Library(Library),
    /// A host (a runtime, such as IREE or PyTorch), with the number by which its libraries refer to
    /// it. If several hosts have the same number, the first one is used.
    Host(u8, Box<Host>),
    /// The cost of recording an empty call, and what the counters read for it.
    Calibration(Calibration),
    /// An export that is not a function of a library (for example, an op) was seen for the first
    /// time.
    Op(OpExport),
    /// What the values under one key mean. A call can have values, each under a key.
    Value(ValueKey),
    /// A text that values refer to.
    Text(Text),
    /// What it cost to append the last pages of threads that have ended.
    Leaving(Leaving),
    /// The steps by which the clock advances.
    Clock(Granularity),
    /// The times of one thread's brackets (the recorder's work before and after a call). A later
    /// frame replaces an earlier one with the same `thread_uid`, `counters` and `rehearsed`.
    Brackets(Brackets),
    /// The times that the host itself needed to announce ops of one thread, before and after the
    /// ops. A later frame of the same thread replaces an earlier one.
    Announced(Brackets),
    /// What recording cost the process in addition to the work before and after calls. A later
    /// frame replaces an earlier one.
    Cost(ProcessCost),
    /// The place of the process in a distributed job.
    Job(Job),
    /// The name that the launcher gave the job: see [`crate::job::job_name`].
    JobName(String),
    /// The processor time of each thread that still existed at the end of the process or of the
    /// recording session.
    Threads(Vec<ThreadCpu>),
}

/// Implements writing and reading for an enum of frames.
macro_rules! frames {
    ($name:ident { $($variant:ident($($part:ident),+) = $kind:literal),+ $(,)? }) => {
        impl $name {
            /// Returns the bytes that are appended to a file for this frame.
            pub fn to_bytes(&self) -> Vec<u8> {
                let mut e = $crate::wire::Encoder::new();
                let kind = match self {
                    $(Self::$variant($($part),+) => {
                        $($crate::wire::Wire::put($part, &mut e);)+
                        $kind
                    })+
                };
                $crate::meta::frame(kind, &e.finish())
            }

            /// Reads a payload. Returns `None` for a kind that this version does not know.
            ///
            /// # Errors
            /// Fails if the payload does not have the form of its kind.
            pub(crate) fn of(
                kind: u16,
                payload: &[u8],
            ) -> Result<Option<Self>, $crate::wire::Truncated> {
                let d = &mut $crate::wire::Decoder::new(payload);
                Ok(match kind {
                    $($kind => {
                        $(let $part = $crate::wire::Wire::get(d)?;)+
                        Some(Self::$variant($($part),+))
                    })+
                    _ => None,
                })
            }
        }
    };
}
pub(crate) use frames;

frames!(Frame {
    Process(process) = 1,
    Snapshot(snapshot) = 2,
    Library(library) = 3,
    Calibration(calibration) = 4,
    Op(op) = 5,
    Value(value) = 6,
    Text(text) = 7,
    Leaving(leaving) = 8,
    Clock(steps) = 9,
    Brackets(times) = 12,
    Cost(cost) = 13,
    Job(job) = 14,
    Threads(threads) = 15,
    Announced(times) = 16,
    Host(number, host) = 17,
    JobName(name) = 18,
});

pub(crate) fn frame(kind: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = Encoder::new();
    frame.u32(payload.len() as u32).u16(kind).u16(0).u64(xxh64(payload));
    let mut bytes = frame.finish();
    bytes.extend_from_slice(payload);
    bytes
}

/// The frames of a metadata file, up to its end or to the first damaged frame.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Frames {
    /// The frames of kinds that this version knows.
    pub frames: Vec<Frame>,
    /// Byte offset of the first damaged frame, if there is one.
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

/// Returns the kind, the payload and the length of the frame at the start of `bytes`.
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
    // A key whose kind (the interpretation of its values) was added by a later version is skipped.
    let of_later_version = kind == KIND_VALUE
        && payload.get(4).is_some_and(|kind| ValueKind::from_u8(*kind).is_none());
    Ok((if of_later_version { None } else { Frame::of(kind, payload)? }, end))
}

/// The frames of a file to which several threads append.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scanned<F> {
    /// The frames that are complete and have a kind that this version knows.
    pub frames: Vec<F>,
    /// Number of places in the file where one or more consecutive bytes belong to no valid frame.
    pub torn: u64,
}

impl<F> Default for Scanned<F> {
    fn default() -> Self {
        Self { frames: Vec::new(), torn: 0 }
    }
}

/// Reads the frames of a file to which several threads append. A frame in the middle of the file
/// may be incomplete, for example because the disk was full when a thread wrote it. In that case,
/// the function continues at the next complete frame. `of` reads a payload.
pub(crate) fn scan<F>(
    bytes: &[u8],
    of: impl Fn(u16, &[u8]) -> Result<Option<F>, Truncated>,
) -> Scanned<F> {
    let mut all = Scanned::default();
    let (mut at, mut inside) = (0, false);
    // The number of bytes whose checksums may still be computed. This limit bounds the time for a
    // file that was damaged on purpose.
    let mut left = bytes.len().saturating_mul(4).saturating_add(1 << 20);
    while at < bytes.len() {
        let rest = &bytes[at..];
        let length = frame_length(rest).filter(|length| *length <= rest.len() && *length <= left);
        let read = length.and_then(|length| {
            left -= length;
            let (kind, payload, end) = raw_frame(rest).ok()?;
            Some((of(kind, payload).ok()?, end))
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

/// Returns the length of the frame at the start of `bytes`, if they look like the prefix of a
/// frame.
fn frame_length(bytes: &[u8]) -> Option<usize> {
    let [a, b, c, d, _, high, zero, also, ..] = *bytes else { return None };
    let plausible = (high, zero, also) == (0, 0, 0);
    plausible.then(|| PREFIX_BYTES + u32::from_le_bytes([a, b, c, d]) as usize)
}
