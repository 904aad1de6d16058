//! Prints the ops of a run with a budget, in which only some calls were timed. A call inside of a
//! timed one may have been counted and not timed, so there are no self times. The table has the
//! estimated total time of each op, as in `report`.

use std::io::{BufWriter, Write};
use std::process::ExitCode;

use analysis::{Key, Options, Summary, summarize};
use profile::{Profile, Role};

use super::Chosen;
use crate::failure::Failure;
use crate::output::Format;
use crate::terminal::{known_width, stdout};
use crate::view::table::{Table, Value};
use crate::view::wrap::{PROSE_WIDTH, wrapped};
use crate::view::{columns, csv, head, losses, sampled, text};

/// The column by which rows are sorted by default.
pub const SORT: &str = "total_ns";
const NOTE: &str = "totals include the ops inside: self times and the time between ops are not \
                    known, because calls inside of a timed call may have been only counted";

/// Returns the summary of the selected ops and the table that shows them. `None` if `--since` or
/// `--until` is given, because the times of calls that were only counted are unknown.
pub fn rows(profile: &Profile, chosen: &Chosen<'_>) -> Result<Option<(Summary, Table)>, Failure> {
    if chosen.trees.since.is_some() || chosen.trees.until.is_some() {
        return Ok(None);
    }
    let options = Options { raw: chosen.raw, ..Options::default() };
    let mut summary = summarize(profile, &options);
    summary.rows.retain(|row| {
        let Key::Op(op) = row.key else { return false };
        profile.ops.get(op).is_some_and(|op| {
            matches!(op.role, Role::Run | Role::Op | Role::Range)
                && chosen.trees.machine.as_ref().is_none_or(|vm| *op.library == **vm)
        })
    });
    let mut table = columns::of_summary(profile, &summary, &options);
    table.sort(SORT)?;
    chosen.arrange(&mut table)?;
    for column in &mut table.columns {
        match column.name.as_str() {
            "arguments" | "device" => {
                let is_text = |cell: &Value| matches!(cell, Value::Text(text) if !text.is_empty());
                column.csv_only = !column.cells.iter().flatten().any(|cell| is_text(&cell));
                column.rank = 4;
            }
            "self_ns" | "share" | "dispatches" => column.csv_only = true,
            _ => {}
        }
    }
    Ok(Some((summary, table)))
}

pub fn print(profile: &Profile, args: &Chosen<'_>) -> Result<ExitCode, Failure> {
    let Some((summary, table)) = rows(profile, args)? else {
        return Err(Failure::new(
            "--since and --until choose calls by their time, which is known only of timed calls",
        )
        .hint("--format json has the timed calls, with their weights"));
    };
    let mut out = BufWriter::with_capacity(1 << 16, stdout(args.format.into()));
    if args.format == Format::Csv {
        csv::print(&mut out, &table)?;
        out.flush()?;
        return Ok(ExitCode::SUCCESS);
    }
    let tables = args.width.or_else(known_width).map(|width| width.max(40));
    let prose = tables.unwrap_or(PROSE_WIDTH);
    if !profile.manifest.command.is_empty() {
        wrapped(&mut out, "command   ", &head::command(&profile.manifest), prose)?;
    }
    for (label, line) in sampled::head(profile, &summary) {
        wrapped(&mut out, &format!("{label:<9} "), &line, prose)?;
    }
    writeln!(out)?;
    if summary.rows.is_empty() {
        writeln!(out, "no ops were recorded")?;
    } else {
        text::table(&mut out, &table, tables)?;
        wrapped(&mut out, "note: ", NOTE, prose)?;
    }
    losses::print(&mut out, &summary.losses, prose)?;
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}
