//! Merges several traces into one.
//!
//! ```text
//!  A ─► look: base time, clocks, rank, host, rows ─┐
//!  B ─► look                                       ├─► align ─► A again, B again ─► writer
//!  …                                               ┘
//! ```
//!
//! Each file is read twice, so that no events must be kept in memory. Events with the name or sort
//! index of a process are replaced by new ones. Other events keep everything except their times,
//! their process ids, and the ids (`id`, not `id2`) of arrows and spans. These ids are changed in
//! all files but the first, so that they differ from the ids of earlier files.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::{self, Read, Write};

use serde::Serialize;
use serde_json::{Value, json};

use crate::chrome::event::{Event, Raw, Scalar};
use crate::chrome::read::{EventSink, ReadError, ReadSummary, read};
use crate::chrome::time::shifted;
use crate::chrome::write::{RawEvent, Writer};
use crate::text;
use crate::timeline::{Id, ProcessRow, TimelineSink};

/// The version of the object `counterpoint` in a merged trace.
pub const MERGE_SCHEMA: &str = "counterpoint.trace-merge/1";
/// The distance between the process ids of consecutive files.
pub const PROCESSES_APART: i64 = 100_000_000;
/// The distance between the ids of arrows and spans of consecutive files, if the ids are integers.
const FLOWS_APART: i64 = 1 << 40;
/// The distance between the sort indices of consecutive files. Kineto's own sort indices go up to
/// 2²⁹.
const SORTS_APART: i64 = 1 << 30;

/// What the first reading of a file finds out.
#[derive(Clone, Debug, Default)]
pub struct Look {
    pub name: String,
    /// The moment to which the file's times are relative, in ns since 1970.
    pub base_ns: Option<i64>,
    /// The rank, if any.
    pub rank: Option<u64>,
    /// The name of the machine.
    pub host: Option<String>,
    /// The time of the first event, in ns since `base_ns`.
    pub first_ns: Option<i64>,
    pub summary: ReadSummary,
    pub(crate) clock: Option<BootClock>,
    pub(crate) document: serde_json::Map<String, Value>,
    pub(crate) processes: BTreeMap<ProcessKey, Process>,
}

/// The offset between `CLOCK_REALTIME` and `CLOCK_MONOTONIC` during one boot of a machine.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct BootClock {
    boot: String,
    /// `CLOCK_REALTIME` minus `CLOCK_MONOTONIC` in ns, with which the file's times were computed.
    offset_ns: i64,
    uncertainty_ns: f64,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ProcessKey {
    Number(i64),
    /// A text, or a number that is not an `i64`, as text.
    Text(String),
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Process {
    pub(crate) name: Option<String>,
    pub(crate) sort_index: Option<i64>,
}

/// How the times of a file were aligned with those of the first file.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Alignment {
    pub file: String,
    /// The rank, if the file contains one.
    pub rank: Option<u64>,
    /// The name of the machine, if the file contains it.
    pub host: Option<String>,
    /// What was added to the file's times besides the difference of the base times, in ns.
    pub shift_ns: i64,
    /// The largest possible error of the alignment with the first file, in ns, if it is known.
    pub uncertainty_ns: Option<f64>,
    /// What was used to align the times.
    pub by: By,
}

/// See [`Alignment::by`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum By {
    /// The file is the first one.
    First,
    /// Snapshots of the machine's clocks: both files were recorded in the same boot.
    Monotonic,
    /// The base times. If `CLOCK_REALTIME` differs between the machines, the alignment is wrong by
    /// this difference.
    BaseTime,
    /// The first events of both files are put at the same moment, because at least one of the files
    /// has no base time.
    FirstEvent,
}

/// Reads a file, and returns what must be known before its events are merged.
pub fn look(name: &str, source: impl Read) -> Result<Look, ReadError> {
    let mut look = Look { name: name.to_owned(), ..Look::default() };
    look.summary = read(source, &mut look)?;
    Ok(look)
}

impl Look {
    /// Returns the time of the first event, in ns since 1970 if the file has a base time.
    pub(crate) fn start_ns(&self) -> i64 {
        self.base_ns.unwrap_or(0).saturating_add(self.first_ns.unwrap_or(0))
    }

    /// Adds a process and, from a metadata event, its name or sort index.
    pub(crate) fn add(&mut self, pid: &Scalar<'_>, metadata: Option<(&str, &str)>) {
        let key = ProcessKey::of(pid);
        if !self.processes.contains_key(&key) {
            self.processes.insert(key.clone(), Process::default());
        }
        let Some((name, args)) = metadata else { return };
        let args = || serde_json::from_str::<Value>(args).ok();
        let process = self.processes.entry(key).or_default();
        match name {
            "process_name" => {
                process.name = args().and_then(|a| Some(a.get("name")?.as_str()?.to_owned()));
            }
            "process_sort_index" => {
                process.sort_index = args().and_then(|a| a.get("sort_index")?.as_i64());
            }
            _ => {}
        }
    }

    /// Adds a key of the JSON document (any key but that of the events), with its value.
    pub(crate) fn add_top(&mut self, key: &str, value: Value) {
        let whole = |v: &Value| v.as_i64().or_else(|| v.as_str()?.parse().ok());
        match key {
            "baseTimeNanoseconds" => self.base_ns = whole(&value),
            "distributedInfo" => self.rank = value.get("rank").and_then(Value::as_u64),
            "host_name" => self.host = value.as_str().map(str::to_owned),
            "counterpoint" => self.clock = BootClock::of(&value),
            _ => {}
        }
        self.document.insert(key.to_owned(), value);
    }
}

impl EventSink for Look {
    fn event(&mut self, _: u64, event: &Event<'_>) -> Result<(), String> {
        if event.phase != b'M' {
            let first = self.first_ns.into_iter().chain(event.time_ns).min();
            self.first_ns = first;
        }
        let Some(pid) = &event.pid else { return Ok(()) };
        let name = event.name.as_deref().filter(|_| event.phase == b'M');
        self.add(pid, name.map(|name| (name, event.args.map_or("", Raw::get))));
        Ok(())
    }

    fn top(&mut self, _: u64, key: &str, value: Raw<'_>) -> Result<(), String> {
        if let Ok(value) = value.parse::<Value>() {
            self.add_top(key, value);
        }
        Ok(())
    }
}

impl BootClock {
    /// Parses the object `counterpoint` of a trace that Counterpoint exported.
    fn of(facts: &Value) -> Option<Self> {
        let boot = facts["manifest"]["boot_id"].as_str().filter(|boot| !boot.is_empty())?;
        let clock = &facts["clock"];
        let snapshots = clock["snapshots"].as_array()?;
        // The file's times were computed with the earliest snapshot.
        let first = snapshots.iter().min_by_key(|s| s["ticks"].as_u64())?;
        let ns = |key: &str| first[key].as_i64();
        let ticks = first["uncertainty_ticks"].as_f64()?;
        Some(Self {
            boot: boot.to_owned(),
            offset_ns: ns("realtime_ns")?.checked_sub(ns("monotonic_ns")?)?,
            // Both clocks were read within an interval that is twice as long as the snapshot's
            // uncertainty.
            uncertainty_ns: 2.0 * ticks * clock["ns_per_tick"].as_f64()?,
        })
    }
}

/// Computes how to align the files with the first one.
pub fn align(files: &[Look]) -> Vec<Alignment> {
    let Some(first) = files.first() else { return Vec::new() };
    let one = |(i, file): (usize, &Look)| {
        let (shift_ns, uncertainty_ns, by) = match (&first.clock, &file.clock) {
            _ if i == 0 => (0, Some(0.0), By::First),
            (Some(a), Some(b)) if a.boot == b.boot => {
                let shift = a.offset_ns.saturating_sub(b.offset_ns);
                (shift, Some(a.uncertainty_ns + b.uncertainty_ns), By::Monotonic)
            }
            _ => match (first.base_ns, file.base_ns) {
                (Some(_), Some(_)) => (0, None, By::BaseTime),
                _ => {
                    let start =
                        |f: &Look| f.base_ns.unwrap_or(0).saturating_add(f.first_ns.unwrap_or(0));
                    (start(first).saturating_sub(start(file)), None, By::FirstEvent)
                }
            },
        };
        Alignment {
            file: file.name.clone(),
            rank: file.rank,
            host: file.host.clone(),
            shift_ns,
            uncertainty_ns,
            by,
        }
    };
    files.iter().enumerate().map(one).collect()
}

impl ProcessKey {
    pub(crate) fn of(id: &Scalar<'_>) -> Self {
        match id {
            Scalar::Int(n) => Self::Number(*n),
            other => Self::Text(other.to_string()),
        }
    }
}

/// Returns a label for the rows of each file: its rank, its machine or both, as far as known, and
/// otherwise its name. The number of the file is added to labels that are equal.
pub(crate) fn labels(files: &[Look]) -> Vec<String> {
    let label = |file: &Look| match (file.rank, &file.host) {
        (Some(rank), Some(host)) => format!("rank {rank} on {host}"),
        (Some(rank), None) => format!("rank {rank}"),
        (None, Some(host)) => host.clone(),
        (None, None) => file.name.clone(),
    };
    let all: Vec<String> = files.iter().map(label).collect();
    let alone = |label: &String| all.iter().filter(|l| *l == label).count() == 1;
    let numbered = |(i, label): (usize, &String)| {
        if alone(label) { label.clone() } else { format!("{label}, file {}", i + 1) }
    };
    all.iter().enumerate().map(numbered).collect()
}

/// Returns the moment of the earliest event of all files, in ns since 1970 if the first file has a
/// base time.
pub fn first_ns(files: &[Look], alignments: &[Alignment]) -> i64 {
    let start = |(file, alignment): (&Look, &Alignment)| {
        let first = file.base_ns.unwrap_or(0).saturating_add(file.first_ns.unwrap_or(0));
        first.saturating_add(alignment.shift_ns)
    };
    files.iter().zip(alignments).map(start).min().unwrap_or(0)
}

pub(crate) fn write_rows<W: Write>(
    files: &[Look],
    labels: &[String],
    writer: &mut Writer<W>,
) -> io::Result<()> {
    for (i, (file, label)) in files.iter().zip(labels).enumerate() {
        for (key, process) in &file.processes {
            let moved = Moved { index: i as i64, label };
            let text = moved.text(key);
            let (id, old) = match key {
                ProcessKey::Number(n) => (Id::Number(moved.number(*n)), n.to_string()),
                ProcessKey::Text(old) => (Id::Text(&text), old.clone()),
            };
            let name = format!("{label}: {}", process.name.as_ref().unwrap_or(&old));
            let sort = process.sort_index.unwrap_or(0).clamp(0, SORTS_APART - 1);
            writer.process(&ProcessRow {
                id,
                name: &name,
                labels: "",
                sort_index: sort + SORTS_APART * i as i64,
                at_ns: writer.base_ns(),
            })?;
        }
    }
    Ok(())
}

/// Writes the rows of all files, then their events. `open` opens the file with the given index in
/// `files` again.
///
/// # Errors
/// Fails if the output cannot be written, or if a file cannot be read again.
pub fn write<W: Write, R: Read>(
    files: &[Look],
    alignments: &[Alignment],
    mut writer: Writer<W>,
    mut open: impl FnMut(usize) -> io::Result<R>,
) -> io::Result<Writer<W>> {
    let labels = labels(files);
    write_rows(files, &labels, &mut writer)?;
    for (i, (file, alignment)) in files.iter().zip(alignments).enumerate() {
        let base = file.base_ns.unwrap_or(0).saturating_sub(writer.base_ns());
        let mut sink = Again {
            writer,
            moved: Moved { index: i as i64, label: &labels[i] },
            shift_ns: base.saturating_add(alignment.shift_ns),
            error: None,
            texts: Default::default(),
        };
        let done = read(open(i)?, &mut sink);
        writer = sink.writer;
        if let Some(error) = sink.error {
            return Err(error);
        }
        done.map_err(|e| io::Error::other(format!("{}: {e}", file.name)))?;
    }
    Ok(writer)
}

/// Returns the object `counterpoint` for a merged trace.
pub fn facts(files: &[Look], alignments: &[Alignment]) -> Value {
    let files = files.iter().zip(alignments).enumerate().map(|(i, (file, alignment))| {
        json!({
            "alignment": alignment,
            "base_time_ns": file.base_ns,
            "processes_from": PROCESSES_APART * i as i64,
            "document": file.document,
        })
    });
    json!({ "schema": MERGE_SCHEMA, "files": files.collect::<Vec<_>>() })
}

/// Returns whether the rows of the merged trace already have the data of this metadata event.
pub(crate) fn names_process(metadata: &str) -> bool {
    ["process_name", "process_sort_index"].contains(&metadata)
}

/// Returns the time of an event in the output. The time of a metadata event has no meaning, but
/// must not be negative, because readers would ignore the event.
pub(crate) fn moved_ns(ns: i64, shift_ns: i64, phase: u8) -> i64 {
    let moved = ns.saturating_add(shift_ns);
    if phase == b'M' { moved.max(0) } else { moved }
}

/// How the ids of a file are changed.
#[derive(Clone, Copy)]
pub(crate) struct Moved<'a> {
    pub(crate) index: i64,
    pub(crate) label: &'a str,
}

impl Moved<'_> {
    pub(crate) fn number(&self, n: i64) -> i64 {
        n.saturating_add(PROCESSES_APART * self.index)
    }

    pub(crate) fn text(&self, key: &ProcessKey) -> String {
        match key {
            ProcessKey::Text(text) if self.index > 0 => format!("{text} ({})", self.label),
            ProcessKey::Text(text) => text.clone(),
            ProcessKey::Number(_) => String::new(),
        }
    }

    pub(crate) fn process(&self, id: &Scalar<'_>, out: &mut Vec<u8>) {
        match id {
            Scalar::Int(n) => text::int(out, self.number(*n)),
            other => text::string(out, &self.text(&ProcessKey::of(other))),
        }
    }

    pub(crate) fn flow(&self, id: &Scalar<'_>, out: &mut Vec<u8>) {
        match id {
            Scalar::Int(n) => text::int(out, n.saturating_add(FLOWS_APART * self.index)),
            other if self.index == 0 => scalar(other, out),
            other => text::string(out, &format!("{}:{other}", self.index)),
        }
    }
}

fn scalar(value: &Scalar<'_>, out: &mut Vec<u8>) {
    match value {
        Scalar::Int(n) => text::int(out, *n),
        Scalar::Big(n) => text::uint(out, *n),
        Scalar::Float(n) => out.extend_from_slice(n.as_bytes()),
        Scalar::Text(s) => text::string(out, s),
    }
}

struct Again<'a, W: Write> {
    writer: Writer<W>,
    moved: Moved<'a>,
    shift_ns: i64,
    error: Option<io::Error>,
    /// Process, thread, id, binding and scope of an event, as JSON, in buffers that are used again.
    texts: [Vec<u8>; 5],
}

impl<W: Write> EventSink for Again<'_, W> {
    fn event(&mut self, _: u64, event: &Event<'_>) -> Result<(), String> {
        if event.phase == b'M' && event.name.as_deref().is_some_and(names_process) {
            return Ok(());
        }
        self.texts.iter_mut().for_each(Vec::clear);
        let [process, thread, id, binding, scope] = &mut self.texts;
        if let Some(pid) = &event.pid {
            self.moved.process(pid, process);
        }
        if let Some(tid) = &event.tid {
            scalar(tid, thread);
        }
        if let Some(flow) = &event.id {
            self.moved.flow(flow, id);
        }
        let mut more = Vec::new();
        for (key, value, out) in [("bp", &event.binding, binding), ("s", &event.scope, scope)] {
            if let Some(value) = value {
                text::string(out, value);
                more.push((key, utf8(out)));
            }
        }
        more.extend(event.other.iter().map(|(key, value)| (&**key, value.get())));
        let exact_time = event.exact_time.map(|raw| later(raw.get(), self.shift_ns));
        let some = |bytes: &'_ Vec<u8>| !bytes.is_empty();
        let raw = RawEvent {
            phase: event.phase,
            category: event.category.as_deref(),
            name: event.name.as_deref(),
            process: some(process).then(|| utf8(process)),
            thread: some(thread).then(|| utf8(thread)),
            time_ns: event.time_ns.map(|ns| moved_ns(ns, self.shift_ns, event.phase)),
            duration_ns: event.duration_ns,
            exact_time: exact_time.as_deref(),
            exact_duration: event.exact_duration.map(Raw::get),
            id: some(id).then(|| utf8(id)),
            args: event.args.map(Raw::get),
            more: &more,
            others: None,
        };
        self.writer.raw(&raw).map_err(|error| {
            let what = error.to_string();
            self.error = Some(error);
            what
        })
    }

    fn top(&mut self, _: u64, _: &str, _: Raw<'_>) -> Result<(), String> {
        Ok(())
    }
}

/// Adds `by_ns` to a time that is more precise than nanoseconds. A text that is not a number, or
/// that is too long, is not changed.
pub(crate) fn later(exact: &str, by_ns: i64) -> Cow<'_, str> {
    match by_ns {
        0 => Cow::Borrowed(exact),
        _ => shifted(exact, by_ns).map_or(Cow::Borrowed(exact), Cow::Owned),
    }
}

/// Returns the text of JSON that this crate has just written.
fn utf8(bytes: &[u8]) -> &str {
    str::from_utf8(bytes).unwrap_or("null")
}
