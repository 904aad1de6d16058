//! The metadata of one process: a file of frames, appended while the process runs.
//!
//! ```text
//!  frame   payload length u32 · kind u16 · 0 u16 · XXH64 of payload u64 · payload
//! ```
//!
//! Each frame is appended with one `write`, so a crash cuts at most the last one. Readers skip
//! kinds that they do not know. Names are copied into frames when an executable is first seen,
//! because its own memory goes away when it is unloaded.

use crate::clock::{ClockKind, Snapshot};
use crate::run_file::{get_snapshot, put_snapshot};
use crate::wire::{Decoder, Encoder, Truncated, xxh64};

const PREFIX_BYTES: usize = 16;
const KIND_PROCESS: u16 = 1;
const KIND_SNAPSHOT: u16 = 2;
const KIND_LIBRARY: u16 = 3;
const KIND_CALIBRATION: u16 = 4;

/// Name of the metadata file in a process's part.
pub const META_NAME: &str = "meta.cps";
/// Name of the file of flushed pages in a process's part.
pub const PAGES_NAME: &str = "pages.cps";
/// Directory of a profile that holds one part per process.
pub const PARTS_NAME: &str = "processes";
/// Longest name or path that is kept; see `Loss::NameTruncated`.
pub const LONGEST_NAME: usize = 4095;

/// Name of the part of a process: `PID-STARTTIME-GENERATION`.
pub fn part_name(pid: u32, start_time: u64, generation: u32) -> String {
    format!("{pid}-{start_time}-{generation}")
}

/// One frame.
#[derive(Clone, Debug, PartialEq)]
pub enum Frame {
    /// Who the process is; the first frame.
    Process(Process),
    /// A moment on all clocks.
    Snapshot(Snapshot),
    /// An executable library was loaded.
    Library(Library),
    /// What an empty probe costs and reads here.
    Calibration(Calibration),
}

/// See [`Frame::Process`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Process id, as it sees itself.
    pub pid: u32,
    /// Its parent's.
    pub parent: u32,
    /// Clock ticks since boot (`/proc/PID/stat`, field 22).
    pub start_time: u64,
    /// How many times it had recorded before an `exec`.
    pub generation: u32,
    /// The clock of its pages.
    pub clock: ClockKind,
    /// Path of its program (`/proc/self/exe`).
    pub program: String,
    /// Its arguments.
    pub arguments: Vec<String>,
}

/// How an executable library came into the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum LibraryKind {
    /// IREE's embedded ELF, loaded by IREE's own loader.
    EmbeddedElf = 0,
    /// A shared object, loaded by the dynamic linker.
    SystemLibrary = 1,
    /// Only seen when a runtime with the call hook called it: linked into the program, for
    /// example.
    Hooked = 2,
    /// No library: a kind of activity in an imported trace.
    Imported = 3,
}

impl LibraryKind {
    /// `embedded-elf`, `system-library`, `hooked` or `imported`.
    pub fn name(self) -> &'static str {
        match self {
            Self::EmbeddedElf => "embedded-elf",
            Self::SystemLibrary => "system-library",
            Self::Hooked => "hooked",
            Self::Imported => "imported",
        }
    }
}

/// See [`Frame::Library`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Library {
    /// Number of the library in its process, from 0.
    pub id: u32,
    /// Name that the compiler gave it.
    pub name: String,
    /// How it was loaded.
    pub kind: LibraryKind,
    /// Version of the executable library ABI: 5 or 6.
    pub abi: u32,
    /// The header's feature bits.
    pub features: u32,
    /// The header's sanitizer kind.
    pub sanitizer: u32,
    /// When it was seen, in ticks.
    pub ticks: u64,
    /// Its functions, in the order of their ordinals.
    pub exports: Vec<Export>,
}

/// One function of a library.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Export {
    /// Number in the process; what call records name.
    pub id: u32,
    /// Position in the library.
    pub ordinal: u32,
    /// Whether its calls are recorded (a filter or a lack of trampolines may have left it out).
    pub recorded: bool,
    /// The compiler's name.
    pub name: String,
    /// The compiler's tag, often empty.
    pub tag: String,
    /// Source file where the compiler left one, else empty.
    pub source_path: String,
    /// Source line, 0 if unknown.
    pub source_line: u32,
    /// Workgroup size in x, y, z as declared; 0 if unknown.
    pub workgroup_size: [u32; 3],
    /// Number of bindings.
    pub bindings: u32,
    /// Number of push constants.
    pub constants: u32,
    /// Local memory in pages of 4 KiB.
    pub local_memory_pages: u32,
}

/// See [`Frame::Calibration`]. Medians over the probes of an empty call, in this process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Calibration {
    /// How many empty calls were probed.
    pub calls: u32,
    /// Bit *i*: counter *i* was read.
    pub counters: u32,
    /// Ticks that an empty call is recorded as taking: subtract it from a call's duration.
    pub inside_ticks: u64,
    /// Ticks by which one probe lengthens the program (everything between entry and return).
    pub total_ticks: u64,
    /// What an empty call adds to each counter, in the order of the run's counters.
    pub inside_values: Vec<u64>,
}

impl Frame {
    /// The bytes to append.
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
            Self::Calibration(c) => {
                e.u32(c.calls).u32(c.counters).u64(c.inside_ticks).u64(c.total_ticks);
                e.u32(c.inside_values.len() as u32);
                c.inside_values.iter().for_each(|v| {
                    e.u64(*v);
                });
                KIND_CALIBRATION
            }
        };
        let payload = e.finish();
        let mut frame = Encoder::new();
        frame.u32(payload.len() as u32).u16(kind).u16(0).u64(xxh64(&payload));
        let mut bytes = frame.finish();
        bytes.extend_from_slice(&payload);
        bytes
    }
}

fn put_library(e: &mut Encoder, l: &Library) {
    e.u32(l.id).str(&l.name).u8(l.kind as u8).u32(l.abi).u32(l.features).u32(l.sanitizer);
    e.u64(l.ticks).u32(l.exports.len() as u32);
    for x in &l.exports {
        e.u32(x.id).u32(x.ordinal).u8(x.recorded.into()).str(&x.name).str(&x.tag);
        e.str(&x.source_path).u32(x.source_line);
        x.workgroup_size.iter().for_each(|n| {
            e.u32(*n);
        });
        e.u32(x.bindings).u32(x.constants).u32(x.local_memory_pages);
    }
}

fn get_library(d: &mut Decoder<'_>) -> Result<Library, Truncated> {
    let (id, name, kind) = (d.u32()?, d.string()?, d.u8()?);
    let kind = match kind {
        0 => LibraryKind::EmbeddedElf,
        1 => LibraryKind::SystemLibrary,
        3 => LibraryKind::Imported,
        _ => LibraryKind::Hooked,
    };
    let (abi, features, sanitizer, ticks) = (d.u32()?, d.u32()?, d.u32()?, d.u64()?);
    let exports = (0..d.u32()?)
        .map(|_| {
            Ok(Export {
                id: d.u32()?,
                ordinal: d.u32()?,
                recorded: d.u8()? != 0,
                name: d.string()?,
                tag: d.string()?,
                source_path: d.string()?,
                source_line: d.u32()?,
                workgroup_size: [d.u32()?, d.u32()?, d.u32()?],
                bindings: d.u32()?,
                constants: d.u32()?,
                local_memory_pages: d.u32()?,
            })
        })
        .collect::<Result<_, Truncated>>()?;
    Ok(Library { id, name, kind, abi, features, sanitizer, ticks, exports })
}

/// All frames of a metadata file, up to its end or to the first damage.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Frames {
    /// The frames of kinds that this version knows.
    pub frames: Vec<Frame>,
    /// Where the damage starts, in bytes, if the file is not whole.
    pub torn_at: Option<usize>,
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

fn read_frame(bytes: &[u8]) -> Result<(Option<Frame>, usize), Truncated> {
    let mut prefix = Decoder::new(bytes);
    let (length, kind, _, checksum) =
        (prefix.u32()? as usize, prefix.u16()?, prefix.u16()?, prefix.u64()?);
    let end = PREFIX_BYTES.checked_add(length).ok_or(Truncated { at: 0 })?;
    let payload = bytes.get(PREFIX_BYTES..end).ok_or(Truncated { at: bytes.len() })?;
    if xxh64(payload) != checksum {
        return Err(Truncated { at: PREFIX_BYTES });
    }
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
        KIND_CALIBRATION => {
            let (calls, counters) = (d.u32()?, d.u32()?);
            let (inside_ticks, total_ticks) = (d.u64()?, d.u64()?);
            let inside_values = (0..d.u32()?).map(|_| d.u64()).collect::<Result<_, _>>()?;
            Some(Frame::Calibration(Calibration {
                calls,
                counters,
                inside_ticks,
                total_ticks,
                inside_values,
            }))
        }
        _ => None,
    };
    Ok((frame, end))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Vec<Frame> {
        let export = Export {
            id: 7,
            ordinal: 1,
            recorded: true,
            name: "mlp_dispatch_0".into(),
            source_path: "mlp.mlir".into(),
            source_line: 2,
            workgroup_size: [1, 2, 3],
            ..Export::default()
        };
        vec![
            Frame::Process(Process {
                pid: 1,
                parent: 2,
                start_time: 3,
                generation: 4,
                clock: ClockKind::Tsc,
                program: "/bin/x".into(),
                arguments: vec!["x".into(), "".into()],
            }),
            Frame::Snapshot(Snapshot {
                ticks: 1,
                monotonic_ns: 2,
                realtime_ns: 3,
                uncertainty_ticks: 4,
            }),
            Frame::Library(Library {
                id: 0,
                name: "mlp_linked".into(),
                kind: LibraryKind::SystemLibrary,
                abi: 6,
                features: 0,
                sanitizer: 0,
                ticks: 99,
                exports: vec![export],
            }),
            Frame::Calibration(Calibration {
                calls: 256,
                counters: 3,
                inside_ticks: 50,
                total_ticks: 90,
                inside_values: vec![0, 1],
            }),
        ]
    }

    #[test]
    fn round_trip_and_every_truncation() {
        let frames = example();
        let bytes: Vec<u8> = frames.iter().flat_map(Frame::to_bytes).collect();
        assert_eq!(read_frames(&bytes), Frames { frames: frames.clone(), torn_at: None });
        let ends: Vec<usize> = frames
            .iter()
            .scan(0, |at, f| {
                *at += f.to_bytes().len();
                Some(*at)
            })
            .collect();
        for cut in 0..bytes.len() {
            let read = read_frames(&bytes[..cut]);
            let whole = ends.iter().filter(|end| **end <= cut).count();
            assert_eq!(read.frames, frames[..whole], "cut at {cut}");
            let at_boundary = cut == 0 || ends.contains(&cut);
            assert_eq!(read.torn_at.is_none(), at_boundary, "cut at {cut}");
        }
    }

    #[test]
    fn unknown_kinds_are_skipped() {
        let mut bytes = example()[1].to_bytes();
        bytes[4] = 200;
        bytes.extend(example()[0].to_bytes());
        assert_eq!(read_frames(&bytes).frames, example()[..1]);
    }
}
