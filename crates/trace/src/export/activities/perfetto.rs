//! Writes imported traces in Perfetto's format.
//!
//! In Chrome's format, the two ends of an arrow (its start and its finish) are separate events.
//! Programs write each end after the slice that surrounds it. So a slice is held in memory until an
//! event follows that is not an end of one of its arrows. An end of an arrow that is not inside of
//! a held slice is written as an instant of its row.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::io::{self, Write};
use std::ops::Range;

use model::activity::FlowKind;
use profile::LossCount;
use profile::activities::{Activities, Activity, NameId, RowId};

use super::args::Args;
use super::categories::Categories;
use super::keep::{Keep, visit_kept};
use super::lanes::Lanes;
use super::{Options, look, scalar, visit};
use crate::chrome::event::Scalar;
use crate::export::filter::LeftOut;
use crate::merge::{self, Alignment, Look, Moved, ProcessKey};
use crate::perfetto::write::{OTHER_IDS, PerfettoHead, REAL_IDS, Writer};
use crate::timeline::{
    Flow, FlowEnd, Id, Instant, ProcessRow, Row, SeriesPoint, Slice, ThreadRow, TimelineSink,
};

/// The result of writing traces.
#[derive(Debug)]
pub struct Timeline<W> {
    pub out: W,
    pub losses: Vec<LossCount>,
    /// Number of events that Perfetto's format cannot express because of their form (`ph`), or that
    /// lack a necessary field.
    pub left_out: u64,
    pub filtered: LeftOut,
    /// How the times of each trace were aligned with those of the first.
    pub alignments: Vec<Alignment>,
    /// What was added to all times, in ns, because the format cannot express times before 1970.
    pub shift_ns: i64,
}

/// Writes the wanted events of all traces. Each trace has its own rows. `names` are the names of
/// the traces' files.
pub fn write_perfetto<W: Write>(
    traces: &[Activities],
    names: &[String],
    options: &Options,
    out: W,
    compress: bool,
) -> io::Result<Timeline<W>> {
    let files = traces.iter().zip(names).map(|(trace, name)| look(trace, name));
    let files = files.collect::<io::Result<Vec<_>>>()?;
    let (alignments, labels) = (merge::align(&files), merge::labels(&files));
    let filter = options.wish.since(merge::first_ns(&files, &alignments));
    let mut filtered = LeftOut::default();
    let shift_ns = merge::first_ns(&files, &alignments).min(0).saturating_neg();
    let mut writer = Writer::new(out, &PerfettoHead { compress, ..PerfettoHead::default() })?;
    let (mut losses, mut left_out) = (Vec::new(), 0);
    let mut arrows = Arrows::default();
    let mut other_ids = OTHER_IDS;
    for (i, trace) in traces.iter().enumerate() {
        let label = labels.get(i).filter(|_| traces.len() > 1).map(String::as_str);
        let moved = Moved { index: i as i64, label: label.unwrap_or("") };
        let rows = rows(trace, &files[i], moved, &mut other_ids)?;
        let base_ns = base_ns(&files[i], &alignments[i]);
        let keep = match options.wish.is_all() {
            true => None,
            false => Some(Keep::of(trace, &filter, options.vocabulary, base_ns)?),
        };
        let mut one = OneTrace {
            number: i,
            trace,
            writer,
            lanes: Lanes::of(trace, keep.as_ref(), |row| same_row(&rows, row))?,
            rows,
            categories: Categories::new(options.vocabulary, trace),
            base_ns: base_ns.saturating_add(shift_ns),
            arrows,
            waiting: Waiting::default(),
            left_out: 0,
        };
        losses.extend(visit_kept(trace, keep.as_ref(), |event| one.event(event))?);
        one.flush()?;
        left_out += one.left_out;
        filtered = filtered.and(keep.map(|keep| keep.left_out).unwrap_or_default());
        (writer, arrows) = (one.writer, one.arrows);
    }
    let mut merged = merge::facts(&files, &alignments);
    let part = (!options.wish.is_all()).then(|| filter.facts());
    if part.is_some() {
        merged["filter"] = serde_json::to_value(&filter)?;
    }
    let out = match traces {
        [one] => {
            let document = one.document.as_object().into_iter().flatten();
            let document = document.map(|(key, value)| (key.as_str(), value));
            let known = one.document.get("counterpoint").is_some();
            let part = part.iter().filter(|_| !known).map(|part| ("counterpoint", part));
            writer.finish(document.chain(part))?
        }
        _ => writer.finish([("counterpoint", &merged)])?,
    };
    Ok(Timeline { out, losses, left_out, filtered, alignments, shift_ns })
}

/// Returns the moment to which the times in the file are relative after its alignment with the
/// first file, in ns since 1970.
fn base_ns(file: &Look, alignment: &Alignment) -> i64 {
    file.base_ns.unwrap_or(0).saturating_add(alignment.shift_ns)
}

#[derive(Clone, Debug)]
struct OwnRow {
    process: Option<OwnId>,
    thread: Option<OwnId>,
    process_name: Option<String>,
    labels: Option<String>,
    process_sort: i64,
    name: Option<String>,
    sort: i64,
    /// Whether the writer already has the name of the row.
    named: bool,
    /// The first row with the same ids, usually this one.
    same: RowId,
}

/// Returns the row in which the events of `row` are written.
fn same_row(rows: &[OwnRow], row: RowId) -> RowId {
    rows.get(row.0 as usize).map_or(row, |known| known.same)
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum OwnId {
    Number(i64),
    Text(String),
}

impl OwnId {
    fn borrow(this: &Option<Self>) -> Id<'_> {
        match this {
            Some(Self::Number(n)) => Id::Number(*n),
            Some(Self::Text(text)) => Id::Text(text),
            None => Id::Text(""),
        }
    }
}

impl OwnRow {
    const NONE: OwnRow = OwnRow {
        process: None,
        thread: None,
        process_name: None,
        labels: None,
        process_sort: 0,
        name: None,
        sort: 0,
        named: false,
        same: RowId(u32::MAX),
    };

    fn row(&self) -> Row<'_> {
        Row { process: OwnId::borrow(&self.process), thread: OwnId::borrow(&self.thread) }
    }
}

/// Returns the rows of a trace, with the names in its metadata. If a process has a usual id of
/// Linux and is not in the first file, it gets a new id from `other_ids` (if any is left). Two
/// files may use the same id for different processes, but Perfetto's format knows only the
/// processes of one machine. Perfetto shows no process for a track without a process id.
fn rows(
    trace: &Activities,
    look: &Look,
    moved: Moved<'_>,
    other_ids: &mut Range<i64>,
) -> io::Result<Vec<OwnRow>> {
    // The list has only the rows that the file describes. The row number of a damaged event may be
    // outside of the list.
    let mut rows = vec![OwnRow::NONE; trace.row_count()];
    let mut labels = BTreeMap::<ProcessKey, String>::new();
    let number = |row: RowId| row.0 as usize;
    visit(trace, |event| {
        if event.form != b'M' {
            return Ok(());
        }
        let Some(row) = rows.get_mut(number(event.row)) else { return Ok(()) };
        let args = Args::of(event.args);
        match event.name.and_then(|name| trace.text(name)) {
            Some("thread_name") => row.name = args.text("name").map(str::to_owned),
            Some("thread_sort_index") => row.sort = args.number("sort_index").unwrap_or(0),
            Some("process_labels") => {
                let process = trace.row(event.row).0.and_then(scalar);
                let text = args.text("labels").unwrap_or_default().to_owned();
                labels.extend(process.map(|process| (ProcessKey::of(&process), text)));
            }
            _ => {}
        }
        Ok(())
    })?;
    let mut given = HashMap::<i64, i64>::new();
    let mut number_of = |n: i64| match moved.index > 0 && REAL_IDS.contains(&n) {
        true => match given.entry(n) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(new) => *new.insert(other_ids.next().unwrap_or(moved.number(n))),
        },
        false => moved.number(n),
    };
    for (i, row) in rows.iter_mut().enumerate() {
        let (process, thread) = trace.row(RowId(i as u32));
        let (process, thread) = (process.and_then(scalar), thread.and_then(scalar));
        if let Some(process) = &process {
            let key = ProcessKey::of(process);
            let known = look.processes.get(&key);
            let name = known.and_then(|process| process.name.clone());
            row.process_name = match moved.label {
                "" => name,
                label => Some(format!("{label}: {}", name.unwrap_or_else(|| process.to_string()))),
            };
            row.process_sort = known.and_then(|process| process.sort_index).unwrap_or(0);
            row.labels = labels.get(&key).cloned();
            row.process = Some(match key {
                ProcessKey::Number(n) => OwnId::Number(number_of(n)),
                key => OwnId::Text(moved.text(&key)),
            });
        }
        row.thread = thread.map(|thread| match thread {
            // In Chrome's format, Perfetto reads the thread id 0 as the main thread. In Perfetto's
            // format, the main thread has the id of its process.
            Scalar::Int(0) => match row.process {
                Some(OwnId::Number(process))
                    if REAL_IDS.contains(&process) || OTHER_IDS.contains(&process) =>
                {
                    OwnId::Number(process)
                }
                _ => OwnId::Number(0),
            },
            Scalar::Int(n) => OwnId::Number(n),
            other => OwnId::Text(other.to_string()),
        });
    }
    let mut known = HashMap::new();
    for i in 0..rows.len() {
        let ids = (rows[i].process.clone(), rows[i].thread.clone());
        let same = *known.entry(ids).or_insert(i);
        rows[i].same = RowId(same as u32);
        // The metadata may have named any of the rows with these ids.
        if rows[same].name.is_none() {
            rows[same].name = rows[i].name.clone();
        }
    }
    Ok(rows)
}

/// The slice that is not written yet, because ends of its arrows may follow.
#[derive(Debug, Default)]
struct Waiting {
    row: Option<RowId>,
    /// The lane of the slice, if the slices of its row need lanes.
    lane: Option<usize>,
    category: String,
    name: String,
    args: String,
    start_ns: i64,
    duration_ns: u64,
    /// For each arrow: the index of its kind, its id, and which of its ends is at the slice.
    arrows: Vec<(usize, u64, FlowEnd)>,
}

/// The kinds of arrows, and the index of each by trace, category and name.
#[derive(Debug, Default)]
struct Arrows {
    kinds: Vec<FlowKind>,
    places: HashMap<(usize, Option<NameId>, Option<NameId>), usize>,
}

struct OneTrace<'a, W: Write> {
    number: usize,
    trace: &'a Activities,
    writer: Writer<W>,
    rows: Vec<OwnRow>,
    categories: Categories,
    base_ns: i64,
    lanes: Lanes,
    arrows: Arrows,
    waiting: Waiting,
    left_out: u64,
}

impl<W: Write> OneTrace<'_, W> {
    fn event(&mut self, event: &Activity<'_>) -> io::Result<()> {
        match event.form {
            b's' | b't' | b'f' => return self.arrow(event),
            b'M' => return Ok(()),
            _ => self.flush()?,
        }
        let Some(time_ns) = event.time_ns else {
            self.left_out += 1;
            return Ok(());
        };
        self.name_row(event.row)?;
        let at_ns = time_ns.saturating_add(self.base_ns);
        let name = event.name.and_then(|id| self.trace.text(id)).unwrap_or("");
        let (category, _) = self.categories.of(event, event.more, self.trace);
        let category = category.as_deref().unwrap_or("");
        let row = self.rows.get(event.row.0 as usize).unwrap_or(&OwnRow::NONE).row();
        let same = same_row(&self.rows, event.row);
        match event.form {
            b'X' if event.duration_ns.is_some_and(|ns| ns >= 0) => {
                let waiting = &mut self.waiting;
                waiting.row = Some(event.row);
                waiting.lane = self.lanes.next(same).flatten();
                let texts = [
                    (&mut waiting.category, category),
                    (&mut waiting.name, name),
                    (&mut waiting.args, event.args.unwrap_or("")),
                ];
                for (to, text) in texts {
                    to.clear();
                    to.push_str(text);
                }
                waiting.start_ns = at_ns;
                waiting.duration_ns = event.duration_ns.unwrap_or(0).unsigned_abs();
            }
            b'B' => {
                let args = Args::of(event.args);
                let slice = Slice {
                    row,
                    category,
                    name,
                    start_ns: at_ns,
                    duration_ns: 0,
                    args: &args.list(),
                    shape: None,
                    label: None,
                    flows: &[],
                    counters: &[],
                };
                match self.lanes.next(same).flatten() {
                    Some(lane) => self.writer.begin_in(lane, &slice)?,
                    None => self.writer.begin(&slice)?,
                }
            }
            b'E' => {
                let args = Args::of(event.args);
                let ended = match self.lanes.next(same) {
                    Some(Some(lane)) => {
                        self.writer.end_in(lane, row, at_ns, &args.list())?;
                        true
                    }
                    Some(None) => false,
                    None => self.writer.end(row, at_ns, &args.list())?,
                };
                self.left_out += u64::from(!ended);
            }
            b'i' | b'I' | b'R' => {
                let args = Args::of(event.args);
                let args = &args.list()[..];
                self.writer.instant(&Instant { row, category, name, at_ns, args, flows: &[] })?;
            }
            b'C' => {
                let args = Args::of(event.args);
                let series = &args.list()[..];
                // Counters with the same name but different ids get the names that Perfetto itself
                // gives them when it reads Chrome's format.
                let with_id = event.id.and_then(scalar).map(|id| format!("{name} id: {id}"));
                let name = with_id.as_deref().unwrap_or(name);
                self.writer.counter(&SeriesPoint {
                    row,
                    category,
                    name,
                    at_ns,
                    series,
                    label: None,
                    units: &[],
                })?;
            }
            _ => self.left_out += 1,
        }
        Ok(())
    }

    /// Writes the slice that waits.
    fn flush(&mut self) -> io::Result<()> {
        let Some(number) = self.waiting.row.take() else { return Ok(()) };
        let row = self.rows.get(number.0 as usize).unwrap_or(&OwnRow::NONE).row();
        let waiting = &self.waiting;
        let args = Args::of(Some(waiting.args.as_str()));
        let kinds = &self.arrows.kinds;
        let arrows = waiting.arrows.iter().copied();
        let flows: Vec<Flow<'_>> =
            arrows.map(|(kind, id, end)| Flow { kind: &kinds[kind], id, end }).collect();
        let slice = Slice {
            row,
            category: &waiting.category,
            name: &waiting.name,
            start_ns: waiting.start_ns,
            duration_ns: waiting.duration_ns,
            args: &args.list(),
            shape: None,
            label: None,
            flows: &flows,
            counters: &[],
        };
        match waiting.lane {
            Some(lane) => self.writer.slice_in(lane, &slice)?,
            None => self.writer.slice(&slice)?,
        }
        self.waiting.arrows.clear();
        Ok(())
    }

    /// Handles an end of an arrow, or a step between its ends.
    fn arrow(&mut self, event: &Activity<'_>) -> io::Result<()> {
        let Some((time_ns, id)) = event.time_ns.zip(event.id) else {
            self.left_out += 1;
            return Ok(());
        };
        let at_ns = time_ns.saturating_add(self.base_ns);
        let (kind, id) = self.arrow_id(event, id);
        let end = if event.form == b'f' { FlowEnd::Finish } else { FlowEnd::Start };
        let waiting = &mut self.waiting;
        let since_ns = at_ns.checked_sub(waiting.start_ns).and_then(|ns| u64::try_from(ns).ok());
        let inside = since_ns.is_some_and(|ns| ns <= waiting.duration_ns);
        if waiting.row == Some(event.row) && inside {
            waiting.arrows.push((kind, id, end));
            return Ok(());
        }
        self.flush()?;
        self.name_row(event.row)?;
        let row = self.rows.get(event.row.0 as usize).unwrap_or(&OwnRow::NONE).row();
        let kind = &self.arrows.kinds[kind];
        let (name, flows) = (kind.name(), &[Flow { kind, id, end }]);
        let category = event.category.and_then(|id| self.trace.text(id)).unwrap_or("");
        self.writer.instant(&Instant { row, category, name, at_ns, args: &[], flows })
    }

    /// Returns the kind and the id of an arrow. In Chrome's format, ids of arrows are unique for
    /// each category and name. In Perfetto's format, all arrows share one range of ids. Arrows of
    /// the first kind usually keep their ids.
    fn arrow_id(&mut self, event: &Activity<'_>, id: &str) -> (usize, u64) {
        let Arrows { kinds, places } = &mut self.arrows;
        let kind = *places.entry((self.number, event.category, event.name)).or_insert_with(|| {
            let name = event.name.and_then(|id| self.trace.text(id)).unwrap_or("");
            kinds.push(FlowKind::from_name(name));
            kinds.len() - 1
        });
        let id = match id.parse::<u64>() {
            Ok(id) if id < 1 << 48 && kind < 1 << 15 => (kind as u64) << 48 | id,
            _ => {
                // The hash has no random seed, so that the same trace gives the same file.
                BuildHasherDefault::<DefaultHasher>::default().hash_one((kind, id)) | 1 << 63
            }
        };
        (kind, id)
    }

    /// Passes the name of a row to the writer before the row's first event.
    fn name_row(&mut self, number: RowId) -> io::Result<()> {
        let number = same_row(&self.rows, number);
        let Some(row) = self.rows.get_mut(number.0 as usize).filter(|row| !row.named) else {
            return Ok(());
        };
        row.named = true;
        let (row, at_ns) = (row.clone(), self.base_ns);
        let id = OwnId::borrow(&row.process);
        let fallback = match id {
            Id::Number(n) => format!("process {n}"),
            Id::Text(text) => text.to_owned(),
        };
        let name = row.process_name.as_deref().unwrap_or(&fallback);
        let labels = row.labels.as_deref().unwrap_or("");
        self.writer.process(&ProcessRow {
            id,
            name,
            labels,
            sort_index: row.process_sort,
            at_ns,
        })?;
        let fallback = match OwnId::borrow(&row.thread) {
            Id::Number(n) => format!("thread {n}"),
            Id::Text(text) => text.to_owned(),
        };
        let name = row.name.as_deref().unwrap_or(&fallback);
        self.writer.thread(&ThreadRow { row: row.row(), name, sort_index: row.sort, at_ns })
    }
}
