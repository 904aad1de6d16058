//! Collects the timeline of the page, ordered by lane (a row of the timeline). The slices are those
//! that `trace export` writes; if there are too many, some short ones are left out.

use std::collections::HashMap;
use std::io;

use model::activity::Value;
use profile::Profile;
use trace::timeline::{
    ArgValue, Id, Instant, ProcessRow, Row, SeriesPoint, Slice, ThreadRow, TimelineSink,
};

use super::data::{OpOut, SeriesOut, TimeLaneOut, TimelineOut, TraceOut};
use super::encode::{self, Call, Encoded};
use crate::terminal::visible;
use crate::trace::export::{everything, json_base_ns};
use crate::view::labels::thread_label;
use crate::view::units::{count, grouped, number};

/// A series has at most this many points.
const POINTS: usize = 2_000;

pub struct Timeline {
    /// The begin in ns since 1970.
    pub begin: i64,
    span: i64,
    encoded: Encoded,
    names: Vec<String>,
    lanes: Vec<TimeLaneOut>,
    series: Vec<SeriesOut>,
    calls: usize,
    /// The index of the lane, by process id and thread id.
    rows: HashMap<(Owned, Owned), usize>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Owned {
    Number(i64),
    Text(String),
}

impl std::fmt::Display for Owned {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Text(text) => f.write_str(&visible(text)),
        }
    }
}

impl Default for Owned {
    fn default() -> Self {
        Self::Number(0)
    }
}

impl From<Id<'_>> for Owned {
    fn from(id: Id<'_>) -> Self {
        match id {
            Id::Number(number) => Self::Number(number),
            Id::Text(text) => Self::Text(text.to_owned()),
        }
    }
}

/// Reads the timeline and the encoded calls. `room` is the limit of the calls' compressed size in
/// bytes.
pub fn read(profile: &Profile, room: usize) -> io::Result<(Timeline, Vec<u8>)> {
    let mut sink = Sink::default();
    everything(&mut sink, profile)?;
    Ok(sink.finish(room))
}

impl Timeline {
    /// Returns the index of the thread's lane; -1 if it has none.
    pub fn lane_of(&self, pid: u32, tid: u32) -> i64 {
        let row = (Owned::Number(pid.into()), Owned::Number(tid.into()));
        self.rows.get(&row).map_or(-1, |at| *at as i64)
    }

    /// Returns the timeline for the page, with `series` in addition to its own series. `None` if
    /// there is nothing to draw.
    pub fn out(
        mut self,
        profile: &Profile,
        ops: &[OpOut],
        mut series: Vec<SeriesOut>,
        trace: Option<TraceOut>,
    ) -> Option<TimelineOut> {
        self.name_threads(profile);
        series.append(&mut self.series);
        if self.lanes.is_empty() && series.is_empty() {
            return None;
        }
        let kept = self.encoded.kept;
        let about = match (self.calls - kept, self.encoded.grid) {
            (0, _) => String::new(),
            (left, grid) => format!(
                "{} of {} slices are not drawn: shorter ones beside others within {}",
                grouped(left as u128),
                grouped(self.calls as u128),
                crate::view::units::time(grid as f64)
            ),
        };
        // A slice refers to its op only by the op's name. If several ops have the same name, slices
        // with this name are not linked to an op.
        let mut of_name: HashMap<&str, Option<usize>> = HashMap::new();
        for (at, op) in ops.iter().enumerate() {
            of_name.entry(&op.name).and_modify(|known| *known = None).or_insert(Some(at));
        }
        Some(TimelineOut {
            begin: self.begin.to_string(),
            base: json_base_ns(profile).ok().flatten().map(|base| base.to_string()),
            trace,
            span: self.span,
            grid: self.encoded.grid,
            about,
            ops: self
                .names
                .iter()
                .map(|name| of_name.get(name.as_str()).copied().flatten())
                .collect(),
            names: self.names,
            lanes: self.lanes,
            series,
        })
    }

    /// Gives threads the labels that tables have, such as `iree-worker-0 (4712)`. In traces of
    /// `trace export`, the label of this thread is `thread 4712 (iree-worker-0)`.
    fn name_threads(&mut self, profile: &Profile) {
        let all = profile.processes.iter().enumerate();
        let all = all.flat_map(|(p, of)| (0..of.threads.len()).map(move |t| (p, of, t)));
        let mut found = vec![Vec::new(); self.lanes.len()];
        for (process, of, thread) in all.filter(|(_, of, _)| !of.id.is_of_plugins()) {
            let lane = self.lane_of(of.id.pid, of.threads[thread].tid);
            if let Some(lane) = usize::try_from(lane).ok().and_then(|lane| found.get_mut(lane)) {
                lane.push(thread_label(profile, process, thread));
            }
        }
        for (lane, labels) in self.lanes.iter_mut().zip(found) {
            // A lane keeps its label unless exactly one thread of the profile has the lane's
            // process id and thread id.
            if let [label] = labels.as_slice() {
                lane.label.clone_from(label);
            }
        }
    }
}

#[derive(Default)]
struct Lane {
    key: (Owned, Owned),
    label: String,
    order: i64,
    calls: Vec<Call>,
}

#[derive(Default)]
struct Points {
    label: String,
    unit: String,
    points: Vec<(i64, f64)>,
}

#[derive(Default)]
struct Sink {
    processes: HashMap<Owned, (String, i64)>,
    lanes: Vec<Lane>,
    places: HashMap<(Owned, Owned), usize>,
    last: usize,
    names: HashMap<String, u32>,
    /// The name of the last slice, and the number of that name in `names`. The next slice usually
    /// has the same name.
    last_name: (String, u32),
    series: HashMap<(Owned, Owned, String, String), Points>,
    first: Option<i64>,
    end: i64,
}

impl Sink {
    fn lane(&mut self, row: &Row<'_>) -> &mut Lane {
        let is_same = |id: &Owned, given: &Id<'_>| match (id, given) {
            (Owned::Number(a), Id::Number(b)) => a == b,
            (Owned::Text(a), Id::Text(b)) => a == b,
            _ => false,
        };
        let is_last = self.lanes.get(self.last).is_some_and(|lane| {
            is_same(&lane.key.0, &row.process) && is_same(&lane.key.1, &row.thread)
        });
        if !is_last {
            let key: (Owned, Owned) = (row.process.into(), row.thread.into());
            self.last = match self.places.get(&key) {
                Some(known) => *known,
                None => {
                    self.places.insert(key.clone(), self.lanes.len());
                    self.lanes.push(Lane { key, ..Lane::default() });
                    self.lanes.len() - 1
                }
            };
        }
        &mut self.lanes[self.last]
    }

    fn name(&mut self, name: &str) -> u32 {
        if self.last_name.0 == name && !self.names.is_empty() {
            return self.last_name.1;
        }
        let number = match self.names.get(name) {
            Some(known) => *known,
            None => {
                let number = self.names.len() as u32;
                self.names.insert(name.to_owned(), number);
                number
            }
        };
        self.last_name.0.clear();
        self.last_name.0.push_str(name);
        self.last_name.1 = number;
        number
    }

    fn finish(self, room: usize) -> (Timeline, Vec<u8>) {
        let begin = self.first.unwrap_or(0);
        let processes = &self.processes;
        let order = |lane: &Lane| {
            let of_process = processes.get(&lane.key.0).map_or(i64::MAX, |(_, order)| *order);
            (of_process, lane.key.0.clone(), lane.order, lane.key.1.clone())
        };
        let mut lanes = self.lanes;
        lanes.retain(|lane| !lane.calls.is_empty());
        lanes.sort_by_cached_key(order);
        let mut names = vec![String::new(); self.names.len()];
        for (name, number) in self.names {
            names[number as usize] = name;
        }
        let mut calls: Vec<Vec<Call>> = Vec::new();
        let mut out: Vec<(TimeLaneOut, (Owned, Owned))> = Vec::new();
        for mut lane in lanes {
            // Of calls that begin at the same time, the longest one contains the others, and must
            // come first.
            lane.calls.sort_by_key(|call| (call.begin, std::cmp::Reverse(call.duration)));
            let process =
                processes.get(&lane.key.0).map_or(String::new(), |(name, _)| name.clone());
            let all = lane.calls.len();
            let (pid, tid) = (lane.key.0.to_string(), lane.key.1.to_string());
            let label = if lane.label.is_empty() { process.clone() } else { lane.label };
            out.push((
                TimeLaneOut { pid, tid, label, process, calls: all, depth: 0, offset: 0, bytes: 0 },
                lane.key,
            ));
            calls.push(lane.calls);
        }
        let all = calls.iter().map(Vec::len).sum();
        let (encoded, bytes) = encode::encode(&mut calls, begin, room);
        for ((lane, _), of) in out.iter_mut().zip(&encoded.lanes) {
            (lane.depth, lane.offset, lane.bytes, lane.calls) =
                (of.depth, of.offset, of.bytes, of.calls);
        }
        let mut series: Vec<_> = self.series.into_iter().collect();
        series.sort_by(|a, b| a.0.cmp(&b.0));
        let (lanes, rows): (_, Vec<_>) = out.into_iter().unzip();
        let rows = rows.into_iter().zip(0..).collect();
        let timeline = Timeline {
            begin,
            span: self.end.saturating_sub(begin).max(1),
            encoded,
            names,
            lanes,
            series: series.into_iter().map(|(_, points)| points.out(begin)).collect(),
            calls: all,
            rows,
        };
        (timeline, bytes)
    }
}

impl Points {
    /// Returns the series with at most [`POINTS`] points. Each point has the mean value of the
    /// points that it replaces, and the time of the first one.
    fn out(self, begin: i64) -> SeriesOut {
        let each = self.points.len().div_ceil(POINTS).max(1);
        let chunks = self.points.chunks(each);
        let (at, values) = chunks
            .map(|chunk| {
                let sum: f64 = chunk.iter().map(|(_, value)| value).sum();
                (chunk[0].0.saturating_sub(begin), Some(sum / chunk.len() as f64))
            })
            .unzip();
        let most = self.points.iter().map(|(_, value)| *value).fold(f64::MIN, f64::max);
        let most =
            if most >= 1_000.0 { count(most.round() as u128) } else { number(most.max(0.0)) };
        let about = format!("up to {most} {}", self.unit);
        SeriesOut { lane: -1, label: self.label, about: about.trim_end().to_owned(), at, values }
    }
}

impl TimelineSink for Sink {
    fn process(&mut self, process: &ProcessRow<'_>) -> io::Result<()> {
        let name = (visible(process.name).into_owned(), process.sort_index);
        self.processes.insert(process.id.into(), name);
        Ok(())
    }

    fn thread(&mut self, thread: &ThreadRow<'_>) -> io::Result<()> {
        let lane = self.lane(&thread.row);
        lane.label = visible(thread.name).into_owned();
        lane.order = thread.sort_index;
        Ok(())
    }

    fn slice(&mut self, slice: &Slice<'_>) -> io::Result<()> {
        let name = self.name(slice.name);
        let (begin, duration) = (slice.start_ns, slice.duration_ns);
        self.first = Some(self.first.map_or(begin, |first| first.min(begin)));
        self.end = self.end.max(begin.saturating_add_unsigned(duration));
        self.lane(&slice.row).calls.push(Call { begin, duration, name, depth: 0 });
        Ok(())
    }

    fn instant(&mut self, instant: &Instant<'_>) -> io::Result<()> {
        // The page does not draw instants, but an instant can be the start of the timeline.
        self.first = Some(self.first.map_or(instant.at_ns, |first| first.min(instant.at_ns)));
        Ok(())
    }

    fn counter(&mut self, point: &SeriesPoint<'_>) -> io::Result<()> {
        for arg in point.series {
            let value = match arg.value {
                ArgValue::Plain(Value::Uint(n)) => n as f64,
                ArgValue::Plain(Value::Int(n)) => n as f64,
                ArgValue::Plain(Value::Float(x)) if x.is_finite() => x,
                _ => continue,
            };
            let process: Owned = point.row.process.into();
            let key = (process, point.row.thread.into(), point.name.to_owned(), arg.key.to_owned());
            let series = self.series.entry(key).or_insert_with(|| {
                let label = match arg.key == point.name || arg.key.is_empty() {
                    true => point.name.to_owned(),
                    false => format!("{} {}", point.name, arg.key),
                };
                let unit = point.units.iter().find(|(name, _)| *name == arg.key);
                Points {
                    label: visible(&label).into_owned(),
                    unit: unit.map_or(String::new(), |(_, unit)| visible(unit).into_owned()),
                    points: Vec::new(),
                }
            });
            series.points.push((point.at_ns, value));
            self.first = Some(self.first.map_or(point.at_ns, |first| first.min(point.at_ns)));
            self.end = self.end.max(point.at_ns);
        }
        Ok(())
    }
}
