//! Writes loops as JSON, which `docs/loops.md` describes. Missing values are `null`.

use std::io::{self, Write};

use analysis::loops::numbers::CounterSum;
use analysis::loops::{
    Estimate, LoopNode, LoopThread, LoopTree, Numbers, TableChoice, Times, unrolled,
};
use serde::Serialize;

use super::code::Found;
use super::code_json;
use super::columns::kind;
use super::schedule;
use super::{Loops, iterations, iterations_per_hit, name, notes, pid, traffic, trips};
use crate::object::{object, unless_empty};
use crate::view::head::ProfileHead;
use crate::view::losses::losses_out;

pub const LOOPS_SCHEMA: &str = "counterpoint.loops/1";

/// Prints the functions and loops that the user chose, including those that were never entered.
pub fn print(
    out: &mut impl Write,
    loops: &Loops<'_>,
    losses: &[profile::LossCount],
    threads: bool,
) -> io::Result<()> {
    let document = object! {
        schema: LOOPS_SCHEMA,
        profile: ProfileHead::new(&loops.profile.manifest, loops.profile),
        modules: (0..)
            .zip(&loops.table.modules)
            .filter(|(index, _)| !loops.is_chosen || !loops.rows[*index].is_empty())
            .map(|(i, tree)| module(loops, i, tree, threads))
            .collect::<Vec<_>>(),
        stray_rows: loops.table.strays,
        losses: losses_out(losses),
        notes: notes::of_table(loops),
    };
    serde_json::to_writer_pretty(&mut *out, &document)?;
    writeln!(out)
}

fn module<'a>(
    loops: &'a Loops<'_>,
    index: usize,
    tree: &'a LoopTree,
    threads: bool,
) -> impl Serialize {
    let table = tree.table.as_ref();
    let found = loops.more.codes.as_ref().and_then(|codes| codes.get(index));
    let (code, code_problem) = found.map(code_json::module).unwrap_or_default();
    let registrations = tree.registrations.iter().map(|index| {
        let module = &loops.recorded.modules[*index];
        object! {
            process: module.process,
            pid: pid(loops.profile, module.process),
            number: module.number,
            object: module.object.as_deref(),
            cost: module.cost.map(|cost| object! {
                inside_ticks: cost.inside,
                timed_ticks: cost.timed,
                counted_ticks: cost.counted,
                reading_ticks: cost.reading,
            }),
        }
    });
    object! {
        module: tree.identity(),
        mode: tree.mode.name(),
        source: table.map(|table| table.source.as_str()),
        producer: table.and_then(|table| table.producer.as_deref()),
        target: table.and_then(|table| table.target.as_deref()),
        ids: tree.ids,
        table: match tree.choice {
            TableChoice::Embedded => Some("embedded"),
            TableChoice::File => Some("file"),
            TableChoice::Missing | TableChoice::Unusable(_) => None,
        },
        table_problem: match &tree.choice {
            TableChoice::Unusable(why) => Some(why),
            _ => None,
        },
        ticks_per_second: tree.ticks_per_second,
        registrations: registrations.collect::<Vec<_>>(),
        code?: code,
        code_problem?: code_problem,
        texts?: table
            .filter(|_| loops.more.source)
            .map(|table| code_json::texts(table, &loops.more.texts)),
        rows: loops
            .chosen(index)
            .map(|node| row(loops, found, tree, node, threads))
            .collect::<Vec<_>>(),
        schedule?: unless_empty(schedule::json(tree)),
        skipped: table.map(|table| table.skipped.as_slice()).unwrap_or_default(),
        rows_beyond: tree.beyond,
        rows_damaged: tree.damaged,
        notes: notes::notes(tree, true),
    }
}

fn row<'a>(
    loops: &'a Loops<'_>,
    found: Option<&'a Found>,
    tree: &'a LoopTree,
    node: &'a LoopNode,
    threads: bool,
) -> impl Serialize {
    let entry = tree.entry(node);
    let of_threads = || {
        let of_thread = |(thread, of): &'a (usize, Numbers)| {
            let LoopThread { process, tid } = tree.threads[*thread];
            let pid = pid(loops.profile, process);
            object! {
                process,
                pid,
                tid,
                ..numbers: numbers(loops, tree, node, of),
            }
        };
        node.threads.iter().map(of_thread).collect::<Vec<_>>()
    };
    object! {
        id: node.id,
        kind: entry.map(|entry| kind(entry.kind)),
        function: entry.map(|entry| entry.function.as_str()),
        name: entry.map(|_| name(tree, node)),
        variable: entry.and_then(|entry| entry.variable.as_deref()),
        label: entry.and_then(|entry| entry.label.as_deref()),
        parent: entry.and_then(|entry| entry.parent),
        depth: entry.and_then(|entry| entry.depth),
        height: entry.map(|entry| entry.height),
        siblings: entry.map(|entry| entry.siblings),
        file: entry.and_then(|entry| entry.file.as_deref()),
        line: entry.and_then(|entry| entry.line.filter(|line| *line > 0)),
        column: entry.and_then(|entry| entry.column.filter(|column| *column > 0)),
        text: entry.map(|entry| entry.text),
        trip_count: entry.and_then(|entry| entry.trip_count),
        scheduled?: tree.scheduled(node).map(|(index, _)| index),
        unrolled?: unrolled(tree, node).map(|of| object! { each: of.each, apart: of.apart }),
        ..numbers: numbers(loops, tree, node, &node.all),
        dispatch: loops.inside(tree, node).map(|(dispatch, inside)| object! {
            workgroups: dispatch.workgroups,
            dispatches: dispatch.dispatches,
            total_ns: dispatch.total_ns(loops.profile),
            hits_per_workgroup: inside.per_workgroup,
            share: inside.share,
        }),
        threads: node.threads.len(),
        imbalance: node.imbalance,
        hit_imbalance: node.hit_imbalance,
        code?: found
            .and_then(|found| code_json::region(found, node.id, loops.more.wants(tree, node))),
        places?: (tree.table.as_ref().zip(entry))
            .filter(|_| loops.more.source)
            .map(|(table, entry)| code_json::places(table, entry)),
        traffic?: found.map(|found| {
            let requested = traffic::of_code(loops, tree, node, found);
            code_json::traffic(requested, traffic::of_arguments(loops, tree, node))
        }),
        of_threads?: threads.then(of_threads),
    }
}

fn numbers(loops: &Loops<'_>, tree: &LoopTree, node: &LoopNode, of: &Numbers) -> impl Serialize {
    let (timed, has_times) = (of.timed_hits(), of.raw.is_some());
    let counters = loops.profile.manifest.counters.iter().zip(&of.counters);
    object! {
        hits: of.hits,
        timed_hits: timed.map(|(begun, _)| begun),
        ended_hits: timed.map(|(_, ended)| ended),
        iterations: iterations(tree.entry(node), of),
        iterations_per_hit: iterations_per_hit(tree.entry(node), of),
        iterated_hits: Some(of.iterated).filter(|n| *n > 0),
        estimated_iterations: of.estimated_iterations,
        trips: of.trips.as_ref().map(|known| object! {
            least: known.least,
            most: known.most,
            histogram: trips::buckets(of)
                .map(|((from, to), hits)| object! {
                    from,
                    to: Some(to).filter(|to| *to < u64::MAX),
                    hits,
                })
                .collect::<Vec<_>>(),
        }),
        measured_ticks: has_times.then_some(of.ticks),
        child_ticks: of.child_ticks,
        deviation_ticks: of.deviation,
        raw: of.raw.as_ref().map(|times| times_out(tree, times)),
        compensated: of.compensated.as_ref().map(|times| times_out(tree, times)),
        sampled_only: has_times.then_some(of.sampled_only),
        counters: counters
            .filter_map(|(counter, sum)| {
                let (name, sum) = (counter.name.as_str(), (*sum)?);
                let CounterSum { total, hits } = sum;
                Some(object! { name, total, hits, per_hit: sum.per_hit() })
            })
            .collect::<Vec<_>>(),
    }
}

fn times_out(tree: &LoopTree, times: &Times) -> impl Serialize {
    let time = |estimate: Estimate| {
        object! {
            ticks: estimate.value,
            ticks_95: estimate.margin,
            ns: tree.ns(estimate.value),
            ns_95: estimate.margin.and_then(|margin| tree.ns(margin)),
        }
    };
    object! {
        inclusive: time(times.inclusive),
        own as "self": times.own.map(time),
        mean: times.mean.map(time),
        share: times.share.map(|share| share.value),
        share_95: times.share.and_then(|share| share.margin),
    }
}
