//! Writes the statistics as CSV (RFC 4180): one row per op, thread and variable (the duration or a
//! counter). A row without a thread covers all threads of the op. With `--by rank`, there is a
//! column `rank` and there are no rows for threads. An empty field means that the value is missing.

use std::io::{self, Write};

use analysis::stats::{Number, Scope, Stats};
use profile::Profile;

use crate::view::csv::field;
use crate::view::labels::{labels, op_of};
use crate::view::variables::{Subtracted, name_and_unit, scale};

pub fn print(
    out: &mut impl Write,
    profile: &Profile,
    stats: &Stats,
    by_rank: bool,
) -> io::Result<()> {
    let who = if by_rank { "rank" } else { "process,pid,thread,tid,thread_name" };
    write!(out, "op,library,{who},op_calls,variable,unit,calls")?;
    write!(out, ",mean,standard_deviation,min,max")?;
    (0..stats.buckets).try_for_each(|bucket| write!(out, ",bucket_{bucket}_mean"))?;
    if profile.is_sampled() {
        write!(out, ",op_timed_calls,effective_calls,mean_low,mean_high")?;
    }
    if profile.estimates_calls() {
        write!(out, ",op_calls_low,op_calls_high")?;
    }
    write!(out, "\r\n")?;
    let keys: Vec<_> = stats.ops.iter().map(|op| op.key).collect();
    for (op, label) in stats.ops.iter().zip(labels(profile, &keys)) {
        let library = op_of(profile, op.key).map_or("", |op| &op.library);
        let op_fields = format!("{},{}", field(&label), field(library));
        let all = if by_rank { "," } else { ",,,,," };
        rows(out, profile, stats, &format!("{op_fields}{all}"), &op.all)?;
        for (rank, scope) in &op.ranks {
            rows(out, profile, stats, &format!("{op_fields},{rank}"), scope)?;
        }
        for thread in &op.threads {
            let p = &profile.processes[thread.process];
            let t = &p.threads[thread.thread];
            let name = field(&t.name);
            let who = format!("{},{},{},{},{name}", thread.process, p.id.pid, t.uid, t.tid);
            rows(out, profile, stats, &format!("{op_fields},{who}"), &thread.scope)?;
        }
    }
    Ok(())
}

fn rows(
    out: &mut impl Write,
    profile: &Profile,
    stats: &Stats,
    who: &str,
    scope: &Scope,
) -> io::Result<()> {
    for (i, variable) in scope.variables.iter().enumerate() {
        let (name, unit) = name_and_unit(profile, stats, i);
        let scale = scale(profile, i);
        let less = Subtracted::new(stats, scope, i);
        let real = |value: Option<f64>| {
            value.map_or_else(String::new, |value| (value * scale).to_string())
        };
        let number = |value: Option<Number>| match (value, i) {
            (Some(Number::Whole(value)), 1..) if less.is_nothing() => value.to_string(),
            (value, _) => real(value.map(|value| less.from(value.to_f64()).value)),
        };
        let mean = |value: Option<f64>| real(value.map(|value| less.from(value).value));
        let calls = if profile.is_sampled() { scope.counted() } else { Some(scope.calls) };
        let calls = calls.map_or_else(String::new, |calls| calls.to_string());
        write!(out, "{who},{calls},{},{unit},{}", field(name), variable.calls)?;
        write!(out, ",{},{}", mean(variable.mean), real(variable.standard_deviation))?;
        write!(out, ",{},{}", number(variable.min), number(variable.max))?;
        variable.bucket_means.iter().try_for_each(|value| write!(out, ",{}", mean(*value)))?;
        if profile.is_sampled() {
            let effective = variable.effective.map_or_else(String::new, |n| n.to_string());
            write!(out, ",{},{effective}", scope.calls)?;
            let mean = scope.estimated_mean(i).and_then(|mean| mean.interval);
            let ends = mean.map(|all| less.from_estimate(all));
            write!(out, ",{},{}", real(ends.map(|all| all.low)), real(ends.map(|all| all.high)))?;
        }
        if profile.estimates_calls() {
            let [low, high] = calls_within(scope);
            write!(out, ",{low},{high}")?;
        }
        write!(out, "\r\n")?;
    }
    Ok(())
}

/// Returns as text the lowest and the highest likely number of all calls; both texts are empty if
/// the limits are not known.
fn calls_within(scope: &Scope) -> [String; 2] {
    let Some(sampled) = scope.sampled.as_deref() else { return Default::default() };
    let ends = match &sampled.by_steps {
        Some(calls) => calls.interval.map(|all| [all.low.max(0.0).floor(), all.high.ceil()]),
        None => sampled.calls.map(|calls| [calls as f64; 2]),
    };
    ends.map_or_else(Default::default, |ends| ends.map(|end| format!("{end:.0}")))
}
