//! `report DATASET`: shows a table of the ranks of a job, and a table of ops over all ranks.
//!
//! All numbers come from [`analysis::across`]. With each format, the user also learns what is
//! missing from the dataset.

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use ::dataset::across::calls_of;
use ::dataset::{Dataset, Only, across};
use analysis::Estimate;
use analysis::across::clocks::{self, NotAligned};
use analysis::across::{OpAcross, RankAcross, RunAcross, Sums};
use clap::ValueEnum;
use serde::Serialize;

use super::{Args, Out, RowKind, output};
use crate::failure::Failure;
use crate::output::Format;
use crate::page;
use crate::terminal::{progress, say, visible};
use crate::view::across::{clocks as about_clocks, sentences};
use crate::view::rights::{Needs, confine};
use crate::view::table::{Column, Quantity, Table, Value};
use crate::view::text::table;
use crate::view::units::time;
use crate::view::wrap::{PROSE_WIDTH, wrapped};

const SCHEMA: &str = "counterpoint.ranks/1";
/// At most this many gaps (missing parts of the dataset) are named; the others are only counted.
const MOST_NAMED: usize = 20;

/// The names of columns, each with its label and explanation.
const EXPLAINED: [(&str, &str, &str); 7] = [
    ("self_ns", "self: ", "time in ops, without the calls inside of them"),
    ("of_mean", "of mean: ", "the rank's self time as a multiple of the mean over the ranks"),
    (
        "above_ns",
        "above: ",
        "by how much the rank's self time in the op before it is above the median over the ranks; \
         ! marks what stands out",
    ),
    ("imbalance", "imbalance: ", "the largest of the ranks' totals as a multiple of their mean"),
    ("p50_ns", "p50, p99: ", "of the duration of a call on any rank, within 1/128"),
    (
        "losses",
        "losses: ",
        "kinds of loss that change the rank's numbers; `counterpoint query` lists them",
    ),
    (
        "offset_ns",
        "offset: ",
        "with --align-by, what is to be added to the rank's clock to have that of the first rank",
    ),
];

struct Opened {
    runs: Vec<RunAcross>,
    /// One sentence for each thing that is incomplete in the dataset.
    gaps: Vec<String>,
}

/// Opens a dataset and reads the records of its ranks. Before reading, the process gives up all
/// access rights that the report does not need.
fn read(args: &Args, needs: &Needs<'_>, only: &Only) -> Result<Opened, Failure> {
    let dir = &args.profile;
    confine(None, needs);
    progress::phase(progress::step(format!("reading {}", dir.display())));
    let read = Dataset::reading(dir, |dataset| across(dataset, only));
    let (dataset, mut runs) = read.map_err(Failure::new)?;
    let is_of = |gap: &::dataset::Gap| match (gap.run(), &only.run) {
        (Some(run), Some(only)) => run == only,
        _ => true,
    };
    let gaps: Vec<String> =
        dataset.gaps.iter().filter(|gap| is_of(gap)).map(|gap| gap.to_string()).collect();
    if runs.is_empty() {
        let mut why = format!("{}: there are no such recordings in it", dir.display());
        if only.run.is_none() && only.ranks.is_none() {
            why = format!("{}: the dataset has no recordings", dir.display());
        }
        if let Some(gap) = gaps.first() {
            why.push_str(&format!("; {gap}"));
        }
        return Err(Failure::new(why));
    }
    if let Some(glob) = &args.align_by {
        for run in &mut runs {
            align(&dataset, only, run, glob)?;
        }
    }
    Ok(Opened { runs, gaps })
}

fn align(dataset: &Dataset, only: &Only, run: &mut RunAcross, glob: &str) -> Result<(), Failure> {
    let is_match = |op: &&OpAcross| profile::demangle::matches(glob, &op.name);
    let keys: Vec<&str> = run.ops.iter().filter(is_match).map(|op| &*op.key).collect();
    let failed = |why: String| Failure::new(format!("--align-by {glob}: {why}"));
    if keys.is_empty() {
        return Err(failed("no op matches".to_owned()));
    }
    let only = Only { run: Some(run.run.clone()), ..only.clone() };
    let calls = calls_of(dataset, &only, &keys).map_err(Failure::new)?;
    if let Some((rank, _)) = calls.iter().find(|(_, calls)| calls.is_empty()) {
        return Err(failed(format!("rank {rank} has no calls of it in the dataset"))
            .hint("`export --dataset DIR --calls` adds calls"));
    }
    let offsets = clocks::align(&calls).map_err(|e| match e {
        NotAligned::OtherNumber { rank, calls, first } => failed(format!(
            "rank {rank} has {calls} calls, and the first rank {first}, so it is not known which belong together"
        )),
        NotAligned::Impossible { rank, by_ns } => failed(format!(
            "the calls of rank {rank} and of the first rank contradict each other by {}: some rank leaves the \
             op before all have entered it, or a clock drifts",
            time(by_ns as f64)
        )),
    })?;
    for rank in &mut run.ranks {
        rank.place.offset = offsets.get(&rank.rank).copied();
    }
    Ok(())
}

/// Returns an error if an option was given that cannot be used with a dataset.
fn refuse(args: &Args, by: RowKind) -> Result<(), Failure> {
    let given = [
        (args.tree, "--tree"),
        (args.roofline, "--roofline"),
        (args.kind.is_some(), "--kind"),
        (args.device.is_some(), "--device"),
        (args.stream.is_some(), "--stream"),
        (args.skip_ms > 0.0, "--skip-ms"),
        (args.raw, "--raw"),
        (!args.metrics.metric.is_empty(), "--metric"),
        (!args.metrics.metrics_file.is_empty(), "--metrics-file"),
        (args.code, "--code"),
        (!args.objects.is_empty(), "--objects"),
        (!args.sources.is_empty(), "--sources"),
        (args.filter.is_some() && by == RowKind::Rank, "--filter with --by rank"),
    ];
    if let Some((_, option)) = given.iter().find(|(given, _)| *given) {
        return Err(Failure::new(format!("{option} cannot be used with a dataset")).hint(
            "a dataset has sums of each rank and op: `counterpoint query` asks it in SQL, and `report` of one \
             rank's profile has everything else",
        ));
    }
    match by {
        RowKind::Op | RowKind::Rank => Ok(()),
        other => {
            let name = other.to_possible_value();
            let name = name.as_ref().map_or("", |name| name.get_name());
            Err(Failure::new(format!("--by {name} cannot be used with a dataset"))
                .hint("its rows are by op or by rank"))
        }
    }
}

pub fn main(args: &Args) -> Result<ExitCode, Failure> {
    let by = args.by.unwrap_or_default();
    refuse(args, by)?;
    let needs = Needs {
        reads: vec![&args.profile],
        outputs: args.html.iter().cloned().collect(),
        ..Needs::default()
    };
    let ranks = args.ranks.given().map(|rank| vec![rank]);
    let opened = read(args, &needs, &Only { run: args.run.clone(), ranks })?;
    if let Some(path) = &args.html {
        return write_page(path, args, &opened);
    }
    let (mut rows, usual) = match by {
        RowKind::Rank => (of_ranks(&opened.runs), "above"),
        _ => (of_ops(&opened.runs, args.filter.as_deref()), "self"),
    };
    if let (true, Some(glob)) = (rows.order.is_empty(), &args.filter) {
        say!("--filter {glob}: no op matches");
        return Ok(ExitCode::from(1));
    }
    let sort = args.sort.as_deref().unwrap_or(usual);
    rows.sort(sort)?;
    rows.keep_first(args.top());
    if args.format == Format::Csv {
        gaps(&opened).iter().for_each(|gap| say!("{gap}"));
    }
    let document = || document(&opened, args, sort, &rows);
    let text = |out: &mut Out, width: Option<usize>| text(out, width, &opened, &rows);
    output(args, &rows, text, document)
}

/// Returns one line for each gap, up to [`MOST_NAMED`] gaps, and then a line with the number of the
/// other gaps.
fn gaps(opened: &Opened) -> Vec<String> {
    let mut lines: Vec<String> = opened.gaps.iter().take(MOST_NAMED).cloned().collect();
    match opened.gaps.len().saturating_sub(MOST_NAMED) {
        0 => {}
        more => lines.push(format!("and {more} more gaps")),
    }
    lines.iter().map(|line| visible(line).into_owned()).collect()
}

fn all_sentences(runs: &[RunAcross]) -> Vec<String> {
    runs.iter().flat_map(|run| sentences(run, runs.len() > 1)).collect()
}

fn explained(
    table: &Table,
) -> impl Iterator<Item = &'static (&'static str, &'static str, &'static str)> {
    let has = |name: &str| table.columns.iter().any(|column| column.name == name);
    EXPLAINED.iter().filter(move |(name, ..)| has(name))
}

fn text(out: &mut Out, width: Option<usize>, opened: &Opened, rows: &Table) -> io::Result<()> {
    let prose = width.unwrap_or(PROSE_WIDTH);
    for line in all_sentences(&opened.runs) {
        wrapped(out, "", &line, prose)?;
    }
    for gap in gaps(opened) {
        wrapped(out, "incomplete: ", &gap, prose)?;
    }
    for run in &opened.runs {
        if let Some(line) = about_clocks(run) {
            wrapped(out, "clocks: ", &line, prose)?;
        }
    }
    out.write_all(b"\n")?;
    table(out, rows, width)?;
    for (_, label, text) in explained(rows) {
        wrapped(out, label, text, prose)?;
    }
    Ok(())
}

fn count(number: Option<i128>) -> Option<Value> {
    number.and_then(|n| u128::try_from(n).ok()).map(Value::Count)
}

fn total(sums: &Sums) -> Option<Value> {
    let value = sums.total_ns? as f64;
    Some(match sums.total_range_ns {
        Some((low, high)) if sums.is_estimate => {
            let of = Estimate { value, low: low as f64, high: high as f64 };
            Value::Estimated(Quantity::Ns, of, true)
        }
        _ => Value::Ns(value),
    })
}

fn own(sums: &Sums) -> Option<Value> {
    sums.own_ns.map(|ns| Value::Ns(ns as f64))
}

/// Returns the margin of error of an estimated self time. The margin is infinite, which the table
/// shows as `±?`, because a dataset has no intervals of self times.
fn margin(sums: &Sums) -> Option<f64> {
    sums.is_estimate.then_some(f64::INFINITY)
}

/// Returns the column with the names of runs. Tables for people contain this column only if there
/// are several runs.
fn run_column(runs: &[RunAcross], of_rows: Vec<Option<Value>>) -> Column {
    match runs.len() {
        0 | 1 => Column::for_programs("run", of_rows),
        _ => Column::new(0, "run", "run", of_rows),
    }
}

fn of_ranks(runs: &[RunAcross]) -> Table {
    let all: Vec<(&RunAcross, &RankAcross)> =
        runs.iter().flat_map(|run| run.ranks.iter().map(move |rank| (run, rank))).collect();
    let cells = |cell: &dyn Fn(&RunAcross, &RankAcross) -> Option<Value>| -> Vec<Option<Value>> {
        all.iter().map(|(run, rank)| cell(run, rank)).collect()
    };
    let column =
        |rank, name: &str, title: &str, cell: &dyn Fn(&RunAcross, &RankAcross) -> Option<Value>| {
            Column::new(rank, name, title, cells(cell))
        };
    let own_margin = all.iter().map(|(_, rank)| margin(&rank.sums)).collect();
    let columns = vec![
        column(0, "rank", "rank", &|_, rank| Some(Value::Count(rank.rank.into()))),
        run_column(runs, cells(&|run, _| Some(Value::Text(run.run.clone())))),
        column(6, "host", "machine", &|_, rank| {
            (!rank.place.hosts.is_empty()).then(|| Value::Text(rank.place.hosts.join(", ")))
        }),
        Column::for_programs(
            "processes",
            cells(&|_, rank| Some(Value::Count(rank.place.processes.into()))),
        ),
        column(4, "calls", "calls", &|_, rank| count(rank.sums.calls)),
        Column {
            margin: Some(own_margin),
            ..column(1, "self_ns", "self", &|_, rank| own(&rank.sums))
        },
        column(1, "of_mean", "of mean", &|_, rank| rank.of_mean.map(Value::Number)),
        column(2, "slow_op", "most above the median in", &|run, rank| {
            let op = &run.ops[rank.slow?.op];
            Some(Value::Text(op.name.clone()))
        }),
        Column::for_programs(
            "slow_op_key",
            cells(&|run, rank| Some(Value::Text(run.ops[rank.slow?.op].key.clone()))),
        ),
        column(2, "above_ns", "above", &|_, rank| Some(Value::Ns(rank.slow?.ns()))),
        Column::for_programs("above_part", cells(&|_, rank| rank.slow?.part().map(Value::Part))),
        column(3, "stands_out", "!", &|_, rank| {
            rank.slow.filter(|slow| slow.stands_out).map(|_| Value::Text("!".to_owned()))
        }),
        column(5, "losses", "losses", &|_, rank| Some(Value::Count(rank.place.losses.into()))),
        column(7, "clock", "clock", &|_, rank| Some(Value::Text(rank.place.clock.clone()))),
        column(7, "clock_uncertainty_ns", "clock ±", &|_, rank| {
            Some(Value::Ns(rank.place.clock_uncertainty_ns? as f64))
        }),
        column(4, "offset_ns", "offset", &|_, rank| Some(Value::Ns(rank.place.offset?.ns()))),
        column(4, "offset_uncertainty_ns", "offset ±", &|_, rank| {
            Some(Value::Ns(rank.place.offset?.uncertainty_ns()))
        }),
    ];
    let rows = all.len();
    Table::new(columns, (0..rows).collect())
}

fn of_ops(runs: &[RunAcross], filter: Option<&str>) -> Table {
    let all: Vec<(&RunAcross, &OpAcross)> =
        runs.iter().flat_map(|run| run.ops.iter().map(move |op| (run, op))).collect();
    let cells = |cell: &dyn Fn(&RunAcross, &OpAcross) -> Option<Value>| -> Vec<Option<Value>> {
        all.iter().map(|(run, op)| cell(run, op)).collect()
    };
    let column =
        |rank, name: &str, title: &str, cell: &dyn Fn(&RunAcross, &OpAcross) -> Option<Value>| {
            Column::new(rank, name, title, cells(cell))
        };
    let ns = |ns: Option<u64>| ns.map(|ns| Value::Ns(ns as f64));
    let own_margin = all.iter().map(|(_, op)| margin(&op.sums)).collect();
    let columns = vec![
        column(0, "op", "op", &|_, op| Some(Value::Text(op.name.clone()))),
        run_column(runs, cells(&|run, _| Some(Value::Text(run.run.clone())))),
        Column::for_programs("op_key", cells(&|_, op| Some(Value::Text(op.key.clone())))),
        column(4, "ranks", "ranks", &|_, op| Some(Value::Count(op.ranks as u128))),
        column(3, "calls", "calls", &|_, op| count(op.sums.calls)),
        column(2, "total_ns", "total", &|_, op| total(&op.sums)),
        Column { margin: Some(own_margin), ..column(1, "self_ns", "self", &|_, op| own(&op.sums)) },
        column(2, "share", "share", &|run, op| run.share(op).map(Value::Part)),
        column(2, "imbalance", "imbalance", &|_, op| op.imbalance.map(Value::Number)),
        column(4, "most_rank", "most on rank", &|_, op| Some(Value::Count(op.most?.into()))),
        column(5, "p50_ns", "p50", &|_, op| ns(op.p50_ns)),
        column(5, "p99_ns", "p99", &|_, op| ns(op.p99_ns)),
    ];
    let is_match =
        |row: &usize| filter.is_none_or(|glob| profile::demangle::matches(glob, &all[*row].1.name));
    Table::new(columns, (0..all.len()).filter(is_match).collect())
}

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    dataset: String,
    sentences: Vec<String>,
    incomplete: &'a [String],
    sort: &'a str,
    filter: Option<&'a str>,
    runs: Vec<RunOut<'a>>,
    rows: Vec<serde_json::Map<String, serde_json::Value>>,
}

#[derive(Serialize)]
struct RunOut<'a> {
    run: &'a str,
    ranks: usize,
    calls: Option<i128>,
    self_ns: Option<i128>,
    imbalance: Option<f64>,
    /// The ranks that stand out, each with the op in which it is furthest above the median. The
    /// rank with the largest difference comes first.
    slow: Vec<SlowOut<'a>>,
}

#[derive(Serialize)]
struct SlowOut<'a> {
    rank: u32,
    op: &'a str,
    op_key: &'a str,
    self_ns: f64,
    median_ns: f64,
    above_ns: f64,
}

fn document<'a>(opened: &'a Opened, args: &'a Args, sort: &'a str, rows: &Table) -> Document<'a> {
    let run = |run: &'a RunAcross| RunOut {
        run: &run.run,
        ranks: run.ranks.len(),
        calls: run.sums.calls,
        self_ns: run.sums.own_ns,
        imbalance: run.imbalance,
        slow: run
            .slow()
            .into_iter()
            .map(|(rank, slow)| SlowOut {
                rank: rank.rank,
                op: &run.ops[slow.op].name,
                op_key: &run.ops[slow.op].key,
                self_ns: slow.own_ns,
                median_ns: slow.median_ns,
                above_ns: slow.ns(),
            })
            .collect(),
    };
    let row = |row: &usize| {
        let cell = |column: &Column| {
            let value = column.cells.get(*row);
            let value = serde_json::to_value(value.as_deref()).unwrap_or_default();
            (column.name.clone(), value)
        };
        rows.columns.iter().map(cell).collect()
    };
    Document {
        schema: SCHEMA,
        dataset: args.profile.display().to_string(),
        sentences: all_sentences(&opened.runs),
        incomplete: &opened.gaps,
        sort,
        filter: args.filter.as_deref(),
        runs: opened.runs.iter().map(run).collect(),
        rows: rows.order.iter().map(row).collect(),
    }
}

fn line_of((name, label, text): &(&str, &str, &str)) -> page::Explained {
    match *name {
        "p50_ns" => page::Explained::columns(["p50_ns", "p99_ns"].map(str::to_owned), label, *text),
        name => page::Explained::column(name, label, *text),
    }
}

fn write_page(path: &Path, args: &Args, opened: &Opened) -> Result<ExitCode, Failure> {
    let mut tables = [of_ranks(&opened.runs), of_ops(&opened.runs, None)];
    tables[0].sort("above")?;
    tables[1].sort("self")?;
    let [ranks, ops] = tables;
    let lines = |table: &Table| explained(table).map(line_of).collect::<Vec<_>>();
    let (of_ranks, of_ops) = (lines(&ranks), lines(&ops));
    let form = |id, title, sort: &str, table, explained| page::Form {
        sort: sort.to_owned(),
        explained,
        ..page::Form::new(id, title, page::Group::Ops, table)
    };
    let forms =
        [form("op", "Ops", "self", ops, of_ops), form("rank", "Ranks", "above", ranks, of_ranks)];
    let runs: Vec<String> = opened.runs.iter().map(|run| visible(&run.run).into_owned()).collect();
    let clocks =
        opened.runs.iter().filter_map(about_clocks).map(|text| ("clocks".to_owned(), text));
    let name = args.profile.file_name().unwrap_or(args.profile.as_os_str());
    let about = page::About {
        program: visible(&name.to_string_lossy()).into_owned(),
        about: runs.join(", "),
        sentences: all_sentences(&opened.runs),
        warnings: gaps(opened).into_iter().map(|gap| format!("incomplete: {gap}")).collect(),
        recording: [("runs".to_owned(), runs.join(", "))].into_iter().chain(clocks).collect(),
    };
    page::write_tables(path, about, &forms)?;
    Ok(ExitCode::SUCCESS)
}
