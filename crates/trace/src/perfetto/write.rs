//! Writes Perfetto's format. Each row is one sequence of packets, or several if its slices overlap
//! without being nested.
//!
//! | item | written as |
//! |---|---|
//! | process or thread with real ids | a track with a process or thread descriptor |
//! | any other row | a named track below its process |
//! | slice | a start and an end; its arguments are annotations, and its arrow is a flow |
//! | counter | one track per series, with its unit; values at the start of a slice are in the slice's packet |
//! | clocks | snapshots of `CLOCK_REALTIME`, which times use, and `CLOCK_MONOTONIC` |
//! | everything else | metadata `counterpoint`, the same object as in Chrome JSON |

mod counters;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::io::{self, Write};

use flate2::Compression;
use flate2::write::ZlibEncoder;

use self::counters::ProcessState;
use super::encode::Encoder;
use super::extras::Extras;
use super::fields::{chrome, clocks, event, packet, trace, track};
use super::row::{Number, Point, Sequence, end_of};
use crate::hash::FastMap;
use crate::timeline::{
    Arg, Id, Instant, ProcessRow, Row, SeriesPoint, Slice, ThreadRow, TimelineSink,
};

/// When this many bytes are buffered, the packets are written. If they are compressed, they are
/// compressed together.
const FLUSH_BYTES: usize = 1 << 18;
/// The sequence for packets that belong to no row.
const GLOBAL: u64 = 1;
/// Stands for no track, because tracks are numbered from 1.
const NO_TRACK: u64 = 0;
/// The process and thread ids of Linux.
pub const REAL_IDS: std::ops::Range<i64> = 1..1 << 22;
/// Ids that replace the real ids of processes of other machines or ranks, because another process
/// of the trace may have the same real id. These ids fit into the format's 32 bits. They are
/// between the ranges that exports use for rows that are not processes (`export::calls` and
/// [`crate::merge::PROCESSES_APART`]).
pub const OTHER_IDS: std::ops::Range<i64> = 1 << 26..crate::merge::PROCESSES_APART;
/// How many sequences a row has at most.
pub const MOST_LANES: usize = 64;

/// What is written before the events.
#[derive(Clone, Debug, Default)]
pub struct PerfettoHead {
    /// `CLOCK_REALTIME` and `CLOCK_MONOTONIC` at several moments, in ns, in any order.
    pub clocks: Vec<(u64, u64)>,
    /// Whether to use zlib.
    pub compress: bool,
}

#[derive(Debug)]
pub struct Writer<W: Write> {
    out: W,
    compress: bool,
    timeline: Packets,
}

/// The packets that were not written yet, and the processes, rows and tracks of the timeline. The
/// type does not depend on the type of the output, so its code is compiled once, in this crate.
#[derive(Debug, Default)]
struct Packets {
    packets: Encoder,
    processes: Vec<ProcessState>,
    process_by_id: HashMap<OwnedId, usize>,
    rows: Vec<RowState>,
    by_number: FastMap<(i64, i64), usize>,
    by_id: HashMap<(OwnedId, OwnedId), usize>,
    last_row: Option<((i64, i64), usize)>,
    tracks: u64,
    sequences: u64,
    /// Counter values for the packet of a slice. The buffer is kept, so that later slices can use
    /// it again.
    extras: Extras,
    /// The tracks of a counter without a label. The buffer is kept, so that later counters can use
    /// it again.
    found: Vec<u64>,
    /// Counter values at a slice's start that get packets of their own: track, value.
    others: Vec<(u64, Number)>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum OwnedId {
    Number(i64),
    Text(String),
}

impl From<Id<'_>> for OwnedId {
    fn from(id: Id<'_>) -> Self {
        match id {
            Id::Number(n) => Self::Number(n),
            Id::Text(text) => Self::Text(text.to_owned()),
        }
    }
}

impl std::fmt::Display for OwnedId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Number(n) => n.fmt(f),
            Self::Text(text) => text.fmt(f),
        }
    }
}

#[derive(Debug)]
struct RowState {
    name: String,
    /// Index in the list of processes.
    process: usize,
    lanes: Vec<Sequence>,
    /// For each [`SeriesPoint::label`], the tracks of the counter's series. A list is empty until
    /// all tracks of the counter are known.
    by_label: Vec<Vec<u64>>,
    /// Number of open slices that [`Writer::begin`] began.
    begun: u64,
}

impl<W: Write> Writer<W> {
    pub fn new(out: W, head: &PerfettoHead) -> io::Result<Self> {
        let timeline = Packets { sequences: GLOBAL, ..Packets::default() };
        let mut writer = Self { out, compress: head.compress, timeline };
        let all = if head.clocks.is_empty() { vec![(0, 0)] } else { in_order(&head.clocks) };
        for (realtime, monotonic) in &all {
            writer.timeline.packets.message(trace::PACKET, |p| {
                p.uint(packet::SEQUENCE_ID, GLOBAL);
                p.message(packet::CLOCK_SNAPSHOT, |s| {
                    let both = [(clocks::REALTIME, realtime), (clocks::MONOTONIC, monotonic)];
                    // Without readings of the clocks, the packet only says that times are on
                    // `CLOCK_REALTIME`.
                    let known = if head.clocks.is_empty() { 1 } else { 2 };
                    for (id, at) in &both[..known] {
                        s.message(clocks::CLOCKS, |c| {
                            c.uint(clocks::ID, *id);
                            c.uint(clocks::TIMESTAMP, **at);
                        });
                    }
                    s.uint(clocks::PRIMARY, clocks::REALTIME);
                });
            });
        }
        Ok(writer)
    }

    /// Writes the ends that [`TimelineSink::slice`] has not written yet, and `facts` (what the
    /// format cannot express otherwise) as metadata. Returns the output. Slices from
    /// [`Writer::begin`] and [`Writer::begin_in`] that the caller has not ended stay open.
    pub fn finish<'a>(
        mut self,
        facts: impl IntoIterator<Item = (&'a str, &'a serde_json::Value)>,
    ) -> io::Result<W> {
        for lane in self.timeline.rows.iter_mut().flat_map(|row| &mut row.lanes) {
            lane.close(&mut self.timeline.packets, i64::MAX);
        }
        self.timeline.packets.message(trace::PACKET, |p| {
            p.uint(packet::SEQUENCE_ID, GLOBAL);
            p.message(packet::CHROME_EVENTS, |bundle| {
                for (name, value) in facts {
                    bundle.message(chrome::METADATA, |m| {
                        m.bytes(chrome::NAME, name.as_bytes());
                        m.bytes(chrome::JSON, value.to_string().as_bytes());
                    });
                }
            });
        });
        self.flush()?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn flush(&mut self) -> io::Result<()> {
        let mut packets = std::mem::take(&mut self.timeline.packets.bytes);
        if self.compress && !packets.is_empty() {
            let mut zlib = ZlibEncoder::new(Vec::new(), Compression::default());
            zlib.write_all(&packets)?;
            let compressed = zlib.finish()?;
            let mut whole = Encoder::default();
            whole.message(trace::PACKET, |p| p.bytes(packet::COMPRESSED_PACKETS, &compressed));
            self.out.write_all(&whole.bytes)?;
        } else {
            self.out.write_all(&packets)?;
        }
        packets.clear();
        self.timeline.packets.bytes = packets;
        Ok(())
    }

    fn flush_if_full(&mut self) -> io::Result<()> {
        if self.timeline.packets.bytes.len() >= FLUSH_BYTES { self.flush() } else { Ok(()) }
    }
}

impl Packets {
    /// Describes a new track and returns its number.
    fn track(&mut self, parent: Option<u64>, fill: impl FnOnce(&mut Encoder)) -> u64 {
        self.tracks += 1;
        describe(&mut self.packets, self.tracks, parent, fill);
        self.tracks
    }

    /// Returns the index of a process. An unknown process is added, with its id as its name.
    fn process_place(&mut self, id: Id<'_>) -> usize {
        let id = OwnedId::from(id);
        if let Some(place) = self.process_by_id.get(&id) {
            return *place;
        }
        let name = id.to_string();
        let track = self.track(None, |t| t.bytes(track::NAME, name.as_bytes()));
        self.add_process(id, track)
    }

    fn add_process(&mut self, id: OwnedId, track: u64) -> usize {
        self.processes.push(ProcessState::new(track));
        self.process_by_id.insert(id, self.processes.len() - 1);
        self.processes.len() - 1
    }

    fn known_row(&mut self, row: Row<'_>) -> Option<usize> {
        if let (Id::Number(process), Id::Number(thread)) = (row.process, row.thread) {
            let key = (process, thread);
            if let Some((_, index)) = self.last_row.filter(|(last, _)| *last == key) {
                return Some(index);
            }
            let index = *self.by_number.get(&key)?;
            self.last_row = Some((key, index));
            return Some(index);
        }
        self.by_id.get(&(row.process.into(), row.thread.into())).copied()
    }

    /// Returns the index of a row. An unknown row is added, with the id of its thread as its name.
    fn row(&mut self, row: Row<'_>) -> usize {
        match self.known_row(row) {
            Some(index) => index,
            None => {
                let name = OwnedId::from(row.thread).to_string();
                self.add_row(row, &name, 0)
            }
        }
    }

    fn add_row(&mut self, row: Row<'_>, name: &str, sort_index: i64) -> usize {
        let process = self.process_place(row.process);
        let ids = system_id(row.process).zip(system_id(row.thread));
        let uuid = self.track(Some(self.processes[process].track), |t| match ids {
            Some((pid, tid)) => t.message(track::THREAD, |d| {
                d.int(track::THREAD_PID, pid);
                d.int(track::THREAD_TID, tid);
                d.int(track::THREAD_SORT_INDEX, sort(sort_index));
                d.bytes(track::THREAD_NAME, name.as_bytes());
            }),
            None => {
                t.bytes(track::NAME, name.as_bytes());
                t.int(track::RANK, sort(sort_index));
            }
        });
        self.sequences += 1;
        self.rows.push(RowState {
            name: name.to_owned(),
            process,
            lanes: vec![Sequence::new(self.sequences, uuid)],
            by_label: Vec::new(),
            begun: 0,
        });
        let index = self.rows.len() - 1;
        match (row.process, row.thread) {
            (Id::Number(process), Id::Number(thread)) => {
                self.by_number.insert((process, thread), index);
            }
            (process, thread) => {
                self.by_id.insert((process.into(), thread.into()), index);
            }
        }
        index
    }
}

/// Returns the snapshots of the clocks, sorted by `CLOCK_MONOTONIC`. Perfetto refuses a snapshot
/// whose `CLOCK_REALTIME`, which the times of events use, is earlier than in the snapshot before.
/// So if `CLOCK_REALTIME` was set back, snapshots are left out until it reaches its highest earlier
/// value again.
fn in_order(clocks: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let mut sorted = clocks.to_vec();
    sorted.sort_by_key(|(_, monotonic)| *monotonic);
    let mut latest = 0;
    sorted.retain(|(realtime, _)| {
        let goes_on = *realtime >= latest;
        latest = latest.max(*realtime);
        goes_on
    });
    sorted
}

fn describe(out: &mut Encoder, uuid: u64, parent: Option<u64>, fill: impl FnOnce(&mut Encoder)) {
    out.message(trace::PACKET, |p| {
        p.uint(packet::SEQUENCE_ID, GLOBAL);
        p.message(packet::TRACK_DESCRIPTOR, |t| {
            t.uint(track::UUID, uuid);
            if let Some(parent) = parent {
                t.uint(track::PARENT, parent);
            }
            fill(t);
        });
    });
}

/// Returns the id for the descriptor of a process or thread, if it is in [`REAL_IDS`] or
/// [`OTHER_IDS`]. Otherwise, the track of the process or thread gets no such descriptor.
fn system_id(id: Id<'_>) -> Option<i64> {
    match id {
        Id::Number(n) if REAL_IDS.contains(&n) || OTHER_IDS.contains(&n) => Some(n),
        _ => None,
    }
}

/// Limits the sort index to the format's range.
fn sort(index: i64) -> i64 {
    index.clamp(i32::MIN.into(), i32::MAX.into())
}

impl<W: Write> TimelineSink for Writer<W> {
    fn process(&mut self, process: &ProcessRow<'_>) -> io::Result<()> {
        self.timeline.process(process);
        self.flush_if_full()
    }

    fn thread(&mut self, thread: &ThreadRow<'_>) -> io::Result<()> {
        self.timeline.thread(thread);
        self.flush_if_full()
    }

    fn slice(&mut self, slice: &Slice<'_>) -> io::Result<()> {
        self.timeline.slice(slice);
        self.flush_if_full()
    }

    fn instant(&mut self, instant: &Instant<'_>) -> io::Result<()> {
        self.timeline.instant(instant);
        self.flush_if_full()
    }

    fn counter(&mut self, counter: &SeriesPoint<'_>) -> io::Result<()> {
        self.timeline.counter(counter);
        self.flush_if_full()
    }
}

impl<W: Write> Writer<W> {
    /// Writes a slice, but not its counters, into a lane, which is one of the row's tracks. Lanes
    /// are numbered from 0. The caller must make sure that slices of the same lane overlap only if
    /// they are nested. They may come in any order, with two exceptions: of slices with the same
    /// start, the outer one comes first, and a slice that begins when another ends comes after that
    /// other slice.
    pub fn slice_in(&mut self, lane: usize, slice: &Slice<'_>) -> io::Result<()> {
        self.timeline.slice_in(lane, slice);
        self.flush_if_full()
    }

    /// Begins a slice in one of the row's lanes; see [`Writer::slice_in`].
    pub fn begin_in(&mut self, lane: usize, slice: &Slice<'_>) -> io::Result<()> {
        self.timeline.begin_in(lane, slice);
        self.flush_if_full()
    }

    /// Ends the innermost open slice of a lane. `args` are arguments that became known at the
    /// slice's end.
    pub fn end_in(
        &mut self,
        lane: usize,
        row: Row<'_>,
        at_ns: i64,
        args: &[Arg<'_>],
    ) -> io::Result<()> {
        self.timeline.end_in(lane, row, at_ns, args);
        self.flush_if_full()
    }

    /// Begins a slice whose end is not known yet. All slices of its row must be begun in this way.
    pub fn begin(&mut self, slice: &Slice<'_>) -> io::Result<()> {
        self.timeline.begin(slice);
        self.flush_if_full()
    }

    /// Ends the innermost open slice of a row. Returns false if no slice that [`Writer::begin`]
    /// began is open in the row. `args` are arguments that became known at the slice's end.
    pub fn end(&mut self, row: Row<'_>, at_ns: i64, args: &[Arg<'_>]) -> io::Result<bool> {
        let ended = self.timeline.end(row, at_ns, args);
        self.flush_if_full()?;
        Ok(ended)
    }
}

impl Packets {
    fn process(&mut self, process: &ProcessRow<'_>) {
        let id = OwnedId::from(process.id);
        if self.process_by_id.contains_key(&id) {
            return;
        }
        let uuid = self.track(None, |t| match system_id(process.id) {
            Some(pid) => t.message(track::PROCESS, |d| {
                d.int(track::PROCESS_PID, pid);
                d.int(track::PROCESS_SORT_INDEX, sort(process.sort_index));
                d.bytes(track::PROCESS_NAME, process.name.as_bytes());
                d.bytes(track::PROCESS_LABELS, process.labels.as_bytes());
            }),
            None => {
                t.bytes(track::NAME, process.name.as_bytes());
                t.uint(track::CHILD_ORDERING, track::EXPLICIT);
            }
        });
        self.add_process(id, uuid);
    }

    fn thread(&mut self, thread: &ThreadRow<'_>) {
        if self.known_row(thread.row).is_none() {
            self.add_row(thread.row, thread.name, thread.sort_index);
        }
    }

    fn slice(&mut self, slice: &Slice<'_>) {
        let index = self.row(slice.row);
        self.extras.clear();
        for counter in slice.counters {
            self.points(index, counter);
        }
        let row = &mut self.rows[index];
        let packets = &mut self.packets;
        let takes = |lane: &mut Sequence| lane.takes(packets, slice);
        let (lane, fits) = match row.lanes.iter_mut().position(takes) {
            Some(lane) => (lane, true),
            None if row.lanes.len() >= MOST_LANES => (MOST_LANES - 1, false),
            None => {
                let lane = self.add_lane(index);
                (lane, self.rows[index].lanes[lane].takes(&mut self.packets, slice))
            }
        };
        let lane = &mut self.rows[index].lanes[lane];
        lane.begin(&mut self.packets, slice, &self.extras);
        if !fits {
            lane.end(&mut self.packets, end_of(slice));
        }
        for (track, value) in self.others.drain(..) {
            lane.counter(&mut self.packets, track, slice.start_ns, value);
        }
    }

    fn instant(&mut self, instant: &Instant<'_>) {
        let index = self.row(instant.row);
        let lane = &mut self.rows[index].lanes[0];
        lane.close(&mut self.packets, instant.at_ns);
        let point = Point {
            kind: event::INSTANT,
            at_ns: instant.at_ns,
            category: instant.category,
            name: instant.name,
            args: instant.args,
            shape: None,
            label: None,
            flows: instant.flows,
            extras: &Extras::default(),
        };
        lane.point(&mut self.packets, &point);
    }

    fn counter(&mut self, counter: &SeriesPoint<'_>) {
        let index = self.row(counter.row);
        self.extras.clear();
        self.points(index, counter);
        let lane = &mut self.rows[index].lanes[0];
        lane.close(&mut self.packets, counter.at_ns);
        let points = self.extras.iter().map(|(track, value)| (*track, Number::Int(*value)));
        for (track, value) in points.chain(self.others.drain(..)) {
            lane.counter(&mut self.packets, track, counter.at_ns, value);
        }
    }

    fn slice_in(&mut self, lane: usize, slice: &Slice<'_>) {
        let lane = self.lane(slice.row, lane);
        lane.0.begin(lane.1, slice, &Extras::default());
        lane.0.end(lane.1, end_of(slice));
    }

    fn begin_in(&mut self, lane: usize, slice: &Slice<'_>) {
        let lane = self.lane(slice.row, lane);
        lane.0.begin(lane.1, slice, &Extras::default());
    }

    fn end_in(&mut self, lane: usize, row: Row<'_>, at_ns: i64, args: &[Arg<'_>]) {
        let lane = self.lane(row, lane);
        lane.0.end_with(lane.1, at_ns, args);
    }

    fn lane(&mut self, row: Row<'_>, lane: usize) -> (&mut Sequence, &mut Encoder) {
        let index = self.row(row);
        while self.rows[index].lanes.len() <= lane {
            self.add_lane(index);
        }
        (&mut self.rows[index].lanes[lane], &mut self.packets)
    }

    fn begin(&mut self, slice: &Slice<'_>) {
        let index = self.row(slice.row);
        self.rows[index].begun += 1;
        self.begin_in(0, slice);
    }

    fn end(&mut self, row: Row<'_>, at_ns: i64, args: &[Arg<'_>]) -> bool {
        let index = self.row(row);
        let begun = &mut self.rows[index].begun;
        if *begun == 0 {
            return false;
        }
        *begun -= 1;
        self.end_in(0, row, at_ns, args);
        true
    }

    /// Adds another lane to a row. The lane is a track of its own.
    fn add_lane(&mut self, index: usize) -> usize {
        let RowState { name, process, .. } = &self.rows[index];
        let (name, parent) = (name.clone(), self.processes[*process].track);
        let uuid = self.track(Some(parent), |t| t.bytes(track::NAME, name.as_bytes()));
        // Viewers ignore the field `JOIN` of this packet. Because of this field, our own reader
        // puts the lane's slices into the row again.
        let first = self.rows[index].lanes[0].track();
        self.packets.message(trace::PACKET, |p| {
            p.uint(packet::SEQUENCE_ID, GLOBAL);
            p.message(packet::JOIN, |f| {
                f.uint(packet::JOIN_TRACK, uuid);
                f.uint(packet::JOIN_ROW, first);
            });
        });
        self.sequences += 1;
        let lanes = &mut self.rows[index].lanes;
        lanes.push(Sequence::new(self.sequences, uuid));
        lanes.len() - 1
    }
}
