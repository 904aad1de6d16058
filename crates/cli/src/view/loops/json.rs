//! Loops as one JSON document; `docs/loops.md` describes it. Missing is `null`.

use std::io::{self, Write};

use analysis::loops::numbers::CounterSum;
use analysis::loops::{Estimate, LoopNode, LoopThread, LoopTree, Numbers, TableChoice, Times};
use ir::table::Skipped;
use serde::Serialize;

use super::code::Found;
use super::code_json::{self, CodeOut, ModuleCodeOut, PlaceOut, TextOut, TrafficOut};
use super::columns::kind;
use super::schedule::{self, ScheduleOut};
use super::{Loops, iterations, iterations_per_hit, name, notes, pid, traffic, trips};
use crate::view::head::ProfileHead;
use crate::view::losses::{LossOut, losses_out};

/// The version of the document.
pub const LOOPS_SCHEMA: &str = "counterpoint.loops/1";

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    profile: ProfileHead<'a>,
    modules: Vec<ModuleOut<'a>>,
    stray_rows: u64,
    losses: Vec<LossOut>,
    notes: Vec<String>,
}

#[derive(Serialize)]
struct ModuleOut<'a> {
    module: String,
    mode: &'static str,
    source: Option<&'a str>,
    producer: Option<&'a str>,
    target: Option<&'a str>,
    ids: u32,
    table: Option<&'static str>,
    table_problem: Option<&'a str>,
    ticks_per_second: Option<f64>,
    registrations: Vec<RegistrationOut<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<ModuleCodeOut<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    code_problem: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    texts: Option<Vec<TextOut<'a>>>,
    rows: Vec<RowOut<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    schedule: Vec<ScheduleOut<'a>>,
    skipped: &'a [Skipped],
    rows_beyond: u64,
    rows_damaged: u64,
    notes: Vec<String>,
}

#[derive(Serialize)]
struct RegistrationOut<'a> {
    process: usize,
    pid: Option<u32>,
    number: u32,
    object: Option<&'a str>,
    cost: Option<CostOut>,
}

#[derive(Serialize)]
struct CostOut {
    inside_ticks: f64,
    timed_ticks: f64,
    counted_ticks: f64,
}

#[derive(Serialize)]
struct RowOut<'a> {
    id: u32,
    kind: Option<&'static str>,
    function: Option<&'a str>,
    name: Option<String>,
    variable: Option<&'a str>,
    label: Option<&'a str>,
    parent: Option<u32>,
    depth: Option<u32>,
    height: Option<u32>,
    siblings: Option<u32>,
    file: Option<&'a str>,
    line: Option<u32>,
    column: Option<u32>,
    text: Option<[u32; 2]>,
    trip_count: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    scheduled: Option<usize>,
    #[serde(flatten)]
    numbers: NumbersOut<'a>,
    dispatch: Option<DispatchOut>,
    threads: usize,
    imbalance: Option<f64>,
    hit_imbalance: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<CodeOut<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    places: Option<Vec<PlaceOut<'a>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    traffic: Option<TrafficOut>,
    #[serde(skip_serializing_if = "Option::is_none")]
    of_threads: Option<Vec<ThreadOut<'a>>>,
}

/// The dispatch of IREE that a row is in.
#[derive(Serialize)]
struct DispatchOut {
    workgroups: u64,
    dispatches: Option<u64>,
    total_ns: f64,
    hits_per_workgroup: f64,
    share: Option<f64>,
}

#[derive(Serialize)]
struct ThreadOut<'a> {
    process: usize,
    pid: Option<u32>,
    tid: u32,
    #[serde(flatten)]
    numbers: NumbersOut<'a>,
}

#[derive(Serialize)]
struct NumbersOut<'a> {
    hits: u128,
    timed_hits: Option<u128>,
    ended_hits: Option<u128>,
    iterations: Option<u128>,
    iterations_per_hit: Option<f64>,
    iterated_hits: Option<u128>,
    estimated_iterations: Option<f64>,
    trips: Option<TripsOut>,
    measured_ticks: Option<u128>,
    child_ticks: Option<u128>,
    deviation_ticks: Option<f64>,
    raw: Option<TimesOut>,
    compensated: Option<TimesOut>,
    sampled_only: Option<bool>,
    counters: Vec<CounterOut<'a>>,
}

#[derive(Serialize)]
struct TripsOut {
    least: u64,
    most: u64,
    histogram: Vec<BucketOut>,
}

#[derive(Serialize)]
struct BucketOut {
    from: u64,
    to: Option<u64>,
    hits: u128,
}

#[derive(Serialize)]
struct TimesOut {
    inclusive: TimeOut,
    #[serde(rename = "self")]
    own: Option<TimeOut>,
    mean: Option<TimeOut>,
    share: Option<f64>,
    share_95: Option<f64>,
}

#[derive(Serialize)]
struct TimeOut {
    ticks: f64,
    ticks_95: Option<f64>,
    ns: Option<f64>,
    ns_95: Option<f64>,
}

#[derive(Serialize)]
struct CounterOut<'a> {
    name: &'a str,
    total: u128,
    hits: u128,
    per_hit: f64,
}

/// Prints everything that was chosen, also what was never entered.
pub fn print(
    out: &mut impl Write,
    loops: &Loops<'_>,
    losses: &[profile::LossCount],
    threads: bool,
) -> io::Result<()> {
    let document = Document {
        schema: LOOPS_SCHEMA,
        profile: ProfileHead::new(&loops.profile.manifest, loops.profile),
        modules: (0..)
            .zip(&loops.table.modules)
            .filter(|(index, _)| !loops.is_chosen || !loops.rows[*index].is_empty())
            .map(|(i, tree)| module(loops, i, tree, threads))
            .collect(),
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
) -> ModuleOut<'a> {
    let table = tree.table.as_ref();
    let found = loops.more.codes.as_ref().and_then(|codes| codes.get(index));
    let (code, code_problem) = found.map(code_json::module).unwrap_or_default();
    let registrations = tree.registrations.iter().map(|index| {
        let module = &loops.recorded.modules[*index];
        RegistrationOut {
            process: module.process,
            pid: pid(loops.profile, module.process),
            number: module.number,
            object: module.object.as_deref(),
            cost: module.cost.map(|cost| CostOut {
                inside_ticks: cost.inside,
                timed_ticks: cost.timed,
                counted_ticks: cost.counted,
            }),
        }
    });
    ModuleOut {
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
        registrations: registrations.collect(),
        code,
        code_problem,
        texts: table
            .filter(|_| loops.more.source)
            .map(|table| code_json::texts(table, &loops.more.texts)),
        rows: loops.chosen(index).map(|node| row(loops, found, tree, node, threads)).collect(),
        schedule: schedule::json(tree),
        skipped: table.map_or(&[], |table| &table.skipped),
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
) -> RowOut<'a> {
    let entry = tree.entry(node);
    let of_threads = || {
        let of_thread = |(thread, of): &'a (usize, Numbers)| {
            let LoopThread { process, tid } = tree.threads[*thread];
            let pid = pid(loops.profile, process);
            ThreadOut { process, pid, tid, numbers: numbers(loops, tree, node, of) }
        };
        node.threads.iter().map(of_thread).collect()
    };
    RowOut {
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
        scheduled: schedule::of(tree, node).map(|(index, _)| index),
        numbers: numbers(loops, tree, node, &node.all),
        dispatch: loops.inside(tree, node).map(|(dispatch, inside)| DispatchOut {
            workgroups: dispatch.workgroups,
            dispatches: dispatch.dispatches,
            total_ns: dispatch.total_ns(loops.profile),
            hits_per_workgroup: inside.per_workgroup,
            share: inside.share,
        }),
        threads: node.threads.len(),
        imbalance: node.imbalance,
        hit_imbalance: node.hit_imbalance,
        code: found
            .and_then(|found| code_json::region(found, node.id, loops.more.wants(tree, node))),
        places: (tree.table.as_ref().zip(entry))
            .filter(|_| loops.more.source)
            .map(|(table, entry)| code_json::places(table, entry)),
        traffic: found.map(|found| {
            let requested = traffic::of_code(loops, tree, node, found);
            code_json::traffic(requested, traffic::of_arguments(loops, tree, node))
        }),
        of_threads: threads.then(of_threads),
    }
}

fn numbers<'a>(
    loops: &'a Loops<'_>,
    tree: &LoopTree,
    node: &LoopNode,
    of: &Numbers,
) -> NumbersOut<'a> {
    let is_timed = of.raw.is_some();
    let counters = loops.profile.manifest.counters.iter().zip(&of.counters);
    NumbersOut {
        hits: of.hits,
        timed_hits: is_timed.then_some(of.begun),
        ended_hits: is_timed.then_some(of.ended),
        iterations: iterations(tree.entry(node), of),
        iterations_per_hit: iterations_per_hit(tree.entry(node), of),
        iterated_hits: Some(of.iterated).filter(|n| *n > 0),
        estimated_iterations: of.estimated_iterations,
        trips: of.trips.as_ref().map(|known| TripsOut {
            least: known.least,
            most: known.most,
            histogram: trips::buckets(of)
                .map(|((from, to), hits)| BucketOut {
                    from,
                    to: Some(to).filter(|to| *to < u64::MAX),
                    hits,
                })
                .collect(),
        }),
        measured_ticks: is_timed.then_some(of.ticks),
        child_ticks: of.child_ticks,
        deviation_ticks: of.deviation,
        raw: of.raw.as_ref().map(|times| times_out(tree, times)),
        compensated: of.compensated.as_ref().map(|times| times_out(tree, times)),
        sampled_only: is_timed.then_some(of.sampled_only),
        counters: counters
            .filter_map(|(counter, sum)| {
                let (name, sum) = (counter.name.as_str(), (*sum)?);
                let CounterSum { total, hits } = sum;
                Some(CounterOut { name, total, hits, per_hit: sum.per_hit() })
            })
            .collect(),
    }
}

fn times_out(tree: &LoopTree, times: &Times) -> TimesOut {
    let time = |estimate: Estimate| TimeOut {
        ticks: estimate.value,
        ticks_95: estimate.margin,
        ns: tree.ns(estimate.value),
        ns_95: estimate.margin.and_then(|margin| tree.ns(margin)),
    };
    TimesOut {
        inclusive: time(times.inclusive),
        own: times.own.map(time),
        mean: times.mean.map(time),
        share: times.share.map(|share| share.value),
        share_95: times.share.and_then(|share| share.margin),
    }
}
