//! Shows the timelines of several profiles as one timeline. Each profile has its own rows and
//! arrows.
//!
//! A process keeps its id if this is a process id of Linux that no process before it has.
//! Otherwise, the process gets a number above the process ids of Linux, because viewers would draw
//! two processes with one number as one process. A row that is not a process, such as a device,
//! also gets such a number; if its id is a text, the profile's label is put before it.

use std::collections::{HashMap, HashSet};
use std::io;

use crate::perfetto::write::{OTHER_IDS, REAL_IDS};
use crate::timeline::{
    Flow, Id, Instant, ProcessRow, Row, SeriesPoint, Slice, ThreadRow, TimelineSink,
};

/// The distance between the sort indices of consecutive profiles, so that the rows of one come
/// before those of the next.
const ROWS: i64 = 1 << 24;
/// The distance between the arrow ids of consecutive profiles. The arrow ids of a thousand profiles
/// are below 2^53, so programs that read JSON numbers as `f64` read these ids exactly.
const FLOWS: u64 = 1 << 42;

/// The process numbers that are already in use.
#[derive(Debug, Default)]
pub struct Numbers {
    used: HashSet<i64>,
    made_up: i64,
}

impl Numbers {
    /// Returns `number` if it is a process id of Linux that is not in use yet, or else a new
    /// number.
    fn take(&mut self, number: i64) -> i64 {
        if REAL_IDS.contains(&number) && self.used.insert(number) {
            return number;
        }
        self.made_up += 1;
        OTHER_IDS.start + self.made_up
    }
}

/// Passes the timeline of one profile on to the timeline of all profiles.
#[derive(Debug)]
pub struct OfMember<'a, S> {
    sink: &'a mut S,
    numbers: &'a mut Numbers,
    /// For each number of a process in this profile: its number in the timeline of all profiles.
    of_number: HashMap<i64, i64>,
    of_text: HashMap<String, String>,
    place: u32,
    label: String,
    shift_ns: i64,
}

impl<'a, S: TimelineSink> OfMember<'a, S> {
    /// `place` is the profile's index among the profiles of the timeline. `label` is put before the
    /// names of the profile's processes, unless a name begins with `rank `, and before ids that are
    /// texts. `shift_ns` is added to the profile's times.
    pub fn new(
        sink: &'a mut S,
        numbers: &'a mut Numbers,
        place: u32,
        label: String,
        shift_ns: i64,
    ) -> Self {
        let (of_number, of_text) = (HashMap::new(), HashMap::new());
        Self { sink, numbers, of_number, of_text, place, label, shift_ns }
    }

    fn learn(&mut self, id: Id<'_>) {
        match id {
            Id::Number(number) if !self.of_number.contains_key(&number) => {
                let shown = self.numbers.take(number);
                self.of_number.insert(number, shown);
            }
            Id::Text(text) if !self.of_text.contains_key(text) => {
                self.of_text.insert(text.to_owned(), format!("{}: {text}", self.label));
            }
            _ => {}
        }
    }

    fn id<'b>(
        of_number: &HashMap<i64, i64>,
        of_text: &'b HashMap<String, String>,
        id: Id<'b>,
    ) -> Id<'b> {
        match id {
            Id::Number(number) => Id::Number(of_number.get(&number).copied().unwrap_or(number)),
            Id::Text(text) => Id::Text(of_text.get(text).map_or(text, String::as_str)),
        }
    }

    fn at(&self, ns: i64) -> i64 {
        ns.saturating_add(self.shift_ns)
    }

    fn flows<'b>(&self, flows: &[Flow<'b>]) -> Vec<Flow<'b>> {
        let first = u64::from(self.place).wrapping_mul(FLOWS);
        flows.iter().map(|flow| Flow { id: flow.id.wrapping_add(first), ..*flow }).collect()
    }
}

/// Converts a row of a member (one of the profiles) to a row in the timeline of all profiles.
macro_rules! moved {
    ($self:ident, $row:expr) => {{
        $self.learn($row.process);
        let process = Self::id(&$self.of_number, &$self.of_text, $row.process);
        Row { process, thread: $row.thread }
    }};
}

impl<S: TimelineSink> TimelineSink for OfMember<'_, S> {
    fn process(&mut self, process: &ProcessRow<'_>) -> io::Result<()> {
        self.learn(process.id);
        let id = Self::id(&self.of_number, &self.of_text, process.id);
        // A name that begins with a rank already shows which profile the process belongs to.
        let name = match process.name.starts_with("rank ") {
            true => process.name.to_owned(),
            false => format!("{}: {}", self.label, process.name),
        };
        let sort_index = process.sort_index.saturating_add(i64::from(self.place) * ROWS);
        let at_ns = self.at(process.at_ns);
        self.sink.process(&ProcessRow { id, name: &name, sort_index, at_ns, ..*process })
    }

    fn thread(&mut self, thread: &ThreadRow<'_>) -> io::Result<()> {
        let row = moved!(self, thread.row);
        self.sink.thread(&ThreadRow { row, at_ns: self.at(thread.at_ns), ..*thread })
    }

    fn slice(&mut self, slice: &Slice<'_>) -> io::Result<()> {
        slice.counters.iter().for_each(|point| self.learn(point.row.process));
        let row = moved!(self, slice.row);
        let flows = self.flows(slice.flows);
        let mut counters = Vec::with_capacity(slice.counters.len());
        for point in slice.counters {
            let process = Self::id(&self.of_number, &self.of_text, point.row.process);
            let row = Row { process, thread: point.row.thread };
            counters.push(SeriesPoint { row, at_ns: self.at(point.at_ns), ..*point });
        }
        self.sink.slice(&Slice {
            row,
            start_ns: self.at(slice.start_ns),
            flows: &flows,
            counters: &counters,
            ..*slice
        })
    }

    fn instant(&mut self, instant: &Instant<'_>) -> io::Result<()> {
        let row = moved!(self, instant.row);
        let flows = self.flows(instant.flows);
        let at_ns = self.at(instant.at_ns);
        self.sink.instant(&Instant { row, at_ns, flows: &flows, ..*instant })
    }

    fn counter(&mut self, counter: &SeriesPoint<'_>) -> io::Result<()> {
        let row = moved!(self, counter.row);
        self.sink.counter(&SeriesPoint { row, at_ns: self.at(counter.at_ns), ..*counter })
    }
}
