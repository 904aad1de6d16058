//! The report as one JSON document; `docs/schema.md` describes it. Missing is `null`.

use std::io::{self, Write};

use analysis::{EmptyCall, Key, Row, ThreadTime};
use profile::{CounterInfo, Exit, LossCount, Manifest, MetricInfo, Origin, Profile, Role, State};
use serde::Serialize;

use super::{Report, RowKind};
use crate::metrics::{MetricOut, metrics_out};
use crate::view::columns::op_of;
use crate::view::head::duration_ns;
use crate::view::losses::{by_severity, errno_text, notes, severity};
use crate::view::price::{self, ProbeOut, UsageOut};
use crate::view::tracks::{self, TrackOut};

/// The version of the document.
pub const REPORT_SCHEMA: &str = "counterpoint.report/1";

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    profile: ProfileHead<'a>,
    by: &'static str,
    sort: &'a str,
    filter: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    skip_ms: Option<f64>,
    probe_subtracted: bool,
    metrics: Vec<MetricOut<'a>>,
    total: Total,
    rows: Vec<RowOut<'a>>,
    processes: Vec<ProcessOut<'a>>,
    threads: Vec<ThreadOut<'a>>,
    tracks: Vec<TrackOut<'a>>,
    probe: Option<ProbeOut>,
    losses: Vec<LossOut>,
    notes: Vec<String>,
}

/// What the manifest says; also the head of an export.
#[derive(Serialize)]
pub struct ProfileHead<'a> {
    program_version: &'a str,
    origin: Origin,
    state: State,
    created_unix_ns: u64,
    duration_ns: Option<u64>,
    command: &'a [String],
    working_directory: &'a str,
    exit: Option<Exit>,
    host: &'a str,
    kernel: &'a str,
    cpu_model: &'a str,
    logical_cpus: u32,
    environment: Option<&'a str>,
    clock: ClockOut,
    #[serde(skip_serializing_if = "Option::is_none")]
    passes: Option<u32>,
    counters: &'a [CounterInfo],
    metrics: &'a [MetricInfo],
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    multiplex: bool,
    filters: &'a [String],
}

#[derive(Serialize)]
struct ClockOut {
    kind: &'static str,
    ns_per_tick: f64,
    calibrated: bool,
}

#[derive(Serialize)]
struct Total {
    processes: usize,
    threads: usize,
    calls: u64,
    dispatches: Option<u64>,
    duration_ns: f64,
    self_ns: f64,
    overlapping_calls: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    spans: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bookkeeping_calls: Option<u64>,
}

#[derive(Serialize)]
struct RowOut<'a> {
    #[serde(flatten)]
    key: KeyOut<'a>,
    calls: Option<u64>,
    dispatches: Option<u64>,
    total_ns: f64,
    self_ns: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    spread: Option<f64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    passes: Vec<PassOut>,
    share: Option<f64>,
    mean_ns: f64,
    min_ns: f64,
    max_ns: f64,
    p50_ns: f64,
    p99_ns: f64,
    empty_share: Option<f64>,
    counters: Vec<CounterOut<'a>>,
    metrics: Vec<ValueOut<'a>>,
    threads: Vec<ThreadRef>,
    cpus: Vec<u32>,
}

/// What a row stands for.
#[derive(Serialize)]
#[serde(untagged)]
pub enum KeyOut<'a> {
    Op {
        op: &'a str,
        op_id: u32,
        library: &'a str,
        source: Option<String>,
        tag: Option<&'a str>,
        /// What a virtual machine calls, or one of its parts; not of a dispatch.
        #[serde(flatten)]
        of_machine: Option<OfMachine<'a>>,
    },
    Unknown {
        op: String,
        op_id: Option<u32>,
        process: usize,
        export: u32,
    },
    Thread(ThreadRef),
    Cpu {
        cpu: u32,
        node: u32,
    },
    Process {
        process: usize,
        pid: u32,
    },
}

/// What is known of ops of virtual machines only.
#[derive(Serialize)]
pub struct OfMachine<'a> {
    role: &'static str,
    arguments: &'a str,
    device: &'a str,
    asynchronous: bool,
}

/// A thread of the profile.
#[derive(Serialize)]
pub struct ThreadRef {
    process: usize,
    pid: u32,
    thread: u32,
    tid: u32,
}

/// What one pass has of an op.
#[derive(Serialize)]
struct PassOut {
    calls: u64,
    dispatches: Option<u64>,
    total_ns: f64,
}

#[derive(Serialize)]
struct CounterOut<'a> {
    name: &'a str,
    total: Option<u128>,
    per_call: Option<f64>,
    calls: u64,
    /// The part of it that empty calls read.
    empty_share: Option<f64>,
    /// Only of a run whose counters take turns, as the next one.
    #[serde(skip_serializing_if = "Option::is_none")]
    estimated_calls: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    covered: Option<f64>,
}

/// A metric of a row.
#[derive(Serialize)]
struct ValueOut<'a> {
    name: &'a str,
    unit: &'a str,
    value: Option<f64>,
    calls: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

#[derive(Serialize)]
struct ProcessOut<'a> {
    pid: u32,
    start_time: u64,
    generation: u32,
    parent: Option<u32>,
    program: Option<&'a str>,
    arguments: Option<&'a [String]>,
    alive: bool,
    threads: usize,
    usage: Option<UsageOut>,
    probe: Option<ProbeOut>,
    losses: Vec<LossOut>,
}

#[derive(Serialize)]
struct ThreadOut<'a> {
    #[serde(flatten)]
    thread: ThreadRef,
    name: &'a str,
    calls: u64,
    wall_ns: f64,
    dispatch_ns: f64,
    no_dispatch_ns: f64,
    off_cpu_ns: Option<f64>,
    off_cpu_of_ns: Option<f64>,
    off_cpu_assumed: Option<bool>,
    usage: Option<UsageOut>,
}

/// What a call that does nothing is recorded as.
#[derive(Serialize)]
pub struct EmptyOut {
    duration_ns: f64,
    duration_range_ns: Option<[f64; 2]>,
    counters: Vec<Option<u64>>,
    counter_ranges: Vec<Option<[u64; 2]>>,
}

/// A loss, explained.
#[derive(Serialize)]
pub struct LossOut {
    name: String,
    severity: &'static str,
    count: u64,
    errno: Option<i32>,
    errno_text: Option<String>,
    help: &'static str,
}

pub fn print(out: &mut impl Write, report: &Report<'_>) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, &document(report))?;
    writeln!(out)
}

fn document<'a>(report: &'a Report<'_>) -> Document<'a> {
    let (profile, summary) = (report.profile, report.summary);
    let mut processes: Vec<usize> = summary.threads.iter().map(|t| t.process).collect();
    processes.dedup();
    Document {
        schema: REPORT_SCHEMA,
        profile: ProfileHead::new(&profile.manifest, profile),
        by: report.by.name(),
        sort: report.sort,
        filter: report.filter,
        skip_ms: Some(report.skip_ms).filter(|ms| *ms > 0.0),
        probe_subtracted: report.subtract_probe,
        metrics: metrics_out(report.metrics),
        total: Total {
            processes: processes.len(),
            threads: summary.threads.len(),
            calls: summary.calls,
            dispatches: summary.dispatches,
            duration_ns: summary.total_ticks as f64 * profile.timeline.ns_per_tick(),
            self_ns: summary.self_ticks as f64 * profile.timeline.ns_per_tick(),
            overlapping_calls: summary.overlapping,
            spans: Some(summary.apart.spans).filter(|n| *n > 0),
            bookkeeping_calls: Some(summary.apart.bookkeeping).filter(|n| *n > 0),
        },
        rows: report.table.order.iter().map(|i| row(report, &summary.rows[*i])).collect(),
        processes: (0..profile.processes.len()).map(|i| process(report, i)).collect(),
        threads: summary.threads.iter().map(|t| thread(report, t)).collect(),
        tracks: tracks::json(report),
        probe: price::json_of_all(report),
        losses: losses_out(&summary.losses),
        notes: notes(report),
    }
}

impl<'a> ProfileHead<'a> {
    pub fn new(manifest: &'a Manifest, profile: &Profile) -> Self {
        let kind: record::ClockKind = manifest.clock.into();
        Self {
            program_version: &manifest.program_version,
            origin: manifest.origin,
            state: manifest.state,
            created_unix_ns: manifest.created_unix_ns,
            duration_ns: duration_ns(manifest),
            command: &manifest.command,
            working_directory: &manifest.working_directory,
            exit: manifest.exit,
            host: &manifest.host,
            kernel: &manifest.kernel,
            cpu_model: &manifest.cpu_model,
            logical_cpus: manifest.logical_cpus,
            environment: manifest.environment.as_deref(),
            clock: ClockOut {
                kind: kind.name(),
                ns_per_tick: profile.timeline.ns_per_tick(),
                calibrated: profile.timeline.calibrated,
            },
            passes: Some(manifest.passes).filter(|n| *n > 0),
            counters: &manifest.counters,
            metrics: &manifest.metrics,
            multiplex: manifest.multiplex,
            filters: &manifest.filters,
        }
    }
}

/// Names a thread.
pub fn thread_ref(profile: &Profile, process: usize, thread: usize) -> ThreadRef {
    let p = &profile.processes[process];
    let t = &p.threads[thread];
    ThreadRef { process, pid: p.id.pid, thread: t.uid, tid: t.tid }
}

fn row<'a>(report: &'a Report<'_>, row: &'a Row) -> RowOut<'a> {
    let profile = report.profile;
    let ns = |ticks: f64| ticks * profile.timeline.ns_per_tick();
    let all = report.summary.self_ticks;
    let counters = profile.manifest.counters.iter().zip(&row.counters);
    // Of ops, each pass is a repetition.
    let repeated = report.by == RowKind::Op && profile.manifest.passes > 0;
    let each = if repeated { u64::from(profile.passes().max(1)) } else { 1 };
    let agree = !repeated || row.passes_agree();
    let passes = row.passes.iter().filter(|_| repeated).map(|pass| PassOut {
        calls: pass.calls,
        dispatches: row.dispatches.map(|_| pass.dispatches),
        total_ns: ns(pass.total_ticks as f64),
    });
    let multiplex = profile.manifest.multiplex;
    let of_thread = !crate::view::columns::is_apart(profile, row.key);
    RowOut {
        key: key_out(profile, row.key),
        calls: agree.then_some(row.calls / each),
        dispatches: row.dispatches.filter(|_| agree).map(|n| n / each),
        total_ns: ns(row.total_ticks as f64 / each as f64),
        self_ns: of_thread.then(|| ns(row.self_ticks as f64 / each as f64)),
        spread: crate::view::columns::spread(row).filter(|_| repeated),
        passes: passes.collect(),
        share: (all > 0 && of_thread).then(|| row.self_ticks as f64 / all as f64),
        mean_ns: ns(row.mean_ticks()),
        min_ns: ns(row.min_ticks as f64),
        max_ns: ns(row.max_ticks as f64),
        p50_ns: ns(row.p50_ticks),
        p99_ns: ns(row.p99_ticks),
        empty_share: row.empty_share,
        counters: counters
            .map(|(info, counter)| CounterOut {
                name: &info.name,
                total: counter.map(|c| c.total),
                per_call: counter.map(|c| c.mean()),
                calls: counter.map_or(0, |c| c.calls),
                empty_share: counter.and_then(|c| c.empty_share()),
                estimated_calls: multiplex.then(|| counter.map_or(0, |c| c.estimated)),
                covered: counter.and_then(|c| c.covered()),
            })
            .collect(),
        metrics: report
            .metrics
            .iter()
            .zip(&row.metrics)
            .map(|(metric, of_row)| ValueOut {
                name: &metric.name,
                unit: &metric.unit.name,
                value: of_row.value,
                calls: of_row.calls,
                reason: of_row.hidden.map(|hidden| price::reason(hidden, report)),
            })
            .collect(),
        threads: row.threads.iter().map(|(p, t)| thread_ref(profile, *p, *t)).collect(),
        cpus: row.cpus.iter().copied().collect(),
    }
}

/// Names a row.
pub fn key_out(profile: &Profile, key: Key) -> KeyOut<'_> {
    match key {
        Key::Op(op_id) => {
            let op = op_of(profile, key);
            KeyOut::Op {
                op: op.map_or("", |op| &op.name),
                op_id,
                library: op.map_or("", |op| &op.library),
                source: op.and_then(profile::Op::source),
                tag: op.map(|op| op.tag.as_str()).filter(|tag| !tag.is_empty()),
                of_machine: op.filter(|op| op.role != Role::Workgroup).map(|op| OfMachine {
                    role: op.role.name(),
                    arguments: &op.arguments,
                    device: &op.device,
                    asynchronous: op.asynchronous,
                }),
            }
        }
        Key::Unknown(process, export) => {
            KeyOut::Unknown { op: profile::batch::unknown_op(export), op_id: None, process, export }
        }
        Key::Thread(process, thread) => KeyOut::Thread(thread_ref(profile, process, thread)),
        Key::Cpu(cpu, node) => KeyOut::Cpu { cpu, node },
        Key::Process(process) => {
            KeyOut::Process { process, pid: profile.processes[process].id.pid }
        }
    }
}

fn process<'a>(report: &'a Report<'_>, index: usize) -> ProcessOut<'a> {
    let process = &report.profile.processes[index];
    let info = process.info.as_ref();
    ProcessOut {
        pid: process.id.pid,
        start_time: process.id.start_time,
        generation: process.id.generation,
        parent: info.map(|info| info.parent),
        program: info.map(|info| info.program.as_str()),
        arguments: info.map(|info| info.arguments.as_slice()),
        alive: process.alive,
        threads: process.threads.len(),
        usage: UsageOut::of_process(report, index),
        probe: price::json_of(report, index),
        losses: losses_out(&report.summary.process_losses[index]),
    }
}

fn thread<'a>(report: &'a Report<'_>, time: &ThreadTime) -> ThreadOut<'a> {
    ThreadOut {
        thread: thread_ref(report.profile, time.process, time.thread),
        name: &report.profile.processes[time.process].threads[time.thread].name,
        calls: time.calls,
        wall_ns: time.wall_ns,
        dispatch_ns: time.dispatch_ns,
        no_dispatch_ns: time.no_dispatch_ns(),
        off_cpu_ns: time.off_cpu.map(|off| off.ns),
        off_cpu_of_ns: time.off_cpu.map(|off| off.of_ns),
        off_cpu_assumed: time.off_cpu.map(|off| off.assumed),
        usage: time.usage.map(|used| UsageOut::new(report, &used)),
    }
}

/// The losses, worst first.
pub fn losses_out(losses: &[LossCount]) -> Vec<LossOut> {
    by_severity(losses).into_iter().map(loss).collect()
}

/// What an empty call of a process is recorded as.
pub fn empty_out(profile: &Profile, empty: &EmptyCall) -> EmptyOut {
    EmptyOut {
        duration_ns: profile.timeline.duration_ns(empty.ticks),
        duration_range_ns: empty.ticks_range.map(|r| r.map(|t| profile.timeline.duration_ns(t))),
        counters: empty.values.clone(),
        counter_ranges: empty.ranges.clone(),
    }
}

fn loss(loss: &LossCount) -> LossOut {
    LossOut {
        name: loss.name.clone(),
        severity: severity(loss).name(),
        count: loss.count,
        errno: loss.errno,
        errno_text: errno_text(loss),
        help: loss.help(),
    }
}
