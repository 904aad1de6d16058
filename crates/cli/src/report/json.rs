//! Writes the report as JSON, which `docs/schema.md` describes. A missing value is `null`, or its
//! member is absent (`name?:` in `object!`).

use std::io::{self, Write};

use analysis::{CounterTotal, Counts, Estimate, Key, Row, SampledRow, SilentThread, ThreadTime};
use profile::Profile;
use serde::{Serialize, Serializer};

use super::Report;
use crate::object::{object, unless_empty};
use crate::view::head::ProfileHead;
use crate::view::held_back;
use crate::view::keys::{key_out, thread_ref};
use crate::view::loops::expensive;
use crate::view::losses::losses_out;
use crate::view::metrics::metrics_out;
use crate::view::notes::notes;
use crate::view::overview::{Overview, name_of};
use crate::view::price;
use crate::view::sampled::{self, SampledOut};
use crate::view::tracks;
use crate::view::usage::UsageOut;

pub const REPORT_SCHEMA: &str = "counterpoint.report/1";

/// The rows of the report, in the order of the table. Each row is computed when it is written.
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

/// The sum of a counter, which is written as a whole number or as a real number.
#[derive(Serialize)]
#[serde(untagged)]
enum SumOut {
    Whole(u128),
    Difference(i64),
    Real(f64),
}

fn silent(profile: &Profile, of: &SilentThread) -> impl Serialize {
    object! {
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

fn document(report: &Report<'_>) -> impl Serialize {
    let overview = &report.overview;
    let (profile, summary) = (overview.profile, overview.summary);
    let Counts { processes, threads, devices } = summary.places(profile);
    let is_whole = held_back::is_whole(overview);
    let total = summary.total.map(|sum| sum.value * profile.timeline.ns_per_tick());
    object! {
        schema: REPORT_SCHEMA,
        profile: ProfileHead::new(&profile.manifest, profile),
        by: name_of(overview.by),
        sort: report.sort,
        filter: overview.filter,
        // `kind`, `device`, `stream` and `skip_ms` are present only if the option of the same name
        // restricts the report.
        kind?: overview.places[0],
        device?: overview.places[1],
        stream?: overview.places[2],
        skip_ms?: Some(overview.skip_ms).filter(|ms| *ms > 0.0),
        probe_subtracted: !overview.raw,
        metrics: metrics_out(overview.metrics),
        total: object! {
            processes,
            threads,
            devices?: Some(devices).filter(|devices| *devices > 0),
            calls: summary.calls,
            dispatches: summary.dispatches,
            // `duration_ns` and `self_ns` are equal. They are null if the time in calls is not
            // known, because calls were only counted.
            duration_ns: total,
            self_ns: total,
            // `between_ns` is the part of the threads' wall times outside of calls, and `self_ns`
            // is the part in calls.
            between_ns: summary.between(profile),
            overlapping_calls: summary.overlapping,
            spans?: Some(summary.apart.spans).filter(|n| *n > 0),
            bookkeeping_calls?: Some(summary.apart.bookkeeping).filter(|n| *n > 0),
        },
        // `around` and `dominant` are about all calls, so only a report by op that leaves out no
        // calls has them.
        around?: summary.around(profile).filter(|_| is_whole).map(|of| object! {
            ..key: key_out(profile, of.key),
            total_ns: of.total_ns,
            threads: of.threads,
            share: of.share,
        }),
        dominant?: summary.dominant(profile).filter(|_| is_whole).map(|of| object! {
            ..key: key_out(profile, Key::Op(of.op)),
            share: of.share,
        }),
        // Present only if the profile was recorded with `run --budget`.
        sampled?: sampled::json(overview),
        rows: RowsOut { overview, order: &report.table.order },
        processes: (0..profile.processes.len()).map(|i| process(overview, i)).collect::<Vec<_>>(),
        threads: summary.threads.iter().map(|t| thread(overview, t)).collect::<Vec<_>>(),
        silent_threads?: unless_empty(summary.silent.iter().map(|t| silent(profile, t)).collect()),
        tracks: tracks::json(overview),
        loops?: expensive::json(report.loops),
        probe: price::json_of_all(overview),
        losses: losses_out(&summary.losses),
        notes: notes(overview),
    }
}

fn row<'a>(overview: &'a Overview<'_>, row: &'a Row) -> impl Serialize {
    let profile = overview.profile;
    let ns = |ticks: f64| ticks * profile.timeline.ns_per_tick();
    let in_ns = |ticks: Estimate| ticks.times(profile.timeline.ns_per_tick());
    let counters = profile.manifest.counters.iter().zip(&row.counters);
    // With `run --passes`, each row by op or by rank is a mean over the passes (repeated runs of
    // the program).
    let repeated = analysis::are_means(profile, overview.by);
    let of_pass = row.in_pass(analysis::passes(profile, overview.by));
    let passes = row.passes.iter().filter(|_| repeated).map(|pass| {
        object! {
            calls: pass.calls,
            dispatches: row.dispatches.map(|_| pass.dispatches),
            total_ns: ns(pass.total_ticks),
        }
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
    // `range_known` is false if too few calls were timed to know the error of the total.
    let range_known = sampled.is_none_or(|s| s.total.is_some_and(|total| total.interval.is_some()));
    let self_known = sampled.is_none_or(|sampled| sampled.self_known) && total_known;
    let quantiles_known = sampled.is_none_or(|sampled| sampled.effective.is_some());
    let timed = |ns: f64| Some(ns).filter(|_| row.is_timed());
    let share = overview.summary.share(profile, row);
    object! {
        ..key: key_out(profile, row.key),
        calls: of_pass.calls.filter(|_| calls_known),
        // Calls of the row inside of other calls of the row; `calls` does not include them.
        inner_calls?: Some(of_pass.inner).filter(|n| *n > 0),
        dispatches: of_pass.dispatches,
        // Durations are null if a run with `--budget` timed too few calls to know them. `self_ns`
        // is also null for rows that belong to no thread.
        total_ns: total_known.then_some(total.value),
        self_ns: own.map(|own| own.value).filter(|_| self_known),
        spread?: row.spread().filter(|_| repeated),
        passes?: unless_empty(passes.collect()),
        share: share.filter(|_| of_thread),
        mean_ns: timed(mean.value).filter(|_| total_known),
        min_ns: timed(least.value),
        max_ns: timed(most.value),
        p50_ns: timed(p50.value).filter(|_| quantiles_known),
        p99_ns: timed(p99.value).filter(|_| quantiles_known),
        empty_share: row.empty_share,
        // Absent if nothing was subtracted, or if the error of the total is not known.
        intervals?: (row.taken.is_some() && range_known).then_some(object! {
            total_ns: total,
            self_ns?: own,
            mean_ns: mean,
            min_ns: least,
            max_ns: most,
            p50_ns: p50,
            p99_ns: p99,
        }),
        sampled?: sampled.map(|sampled| SampledOut::new(profile, sampled)),
        counters: counters
            .enumerate()
            .map(|(i, (info, counter))| {
                object! {
                    name: &info.name,
                    total: counter.map(|c| sum_out(c.value, c)),
                    per_call: counter.map(|c| c.mean().value),
                    calls: counter.map_or(0, |c| c.calls),
                    // The part of the recorded sum that the recorder itself caused, as measured
                    // with empty calls.
                    empty_share: counter.and_then(|c| c.empty_share()),
                    // Absent if nothing was subtracted, or if the error of the sum is not known.
                    intervals?: counter
                        .filter(|c| subtracted && has_range(sampled, i, c))
                        .map(|c| object! { total: c.value, per_call: c.mean() }),
                    // `estimated_calls` and `covered` are present only if counters took turns on
                    // the hardware during the run.
                    estimated_calls?: multiplex.then(|| counter.map_or(0, |c| c.estimated)),
                    covered?: counter.and_then(|c| c.covered()),
                    // Present only if the profile was recorded with `run --budget`.
                    sampled?: sampled::counter(row, i),
                }
            })
            .collect::<Vec<_>>(),
        metrics: overview
            .metrics
            .iter()
            .enumerate()
            .map(|(i, metric)| (metric, row.metrics.get(i)))
            .map(|(metric, of_row)| {
                object! {
                    name: &metric.name,
                    unit: &metric.unit.name,
                    value: of_row.value,
                    // `low` and `high` are absent if the metric has no value, or if the values of
                    // empty calls are not known.
                    low?: of_row.interval.map(|[low, _]| low),
                    high?: of_row.interval.map(|[_, high]| high),
                    calls: of_row.calls,
                    reason?: of_row.hidden.map(|hidden| price::reason(hidden, overview)),
                }
            })
            .collect::<Vec<_>>(),
        threads: row.threads.iter().map(|(p, t)| thread_ref(profile, *p, *t)).collect::<Vec<_>>(),
        cpus: row.cpus.iter().copied().collect::<Vec<_>>(),
    }
}

/// Whether the error of a counter's sum is known: the values of empty calls were measured, and with
/// `--budget` enough calls were timed.
fn has_range(sampled: Option<&SampledRow>, counter: usize, total: &CounterTotal) -> bool {
    let of_sample = sampled.and_then(|row| *row.counters.get(counter)?);
    total.brackets.is_some() && of_sample.is_none_or(|sample| sample.total.interval.is_some())
}

/// Returns a counter's sum. The result is a whole number if nothing was subtracted, or if the
/// difference is known exactly, whole and below 2^53.
fn sum_out(value: Estimate, counter: CounterTotal) -> SumOut {
    /// Every whole number up to this value can be represented exactly as a double.
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

fn process(overview: &Overview<'_>, index: usize) -> impl Serialize {
    let process = &overview.profile.processes[index];
    let info = process.info.as_ref();
    object! {
        pid: process.id.pid,
        start_time: process.id.start_time,
        generation: process.id.generation,
        // In a merged profile, `member` is the index of the profile that recorded the process;
        // otherwise `member` is absent.
        rank?: process.job.map(|job| job.rank),
        world_size?: process.job.and_then(|job| job.size),
        member?: Some(process.member).filter(|_| !overview.profile.members.is_empty()),
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

fn thread(overview: &Overview<'_>, time: &ThreadTime) -> impl Serialize {
    object! {
        ..thread: thread_ref(overview.profile, time.process, time.thread),
        name: &overview.profile.processes[time.process].threads[time.thread].name,
        calls: time.calls,
        wall_ns: time.wall_ns,
        // The next three members are null if the thread's time in calls is not known.
        dispatch_ns: time.dispatch_known.then_some(time.dispatch_ns),
        no_dispatch_ns: time.dispatch_known.then(|| time.no_dispatch_ns()),
        recorder_ns: time.dispatch_known.then_some(time.recorder_ns),
        cpu_ns: time.cpu_ns,
        off_cpu_ns: time.off_cpu.map(|off| off.ns),
        off_cpu_of_ns: time.off_cpu.map(|off| off.of_ns),
        off_cpu_assumed: time.off_cpu.map(|off| off.assumed),
        off_cpu_in_calls_ns: time.off_cpu_in_calls_ns,
        usage: time.usage.map(|used| UsageOut::new(overview, &used)),
    }
}
