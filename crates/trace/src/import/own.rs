//! Imports a trace that `trace export` wrote as the profile from which it was made.
//!
//! ```text
//!  counterpoint ─────────► manifest, processes, tracks
//!  counterpoint_page ────► one page's beginnings, clocks, number of calls ─┐
//!  slices of processes ──► calls, put back into the order of their page ───┴─► profile::raw::Parts
//!  counterpoint_samples ─► tracks
//!  counterpoint_end ─────► losses that a reader does not find by itself
//! ```
//!
//! Everything else in such a trace (dispatches, arrows, time series, names of rows) was made from
//! these, and the next export makes it again. If somebody has changed the trace, what is absent
//! stays missing: a counter without a value was not read, a call without its workgroup has none,
//! and a note says so.
//!
//! Memory: names, and for each thread the calls of the current page.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use model::Loss;
use profile::beneath::Dir;
use profile::raw::{Parts, ProcessFacts, settle};
use profile::tracks::{Reading, Readings, Sample};
use profile::{Clock, LossCount, Moment, TracksWriter, merge_losses};
use serde_json::Value;

use super::Imported;
use crate::chrome::event::{Event, Raw, Scalar};
use crate::chrome::read::{EventSink, ReadSummary};
use crate::export::loops::LOOP_CATEGORY;
use crate::round_trip::document::{End, Facts, LossOf};
use crate::round_trip::events::{COUNTS_EVENT, PAGE_EVENT, PageArgs, SAMPLES_EVENT, SamplesArgs};
use crate::round_trip::head::OwnHead;

mod call;
mod counters;
mod thread;

use call::CallArgs;
use counters::Counters;
use thread::Thread;

/// Whether this is a row that is a process without a number in Perfetto's format.
fn is_derived(row: &str) -> bool {
    row.starts_with("dispatches of ") || row.starts_with("counters of ")
}

/// Makes the profile: an [`EventSink`].
#[derive(Debug)]
pub struct Restore {
    dir: PathBuf,
    parts: Parts,
    facts: Facts,
    times: Times,
    counters: Counters,
    processes: Vec<Process>,
    by_pid: HashMap<i64, Vec<usize>>,
    /// Rows that show data derived from the calls: dispatches, and sums of tracks.
    derived: HashSet<i64>,
    tracks: Vec<Option<(TracksWriter, HashMap<u32, u32>)>>,
    end: Option<End>,
    whole: bool,
    args: CallArgs,
    changes: Changes,
    calls: u64,
}

/// Converts the trace's times to ticks.
#[derive(Clone, Copy, Debug)]
struct Times {
    base_ns: i64,
    origin: Moment,
    ns_per_tick: f64,
}

impl Times {
    /// The ticks and the nanoseconds on `CLOCK_MONOTONIC` of a time of the trace.
    fn at(&self, ns: i64) -> (u64, u64) {
        let since = self.base_ns.wrapping_add(ns).wrapping_sub(self.origin.realtime_ns as i64);
        (
            self.origin.ticks.wrapping_add_signed(self.length(since)),
            self.origin.monotonic_ns.wrapping_add_signed(since),
        )
    }

    fn length(&self, ns: i64) -> i64 {
        if self.ns_per_tick == 1.0 { ns } else { (ns as f64 / self.ns_per_tick).round() as i64 }
    }
}

#[derive(Debug, Default)]
struct Process {
    /// Workgroups of the dispatches of each export, unless a call says otherwise.
    counts: HashMap<u32, [u32; 3]>,
    /// Numbers of exports by name; `None` if several have this name.
    exports: HashMap<String, Option<u32>>,
    /// The thread that currently has this id.
    tids: HashMap<i64, u32>,
    threads: HashMap<u32, Thread>,
    /// Number of threads that no page named.
    made: u32,
}

/// How the trace differs from what the export wrote.
#[derive(Clone, Copy, Debug, Default)]
struct Changes {
    /// Number of calls that the pages had.
    expected: u64,
    /// Number of events that no export wrote.
    foreign: u64,
    /// Number of slices whose process or time is unknown.
    unplaced: u64,
    /// Number of calls without raw ticks, in a trace that has them.
    without_ticks: u64,
    /// Number of calls whose export is unknown.
    without_export: u64,
    /// Number of calls without CPU and workgroup.
    without_args: u64,
    /// Number of pages whose calls are not those that follow their event.
    mixed_pages: u64,
    /// Number of pages and samples that cannot be read.
    damaged: u64,
}

impl Restore {
    /// Starts the profile in `dir`, which must be an empty directory.
    ///
    /// # Errors
    /// The directory is not writable, or the head contradicts itself.
    pub fn create(dir: &Path, head: OwnHead) -> profile::Result<Self> {
        let OwnHead { facts, base_ns, whole } = head;
        let own = facts.manifest.snapshots.len();
        let more = facts.clock.snapshots.get(own..).unwrap_or_default().to_vec();
        let processes: Vec<ProcessFacts> =
            facts.processes.iter().map(|p| p.process.clone()).collect();
        let parts = Parts::create(dir, facts.manifest.clone(), processes, more)?;
        let mut by_pid: HashMap<i64, Vec<usize>> = HashMap::new();
        for (i, row) in facts.processes.iter().enumerate() {
            by_pid.entry(row.process.pid.into()).or_default().push(i);
        }
        let origin = facts.clock.snapshots.iter().min_by_key(|s| s.ticks);
        let zero = Moment { ticks: 0, monotonic_ns: 0, realtime_ns: 0, uncertainty_ticks: 0 };
        let ns_per_tick = match facts.manifest.clock {
            Clock::Tsc if facts.clock.ns_per_tick > 0.0 => facts.clock.ns_per_tick,
            _ => 1.0,
        };
        let mut tracks = Vec::new();
        for one in &facts.tracks {
            let kind = if one.values { Readings::Values } else { Readings::Counts };
            let mut writer = TracksWriter::create(&Dir::open(dir)?, &one.name, kind)?;
            let mut ids = HashMap::new();
            for series in &one.series {
                ids.extend(series.series().map(|s| (series.id, writer.describe(s))));
            }
            tracks.push(Some((writer, ids)));
        }
        Ok(Self {
            dir: dir.to_owned(),
            counters: Counters::new(&facts.manifest.counters, parts.groups()),
            processes: facts.processes.iter().map(|p| Process::new(&p.process)).collect(),
            times: Times { base_ns, origin: origin.copied().unwrap_or(zero), ns_per_tick },
            derived: facts.processes.iter().map(|p| p.dispatches_pid).collect(),
            parts,
            facts,
            by_pid,
            tracks,
            end: None,
            whole,
            args: CallArgs::default(),
            changes: Changes::default(),
            calls: 0,
        })
    }

    /// Writes the rest.
    ///
    /// # Errors
    /// The disk is full.
    pub fn finish(mut self, summary: &ReadSummary) -> profile::Result<Imported> {
        for process in 0..self.processes.len() {
            let mut threads: Vec<u32> = self.processes[process].threads.keys().copied().collect();
            threads.sort_unstable();
            for thread in threads {
                self.flush(process, thread)?;
            }
        }
        for (writer, _) in self.tracks.into_iter().flatten() {
            writer.finish()?;
        }
        let mut notes = self.changes.notes(self.calls);
        if summary.truncated {
            notes.push(format!("the trace is truncated after byte {}", summary.bytes));
        }
        if summary.mended > 0 {
            let n = summary.mended;
            notes.push(format!(
                "{n} values had bytes that JSON cannot hold; these bytes were replaced"
            ));
        }
        if self.end.is_none() && !self.whole {
            notes.push("the trace has no end, so losses inside its pages are not known".to_owned());
        }
        self.parts.finish(notes)?;
        let of = |row: &LossOf| match (row.process, row.pid) {
            (Some(process), _) => Some(process),
            (None, pid) => self.by_pid.get(&i64::from(pid?))?.first().copied(),
        };
        let mut run: Vec<LossCount> = Vec::new();
        let mut processes: Vec<Vec<LossCount>> = vec![Vec::new(); self.processes.len()];
        for row in self.end.map_or(self.facts.losses, |end| end.losses) {
            match (row.pid, of(&row).and_then(|p| processes.get_mut(p))) {
                (Some(_), Some(process)) => process.push(row.loss),
                _ => run.push(row.loss),
            }
        }
        let damage = [
            (Loss::TraceValueLost, summary.lost),
            (Loss::TraceEventDamaged, summary.damaged),
            (Loss::TraceRestUnread, summary.rest.is_some().into()),
        ];
        run.extend(damage.map(|(loss, count)| LossCount::new(loss, count)));
        settle(&self.dir, &merge_losses(&run), &processes)?;
        Ok(Imported { events: summary.events, calls: self.calls, ..Imported::default() })
    }

    fn page(&mut self, raw: Option<Raw<'_>>) -> Result<(), String> {
        let read = raw.and_then(|raw| raw.parse::<PageArgs>().ok());
        let Some(mut args) = read.filter(|args| args.page.process < self.processes.len()) else {
            self.changes.damaged += 1;
            return Ok(());
        };
        // If a page had counters that the run does not have, neither it nor its calls would be
        // written.
        let of_run = ((1u64 << self.counters.count()) - 1) as u32;
        self.changes.damaged += u64::from(args.page.counters & !of_run != 0);
        args.page.counters &= of_run;
        let (index, uid) = (args.page.process, args.page.thread);
        let expected = &mut self.changes.expected;
        *expected = expected.saturating_add(args.page.calls as u64);
        self.flush(index, uid).map_err(|e| e.to_string())?;
        let process = &mut self.processes[index];
        for [export, x, y, z] in &args.counts {
            process.counts.entry(*export).or_insert([*x, *y, *z]);
        }
        process.tids.insert(args.page.tid.into(), uid);
        let empty = args.page.calls == 0;
        process.threads.entry(uid).or_default().begin(args);
        if empty { self.flush(index, uid).map_err(|e| e.to_string()) } else { Ok(()) }
    }

    fn counts(&mut self, raw: Option<Raw<'_>>) {
        let Some(args) = raw.and_then(|raw| raw.parse::<PageArgs>().ok()) else { return };
        let Some(process) = self.processes.get_mut(args.page.process) else { return };
        for [export, x, y, z] in &args.counts {
            process.counts.entry(*export).or_insert([*x, *y, *z]);
        }
    }

    fn samples(&mut self, raw: Option<Raw<'_>>) -> Result<(), String> {
        let Some(args) = raw.and_then(|raw| raw.parse::<SamplesArgs>().ok()) else {
            self.changes.damaged += 1;
            return Ok(());
        };
        let Some(Some((writer, ids))) = self.tracks.get_mut(args.tracks) else {
            self.changes.damaged += 1;
            return Ok(());
        };
        for value in &args.samples {
            let known = sample(value)
                .and_then(|s| Some(Sample { series: *ids.get(&s.series)?, ..s }))
                .is_some_and(|s| writer.push(s).is_ok());
            self.changes.damaged += u64::from(!known);
        }
        Ok(())
    }

    fn call(&mut self, event: &Event<'_>) -> Result<(), String> {
        if matches!(&event.pid, Some(Scalar::Text(row)) if is_derived(row)) {
            return Ok(());
        }
        // In Perfetto's format, a process without a real id is identified by its name.
        let pid = match &event.pid {
            Some(Scalar::Int(pid)) => Some(*pid),
            Some(Scalar::Text(_)) if self.whole => None,
            _ => {
                self.changes.unplaced += 1;
                return Ok(());
            }
        };
        let Some(time) = event.time_ns else {
            self.changes.unplaced += 1;
            return Ok(());
        };
        let candidates = match pid {
            None => None,
            Some(pid) => {
                let Some(known) = self.by_pid.get(&pid) else {
                    self.changes.foreign += u64::from(!self.derived.contains(&pid));
                    return Ok(());
                };
                Some(known)
            }
        };
        let ticks = matches!(self.facts.manifest.clock, Clock::Tsc);
        self.args.read(event.args, &self.counters, ticks);
        let index = match candidates.map(Vec::as_slice) {
            Some([one]) => *one,
            several => match self.args.process.filter(|p| match several {
                Some(several) => several.contains(p),
                None => *p < self.processes.len(),
            }) {
                Some(process) => process,
                None => {
                    self.changes.unplaced += 1;
                    return Ok(());
                }
            },
        };
        let tid = match &event.tid {
            Some(Scalar::Int(tid)) => *tid,
            _ => -1,
        };
        let (at, monotonic) = self.times.at(time);
        let args = &self.args;
        self.changes.without_ticks += u64::from(ticks && args.start_ticks.is_none());
        self.changes.without_args += u64::from(!args.any);
        let start = args.start_ticks.unwrap_or(at);
        let length = || self.times.length(event.duration_ns.unwrap_or(0).max(0)) as u64;
        let duration = args.duration_ticks.unwrap_or_else(length);
        let process = &mut self.processes[index];
        let by_name = || *process.exports.get(event.name.as_deref()?)?;
        let export = args.export.or_else(by_name);
        self.changes.without_export += u64::from(export.is_none());
        let uid = args.thread.or_else(|| process.tids.get(&tid).copied()).unwrap_or_else(|| {
            process.made += 1;
            let uid = (1 << 31) + process.made;
            process.tids.insert(tid, uid);
            uid
        });
        let thread = process.threads.entry(uid).or_default();
        thread.tid.get_or_insert(u32::try_from(tid).unwrap_or(0));
        thread.push(export.unwrap_or(u32::MAX), (start, duration), monotonic, args);
        self.calls += 1;
        if thread.is_full() { self.flush(index, uid).map_err(|e| e.to_string()) } else { Ok(()) }
    }

    /// Writes the existing calls of a thread as its page.
    fn flush(&mut self, index: usize, uid: u32) -> profile::Result<()> {
        let pass = self.facts.processes[index].process.pass;
        let process = &mut self.processes[index];
        let Some(thread) = process.threads.get_mut(&uid) else { return Ok(()) };
        let mixed =
            thread.flush((index, uid, pass), &process.counts, &self.counters, |page, calls| {
                self.parts.page(page, calls)
            })?;
        self.changes.mixed_pages += u64::from(mixed);
        Ok(())
    }
}

impl Process {
    fn new(facts: &ProcessFacts) -> Self {
        let mut exports: HashMap<String, Option<u32>> = HashMap::new();
        let of_libraries = facts.libraries.iter().flat_map(|l| &l.exports).map(|e| (&e.name, e.id));
        for (name, id) in of_libraries.chain(facts.ops.iter().map(|op| (&op.name, op.id))) {
            exports.entry(name.clone()).and_modify(|known| *known = None).or_insert(Some(id));
        }
        Self { exports, ..Self::default() }
    }
}

impl Changes {
    fn notes(self, calls: u64) -> Vec<String> {
        let mut notes = Vec::new();
        let mut say = |count: u64, what: &str| {
            if count > 0 {
                notes.push(format!("the trace was changed after its export: {count} {what}"));
            }
        };
        say(self.expected.saturating_sub(calls), "of its calls are missing");
        if self.expected > 0 {
            say(calls.saturating_sub(self.expected), "calls were added");
        } else {
            say(calls, "calls have no page, so facts about threads are missing");
        }
        if self.expected == calls {
            say(
                self.mixed_pages,
                "pages have calls of other pages, so the calls' order has changed",
            );
        }
        say(self.foreign, "events do not come from the export and were left out");
        say(self.unplaced, "slices have no time, or no process of the export, and were left out");
        say(self.without_ticks, "calls have no raw ticks, which were computed from their times");
        say(self.without_export, "calls have an unknown function");
        say(self.without_args, "calls have no arguments; CPU 0 stands for an unknown CPU");
        say(self.damaged, "pages or samples cannot be read");
        notes
    }
}

/// Parses an element of [`SamplesArgs::samples`].
fn sample(value: &Value) -> Option<Sample> {
    let fields = value.as_array()?;
    let word = |at: usize| fields.get(at).and_then(Value::as_u64);
    let reading = match fields.len() {
        2 => None,
        3 => {
            let text = || fields[2].as_str()?.parse().ok();
            Some(Reading::Value(fields[2].as_f64().or_else(text)?))
        }
        _ => Some(Reading::Count { raw: word(2)?, enabled_ns: word(3)?, running_ns: word(4)? }),
    };
    let time = fields.get(1)?.as_i64()?;
    Some(Sample { series: u32::try_from(word(0)?).ok()?, time, reading })
}

impl EventSink for Restore {
    fn event(&mut self, _: u64, event: &Event<'_>) -> Result<(), String> {
        match (event.phase, event.name.as_deref()) {
            (b'M', Some(PAGE_EVENT)) => self.page(event.args)?,
            (b'M', Some(COUNTS_EVENT)) => self.counts(event.args),
            (b'M', Some(SAMPLES_EVENT)) => self.samples(event.args)?,
            // Hits of loops are in no page.
            (b'X', _) if event.category.as_deref() == Some(LOOP_CATEGORY) => {}
            (b'X', _) => self.call(event)?,
            // The export made these from the calls and samples.
            (b'M' | b'C' | b's' | b't' | b'f', _) => {}
            _ => self.changes.foreign += 1,
        }
        Ok(())
    }

    fn top(&mut self, _: u64, key: &str, value: Raw<'_>) -> Result<(), String> {
        if key == "counterpoint_end" {
            self.end = value.parse().ok();
        }
        Ok(())
    }
}
