//! `counterpoint-query`: runs SQL queries on a dataset, with DataFusion.
//!
//! ```text
//!  DATASET ─ dataset::Dataset::open ─► whole parts ─► one table per directory ─┐
//!                                      gaps, which are named                   ├─► rows
//!  SQL, or a kept query ──────────────── checked sum, avg; pearson, bucket_ns ─┘
//! ```
//!
//! | module | what it does |
//! |---|---|
//! | [`engine`] | registers the tables, sets the limits, and runs a query |
//! | [`sum`] | SQL functions for sums and means; a sum that cannot be represented is an error |
//! | [`functions`] | SQL functions for correlations and for the buckets of histograms |
//! | [`addresses`] | parses addresses of a cluster, and defines the arguments of its programs |
//! | [`cluster`] | runs queries on a Ballista cluster; without the feature `ballista`, `no_cluster` replaces it |
//! | [`kept`] | the queries that this program stores by name |
//! | [`print`] | prints rows as text, CSV or JSON |
//! | [`progress`] | shows the progress of a query |
//! | `footer` | checks the footer of a Parquet file; a source file of the crate `dataset` |
//! | `hidden` | replaces characters that a terminal must not get; a source file of `counterpoint` |
//!
//! Statements that would write are refused, and paths are not accepted as tables.
#![forbid(unsafe_code)]

mod addresses;
#[cfg(feature = "ballista")]
mod cluster;
#[cfg(not(feature = "ballista"))]
#[path = "no_cluster.rs"]
mod cluster;
mod engine;
#[path = "../../crates/dataset/src/footer.rs"]
mod footer;
mod functions;
#[path = "../../crates/cli/src/terminal/hidden.rs"]
mod hidden;
mod kept;
mod print;
mod progress;
mod sum;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use addresses::Program;
use clap::Parser;
use dataset::Dataset;
use hidden::visible;
use progress::{Step, Words};

/// The largest number of times that a query is repeated because its dataset changed.
const MOST_CHANGES: u32 = 5;
/// The largest number of gaps of a dataset (such as missing parts) that are listed.
const MOST_NAMED: usize = 20;

/// Ask a dataset of many ranks in SQL.
///
/// Tables: stats, counters, hist, ops, processes, losses, calls (docs/datasets.md). Sums of whole numbers
/// are right, or an error beyond 38 digits. Parts that are missing or damaged are named and left out.
#[derive(Parser)]
#[command(
    version,
    disable_help_subcommand = true,
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true
)]
struct Args {
    #[command(subcommand)]
    program: Option<addresses::Program>,
    /// The dataset.
    #[arg(short, long, value_name = "DIR")]
    dataset: Option<PathBuf>,
    /// The query.
    #[arg(value_name = "SQL", required_unless_present_any = ["kept", "list"], conflicts_with = "kept")]
    sql: Option<String>,
    /// Run a query that is kept under this name; --list lists them.
    #[arg(short, long, value_name = "NAME")]
    kept: Option<String>,
    /// List the queries that are kept, or print the one that --kept names.
    #[arg(long)]
    list: bool,
    /// Format of the rows.
    #[arg(long, value_enum, default_value_t)]
    format: print::Format,
    /// The same as --format json.
    #[arg(long, conflicts_with = "format")]
    json: bool,
    /// Memory for sorting, joining and grouping, for example 512M or 4G. What needs more goes to
    /// temporary files, or is an error that names the limit.
    #[arg(long, value_name = "SIZE", value_parser = engine::size)]
    memory: Option<usize>,
    /// Threads. The rows do not depend on them.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// Run the query on a cluster of Ballista, with the scheduler at ballista://HOST:PORT (needs the feature
    /// ballista). All of its programs must see the dataset under the same path.
    #[arg(long, value_name = "URL", value_parser = addresses::engine, conflicts_with = "memory")]
    engine: Option<addresses::Place>,
    /// Print only rows, and what went wrong: no progress.
    #[arg(short, long, overrides_with = "quiet", conflicts_with = "verbose")]
    quiet: bool,
    /// Print also each step with the time that it took.
    #[arg(short, long, overrides_with = "verbose")]
    verbose: bool,
    /// Every command of `counterpoint` has these two. Rows have no colours, and there is no pager.
    #[arg(long, hide = true, value_name = "WHEN")]
    color: Option<String>,
    #[arg(long, hide = true)]
    no_pager: bool,
}

impl Args {
    fn words(&self) -> Words {
        match (self.quiet, self.verbose) {
            (true, _) => Words::Quiet,
            (_, true) => Words::Verbose,
            _ => Words::Usual,
        }
    }

    fn format(&self) -> print::Format {
        if self.json { print::Format::Json } else { self.format }
    }
}

fn main() -> ExitCode {
    let args = Args::parse();
    match run(&args) {
        Ok(code) => code,
        Err(why) => {
            eprintln!("counterpoint: {}", lines_of(&why));
            ExitCode::from(2)
        }
    }
}

/// Replaces all hidden characters except line breaks.
fn lines_of(text: &str) -> String {
    text.lines().map(visible).collect::<Vec<_>>().join("\n")
}

fn open(dir: &Path) -> Result<Dataset, String> {
    let dataset = engine::quietly(|| Dataset::open_with(dir, &footer::problem));
    dataset?.map_err(|e| e.to_string())
}

/// Runs the query. While a recorded program is running, its part of the dataset is replaced from
/// time to time. If the query fails and a part was replaced meanwhile, the query is repeated, at
/// most [`MOST_CHANGES`] times.
fn answer(
    args: &Args,
    dir: &Path,
    sql: &str,
    limits: &engine::Limits,
) -> Result<(Dataset, Result<engine::Answer, String>), String> {
    let step = Step::begin(&format!("opening {}", dir.display()), args.words());
    let mut dataset = open(dir)?;
    drop(step);
    let mut changes = 0;
    loop {
        let step = Step::begin(&format!("asking {}", dir.display()), args.words());
        let answer = engine::run(&dataset, sql, limits);
        drop(step);
        let now = if answer.is_err() { open(dir)? } else { Dataset::default() };
        if answer.is_ok() || now.parts == dataset.parts || changes == MOST_CHANGES {
            return Ok((dataset, answer));
        }
        (dataset, changes) = (now, changes + 1);
    }
}

fn run(args: &Args) -> Result<ExitCode, String> {
    if args.program.is_some() || args.engine.is_some() {
        cluster::is_built()?;
    }
    match &args.program {
        Some(Program::Scheduler(args)) => {
            return cluster::scheduler(args).map(|()| ExitCode::SUCCESS);
        }
        Some(Program::Executor(args)) => {
            return cluster::executor(args).map(|()| ExitCode::SUCCESS);
        }
        None => {}
    }
    let kept = match &args.kept {
        None => None,
        Some(name) => Some(kept::find(name).ok_or_else(|| {
            format!("--kept {name}: there is no such query; there are: {}", kept::names())
        })?),
    };
    if args.list {
        let text = kept.map_or_else(kept::list, |kept| kept.sql.to_owned());
        return match std::io::stdout().write_all(text.as_bytes()) {
            Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => Err(e.to_string()),
            _ => Ok(ExitCode::SUCCESS),
        };
    }
    let dir = args.dataset.as_ref().ok_or("say which dataset: --dataset DIR")?;
    let sql = kept.map_or(args.sql.as_deref().unwrap_or_default(), |kept| kept.sql);
    let threads = args
        .threads
        .map_or_else(|| std::thread::available_parallelism().map_or(1, usize::from), usize::from);
    let limits = engine::Limits { cluster: args.engine.clone(), threads, memory: args.memory };
    let (dataset, answer) = answer(args, dir, sql, &limits)?;
    for gap in dataset.gaps.iter().take(MOST_NAMED) {
        eprintln!("counterpoint: {}", visible(&gap.to_string()));
    }
    if dataset.gaps.len() > MOST_NAMED {
        eprintln!("counterpoint: and {} more gaps", dataset.gaps.len() - MOST_NAMED);
    }
    let (schema, rows) = answer?;
    match print::print(&mut std::io::stdout().lock(), &schema, &rows, args.format()) {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => Err(e.to_string()),
        _ => Ok(ExitCode::SUCCESS),
    }
}
