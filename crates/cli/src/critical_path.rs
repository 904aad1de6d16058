//! `counterpoint critical-path`: shows which calls the end of a program waited for, and what
//! shortening each op could gain at most.

mod json;

use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use analysis::critical::MOST_CALLS;
use analysis::{CriticalPath, CriticalRow, NoPath, critical_path};
use clap::ValueEnum;
use profile::Profile;

use crate::failure::Failure;
use crate::input;
use crate::matching;
use crate::output::{Format, milliseconds};
use crate::terminal::{self, known_width, stdout};
use crate::view::critical::{columns, explained, head};
use crate::view::labels::op_of;
use crate::view::open::open;
use crate::view::ranks::RankArgs;
use crate::view::rights::Needs;
use crate::view::table::{Table, top};
use crate::view::units::grouped;
use crate::view::wrap::{PROSE_WIDTH, wrapped};
use crate::view::{csv, losses, markdown, text};

/// Show which calls the end of the program waited for, and what shortening each op could gain at most.
///
/// The critical path goes back from the last call to whatever each call waited for: the call before it
/// on its thread or stream, the dispatches before its own, the tasks of a parallel region, what launched
/// it on a device. Only what is on it can make the program faster, and other paths limit by how
/// much.
#[derive(clap::Args)]
pub struct Args {
    /// Profile directory.
    #[arg(default_value = "counterpoint.cpt", value_name = "PROFILE", value_parser = input::profile())]
    profile: PathBuf,
    #[command(flatten)]
    ranks: RankArgs,
    /// Only ops whose name matches. `*` matches any text, `?` any character.
    #[arg(long, alias = "op", value_name = "GLOB")]
    filter: Option<String>,
    /// Column to sort by, named as in the table or in CSV. The default is `gain`.
    #[arg(long, value_name = "COLUMN")]
    sort: Option<String>,
    /// Leave out calls that began in the first MS milliseconds after each thread's first call began, as
    /// if they had not been recorded.
    #[arg(long, value_name = "MS", default_value = "0", value_parser = milliseconds)]
    skip_ms: f64,
    /// Show only the first N rows of the table, after sorting; 0 for all. The default is 30 in a table
    /// for people, and all in other formats.
    #[arg(long, value_name = "N")]
    top: Option<usize>,
    /// Width of the table in characters, as for `report --width`.
    #[arg(long, value_name = "N")]
    width: Option<usize>,
    /// Output format.
    #[arg(long, value_enum, default_value_t)]
    format: PathFormat,
}

/// `--format`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum PathFormat {
    /// A table that fits the terminal.
    #[default]
    #[value(alias = "text")]
    Table,
    /// One JSON document; docs/schema.md describes it.
    Json,
    /// RFC 4180 with one header line.
    Csv,
    /// Markdown, for a pull request or an issue.
    Markdown,
}

impl From<PathFormat> for terminal::Kind {
    fn from(format: PathFormat) -> Self {
        match format {
            PathFormat::Table | PathFormat::Markdown => Self::People,
            PathFormat::Json => Self::Json,
            PathFormat::Csv => Self::Csv,
        }
    }
}

struct View<'a> {
    profile: &'a Profile,
    path: &'a CriticalPath,
    rows: &'a [&'a CriticalRow],
    table: &'a Table,
    sort: &'a str,
    filter: Option<&'a str>,
}

pub fn main(args: Args) -> Result<ExitCode, Failure> {
    let mut profile = open(&args.profile, &Needs::default())?;
    args.ranks.choose(&mut profile)?;
    if args.skip_ms > 0.0 {
        profile.leave_out_first((args.skip_ms * 1e6).round() as u64);
    }
    let path = critical_path(&profile).map_err(Failure::new)?.map_err(|why| {
        let why = match why {
            NoPath::Sampled => {
                "in a run with a budget, most calls do not say when they were".to_owned()
            }
            NoPath::TooMany { calls } => format!(
                "the profile has {} calls, and at most {} fit into memory",
                grouped(calls.into()),
                grouped(MOST_CALLS.into())
            ),
            NoPath::Empty => "the profile has no call that belongs to a thread".to_owned(),
        };
        Failure::new(format!("critical-path: {why}"))
    })?;
    let matches = |row: &&CriticalRow| {
        let name = op_of(&profile, analysis::Key::Op(row.op)).map_or("", |op| op.name.as_str());
        args.filter.as_deref().is_none_or(|glob| profile::demangle::matches(glob, name))
    };
    let rows: Vec<&CriticalRow> = path.rows.iter().filter(matches).collect();
    if let (true, Some(glob)) = (rows.is_empty(), &args.filter) {
        matching::no_op(&profile, "--filter", glob);
        return Ok(ExitCode::from(1));
    }
    let mut table = columns(&profile, &path, &rows, args.filter.is_none());
    let sort = args.sort.as_deref().unwrap_or("gain");
    table.sort(sort)?;
    let for_people = matches!(args.format, PathFormat::Table | PathFormat::Markdown);
    table.keep_first(top(args.top, if for_people { Format::Table } else { Format::Json }));
    let view = View {
        profile: &profile,
        path: &path,
        rows: &rows,
        table: &table,
        sort,
        filter: args.filter.as_deref(),
    };
    let mut out = BufWriter::new(stdout(args.format.into()));
    match args.format {
        PathFormat::Table => print(&mut out, &view, args.width.or_else(known_width))?,
        PathFormat::Markdown => in_markdown(&mut out, &view)?,
        PathFormat::Csv => csv::print(&mut out, &table)?,
        PathFormat::Json => json::print(&mut out, &view)?,
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

fn print(out: &mut impl Write, view: &View<'_>, width: Option<usize>) -> io::Result<()> {
    let width = width.map(|width| width.max(40));
    let prose = width.unwrap_or(PROSE_WIDTH);
    for line in head(view.profile, view.path) {
        wrapped(out, "", &line, prose)?;
    }
    writeln!(out)?;
    let left_out = text::table(out, view.table, width)?;
    let known = explained(view.profile, view.path);
    for (_, label, text) in known.iter().filter(|(name, ..)| !left_out.contains(name)) {
        wrapped(out, label, text, prose)?;
    }
    losses::print_brief(out, &view.profile.all_losses(), prose)
}

fn in_markdown(out: &mut impl Write, view: &View<'_>) -> io::Result<()> {
    for line in head(view.profile, view.path) {
        writeln!(out, "{}\n", markdown::plain(&line))?;
    }
    markdown::table(out, view.table)?;
    writeln!(out)?;
    for (_, label, text) in explained(view.profile, view.path) {
        writeln!(out, "- {label}{}", markdown::plain(&text))?;
    }
    Ok(())
}
