//! The report as one JSON document, which `docs/schema.md` describes. Missing values are `null`.

use std::io::{self, Write};

use analysis::{CounterTotal, Counts, Estimate, Row, SampledRow, SilentThread, ThreadTime};
use profile::Profile;
use serde::{Serialize, Serializer};

use super::Report;
use crate::view::head::ProfileHead;
use crate::view::keys::{KeyOut, ThreadRef, key_out, thread_ref};
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
    rows: RowsOut<'a>,
    processes: Vec<ProcessOut<'a>>,
    threads: Vec<ThreadOut<'a>>,
    /// Absent if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    silent_threads: Vec<SilentOut<'a>>,
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
    #[serde(skip_serializing_if = "Option::is_none")]
    devices: Option<usize>,
    calls: u64,
    dispatches: Option<u64>,
    /// This and `self_ns` are null only if calls were counted and not timed.
    duration_ns: Option<f64>,
    self_ns: Option<f64>,
    /// What `self_ns` leaves of the threads' wall times.
    between_ns: Option<f64>,
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
    /// Calls inside of other calls of the row, which `calls` leaves out.
    #[serde(skip_serializing_if = "Option::is_none")]
    inner_calls: Option<u64>,
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
    /// Absent if nothing was subtracted.
    #[serde(skip_serializing_if = "Option::is_none")]
    intervals: Option<IntervalsOut>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sampled: Option<SampledOut>,
    counters: Vec<CounterOut<'a>>,
    metrics: Vec<ValueOut<'a>>,
    threads: Vec<ThreadRef>,
    cpus: Vec<u32>,
}

/// All rows, each of which is made when it is written.
struct RowsOut<'a> {
    overview: &'a Overview<'a>,
    order: &'a [usize],
}

impl Serialize for RowsOut<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let rows = &self.overview.summary.rows;
        serializer.collect_seq(self.order.iter().map(|i| row(self.overview, &rows[*i])))
    }
}

/// The intervals of a row's times, in ns.
#[derive(Serialize)]
struct IntervalsOut {
    total_ns: Estimate,
    #[serde(skip_serializing_if = "Option::is_none")]
    self_ns: Option<Estimate>,
    mean_ns: Estimate,
    min_ns: Estimate,
    max_ns: Estimate,
    p50_ns: Estimate,
    p99_ns: Estimate,
}

/// A sum: a whole number if it is one.
#[derive(Serialize)]
#[serde(untagged)]
enum SumOut {
    Whole(u128),
    Difference(i64),
    Real(f64),
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
    total: Option<SumOut>,
    per_call: Option<f64>,
    calls: u64,
    /// The part of the value that empty calls read.
    empty_share: Option<f64>,
    /// Absent if nothing was subtracted.
    #[serde(skip_serializing_if = "Option::is_none")]
    intervals: Option<CounterIntervals>,
    /// This and the next field are present only if counters took turns in the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    estimated_calls: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    covered: Option<f64>,
    /// Only in a run with a budget.
    #[serde(skip_serializing_if = "Option::is_none")]
    sampled: Option<CounterEstimate>,
}

#[derive(Serialize)]
struct CounterIntervals {
    total: Estimate,
    per_call: Estimate,
}

/// A metric of a row.
#[derive(Serialize)]
struct ValueOut<'a> {
    name: &'a str,
    unit: &'a str,
    value: Option<f64>,
    /// Absent without a value, or if what empty calls read was not calibrated.
    #[serde(skip_serializing_if = "Option::is_none")]
    low: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    high: Option<f64>,
    calls: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

#[derive(Serialize)]
struct ProcessOut<'a> {
    pid: u32,
    start_time: u64,
    generation: u32,
    /// Its place in a distributed job, and the index of the profile that was merged.
    #[serde(skip_serializing_if = "Option::is_none")]
    rank: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    world_size: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    member: Option<usize>,
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
    /// This and the next two fields are null only if the times of some calls are not known.
    dispatch_ns: Option<f64>,
    no_dispatch_ns: Option<f64>,
    recorder_ns: Option<f64>,
    cpu_ns: Option<f64>,
    off_cpu_ns: Option<f64>,
    off_cpu_of_ns: Option<f64>,
    off_cpu_assumed: Option<bool>,
    usage: Option<UsageOut>,
}

/// A thread without calls, or all that had ended before their process: `tid` and `name` are null.
#[derive(Serialize)]
struct SilentOut<'a> {
    process: usize,
    pid: u32,
    tid: Option<u32>,
    name: Option<&'a str>,
    cpu_ns: f64,
}

fn silent<'a>(profile: &Profile, of: &'a SilentThread) -> SilentOut<'a> {
    SilentOut {
        process: of.process,
        pid: profile.processes[of.process].id.pid,
        tid: of.thread.as_ref().map(|(tid, _)| *tid),
        name: of.thread.as_ref().map(|(_, name)| name.as_str()),
        cpu_ns: of.cpu_ns,
    }
}

pub fn print(out: &mut impl Write, report: &Report<'_>) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, &document(report))?;
    writeln!(out)
}

fn document<'a>(report: &'a Report<'_>) -> Document<'a> {
    let overview = &report.overview;
    let (profile, summary) = (overview.profile, overview.summary);
    let Counts { processes, threads, devices } = summary.places(profile);
    let total = summary.total.map(|sum| sum.value * profile.timeline.ns_per_tick());
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
        probe_subtracted: !overview.raw,
        metrics: metrics_out(overview.metrics),
        total: Total {
            processes,
            threads,
            devices: Some(devices).filter(|devices| *devices > 0),
            calls: summary.calls,
            dispatches: summary.dispatches,
            duration_ns: total,
            self_ns: total,
            between_ns: summary.between(profile),
            overlapping_calls: summary.overlapping,
            spans: Some(summary.apart.spans).filter(|n| *n > 0),
            bookkeeping_calls: Some(summary.apart.bookkeeping).filter(|n| *n > 0),
        },
        sampled: sampled::json(overview),
        rows: RowsOut { overview, order: &report.table.order },
        processes: (0..profile.processes.len()).map(|i| process(overview, i)).collect(),
        threads: summary.threads.iter().map(|t| thread(overview, t)).collect(),
        silent_threads: summary.silent.iter().map(|t| silent(profile, t)).collect(),
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
    let in_ns = |ticks: Estimate| ticks.times(profile.timeline.ns_per_tick());
    let counters = profile.manifest.counters.iter().zip(&row.counters);
    // Each pass repeats the calls of every op.
    let repeated = analysis::are_means(profile, overview.by);
    let of_pass = row.in_pass(analysis::passes(profile, overview.by));
    let passes = row.passes.iter().filter(|_| repeated).map(|pass| PassOut {
        calls: pass.calls,
        dispatches: row.dispatches.map(|_| pass.dispatches),
        total_ns: ns(pass.total_ticks),
    });
    let multiplex = profile.manifest.multiplex;
    let of_thread = !row.key.is_apart(profile);
    let (total, own) = (in_ns(of_pass.total), in_ns(of_pass.own));
    let own = Some(own).filter(|_| of_thread);
    let call = |ticks: f64| in_ns(row.call(ticks));
    let (mean, least, most) = (in_ns(row.mean()), call(row.min), call(row.max));
    let (p50, p99) = (call(row.p50), call(row.p99));
    let subtracted = !overview.raw;
    let sampled = row.sampled.as_deref();
    let calls_known = sampled.is_none_or(|sampled| sampled.calls.is_some());
    let total_known = sampled.is_none_or(|sampled| sampled.total.is_some());
    // Too few calls were timed to say how far off the total is.
    let range_known = sampled.is_none_or(|s| s.total.is_some_and(|total| total.interval.is_some()));
    let self_known = sampled.is_none_or(|sampled| sampled.self_known) && total_known;
    let quantiles_known = sampled.is_none_or(|sampled| sampled.effective.is_some());
    let timed = |ns: f64| Some(ns).filter(|_| row.is_timed());
    let share = overview.summary.share(profile, row);
    RowOut {
        key: key_out(profile, row.key),
        calls: of_pass.calls.filter(|_| calls_known),
        inner_calls: Some(of_pass.inner).filter(|n| *n > 0),
        dispatches: of_pass.dispatches,
        total_ns: total_known.then_some(total.value),
        self_ns: own.map(|own| own.value).filter(|_| self_known),
        spread: row.spread().filter(|_| repeated),
        passes: passes.collect(),
        share: share.filter(|_| of_thread),
        mean_ns: timed(mean.value).filter(|_| total_known),
        min_ns: timed(least.value),
        max_ns: timed(most.value),
        p50_ns: timed(p50.value).filter(|_| quantiles_known),
        p99_ns: timed(p99.value).filter(|_| quantiles_known),
        empty_share: row.empty_share,
        intervals: (row.taken.is_some() && range_known).then_some(IntervalsOut {
            total_ns: total,
            self_ns: own,
            mean_ns: mean,
            min_ns: least,
            max_ns: most,
            p50_ns: p50,
            p99_ns: p99,
        }),
        sampled: sampled.map(|sampled| SampledOut::new(profile, sampled)),
        counters: counters
            .enumerate()
            .map(|(i, (info, counter))| CounterOut {
                sampled: sampled::counter(row, i),
                name: &info.name,
                total: counter.map(|c| sum_out(c.value, c)),
                per_call: counter.map(|c| c.mean().value),
                calls: counter.map_or(0, |c| c.calls),
                empty_share: counter.and_then(|c| c.empty_share()),
                intervals: counter
                    .filter(|c| subtracted && has_range(sampled, i, c))
                    .map(|c| CounterIntervals { total: c.value, per_call: c.mean() }),
                estimated_calls: multiplex.then(|| counter.map_or(0, |c| c.estimated)),
                covered: counter.and_then(|c| c.covered()),
            })
            .collect(),
        metrics: overview
            .metrics
            .iter()
            .enumerate()
            .map(|(i, metric)| (metric, row.metrics.get(i)))
            .map(|(metric, of_row)| ValueOut {
                name: &metric.name,
                unit: &metric.unit.name,
                value: of_row.value,
                low: of_row.interval.map(|[low, _]| low),
                high: of_row.interval.map(|[_, high]| high),
                calls: of_row.calls,
                reason: of_row.hidden.map(|hidden| price::reason(hidden, overview)),
            })
            .collect(),
        threads: row.threads.iter().map(|(p, t)| thread_ref(profile, *p, *t)).collect(),
        cpus: row.cpus.iter().copied().collect(),
    }
}

/// Whether it is known how far off a counter's sum is: what empty calls read was calibrated, and enough
/// calls were drawn, if they were.
fn has_range(sampled: Option<&SampledRow>, counter: usize, total: &CounterTotal) -> bool {
    let of_sample = sampled.and_then(|row| *row.counters.get(counter)?);
    total.brackets.is_some() && of_sample.is_none_or(|sample| sample.total.interval.is_some())
}

/// A counter's sum. It is a whole number if nothing was subtracted from it, or if exactly so much was
/// subtracted.
fn sum_out(value: Estimate, counter: CounterTotal) -> SumOut {
    /// Up to here, each whole number is a double.
    const MOST: f64 = (1u64 << 53) as f64;
    let is_whole = value.is_exact() && value.value.fract() == 0.0 && value.value.abs() < MOST;
    if value.value == counter.total as f64 {
        SumOut::Whole(counter.total)
    } else if is_whole {
        SumOut::Difference(value.value as i64)
    } else {
        SumOut::Real(value.value)
    }
}

fn process<'a>(overview: &'a Overview<'_>, index: usize) -> ProcessOut<'a> {
    let process = &overview.profile.processes[index];
    let info = process.info.as_ref();
    ProcessOut {
        pid: process.id.pid,
        start_time: process.id.start_time,
        generation: process.id.generation,
        rank: process.job.map(|job| job.rank),
        world_size: process.job.and_then(|job| job.size),
        member: Some(process.member).filter(|_| !overview.profile.members.is_empty()),
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
        recorder_ns: time.dispatch_known.then_some(time.recorder_ns),
        cpu_ns: time.cpu_ns,
        off_cpu_ns: time.off_cpu.map(|off| off.ns),
        off_cpu_of_ns: time.off_cpu.map(|off| off.of_ns),
        off_cpu_assumed: time.off_cpu.map(|off| off.assumed),
        usage: time.usage.map(|used| UsageOut::new(overview, &used)),
    }
}
