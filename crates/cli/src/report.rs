//! `counterpoint report`: prints the table of ops, and the sentences, notes and losses around it.
//!
//! ```text
//!  open (also what a crash left) ─► analysis::summarize ─► rows of columns ─┬─► text
//!                                                                               ├─► json
//!                                                                               └─► csv
//! ```

mod between;
mod dataset;
mod json;
mod launches;
mod page;
mod roofline;
mod sites;
mod text;
mod torch;
mod tree;

use std::io::{self, BufWriter, Stdout, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use analysis::{By, OpFilter, Options, summarize};
use clap::ValueEnum;
use profile::loops::Loops as Recorded;
use profile::{Profile, merge_losses};
use serde::Serialize;

use crate::failure::Failure;
use crate::input;
use crate::matching;
use crate::metrics::{MetricArgs, Offer, of_profile};
use crate::output::{Format, milliseconds};
use crate::terminal::{Screen, is_verbose, known_width, say, stdout};
use crate::view;
use crate::view::columns;
use crate::view::csv;
use crate::view::loops::{Loops, show};
use crate::view::open::open;
use crate::view::overview::Overview;
use crate::view::ranks::RankArgs;
use crate::view::rights::Needs;
use crate::view::table::{Table, Value};

/// Show where the time went: one row per op, with its counters.
///
/// Data that a crashed program left behind is read, too. Percentages are of total self
/// time, before filtering. Self time is a call's duration without the calls inside it.
#[derive(clap::Args)]
pub struct Args {
    /// Profile directory, or a dataset of many ranks (`export --dataset`): its rows are by op or by rank.
    #[arg(default_value = "counterpoint.cpt", value_name = "PROFILE", value_parser = input::profile())]
    profile: PathBuf,
    /// Of a dataset, only this run.
    #[arg(long, value_name = "NAME")]
    run: Option<String>,
    /// Of a dataset with calls (`export --calls`), align the clocks of the ranks by this op, which no rank
    /// leaves before all have entered it: a barrier, or a collective op that waits.
    #[arg(long, value_name = "GLOB")]
    align_by: Option<String>,
    /// What each row describes. The default in a table for people is what was recorded: `loop` if that is
    /// loops only, and otherwise `op`. Other formats have `op`.
    #[arg(long, value_enum)]
    by: Option<RowKind>,
    /// Show calls inside of each other (run, op, dispatch, loop) instead of one row for each op.
    #[arg(long, conflicts_with_all = ["by", "kind", "device", "stream", "skip_ms", "metric", "metrics_file"])]
    tree: bool,
    /// Show how far each op is from what this machine can do, where its work is known: operations and bytes
    /// per second, and the part of the roof above it. `counterpoint roofline` measures the machine.
    #[arg(long, conflicts_with_all = ["by", "tree", "kind", "device", "stream", "skip_ms", "html", "raw"])]
    roofline: bool,
    /// With --roofline, a file of rules that say how many operations an op does and how many bytes it
    /// moves, a rule in each line: docs/roofline.md describes the file. These rules come before the
    /// built-in ones. Repeatable.
    #[arg(long, value_name = "FILE", requires = "roofline")]
    work: Vec<PathBuf>,
    /// With --roofline, the roofs of the machine of the profile: what `counterpoint roofline --format json`
    /// printed there.
    #[arg(long, value_name = "FILE", requires = "roofline")]
    roofs: Option<PathBuf>,
    /// Column to sort by, named as in the table or in CSV. Counters are columns, too. The default is
    /// `self` if calls are inside of other calls and the run had no budget, and otherwise `total`.
    #[arg(long, value_name = "COLUMN")]
    sort: Option<String>,
    /// Only ops or loops whose name matches. `*` matches any text, `?` any character.
    #[arg(long, alias = "op", value_name = "GLOB")]
    filter: Option<String>,
    /// Only activities of kinds that match: as the trace calls them (`cuda_runtime`), or by their
    /// generic names (`runtime`).
    #[arg(long, value_name = "GLOB")]
    kind: Option<String>,
    /// Only activities on devices whose number or name matches.
    #[arg(long, value_name = "GLOB")]
    device: Option<String>,
    /// Only activities on streams whose number or name matches.
    #[arg(long, value_name = "GLOB")]
    stream: Option<String>,
    #[command(flatten)]
    ranks: RankArgs,
    /// Leave out calls that began in the first MS milliseconds after each thread's first call
    /// began, as if they had not been recorded.
    #[arg(long, value_name = "MS", default_value = "0", value_parser = milliseconds)]
    skip_ms: f64,
    /// Output format.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
    /// Show values as they were recorded. Without this option, what an empty call reads is
    /// subtracted from durations and counters, once for each call in a sum.
    #[arg(long)]
    raw: bool,
    #[command(flatten)]
    metrics: MetricArgs,
    /// Width of the tables in characters. The default is the width of the terminal, or else the
    /// variable COLUMNS. Without either, tables are as wide as they need to be.
    #[arg(long, value_name = "N")]
    width: Option<usize>,
    /// Write a page for browsers to this file, with this report and much more to look at, instead of
    /// printing: one file that needs no network. `-` is standard output.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["format", "by", "tree", "sort", "filter", "kind", "device", "stream", "skip_ms", "metric", "metrics_file", "width", "top"])]
    html: Option<PathBuf>,
    /// With --html, open the files that the profile names to show the code of loops, as `loops report
    /// --asm --source` does. Without this option, the page has the code that the profile itself contains.
    #[arg(long, requires = "html")]
    code: bool,
    /// With --html, a directory in which the machine code of loops is looked for, as for
    /// `loops report --objects`. Repeatable.
    #[arg(long, value_name = "DIR", requires = "html")]
    objects: Vec<PathBuf>,
    /// With --html, a directory in which the texts that were instrumented are looked for. Repeatable.
    #[arg(long, value_name = "DIR", requires = "html")]
    sources: Vec<PathBuf>,
    /// With --html, a file that `trace export` wrote of this profile, or its address. The page then says where
    /// each call is in that file; from an address (https://…), it opens the call in Perfetto.
    #[arg(long, value_name = "FILE", requires = "html")]
    trace: Option<PathBuf>,
    /// Show only the first N rows of the table, after sorting; 0 for all. Sums are those of all rows.
    /// The default is 30 in a table for people, and all in other formats.
    #[arg(long, value_name = "N")]
    top: Option<usize>,
}

impl Args {
    /// Returns the number of rows to show; `None` for all rows.
    fn top(&self) -> Option<usize> {
        crate::view::table::top(self.top, self.format)
    }
}

/// `--by`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum RowKind {
    /// An exported function.
    #[default]
    Op,
    /// A thread.
    Thread,
    /// A CPU.
    Cpu,
    /// A process.
    Process,
    /// A rank of a distributed job.
    Rank,
    /// A kind of activities, as the trace or the plugin calls it.
    Kind,
    /// A device.
    Device,
    /// A stream of a device.
    Stream,
    /// An op, and what it launched on devices, from the ids that plugins got (`run --plugin-ids`).
    Launch,
    /// A PyTorch module, with its ops, from recordings of PyTorch's profiler.
    Module,
    /// A line of Python code that calls PyTorch, with its ops, from recordings of PyTorch's profiler.
    Line,
    /// A PyTorch op with inputs of certain shapes, from recordings of PyTorch's profiler.
    Shape,
    /// An op of a virtual machine or of PyTorch with certain arguments, in its runs. `ops` has more
    /// options.
    Arguments,
    /// A place in the program that launches dispatches of IREE.
    Site,
    /// The time of a thread in no call, after one op and before another.
    Between,
    /// A function or a loop that was instrumented, below what is around it. `loops report` has more
    /// options.
    Loop,
}

impl RowKind {
    /// Returns how calls are grouped into these rows; `None` for rows that are made in another way
    /// than by [`By`].
    fn of_calls(self) -> Option<By> {
        match self {
            Self::Op => Some(By::Op),
            Self::Thread => Some(By::Thread),
            Self::Cpu => Some(By::Cpu),
            Self::Process => Some(By::Process),
            Self::Rank => Some(By::Rank),
            Self::Kind => Some(By::Kind),
            Self::Device => Some(By::Device),
            Self::Stream => Some(By::Stream),
            Self::Launch | Self::Module | Self::Line | Self::Shape => None,
            Self::Arguments | Self::Site | Self::Between | Self::Loop => None,
        }
    }

    /// Whether the rows are made directly from activities (events of plugins and of PyTorch's
    /// profiler), and not from calls.
    fn of_activities(self) -> bool {
        matches!(self, Self::Launch | Self::Module | Self::Line | Self::Shape)
    }
}

struct Report<'a> {
    overview: Overview<'a>,
    table: Table,
    sort: &'a str,
    loops: &'a Loops<'a>,
    verbose: bool,
}

/// Returns an error if the user gave an option that cannot be used with `by`, a kind of rows for
/// which [`RowKind::of_calls`] returns `None`.
fn refuse_what_needs_calls(args: &Args, by: RowKind) -> Result<(), Failure> {
    let has_form =
        matches!(by, RowKind::Loop | RowKind::Arguments | RowKind::Between | RowKind::Site);
    let has_metrics = by == RowKind::Shape;
    let given = [
        (args.skip_ms > 0.0, "--skip-ms"),
        (args.raw && !has_form, "--raw"),
        (args.kind.is_some() && has_form, "--kind"),
        (args.device.is_some() && has_form, "--device"),
        (args.stream.is_some() && has_form, "--stream"),
        (!args.metrics.metric.is_empty() && !has_metrics, "--metric"),
        (!args.metrics.metrics_file.is_empty() && !has_metrics, "--metrics-file"),
    ];
    let name = by.to_possible_value();
    let name = name.as_ref().map_or("", |name| name.get_name());
    match given.iter().find(|(given, _)| *given) {
        Some((_, option)) => Err(Failure::new(format!("{option} cannot be used with --by {name}"))),
        None => Ok(()),
    }
}

type Out = BufWriter<Screen<Stdout>>;

fn output<D: Serialize>(
    args: &Args,
    table: &Table,
    text: impl FnOnce(&mut Out, Option<usize>) -> io::Result<()>,
    document: impl FnOnce() -> D,
) -> Result<ExitCode, Failure> {
    let mut out = BufWriter::new(stdout(args.format.into()));
    match args.format {
        Format::Table => text(&mut out, args.width.or_else(known_width).map(|n| n.max(40)))?,
        Format::Csv => csv::print(&mut out, table)?,
        Format::Json => {
            serde_json::to_writer_pretty(&mut out, &document()).map_err(io::Error::from)?;
            writeln!(out)?;
        }
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the kind of rows for a table if the user gave no `--by`.
fn first(profile: &Profile, recorded: &Recorded) -> RowKind {
    let has_calls = profile.calls() > 0 || !profile.counted().is_empty();
    let has_loops = recorded.rows.iter().any(|row| row.hits > 0);
    match has_loops && !has_calls && profile.tracks.is_empty() {
        true => RowKind::Loop,
        false => RowKind::Op,
    }
}

/// Prints the table of loops, which `loops report` also prints.
fn loops(args: &Args, profile: &Profile, recorded: &Recorded) -> Result<ExitCode, Failure> {
    let chosen = show::Chosen {
        format: show::LoopFormat::Of(args.format),
        raw: args.raw,
        filter: args.filter.as_deref(),
        sort: args.sort.as_deref(),
        top: args.top,
        width: args.width,
        verbose: is_verbose(),
        threads: false,
        all: false,
        table: &[],
        asm: false,
        source: false,
        objects: Vec::new(),
        sources: Vec::new(),
        only: Vec::new(),
    };
    show::print(profile, recorded, chosen)
}

/// Prints the table of ops with their arguments, which `counterpoint ops` also prints.
fn ops(args: &Args, profile: &Profile) -> Result<ExitCode, Failure> {
    let chosen = view::ops::Chosen {
        format: args.format,
        filter: args.filter.as_deref(),
        sort: args.sort.as_deref(),
        top: args.top,
        verbose: is_verbose(),
        trees: OpFilter::default(),
        all: false,
        by_rank: false,
        raw: args.raw,
        width: args.width,
    };
    view::ops::print(profile, &chosen)
}

pub fn main(args: Args) -> Result<ExitCode, Failure> {
    if ::dataset::open::is_dataset(&args.profile) {
        return dataset::main(&args);
    }
    if args.run.is_some() || args.align_by.is_some() {
        let option = if args.run.is_some() { "--run" } else { "--align-by" };
        let why = format!("{option}: {} is not a dataset", args.profile.display());
        return Err(Failure::new(why).hint("`export --dataset` makes one of profiles"));
    }
    let before = (args.roofline || args.html.is_some())
        .then(|| roofline::Before::read(&args))
        .transpose()?;
    let files = args.metrics.metrics_file.iter().chain(&args.objects).chain(&args.sources);
    let needs = Needs {
        outputs: args.html.iter().cloned().collect(),
        named_files: args.code,
        ..Needs::files(files)
    };
    let mut profile = open(&args.profile, &needs)?;
    if args.by.is_some_and(RowKind::of_activities) {
        args.ranks.refuse_shared(&profile)?;
    }
    args.ranks.choose(&mut profile)?;
    if let (true, Some(before)) = (args.roofline, &before) {
        return roofline::main(&args, &profile, before);
    }
    if args.tree {
        return tree::main(&args, &profile);
    }
    let recorded = profile.loops().map_err(Failure::new)?;
    let by = args.by.unwrap_or_else(|| match args.format == Format::Table && args.html.is_none() {
        true => first(&profile, &recorded),
        false => RowKind::Op,
    });
    if by.of_calls().is_none() {
        refuse_what_needs_calls(&args, by)?;
    }
    let by = match (by, by.of_calls()) {
        (RowKind::Site, _) => return sites::main(&args, &profile),
        (RowKind::Between, _) => return between::main(&args, &profile),
        (RowKind::Launch, _) => return launches::main(&args, &profile),
        (RowKind::Arguments, _) => return ops(&args, &profile),
        (RowKind::Loop, _) => return loops(&args, &profile, &recorded),
        (_, None) => return torch::main(&args, &profile, by),
        (_, Some(by)) => by,
    };
    if args.skip_ms > 0.0 && profile.is_sampled() {
        return Err(Failure::new(
            "--skip-ms: with a budget, calls that were only counted do not say when they began, so it \
             is not known how many are to be left out",
        )
        .hint("`counterpoint stats --skip-ms` leaves out timed calls; `run` without --budget times all"));
    }
    if args.skip_ms > 0.0 {
        profile.leave_out_first((args.skip_ms * 1e6).round() as u64);
    }
    let options = Options {
        by,
        filter: args.filter.clone(),
        kind: args.kind.clone(),
        device: args.device.clone(),
        stream: args.stream.clone(),
        metrics: of_profile(&args.metrics, &profile, Offer::Builtins)?,
        raw: args.raw,
        gaps: by == By::Op,
        levels: args.html.is_some(),
        ..Options::default()
    };
    let mut summary = summarize(&profile, &options);
    let tracks = analysis::tracks(&profile).map_err(Failure::new)?;
    let loops = Loops::new(&profile, &recorded, &[], false);
    let found = tracks.losses.iter().chain(&recorded.losses);
    summary.losses = merge_losses(summary.losses.iter().chain(found));
    let mut table = columns::of_summary(&profile, &summary, &options);
    let is_whole = args.filter.is_none() && by == By::Op;
    let between = summary.between(&profile).filter(|_| is_whole);
    if let Some(ns) = between {
        let each = if profile.manifest.passes > 0 { profile.passes().max(1) } else { 1 };
        let ns = ns / f64::from(each);
        table.add_rest(|column| match column {
            "op" => Some(Value::Text("(between)".to_owned())),
            "total_ns" | "self_ns" => Some(Value::Ns(ns)),
            _ => None,
        });
    }
    // If calls are inside of other calls, the total of an op includes these inner calls, so the
    // table is sorted by self time (except a table by thread). But with `--budget`, some calls were
    // only counted, and their self time is not known.
    let by_self = summary.nested && by != By::Thread && summary.sampled.is_none();
    let usual = if by_self { "self" } else { "total" };
    let sort = args.sort.as_deref().unwrap_or(usual);
    table.sort(sort)?;
    if args.html.is_none() {
        table.keep_first(args.top());
    }
    let overview = Overview {
        profile: &profile,
        summary: &summary,
        tracks: &tracks,
        by: options.by,
        filter: args.filter.as_deref(),
        places: [&args.kind, &args.device, &args.stream].map(Option::as_deref),
        skip_ms: args.skip_ms,
        raw: summary.raw,
        metrics: &options.metrics,
    };
    if let (Some(path), Some(before)) = (&args.html, &before) {
        let files = page::Beside {
            named: args.code,
            objects: &args.objects,
            sources: &args.sources,
            trace: args.trace.as_deref(),
        };
        page::write(path, &overview, table, sort, &recorded, &files, before)?;
        return Ok(ExitCode::SUCCESS);
    }
    let report = Report { overview, table, sort, loops: &loops, verbose: is_verbose() };
    let mut out = BufWriter::new(stdout(args.format.into()));
    match args.format {
        Format::Table => text::print(&mut out, &report, args.width.or_else(known_width))?,
        Format::Json => json::print(&mut out, &report)?,
        Format::Csv => csv::print(&mut out, &report.table)?,
    }
    out.flush()?;
    match &args.filter {
        Some(glob) if summary.rows.is_empty() && summary.calls > 0 => {
            matching::no_op(&profile, "--filter", glob);
            Ok(ExitCode::from(1))
        }
        // The CPU is known only for timed calls.
        _ if summary.rows.is_empty() && by == By::Cpu && profile.is_sampled() => {
            say!("no call was timed, so it is not known on which CPUs they were");
            Ok(ExitCode::SUCCESS)
        }
        _ if summary.rows.is_empty() && summary.calls > 0 => {
            let given =
                [("--kind", &args.kind), ("--device", &args.device), ("--stream", &args.stream)];
            let given: Vec<String> = given
                .iter()
                .filter_map(|(option, glob)| Some(format!("{option} {}", glob.as_ref()?)))
                .collect();
            say!("no activity matches {}", given.join(" "));
            Ok(ExitCode::from(1))
        }
        _ => Ok(ExitCode::SUCCESS),
    }
}
