//! The report as one JSON document, which `docs/schema.md` describes. Missing values are `null`.

use std::io::{self, Write};

use analysis::{By, Row, ThreadTime};
use serde::Serialize;

use super::Report;
use crate::view::columns;
use crate::view::head::ProfileHead;
use crate::view::keys::{KeyOut, ThreadRef, key_out, thread_ref};
use crate::view::labels;
use crate::view::loops::expensive::{self, LoopsOut};
use crate::view::losses::{LossOut, losses_out};
use crate::view::metrics::{MetricOut, metrics_out};
use crate::view::notes::notes;
use crate::view::overview::{Overview, name_of};
use crate::view::price::{self, ProbeOut};
use crate::view::sampled::{self, CounterEstimate, RunOut, SampledOut};
use crate::view::tracks::{self, TrackOut};
use crate::view::usage::UsageOut;

/// The version of the document.
pub const REPORT_SCHEMA: &str = "counterpoint.report/1";

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    profile: ProfileHead<'a>,
    by: &'static str,
    sort: &'a str,
    filter: Option<&'a str>,
    /// This and the next two are absent if they were not asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    device: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stream: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    skip_ms: Option<f64>,
    probe_subtracted: bool,
    metrics: Vec<MetricOut<'a>>,
    total: Total,
    /// Only in a run with a budget.
    #[serde(skip_serializing_if = "Option::is_none")]
    sampled: Option<RunOut>,
    rows: Vec<RowOut<'a>>,
    processes: Vec<ProcessOut<'a>>,
    threads: Vec<ThreadOut<'a>>,
    tracks: Vec<TrackOut<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    loops: Option<LoopsOut>,
    probe: Option<ProbeOut>,
    losses: Vec<LossOut>,
    notes: Vec<String>,
}

#[derive(Serialize)]
struct Total {
    processes: usize,
    threads: usize,
    calls: u64,
    dispatches: Option<u64>,
    /// This and `self_ns` are null only if calls were counted and not timed.
    duration_ns: Option<f64>,
    self_ns: Option<f64>,
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
    /// Durations are null only if the calls were counted and not timed.
    total_ns: Option<f64>,
    self_ns: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    spread: Option<f64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    passes: Vec<PassOut>,
    share: Option<f64>,
    mean_ns: Option<f64>,
    min_ns: Option<f64>,
    max_ns: Option<f64>,
    p50_ns: Option<f64>,
    p99_ns: Option<f64>,
    empty_share: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sampled: Option<SampledOut>,
    counters: Vec<CounterOut<'a>>,
    metrics: Vec<ValueOut<'a>>,
    threads: Vec<ThreadRef>,
    cpus: Vec<u32>,
}

/// The values of an op in one pass.
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
    /// The part of the value that empty calls read.
    empty_share: Option<f64>,
    /// This and the next field are present only if counters took turns in the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    estimated_calls: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    covered: Option<f64>,
    /// Only in a run with a budget.
    #[serde(skip_serializing_if = "Option::is_none")]
    sampled: Option<CounterEstimate>,
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
    /// This and the next field are null only if the times of some calls are not known.
    dispatch_ns: Option<f64>,
    no_dispatch_ns: Option<f64>,
    off_cpu_ns: Option<f64>,
    off_cpu_of_ns: Option<f64>,
    off_cpu_assumed: Option<bool>,
    usage: Option<UsageOut>,
}

pub fn print(out: &mut impl Write, report: &Report<'_>) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, &document(report))?;
    writeln!(out)
}

fn document<'a>(report: &'a Report<'_>) -> Document<'a> {
    let overview = &report.overview;
    let (profile, summary) = (overview.profile, overview.summary);
    let (processes, threads) = summary.places();
    let ns_per_tick = profile.timeline.ns_per_tick();
    Document {
        schema: REPORT_SCHEMA,
        profile: ProfileHead::new(&profile.manifest, profile),
        by: name_of(overview.by),
        sort: report.sort,
        filter: overview.filter,
        kind: overview.places[0],
        device: overview.places[1],
        stream: overview.places[2],
        skip_ms: Some(overview.skip_ms).filter(|ms| *ms > 0.0),
        probe_subtracted: overview.subtract_probe,
        metrics: metrics_out(overview.metrics),
        total: Total {
            processes,
            threads,
            calls: summary.calls,
            dispatches: summary.dispatches,
            duration_ns: summary.duration_ticks().map(|ticks| ticks * ns_per_tick),
            self_ns: summary.own_ticks().map(|ticks| ticks * ns_per_tick),
            overlapping_calls: summary.overlapping,
            spans: Some(summary.apart.spans).filter(|n| *n > 0),
            bookkeeping_calls: Some(summary.apart.bookkeeping).filter(|n| *n > 0),
        },
        sampled: sampled::json(overview),
        rows: report.table.order.iter().map(|i| row(overview, &summary.rows[*i])).collect(),
        processes: (0..profile.processes.len()).map(|i| process(overview, i)).collect(),
        threads: summary.threads.iter().map(|t| thread(overview, t)).collect(),
        tracks: tracks::json(overview),
        loops: expensive::json(report.loops),
        probe: price::json_of_all(overview),
        losses: losses_out(&summary.losses),
        notes: notes(overview),
    }
}

fn row<'a>(overview: &'a Overview<'_>, row: &'a Row) -> RowOut<'a> {
    let profile = overview.profile;
    let ns = |ticks: f64| ticks * profile.timeline.ns_per_tick();
    let all = overview.summary.self_ticks;
    let counters = profile.manifest.counters.iter().zip(&row.counters);
    // Each pass repeats the calls of every op.
    let repeated = overview.by == By::Op && profile.manifest.passes > 0;
    let each = if repeated { u64::from(profile.passes().max(1)) } else { 1 };
    let agree = !repeated || row.passes_agree();
    let passes = row.passes.iter().filter(|_| repeated).map(|pass| PassOut {
        calls: pass.calls,
        dispatches: row.dispatches.map(|_| pass.dispatches),
        total_ns: ns(pass.total_ticks as f64),
    });
    let multiplex = profile.manifest.multiplex;
    let of_thread = !labels::is_apart(profile, row.key);
    let sampled = row.sampled.as_deref();
    let calls_known = sampled.is_none_or(|sampled| sampled.calls.is_some());
    let total_known = sampled.is_none_or(|sampled| sampled.total.is_some());
    let self_known = sampled.is_none_or(|sampled| sampled.self_known) && total_known;
    let quantiles_known = sampled.is_none_or(|sampled| sampled.effective.is_some());
    let timed = |ns: f64| Some(ns).filter(|_| row.is_timed());
    let share = match sampled {
        Some(sampled) => sampled.share.map(|share| share.value),
        None => (all > 0).then(|| row.self_ticks as f64 / all as f64),
    };
    RowOut {
        key: key_out(profile, row.key),
        calls: (agree && calls_known).then_some(row.calls / each),
        dispatches: row.dispatches.filter(|_| agree).map(|n| n / each),
        total_ns: total_known.then(|| ns(row.total() / each as f64)),
        self_ns: (of_thread && self_known).then(|| ns(row.self_ticks as f64 / each as f64)),
        spread: columns::spread(row).filter(|_| repeated),
        passes: passes.collect(),
        share: share.filter(|_| of_thread),
        mean_ns: timed(ns(row.mean_ticks())).filter(|_| total_known),
        min_ns: timed(ns(row.min_ticks as f64)),
        max_ns: timed(ns(row.max_ticks as f64)),
        p50_ns: timed(ns(row.p50_ticks)).filter(|_| quantiles_known),
        p99_ns: timed(ns(row.p99_ticks)).filter(|_| quantiles_known),
        empty_share: row.empty_share,
        sampled: sampled.map(|sampled| SampledOut::new(profile, sampled)),
        counters: counters
            .enumerate()
            .map(|(i, (info, counter))| CounterOut {
                sampled: sampled::counter(row, i),
                name: &info.name,
                total: counter.map(|c| c.total),
                per_call: counter.map(|c| c.mean()),
                calls: counter.map_or(0, |c| c.calls),
                empty_share: counter.and_then(|c| c.empty_share()),
                estimated_calls: multiplex.then(|| counter.map_or(0, |c| c.estimated)),
                covered: counter.and_then(|c| c.covered()),
            })
            .collect(),
        metrics: overview
            .metrics
            .iter()
            .zip(&row.metrics)
            .map(|(metric, of_row)| ValueOut {
                name: &metric.name,
                unit: &metric.unit.name,
                value: of_row.value,
                calls: of_row.calls,
                reason: of_row.hidden.map(|hidden| price::reason(hidden, overview)),
            })
            .collect(),
        threads: row.threads.iter().map(|(p, t)| thread_ref(profile, *p, *t)).collect(),
        cpus: row.cpus.iter().copied().collect(),
    }
}

fn process<'a>(overview: &'a Overview<'_>, index: usize) -> ProcessOut<'a> {
    let process = &overview.profile.processes[index];
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
        usage: UsageOut::of_process(overview, index),
        probe: price::json_of(overview, index),
        losses: losses_out(&overview.summary.process_losses[index]),
    }
}

fn thread<'a>(overview: &'a Overview<'_>, time: &ThreadTime) -> ThreadOut<'a> {
    ThreadOut {
        thread: thread_ref(overview.profile, time.process, time.thread),
        name: &overview.profile.processes[time.process].threads[time.thread].name,
        calls: time.calls,
        wall_ns: time.wall_ns,
        dispatch_ns: time.dispatch_known.then_some(time.dispatch_ns),
        no_dispatch_ns: time.dispatch_known.then(|| time.no_dispatch_ns()),
        off_cpu_ns: time.off_cpu.map(|off| off.ns),
        off_cpu_of_ns: time.off_cpu.map(|off| off.of_ns),
        off_cpu_assumed: time.off_cpu.map(|off| off.assumed),
        usage: time.usage.map(|used| UsageOut::new(overview, &used)),
    }
}
