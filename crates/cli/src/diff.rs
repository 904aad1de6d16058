//! `counterpoint diff`: finds out whether runs of B are slower or faster than runs of A, and which
//! rows changed.
//!
//! ```text
//!  inputs: which runs, which pairs ─► analysis::diff::recorded, one profile after the other
//!                                                │
//!                     answer, gate ◄── analysis::diff::compare ──► columns ─┬─► text
//!                                                                           ├─► markdown
//!                                                            json, csv, page ┘
//! ```

mod answer;
mod columns;
mod gate;
mod history;
mod inputs;
mod json;
mod page;
mod text;

use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use analysis::diff::recorded::By;
use analysis::diff::{Diff, Options, compare};
use clap::ValueEnum;

use crate::failure::Failure;
use crate::input;
use crate::metrics::MetricArgs;
use crate::terminal::{Kind, known_width, say, stdout};
use crate::view::csv;
use crate::view::table::Table;

use gate::Gate;
use inputs::Inputs;

/// Compare runs: is B slower or faster than A, where, and how sure is that?
///
/// A is the base, and B is what is new. In a series, A is the program after `--`, and B that of --against.
///
/// Record pairs of runs in random order with `run --repeat 10 --against 'PROGRAM B' -- PROGRAM A`, and
/// give the directory of this series. Profiles that were recorded otherwise can be compared with
/// --against, but then nothing is tested. Only differences between runs are judged, never between
/// the calls of one run. docs/diff.md says how, and what the verdicts mean.
#[derive(clap::Args)]
pub struct Args {
    /// A series of `run --repeat --against`; or profiles and series of A, the base: what was there before.
    /// Or datasets (`export --dataset`), whose runs are repeats.
    #[arg(required_unless_present = "history", value_name = "A", value_parser = input::profile())]
    a: Vec<PathBuf>,
    /// Profiles and series of B, what is new and is compared with A: `diff OLD --against NEW`.
    #[arg(long, value_name = "B", num_args = 1.., value_parser = input::profile())]
    against: Vec<PathBuf>,
    /// Take the first profile of A and the first of B as a pair, and so on. Only if the runs of each
    /// pair followed each other in random order: if all of A was recorded before all of B, one
    /// verdict in four is wrong.
    #[arg(long, requires = "against")]
    paired: bool,
    /// Find the moments from which on something is slower or faster, in all profiles of this directory, in
    /// the order in which they were recorded. Runs with the same labels, one after the other, count as
    /// one.
    #[arg(long, value_name = "DIR", value_parser = input::profile(), conflicts_with_all = [
        "a", "against", "paired", "sort", "top", "threshold", "html",
    ])]
    history: Option<PathBuf>,
    /// What each row describes.
    #[arg(long, value_enum, default_value_t)]
    by: RowKind,
    /// Show only rows whose name matches. `*` matches any text, `?` any character. All rows are
    /// tested in any case.
    #[arg(long, alias = "op", value_name = "GLOB")]
    filter: Option<String>,
    /// Column to sort by, named as in the table or in CSV. By default, rows with a difference come
    /// first, and those that only one side has come last; among equals, those that add most to the difference of
    /// the whole are first.
    #[arg(long, value_name = "COLUMN")]
    sort: Option<String>,
    /// Show only the first N rows; 0 for all. The default is 30 in a table for people, and all in
    /// other formats.
    #[arg(long, value_name = "N")]
    top: Option<usize>,
    /// The largest difference that is called the same.
    #[arg(long, value_name = "PERCENT", default_value = "3%", value_parser = gate::percent)]
    threshold: f64,
    /// End with status 3 if something is slower by more than this, with 95 % confidence: `5%` of the
    /// whole or of any row, `whole>5%`, `GLOB>5%` of rows that match, `counter:NAME>5%`. Repeatable.
    #[arg(long, value_name = "RULE", value_parser = Gate::parse)]
    fail_if: Vec<Gate>,
    /// Output format.
    #[arg(long, value_enum, default_value_t)]
    format: DiffFormat,
    /// Show values as they were recorded, as `report --raw` does.
    #[arg(long)]
    raw: bool,
    #[command(flatten)]
    metrics: MetricArgs,
    /// Width of the tables in characters, as for `report --width`.
    #[arg(long, value_name = "N")]
    width: Option<usize>,
    /// Write a page for browsers to this file, with this comparison, instead of printing: one file that
    /// needs no network. `-` is standard output.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["format", "filter", "sort", "top", "width"])]
    html: Option<PathBuf>,
}

/// `--by`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum RowKind {
    /// An op, as in a report.
    #[default]
    Op,
    /// A place in the program that launches dispatches of IREE.
    Site,
    /// A loop or function of an instrumented module.
    Loop,
    /// A PyTorch module, from recordings of PyTorch's profiler.
    Module,
    /// A kind of activities, as the trace or the plugin calls it.
    Activity,
}

impl RowKind {
    fn by(self) -> By {
        match self {
            Self::Op => By::Op,
            Self::Site => By::Site,
            Self::Loop => By::Loop,
            Self::Module => By::Module,
            Self::Activity => By::Activity,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Op => "op",
            Self::Site => "site",
            Self::Loop => "loop",
            Self::Module => "module",
            Self::Activity => "activity",
        }
    }
}

/// `--format`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum DiffFormat {
    /// One sentence and a table that fits the terminal.
    #[default]
    #[value(alias = "table")]
    Text,
    /// One JSON document; docs/schema.md describes it.
    Json,
    /// Markdown, for a comment on a pull request.
    Markdown,
    /// RFC 4180 with one header line.
    Csv,
}

impl From<DiffFormat> for Kind {
    fn from(format: DiffFormat) -> Self {
        match format {
            DiffFormat::Text | DiffFormat::Markdown => Self::People,
            DiffFormat::Json => Self::Json,
            DiffFormat::Csv => Self::Csv,
        }
    }
}

/// The exit status if a rule of `--fail-if` holds.
const FAILED: u8 = 3;
/// The number of rows of a table for people, unless the user sets it.
const ROWS: usize = 30;

struct View<'a> {
    args: &'a Args,
    inputs: &'a Inputs,
    diff: &'a Diff,
    names: &'a [String],
    table: Table,
    failed: Vec<gate::Failed>,
}

fn print(view: &View<'_>) -> Result<(), Failure> {
    let args = view.args;
    let mut out = BufWriter::new(stdout(args.format.into()));
    match args.format {
        DiffFormat::Text => text::print(&mut out, view, args.width.or_else(known_width))?,
        DiffFormat::Markdown => text::markdown(&mut out, view)?,
        DiffFormat::Json => json::print(&mut out, view)?,
        DiffFormat::Csv => csv::print(&mut out, &view.table)?,
    }
    out.flush().map_err(Failure::from)
}

pub fn main(args: Args) -> Result<ExitCode, Failure> {
    if let Some(dir) = &args.history {
        return history::main(&args, dir);
    }
    let mut inputs = Inputs::find(&args)?;
    let [a, b] = inputs.read(&args)?;
    if a.iter().chain(&b).all(|run| run.rows.is_empty()) {
        return Err(match args.by {
            RowKind::Op => Failure::new("no run has ops to compare")
                .hint("`--by activity` compares what plugins and traces recorded"),
            by => Failure::new(format!("--by {}: no run has such rows", by.name()))
                .hint("without --by, each row is an op"),
        });
    }
    let options = Options { by: args.by.by(), threshold: args.threshold };
    let diff = compare(&a, &b, &inputs.pairs, &options);
    if !args.fail_if.is_empty() && diff.untested.is_some() {
        return Err(Failure::new(format!("--fail-if: {}", answer::why_untested(&diff))).hint(
            "record with `counterpoint run --repeat 10 --against 'PROGRAM B' -- PROGRAM A`",
        ));
    }
    let names = columns::names(&diff);
    let failed = gate::check(&args.fail_if, &diff, &names, args.threshold)?;
    let mut table = columns::table(&diff, &names, args.by.name());
    if let Some(glob) = &args.filter {
        table.order.retain(|row| {
            let of = &diff.rows[*row];
            let mut all = of.a.iter().chain(&of.b).map(|one| one.name.as_str());
            all.any(|name| profile::demangle::matches(glob, name))
        });
    }
    let none_match = args.filter.is_some() && table.order.is_empty();
    if let Some(sort) = &args.sort {
        table.sort(sort)?;
    }
    let for_people =
        matches!(args.format, DiffFormat::Text | DiffFormat::Markdown) && args.html.is_none();
    let top = args.top.or(for_people.then_some(ROWS)).filter(|rows| *rows > 0);
    table.keep_first(top);
    let view = View { args: &args, inputs: &inputs, diff: &diff, names: &names, table, failed };
    match &args.html {
        Some(path) => page::write(path, &view)?,
        None => print(&view)?,
    }
    for failed in view.failed.iter().filter(|failed| !failed.rows.is_empty()) {
        say!("--fail-if '{}': {}", failed.rule, failed.rows.join("; "));
    }
    if view.failed.iter().any(|failed| !failed.rows.is_empty()) {
        return Ok(ExitCode::from(FAILED));
    }
    if none_match {
        say!("--filter {}: no row matches", args.filter.as_deref().unwrap_or_default());
        return Ok(ExitCode::from(1));
    }
    Ok(ExitCode::SUCCESS)
}
