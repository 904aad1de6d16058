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
//! above 600 lines: the writer and the reader of each kind of frame are in one file, because they
//! would drift apart in two.

use crate::brackets::Brackets;
use crate::clock::{ClockKind, Granularity, Snapshot};
use crate::host::Host;
use crate::job::Job;
pub use crate::role::Role;
use crate::run_file::{get_snapshot, put_snapshot};
use crate::thread_times::{self, ThreadCpu};
use crate::wire::{Decoder, Encoder, Truncated, xxh64};

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

/// Name of the metadata file in a process's part.
pub const META_NAME: &str = "meta.cps";
/// Name of the file of flushed pages in a process's part.
pub const PAGES_NAME: &str = "pages.cps";
/// Directory of a profile that contains one part for each process.
pub const PARTS_NAME: &str = "processes";
/// How the names of a part's files of events begin and end ([`events_name`]).
pub const EVENTS_NAMES: (&str, &str) = ("plugins-", ".events");
/// Length in bytes of the longest name or path that is kept; see `Loss::NameTruncated`.
pub const LONGEST_NAME: usize = 4095;

/// Name of the part of a process: `PID-STARTTIME-GENERATION`.
pub fn part_name(pid: u32, start_time: u64, generation: u32) -> String {
    format!("{pid}-{start_time}-{generation}")
}

/// Generations from here on are not of programs: they are parts with the events that profiler plugins
/// handed over in the process of the same id.
pub const FIRST_PLUGIN_GENERATION: u32 = 1 << 20;

/// Name of a part's file of events with this number. Such a file is a stream of `plugin_host`.
pub fn events_name(number: u32) -> String {
    format!("{}{number}{}", EVENTS_NAMES.0, EVENTS_NAMES.1)
}

/// How the names of a part's trace files begin and end ([`trace_name`]).
pub const TRACE_NAMES: (&str, &str) = ("trace-", ".json");

/// Name of a part's trace file with this number: a recording of PyTorch's profiler as that writes it.
pub fn trace_name(number: u32) -> String {
    format!("{}{number}{}", TRACE_NAMES.0, TRACE_NAMES.1)
}

/// Returns the number of a part's trace file, if this is the name of one. PyTorch writes to a file with
/// `.tmp` at the end of its name, and renames it when it is complete.
pub fn trace_number(name: &str) -> Option<u32> {
    let name = name.strip_suffix(".tmp").unwrap_or(name);
    let number = name.strip_prefix(TRACE_NAMES.0)?.strip_suffix(TRACE_NAMES.1)?;
    number.parse().ok()
}

/// Returns the number of a part's file of events, if this is the name of one.
pub fn events_number(name: &str) -> Option<u32> {
    let number = name.strip_prefix(EVENTS_NAMES.0)?.strip_suffix(EVENTS_NAMES.1)?;
    number.parse().ok()
}

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

/// See [`Frame::Cost`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessCost {
    /// Processor time of the library's constructor, in ns.
    pub constructor_ns: u64,
    /// The same of reading the run file, making the process's part, taking in libraries, and of
    /// hooks that a language's package needs.
    pub loading_ns: u64,
    /// How much longer some code takes right after counters were read than when it runs again, in
    /// ticks: the reading has displaced its data and instructions. 0 without counters.
    pub after_reading_ticks: u64,
    /// Processor time of the whole process when this was written, in ns; 0 if that was not at its
    /// end.
    pub process_cpu_ns: u64,
}

/// See [`Frame::Leaving`]. A page cannot contain the cost of its own appending, so the process
/// writes it when it ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Leaving {
    /// Number of pages that threads appended when they ended.
    pub pages: u32,
    /// CPU time that those pages took in total, in ns.
    pub cpu_ns: u64,
}

/// See [`Frame::Process`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Process id in the process's own namespace.
    pub pid: u32,
    /// Process id of its parent.
    pub parent: u32,
    /// Start time in clock ticks since boot (`/proc/PID/stat`, field 22).
    pub start_time: u64,
    /// Number of parts that the same process made before this one, for example before an `exec`.
    pub generation: u32,
    /// The clock of its pages.
    pub clock: ClockKind,
    /// Path of its program (`/proc/self/exe`).
    pub program: String,
    /// Its arguments.
    pub arguments: Vec<String>,
}

/// See [`Frame::Library`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Library {
    /// The library's number in its process, starting at 0.
    pub id: u32,
    /// The name that the compiler gave it.
    pub name: String,
    /// The number of its host in the process: see [`Frame::Host`].
    pub host: u8,
    /// Version of the executable library ABI: 5 or 6.
    pub abi: u32,
    /// The header's feature bits.
    pub features: u32,
    /// The header's sanitizer kind.
    pub sanitizer: u32,
    /// When it was first seen, in ticks.
    pub ticks: u64,
    /// Its functions, in the order of their ordinals.
    pub exports: Vec<Export>,
}

/// One function of a library.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Export {
    /// The export's number in the process, which call records refer to.
    pub id: u32,
    /// The export's position in the library.
    pub ordinal: u32,
    /// Whether its calls are recorded. A filter or a lack of trampolines may exclude it.
    pub recorded: bool,
    /// The compiler's name.
    pub name: String,
    /// The compiler's tag, often empty.
    pub tag: String,
    /// Source file if the compiler recorded one, otherwise empty.
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

/// See [`Frame::Op`]. Regions and tasks have the name, arguments and device of their op.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpExport {
    /// The export's number in the process, which call records refer to. From the same range as
    /// [`Export::id`].
    pub id: u32,
    /// The [`Library::id`] that the export belongs to.
    pub library: u32,
    /// The role of its calls.
    pub role: Role,
    /// Name of the function.
    pub name: String,
    /// Types and shapes of its tensor arguments, including results that are passed as arguments:
    /// `float32[1, 64], float32[64, 64]`. Empty if there are none.
    pub arguments: String,
    /// Type and number of the device of its last tensor argument: `cpu0`. Empty if there is none.
    pub device: String,
    /// Whether its calls return before the device has finished; durations are then those of
    /// launches.
    pub asynchronous: bool,
}

/// The meaning of a key of values; see [`crate::page`]. Keys below [`crate::page::FIRST_USER_KEY`]
/// have a fixed meaning and no frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueKey {
    /// The key.
    pub id: u32,
    /// The name that views show.
    pub name: String,
    /// How to interpret the value's 64 bits.
    pub kind: ValueKind,
}

/// How the 64 bits of a value are interpreted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ValueKind {
    /// A signed integer.
    Count = 0,
    /// Microseconds, as a double.
    Duration = 1,
    /// Percent, as a double.
    Percent = 2,
    /// A double.
    Ratio = 3,
    /// The number of a [`Text`].
    Text = 4,
}

impl ValueKind {
    /// Returns the kind that has this number.
    pub fn from_u8(kind: u8) -> Option<Self> {
        [Self::Count, Self::Duration, Self::Percent, Self::Ratio, Self::Text]
            .get(usize::from(kind))
            .copied()
    }
}

/// See [`ValueKind::Text`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text {
    /// The text's number in the process.
    pub id: u32,
    /// The text.
    pub text: String,
}

/// See [`Frame::Calibration`]. All values are medians over the probes of an empty call in this
/// process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Calibration {
    /// Number of empty calls that were probed.
    pub calls: u32,
    /// Bit *i* is set if counter *i* was read.
    pub counters: u32,
    /// Duration in ticks that is recorded for an empty call. Subtract it from a call's duration.
    pub inside_ticks: u64,
    /// Ticks by which one probe lengthens the program (everything between entry and return).
    pub total_ticks: u64,
    /// What an empty call adds to each counter, in the order of the run's counters.
    pub inside_values: Vec<u64>,
    /// How much the calls varied. `None` in profiles from before this was recorded.
    pub spread: Option<Spread>,
    /// Their sums, from which means follow. `None` in profiles from before this was recorded.
    pub sums: Option<Sums>,
}

/// See [`Calibration::sums`]. Calls that something interrupted are left out of all of these sums:
/// an interrupt takes as long as a hundred brackets, and is rare in the program as well.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// The thread that was calibrated: [`crate::page::PageStart::thread_uid`].
    pub thread_uid: u32,
    /// Number of calls in the sums. The other ones of [`Calibration::calls`] were interrupted, or
    /// ran code that was not in the caches yet.
    pub calls: u32,
    /// Sums of the recorded durations, in ticks.
    pub inside_ticks: Moments,
    /// Sums of the time of a probed empty call minus the median time of a bare one, in ticks.
    pub total_ticks: Moments,
    /// Sums of what each counter read, in the order of [`Calibration::inside_values`].
    pub inside_values: Vec<Moments>,
}

/// The sum of some values, and the sum of their squares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moments {
    /// Sum of the values.
    pub sum: u64,
    /// Sum of their squares. Values are those of empty calls, so this does not overflow in
    /// practice; it saturates.
    pub squares: u64,
}

impl Moments {
    /// Adds a value.
    pub fn add(&mut self, value: u64) {
        self.sum = self.sum.saturating_add(value);
        self.squares = self.squares.saturating_add(value.saturating_mul(value));
    }

    /// The mean of `n` values and their standard deviation. `None` if there are fewer than two.
    pub fn mean_and_deviation(&self, n: u32) -> Option<(f64, f64)> {
        if n < 2 {
            return None;
        }
        let (n, sum) = (f64::from(n), self.sum as f64);
        let rest = self.squares as f64 - sum * sum / n;
        Some((sum / n, (rest.max(0.0) / (n - 1.0)).sqrt()))
    }
}

/// See [`Calibration::spread`]. Ranges go from the 10th to the 90th percentile of the calls from
/// which the medians were computed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spread {
    /// Range of [`Calibration::inside_ticks`].
    pub inside_ticks: [u64; 2],
    /// Range of the time of a probed empty call minus the median time of a bare one, in ticks.
    pub total_ticks: [u64; 2],
    /// Range of each of [`Calibration::inside_values`].
    pub inside_values: Vec<[u64; 2]>,
    /// Median time for which each counter group was enabled between its two readings, in ns, in the
    /// order of the groups that were read. It exceeds the recorded duration by about one reading.
    pub enabled_ns: Vec<u64>,
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

fn put_spread(e: &mut Encoder, s: &Spread) {
    let put = |e: &mut Encoder, [low, high]: [u64; 2]| {
        e.u64(low).u64(high);
    };
    put(e, s.inside_ticks);
    put(e, s.total_ticks);
    e.u32(s.inside_values.len() as u32);
    s.inside_values.iter().for_each(|range| put(e, *range));
    e.u32(s.enabled_ns.len() as u32);
    s.enabled_ns.iter().for_each(|ns| {
        e.u64(*ns);
    });
}

fn get_spread(d: &mut Decoder<'_>) -> Result<Spread, Truncated> {
    let range = |d: &mut Decoder<'_>| Ok([d.u64()?, d.u64()?]);
    Ok(Spread {
        inside_ticks: range(d)?,
        total_ticks: range(d)?,
        inside_values: (0..d.u32()?).map(|_| range(d)).collect::<Result<_, _>>()?,
        enabled_ns: (0..d.u32()?).map(|_| d.u64()).collect::<Result<_, _>>()?,
    })
}

fn put_sums(e: &mut Encoder, s: &Sums) {
    let put = |e: &mut Encoder, m: Moments| {
        e.u64(m.sum).u64(m.squares);
    };
    e.u32(s.thread_uid).u32(s.calls);
    put(e, s.inside_ticks);
    put(e, s.total_ticks);
    e.u32(s.inside_values.len() as u32);
    s.inside_values.iter().for_each(|m| put(e, *m));
}

fn get_sums(d: &mut Decoder<'_>) -> Result<Sums, Truncated> {
    let get = |d: &mut Decoder<'_>| Ok(Moments { sum: d.u64()?, squares: d.u64()? });
    Ok(Sums {
        thread_uid: d.u32()?,
        calls: d.u32()?,
        inside_ticks: get(d)?,
        total_ticks: get(d)?,
        inside_values: (0..d.u32()?).map(|_| get(d)).collect::<Result<_, _>>()?,
    })
}

fn put_library(e: &mut Encoder, l: &Library) {
    e.u32(l.id).str(&l.name).u8(l.host).u32(l.abi).u32(l.features).u32(l.sanitizer);
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

/// Reads a name. Views repeat names, so one that no recorder writes is cut.
fn kept_name(d: &mut Decoder<'_>) -> Result<String, Truncated> {
    let bytes = d.bytes()?;
    Ok(String::from_utf8_lossy(&bytes[..bytes.len().min(LONGEST_NAME)]).into_owned())
}

fn get_library(d: &mut Decoder<'_>) -> Result<Library, Truncated> {
    let (id, name, host) = (d.u32()?, kept_name(d)?, d.u8()?);
    let (abi, features, sanitizer, ticks) = (d.u32()?, d.u32()?, d.u32()?, d.u64()?);
    let exports = (0..d.u32()?)
        .map(|_| {
            Ok(Export {
                id: d.u32()?,
                ordinal: d.u32()?,
                recorded: d.u8()? != 0,
                name: kept_name(d)?,
                tag: kept_name(d)?,
                source_path: kept_name(d)?,
                source_line: d.u32()?,
                workgroup_size: [d.u32()?, d.u32()?, d.u32()?],
                bindings: d.u32()?,
                constants: d.u32()?,
                local_memory_pages: d.u32()?,
            })
        })
        .collect::<Result<_, Truncated>>()?;
    Ok(Library { id, name, host, abi, features, sanitizer, ticks, exports })
}

fn get_op(d: &mut Decoder<'_>) -> Result<OpExport, Truncated> {
    let (id, library, role, asynchronous) = (d.u32()?, d.u32()?, d.u8()?, d.u8()? != 0);
    let role = Role::ALL.get(usize::from(role)).copied().unwrap_or_default();
    let (name, arguments, device) = (kept_name(d)?, d.string()?, kept_name(d)?);
    Ok(OpExport { id, library, role, name, arguments, device, asynchronous })
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::brackets::Histogram;

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
            Frame::Host(
                2,
                Box::new(Host { name: "toy".into(), title: "Toy".into(), ..Host::UNKNOWN }),
            ),
            Frame::Library(Library {
                id: 0,
                name: "mlp_linked".into(),
                host: 2,
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
                spread: None,
                sums: None,
            }),
            Frame::Calibration(Calibration {
                calls: 256,
                counters: 3,
                inside_ticks: 50,
                total_ticks: 90,
                inside_values: vec![0, 1],
                spread: Some(Spread {
                    inside_ticks: [48, 55],
                    total_ticks: [88, 130],
                    inside_values: vec![[0, 0], [1, 4]],
                    enabled_ns: vec![400, 410],
                }),
                sums: None,
            }),
            Frame::Calibration(Calibration {
                calls: 256,
                counters: 3,
                inside_ticks: 50,
                total_ticks: 90,
                inside_values: vec![0, 1],
                spread: Some(Spread::default()),
                sums: Some(Sums {
                    thread_uid: 4,
                    calls: 200,
                    inside_ticks: Moments { sum: 10_000, squares: 500_100 },
                    total_ticks: Moments { sum: 18_000, squares: 1 << 40 },
                    inside_values: vec![Moments::default(), Moments { sum: 200, squares: 200 }],
                }),
            }),
            Frame::Op(OpExport {
                id: 8,
                library: 1,
                role: Role::Task,
                name: "matmul1".into(),
                arguments: "float32[1, 64], float32[64, 64]".into(),
                device: "cuda0".into(),
                asynchronous: true,
            }),
            Frame::Value(ValueKey { id: 16, name: "l2 hits".into(), kind: ValueKind::Percent }),
            Frame::Text(Text { id: 3, text: "avx2".into() }),
            Frame::Leaving(Leaving { pages: 3, cpu_ns: 1 << 40 }),
            Frame::Clock(Granularity { smallest_ticks: 18, typical_ticks: 24 }),
            Frame::Brackets(Brackets {
                thread_uid: 4,
                counters: 3,
                rehearsed: true,
                before: Histogram(vec![(3, 200), (240, 1)]),
                after: Histogram::default(),
            }),
            Frame::Announced(Brackets {
                thread_uid: 4,
                before: Histogram(vec![(57, 30)]),
                after: Histogram(vec![(20, 29), (47, 1)]),
                ..Brackets::default()
            }),
            Frame::Cost(ProcessCost {
                constructor_ns: 300_000,
                loading_ns: 1 << 40,
                after_reading_ticks: 90,
                process_cpu_ns: 7,
            }),
            Frame::Job(Job { rank: 3, size: Some(8) }),
            Frame::Job(Job { rank: 3, size: None }),
            Frame::Threads(vec![ThreadCpu { tid: 9, name: "pool-1".into(), cpu_ns: 1 << 40 }]),
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

    /// The numbers in files are places in these lists.
    #[test]
    fn lists_are_in_the_order_of_their_numbers() {
        assert!(Role::ALL.iter().enumerate().all(|(i, role)| *role as usize == i));
    }

    /// 1, 2, 3, 4: the mean is 2.5, and the squares of the differences add up to 5.
    #[test]
    fn means_follow_from_sums() {
        let mut moments = Moments::default();
        (1..=4).for_each(|value| moments.add(value));
        assert_eq!(moments, Moments { sum: 10, squares: 30 });
        assert_eq!(moments.mean_and_deviation(4), Some((2.5, (5.0f64 / 3.0).sqrt())));
        assert_eq!(moments.mean_and_deviation(1), None);
        moments.add(u64::MAX);
        assert_eq!(moments.squares, u64::MAX);
    }

    #[test]
    fn unknown_kinds_are_skipped() {
        let mut bytes = example()[1].to_bytes();
        bytes[4] = 200;
        bytes.extend(example()[0].to_bytes());
        assert_eq!(read_frames(&bytes).frames, example()[..1]);
    }
}
