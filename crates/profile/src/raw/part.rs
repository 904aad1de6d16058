//! Writes the parts of a profile page by page.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use record::Usage;
use record::counts::COUNTS_NAME;
use record::meta::{Frame, META_NAME, PAGES_NAME, PARTS_NAME, part_name};
use record::page::{Call, Drawn, OwnedPage, PageStart};
use serde::{Deserialize, Serialize};

use super::ProcessFacts;
use crate::beneath::Dir;
use crate::columns::{Columns, ThreadClock};
use crate::error::{Error, Result};
use crate::groups::{Groups, PageGroups};
use crate::ledger::{LEDGER_SCHEMA, Ledger, LossCount};
use crate::manifest::{CounterInfo, MANIFEST_SCHEMA, Manifest, Moment, State};
use crate::passes::pass_dir;
use crate::profile::Profile;

/// The content of a page besides its calls: `counterpoint_page` of an exported trace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PageFacts {
    /// Index of the process in the profile.
    pub process: usize,
    /// The thread's number in its process.
    pub thread: u32,
    /// The kernel's thread id.
    pub tid: u32,
    /// The thread's name as bytes, because a program may set any. Only present if it is not valid
    /// text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name_bytes: Option<[u8; 16]>,
    /// The thread's name as text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Sequence number among the thread's pages.
    pub sequence: u32,
    /// Bit *i* is set if the page contains counter *i*.
    pub counters: u32,
    /// Base values of its clocks: ticks, CPU time, `CLOCK_MONOTONIC`.
    pub base: [u64; 3],
    /// Ticks that the thread had spent flushing pages, and the number of flushes.
    pub flush: (u64, u32),
    /// CPU time that attaching the thread took, in ns.
    #[serde(skip_serializing_if = "is_zero")]
    pub attach_ns: u64,
    /// What the kernel had counted for the thread when the page began and when it ended: ticks, CPU
    /// time in ns, minor and major page faults, voluntary and involuntary context switches.
    #[serde(skip_serializing_if = "is_unknown")]
    pub usage: [Option<[u64; 6]>; 2],
    /// Number of calls in progress, and the export of the outermost one.
    pub open: (u32, u32),
    /// Whether this is the thread's last page.
    pub last: bool,
    /// Number of calls in the page.
    pub calls: usize,
    /// Readings of the thread's clocks: ticks, CPU time, `CLOCK_MONOTONIC`, and the number of calls
    /// before the reading.
    pub clocks: Vec<(u64, u64, u64, usize)>,
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

fn is_unknown(usage: &[Option<[u64; 6]>; 2]) -> bool {
    *usage == [None; 2]
}

fn words(usage: Usage) -> [u64; 6] {
    let Usage { ticks, cpu_ns, minor_faults, major_faults, .. } = usage;
    let switches = [usage.voluntary_switches, usage.involuntary_switches];
    [ticks, cpu_ns, minor_faults, major_faults, switches[0], switches[1]]
}

fn usage(words: [u64; 6]) -> Usage {
    let [ticks, cpu_ns, minor_faults, major_faults, voluntary_switches, involuntary_switches] =
        words;
    Usage { ticks, cpu_ns, minor_faults, major_faults, voluntary_switches, involuntary_switches }
}

impl PageFacts {
    /// Returns the facts of a decoded page; `None` if no page was decoded.
    pub fn of(columns: &Columns, alive: bool) -> Option<Self> {
        let header = columns.header()?;
        let start = &header.start;
        let text = start.thread_name.split(|b| *b == 0).next().unwrap_or_default();
        let name = std::str::from_utf8(text).ok().map(str::to_owned);
        let clock = |c: &ThreadClock| (c.ticks, c.cpu_ns, c.monotonic_ns, c.calls_before);
        Some(Self {
            process: columns.process,
            thread: start.thread_uid,
            tid: start.tid,
            name_bytes: name.is_none().then_some(start.thread_name),
            name,
            sequence: start.sequence,
            counters: start.counters,
            base: [start.base_ticks, start.base_cpu_ns, start.base_monotonic_ns],
            flush: (start.flush_ticks, start.flushes),
            attach_ns: start.attach_ns,
            usage: [start.usage, header.usage_end].map(|usage| usage.map(words)),
            // Open calls of a live process are not cut short.
            open: if alive { (0, 0) } else { (header.open_calls, header.open_export) },
            last: header.last,
            calls: columns.len(),
            clocks: columns.clocks.iter().map(clock).collect(),
        })
    }

    fn thread_name(&self) -> [u8; 16] {
        self.name_bytes.unwrap_or_else(|| {
            let mut bytes = [0; 16];
            let name = self.name.as_deref().unwrap_or_default().as_bytes();
            let length = name.len().min(15);
            bytes[..length].copy_from_slice(&name[..length]);
            bytes
        })
    }
}

/// Calls in the order in which they were recorded, with their readings: for each call, one value
/// per counter and one reading per group of the run.
#[derive(Clone, Debug, Default)]
pub struct RawCalls {
    /// The calls.
    pub calls: Vec<Call>,
    /// How each call was drawn; used in a run with a budget.
    pub drawn: Vec<Drawn>,
    /// One value per call and counter.
    pub values: Vec<u64>,
    /// One reading per call and group: time enabled and time running, in ns; `None` if the group
    /// was not read.
    pub groups: Vec<Option<(u64, u64)>>,
    /// Other values: index of the call, key, bits; sorted by call.
    pub extras: Vec<(usize, u32, u64)>,
}

impl RawCalls {
    /// Removes the first `n` calls, in a run with this many counters and groups.
    pub fn drop_first(&mut self, n: usize, counters: usize, groups: usize) {
        self.calls.drain(..n.min(self.calls.len()));
        self.drawn.drain(..n.min(self.drawn.len()));
        self.values.drain(..(n * counters).min(self.values.len()));
        self.groups.drain(..(n * groups).min(self.groups.len()));
        self.extras.retain_mut(|(of, ..)| {
            let kept = *of >= n;
            *of = of.saturating_sub(n);
            kept
        });
    }
}

/// Writes the parts of a profile.
#[derive(Debug)]
pub struct Parts {
    dir: PathBuf,
    manifest: Manifest,
    groups: Groups,
    processes: Vec<ProcessFacts>,
    parts: Vec<PathBuf>,
    /// The groups of pages, by their set of counters.
    layouts: HashMap<u32, Option<PageGroups>>,
    /// Snapshots besides those of the manifest.
    moments: Vec<Moment>,
}

impl Parts {
    /// Starts the profile that `manifest` describes in `dir`, an existing directory. `moments` are
    /// its snapshots besides those of the manifest.
    ///
    /// # Errors
    /// Fails if `dir` is not writable or if two processes are equal.
    pub fn create(
        dir: &Path,
        mut manifest: Manifest,
        processes: Vec<ProcessFacts>,
        moments: Vec<Moment>,
    ) -> Result<Self> {
        manifest.schema = MANIFEST_SCHEMA.to_owned();
        // The content of the pool is in the pages.
        manifest.pool = None;
        // This is another profile than the one that was exported.
        manifest.id = String::new();
        let begun = Manifest { state: State::Recording, ..manifest.clone() };
        begun.write(dir)?;
        let mut parts = Vec::new();
        for process in &processes {
            let place = place(dir, &manifest, process.pass).join(PARTS_NAME);
            let name = part_name(process.pid, process.start_time, process.generation);
            fs::create_dir_all(&place).map_err(Error::on("create", &place))?;
            let part = place.join(name);
            fs::create_dir(&part).map_err(Error::on("create", &part))?;
            parts.push(part);
        }
        Ok(Self {
            dir: dir.to_owned(),
            groups: Groups::new(&manifest.counters),
            manifest,
            processes,
            parts,
            layouts: HashMap::new(),
            moments,
        })
    }

    /// Returns the groups of the counters.
    pub fn groups(&self) -> &Groups {
        &self.groups
    }

    /// Returns the number of counters in earlier passes.
    fn before(&self, pass: u32) -> usize {
        let counters = self.manifest.counters.iter();
        counters.filter(|c| c.pass.is_some_and(|p| p <= pass)).count()
    }

    /// Appends a page. Returns the number of calls that did not fit, which is 0 if they came from
    /// one page. Clock readings after those calls are lost, too.
    ///
    /// # Errors
    /// Fails if the disk is full.
    pub fn page(&mut self, page: &PageFacts, calls: &RawCalls) -> Result<usize> {
        let Some(process) = self.processes.get(page.process) else { return Ok(calls.calls.len()) };
        let groups = &self.groups;
        let layout = self
            .layouts
            .entry(page.counters)
            .or_insert_with(|| groups.of_page(page.counters))
            .as_ref();
        let Some(layout) = layout else { return Ok(calls.calls.len()) };
        let before = self
            .manifest
            .counters
            .iter()
            .filter(|c| c.pass.is_some_and(|p| p <= process.pass))
            .count();
        let [base_ticks, base_cpu_ns, base_monotonic_ns] = page.base;
        let mut written = OwnedPage::new(PageStart {
            pid: process.pid,
            generation: process.generation,
            start_time: process.start_time,
            thread_uid: page.thread,
            tid: page.tid,
            thread_name: page.thread_name(),
            sequence: page.sequence,
            counters: page.counters.checked_shr(before as u32).unwrap_or(0),
            base_ticks,
            base_cpu_ns,
            base_monotonic_ns,
            flush_ticks: page.flush.0,
            flushes: page.flush.1,
            attach_ns: page.attach_ns,
            usage: page.usage[0].map(usage),
        });
        let per_call = (self.manifest.counters.len(), self.groups.all().len());
        let mut clocks = page.clocks.iter().peekable();
        let mut extras = calls.extras.iter().peekable();
        let mut fields = Vec::new();
        let mut pairs = Vec::new();
        let mut kept = 0;
        for (i, call) in calls.calls.iter().enumerate() {
            while let Some(clock) = clocks.next_if(|clock| clock.3 <= i && written.has_room()) {
                written.thread_clock(clock.0, clock.1, clock.2);
            }
            if !written.has_room() {
                break;
            }
            let values = &calls.values[i * per_call.0..][..per_call.0];
            let readings = &calls.groups[i * per_call.1..][..per_call.1];
            let read =
                || layout.groups.iter().map(|(group, counters)| (readings[*group], counters));
            let scaled = read().any(|(times, _)| times.is_some_and(|(e, r)| e != r));
            fields.clear();
            for (times, counters) in read() {
                match times {
                    None => fields.push(0),
                    Some((enabled, running)) => {
                        fields.push(enabled.saturating_add(1));
                        fields.extend(scaled.then_some(running));
                        fields.extend(counters.iter().map(|counter| values[*counter]));
                    }
                }
            }
            match self.manifest.budget {
                None => written.call(call, scaled, fields.iter().copied()),
                Some(_) => {
                    let drawn = calls.drawn.get(i).copied().unwrap_or_default();
                    written.drawn_call(call, scaled, &drawn, fields.iter().copied());
                }
            }
            kept += 1;
            pairs.clear();
            while let Some((_, key, bits)) = extras.next_if(|(of, ..)| *of <= i) {
                pairs.push((*key, *bits));
            }
            if !pairs.is_empty() && written.has_room_for_values() {
                written.values(&pairs);
            }
        }
        while let Some(clock) = clocks.next_if(|_| kept == calls.calls.len() && written.has_room())
        {
            written.thread_clock(clock.0, clock.1, clock.2);
        }
        written.set_open(page.open.0, page.open.1);
        if let Some(words) = page.usage[1] {
            written.set_end(usage(words));
        }
        // The file is opened each time, because a profile may have more processes than a process
        // may have open files.
        let path = self.parts[page.process].join(PAGES_NAME);
        let file = File::options().append(true).create(true).open(&path);
        let done = file.and_then(|mut file| file.write_all(written.seal(page.last)));
        done.map_err(Error::on("write", &path))?;
        Ok(calls.calls.len() - kept)
    }

    /// Writes metadata and manifests. `notes` are added to those of the manifest.
    ///
    /// # Errors
    /// Fails if the disk is full.
    pub fn finish(mut self, notes: Vec<String>) -> Result<()> {
        let clock = self.manifest.clock.into();
        let passes = self.manifest.passes > 0;
        // No reader cares which process or pass recorded a moment.
        let mut moments = std::mem::take(&mut self.moments);
        for pass in 0..self.manifest.passes {
            let mut one = Manifest {
                passes: 0,
                counters: of_pass(&self.manifest.counters, pass + 1),
                snapshots: std::mem::take(&mut moments),
                ..self.manifest.clone()
            };
            one.switch_cost =
                self.processes.iter().find(|p| p.pass == pass).and_then(|p| p.switch_cost);
            one.metrics.clear();
            one.notes.clear();
            let dir = pass_dir(&self.dir, pass + 1);
            // A pass that never ran has no directory.
            if dir.is_dir() {
                one.write(&dir)?;
            }
        }
        for (process, part) in self.processes.iter().zip(&self.parts) {
            let counts = process.counts();
            if !counts.is_empty() {
                let path = part.join(COUNTS_NAME);
                fs::write(&path, counts).map_err(Error::on("write", &path))?;
            }
            let before = if passes { self.before(process.pass) } else { 0 };
            let frames = process.frames(clock, before, &moments);
            moments.clear();
            if frames.is_empty() {
                continue;
            }
            let bytes: Vec<u8> = frames.iter().flat_map(Frame::to_bytes).collect();
            let path = part.join(META_NAME);
            fs::write(&path, bytes).map_err(Error::on("write", &path))?;
        }
        self.manifest.snapshots.append(&mut moments);
        self.manifest.notes.extend(notes);
        self.manifest.write(&self.dir)
    }
}

/// Returns the directory with the processes of a pass.
fn place(dir: &Path, manifest: &Manifest, pass: u32) -> PathBuf {
    match manifest.passes {
        0 => dir.to_owned(),
        _ => pass_dir(dir, pass + 1),
    }
}

/// Returns the counters of a pass as they were recorded; the inverse of
/// [`crate::passes::join_counters`].
fn of_pass(all: &[CounterInfo], number: u32) -> Vec<CounterInfo> {
    let own: Vec<&CounterInfo> = all.iter().filter(|c| c.pass == Some(number)).collect();
    let first = own.first().map_or(0, |c| c.group);
    let behind = format!("@{number}");
    let one = |c: &&CounterInfo| CounterInfo {
        name: c.name.strip_suffix(&behind).unwrap_or(&c.name).to_owned(),
        group: c.group.saturating_sub(first),
        pass: None,
        ..(*c).clone()
    };
    own.iter().map(one).collect()
}

/// Writes the losses of the profile in `dir` that a reader does not find by itself. `run` are all
/// losses of the run as a whole, and `processes` are those of each process in the profile's order.
///
/// # Errors
/// Fails if the profile does not open or is not writable.
pub fn settle(dir: &Path, run: &[LossCount], processes: &[Vec<LossCount>]) -> Result<()> {
    let profile = Profile::open(dir)?;
    let (_, found) = profile.visit(1, || (), |(), _| ());
    let ledger = |losses: Vec<LossCount>| Ledger {
        schema: LEDGER_SCHEMA.to_owned(),
        losses,
        ..Ledger::default()
    };
    for ((process, found), wanted) in profile.processes.iter().zip(&found).zip(processes) {
        let known = crate::merge_losses(process.losses.iter().chain(found));
        let more = missing(wanted, &known);
        if more.is_empty() {
            continue;
        }
        let id = process.id;
        let part = place(dir, &profile.manifest, process.pass).join(PARTS_NAME).join(id.name());
        let calls = process.threads.iter().flat_map(|t| t.headers()).map(|h| u64::from(h.calls));
        let one = Ledger {
            pid: id.pid,
            start_time: id.start_time,
            generation: id.generation,
            threads: process.threads.len() as u32,
            calls: calls.sum(),
            ..ledger(more)
        };
        one.write(&Dir::open(&part)?)?;
    }
    let more = missing(run, &profile.losses);
    if !more.is_empty() {
        ledger(more).write(&Dir::open(&place(dir, &profile.manifest, 0))?)?;
    }
    Ok(())
}

/// Writes losses of the run as a whole, which no reader finds by itself, to a profile without
/// passes and without such losses.
///
/// # Errors
/// Fails if the profile is not writable.
pub fn write_losses(dir: &Dir, losses: &[LossCount]) -> Result<()> {
    let losses: Vec<LossCount> = losses.iter().filter(|loss| loss.count > 0).cloned().collect();
    if losses.is_empty() {
        return Ok(());
    }
    Ledger { schema: LEDGER_SCHEMA.to_owned(), losses, ..Ledger::default() }.write(dir)
}

/// Returns by how much the losses in `wanted` exceed those in `known`.
fn missing(wanted: &[LossCount], known: &[LossCount]) -> Vec<LossCount> {
    let less = |one: &LossCount| {
        let known = known.iter().find(|k| k.name == one.name).map_or(0, |k| k.count);
        LossCount { count: one.count.saturating_sub(known), ..one.clone() }
    };
    wanted.iter().map(less).filter(|one| one.count > 0).collect()
}
