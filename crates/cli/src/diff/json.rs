//! Writes the comparison as JSON, which `docs/schema.md` describes. A missing value is `null`, or
//! its member is absent (`name?:` in `object!`).

use std::io::{self, Write};

use analysis::diff::counters::{Known, ReadingDiff};
use analysis::diff::matching::Relation;
use analysis::diff::recorded::Identity;
use analysis::diff::verdict::{Compared, Verdict};
use analysis::diff::{DiffRow, Part, Side, Statistic, Untested};
use serde::Serialize;

use super::View;
use super::answer::{About, sentence, word};
use super::inputs::Run;
use crate::object::object;
use crate::view::sampled::EstimatedOut;

const DIFF_SCHEMA: &str = "counterpoint.diff/1";

/// Fields that do not apply to the kind of verdict are null.
#[derive(Default, Serialize)]
struct VerdictOut {
    verdict: &'static str,
    change: Option<f64>,
    change_low: Option<f64>,
    change_high: Option<f64>,
    statistic: Option<&'static str>,
    floor_unchanged: Option<bool>,
    half_width: Option<f64>,
    pairs_needed: Option<u32>,
}

pub fn print(out: &mut impl Write, view: &View<'_>) -> io::Result<()> {
    let diff = view.diff;
    let whole = &diff.whole;
    let document = object! {
        schema: DIFF_SCHEMA,
        answer: sentence(diff, view.names),
        by: view.args.by.name(),
        filter: view.args.filter.as_deref(),
        threshold: view.args.threshold,
        pairs: diff.pairs,
        // This member is null if the differences were tested.
        untested: diff.untested.map(|why| match why {
            Untested::NotPaired => "not_paired",
            Untested::TooFew(_) => "too_few_pairs",
        }),
        // The factor by which most ops' numbers of executions differ.
        factor: diff.factor,
        a: view.inputs.runs[0].iter().map(run).collect::<Vec<_>>(),
        b: view.inputs.runs[1].iter().map(run).collect::<Vec<_>>(),
        whole: object! {
            ..verdict: verdict(&whole.verdict, About::Time),
            statistics: whole.compared.iter().map(compared).collect::<Vec<_>>(),
            total_ns: whole.total_ns,
            // Whether the total of each side is an estimate.
            estimated?: Some(whole.estimated).filter(|sides| sides.contains(&true)),
            between_ns: whole.between_ns,
            difference: whole.difference.map(part),
            explained: whole.explained.map(part),
            remainder: whole.remainder.map(part),
            counts_all: whole.counts_all,
        },
        processor: object! {
            ..verdict: verdict(&diff.processor.verdict, About::Amount),
            statistics: diff.processor.compared.iter().map(compared).collect::<Vec<_>>(),
        },
        rows: view.table.order.iter().map(|at| row(&diff.rows[*at], &view.names[*at])).collect::<Vec<_>>(),
        failed: view
            .failed
            .iter()
            .map(|one| object! {
                rule: &one.rule,
                failed: !one.rows.is_empty(),
                rows: &one.rows,
            })
            .collect::<Vec<_>>(),
        notes: &view.inputs.notes,
    };
    serde_json::to_writer_pretty(&mut *out, &document).map_err(io::Error::from)?;
    writeln!(out)
}

fn run(run: &Run) -> impl Serialize {
    object! {
        path: run.path.display().to_string(),
        command: &run.manifest.command,
        labels: &run.manifest.labels,
        created_unix_ns: run.manifest.created_unix_ns,
        series: run.manifest.series.as_ref(),
    }
}

fn verdict(of: &Verdict, about: About) -> VerdictOut {
    let mut out = VerdictOut { verdict: word(of, about), ..VerdictOut::default() };
    match of {
        Verdict::Differs(change) => {
            out.change = Some(change.by);
            out.change_low = Some(change.interval[0]);
            out.change_high = Some(change.interval[1]);
            out.statistic = Some(change.statistic.name());
            out.floor_unchanged = Some(change.floor_unchanged);
        }
        Verdict::Unknown { half_width, pairs } => {
            out.half_width = Some(*half_width).filter(|half| half.is_finite());
            out.pairs_needed = *pairs;
        }
        _ => {}
    }
    out
}

fn compared(of: &Compared) -> impl Serialize {
    object! {
        statistic: of.statistic.name(),
        a: of.medians[0],
        b: of.medians[1],
        change: Some(of.change).filter(|part| part.is_finite()),
        interval: of.interval,
        interval_90: of.interval_90,
        p: of.p,
        deviation: of.deviation,
    }
}

fn part(of: Part) -> impl Serialize {
    object! { ns: of.ns, interval: of.interval }
}

fn row(of: &DiffRow, name: &str) -> impl Serialize {
    object! {
        name,
        relation: match of.relation {
            Relation::Same => "same",
            Relation::Changed => "changed",
            Relation::Renamed => "renamed",
            Relation::Split => "split",
            Relation::Joined => "joined",
            Relation::New => "new",
            Relation::Gone => "gone",
        },
        a: of.a.iter().map(identity).collect::<Vec<_>>(),
        b: of.b.iter().map(identity).collect::<Vec<_>>(),
        ..verdict: verdict(&of.verdict, About::Time),
        statistics: of.compared.iter().map(compared).collect::<Vec<_>>(),
        part: of.part.map(part),
        calls_differ: of.calls_differ,
        other_executions: of.other_executions,
        sides: of.sides.map(|side| side.map(side_out)),
        counters: of.readings.iter().map(reading).collect::<Vec<_>>(),
    }
}

fn identity(of: &Identity) -> impl Serialize {
    object! {
        name: &of.name,
        arguments: &of.arguments,
        device: &of.device,
        library: &of.library,
        role: &of.role,
        source: of.source.as_deref(),
        nth: of.nth,
    }
}

fn side_out(of: Side) -> impl Serialize {
    object! {
        runs: of.runs,
        calls: of.calls,
        estimated_calls?: of.estimated_calls.map(|calls| EstimatedOut::new(calls, 1.0)),
        executions: of.executions,
        total_ns: of.total_ns,
        estimated_total_ns?: of.estimated_total_ns.map(|ns| EstimatedOut::new(ns, 1.0)),
        self_ns: of.own_ns,
    }
}

fn reading(of: &ReadingDiff) -> impl Serialize {
    // Sums can have more than 53 bits, which some JSON parsers would round, so they are written as
    // strings.
    let (result, sums, calls) = match of.reading {
        Known::Equal => ("equal", None, None),
        Known::Fact { sums, calls } => ("fact", Some(sums.map(|n| n.to_string())), Some(calls)),
        Known::Tested(verdict) => (word(&verdict, About::Amount), None, None),
    };
    let in_run = of.statistic == Statistic::Run;
    object! {
        name: &of.name,
        unit: &of.unit,
        metric: of.is_metric,
        result,
        sums,
        calls,
        per_call: of.compared.as_ref().filter(|_| !in_run).map(compared),
        in_run?: of.compared.as_ref().filter(|_| in_run).map(compared),
    }
}
