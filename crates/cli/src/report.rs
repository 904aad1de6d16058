//! `counterpoint report`: the op table and what belongs beside it.
//!
//! ```text
//!  open (collects what a crash left) ─► analysis::summarize ─► rows of columns ─┬─► text
//!                                                                               ├─► json
//!                                                                               └─► csv
//! ```

pub mod json;
mod text;

use crate::view::columns;
pub use crate::view::units;

pub use crate::view::columns::{Column, Table, Value};
pub use crate::view::columns::{labels, op_of};
pub use crate::view::head::command;
pub use crate::view::losses::{MACHINE_WITHOUT_CALLS, by_severity, say as say_losses, severity};
pub use crate::view::table_csv::print as print_csv;
pub use crate::view::units::plural;
pub use json::{EmptyOut, KeyOut, LossOut, ProfileHead, ThreadRef};
pub use json::{empty_out, key_out, losses_out, thread_ref};
pub use text::{losses as print_losses, table as print_table, wrapped};

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
/// What a crashed program left behind is collected first. Shares are shares of the self time of
/// all recorded calls, whatever the filter says: of their durations, less what lies in others.
#[derive(clap::Args)]
pub struct Args {
    /// Profile directory.
    #[arg(default_value = "counterpoint.cpt", value_name = "PROFILE", value_parser = input::profile())]
    profile: PathBuf,
    /// What a row stands for.
    #[arg(long, value_enum, default_value_t)]
    by: RowKind,
    /// Column to sort by, as CSV or the table names it; counters too.
    #[arg(long, value_name = "COLUMN", default_value = "total")]
    sort: String,
    /// Only ops whose name matches; `*` and `?` are wild.
    #[arg(long, value_name = "GLOB")]
    filter: Option<String>,
    /// Leave out the calls of the first MS milliseconds since each thread's first call, as if they
    /// had not been recorded.
    #[arg(long, value_name = "MS", default_value = "0", value_parser = crate::stats::milliseconds)]
    skip_ms: f64,
    /// How to print it.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
    /// Take what an empty call reads off every call.
    #[arg(long)]
    subtract_probe: bool,
    #[command(flatten)]
    metrics: MetricArgs,
    /// Columns to fit the tables to. By default those of the terminal; without one, COLUMNS, and
    /// without that, tables are as wide as they need.
    #[arg(long, value_name = "N")]
    width: Option<usize>,
    /// End a recording that `counterpoint env` prepared, if none of its processes runs; as
    /// `recover --close`.
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
    pub fn name(self) -> &'static str {
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
pub struct Report<'a> {
    pub profile: &'a Profile,
    pub summary: &'a Summary,
    pub tracks: &'a TracksSummary,
    pub table: columns::Table,
    pub by: RowKind,
    pub sort: &'a str,
    pub filter: Option<&'a str>,
    pub skip_ms: f64,
    pub subtract_probe: bool,
    pub metrics: &'a [Bound],
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
        Format::Csv => print_csv(&mut out, &report.table)?,
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
                say!("the pool {pool} is left alone: {why}");
            }
            Ok(_) => {}
            // Somebody else's profile, or a read-only copy: it is read where it lies.
            Err(e) if is_read_only(&e) => {}
            Err(e) => say!("{e}; the profile is read where it lies"),
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
            "profiles hold plain files and directories; docs/security.md says why".to_owned()
        }
        ErrorKind::Schema { .. } => {
            "read it with the version of counterpoint that recorded it".to_owned()
        }
        _ => return Failure::new(error),
    };
    Failure::new(error).hint(hint)
}
