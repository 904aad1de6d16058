//! Imports a trace that any program wrote, and makes a profile of it.
//!
//! ```text
//!  chrome::read    ─┐             ┌─► profile::activities   every event, nothing left out
//!  perfetto::read  ─┴► OneTrace ──┼─► profile::writer       slices and asynchronous spans as calls
//!                                 └─► profile::tracks       counters, for report, stats, export
//! ```
//!
//! A process of the trace becomes a process of the profile, and a thread (or stream) becomes a
//! thread. A category becomes a library, and each name in a category becomes an op. Calls are made
//! from complete slices (`X`), and from starts of slices (`B`) with their ends (`E`). Ids that are
//! not process ids (texts, negative or very large numbers) are replaced by free ids; an id that was
//! a text becomes the name of its process.
//!
//! Two kinds of calls belong to no thread ([`Role::is_apart`]): asynchronous spans, and calls that
//! describe the profiler's own work. A process gets one made-up thread for each kind that it has.
//!
//! Memory: names, rows, series, starts of calls whose ends were not read yet, and pages (blocks of
//! calls) that are not full yet, but no events.

mod counters;
mod held;
mod more;
mod origin;
mod recorded;
mod spans;

use std::borrow::Cow;
use std::collections::HashMap;
use std::path::Path;

use profile::activities::{ActivitiesWriter, Activity, NameId, RowId};
use profile::safe_dir::Dir;
use profile::writer::{CallsWriter, ExportKey, ProcessKey, ThreadKey};
use profile::{Clock, LossCount, Manifest, Origin, Role, State, merge_losses};
use serde_json::{Map, Value};

use super::Imported;
use crate::chrome::event::{Event, Raw, Scalar, args};
use crate::chrome::read::{EventSink, ReadSummary};
use crate::hash::FastMap;
pub use counters::CounterValue;
use counters::Counters;
use held::held;
use model::Loss;
use more::{json, more};
pub use origin::is_of_counterpoint;
pub use recorded::Added;
use recorded::{Recorded, moment};
use spans::Spans;

/// The tick count at time 0 of an imported trace: large, so that earlier times have ticks, too.
pub const EPOCH_TICKS: u64 = 1 << 61;
/// The maximum number of slices of one row whose ends were not read yet.
const MOST_OPEN: usize = 1 << 16;

/// Makes a profile from one or more traces.
#[derive(Debug)]
pub struct Import {
    dir: Dir,
    calls: CallsWriter,
    next_pid: u32,
    /// The tick count at time 0 of the first trace.
    epoch: i64,
    /// The base time of the first trace, to which times of the profile are relative.
    base_ns: Option<i64>,
    first_ns: i64,
    last_ns: i64,
    /// The first and the last time of counter values, for a trace that has only counters.
    counters_ns: Option<(i64, i64)>,
    manifest: Manifest,
    counts: Imported,
    losses: Vec<LossCount>,
    /// Number of events of each form (`ph`).
    forms: Box<[u64; 256]>,
    /// The recorded profile to which the traces are added; `None` if a new profile is made.
    recorded: Option<Recorded>,
}

/// Receives the events of one trace.
#[derive(Debug)]
pub struct OneTrace<'a> {
    all: &'a mut Import,
    activities: ActivitiesWriter,
    document: Map<String, Value>,
    /// What is added to this trace's times, to convert them to the clock of the first trace.
    shift_ns: i64,
    processes: HashMap<Id, Process>,
    /// For each process id that differs in the profile: the process's number there.
    numbers: HashMap<i64, u32>,
    rows: Vec<Row>,
    by_id: HashMap<Ids, usize>,
    /// The row of the previous event, because the next event often has the same one.
    last: Option<(Ids, usize)>,
    /// For each name and category in each process: the function in the profile, and whether its
    /// calls are a profiler's own work.
    exports: FastMap<(ProcessKey, u64), (ExportKey, bool)>,
    /// The functions for asynchronous spans, for each name and category in each process.
    span_exports: FastMap<(ProcessKey, u64), ExportKey>,
    /// The made-up threads for calls that belong to no thread.
    apart: HashMap<(ProcessKey, Role), ThreadKey>,
    spans: Spans,
    counters: Counters,
    /// Number of events whose times are more precise than nanoseconds.
    rounded: u64,
    /// Number of calls whose duration was rounded to 0.
    too_short: u64,
    /// Number of counter values that are not numbers, and of calls whose times cannot be stored.
    no_numbers: u64,
    unpaired: u64,
    text: String,
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
    /// Slices whose end was not read yet: category, name, time.
    open: Vec<(Option<NameId>, Option<NameId>, i64)>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Ids {
    process: Option<Id>,
    thread: Option<Id>,
}

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

fn same(known: &Option<Id>, found: &Option<Scalar<'_>>) -> bool {
    match (known, found) {
        (None, None) => true,
        (Some(id), Some(scalar)) => id.is(scalar),
        _ => false,
    }
}

impl Import {
    /// Begins a profile in `dir`, which must be empty. `manifest` contains what the caller knows
    /// about the profile.
    ///
    /// # Errors
    /// Fails if the directory is not writable.
    pub fn create(dir: &Path, mut manifest: Manifest) -> profile::Result<Self> {
        manifest.origin = Origin::Import;
        manifest.clock = Clock::Monotonic;
        let dir = Dir::open(dir)?;
        manifest.write_in(&dir)?;
        Ok(Self {
            calls: CallsWriter::create(&dir)?,
            dir,
            next_pid: 1 << 30,
            epoch: EPOCH_TICKS as i64,
            base_ns: None,
            first_ns: i64::MAX,
            last_ns: i64::MIN,
            counters_ns: None,
            manifest,
            counts: Imported::default(),
            losses: Vec::new(),
            forms: Box::new([0; 256]),
            recorded: None,
        })
    }

    /// Begins a trace. `name` is the name of the directory for the trace's activities: one word,
    /// which must differ for each trace. `shift_ns` is added to the trace's times, to convert them
    /// to the clock of the first trace.
    ///
    /// # Errors
    /// Fails if the profile is not writable.
    pub fn trace(&mut self, name: &str, shift_ns: i64) -> profile::Result<OneTrace<'_>> {
        Ok(OneTrace {
            activities: ActivitiesWriter::create(&self.dir, name)?,
            document: Map::new(),
            shift_ns,
            processes: HashMap::new(),
            numbers: HashMap::new(),
            rows: Vec::new(),
            by_id: HashMap::new(),
            last: None,
            exports: FastMap::default(),
            span_exports: FastMap::default(),
            apart: HashMap::new(),
            spans: Spans::default(),
            counters: Counters::new(name),
            rounded: 0,
            too_short: 0,
            no_numbers: 0,
            unpaired: 0,
            text: String::new(),
            all: self,
        })
    }

    fn saw_counter(&mut self, time_ns: i64) {
        let (first, last) = self.counters_ns.unwrap_or((time_ns, time_ns));
        self.counters_ns = Some((first.min(time_ns), last.max(time_ns)));
    }

    /// Adds losses that the caller has found.
    pub fn lose(&mut self, losses: impl IntoIterator<Item = LossCount>) {
        self.losses.extend(losses);
    }

    /// Completes the profile, and writes the rest of its files.
    ///
    /// # Errors
    /// Fails if the disk is full.
    pub fn finish(mut self) -> profile::Result<Imported> {
        self.counts.calls = self.calls.calls() - self.counts.spans;
        if self.counts.calls == 0 {
            self.manifest.notes.push(format!("the trace has no slices: {}", held(&self.forms)));
        }
        if let (true, Some((first, last))) = (self.first_ns > self.last_ns, self.counters_ns) {
            (self.first_ns, self.last_ns) = (first, last);
        }
        let manifest = &mut self.manifest;
        manifest.state = State::Finished;
        if self.first_ns <= self.last_ns {
            let base = self.base_ns.unwrap_or(0);
            let moments = [self.first_ns, self.last_ns].map(|ns| moment(base, ns, self.epoch));
            manifest.created_unix_ns = moments[0].realtime_ns;
            manifest.snapshots = moments.to_vec();
        }
        self.calls.finish()?;
        profile::write_losses(&self.dir, &merge_losses(&self.losses))?;
        self.manifest.write_in(&self.dir)?;
        Ok(self.counts)
    }
}

impl OneTrace<'_> {
    /// Ends the trace. In the profile's notes, the trace is called `file`.
    ///
    /// # Errors
    /// Fails if the disk is full.
    pub fn finish(mut self, file: &str, summary: &ReadSummary) -> profile::Result<()> {
        let open: usize = self.rows.iter().map(|row| row.open.len()).sum();
        let unpaired = self.unpaired + open as u64 + self.spans.open();
        self.name_rank();
        self.all.counts.unpaired += unpaired;
        self.all.counts.events += summary.events;
        let base = self.document.get("baseTimeNanoseconds").and_then(Value::as_i64);
        self.all.base_ns.get_or_insert(base.unwrap_or(0));
        let manifest = &mut self.all.manifest;
        if let Some(Value::String(host)) = self.document.get("host_name")
            && manifest.host.is_empty()
        {
            manifest.host.clone_from(host);
        }
        let mut note = |text: String| manifest.notes.push(format!("{file}: {text}"));
        match unpaired {
            0 => {}
            1 => note("1 slice begins without an end or ends without a begin".into()),
            n => note(format!("{n} slices begin without an end or end without a begin")),
        }
        if summary.mended > 0 {
            note(format!(
                "{} values had bytes that JSON cannot hold; these bytes were replaced",
                summary.mended
            ));
        }
        if summary.truncated {
            note(format!("the trace is truncated after byte {}", summary.bytes));
        }
        match summary.skipped {
            0 => {}
            1 => note("1 packet is not about events and was left out".into()),
            n => note(format!("{n} packets are not about events and were left out")),
        }
        if summary.dropped > 0 {
            note(format!("the program that wrote it dropped {} events", summary.dropped));
        }
        if let Some(at) = summary.rest {
            note(format!("something follows the end of the trace, at byte {at}; it was not read"));
        }
        self.all.losses.extend(
            [
                (Loss::TraceValueLost, summary.lost + self.no_numbers),
                (Loss::TraceEventDamaged, summary.damaged),
                (Loss::TraceTimeRounded, self.rounded),
                (Loss::CallBelowResolution, self.too_short),
                (Loss::TraceRestUnread, summary.rest.is_some().into()),
                (Loss::RecordingIncomplete, summary.dropped),
            ]
            .map(|(loss, count)| LossCount::new(loss, count)),
        );
        self.counters.finish()?;
        self.activities.finish(&self.document)
    }

    fn row(&mut self, event: &Event<'_>) -> Result<usize, String> {
        if let Some((ids, row)) = &self.last
            && same(&ids.process, &event.pid)
            && same(&ids.thread, &event.tid)
        {
            return Ok(*row);
        }
        let (process, thread) = (event.pid.as_ref(), event.tid.as_ref());
        let ids = Ids { process: process.map(Id::of), thread: thread.map(Id::of) };
        let row = match self.by_id.get(&ids) {
            Some(row) => *row,
            None => {
                let (process, thread) = (process.map(json), thread.map(json));
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
        if let (Id::Number(number), Some(recorded)) = (&id, &self.all.recorded)
            && let Some((part, arguments)) = recorded.parts.get(number)
        {
            let key = self.all.calls.part(*part, arguments).map_err(|e| e.to_string())?;
            self.processes.insert(id, Process { key, named: false });
            return Ok(key);
        }
        let pid = match &id {
            Id::Number(n) => self.numbers.get(n).copied().or_else(|| u32::try_from(*n).ok()),
            Id::Text(_) => None,
        };
        let pid = pid.filter(|pid| *pid < 1 << 30).unwrap_or_else(|| {
            self.all.next_pid = self.all.next_pid.wrapping_add(1);
            self.all.next_pid - 1
        });
        let key = self.all.calls.process(pid).map_err(|e| e.to_string())?;
        if let Id::Text(text) = &id {
            self.all.calls.name_process(key, text);
        }
        self.processes.insert(id, Process { key, named: false });
        Ok(key)
    }

    /// Returns the thread of a row, and creates this thread if the row has none yet.
    fn thread(&mut self, row: usize) -> Result<(ProcessKey, ThreadKey), String> {
        if let Row { process: Some(process), thread: Some(thread), .. } = self.rows[row] {
            return Ok((process, thread));
        }
        let ids = match &self.last {
            Some((ids, last)) if *last == row => ids.clone(),
            _ => Ids::default(),
        };
        let process = self.process(ids.process.as_ref())?;
        let tid = match &ids.thread {
            Some(Id::Number(n)) => u32::try_from(*n).ok(),
            _ => None,
        };
        let thread = self.all.calls.thread(process, tid.unwrap_or(0));
        if let Some(Id::Text(text)) = &ids.thread {
            self.all.calls.name_thread(thread, text);
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
        let (process, mut thread) = self.thread(row)?;
        let key = (process, number(category) << 32 | number(name));
        let (export, bookkeeping) = match self.exports.get(&key) {
            Some(known) => *known,
            None => {
                let text = |id: Option<NameId>| id.map_or("", |id| self.activities.text(id));
                let (category, name) = (text(category), text(name));
                let apart = self.is_bookkeeping(category);
                let role = if apart { Role::Bookkeeping } else { Role::Workgroup };
                let export = self.all.calls.export(process, role, category, name);
                self.exports.insert(key, (export, apart));
                (export, apart)
            }
        };
        if bookkeeping {
            thread = self.apart(process, Role::Bookkeeping);
        }
        self.put_call(thread, export, start_ns, end_ns)
    }

    fn put_call(
        &mut self,
        thread: ThreadKey,
        export: ExportKey,
        start_ns: i64,
        end_ns: i64,
    ) -> Result<(), String> {
        let all = &mut *self.all;
        // A call whose times cannot be stored is left out, because other times would give it a
        // wrong duration.
        let fits = |ns: i64| {
            let ns = ns.checked_add(self.shift_ns)?;
            (all.epoch.checked_add(ns)? >= 0).then_some(ns)
        };
        let (Some(start_ns), Some(end_ns)) = (fits(start_ns), fits(end_ns)) else {
            self.no_numbers += 1;
            return Ok(());
        };
        all.first_ns = all.first_ns.min(start_ns);
        all.last_ns = all.last_ns.max(end_ns);
        let (start, end) = (all.ticks(start_ns), all.ticks(end_ns));
        self.all.calls.call(thread, export, start, end).map_err(|e| e.to_string())
    }

    /// Returns whether slices of this category, in the row of the current event (`self.last`), are
    /// about Kineto's own work. Slices of the category `overhead` are the time that profiling took.
    /// The slice of the category `Trace` in the process `Spans` lasts as long as the profiler ran.
    /// In a trace added to a recorded profile, processes have numbers, so any may be `Spans`.
    fn is_bookkeeping(&self, category: &str) -> bool {
        let of_spans = || match &self.last {
            Some((Ids { process: Some(Id::Text(text)), .. }, _)) => text.starts_with("Spans"),
            _ => self.all.recorded.is_some(),
        };
        category == "overhead" || (category == "Trace" && of_spans())
    }

    /// Returns the made-up thread of a process for calls of this role.
    fn apart(&mut self, process: ProcessKey, role: Role) -> ThreadKey {
        let calls = &mut self.all.calls;
        let name = if role == Role::Span { "async spans" } else { "profiler" };
        *self.apart.entry((process, role)).or_insert_with(|| calls.named_thread(process, name))
    }

    fn metadata(&mut self, row: usize, event: &Event<'_>) -> Result<(), String> {
        let mut given = None;
        let is_label = event.name.as_deref() == Some("process_labels");
        if let Some(raw) = event.args {
            args(raw, |key, value| {
                if key == if is_label { "labels" } else { "name" } {
                    given = value.parse::<Cow<'_, str>>().ok();
                }
            });
        }
        let Some(given) = given else { return Ok(()) };
        match event.name.as_deref() {
            Some("process_name") => {
                let id = event.pid.as_ref().map_or(Id::Text("".into()), Id::of);
                let key = self.process(Some(&id))?;
                if let Some(process) = self.processes.get_mut(&id).filter(|p| !p.named) {
                    process.named = true;
                    self.all.calls.name_process(key, &given);
                }
            }
            // Kineto uses the name of the program as the name of each device, and the device's own
            // name as the label.
            Some("process_labels") if given.starts_with("GPU ") => {
                let id = event.pid.as_ref().map_or(Id::Text("".into()), Id::of);
                let key = self.process(Some(&id))?;
                if let Some(process) = self.processes.get_mut(&id) {
                    process.named = true;
                    self.all.calls.name_process(key, &given);
                }
            }
            Some("thread_name") => {
                let (_, thread) = self.thread(row)?;
                self.all.calls.name_thread(thread, &given);
            }
            _ => {}
        }
        Ok(())
    }

    fn activity(&mut self, event: &Event<'_>) -> Result<(), String> {
        let (row, category, name) = self.keep(event)?;
        self.understand(event, row, category, name)
    }

    /// Stores an event unchanged. Returns the event's row, category and name.
    fn keep(
        &mut self,
        event: &Event<'_>,
    ) -> Result<(usize, Option<NameId>, Option<NameId>), String> {
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
            args: event.args.map(Raw::get),
            more: Some(self.text.as_str()).filter(|text| !text.is_empty()),
        };
        self.activities.push(&activity).map_err(|e| e.to_string())?;
        self.all.forms[usize::from(event.phase)] += 1;
        if event.exact_time.is_some() || event.exact_duration.is_some() {
            self.imprecise(event);
        }
        Ok((row, category, name))
    }

    /// Converts an event to what reports use: a call, a span, the name of a row, or values of a
    /// counter.
    fn understand(
        &mut self,
        event: &Event<'_>,
        row: usize,
        category: Option<NameId>,
        name: Option<NameId>,
    ) -> Result<(), String> {
        let what = (category, name);
        match (event.phase, event.time_ns, event.duration_ns) {
            (b'X', Some(start), Some(duration)) if duration >= 0 => {
                match start.checked_add(duration) {
                    Some(end) => self.call(row, what, start, end)?,
                    None => self.no_numbers += 1,
                }
            }
            (b'B', Some(start), _) if self.rows[row].open.len() < MOST_OPEN => {
                self.rows[row].open.push((category, name, start));
            }
            (b'E', Some(end), _) => match self.rows[row].open.pop() {
                Some((category, name, start)) if start <= end => {
                    self.call(row, (category, name), start, end)?;
                }
                _ => self.unpaired += 1,
            },
            (b'X' | b'B' | b'E', ..) => self.unpaired += 1,
            (b'M', ..) => self.metadata(row, event)?,
            (b'C', ..) => self.counter(event, name, None)?,
            (b'b' | b'e' | b'S' | b'F', ..) => self.span(event, category, name)?,
            _ => {}
        }
        Ok(())
    }

    /// Counts events with times rounded to nanoseconds, and calls whose duration was rounded to 0.
    #[cold]
    fn imprecise(&mut self, event: &Event<'_>) {
        let rounded = (event.exact_time.is_some() && event.time_ns.is_some())
            || (event.exact_duration.is_some() && event.duration_ns.is_some());
        self.rounded += u64::from(rounded);
        let short = event.exact_duration.is_some() && event.duration_ns == Some(0);
        self.too_short += u64::from(short && event.phase == b'X' && event.time_ns.is_some());
    }
}

impl EventSink for OneTrace<'_> {
    fn event(&mut self, _: u64, event: &Event<'_>) -> Result<(), String> {
        self.activity(event)
    }

    fn top(&mut self, _: u64, key: &str, value: Raw<'_>) -> Result<(), String> {
        let value = value.parse().map_err(|e| format!("{key:.40}: {e}"))?;
        self.document.insert(key.to_owned(), value);
        Ok(())
    }
}

/// Returns a number that differs for each name; 0 if there is no name.
fn number(name: Option<NameId>) -> u64 {
    name.map_or(0, |name| u64::from(name.0) + 1)
}
