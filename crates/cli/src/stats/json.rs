//! Writes the statistics as JSON with one op per line. `docs/schema.md` describes the document. A
//! missing value is `null`, or its member is absent (`name?:` in `object!`).

use std::collections::BTreeMap;
use std::io::{self, Write};

use analysis::Estimated;
use analysis::stats::{Number, OpStats, Pair, Scope, ThreadStats, Variable};
use profile::columns::{cpu_of, node_of};
use serde::Serialize;

use super::View;
use crate::object::{object, unless_empty};
use crate::view::head::ProfileHead;
use crate::view::keys::{key_out, thread_ref};
use crate::view::loops::spread;
use crate::view::losses::losses_out;
use crate::view::metrics::metrics_out;
use crate::view::price::empty_out;
use crate::view::sampled::{EstimatedOut, SampledOut};
use crate::view::variables::{Subtracted, name_and_unit, scale};

const STATS_SCHEMA: &str = "counterpoint.stats/1";

/// Values of counters are integers that can exceed 2⁵³, unless what the recorder added is
/// subtracted from them. Durations are real numbers, because they are converted from ticks.
#[derive(Serialize)]
#[serde(untagged)]
enum NumberOut {
    Whole(u64),
    Real(f64),
}

/// Prints the document. Returns whether the output contains a loop.
pub fn print(out: &mut impl Write, view: &View<'_>) -> io::Result<bool> {
    let (profile, stats) = (view.profile, view.stats);
    let head = serde_json::to_string(&ProfileHead::new(&profile.manifest, profile))?;
    let asked = serde_json::to_string(&object! {
        op: view.args.op.as_deref(),
        thread: view.args.thread.as_deref(),
        // Only `--by rank` has this member.
        by?: (view.args.by == super::StatsBy::Rank).then_some("rank"),
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
    let probes = stats.probes.iter().map(|probe| {
        object! {
            process: probe.process,
            pid: profile.processes[probe.process].id.pid,
            calls: probe.calls,
            total_ns: probe.total().value,
            per_call_ns: probe.per_call_ns,
            flush_ns: probe.flush_ns,
            empty_call: empty_out(profile, &probe.empty_call),
        }
    });
    let loops = view.loops.map_or_else(Vec::new, |l| spread::json(l, view.args.op.as_deref()));
    let any_loop = !loops.is_empty();
    let tail = object! {
        loops?: unless_empty(loops),
        probes: probes.collect::<Vec<_>>(),
        losses: losses_out(&stats.losses),
    };
    let tail = serde_json::to_string(&tail)?;
    // The members of `tail` continue the object that was begun above.
    writeln!(out, "\n],\n{}", tail.strip_prefix('{').unwrap_or(&tail))?;
    Ok(any_loop)
}

fn op_out(view: &View<'_>, op: &OpStats) -> impl Serialize {
    let profile = view.profile;
    let estimated = op.estimated.map(|total| total.value);
    let total = if profile.is_sampled() { estimated } else { Some(op.total_ticks) };
    object! {
        ..key: key_out(profile, op.key),
        // Null in a run with `--budget` if calls were selected by thread or time, or if none was
        // timed.
        total_ns: total.map(|ticks| ticks * profile.timeline.ns_per_tick()),
        all: scope_out(view, &op.all),
        threads: op.threads.iter().map(|t| thread_out(view, t)).collect::<Vec<_>>(),
        // Only `--by rank` has this member.
        ranks?: op.is_by_rank().then(|| {
            let ranks = op.ranks.iter();
            ranks
                .map(|(rank, scope)| object! { rank: *rank, ..scope: scope_out(view, scope) })
                .collect::<Vec<_>>()
        }),
    }
}

fn thread_out(view: &View<'_>, thread: &ThreadStats) -> impl Serialize {
    let profile = view.profile;
    object! {
        ..thread: thread_ref(profile, thread.process, thread.thread),
        name: &profile.processes[thread.process].threads[thread.thread].name,
        ..scope: scope_out(view, &thread.scope),
    }
}

fn scope_out(view: &View<'_>, scope: &Scope) -> impl Serialize {
    let mut nodes: BTreeMap<u32, u64> = BTreeMap::new();
    for (location, calls) in &scope.locations {
        *nodes.entry(node_of(*location)).or_default() += calls;
    }
    let cpus = scope.locations.iter().map(|(location, calls)| {
        object! {
            cpu: cpu_of(*location),
            node: node_of(*location),
            calls: *calls,
        }
    });
    let variables = scope.variables.iter().enumerate();
    object! {
        calls: if view.profile.is_sampled() { scope.counted() } else { Some(scope.calls) },
        // Calls of the op inside of other calls of the op; `calls` does not include them.
        inner_calls?: Some(scope.inner).filter(|n| *n > 0),
        // This member and the next two are present only in runs with `--budget`.
        timed_calls?: view.profile.is_sampled().then_some(scope.calls),
        effective_calls?: scope.effective,
        sampled?: scope.sampled.as_deref().map(|row| SampledOut::new(view.profile, row)),
        cpus: cpus.collect::<Vec<_>>(),
        nodes: nodes.into_iter().map(|(node, calls)| object! { node, calls }).collect::<Vec<_>>(),
        variables: variables.map(|(i, v)| variable_out(view, scope, i, v)).collect::<Vec<_>>(),
        pairs: scope.pairs.iter().map(|pair| pair_out(view, scope, pair)).collect::<Vec<_>>(),
    }
}

fn variable_out(view: &View<'_>, scope: &Scope, i: usize, variable: &Variable) -> impl Serialize {
    let (name, unit) = name_and_unit(view.profile, view.stats, i);
    let scale = scale(view.profile, i);
    let less = Subtracted::new(view.stats, scope, i);
    // The estimated mean of all calls, or else the mean of the recorded calls.
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
    object! {
        name,
        unit,
        calls: variable.calls,
        effective_calls?: variable.effective,
        mean: mean.map(|mean| mean.value),
        // Absent if the mean is exact.
        interval?: mean.filter(|mean| !mean.is_exact()).map(|mean| EstimatedOut::new(mean, 1.0)),
        standard_deviation: scaled(variable.standard_deviation),
        min: number(variable.min),
        max: number(variable.max),
        bucket_means: variable
            .bucket_means
            .iter()
            .map(|mean| scaled(mean.map(|mean| less.from(mean).value)))
            .collect::<Vec<_>>(),
    }
}

fn pair_out(view: &View<'_>, scope: &Scope, pair: &Pair) -> impl Serialize {
    let (profile, stats) = (view.profile, view.stats);
    object! {
        of: name_and_unit(profile, stats, pair.of).0,
        given: name_and_unit(profile, stats, pair.given).0,
        calls: pair.calls,
        effective_calls?: pair.effective,
        pearson: pair.pearson,
        spearman: pair.spearman,
        probe_noise: scope.is_noise(pair.of) || scope.is_noise(pair.given),
        probability: pair.table.as_ref().map(|table| table.probabilities(stats.buckets)),
    }
}
