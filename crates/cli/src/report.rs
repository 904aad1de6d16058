//! `counterpoint report`: the op table and what belongs beside it.
//!
//! ```text
//!  open (collects what a crash left) ─► analysis::summarize ─► rows of columns ─┬─► text
//!                                                                               ├─► json
//!                                                                               └─► csv
//! ```

mod columns;
mod csv;
mod first;
mod header;
mod json;
mod losses;
mod names;
mod price;
mod source;
mod text;
mod tracks;
pub mod units;

pub use columns::{Column, Table, Value};
pub use columns::{labels, op_of, process_label, thread_label};
pub use csv::print as print_csv;
pub use header::command;
pub use json::{EmptyOut, KeyOut, LossOut, ProfileHead, ThreadRef};
pub use json::{empty_out, key_out, losses_out, thread_ref};
pub use losses::{MACHINE_WITHOUT_CALLS, by_severity, say as say_losses, severity};
pub use text::{losses as print_losses, table as print_table, wrapped};
pub use units::plural;

use std::io::{BufWriter, ErrorKind as IoErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use analysis::{By, Options, Summary, TracksSummary, summarize};
use clap::ValueEnum;
use model::metric::Bound;
use profile::collect::{Closing, Collected, PoolFate, collect, is_over};
use profile::{ErrorKind, Manifest, Origin, Profile, Role, merge_losses};

use crate::failure::Failure;
use crate::input;
use crate::matching;
use crate::metrics::{MetricArgs, Offer, of_profile};
use crate::output::{Format, known_width};
use crate::terminal::say;
use crate::terminal::stdout;

/// Show where the time went: one row per op, with its counters.
///
/// Data that a crashed program left behind is recovered first. Percentages are of total self
/// time, before filtering. Self time is a call's duration without the calls inside it.
#[derive(clap::Args)]
pub struct Args {
    /// Profile directory.
    #[arg(default_value = "counterpoint.cpt", value_name = "PROFILE", value_parser = input::profile())]
    profile: PathBuf,
    /// What each row describes.
    #[arg(long, value_enum, default_value_t)]
    by: RowKind,
    /// Column to sort by, named as in the table or in CSV. Counters are columns, too.
    #[arg(long, value_name = "COLUMN", default_value = "total")]
    sort: String,
    /// Only ops whose name matches. `*` matches any text, `?` any character.
    #[arg(long, value_name = "GLOB")]
    filter: Option<String>,
    /// Leave out calls that began in the first MS milliseconds after each thread's first call
    /// began, as if they had not been recorded.
    #[arg(long, value_name = "MS", default_value = "0", value_parser = crate::stats::milliseconds)]
    skip_ms: f64,
    /// Output format.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
    /// Subtract from every call what an empty call reads.
    #[arg(long)]
    subtract_probe: bool,
    #[command(flatten)]
    metrics: MetricArgs,
    /// Width of the tables in characters. The default is the width of the terminal, or else the
    /// variable COLUMNS. Without either, tables are as wide as they need to be.
    #[arg(long, value_name = "N")]
    width: Option<usize>,
    /// End a recording that `counterpoint env` prepared, as `recover --close` does. It
    /// must have no running process.
    #[arg(long)]
    close: bool,
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
}

impl RowKind {
    fn name(self) -> &'static str {
        match self {
            Self::Op => "op",
            Self::Thread => "thread",
            Self::Cpu => "cpu",
            Self::Process => "process",
        }
    }
}

impl From<RowKind> for By {
    fn from(kind: RowKind) -> Self {
        match kind {
            RowKind::Op => Self::Op,
            RowKind::Thread => Self::Thread,
            RowKind::Cpu => Self::Cpu,
            RowKind::Process => Self::Process,
        }
    }
}

/// Everything that the three formats print.
struct Report<'a> {
    profile: &'a Profile,
    summary: &'a Summary,
    tracks: &'a TracksSummary,
    table: columns::Table,
    by: RowKind,
    sort: &'a str,
    filter: Option<&'a str>,
    skip_ms: f64,
    subtract_probe: bool,
    metrics: &'a [Bound],
}

/// Prints the report.
pub fn main(args: Args) -> Result<ExitCode, Failure> {
    let closing = if args.close { Closing::Now } else { Closing::WhenOver };
    let mut profile = open(&args.profile, closing)?;
    if args.skip_ms > 0.0 {
        profile.leave_out_first((args.skip_ms * 1e6).round() as u64);
    }
    let options = Options {
        by: args.by.into(),
        filter: args.filter.clone(),
        subtract_probe: args.subtract_probe,
        metrics: of_profile(&args.metrics, &profile, Offer::Builtins)?,
        ..Options::default()
    };
    let mut summary = summarize(&profile, &options);
    let tracks = analysis::tracks(&profile).map_err(Failure::new)?;
    summary.losses = merge_losses(summary.losses.iter().chain(&tracks.losses));
    let mut table = columns::Table::new(&profile, &summary, &options.metrics, args.by);
    table.sort(&args.sort)?;
    let report = Report {
        profile: &profile,
        summary: &summary,
        tracks: &tracks,
        table,
        by: args.by,
        sort: &args.sort,
        filter: args.filter.as_deref(),
        skip_ms: args.skip_ms,
        subtract_probe: args.subtract_probe,
        metrics: &options.metrics,
    };
    let mut out = BufWriter::new(stdout(args.format.into()));
    match args.format {
        Format::Table => text::print(&mut out, &report, args.width.or_else(known_width))?,
        Format::Json => json::print(&mut out, &report)?,
        Format::Csv => csv::print(&mut out, &report.table)?,
    }
    out.flush()?;
    match &args.filter {
        Some(glob) if report.summary.rows.is_empty() && report.summary.calls > 0 => {
            matching::no_op(&profile, "--filter", glob);
            Ok(ExitCode::from(1))
        }
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// Opens a profile for a view; what is left in its pool is collected first where that is
/// possible and nobody else's business.
pub fn open(dir: &Path, closing: Closing) -> Result<Profile, Failure> {
    let manifest = Manifest::read(dir).map_err(|e| explain(dir, e))?;
    let closing = allowed(closing, &manifest);
    let open = manifest.pool.is_some() || manifest.passes > 0;
    if open && (closing == Closing::Now || is_over(&manifest)) {
        match collect(dir, closing) {
            Ok(Collected { pool: PoolFate::Refused(pool, why), .. }) => {
                let pool = pool.display();
                say!("the pool {pool} was left alone: {why}");
            }
            Ok(_) => {}
            // Somebody else's profile, or a read-only copy: it is read where it lies.
            Err(e) if is_read_only(&e) => {}
            Err(e) => say!("{e}; the profile is read without recovering its pool"),
        }
    }
    Profile::open(dir).map_err(|e| explain(dir, e))
}

/// What `run` says in one line at its end: counted from page headers, without decoding a call.
pub fn summary(dir: &Path) -> String {
    let profile = match Profile::open(dir) {
        Ok(profile) => profile,
        Err(e) => return format!("{e}"),
    };
    let calls = profile.calls();
    if calls == 0 {
        return "no calls were recorded; `counterpoint report` lists likely reasons".to_owned();
    }
    let threads = profile.processes.iter().map(|p| p.threads.len() as u128);
    let processes = threads.clone().filter(|n| *n > 0).count() as u128;
    let losses = match profile.all_losses().len() as u128 {
        0 => String::new(),
        n => format!("; {}, see `counterpoint report`", units::plural(n, "kind of loss")),
    };
    let ops = match profile.ops.all().iter().any(|op| matches!(op.role, Role::Run | Role::Op)) {
        true => "; `counterpoint ops` shows those of TVM's virtual machines",
        false => "",
    };
    format!(
        "{} in {}, {}{ops}{losses}",
        units::plural(calls.into(), "call"),
        units::plural(processes, "process"),
        units::plural(threads.sum(), "thread")
    )
}

/// Only a recording that `env` prepared ends because somebody says so: one of `run` is over when
/// its program is, and a program that has not recorded yet still needs the pool.
pub fn allowed(closing: Closing, manifest: &Manifest) -> Closing {
    if manifest.origin == Origin::Env { closing } else { Closing::WhenOver }
}

fn is_read_only(error: &profile::Error) -> bool {
    let ErrorKind::Io(io) = error.kind() else { return false };
    matches!(io.kind(), IoErrorKind::PermissionDenied | IoErrorKind::ReadOnlyFilesystem)
}

/// An error about a profile, with what to do.
pub fn explain(dir: &Path, error: profile::Error) -> Failure {
    let hint = match error.kind() {
        _ if error.is_not_found() => {
            format!("record one: counterpoint run -o {} -- PROGRAM", dir.display())
        }
        ErrorKind::NotAProfile(_) => {
            "a profile is the directory that `counterpoint run -o` made".to_owned()
        }
        ErrorKind::Refused(_) => {
            "a profile may only contain plain files and directories; docs/security.md says why"
                .to_owned()
        }
        ErrorKind::Schema { .. } => {
            "read it with the version of counterpoint that recorded it".to_owned()
        }
        _ => return Failure::new(error),
    };
    Failure::new(error).hint(hint)
}
