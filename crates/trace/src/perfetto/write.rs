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
//!
//! above 600 lines: rows, their tracks and their counters are one state, which each event changes.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::io::{self, Write};

use flate2::Compression;
use flate2::write::ZlibEncoder;
use model::activity::Value;

use super::fields::{chrome, clocks, event, packet, trace, track};
use super::proto::Encoder;
use super::row::{Extras, MOST_EXTRAS, Number, Point, Sequence, end_of};
use crate::event::{
    ArgValue, Counter, Id, Instant, Label, ProcessRow, Row, Sink, Slice, ThreadRow,
};
use crate::numbers::NumberMap;
use crate::text::same;

/// Bytes after which packets are written, and compressed together.
const FLUSH_BYTES: usize = 1 << 18;
/// The sequence of packets that belong to no row.
const GLOBAL: u64 = 1;
/// Tracks have numbers from 1.
const NO_TRACK: u64 = 0;
/// Every process and thread id of Linux is below.
const REAL_IDS: std::ops::Range<i64> = 1..1 << 22;
/// Rows into which one row is split at most.
pub const MOST_LANES: usize = 64;

/// What stands before the events.
#[derive(Clone, Debug, Default)]
pub struct Head {
    /// `CLOCK_REALTIME` and `CLOCK_MONOTONIC` at some moments, ns.
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
    /// Tracks of processes.
    processes: HashMap<OwnedId, u64>,
    rows: Vec<RowState>,
    by_number: NumberMap<(i64, i64), usize>,
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
    process: u64,
    lanes: Vec<Sequence>,
    counters: Vec<CounterTracks>,
    /// The counter that was looked for last.
    last_counter: usize,
    /// Tracks of the series of counters by label; empty if not known.
    by_label: Vec<Vec<u64>>,
    /// The lane of slices that came as a begin and an end, and how many are open there.
    pairs: Option<(usize, u64)>,
}

/// The tracks of one counter of a row.
#[derive(Debug)]
struct CounterTracks {
    name: String,
    /// Series and track.
    series: Vec<(String, u64)>,
}

impl<W: Write> Writer<W> {
    /// Writes the clocks.
    ///
    /// # Errors
    /// Writing failed.
    pub fn new(out: W, head: &Head) -> io::Result<Self> {
        let mut writer = Self {
            out,
            compress: head.compress,
            packets: Encoder::default(),
            processes: HashMap::new(),
            rows: Vec::new(),
            by_number: NumberMap::default(),
            by_id: HashMap::new(),
            last_row: None,
            tracks: 0,
            sequences: GLOBAL,
            extras: Extras::default(),
            found: Vec::new(),
            others: Vec::new(),
        };
        let none = [(0, 0)];
        let all = if head.clocks.is_empty() { &none[..] } else { &head.clocks };
        for (realtime, monotonic) in all {
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

    /// The track of a process; made up if nobody named it.
    fn process_track(&mut self, id: Id<'_>) -> u64 {
        let id = OwnedId::from(id);
        if let Some(track) = self.processes.get(&id) {
            return *track;
        }
        let name = id.to_string();
        let track = self.track(None, |t| t.bytes(track::NAME, name.as_bytes()));
        self.processes.insert(id, track);
        track
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
        let process = self.process_track(row.process);
        let real = |id: Id<'_>| match id {
            Id::Number(n) if REAL_IDS.contains(&n) => Some(n),
            _ => None,
        };
        let ids = real(row.process).zip(real(row.thread));
        let uuid = self.track(Some(process), |t| match ids {
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
            counters: Vec::new(),
            last_counter: 0,
            by_label: Vec::new(),
            pairs: None,
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

/// A value of a counter; `None` if it is no number.
fn number(value: ArgValue<'_>) -> Option<Number> {
    match value {
        ArgValue::Plain(Value::Uint(n)) => {
            Some(i64::try_from(n).map_or(Number::Double(n as f64), Number::Int))
        }
        ArgValue::Plain(Value::Int(n)) => Some(Number::Int(n)),
        ArgValue::Plain(Value::Float(n)) => Some(Number::Double(n)),
        _ => None,
    }
}

/// As large as the format lets it be.
fn sort(index: i64) -> i64 {
    index.clamp(i32::MIN.into(), i32::MAX.into())
}

/// Units that Perfetto has a number for: `CounterDescriptor.Unit`.
fn unit_number(unit: &str) -> Option<u64> {
    match unit {
        "ns" => Some(1),
        "count" => Some(2),
        "bytes" => Some(3),
        _ => None,
    }
}

impl<W: Write> Sink for Writer<W> {
    fn is_imported(&self) -> bool {
        true
    }

    fn fact(&mut self, row: Row<'_>, name: &str, _: i64, args: &str) -> io::Result<()> {
        let track = match self.known_row(row) {
            Some(index) => self.rows[index].lanes[0].track(),
            None => self.process_track(row.process),
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
        if self.processes.contains_key(&id) {
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
        self.processes.insert(id, uuid);
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
        self.extras.tracks.clear();
        self.extras.values.clear();
        for counter in slice.counters {
            self.points(index, counter);
        }
        let row = &mut self.rows[index];
        let (packets, pairs) = (&mut self.packets, row.pairs.map(|(lane, _)| lane));
        let takes =
            |(i, lane): (usize, &mut Sequence)| Some(i) != pairs && lane.takes(packets, slice);
        let (lane, fits) = match row.lanes.iter_mut().enumerate().position(takes) {
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

    fn counter(&mut self, counter: &Counter<'_>) -> io::Result<()> {
        let index = self.row(counter.row);
        self.extras.tracks.clear();
        self.extras.values.clear();
        self.points(index, counter);
        let lane = &mut self.rows[index].lanes[0];
        lane.close(&mut self.packets, counter.at_ns);
        let whole = self.extras.values.iter().map(|value| Number::Int(*value));
        let points = self.extras.tracks.iter().copied().zip(whole);
        for (track, value) in points.chain(self.others.drain(..)) {
            lane.counter(&mut self.packets, track, counter.at_ns, value);
        }
        self.flush_if_full()
    }
}

impl<W: Write> Writer<W> {
    /// Adds the values of a counter of a row to those that are to be written: whole numbers to the
    /// extras of a slice, as far as there is room.
    fn points(&mut self, row: usize, counter: &Counter<'_>) {
        if counter.series.is_empty() {
            return;
        }
        let label = counter.label.and_then(Label::index);
        let labelled = label.and_then(|label| self.rows[row].by_label.get_mut(label));
        let mut tracks = std::mem::take(labelled.unwrap_or(&mut self.found));
        if tracks.len() != counter.series.len() {
            self.find_tracks(row, counter, &mut tracks);
        }
        for (series, track) in counter.series.iter().zip(&tracks) {
            match number(series.value) {
                Some(Number::Int(value)) if self.extras.values.len() < MOST_EXTRAS => {
                    self.extras.tracks.push(*track);
                    self.extras.values.push(value);
                }
                Some(value) => self.others.push((*track, value)),
                None => {}
            }
        }
        match label {
            Some(label) if !tracks.contains(&NO_TRACK) => {
                let by_label = &mut self.rows[row].by_label;
                if by_label.len() <= label {
                    by_label.resize(label + 1, Vec::new());
                }
                by_label[label] = tracks;
            }
            _ => {
                tracks.clear();
                self.found = tracks;
            }
        }
    }

    /// Puts the track of each series of a counter into `tracks`, for one that has no number
    /// [`NO_TRACK`].
    fn find_tracks(&mut self, row: usize, counter: &Counter<'_>, tracks: &mut Vec<u64>) {
        tracks.clear();
        let at = self.rows[row].counter(counter.name);
        for (i, series) in counter.series.iter().enumerate() {
            tracks.push(match self.rows[row].counters[at].track(i, series.key) {
                _ if number(series.value).is_none() => NO_TRACK,
                Some(track) => track,
                None => self.add_counter_track((row, at), counter, series.key),
            });
        }
    }

    /// Writes a slice, without counters, into one of the row's lanes, from 0: for slices in any order,
    /// of which the caller knows that they are nested in each lane.
    ///
    /// # Errors
    /// Writing failed.
    pub fn slice_in(&mut self, lane: usize, slice: &Slice<'_>) -> io::Result<()> {
        let index = self.row(slice.row);
        let pairs = self.rows[index].pairs.map(|(lane, _)| lane);
        let at = if pairs.is_some_and(|pairs| pairs <= lane) { lane + 1 } else { lane };
        while self.rows[index].lanes.len() <= at {
            self.add_lane(index);
        }
        let lane = &mut self.rows[index].lanes[at];
        lane.begin(&mut self.packets, slice, &Extras::default());
        lane.end(&mut self.packets, end_of(slice));
        self.flush_if_full()
    }

    /// Begins a slice of which it is not known yet when it ends. Such slices of a row are on a
    /// track of their own if others are in the row, too.
    ///
    /// # Errors
    /// Writing failed.
    pub fn begin(&mut self, slice: &Slice<'_>) -> io::Result<()> {
        let index = self.row(slice.row);
        let lane = match self.rows[index].pairs {
            Some((lane, _)) => lane,
            None if self.rows[index].lanes[0].is_new() => 0,
            None => self.add_lane(index),
        };
        let row = &mut self.rows[index];
        let (_, open) = row.pairs.get_or_insert((lane, 0));
        *open += 1;
        row.lanes[lane].begin(&mut self.packets, slice, &Extras::default());
        self.flush_if_full()
    }

    /// Ends the slice of the row that was begun last. False if there is none.
    ///
    /// # Errors
    /// Writing failed.
    pub fn end(&mut self, row: Row<'_>, at_ns: i64) -> io::Result<bool> {
        let index = self.row(row);
        let row = &mut self.rows[index];
        match &mut row.pairs {
            Some((lane, open)) if *open > 0 => {
                *open -= 1;
                row.lanes[*lane].end(&mut self.packets, at_ns);
                self.flush_if_full().map(|()| true)
            }
            _ => Ok(false),
        }
    }

    /// One more track for a row.
    fn add_lane(&mut self, index: usize) -> usize {
        let (name, parent) = (self.rows[index].name.clone(), self.rows[index].process);
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

    fn add_counter_track(
        &mut self,
        (row, at): (usize, usize),
        counter: &Counter<'_>,
        series: &str,
    ) -> u64 {
        let parent = self.rows[row].process;
        let name = [counter.name, " ", series].concat();
        let unit = counter.units.iter().find(|(of, _)| *of == series).map_or("", |(_, u)| *u);
        let uuid = self.track(Some(parent), |t| {
            t.bytes(track::NAME, name.trim_end().as_bytes());
            t.message(track::COUNTER, |c| match unit_number(unit) {
                Some(number) => c.uint(track::COUNTER_UNIT, number),
                None if unit.is_empty() => {}
                None => c.bytes(track::COUNTER_UNIT_NAME, unit.as_bytes()),
            });
        });
        self.rows[row].counters[at].series.push((series.to_owned(), uuid));
        uuid
    }
}

impl RowState {
    /// The place of a counter among those of the row.
    fn counter(&mut self, name: &str) -> usize {
        let is = |known: &CounterTracks| same(known.name.as_bytes(), name.as_bytes());
        if !self.counters.get(self.last_counter).is_some_and(is) {
            let found = self.counters.iter().position(is);
            self.last_counter = found.unwrap_or_else(|| {
                let series = Vec::new();
                self.counters.push(CounterTracks { name: name.to_owned(), series });
                self.counters.len() - 1
            });
        }
        self.last_counter
    }
}

impl CounterTracks {
    /// The track of a series, which is most likely at `place`.
    fn track(&self, place: usize, series: &str) -> Option<u64> {
        let is = |(name, _): &&(String, u64)| same(name.as_bytes(), series.as_bytes());
        let found = self.series.get(place).filter(is).or_else(|| self.series.iter().find(is));
        found.map(|(_, track)| *track)
    }
}
