//! Writes Perfetto's format: a sequence of packets per row.
//!
//! | what | as |
//! |---|---|
//! | process, thread with real ids | track with a process or thread descriptor |
//! | every other row | named track below its process |
//! | slice | begin and end; its arguments are annotations, its arrow a flow |
//! | counter | one track per series, with its unit; at the begin of a slice in the slice's packet |
//! | clocks | snapshots of `CLOCK_REALTIME`, in which times are, and `CLOCK_MONOTONIC` |
//! | the rest | metadata `counterpoint`, the same object as in Chrome JSON |

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

/// Bytes after which packets are written, and compressed together.
const FLUSH_BYTES: usize = 1 << 18;
/// The sequence of packets that belong to no row.
const GLOBAL: u64 = 1;
/// Tracks have numbers from 1.
const NO_TRACK: u64 = 0;
/// Every process and thread id of Linux is below.
pub const REAL_IDS: std::ops::Range<i64> = 1..1 << 22;
/// Rows into which one row is split at most.
pub const MOST_LANES: usize = 64;

/// What stands before the events.
#[derive(Clone, Debug, Default)]
pub struct PerfettoHead {
    /// `CLOCK_REALTIME` and `CLOCK_MONOTONIC` at some moments, ns, in any order.
    pub clocks: Vec<(u64, u64)>,
    /// Compress packets with zlib.
    pub compress: bool,
}

/// Writes one trace.
#[derive(Debug)]
pub struct Writer<W: Write> {
    out: W,
    compress: bool,
    packets: Encoder,
    processes: Vec<ProcessState>,
    process_by_id: HashMap<OwnedId, usize>,
    rows: Vec<RowState>,
    by_number: FastMap<(i64, i64), usize>,
    by_id: HashMap<(OwnedId, OwnedId), usize>,
    last_row: Option<((i64, i64), usize)>,
    tracks: u64,
    sequences: u64,
    /// What goes into the packet of a slice; used again.
    extras: Extras,
    /// The tracks of a counter that has no label; used again.
    found: Vec<u64>,
    /// Values at a slice's begin that go into packets of their own: track, value.
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
    /// Its place among the processes.
    process: usize,
    lanes: Vec<Sequence>,
    /// Tracks of the series of counters by label; empty if not known.
    by_label: Vec<Vec<u64>>,
    /// How many slices are open that came as a begin and an end.
    begun: u64,
}

impl<W: Write> Writer<W> {
    /// Writes the clocks.
    ///
    /// # Errors
    /// Writing failed.
    pub fn new(out: W, head: &PerfettoHead) -> io::Result<Self> {
        let mut writer = Self {
            out,
            compress: head.compress,
            packets: Encoder::default(),
            processes: Vec::new(),
            process_by_id: HashMap::new(),
            rows: Vec::new(),
            by_number: FastMap::default(),
            by_id: HashMap::new(),
            last_row: None,
            tracks: 0,
            sequences: GLOBAL,
            extras: Extras::default(),
            found: Vec::new(),
            others: Vec::new(),
        };
        let all = if head.clocks.is_empty() { vec![(0, 0)] } else { in_order(&head.clocks) };
        for (realtime, monotonic) in &all {
            writer.packets.message(trace::PACKET, |p| {
                p.uint(packet::SEQUENCE_ID, GLOBAL);
                p.message(packet::CLOCK_SNAPSHOT, |s| {
                    let both = [(clocks::REALTIME, realtime), (clocks::MONOTONIC, monotonic)];
                    // Without a snapshot, only which clock it is: nothing is known of the other.
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

    /// Ends what is open, writes what the format has no place for, by names, gives the output back.
    ///
    /// # Errors
    /// Writing failed.
    pub fn finish<'a>(
        mut self,
        facts: impl IntoIterator<Item = (&'a str, &'a serde_json::Value)>,
    ) -> io::Result<W> {
        for lane in self.rows.iter_mut().flat_map(|row| &mut row.lanes) {
            lane.close(&mut self.packets, i64::MAX);
        }
        self.packets.message(trace::PACKET, |p| {
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
        let mut packets = std::mem::take(&mut self.packets.bytes);
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
        self.packets.bytes = packets;
        Ok(())
    }

    fn flush_if_full(&mut self) -> io::Result<()> {
        if self.packets.bytes.len() >= FLUSH_BYTES { self.flush() } else { Ok(()) }
    }

    /// Describes a track.
    fn track(&mut self, parent: Option<u64>, fill: impl FnOnce(&mut Encoder)) -> u64 {
        self.tracks += 1;
        describe(&mut self.packets, self.tracks, parent, fill);
        self.tracks
    }

    /// The place of a process; made up if nobody named it.
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

    /// The row, made up if nobody named it.
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
        let real = |id: Id<'_>| match id {
            Id::Number(n) if REAL_IDS.contains(&n) => Some(n),
            _ => None,
        };
        let ids = real(row.process).zip(real(row.thread));
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

/// Snapshots in the order of time. Readers refuse one of which the clock that events are timed by,
/// `CLOCK_REALTIME`, is behind the one before: those after the clock was set back are left out.
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

/// As large as the format lets it be.
fn sort(index: i64) -> i64 {
    index.clamp(i32::MIN.into(), i32::MAX.into())
}

impl<W: Write> TimelineSink for Writer<W> {
    fn is_imported(&self) -> bool {
        true
    }

    fn fact(&mut self, row: Row<'_>, name: &str, _: i64, args: &str) -> io::Result<()> {
        let track = match self.known_row(row) {
            Some(index) => self.rows[index].lanes[0].track(),
            None => {
                let place = self.process_place(row.process);
                self.processes[place].track
            }
        };
        self.packets.message(trace::PACKET, |p| {
            p.uint(packet::SEQUENCE_ID, GLOBAL);
            p.message(packet::FACT, |f| {
                f.bytes(packet::FACT_NAME, name.as_bytes());
                f.bytes(packet::FACT_ARGS, args.as_bytes());
                f.uint(packet::FACT_TRACK, track);
            });
        });
        self.flush_if_full()
    }

    fn process(&mut self, process: &ProcessRow<'_>) -> io::Result<()> {
        let id = OwnedId::from(process.id);
        if self.process_by_id.contains_key(&id) {
            return Ok(());
        }
        let real = match process.id {
            Id::Number(n) if REAL_IDS.contains(&n) => Some(n),
            _ => None,
        };
        let uuid = self.track(None, |t| match real {
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
        self.flush_if_full()
    }

    fn thread(&mut self, thread: &ThreadRow<'_>) -> io::Result<()> {
        if self.known_row(thread.row).is_none() {
            self.add_row(thread.row, thread.name, thread.sort_index);
        }
        self.flush_if_full()
    }

    fn slice(&mut self, slice: &Slice<'_>) -> io::Result<()> {
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
        self.flush_if_full()
    }

    fn instant(&mut self, instant: &Instant<'_>) -> io::Result<()> {
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
            raw: "",
        };
        lane.point(&mut self.packets, &point);
        self.flush_if_full()
    }

    fn counter(&mut self, counter: &SeriesPoint<'_>) -> io::Result<()> {
        let index = self.row(counter.row);
        self.extras.clear();
        self.points(index, counter);
        let lane = &mut self.rows[index].lanes[0];
        lane.close(&mut self.packets, counter.at_ns);
        let points = self.extras.iter().map(|(track, value)| (*track, Number::Int(*value)));
        for (track, value) in points.chain(self.others.drain(..)) {
            lane.counter(&mut self.packets, track, counter.at_ns, value);
        }
        self.flush_if_full()
    }
}

impl<W: Write> Writer<W> {
    /// Writes a slice, without counters, into one of the row's lanes, from 0: for slices in any order,
    /// of which the caller knows that they are nested in each lane.
    ///
    /// # Errors
    /// Writing failed.
    pub fn slice_in(&mut self, lane: usize, slice: &Slice<'_>) -> io::Result<()> {
        let lane = self.lane(slice.row, lane);
        lane.0.begin(lane.1, slice, &Extras::default());
        lane.0.end(lane.1, end_of(slice));
        self.flush_if_full()
    }

    /// Begins a slice whose end comes later, in one of the row's lanes: see [`Writer::slice_in`].
    ///
    /// # Errors
    /// Writing failed.
    pub fn begin_in(&mut self, lane: usize, slice: &Slice<'_>) -> io::Result<()> {
        let lane = self.lane(slice.row, lane);
        lane.0.begin(lane.1, slice, &Extras::default());
        self.flush_if_full()
    }

    /// Ends the slice that was begun last in a lane of the row. `args`: what was known at its end.
    ///
    /// # Errors
    /// Writing failed.
    pub fn end_in(
        &mut self,
        lane: usize,
        row: Row<'_>,
        at_ns: i64,
        args: &[Arg<'_>],
    ) -> io::Result<()> {
        let lane = self.lane(row, lane);
        lane.0.end_with(lane.1, at_ns, args);
        self.flush_if_full()
    }

    fn lane(&mut self, row: Row<'_>, lane: usize) -> (&mut Sequence, &mut Encoder) {
        let index = self.row(row);
        while self.rows[index].lanes.len() <= lane {
            self.add_lane(index);
        }
        (&mut self.rows[index].lanes[lane], &mut self.packets)
    }

    /// Begins a slice of which it is not known yet when it ends, in a row that has no other slices
    /// than such.
    ///
    /// # Errors
    /// Writing failed.
    pub fn begin(&mut self, slice: &Slice<'_>) -> io::Result<()> {
        let index = self.row(slice.row);
        self.rows[index].begun += 1;
        self.begin_in(0, slice)
    }

    /// Ends the slice of the row that was begun last. False if there is none. `args`: what was known
    /// at its end.
    ///
    /// # Errors
    /// Writing failed.
    pub fn end(&mut self, row: Row<'_>, at_ns: i64, args: &[Arg<'_>]) -> io::Result<bool> {
        let index = self.row(row);
        let begun = &mut self.rows[index].begun;
        if *begun == 0 {
            return Ok(false);
        }
        *begun -= 1;
        self.end_in(0, row, at_ns, args).map(|()| true)
    }

    /// One more track for a row.
    fn add_lane(&mut self, index: usize) -> usize {
        let RowState { name, process, .. } = &self.rows[index];
        let (name, parent) = (name.clone(), self.processes[*process].track);
        let uuid = self.track(Some(parent), |t| t.bytes(track::NAME, name.as_bytes()));
        // Readers show a track of its own; an import makes it the same row again.
        let first = self.rows[index].lanes[0].track();
        self.packets.message(trace::PACKET, |p| {
            p.uint(packet::SEQUENCE_ID, GLOBAL);
            p.message(packet::FACT, |f| {
                f.uint(packet::FACT_TRACK, uuid);
                f.uint(packet::FACT_ROW, first);
            });
        });
        self.sequences += 1;
        let lanes = &mut self.rows[index].lanes;
        lanes.push(Sequence::new(self.sequences, uuid));
        lanes.len() - 1
    }
}
