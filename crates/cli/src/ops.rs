//! `counterpoint ops`: shows the ops that TVM's virtual machines and PyTorch called, including the
//! work of pool threads.
//!
//! ```text
//!  open ─► analysis::ops, trees ─┬─► analysis::OpTable ─► rows of columns ─┬─► text
//!                                │                                         └─► csv
//!                                └─► json: every call, as it comes
//! ```

mod columns;
mod json;
mod sampled;
mod text;

use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use analysis::{OpFilter, OpTable, OpTrees, is_contradicted};
use model::Loss;
use profile::{LossCount, Profile, merge_losses};

use crate::failure::Failure;
use crate::input;
use crate::output::Format;
use crate::terminal::{known_width, stdout};
use crate::view;
use crate::view::csv;
use crate::view::notes::words;
use crate::view::open::open;
use crate::view::ranks::RankArgs;
use crate::view::rights::Needs;
use crate::view::table::{Table, Value};

/// Show where TVM's virtual machines and PyTorch spent their time: one row per op, arguments and
/// device.
///
/// A run is a call of an entry function of a virtual machine. The rows add up to the wall time of the runs: each op has
/// its self time, and the time between ops and in the entry function itself has rows of its own.
/// Counts from pool threads belong to the op that launched the parallel region. JSON has every
/// call.
#[derive(clap::Args)]
pub struct Args {
    /// Profile directory.
    #[arg(default_value = "counterpoint.cpt", value_name = "PROFILE", value_parser = input::profile())]
    profile: PathBuf,
    /// Output format.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
    /// Only ops whose name matches. `*` matches any text, `?` any character. Not for JSON.
    #[arg(long, value_name = "GLOB")]
    filter: Option<String>,
    /// Column to sort by, named as in the table or in CSV. The default is `self`.
    #[arg(long, value_name = "COLUMN")]
    sort: Option<String>,
    /// Show only the first N rows of the table, after sorting; 0 for all. The default is 30 in a table
    /// for people, and all in other formats. JSON has every call.
    #[arg(long, value_name = "N")]
    top: Option<usize>,
    /// Also show the program's command line, what is worth a note but changes no number, and all regions
    /// whose tasks waited for one another.
    #[arg(short, long)]
    verbose: bool,
    /// Only the virtual machine with this name; PyTorch is `torch`.
    #[arg(long, value_name = "NAME")]
    vm: Option<String>,
    #[command(flatten)]
    ranks: RankArgs,
    /// Only runs, and ops outside of runs, that began at this tick of the profile's clock or later.
    #[arg(long, value_name = "TICKS")]
    since: Option<u64>,
    /// Only runs, and ops outside of runs, that began before this tick.
    #[arg(long, value_name = "TICKS")]
    until: Option<u64>,
    /// Show one row for each book-keeping function (vm.builtin.…) instead of one row for all.
    #[arg(long)]
    all: bool,
    /// Show values as they were recorded. Without this option, what an empty call reads is
    /// subtracted in tables and in CSV. JSON has single calls, which are always as recorded.
    #[arg(long)]
    raw: bool,
    /// Width of the tables in characters, as for `report --width`.
    #[arg(long, value_name = "N")]
    width: Option<usize>,
}

/// This many rows that cannot be are named.
const NAMED: usize = 3;

/// What each format needs to print.
struct View<'a> {
    profile: &'a Profile,
    trees: &'a OpTrees<'a>,
    filter: &'a OpFilter,
    table: &'a OpTable,
    /// Whether values are shown as they were recorded.
    raw: bool,
    /// Some of the rows that cannot be, and why; empty if there are none.
    contradictions: String,
    losses: Vec<LossCount>,
    args: &'a Args,
}

impl View<'_> {
    /// Sorts and shortens the table of ops as the arguments say.
    fn arrange(&self, table: &mut Table) -> Result<(), Failure> {
        arrange(table, self.args)
    }
}

/// Leaves out the rows whose names do not match.
fn keep_matching(table: &mut Table, glob: Option<&str>) {
    let Some(glob) = glob else { return };
    let Some(names) = table.columns.first().map(|column| &column.cells) else { return };
    table.order.retain(|row| match names.get(*row).as_deref() {
        Some(Value::Text(name)) => profile::demangle::matches(glob, name),
        _ => false,
    });
}

/// Sorts and shortens a table of ops as the arguments say.
fn arrange(table: &mut Table, args: &Args) -> Result<(), Failure> {
    keep_matching(table, args.filter.as_deref());
    if let Some(sort) = &args.sort {
        table.sort(sort)?;
    }
    table.keep_first(view::table::top(args.top, args.format));
    Ok(())
}

/// Prints the ops.
pub fn main(args: Args) -> Result<ExitCode, Failure> {
    let mut profile = open(&args.profile, &Needs::default())?;
    args.ranks.choose(&mut profile)?;
    let filter = OpFilter { machine: args.vm.clone(), since: args.since, until: args.until };
    if let Some(name) = &args.vm {
        known_machine(&profile, name)?;
    }
    if profile.is_sampled() && args.format != Format::Json {
        return sampled::print(&profile, &args);
    }
    if args.format == Format::Json
        && (args.filter.is_some() || args.sort.is_some() || args.top.is_some())
    {
        return Err(Failure::new(
            "--filter, --sort and --top choose rows, but --format json has calls",
        ));
    }
    // As in every other view of this profile.
    let mut raw = args.raw || is_contradicted(&profile);
    let mut trees = OpTrees::new(&profile, raw);
    // JSON contains every call, so nothing is folded there.
    let mut table = OpTable::new(&trees, &filter, !args.all);
    // In a run with a budget, the sums are of drawn calls alone.
    let violations = if profile.is_sampled() { Vec::new() } else { table.violations() };
    let names = violations.iter().take(NAMED).map(|one| {
        let row = one.row.and_then(|row| table.rows.get(row));
        let name = row.map_or_else(|| "all rows".to_owned(), |row| columns::name(row).to_owned());
        format!("{name} ({})", words(one.what))
    });
    let contradictions = names.collect::<Vec<_>>().join(", ");
    if !violations.is_empty() && !raw {
        raw = true;
        trees = OpTrees::new(&profile, raw);
        table = OpTable::new(&trees, &filter, !args.all);
    }
    let count = (violations.len() as u64).max(u64::from(raw && !args.raw));
    let loss = (count > 0).then(|| LossCount::new(Loss::Inconsistent, count));
    let losses = profile.all_losses();
    let losses = merge_losses(losses.iter().chain(trees.losses()).chain(&loss));
    let view = View {
        profile: &profile,
        trees: &trees,
        filter: &filter,
        table: &table,
        raw,
        contradictions,
        losses,
        args: &args,
    };
    let mut out = BufWriter::with_capacity(1 << 16, stdout(args.format.into()));
    match args.format {
        Format::Table => {
            text::check(&view)?;
            text::print(&mut out, &view, args.width.or_else(known_width))?;
        }
        Format::Json => json::print(&mut out, &view)?,
        Format::Csv => {
            let mut table = columns::ops(&view, columns::Readers::Programs);
            view.arrange(&mut table)?;
            csv::print(&mut out, &table)?;
        }
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// The names of the virtual machines with their processes, without duplicates.
fn machines(profile: &Profile) -> Vec<(usize, &str)> {
    let mut all: Vec<(usize, &str)> = Vec::new();
    for (index, process) in profile.processes.iter().enumerate() {
        let machines = process.libraries.iter().filter(|l| process.host_of(l).calls_ops);
        for machine in machines.map(|library| (index, library.name.as_str())) {
            if !all.contains(&machine) {
                all.push(machine);
            }
        }
    }
    all
}

fn known_machine(profile: &Profile, name: &str) -> Result<(), Failure> {
    let all = machines(profile);
    if all.iter().any(|(_, known)| *known == name) {
        return Ok(());
    }
    let mut names: Vec<&str> = all.into_iter().map(|(_, name)| name).collect();
    names.sort_unstable();
    names.dedup();
    let failure =
        Failure::new(format!("--vm {name}: the profile has no virtual machine of this name"));
    Err(match names.is_empty() {
        true => failure,
        false => failure.hint(format!("there are: {}", names.join(", "))),
    })
}
