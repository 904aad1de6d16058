//! `counterpoint stats`: shows how the values of an op's calls (durations and counters) are
//! distributed, and how they correlate.
//!
//! ```text
//!  open (also what a crash left) ─► analysis::stats ─┬─► text: for people, and for the
//!                                                        │         original hook's users
//!                                                        ├─► json
//!                                                        └─► csv: one row per variable
//! ```

mod csv;
mod json;

use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use analysis::stats::{MOST_BUCKETS, Options, Stats, TooManyCalls, stats};
use clap::ValueEnum;
use profile::{Profile, merge_losses};

use crate::failure::Failure;
use crate::input;
use crate::matching;
use crate::metrics::{MetricArgs, Offer, of_profile};
use crate::output::milliseconds;
use crate::terminal::{self, known_width, say, stdout};
use crate::view::labels::labels;
use crate::view::loops::{Loops, spread};
use crate::view::losses;
use crate::view::open::open;
use crate::view::ranks::{self, RankArgs};
use crate::view::rights::Needs;
use crate::view::statistics::{Style, render};
use crate::view::units::plural;

/// Show how the values of an op's calls are distributed, and how they correlate.
///
/// The statistics are shown for all threads together and for each thread: the calls per CPU; the
/// mean, standard deviation, minimum, maximum and bucket means of the duration and of each counter;
/// and for each pair of these, the correlations and the probability of each bucket of one, given
/// each bucket of the other. Calls of different ops are never mixed. Of loops, there are the mean
/// and the standard deviation of the hits that were timed. What the recorder added is subtracted
/// from means, smallest, largest and bucket means; --raw shows them as they were recorded. A call
/// inside of another call of the same op is not described. A call has no value of a counter that
/// was not read, or that was counting for only part of the call. If the run asked for estimates
/// (`--multiplex`), such values are scaled and included, and the counter's name is marked with ≈.
#[derive(clap::Args)]
pub struct Args {
    /// Profile directory.
    #[arg(default_value = "counterpoint.cpt", value_name = "PROFILE", value_parser = input::profile())]
    profile: PathBuf,
    /// Only ops whose name matches. `*` matches any text, `?` any character.
    #[arg(long, alias = "filter", value_name = "GLOB")]
    op: Option<String>,
    /// Only threads with this name (`*` matches any text, `?` any character) or kernel thread id.
    #[arg(long, value_name = "NAME|TID")]
    thread: Option<String>,
    #[command(flatten)]
    ranks: RankArgs,
    /// What is described besides all calls of an op.
    #[arg(long, value_enum, default_value_t)]
    by: StatsBy,
    /// Leave out calls that began in the first MS milliseconds after each thread's first call
    /// began.
    #[arg(long, value_name = "MS", default_value = "0", value_parser = milliseconds)]
    skip_ms: f64,
    /// Number of buckets to cut each distribution into.
    #[arg(long, value_name = "N", default_value_t = 16,
          value_parser = clap::value_parser!(u16).range(1..=MOST_BUCKETS as i64))]
    buckets: u16,
    /// Shade the tables by probability to this power. Below 1, small probabilities become visible.
    #[arg(long, value_name = "G", default_value = "0.5", value_parser = gamma)]
    gamma: f64,
    /// Describe only the N ops with the most time; 0 for all. The default is 3 in text for people if
    /// neither --op nor --thread chooses some, and otherwise all.
    #[arg(long, value_name = "N")]
    top: Option<usize>,
    /// Leave out the tables of probabilities.
    #[arg(long)]
    no_table: bool,
    /// Show values as they were recorded. Without this option, what the recorder added is
    /// subtracted.
    #[arg(long)]
    raw: bool,
    #[command(flatten)]
    metrics: MetricArgs,
    /// Width of the text in characters, as for `report --width`.
    #[arg(long, value_name = "N")]
    width: Option<usize>,
    /// Output format.
    #[arg(long, value_enum, default_value_t)]
    format: StatsFormat,
}

/// The number of ops in the text for people if the user gives neither `--op` nor `--thread` nor
/// `--top`.
const OPS: usize = 3;

/// `--by`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum StatsBy {
    /// The calls of each thread.
    #[default]
    Thread,
    /// The calls of each rank of a distributed job.
    Rank,
}

/// `--format`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum StatsFormat {
    /// Text for people.
    #[default]
    #[value(alias = "table")]
    Text,
    /// One JSON document, one op per line.
    Json,
    /// RFC 4180, one row per op, thread and variable, without the pairs.
    Csv,
}

impl From<StatsFormat> for terminal::Kind {
    fn from(format: StatsFormat) -> Self {
        match format {
            StatsFormat::Text => Self::People,
            StatsFormat::Json => Self::Json,
            StatsFormat::Csv => Self::Csv,
        }
    }
}

struct View<'a> {
    profile: &'a Profile,
    stats: &'a Stats,
    args: &'a Args,
    /// The instrumented loops; `None` if options select calls by thread or by time.
    loops: Option<&'a Loops<'a>>,
}

pub fn main(args: Args) -> Result<ExitCode, Failure> {
    let mut profile = open(&args.profile, &Needs::files(&args.metrics.metrics_file))?;
    args.ranks.choose(&mut profile)?;
    let options = Options {
        op: args.op.clone(),
        thread: args.thread.clone(),
        by_rank: args.by == StatsBy::Rank,
        skip_ns: (args.skip_ms * 1e6).round() as u64,
        buckets: args.buckets.into(),
        tables: !args.no_table,
        metrics: of_profile(&args.metrics, &profile, Offer::Nothing)?,
        workers: 0,
        raw: args.raw,
        memory: None,
    };
    if options.by_rank && profile.known_ranks().is_empty() {
        return Err(Failure::new("--by rank: the profile has no ranks").hint(ranks::ORIGIN));
    }
    let mut stats = stats(&profile, &options).map_err(|error| too_many(&profile, error))?;
    let is_chosen = args.op.is_some() || args.thread.is_some();
    let usual = (args.format == StatsFormat::Text && !is_chosen).then_some(OPS);
    let top = args.top.or(usual).filter(|ops| *ops > 0).unwrap_or(usize::MAX);
    let left_out = stats.ops.len().saturating_sub(top);
    stats.ops.truncate(top);
    let recorded = profile.loops().map_err(Failure::new)?;
    let loops = Loops::new(&profile, &recorded, &[], false);
    // Here, a loop's time is known only as a sum over all threads and the whole run, so it is not
    // shown if options select some of the calls.
    let loops = (args.thread.is_none() && args.skip_ms == 0.0).then_some(&loops);
    let mut any_loop = false;
    let mut out = BufWriter::with_capacity(1 << 16, stdout(args.format.into()));
    match args.format {
        StatsFormat::Text => {
            let width = args.width.or_else(known_width);
            let style = Style { gamma: args.gamma, width, ..Style::default() };
            render(&mut out, &profile, &stats, &style)?;
            if left_out > 0 {
                let ops = plural(left_out as u128, "further op");
                writeln!(out, "… and {ops} with less time (--op NAME, --top 0)")?;
            }
            if let Some(loops) = loops {
                any_loop = spread::print(&mut out, loops, args.op.as_deref(), width)?;
            }
            if stats.ops.is_empty() && !any_loop && !asked(&args) {
                let what = if profile.counted().is_empty() { "recorded" } else { "timed" };
                writeln!(out, "no call was {what}")?;
            }
        }
        StatsFormat::Json => {
            let view = View { profile: &profile, stats: &stats, args: &args, loops };
            any_loop = json::print(&mut out, &view)?;
        }
        StatsFormat::Csv => {
            csv::print(&mut out, &profile, &stats, args.by == StatsBy::Rank)?;
        }
    }
    out.flush()?;
    if args.format != StatsFormat::Json {
        losses::say(&merge_losses(stats.losses.iter().chain(&recorded.losses)));
    }
    match stats.ops.is_empty() && !any_loop && asked(&args) {
        true => Ok(nothing_matches(&profile, &args)),
        false => Ok(ExitCode::SUCCESS),
    }
}

/// Prints which option matches nothing, or that no call matches all options. Returns exit code 1.
fn nothing_matches(profile: &Profile, args: &Args) -> ExitCode {
    let ops = profile.ops.all().iter().map(|op| op.name.as_str());
    let threads = profile.processes.iter().flat_map(|process| &process.threads);
    let mut said = false;
    if let Some(glob) = args.op.as_deref()
        && !ops.clone().any(|name| profile::demangle::matches(glob, name))
    {
        matching::no_op(profile, "--op", glob);
        said = true;
    }
    if let Some(glob) = args.thread.as_deref()
        && !threads
            .clone()
            .any(|t| glob.parse() == Ok(t.tid) || model::glob::matches(glob, &t.name))
    {
        matching::no_thread(profile, "--thread", glob);
        said = true;
    }
    if !said {
        say!("no call matches all of --op, --thread and --skip-ms");
    }
    ExitCode::from(1)
}

fn asked(args: &Args) -> bool {
    args.op.is_some() || args.thread.is_some() || args.skip_ms > 0.0
}

fn too_many(profile: &Profile, error: TooManyCalls) -> Failure {
    let op = labels(profile, &[error.key]).concat();
    let most = analysis::stats::MOST_CALLS;
    Failure::new(format!("{op}: has {} calls, but at most {most} can be ranked", error.calls))
        .hint("choose some of them with --thread or --skip-ms")
}

fn gamma(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(gamma) if gamma > 0.0 && gamma.is_finite() => Ok(gamma),
        _ => Err("not a number above 0".to_owned()),
    }
}
