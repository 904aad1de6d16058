//! Writes a profile's calls as a timeline.
//!
//! ```text
//!  process 4711            worker-0   ▐call▌▐call▌ ▐call▌      one slice per workgroup call
//!                          worker-1    ▐call▌▐call▌
//!                          counters per call as args, and as one time series per thread
//!  dispatches of 4711      stream 0   ▐── dispatch ──▌         first start to last end
//!                          stream 1       ▐─ dispatch ─▌       where they overlap
//! ```
//!
//! The kind of a call depends on its host (the runtime that made the call). For example, workgroup
//! calls of IREE have the kind `workgroup`, which is `cpu_op` in Kineto's vocabulary (`kinds.rs`).
//! Dispatches have the kind `kernel` and the arguments `stream` and `correlation`. The first call
//! of a dispatch has the same `correlation`, and an arrow leads from this call to the dispatch.
//! [`profile::dispatch`] describes how dispatches are found.
//!
//! The calls of the threads of a process are merged in the order of their starts, with one page (a
//! block of calls in the file) of each thread in memory. The sink runs in another thread
//! (`relay.rs`).

mod ops;
mod slice;

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::io;

use model::Severity;
use model::activity::{FlowKind, Generic, Registry, Value, Vocabulary};
use profile::batch::unknown_op;
use profile::columns::{KEY_PLUGIN_ID, node_of};
use profile::dispatch::{Assembler, Dispatch, Workgroup};
use profile::groups::Group;
use profile::launches::Launches;
use profile::{Clock, Columns, LossCount, PageDecoder, PageKey, Process, Profile, Role};
use profile::{merge_losses, profile::Thread};

use self::ops::{Machines, has_machines, op_of};
use self::slice::What;
use crate::export::kinds::Categories;
use crate::export::relay::{Gone, Relay, SliceHead, relay};
use crate::hash::FastMap;
use crate::timeline::{Arg, ArgValue, Flow, FlowEnd, Id, KeysId, Row, TextId, TimelineSink};

/// The row of a process's dispatches has this number plus the index of the process. The number is
/// above the process ids of Linux (2²²).
pub const DEVICE_ROWS: i64 = 5_000_000;

/// Kineto's name of the arrows from ops to the activities that they launched on devices.
pub(crate) const LAUNCH: &str = "ac2g";
/// The number of the first arrow from an op to an activity, above the numbers of other arrows.
/// Numbers must be below 2⁵³, because programs that read JSON may store numbers as doubles.
pub(crate) const FIRST_LAUNCH: u64 = 1 << 52;

/// The options for showing calls.
#[derive(Clone, Copy, Debug)]
pub struct CallsOptions {
    /// The vocabulary (set of names) of the kinds.
    pub vocabulary: Vocabulary,
    /// Whether counters are also shown as time series. This needs `arguments`.
    pub counter_tracks: bool,
    /// Whether slices have arguments and arrows. Without them, reading calls takes half the time.
    pub arguments: bool,
}

/// Passes the calls of the profile to `sink`, except those that plugins reported. Returns the
/// losses that were found inside of pages, for each process. Arrows begin at the calls in
/// `launches`, and [`export_recorded`](super::activities::export_recorded) adds their ends.
pub fn export_calls(
    profile: &Profile,
    options: &CallsOptions,
    launches: &Launches,
    sink: &mut (impl TimelineSink + Send),
) -> io::Result<Vec<Vec<LossCount>>> {
    let mut registry = Registry::new();
    let categories = Categories::new(&mut registry, options.vocabulary, profile);
    let name = |label| registry.name(label, options.vocabulary);
    let units: Vec<_> = profile.groups.all().iter().map(|group| units(profile, group)).collect();
    let flow = FlowKind::HostToDevice;
    let launch = FlowKind::from_name(LAUNCH);
    // Slices refer to the names in `known`, which must exist until the thread that writes them has
    // ended.
    let mut last_arrow = 0;
    let of_rows = threads_of_rows(profile);
    let each = profile.processes.iter().enumerate();
    let known: Vec<(Vec<Labels>, Machines)> = each
        .map(|(index, process)| {
            let alone = |tid: u32| of_rows.get(&(process.id.pid, tid)) == Some(&1);
            let labels = process.threads.iter().map(|t| Labels::new(profile, t, alone(t.tid)));
            (labels.collect(), Machines::new(profile, index, &mut last_arrow))
        })
        .collect();
    relay(sink, |relay| {
        let mut losses = Vec::new();
        let mut last_dispatch = 0;
        let each = profile.processes.iter().zip(&known).enumerate();
        for (index, (process, (labels, machines))) in each {
            // Events of plugins are exported as activities.
            if process.threads.is_empty() || process.id.is_of_plugins() {
                losses.push(Vec::new());
                continue;
            }
            let mut export = ProcessExport {
                profile,
                process,
                index,
                counter_tracks: options.counter_tracks
                    && options.arguments
                    && profile.groups.counters() > 0,
                arguments: options.arguments,
                categories: &categories,
                dispatch_kind: name(Generic::Kernel.into()),
                counter_kind: name(Generic::Counter.into()),
                flow: &flow,
                launch: &launch,
                launches,
                ticks: matches!(profile.manifest.clock, Clock::Tsc),
                names: Vec::new(),
                by_export: FastMap::default(),
                since_ns: since_ns(profile, process),
                lanes_named: 0,
                labels,
                units: &units,
                has_machines: has_machines(profile, index),
                machines,
                relay: &mut *relay,
            };
            losses.push(export.run(&mut last_dispatch)?);
        }
        Ok(losses)
    })
}

/// Returns the approximate time of the first recorded call of a process; the time of tick 0 if no
/// call was recorded. The names of its rows are valid from this time on.
fn since_ns(profile: &Profile, process: &Process) -> i64 {
    let headers = process.threads.iter().flat_map(Thread::headers);
    let first = headers.map(|header| header.start.base_ticks).min().unwrap_or(0);
    profile.timeline.realtime_ns(first)
}

fn units<'a>(profile: &'a Profile, group: &Group) -> Vec<(&'a str, &'a str)> {
    let counters = &profile.manifest.counters[group.counters.clone()];
    counters.iter().map(|counter| (counter.name.as_str(), counter.unit.as_str())).collect()
}

/// Returns the name that viewers show for the process.
fn program(process: &Process) -> String {
    let rank = process.job.map(|job| format!("rank {}: ", job.rank)).unwrap_or_default();
    let name = process.info.as_ref().map(|info| info.program.as_str()).unwrap_or_default();
    match name.rsplit('/').next().unwrap_or_default() {
        "" => format!("{rank}process {}", process.id.pid),
        name => format!("{rank}{name}"),
    }
}

/// Returns how many threads each row has, by process id and thread id. Several threads can share a
/// row, because programs replace themselves by `exec`, and thread ids are used again.
fn threads_of_rows(profile: &Profile) -> FastMap<(u32, u32), usize> {
    let mut threads = FastMap::default();
    for process in &profile.processes {
        for thread in &process.threads {
            *threads.entry((process.id.pid, thread.tid)).or_insert(0) += 1;
        }
    }
    threads
}

struct Labels {
    /// Whether no other thread shares the row of the thread. Only then can the indices of names be
    /// used as [`TextId`]s, because a [`TextId`] must have one meaning in the whole row.
    alone: bool,
    thread: String,
    /// For each group of counters, the name of its time series.
    groups: Vec<String>,
}

impl Labels {
    fn new(profile: &Profile, thread: &Thread, alone: bool) -> Self {
        let name = format!("thread {} ({})", thread.tid, thread.name);
        let groups = profile.groups.all();
        let group = |number: u16| match groups.len() {
            1 => format!("{} {} counters", thread.name, thread.tid),
            _ => format!("{} {} counters of group {number}", thread.name, thread.tid),
        };
        Self { alone, groups: groups.iter().map(|g| group(g.number)).collect(), thread: name }
    }
}

/// A position in the calls of one thread. The calls of each page are sorted by start.
struct Cursor<'a> {
    decoder: PageDecoder<'a>,
    thread: usize,
    next_page: usize,
    pages: usize,
    order: Vec<u32>,
    at: usize,
}

impl Cursor<'_> {
    fn columns(&self) -> &Columns {
        self.decoder.columns()
    }

    /// Returns the next call, as an index in the columns.
    fn call(&self) -> Option<usize> {
        self.order.get(self.at).map(|i| *i as usize)
    }

    /// Decodes pages until there is a call or the thread has no more pages.
    fn fill(&mut self, process: usize, losses: &mut Vec<LossCount>) {
        while self.at >= self.order.len() && self.next_page < self.pages {
            let key = PageKey { process, thread: self.thread, page: self.next_page };
            self.next_page += 1;
            let columns = self.decoder.decode(key);
            let found = columns.losses();
            if !found.is_empty() {
                *losses = merge_losses(losses.iter().chain(&found));
            }
            self.order.clear();
            self.order.extend(0..columns.len() as u32);
            // Calls are recorded when they end. They are often sorted by start, but not if a call
            // called others.
            if !columns.start_ticks.is_sorted() {
                // Of calls that begin at the same time, the outermost comes first. A thread records
                // it after the calls inside of it.
                self.order.sort_by_key(|i| {
                    let at = *i as usize;
                    (columns.start_ticks[at], Reverse(columns.duration(at)), Reverse(at))
                });
            }
            self.at = 0;
        }
    }
}

struct ProcessExport<'a, 'r> {
    profile: &'a Profile,
    process: &'a Process,
    index: usize,
    counter_tracks: bool,
    arguments: bool,
    categories: &'a Categories<'a>,
    dispatch_kind: &'a str,
    counter_kind: &'a str,
    flow: &'a FlowKind,
    /// The kind of the arrows to activities that plugins recorded.
    launch: &'a FlowKind,
    launches: &'a Launches,
    /// Whether ticks are not nanoseconds. Then calls also get their ticks as an argument.
    ticks: bool,
    /// The names and categories of calls. For each export (number of an exported function),
    /// `by_export` has the index in this list.
    names: Vec<(Cow<'a, str>, &'a str)>,
    by_export: FastMap<u32, usize>,
    since_ns: i64,
    lanes_named: usize,
    labels: &'a [Labels],
    /// Name and unit of each counter, by group.
    units: &'a [Vec<(&'a str, &'a str)>],
    has_machines: bool,
    machines: &'a Machines,
    relay: &'r mut Relay<'a>,
}

impl<'a> ProcessExport<'a, '_> {
    fn pid(&self) -> Id<'static> {
        Id::Number(self.process.id.pid.into())
    }

    fn device(&self) -> Id<'static> {
        Id::Number(DEVICE_ROWS + self.index as i64)
    }

    fn tid(&self, thread: usize) -> i64 {
        self.process.threads.get(thread).map_or(0, |t| t.tid.into())
    }

    fn row(&self, thread: usize) -> Row<'static> {
        Row { process: self.pid(), thread: Id::Number(self.tid(thread)) }
    }

    fn run(&mut self, last: &mut u64) -> Result<Vec<LossCount>, Gone> {
        self.name_rows();
        let mut losses = Vec::new();
        let threads = self.process.threads.iter().enumerate();
        let mut cursors: Vec<Cursor<'a>> = threads
            .map(|(thread, t)| Cursor {
                decoder: PageDecoder::new(self.profile),
                thread,
                next_page: 0,
                pages: t.headers().len(),
                order: Vec::new(),
                at: 0,
            })
            .collect();
        let mut heap = BinaryHeap::new();
        for cursor in &mut cursors {
            cursor.fill(self.index, &mut losses);
            let begin = cursor.call().map(|i| cursor.columns().start_ticks[i]);
            heap.extend(begin.map(|begin| Reverse((begin, cursor.thread))));
        }
        let lost = self.process.losses.iter().any(|l| l.severity() == Severity::Missing);
        let mut dispatches = Assembler::new(lost, *last);
        let mut values = vec![None; self.profile.groups.counters()];
        while let Some(mut first) = heap.peek_mut() {
            let Reverse((_, thread)) = *first;
            let cursor = &mut cursors[thread];
            if let Some(i) = cursor.call() {
                self.call(cursor.columns(), i, &mut values, &mut dispatches)?;
                cursor.at += 1;
                cursor.fill(self.index, &mut losses);
            }
            match cursor.call() {
                Some(i) => *first = Reverse((cursor.columns().start_ticks[i], thread)),
                None => drop(PeekMut::pop(first)),
            }
        }
        *last = dispatches.last();
        for dispatch in dispatches.finish() {
            self.dispatch(&dispatch)?;
        }
        Ok(losses)
    }

    fn name_rows(&mut self) {
        let (program, at_ns) = (program(self.process), self.since_ns);
        let sort_index = 2 * self.index as i64;
        let (id, device) = (self.pid(), self.device());
        self.relay.process(id, program.clone(), self.label(), sort_index, at_ns);
        let dispatches = self.process.libraries.iter().any(|l| !l.exports.is_empty());
        if (dispatches || !self.has_machines) && !self.profile.is_sampled() {
            let rank =
                self.process.job.map(|job| format!("rank {}: ", job.rank)).unwrap_or_default();
            let program = program.strip_prefix(&rank).unwrap_or(&program);
            let name = format!("{rank}dispatches of {program} {}", self.process.id.pid);
            self.relay.process(device, name, "dispatches".into(), sort_index + 1, at_ns);
        }
        for (i, labels) in self.labels.iter().enumerate() {
            // Thread ids usually follow the order in which the workers were started, so they also
            // give the order of rows.
            let sort_index = self.process.threads[i].tid.into();
            self.relay.thread(self.row(i), labels.thread.clone(), sort_index, at_ns);
        }
    }

    /// Returns the text next to the name of the process. If only some calls were timed, the text
    /// says so, because a thread may then have worked where its row shows nothing.
    fn label(&self) -> Cow<'static, str> {
        if !self.profile.is_sampled() {
            return "CPU".into();
        }
        let counted = self.profile.counted().iter().filter(|c| c.process == self.index);
        let (calls, timed) = counted.fold((0u64, 0u64), |(calls, timed), counted| {
            (calls.saturating_add(counted.calls), timed.saturating_add(counted.timed))
        });
        let text = "CPU; a sample: slices are the timed calls";
        let others = match self.profile.estimates_calls() {
            true => "of the others, some were only counted, and some are estimated",
            false => "the others were only counted",
        };
        let about = if self.profile.estimates_calls() { "~" } else { "" };
        format!("{text}, {timed} of {about}{calls}; {others}").into()
    }

    fn name(&mut self, export: u32) -> usize {
        *self.by_export.entry(export).or_insert_with(|| {
            let op = self.profile.ops.of(self.index, export);
            let op = op.and_then(|op| self.profile.ops.get(op));
            let name = op.map_or_else(|| unknown_op(export).into(), |op| op.name.as_str().into());
            let host = op.map_or(0, |op| op.host);
            self.names.push((name, self.categories.of(host, Role::Workgroup)));
            self.names.len() - 1
        })
    }

    fn call(
        &mut self,
        columns: &Columns,
        i: usize,
        values: &mut [Option<u64>],
        dispatches: &mut Assembler,
    ) -> Result<(), Gone> {
        let export = columns.export[i];
        if self.has_machines
            && let Some(op) = op_of(self.profile, self.index, export)
            && op.role != Role::Workgroup
        {
            return self.machine_call(columns, i, op, values);
        }
        let name = self.name(export);
        let times = self.times(columns, i);
        if self.arguments {
            self.read_counters(columns, i, values);
        }
        let at = |axes: &[Vec<u32>; 3]| [axes[0][i], axes[1][i], axes[2][i]];
        let workgroup = Workgroup {
            export,
            id: at(&columns.workgroup),
            count: at(&columns.count),
            start_ns: times.start_ns,
            end_ns: times.end_ns,
            counters: values,
        };
        let known = columns.knows_workgroup(i);
        // In a sample, not all workgroups of a dispatch were recorded, so its duration is not
        // known.
        let whole = known && !columns.sampled;
        let placed = if whole { dispatches.add(&workgroup) } else { None };

        let first = placed.as_ref().filter(|p| p.first);
        let mut id = false;
        if self.arguments {
            self.push_place(columns, i);
            id = self.plugin_id(columns, i);
            let args = self.relay.args();
            if let Some(placed) = &placed {
                args.push(Arg::uint("dispatch", placed.id));
            }
            if let Some(first) = first {
                args.push(Arg::uint("correlation", first.id));
                self.relay.flow(Flow { kind: self.flow, id: first.id, end: FlowEnd::Start });
            }
        }
        // The shape, which identifies the keys of the arguments, has one bit for each optional key.
        // The other keys must be in all calls of a profile or in none.
        let has_node = node_of(columns.location[i]) != 0;
        let whether = [known, has_node, placed.is_some(), first.is_some(), id];
        let shape = whether.iter().fold(0, |bits, bit| bits << 1 | u8::from(*bit));
        let what = What {
            category: self.names[name].1,
            name: self.names[name].0.clone(),
            shape: Some(KeysId(shape)),
            // An entry of `names` has one name and one category, so its index can be the label of
            // both. Calls of hosts that call ops have no label (`ops.rs`).
            label: self.labels[columns.thread].alone.then_some(TextId(name as u32)),
        };
        self.slice(columns, i, times, values, self.counter_tracks, what)?;
        for dispatch in placed.map(|p| p.over).unwrap_or_default() {
            self.dispatch(&dispatch)?;
        }
        Ok(())
    }

    /// Adds the id that the recorder gave to profiler plugins for a call, and begins the arrows to
    /// the activities that the call launched. Returns whether there is an id.
    fn plugin_id(&mut self, columns: &Columns, i: usize) -> bool {
        let Some(id) = columns.extra(i, KEY_PLUGIN_ID) else { return false };
        self.relay.args().push(Arg::uint("External id", id));
        let whose = (self.process.member, self.process.id);
        if let Some(launcher) = self.launches.launcher(whose, id) {
            let first = FIRST_LAUNCH + launcher.before;
            for id in first..first + u64::from(launcher.launched) {
                self.relay.flow(Flow { kind: self.launch, id, end: FlowEnd::Start });
            }
        }
        true
    }

    fn dispatch(&mut self, dispatch: &Dispatch) -> Result<(), Gone> {
        let name = self.name(dispatch.export);
        let process = self.device();
        let row = |lane: usize| Row { process, thread: Id::Number(lane as i64) };
        while self.lanes_named <= dispatch.lane {
            let lane = self.lanes_named;
            self.relay.thread(row(lane), format!("stream {lane}"), lane as i64, self.since_ns);
            self.lanes_named += 1;
        }
        if self.arguments {
            self.push_dispatch(dispatch);
        }
        self.relay.slice(SliceHead {
            process: DEVICE_ROWS + self.index as i64,
            thread: dispatch.lane as i64,
            category: self.dispatch_kind,
            name: self.names[name].0.clone(),
            start_ns: dispatch.start_ns,
            duration_ns: dispatch.end_ns.abs_diff(dispatch.start_ns),
            shape: None,
            // Only this process uses the row. So the index of the name has one meaning in the row,
            // and can be the label.
            label: Some(TextId(name as u32)),
        })
    }

    /// Adds the arguments of a dispatch, and the end of its arrow.
    fn push_dispatch(&mut self, dispatch: &Dispatch) {
        let args = self.relay.args();
        args.extend([
            Arg::uint("device", self.index as u64),
            Arg::uint("stream", dispatch.lane as u64),
            Arg::uint("correlation", dispatch.id),
            Arg::triple("workgroups", dispatch.count),
        ]);
        if dispatch.seen < dispatch.of() {
            args.push(Arg::uint("workgroups_seen", dispatch.seen));
        }
        if !dispatch.exact {
            args.push(Arg { key: "exact", value: ArgValue::Plain(Value::Bool(false)) });
        }
        self.push_counters(&dispatch.counters);
        self.relay.flow(Flow { kind: self.flow, id: dispatch.id, end: FlowEnd::Finish });
    }
}
