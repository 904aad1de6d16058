//! Reads a trace in Perfetto's format, and returns it as events of Chrome's format.
//!
//! ```text
//!  packets ─► sequence: state, interned texts, clock ─► track event ─► row's queue ─► EventSink::event
//!                 │                                        │
//!                 └─ descriptions of tracks ─► names of rows (`M`)
//! ```
//!
//! | in the trace | event |
//! |---|---|
//! | start and end of a slice on one track | `X`, in the order of the starts of its row |
//! | a start whose end is far away, or missing | `B` (with its `E`) |
//! | instant | `i` |
//! | value of a counter | `C`, named after its track; its key is the unit |
//! | flow ids of a slice or instant | `s` for the first, `t` for the next ones, `f` where the flow terminates |
//! | legacy events | with their own phase |
//! | descriptions of processes and threads | `M` |
//! | metadata of Chrome | keys of the document |
//!
//! Times are in nanoseconds. If the trace relates its clocks to real time, times of events are
//! relative to a base time like Kineto's `baseTimeNanoseconds`. Otherwise, they are relative to the
//! boot of the machine, or on the trace's own clock if it relates no clocks. Packets of other kinds
//! are only counted.
//!
//! The number of events in memory is limited (`MOST_WAITING`).

mod args;
mod clocks;
mod sequence;
mod tracks;

use std::borrow::Cow;
use std::collections::{HashMap, HashSet, VecDeque};
use std::io::{self, BufRead, BufReader, Read};

use flate2::read::ZlibDecoder;
use model::activity::Value as Word;

use super::decode::{Fields, varint};
use super::fields::{chrome, packet, trace};
use crate::chrome::event::{Event, Raw, Scalar};
use crate::chrome::read::{EventSink, ReadError, ReadErrorKind, ReadSummary};
use crate::chrome::write::base_time_ns;
use crate::hash::FastMap;
use crate::text;
use args::Room;
use clocks::Clocks;
use sequence::Sequence;
use tracks::{Id, ProcessTrack, ThreadTrack, Tracks};

/// The size in bytes of the largest packet that is accepted, and of a compressed packet's content.
const MOST_PACKET: u64 = 1 << 28;
/// The maximum length in bytes of a name to which events refer by its number. Longer names are cut,
/// because many events may use them.
const LONGEST_NAME: usize = 1 << 16;
/// How many events wait at most, for their end or for that of a slice before them in the row's
/// queue.
const MOST_WAITING: usize = 1 << 18;
/// If too many events wait, and a row has at least this many of them, only events of the row with
/// the most are passed on.
const MANY_WAITING: usize = 1 << 10;

/// Reads a whole trace.
///
/// # Errors
/// Fails if the source cannot be read, or if the sink returns an error. A trace that is truncated
/// or damaged is read up to the damage.
pub fn read(
    source: impl Read,
    sink: &mut (impl EventSink + ?Sized),
) -> Result<ReadSummary, ReadError> {
    let mut source = BufReader::with_capacity(1 << 18, source);
    let mut reader = Reader::new(sink);
    let mut body = Vec::new();
    loop {
        let at = reader.summary.bytes;
        let io = |error| ReadError { at, kind: ReadErrorKind::Io(error) };
        let length = match head(&mut source).map_err(io)? {
            PacketHead::End => break,
            PacketHead::Packet { length, head } if length <= MOST_PACKET => {
                reader.summary.bytes += head;
                length
            }
            PacketHead::Packet { .. } | PacketHead::Damaged => {
                reader.summary.truncated = true;
                break;
            }
        };
        body.clear();
        let there = (&mut source).take(length).read_to_end(&mut body);
        let cut = match there {
            Ok(n) => (n as u64) < length,
            // The trace is read from a compressed file, which is truncated.
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => true,
            Err(e) => return Err(io(e)),
        };
        if cut {
            reader.summary.truncated = true;
            break;
        }
        reader.packet(&body, true).map_err(|what| refused(at, what))?;
        reader.summary.bytes += length;
    }
    let at = reader.summary.bytes;
    reader.finish().map_err(|what| refused(at, what))
}

fn refused(at: u64, what: String) -> ReadError {
    ReadError { at, kind: ReadErrorKind::Refused(what) }
}

/// The head of the next packet, or why there is none.
enum PacketHead {
    End,
    Packet { length: u64, head: u64 },
    Damaged,
}

fn head(source: &mut impl BufRead) -> io::Result<PacketHead> {
    let (mut bytes, mut used, mut values) = ([0u8; 20], 0, [0u64; 2]);
    for value in &mut values {
        let from = used;
        *value = loop {
            let next = match source.fill_buf() {
                Ok(all) => all.first().copied(),
                Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => None,
                Err(e) => return Err(e),
            };
            let Some(byte) = next else {
                return Ok(if used == 0 { PacketHead::End } else { PacketHead::Damaged });
            };
            source.consume(1);
            bytes[used] = byte;
            used += 1;
            match varint(&bytes[from..used]) {
                Ok((n, _)) => break n,
                Err(_) if used - from < 10 => {}
                Err(_) => return Ok(PacketHead::Damaged),
            }
        };
    }
    match values[0] == u64::from(trace::PACKET << 3 | 2) {
        true => Ok(PacketHead::Packet { length: values[1], head: used as u64 }),
        false => Ok(PacketHead::Damaged),
    }
}

struct Reader<'a, S: ?Sized> {
    sink: &'a mut S,
    summary: ReadSummary,
    sequences: FastMap<u64, Sequence>,
    tracks: Tracks,
    clocks: Clocks,
    base_ns: Option<i64>,
    rows: Vec<Row>,
    by_ids: HashMap<(Id, Id), usize>,
    /// The row of each track that was looked up since a track was last described.
    by_track: FastMap<u64, usize>,
    /// The open slices of each track, sorted by start: row, index among all events that were ever
    /// in the row's queue, and start. The slices must be sorted, because a slice that surrounds
    /// others may be written after them.
    open: FastMap<u64, Vec<(usize, u64, i64)>>,
    waiting: usize,
    flows: HashSet<u64>,
    /// By process and name: the track of the first counter with this name. Later counters of the
    /// process with the same name get an id.
    counters: HashMap<(Id, Box<str>), u64>,
    /// The current values of the counters whose packets contain differences.
    sums: FastMap<u64, f64>,
    room: Room,
    document: Vec<(String, String)>,
}

#[derive(Debug)]
struct Row {
    process: Id,
    thread: Id,
    queue: VecDeque<Pending>,
    /// How many events were removed from the queue.
    gone: u64,
}

/// An event in the queue of its row.
#[derive(Clone, Debug, Default)]
struct Pending {
    phase: u8,
    category: Box<str>,
    name: Box<str>,
    at_ns: i64,
    duration_ns: Option<i64>,
    args: Vec<u8>,
    lost: u32,
    /// The flows, and whether each ends at this event.
    flows: Vec<(u64, bool)>,
    /// Whether the event is a slice whose end was not read yet.
    open: bool,
}

impl Id {
    fn scalar(&self) -> Scalar<'_> {
        match self {
            Self::Number(n) => Scalar::Int(*n),
            Self::Text(text) => Scalar::Text(Cow::Borrowed(text)),
        }
    }
}

type Done = Result<(), String>;

impl<'a, S: EventSink + ?Sized> Reader<'a, S> {
    fn new(sink: &'a mut S) -> Self {
        Self {
            sink,
            summary: ReadSummary::default(),
            sequences: FastMap::default(),
            tracks: Tracks::default(),
            clocks: Clocks::default(),
            base_ns: None,
            rows: Vec::new(),
            by_ids: HashMap::new(),
            by_track: FastMap::default(),
            open: FastMap::default(),
            waiting: 0,
            flows: HashSet::new(),
            counters: HashMap::new(),
            sums: FastMap::default(),
            room: Room::default(),
            document: Vec::new(),
        }
    }

    fn packet(&mut self, bytes: &[u8], outer: bool) -> Done {
        let mut number = 0;
        for (field, value, _) in Fields::new(bytes).flatten() {
            match (field, value.bytes()) {
                (packet::COMPRESSED_PACKETS, Some(inside)) if outer => {
                    return self.compressed(inside);
                }
                (packet::COMPRESSED_PACKETS | packet::ZSTD_PACKETS, _) => {
                    self.summary.damaged += 1;
                    return Ok(());
                }
                (packet::SEQUENCE_ID, None) => number = value.uint().unwrap_or(0),
                _ => {}
            }
        }
        let mut sequence = self.sequences.remove(&number).unwrap_or_default();
        let done = self.in_sequence(number, bytes, &mut sequence);
        self.sequences.insert(number, sequence);
        done
    }

    fn compressed(&mut self, bytes: &[u8]) -> Done {
        let mut packets = Vec::new();
        let read = ZlibDecoder::new(bytes).take(MOST_PACKET).read_to_end(&mut packets);
        self.summary.damaged += u64::from(read.is_err());
        for field in Fields::new(&packets) {
            match field {
                Ok((trace::PACKET, value, _)) => {
                    self.packet(value.bytes().unwrap_or_default(), false)?;
                }
                Ok(_) => {}
                Err(_) => self.summary.damaged += u64::from(read.is_ok()),
            }
        }
        Ok(())
    }

    fn in_sequence(&mut self, number: u64, bytes: &[u8], sequence: &mut Sequence) -> Done {
        self.room.read += bytes.len() as u64;
        let mut p = sequence::Packet::default();
        let mut known = false;
        for field in Fields::new(bytes) {
            let Ok((field, value, _)) = field else {
                self.summary.damaged += 1;
                return Ok(());
            };
            match (field, value.bytes()) {
                (packet::CLOCK_SNAPSHOT, Some(snapshot)) => self.clocks.snapshot(number, snapshot),
                (packet::TRACK_DESCRIPTOR, Some(track)) => self.describe(track)?,
                (packet::CHROME_EVENTS, Some(bundle)) => self.metadata(bundle),
                (packet::PROCESS, Some(process)) => {
                    let process = ProcessTrack::read(process);
                    sequence.pid = process.pid;
                    self.name_process(&process)?;
                }
                (packet::THREAD, Some(thread)) => {
                    sequence.describe_thread(thread);
                    self.name_thread(&ThreadTrack::read(thread))?;
                }
                (packet::JOIN, Some(join)) => self.join(join),
                _ => {
                    known |= p.take(field, value);
                    continue;
                }
            }
            known = true;
        }
        self.summary.skipped += u64::from(!known);
        if !sequence.update(&p) {
            // The packets with the texts and defaults that the event needs are missing.
            self.summary.damaged += u64::from(p.event.is_some());
            return Ok(());
        }
        let Some(event) = p.event else { return Ok(()) };
        let event = sequence::TrackEvent::read(event);
        let Some(at_ns) = sequence.time(number, &p, &event, &mut self.clocks) else {
            self.summary.lost += 1;
            self.summary.damaged += 1;
            return Ok(());
        };
        let real = self.clocks.is_real();
        let base = *self.base_ns.get_or_insert_with(|| if real { base_time_ns(at_ns) } else { 0 });
        self.track_event(sequence, &event, at_ns.saturating_sub(base))
    }

    /// Stores the description of a track, and passes on the names of its process and thread.
    fn describe(&mut self, bytes: &[u8]) -> Done {
        // A name of a process or thread is passed on only if it is new. Otherwise, many short
        // packets could repeat a long name.
        let track = self.tracks.describe(bytes);
        self.by_track.clear();
        if let Some(process) = &track.process {
            self.name_process(process)?;
        }
        if let Some(thread) = &track.thread {
            self.name_thread(thread)?;
        }
        Ok(())
    }

    fn name_process(&mut self, process: &ProcessTrack) -> Done {
        let row = (Id::Number(process.pid), None);
        self.name_row(&row, "process_name", "name", Word::Text(&process.name))?;
        self.name_row(&row, "process_labels", "labels", Word::Text(&process.labels))?;
        let sort = process.sort.map_or(Word::Text(""), Word::Int);
        self.name_row(&row, "process_sort_index", "sort_index", sort)
    }

    fn name_thread(&mut self, thread: &ThreadTrack) -> Done {
        let row = (Id::Number(thread.pid), Some(Id::Number(thread.tid)));
        self.name_row(&row, "thread_name", "name", Word::Text(&thread.name))?;
        let sort = thread.sort.map_or(Word::Text(""), Word::Int);
        self.name_row(&row, "thread_sort_index", "sort_index", sort)
    }

    fn name_row(&mut self, row: &(Id, Option<Id>), what: &str, key: &str, value: Word<'_>) -> Done {
        let mut json = format!("{{\"{key}\":").into_bytes();
        match value {
            Word::Text("") => return Ok(()),
            Word::Text(name) => text::string(&mut json, name),
            Word::Int(n) => text::int(&mut json, n),
            _ => return Ok(()),
        }
        json.push(b'}');
        let event = Event {
            phase: b'M',
            name: Some(Cow::Borrowed(what)),
            pid: Some(row.0.scalar()),
            tid: row.1.as_ref().map(Id::scalar),
            args: str::from_utf8(&json).ok().map(Raw::of),
            ..Event::default()
        };
        self.summary.events += 1;
        self.sink.event(self.summary.bytes, &event)
    }

    /// Adds Chrome's metadata to the keys of the document.
    fn metadata(&mut self, bundle: &[u8]) {
        for (number, value, _) in Fields::new(bundle).flatten() {
            let (chrome::METADATA, Some(one)) = (number, value.bytes()) else { continue };
            let (mut name, mut json) = (String::new(), String::new());
            for (number, value, _) in Fields::new(one).flatten() {
                let lossy = || String::from_utf8_lossy(value.bytes().unwrap_or_default());
                match number {
                    chrome::NAME => name = lossy().into_owned(),
                    chrome::TEXT => json = serde_json::Value::from(&*lossy()).to_string(),
                    chrome::BOOL => json = (value.uint() != Some(0)).to_string(),
                    chrome::INT => json = (value.uint().unwrap_or(0) as i64).to_string(),
                    chrome::JSON => json = lossy().into_owned(),
                    _ => {}
                }
            }
            if !json.is_empty() && name != "baseTimeNanoseconds" && name != "traceEvents" {
                self.document.push((name, json));
            }
        }
    }

    fn row_of(&mut self, uuid: u64) -> usize {
        if let Some(row) = self.by_track.get(&uuid) {
            return *row;
        }
        let row = self.row(self.tracks.row(uuid));
        self.by_track.insert(uuid, row);
        row
    }

    fn row(&mut self, (process, thread): (Id, Id)) -> usize {
        let rows = &mut self.rows;
        *self.by_ids.entry((process.clone(), thread.clone())).or_insert_with(|| {
            rows.push(Row { process, thread, queue: VecDeque::new(), gone: 0 });
            rows.len() - 1
        })
    }

    /// Handles a field of our own writer: a track is part of another track's row.
    fn join(&mut self, bytes: &[u8]) {
        let (mut track, mut row) = (0, None);
        for (number, value, _) in Fields::new(bytes).flatten() {
            match number {
                packet::JOIN_TRACK => track = value.uint().unwrap_or(0),
                packet::JOIN_ROW => row = value.uint(),
                _ => {}
            }
        }
        if let Some(row) = row {
            self.tracks.join(track, row);
            self.by_track.clear();
        }
    }

    /// Puts an event into the queue of its row, and passes on the events that need not wait any
    /// longer.
    fn put(&mut self, row: usize, pending: Pending) -> Done {
        self.rows[row].queue.push_back(pending);
        self.waiting += 1;
        if self.waiting > MOST_WAITING {
            // The event that has waited longest is likely to be in the row with the most events.
            // Half of this row's events are passed on. If even this row has few events, half the
            // events of every row are passed on, because searching all rows for few events would
            // take too long.
            let longest = (0..self.rows.len()).max_by_key(|row| self.rows[*row].queue.len());
            let longest = longest.unwrap_or(row);
            let some = match self.rows[longest].queue.len() < MANY_WAITING {
                true => 0..self.rows.len(),
                false => longest..longest + 1,
            };
            for row in some {
                for _ in 0..self.rows[row].queue.len().div_ceil(2) {
                    self.take(row)?;
                }
            }
        }
        self.drain(row)
    }

    /// Passes on the first events of a row, up to the first slice whose end was not read yet.
    fn drain(&mut self, row: usize) -> Done {
        while self.rows[row].queue.front().is_some_and(|first| !first.open) {
            self.take(row)?;
        }
        Ok(())
    }

    /// Passes on the first event of a row.
    fn take(&mut self, row: usize) -> Done {
        let Some(mut pending) = self.rows[row].queue.pop_front() else { return Ok(()) };
        self.rows[row].gone += 1;
        self.waiting -= 1;
        if pending.open {
            pending.phase = b'B';
        }
        self.give(row, &pending)
    }

    fn give(&mut self, row: usize, pending: &Pending) -> Done {
        let at = self.summary.bytes;
        let Row { process, thread, .. } = &self.rows[row];
        let (pid, tid) = (Some(process.scalar()), Some(thread.scalar()));
        let some = |text: &'_ str| !text.is_empty();
        let mut event = Event {
            phase: pending.phase,
            pid,
            tid,
            time_ns: Some(pending.at_ns).filter(|_| pending.phase != b'M'),
            duration_ns: pending.duration_ns,
            name: Some(Cow::Borrowed(&*pending.name)).filter(|_| pending.phase != b'E'),
            category: Some(Cow::Borrowed(&*pending.category)).filter(|c| some(c)),
            args: str::from_utf8(&pending.args).ok().filter(|a| some(a)).map(Raw::of),
            lost: pending.lost,
            ..Event::default()
        };
        if pending.phase == b'i' {
            event.scope = Some(Cow::Borrowed("t"));
        }
        self.summary.events += 1;
        self.summary.lost += u64::from(pending.lost);
        self.sink.event(at, &event)?;
        for (id, ends) in &pending.flows {
            let first = self.flows.insert(*id);
            event.phase = match (ends, first) {
                (true, _) => b'f',
                (false, true) => b's',
                (false, false) => b't',
            };
            event.id = Some(i64::try_from(*id).map_or(Scalar::Big(*id), Scalar::Int));
            event.binding = ends.then_some(Cow::Borrowed("e"));
            (event.name, event.category) = (Some("flow".into()), Some("flow".into()));
            (event.duration_ns, event.args, event.scope, event.lost) = (None, None, None, 0);
            self.summary.events += 1;
            self.sink.event(at, &event)?;
        }
        Ok(())
    }

    fn finish(mut self) -> Result<ReadSummary, String> {
        for row in 0..self.rows.len() {
            while !self.rows[row].queue.is_empty() {
                self.take(row)?;
            }
        }
        // Without events, the base time is 0. If the times are not real time, there is no base
        // time.
        let base =
            self.base_ns.or(Some(0)).filter(|_| self.clocks.is_real() || self.base_ns.is_none());
        let base = base.map(|ns| ("baseTimeNanoseconds".to_owned(), ns.to_string()));
        for (key, json) in base.into_iter().chain(std::mem::take(&mut self.document)) {
            match serde_json::from_str::<Raw<'_>>(&json) {
                Ok(raw) => self.sink.top(self.summary.bytes, &key, raw)?,
                Err(_) => self.summary.lost += 1,
            }
        }
        Ok(self.summary)
    }
}
