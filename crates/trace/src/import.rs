//! A Chrome trace as a profile.
//!
//! ```text
//!  chrome::read ─► Import ─┬─► profile::activities   every event, nothing left out
//!                          └─► profile::writer       slices as calls, for report, stats, export
//! ```
//!
//! A process of the trace is a process of the profile, a thread (or stream) a thread, a category
//! a library, a name in it an op. Complete slices (`X`) and pairs of `B` and `E` are calls. Ids
//! that are no process ids (texts, negative numbers) get free ones, and the process is called by
//! its text.
//!
//! Memory: names, rows, unfinished pages; no events.

use std::borrow::Cow;
use std::collections::HashMap;
use std::path::Path;

use profile::activities::{ActivitiesWriter, Activity, NameId, RowId};
use profile::writer::{CallsWriter, ProcessKey, ThreadKey};
use profile::{Clock, Manifest, Moment, Origin, State};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::chrome::event::{Event, Scalar, args};
use crate::chrome::read::{Sink, Summary};

/// Ticks of the trace's time 0, so that times before it are ticks too.
pub const EPOCH_TICKS: u64 = 1 << 61;
/// Slices without an end that one row may have at a time.
const MOST_OPEN: usize = 1 << 16;

/// Takes a trace and writes a profile.
#[derive(Debug)]
pub struct Import {
    activities: ActivitiesWriter,
    calls: CallsWriter,
    document: Map<String, Value>,
    processes: HashMap<Id, Process>,
    next_pid: u32,
    rows: Vec<Row>,
    by_id: HashMap<(Option<Id>, Option<Id>), usize>,
    /// The row of the event before: the next one is often in it.
    last: Option<((Option<Id>, Option<Id>), usize)>,
    /// Numbers that calls have for a name in a category, in each process.
    exports: HashMap<(ProcessKey, Option<NameId>, Option<NameId>), u32>,
    first_ns: i64,
    last_ns: i64,
    counts: Imported,
    text: String,
}

/// What was imported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Imported {
    /// Events.
    pub events: u64,
    /// Slices that became calls.
    pub calls: u64,
    /// Slices that begin and never end, or end and never began, or end before they begin.
    pub unpaired: u64,
}

#[derive(Clone, Copy, Debug)]
struct Process {
    key: ProcessKey,
    named: bool,
}

#[derive(Debug)]
struct Row {
    id: RowId,
    process: Option<ProcessKey>,
    thread: Option<ThreadKey>,
    /// Begun and not ended: category, name, time.
    open: Vec<(Option<NameId>, Option<NameId>, i64)>,
}

/// A process or thread id of a trace.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Id {
    Number(i64),
    Text(Box<str>),
}

impl Id {
    fn of(scalar: &Scalar<'_>) -> Self {
        match scalar {
            Scalar::Int(n) => Self::Number(*n),
            other => Self::Text(other.to_string().into()),
        }
    }

    fn is(&self, scalar: &Scalar<'_>) -> bool {
        match (self, scalar) {
            (Self::Number(a), Scalar::Int(b)) => a == b,
            (Self::Text(a), Scalar::Text(b)) => **a == **b,
            _ => false,
        }
    }
}

/// Whether the remembered id is that of the event.
fn same(known: &Option<Id>, found: &Option<Scalar<'_>>) -> bool {
    match (known, found) {
        (None, None) => true,
        (Some(id), Some(scalar)) => id.is(scalar),
        _ => false,
    }
}

impl Import {
    /// Starts a profile in `dir`, an empty directory.
    ///
    /// # Errors
    /// The directory is not writable, or something is in it.
    pub fn create(dir: &Path) -> profile::Result<Self> {
        let mut manifest = Manifest::new();
        manifest.origin = Origin::Import;
        manifest.write(dir)?;
        Ok(Self {
            activities: ActivitiesWriter::create(dir, "chrome")?,
            calls: CallsWriter::create(dir)?,
            document: Map::new(),
            processes: HashMap::new(),
            next_pid: 1 << 30,
            rows: Vec::new(),
            by_id: HashMap::new(),
            last: None,
            exports: HashMap::new(),
            first_ns: i64::MAX,
            last_ns: i64::MIN,
            counts: Imported::default(),
            text: String::new(),
        })
    }

    /// Writes what is left, and the manifest with what the caller has put into it.
    ///
    /// # Errors
    /// The disk is full.
    pub fn finish(
        mut self,
        dir: &Path,
        summary: &Summary,
        mut manifest: Manifest,
    ) -> profile::Result<Imported> {
        let open: usize = self.rows.iter().map(|row| row.open.len()).sum();
        self.counts.unpaired += open as u64;
        self.counts.events = summary.events;
        self.counts.calls = self.calls.calls();
        let base = self.document.get("baseTimeNanoseconds").and_then(Value::as_i64).unwrap_or(0);
        let host = self.document.get("host_name").and_then(Value::as_str).unwrap_or_default();
        manifest.origin = Origin::Import;
        manifest.state = State::Finished;
        manifest.clock = Clock::Monotonic;
        manifest.host = host.to_owned();
        if self.first_ns <= self.last_ns {
            manifest.created_unix_ns =
                u64::try_from(base.saturating_add(self.first_ns)).unwrap_or(0);
            manifest.snapshots = [self.first_ns, self.last_ns].map(|ns| moment(base, ns)).to_vec();
        }
        if self.counts.unpaired > 0 {
            let n = self.counts.unpaired;
            manifest.notes.push(format!("{n} slices begin without an end or end without a begin"));
        }
        if summary.mended > 0 {
            let n = summary.mended;
            manifest.notes.push(format!("{n} events had bytes that JSON cannot hold; mended"));
        }
        if summary.truncated {
            let at = summary.bytes;
            manifest.notes.push(format!("the trace stops early, behind byte {at}"));
        }
        self.activities.finish(&self.document)?;
        self.calls.finish()?;
        manifest.write(dir)?;
        Ok(self.counts)
    }

    fn row(&mut self, event: &Event<'_>) -> Result<usize, String> {
        if let Some((ids, row)) = &self.last
            && same(&ids.0, &event.pid)
            && same(&ids.1, &event.tid)
        {
            return Ok(*row);
        }
        let ids = (event.pid.as_ref().map(Id::of), event.tid.as_ref().map(Id::of));
        let row = match self.by_id.get(&ids) {
            Some(row) => *row,
            None => {
                let process = event.pid.as_ref().map(json);
                let thread = event.tid.as_ref().map(json);
                let id = self.activities.row(process.as_deref(), thread.as_deref());
                self.rows.push(Row { id, process: None, thread: None, open: Vec::new() });
                self.by_id.insert(ids.clone(), self.rows.len() - 1);
                self.rows.len() - 1
            }
        };
        self.last = Some((ids, row));
        Ok(row)
    }

    fn process(&mut self, id: Option<&Id>) -> Result<ProcessKey, String> {
        let id = id.cloned().unwrap_or(Id::Text("".into()));
        if let Some(known) = self.processes.get(&id) {
            return Ok(known.key);
        }
        let pid = match &id {
            Id::Number(n) => u32::try_from(*n).ok().filter(|n| *n < 1 << 30),
            Id::Text(_) => None,
        };
        let pid = pid.unwrap_or_else(|| {
            self.next_pid = self.next_pid.wrapping_add(1);
            self.next_pid - 1
        });
        let key = self.calls.process(pid).map_err(|e| e.to_string())?;
        if let Id::Text(text) = &id {
            self.calls.name_process(key, text);
        }
        self.processes.insert(id, Process { key, named: false });
        Ok(key)
    }

    /// The thread of a row; made when something first happens in it.
    fn thread(&mut self, row: usize) -> Result<(ProcessKey, ThreadKey), String> {
        if let Row { process: Some(process), thread: Some(thread), .. } = self.rows[row] {
            return Ok((process, thread));
        }
        let ids = match &self.last {
            Some((ids, last)) if *last == row => ids.clone(),
            _ => (None, None),
        };
        let process = self.process(ids.0.as_ref())?;
        let tid = match &ids.1 {
            Some(Id::Number(n)) => u32::try_from(*n).ok(),
            _ => None,
        };
        let thread = self.calls.thread(process, tid.unwrap_or(0));
        if let Some(Id::Text(text)) = &ids.1 {
            self.calls.name_thread(thread, text);
        }
        self.rows[row].process = Some(process);
        self.rows[row].thread = Some(thread);
        Ok((process, thread))
    }

    fn call(
        &mut self,
        row: usize,
        (category, name): (Option<NameId>, Option<NameId>),
        start_ns: i64,
        end_ns: i64,
    ) -> Result<(), String> {
        let (process, thread) = self.thread(row)?;
        let key = (process, category, name);
        let export = match self.exports.get(&key) {
            Some(export) => *export,
            None => {
                let text = |id: Option<NameId>| id.map_or("", |id| self.activities.text(id));
                let export = self.calls.export(process, text(category), text(name));
                self.exports.insert(key, export);
                export
            }
        };
        self.first_ns = self.first_ns.min(start_ns);
        self.last_ns = self.last_ns.max(end_ns);
        let (start, end) = (ticks(start_ns), ticks(end_ns));
        self.calls.call(thread, export, start, end).map_err(|e| e.to_string())
    }

    /// `process_name`, `thread_name` and the like.
    fn metadata(&mut self, row: usize, event: &Event<'_>) -> Result<(), String> {
        let mut given = None;
        if let Some(raw) = event.args {
            args(raw, |key, value| {
                if key == "name" {
                    given = serde_json::from_str::<Cow<'_, str>>(value.get()).ok();
                }
            });
        }
        let Some(given) = given else { return Ok(()) };
        match event.name.as_deref() {
            Some("process_name") => {
                let id = event.pid.as_ref().map(Id::of);
                let key = self.process(id.as_ref())?;
                let process = self.processes.values_mut().find(|p| p.key == key);
                if let Some(process) = process.filter(|p| !p.named) {
                    process.named = true;
                    self.calls.name_process(key, &given);
                }
            }
            Some("thread_name") => {
                let (_, thread) = self.thread(row)?;
                self.calls.name_thread(thread, &given);
            }
            _ => {}
        }
        Ok(())
    }

    fn activity(&mut self, event: &Event<'_>) -> Result<(), String> {
        let row = self.row(event)?;
        let name = event.name.as_deref().map(|text| self.activities.name(text));
        let category = event.category.as_deref().map(|text| self.activities.name(text));
        let id = event.id.as_ref().map(json);
        self.text.clear();
        more(event, &mut self.text);
        let activity = Activity {
            form: event.phase,
            name,
            category,
            row: self.rows[row].id,
            time_ns: event.time_ns,
            duration_ns: event.duration_ns,
            id: id.as_deref(),
            args: event.args.map(RawValue::get),
            more: Some(self.text.as_str()).filter(|text| !text.is_empty()),
        };
        self.activities.push(&activity).map_err(|e| e.to_string())?;
        let what = (category, name);
        match (event.phase, event.time_ns, event.duration_ns) {
            (b'X', Some(start), Some(duration)) if duration >= 0 => {
                self.call(row, what, start, start.saturating_add(duration))?;
            }
            (b'B', Some(start), _) if self.rows[row].open.len() < MOST_OPEN => {
                self.rows[row].open.push((category, name, start));
            }
            (b'E', Some(end), _) => match self.rows[row].open.pop() {
                Some((category, name, start)) if start <= end => {
                    self.call(row, (category, name), start, end)?;
                }
                _ => self.counts.unpaired += 1,
            },
            (b'X' | b'B' | b'E', ..) => self.counts.unpaired += 1,
            (b'M', ..) => self.metadata(row, event)?,
            _ => {}
        }
        Ok(())
    }
}

impl Sink for Import {
    fn event(&mut self, _: u64, event: Event<'_>) -> Result<(), String> {
        self.activity(&event)
    }

    fn top(&mut self, _: u64, key: &str, value: &RawValue) -> Result<(), String> {
        let value = serde_json::from_str(value.get()).map_err(|e| e.to_string())?;
        self.document.insert(key.to_owned(), value);
        Ok(())
    }
}

fn ticks(ns: i64) -> u64 {
    EPOCH_TICKS.saturating_add_signed(ns)
}

fn moment(base: i64, ns: i64) -> Moment {
    let realtime_ns = u64::try_from(base.saturating_add(ns)).unwrap_or(0);
    Moment { ticks: ticks(ns), monotonic_ns: ticks(ns), realtime_ns, uncertainty_ticks: 0 }
}

fn json(scalar: &Scalar<'_>) -> String {
    match scalar {
        Scalar::Int(n) => n.to_string(),
        Scalar::Big(n) => n.to_string(),
        Scalar::Float(x) => Value::from(*x).to_string(),
        Scalar::Text(text) => Value::from(&**text).to_string(),
    }
}

/// The keys of an event that have no column, as an object; nothing if there are none.
fn more(event: &Event<'_>, out: &mut String) {
    let texts = [("bp", &event.binding), ("s", &event.scope)];
    for (key, text) in texts {
        if let Some(text) = text {
            put(out, key, &Value::from(&**text).to_string());
        }
    }
    for (key, value) in &event.other {
        put(out, key, value.get());
    }
    if !out.is_empty() {
        out.push('}');
    }
}

fn put(out: &mut String, key: &str, value: &str) {
    out.push(if out.is_empty() { '{' } else { ',' });
    out.push_str(&Value::from(key).to_string());
    out.push(':');
    out.push_str(value);
}
