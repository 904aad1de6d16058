//! Adds to a timeline the events that profiler plugins recorded in the programs of a profile. The
//! counters of plugins are tracks of the profile, which [`crate::export::tracks`] exports.
//!
//! The slices of a row are passed on in the order of their starts. If a row of the trace does not
//! have its slices in this order, all slices of the trace are kept in memory and sorted.

use std::collections::{BTreeSet, HashMap};
use std::io;

use model::activity::{FlowKind, Vocabulary};
use profile::LossCount;
use profile::activities::{Activities, Activity, RowId};
use profile::launches::{Ids, Launches, Whose};

use super::args::Args;
use super::categories::Categories;
use super::{scalar, visit};
use crate::chrome::event::Scalar;
use crate::export::calls::{FIRST_LAUNCH, LAUNCH};
use crate::timeline::{
    Flow, FlowEnd, Id, Instant, ProcessRow, Row, Slice, ThreadRow, TimelineSink,
};

/// Passes the events of one trace to `sink`. The times of the trace must be ns since 1970. Returns
/// the losses (the damage in the trace) that were found. Arrows from the ops in `launches` end at
/// the activities that these ops launched.
pub fn export_recorded(
    trace: &Activities,
    vocabulary: Option<Vocabulary>,
    launches: &Launches,
    sink: &mut impl TimelineSink,
) -> io::Result<Vec<LossCount>> {
    let rows = Rows::of(trace)?;
    rows.name(sink)?;
    let mut all = Export {
        trace,
        sink,
        categories: Categories::new(vocabulary, trace),
        kinds: HashMap::new(),
        ids: Ids::of(trace).filter(|_| !launches.is_empty()),
        launches,
        ended: HashMap::new(),
        held: None,
        unsorted: rows.unsorted,
        sorted: Vec::new(),
    };
    let losses = visit(trace, |event| all.event(event))?;
    all.finish()?;
    Ok(losses)
}

fn number(id: Option<&str>) -> i64 {
    match id.and_then(scalar) {
        Some(Scalar::Int(n)) => n,
        _ => 0,
    }
}

fn row_of(trace: &Activities, row: RowId) -> Row<'static> {
    let (process, thread) = trace.row(row);
    Row { process: Id::Number(number(process)), thread: Id::Number(number(thread)) }
}

#[derive(Default)]
struct Rows {
    /// The name, labels and sort index of each process, by process id.
    processes: HashMap<i64, (String, String, i64)>,
    /// The name and sort index of each thread, by process id and thread id.
    threads: HashMap<(i64, i64), (String, i64)>,
    /// The threads that have slices or instants.
    used: BTreeSet<(i64, i64)>,
    first_ns: i64,
    /// Whether any row has slices that are not in the order of their starts.
    unsorted: bool,
}

impl Rows {
    fn of(trace: &Activities) -> io::Result<Self> {
        let mut rows = Self { first_ns: i64::MAX, ..Self::default() };
        let mut last: HashMap<u32, i64> = HashMap::new();
        visit(trace, |event| {
            if let (b'X', Some(at)) = (event.form, event.time_ns) {
                let last = last.entry(event.row.0).or_insert(at);
                rows.unsorted |= at < *last;
                *last = at;
            }
            rows.first_ns = rows.first_ns.min(event.time_ns.unwrap_or(i64::MAX));
            let (process, thread) = trace.row(event.row);
            let (process, thread) = (number(process), number(thread));
            if matches!(event.form, b'X' | b'i') {
                rows.used.insert((process, thread));
            }
            if event.form != b'M' {
                return Ok(());
            }
            let args = Args::of(event.args);
            let of_process = rows.processes.entry(process).or_default();
            let text = |key| args.text(key).unwrap_or_default().to_owned();
            match event.name.and_then(|id| trace.text(id)) {
                Some("process_name") => of_process.0 = text("name"),
                Some("process_labels") => of_process.1 = text("labels"),
                Some("process_sort_index") => {
                    of_process.2 = args.number("sort_index").unwrap_or(0);
                }
                Some("thread_name") => {
                    rows.threads.entry((process, thread)).or_default().0 = text("name");
                }
                Some("thread_sort_index") => {
                    let place = args.number("sort_index").unwrap_or(0);
                    rows.threads.entry((process, thread)).or_default().1 = place;
                }
                _ => {}
            }
            Ok(())
        })?;
        Ok(rows)
    }

    fn name(&self, sink: &mut impl TimelineSink) -> io::Result<()> {
        let at_ns = if self.first_ns == i64::MAX { 0 } else { self.first_ns };
        let mut last = None;
        for (process, thread) in self.used.iter().copied() {
            let id = Id::Number(process);
            if last.replace(process) != Some(process) {
                let fallback = (format!("process {process}"), String::new(), 0);
                let (name, labels, place) = self.processes.get(&process).unwrap_or(&fallback);
                let sort_index = process.saturating_add(*place);
                sink.process(&ProcessRow { id, name, labels, sort_index, at_ns })?;
            }
            let known = self.threads.get(&(process, thread));
            let (name, sort_index) = known.cloned().unwrap_or_default();
            let name = if name.is_empty() { thread.to_string() } else { name };
            let row = Row { process: id, thread: Id::Number(thread) };
            sink.thread(&ThreadRow { row, name: &name, sort_index, at_ns })?;
        }
        Ok(())
    }
}

/// A slice, and the ends of its arrows, which the trace contains directly after the slice.
#[derive(Debug, Default)]
struct Held {
    number: RowId,
    category: String,
    name: String,
    args: String,
    start_ns: i64,
    duration_ns: u64,
    arrows: Vec<(usize, u64, FlowEnd)>,
}

struct Export<'a, S> {
    trace: &'a Activities,
    sink: &'a mut S,
    categories: Categories,
    /// The kinds of arrows with their numbers, by name.
    kinds: HashMap<String, (usize, FlowKind)>,
    ids: Option<Ids<'a>>,
    launches: &'a Launches,
    /// For each call that launched activities: how many of its arrows have ended.
    ended: HashMap<(Whose, u64), u64>,
    held: Option<Held>,
    unsorted: bool,
    sorted: Vec<Held>,
}

impl<S: TimelineSink> Export<'_, S> {
    fn event(&mut self, event: &Activity<'_>) -> io::Result<()> {
        let trace = self.trace;
        let name = event.name.and_then(|id| trace.text(id)).unwrap_or_default();
        match (event.form, event.time_ns) {
            (b's' | b'f', Some(_)) => self.arrow(event, name),
            (b'X', Some(at)) => {
                self.release()?;
                let (category, _) = self.categories.of(event, event.more, self.trace);
                self.held = Some(Held {
                    number: event.row,
                    category: category.as_deref().unwrap_or_default().to_owned(),
                    name: name.to_owned(),
                    args: event.args.unwrap_or_default().to_owned(),
                    start_ns: at,
                    duration_ns: event.duration_ns.unwrap_or(0).max(0).unsigned_abs(),
                    arrows: Vec::new(),
                });
                self.launched(event);
                Ok(())
            }
            (b'i', Some(at_ns)) => {
                self.release()?;
                let (category, _) = self.categories.of(event, event.more, self.trace);
                let args = Args::of(event.args);
                self.sink.instant(&Instant {
                    row: row_of(self.trace, event.row),
                    category: category.as_deref().unwrap_or_default(),
                    name,
                    at_ns,
                    args: &args.list(),
                    flows: &[],
                })
            }
            _ => Ok(()),
        }
    }

    fn kind(&mut self, name: &str) -> usize {
        let kinds = self.kinds.len();
        match self.kinds.get(name) {
            Some((kind, _)) => *kind,
            None => {
                self.kinds.insert(name.to_owned(), (kinds, FlowKind::from_name(name)));
                kinds
            }
        }
    }

    /// Adds the end of the arrow from the op that launched this activity.
    fn launched(&mut self, event: &Activity<'_>) {
        let Some((process, id)) = self.ids.as_mut().and_then(|ids| ids.of_event(event)) else {
            return;
        };
        let Some(launcher) = self.launches.launcher(process, id) else { return };
        let ended = self.ended.entry((process, id)).or_default();
        let arrow = FIRST_LAUNCH + launcher.before + *ended;
        *ended += 1;
        let kind = self.kind(LAUNCH);
        if let Some(held) = &mut self.held {
            held.arrows.push((kind, arrow, FlowEnd::Finish));
        }
    }

    /// Adds an end of an arrow to `held`, because the slice of this end comes directly before it in
    /// the trace.
    fn arrow(&mut self, event: &Activity<'_>, name: &str) -> io::Result<()> {
        let kind = self.kind(name);
        let end = if event.form == b'f' { FlowEnd::Finish } else { FlowEnd::Start };
        if let (Some(held), Some(Ok(id))) = (&mut self.held, event.id.map(str::parse))
            && held.number == event.row
        {
            held.arrows.push((kind, id, end));
        }
        Ok(())
    }

    /// Passes on the slice in `held`, whose arrows are complete, or keeps it in `sorted`.
    fn release(&mut self) -> io::Result<()> {
        match self.held.take() {
            Some(held) if self.unsorted => self.sorted.push(held),
            Some(held) => self.slice(&held)?,
            None => {}
        }
        Ok(())
    }

    fn slice(&mut self, held: &Held) -> io::Result<()> {
        let args = Args::of(Some(held.args.as_str()));
        let kind = |number: usize| self.kinds.values().find(|(n, _)| *n == number);
        let flows: Vec<Flow<'_>> = held
            .arrows
            .iter()
            .filter_map(|(number, id, end)| {
                kind(*number).map(|(_, kind)| Flow { kind, id: *id, end: *end })
            })
            .collect();
        self.sink.slice(&Slice {
            row: row_of(self.trace, held.number),
            category: &held.category,
            name: &held.name,
            start_ns: held.start_ns,
            duration_ns: held.duration_ns,
            args: &args.list(),
            shape: None,
            label: None,
            flows: &flows,
            counters: &[],
        })
    }

    fn finish(mut self) -> io::Result<()> {
        self.release()?;
        let mut sorted = std::mem::take(&mut self.sorted);
        // Of slices that begin at the same time, the longest comes first, because it surrounds the
        // others.
        sorted.sort_by_key(|held| (held.start_ns, std::cmp::Reverse(held.duration_ns)));
        sorted.iter().try_for_each(|held| self.slice(held))
    }
}
