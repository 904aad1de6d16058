//! The statistics as one JSON document with one op per line, which `docs/schema.md` describes.
//! Missing values are `null`.

use std::collections::BTreeMap;
use std::io::{self, Write};

use analysis::Estimated;
use analysis::stats::{Number, OpStats, Pair, Scope, ThreadStats, Variable};
use profile::columns::{cpu_of, node_of};
use serde::Serialize;

use super::View;
use crate::view::head::ProfileHead;
use crate::view::keys::{KeyOut, ThreadRef, key_out, thread_ref};
use crate::view::loops::spread::{self, SpreadOut};
use crate::view::losses::{LossOut, losses_out};
use crate::view::metrics::metrics_out;
use crate::view::price::{EmptyOut, empty_out};
use crate::view::sampled::{EstimatedOut, SampledOut};
use crate::view::variables::{Subtracted, name_and_unit, scale};

/// The version of the document.
const STATS_SCHEMA: &str = "counterpoint.stats/1";

#[derive(Serialize)]
struct Asked<'a> {
    op: Option<&'a str>,
    thread: Option<&'a str>,
    /// Absent by thread.
    #[serde(skip_serializing_if = "Option::is_none")]
    by: Option<&'static str>,
    skip_ms: f64,
    buckets: usize,
    tables: bool,
    probe_subtracted: bool,
}

#[derive(Serialize)]
struct OpOut<'a> {
    #[serde(flatten)]
    key: KeyOut<'a>,
    /// Null only in a run with a budget, if calls were chosen by thread or time, or not timed.
    total_ns: Option<f64>,
    all: ScopeOut<'a>,
    threads: Vec<ThreadOut<'a>>,
    /// Only by rank.
    #[serde(skip_serializing_if = "Option::is_none")]
    ranks: Option<Vec<RankOut<'a>>>,
}

#[derive(Serialize)]
struct RankOut<'a> {
    rank: u32,
    #[serde(flatten)]
    scope: ScopeOut<'a>,
}

#[derive(Serialize)]
struct ThreadOut<'a> {
    #[serde(flatten)]
    thread: ThreadRef,
    name: &'a str,
    #[serde(flatten)]
    scope: ScopeOut<'a>,
}

#[derive(Serialize)]
struct ScopeOut<'a> {
    calls: Option<u64>,
    /// Calls inside of other calls of the op, which `calls` leaves out.
    #[serde(skip_serializing_if = "Option::is_none")]
    inner_calls: Option<u64>,
    /// This and the next two fields are only in runs with a budget.
    #[serde(skip_serializing_if = "Option::is_none")]
    timed_calls: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    effective_calls: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sampled: Option<SampledOut>,
    cpus: Vec<CpuOut>,
    nodes: Vec<NodeOut>,
    variables: Vec<VariableOut<'a>>,
    pairs: Vec<PairOut<'a>>,
}

#[derive(Serialize)]
struct CpuOut {
    cpu: u32,
    node: u32,
    calls: u64,
}

#[derive(Serialize)]
struct NodeOut {
    node: u32,
    calls: u64,
}

#[derive(Serialize)]
struct VariableOut<'a> {
    name: &'a str,
    unit: &'a str,
    calls: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    effective_calls: Option<f64>,
    mean: Option<f64>,
    /// The mean with its interval; absent if it is exact.
    #[serde(skip_serializing_if = "Option::is_none")]
    interval: Option<EstimatedOut>,
    standard_deviation: Option<f64>,
    min: Option<NumberOut>,
    max: Option<NumberOut>,
    bucket_means: Vec<Option<f64>>,
}

/// A value of a variable. Counters are integers and can exceed 2⁵³; durations are converted from
/// ticks.
#[derive(Serialize)]
#[serde(untagged)]
enum NumberOut {
    Whole(u64),
    Real(f64),
}

#[derive(Serialize)]
struct PairOut<'a> {
    of: &'a str,
    given: &'a str,
    calls: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    effective_calls: Option<f64>,
    pearson: Option<f64>,
    spearman: Option<f64>,
    probe_noise: bool,
    probability: Option<Vec<Vec<Option<f64>>>>,
}

#[derive(Serialize)]
struct ProbeOut {
    process: usize,
    pid: u32,
    calls: u64,
    total_ns: f64,
    per_call_ns: f64,
    flush_ns: f64,
    empty_call: EmptyOut,
}

#[derive(Serialize)]
struct Tail {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    loops: Vec<SpreadOut>,
    probes: Vec<ProbeOut>,
    losses: Vec<LossOut>,
}

/// Returns whether there is a loop.
pub fn print(out: &mut impl Write, view: &View<'_>) -> io::Result<bool> {
    let (profile, stats) = (view.profile, view.stats);
    let head = serde_json::to_string(&ProfileHead::new(&profile.manifest, profile))?;
    let asked = serde_json::to_string(&Asked {
        op: view.args.op.as_deref(),
        thread: view.args.thread.as_deref(),
        by: (view.args.by == super::StatsBy::Rank).then_some("rank"),
        skip_ms: view.args.skip_ms,
        buckets: stats.buckets,
        tables: !view.args.no_table,
        probe_subtracted: !stats.raw,
    })?;
    write!(out, "{{\"schema\":\"{STATS_SCHEMA}\",\n\"profile\":{head},\n\"asked\":{asked},\n")?;
    let metrics = serde_json::to_string(&metrics_out(&stats.metrics))?;
    write!(out, "\"metrics\":{metrics},\n\"ops\":[")?;
    for (i, op) in stats.ops.iter().enumerate() {
        out.write_all(if i == 0 { b"\n" } else { b",\n" })?;
        serde_json::to_writer(&mut *out, &op_out(view, op))?;
    }
    let probes = stats.probes.iter().map(|probe| ProbeOut {
        process: probe.process,
        pid: profile.processes[probe.process].id.pid,
        calls: probe.calls,
        total_ns: probe.total().value,
        per_call_ns: probe.per_call_ns,
        flush_ns: probe.flush_ns,
        empty_call: empty_out(profile, &probe.empty_call),
    });
    let loops = view.loops.map_or_else(Vec::new, |l| spread::json(l, view.args.op.as_deref()));
    let any_loop = !loops.is_empty();
    let tail = Tail { loops, probes: probes.collect(), losses: losses_out(&stats.losses) };
    let tail = serde_json::to_string(&tail)?;
    // The open object continues with the members of this one.
    writeln!(out, "\n],\n{}", tail.strip_prefix('{').unwrap_or(&tail))?;
    Ok(any_loop)
}

fn op_out<'a>(view: &'a View<'_>, op: &'a OpStats) -> OpOut<'a> {
    let profile = view.profile;
    let estimated = op.estimated.map(|total| total.value);
    let total = if profile.is_sampled() { estimated } else { Some(op.total_ticks) };
    OpOut {
        key: key_out(profile, op.key),
        total_ns: total.map(|ticks| ticks * profile.timeline.ns_per_tick()),
        all: scope_out(view, &op.all),
        threads: op.threads.iter().map(|t| thread_out(view, t)).collect(),
        ranks: op.is_by_rank().then(|| {
            let ranks = op.ranks.iter();
            ranks
                .map(|(rank, scope)| RankOut { rank: *rank, scope: scope_out(view, scope) })
                .collect()
        }),
    }
}

fn thread_out<'a>(view: &'a View<'_>, thread: &ThreadStats) -> ThreadOut<'a> {
    let profile = view.profile;
    ThreadOut {
        thread: thread_ref(profile, thread.process, thread.thread),
        name: &profile.processes[thread.process].threads[thread.thread].name,
        scope: scope_out(view, &thread.scope),
    }
}

fn scope_out<'a>(view: &'a View<'_>, scope: &Scope) -> ScopeOut<'a> {
    let mut nodes: BTreeMap<u32, u64> = BTreeMap::new();
    for (location, calls) in &scope.locations {
        *nodes.entry(node_of(*location)).or_default() += calls;
    }
    let cpus = scope.locations.iter().map(|(location, calls)| CpuOut {
        cpu: cpu_of(*location),
        node: node_of(*location),
        calls: *calls,
    });
    let variables = scope.variables.iter().enumerate();
    ScopeOut {
        calls: if view.profile.is_sampled() { scope.counted() } else { Some(scope.calls) },
        inner_calls: Some(scope.inner).filter(|n| *n > 0),
        timed_calls: view.profile.is_sampled().then_some(scope.calls),
        effective_calls: scope.effective,
        sampled: scope.sampled.as_deref().map(|row| SampledOut::new(view.profile, row)),
        cpus: cpus.collect(),
        nodes: nodes.into_iter().map(|(node, calls)| NodeOut { node, calls }).collect(),
        variables: variables.map(|(i, v)| variable_out(view, scope, i, v)).collect(),
        pairs: scope.pairs.iter().map(|pair| pair_out(view, scope, pair)).collect(),
    }
}

fn variable_out<'a>(
    view: &'a View<'_>,
    scope: &Scope,
    i: usize,
    variable: &Variable,
) -> VariableOut<'a> {
    let (name, unit) = name_and_unit(view.profile, view.stats, i);
    let scale = scale(view.profile, i);
    let less = Subtracted::new(view.stats, scope, i);
    // What the timed calls say of all, or else what all of them say.
    let estimated = variable.mean.and(scope.estimated_mean(i)).map(|of| less.from_estimated(of));
    let all = variable.mean.map(|mean| Estimated::from(less.from(mean)));
    let mean = estimated.or(all).map(|mean| mean.times(scale));
    let scaled = |value: Option<f64>| value.map(|value| value * scale);
    let number = |value: Option<Number>| match (value, i) {
        (Some(Number::Whole(value)), 1..) if less.is_nothing() => Some(NumberOut::Whole(value)),
        (value, _) => {
            let value = value.map(|value| less.from(value.to_f64()).value);
            scaled(value).map(NumberOut::Real)
        }
    };
    VariableOut {
        name,
        unit,
        calls: variable.calls,
        effective_calls: variable.effective,
        mean: mean.map(|mean| mean.value),
        interval: mean.filter(|mean| !mean.is_exact()).map(|mean| EstimatedOut::new(mean, 1.0)),
        standard_deviation: scaled(variable.standard_deviation),
        min: number(variable.min),
        max: number(variable.max),
        bucket_means: variable
            .bucket_means
            .iter()
            .map(|mean| scaled(mean.map(|mean| less.from(mean).value)))
            .collect(),
    }
}

fn pair_out<'a>(view: &'a View<'_>, scope: &Scope, pair: &Pair) -> PairOut<'a> {
    let (profile, stats) = (view.profile, view.stats);
    PairOut {
        of: name_and_unit(profile, stats, pair.of).0,
        given: name_and_unit(profile, stats, pair.given).0,
        calls: pair.calls,
        effective_calls: pair.effective,
        pearson: pair.pearson,
        spearman: pair.spearman,
        probe_noise: scope.is_noise(pair.of) || scope.is_noise(pair.given),
        probability: pair.table.as_ref().map(|table| table.probabilities(stats.buckets)),
    }
}
