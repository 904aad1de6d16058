//! `counterpoint loops report`: functions and loops as trees, with their hits and times.
//!
//! ```text
//!  open ─► Profile::loops ─► analysis::loops ─┬─► text: trees with indentation
//!          --table FILE ────────────┤   json: everything, raw and compensated
//!                                   └─► csv: the full table, or that of the original
//! ```

use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::ValueEnum;
use model::Loss;
use profile::{LossCount, merge_losses};

use crate::failure::Failure;
use crate::input;
use crate::terminal::{self, known_width, stdout};
use crate::view::csv;
use crate::view::head::command;
use crate::view::loops::files::Files;
use crate::view::loops::source::Texts;
use crate::view::loops::text::{Marks, Rows, tree};
use crate::view::loops::{self, Loops, More, assembly, columns, json, name, notes, source, trips};
use crate::view::losses;
use crate::view::notes::words;
use crate::view::open::open;
use crate::view::rights::Needs;
use crate::view::wrap::{PROSE_WIDTH, wrapped};

/// This many loops that cannot be are named.
const NAMED: usize = 3;

/// Show where inside instrumented functions the time went: one row per function and loop.
///
/// The row of a loop is below the row of the loop or function that contains it. A hit is one entry
/// into a loop or function. Inclusive time lasts from the beginning to the end of each hit; self
/// time leaves out the instrumented loops directly inside. If only some hits were timed, times are
/// estimates. The cost of measuring is subtracted. ± is half of a 95 % interval. Self times may be negative. docs/loops.md explains each column.
#[derive(clap::Args)]
pub struct Args {
    /// Profile directory.
    #[arg(default_value = "counterpoint.cpt", value_name = "PROFILE", value_parser = input::profile())]
    profile: PathBuf,
    /// Output format.
    #[arg(long, value_enum, default_value_t)]
    format: LoopFormat,
    /// Show times as they were measured, including the cost of measuring. JSON has both.
    #[arg(long)]
    raw: bool,
    /// Also show a row for each thread.
    #[arg(long)]
    threads: bool,
    /// Also show functions and loops that were never entered. JSON and CSV have them.
    #[arg(long)]
    all: bool,
    /// The side table (NAME.loops.json) of a module that was compiled without one, or to be used in
    /// place of an embedded one. Repeatable.
    #[arg(long, value_name = "FILE")]
    table: Vec<PathBuf>,
    /// Also show the machine code of each function and loop: where it is, its machine loops, and how
    /// many instructions of each class it has. Together with --only, also the instructions.
    #[arg(long)]
    asm: bool,
    /// Also show the text that was instrumented, with the hits and times of loops in its margin.
    /// Together with --asm and --only, text and machine code are side by side.
    #[arg(long)]
    source: bool,
    /// A directory in which --asm looks for the files that the program had loaded: at their whole path
    /// (DIR/usr/lib/x.so), then by their name. Files that a profile of somebody else names are read
    /// only there. Repeatable.
    #[arg(long, value_name = "DIR", requires = "asm")]
    objects: Vec<PathBuf>,
    /// The same for --source and the texts that were instrumented. Repeatable.
    #[arg(long, value_name = "DIR", requires = "source")]
    sources: Vec<PathBuf>,
    /// With --asm and --source: show the code and the text of these functions and loops only. An id,
    /// or a name (FUNCTION, LOOP or FUNCTION:LOOP; `*` matches any text). Repeatable.
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Width of the tables in characters, as for `report --width`.
    #[arg(long, value_name = "N")]
    width: Option<usize>,
}

/// `--format`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum LoopFormat {
    /// Trees that fit the terminal.
    #[default]
    Table,
    /// One JSON document; docs/loops.md describes it.
    Json,
    /// RFC 4180 with one header line: the full table.
    Csv,
    /// The table of TVM's original lightweight profiling.
    LwpCsv,
}

impl From<LoopFormat> for terminal::Kind {
    fn from(format: LoopFormat) -> Self {
        match format {
            LoopFormat::Table => Self::People,
            LoopFormat::Json => Self::Json,
            LoopFormat::Csv | LoopFormat::LwpCsv => Self::Csv,
        }
    }
}

/// Prints the loops.
pub fn main(args: Args) -> Result<ExitCode, Failure> {
    let files = args.table.iter().chain(&args.objects).chain(&args.sources);
    let needs = Needs { named_files: args.asm || args.source, ..Needs::files(files) };
    let profile = open(&args.profile, &needs)?;
    let recorded = profile.loops().map_err(Failure::new)?;
    analysis::loops::agree(recorded.modules.iter()).map_err(|why| {
        Failure::new(why).hint(
            "two programs or libraries of this profile were instrumented from different texts, or by \
             different versions, and have the same identity; instrument them again",
        )
    })?;
    let tables = loops::side_tables(&args.table, &recorded)?;
    let mut shown = Loops::new(&profile, &recorded, &tables, args.raw);
    let codes = args.asm.then(|| loops::code::find(&shown, &Files::new(&profile, args.objects)));
    shown.more = More {
        codes,
        source: args.source,
        texts: Texts::new(&shown, Files::new(&profile, args.sources)),
        of: args.only,
    };
    if let Some(failure) = unknown(&shown) {
        return Err(failure);
    }
    let violations = shown.table.violations(args.raw);
    let loss = (!violations.is_empty())
        .then(|| LossCount::new(Loss::Inconsistent, violations.len() as u64));
    // Whatever is subtracted, it is not what the recorder took.
    shown.raw |= loss.is_some();
    let losses = profile.all_losses();
    let losses = merge_losses(losses.iter().chain(&recorded.losses).chain(&loss));
    let names = violations.iter().filter_map(|one| {
        let tree = shown.table.modules.get(one.module)?;
        Some(format!("{} ({})", name(tree, tree.nodes.get(one.node)?), words(one.what)))
    });
    let contradictions = names.take(NAMED).collect::<Vec<_>>().join(", ");
    let mut out = BufWriter::new(stdout(args.format.into()));
    match args.format {
        LoopFormat::Table => {
            let rows = Rows { threads: args.threads, all: args.all };
            text(&mut out, &shown, &losses, rows, args.width.or_else(known_width))?;
            if !contradictions.is_empty() {
                let prose = args.width.or_else(known_width).unwrap_or(PROSE_WIDTH);
                wrapped(&mut out, "note: ", &format!("this cannot be: {contradictions}"), prose)?;
            }
        }
        LoopFormat::Json => json::print(&mut out, &shown, &losses, args.threads)?,
        LoopFormat::Csv => csv::print(&mut out, &columns::full(&shown, args.threads))?,
        LoopFormat::LwpCsv => columns::original(&mut out, &shown)?,
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// Without a width trees are as wide as they need.
fn text(
    out: &mut impl Write,
    shown: &Loops<'_>,
    losses: &[LossCount],
    rows: Rows,
    width: Option<usize>,
) -> io::Result<()> {
    let tables = width.map(|width| width.max(40));
    let prose = tables.unwrap_or(PROSE_WIDTH);
    let manifest = &shown.profile.manifest;
    if !manifest.command.is_empty() {
        wrapped(out, "command   ", &command(manifest), prose)?;
    }
    if shown.table.modules.is_empty() {
        writeln!(out, "no loops were recorded; likely reasons:")?;
        for reason in [
            "no module that `counterpoint loops instrument` wrote was loaded",
            "the program was not started by `counterpoint run --loops`",
        ] {
            wrapped(out, "  - ", reason, prose)?;
        }
        return losses::print(out, losses, prose);
    }
    let mut marks = Marks::default();
    for (index, module) in shown.table.modules.iter().enumerate() {
        for (label, text) in notes::head(shown, module) {
            wrapped(out, &format!("{label:<9} "), &text, prose)?;
        }
        if rows.all || module.nodes.iter().any(|node| node.all.hits > 0) {
            writeln!(out)?;
            marks = marks.and(tree(out, shown, module, rows, tables)?);
            trips::histograms(out, module, tables)?;
        }
        code_and_text(out, shown, index, rows, tables)?;
        for note in notes::notes(module, rows.all) {
            wrapped(out, "note: ", &note, prose)?;
        }
        writeln!(out)?;
    }
    for (mark, text) in notes::legend(marks) {
        wrapped(out, mark, text, prose)?;
    }
    for note in notes::of_table(shown) {
        wrapped(out, "note: ", &note, prose)?;
    }
    losses::print(out, losses, prose)
}

/// The error for a `--only` that names nothing.
fn unknown(shown: &Loops<'_>) -> Option<Failure> {
    let more = &shown.more;
    if more.of.is_empty() {
        return None;
    }
    if more.codes.is_none() && !more.source {
        return Some(Failure::new(
            "--only chooses code and text, but neither --asm nor --source is given",
        ));
    }
    let all =
        || shown.table.modules.iter().flat_map(|tree| tree.nodes.iter().map(move |n| (tree, n)));
    match all().any(|(tree, node)| more.wants(tree, node)) {
        true => None,
        false => Some(
            Failure::new(format!(
                "--only {}: no function or loop has this name or id",
                more.of.join(", ")
            ))
            .hint("without --only, the report shows all names and ids"),
        ),
    }
}

/// The machine code and the text of a module, as far as they are asked for.
fn code_and_text(
    out: &mut impl Write,
    shown: &Loops<'_>,
    index: usize,
    rows: Rows,
    width: Option<usize>,
) -> io::Result<()> {
    let more = &shown.more;
    let tree = &shown.table.modules[index];
    let found = more.codes.as_ref().and_then(|codes| codes.get(index));
    if !more.of.is_empty() {
        for node in tree.nodes.iter().filter(|node| more.wants(tree, node)) {
            writeln!(out)?;
            source::side_by_side(out, shown, tree, node, found, more.source, width)?;
        }
        return Ok(());
    }
    if let Some(found) = found {
        writeln!(out)?;
        assembly::table(out, shown, tree, found, rows.all, width)?;
    }
    if more.source {
        writeln!(out)?;
        source::texts(out, shown, tree, &|node| rows.all || node.all.hits > 0, width)?;
    }
    Ok(())
}
