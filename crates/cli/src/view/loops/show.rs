//! Prints functions and loops as trees, with their hits and times, for `report --by loop` and
//! `loops report`.
//!
//! ```text
//!  Profile::loops ─► analysis::loops ─┬─► text: trees with indentation
//!   --table FILE ────────┤            ├─► json: everything, raw and compensated
//!                                     └─► csv: the full table, or that of the original
//! ```

use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use model::Loss;
use profile::loops::Loops as Recorded;
use profile::{LossCount, Profile, merge_losses};

use super::files::Files;
use super::source::Texts;
use super::text::{Marks, Rows, tree};
use super::{Loops, More, assembly, columns, json, name, notes, source, trips};
use crate::failure::Failure;
use crate::output::Format;
use crate::terminal::{self, known_width, say, stdout, visible};
use crate::view::csv;
use crate::view::head::command;
use crate::view::losses;
use crate::view::notes::words;
use crate::view::preempted;
use crate::view::units::plural;
use crate::view::wrap::{PROSE_WIDTH, wrapped};

/// A note names at most this many functions and loops whose numbers contradict each other.
const NAMED: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoopFormat {
    /// A format that other views have, too.
    Of(Format),
    /// The CSV table of TVM's original lightweight profiling.
    LwpCsv,
}

impl From<LoopFormat> for terminal::Kind {
    fn from(format: LoopFormat) -> Self {
        match format {
            LoopFormat::Of(format) => format.into(),
            LoopFormat::LwpCsv => Self::Csv,
        }
    }
}

/// What is shown, and how. Each field is an option of `loops report`, whose help explains it.
pub struct Chosen<'a> {
    pub format: LoopFormat,
    pub raw: bool,
    pub filter: Option<&'a str>,
    pub sort: Option<&'a str>,
    pub top: Option<usize>,
    pub width: Option<usize>,
    pub verbose: bool,
    pub threads: bool,
    pub all: bool,
    pub table: &'a [PathBuf],
    pub asm: bool,
    pub source: bool,
    pub objects: Vec<PathBuf>,
    pub sources: Vec<PathBuf>,
    pub only: Vec<String>,
}

pub fn print(
    profile: &Profile,
    recorded: &Recorded,
    chosen: Chosen<'_>,
) -> Result<ExitCode, Failure> {
    analysis::loops::agree(recorded.modules.iter()).map_err(|why| {
        Failure::new(why).hint(
            "two programs or libraries of this profile were instrumented from different texts, or by \
             different versions, and have the same identity; instrument them again",
        )
    })?;
    let tables = super::side_tables(chosen.table, recorded)?;
    let mut shown = Loops::new(profile, recorded, &tables, chosen.raw);
    let codes = chosen.asm.then(|| super::code::find(&shown, &Files::new(profile, chosen.objects)));
    shown.more = More {
        codes,
        source: chosen.source,
        texts: Texts::new(&shown, Files::new(profile, chosen.sources)),
        of: chosen.only,
    };
    if let Some(failure) = unknown(&shown) {
        return Err(failure);
    }
    let violations = shown.table.violations(chosen.raw);
    let loss = (!violations.is_empty())
        .then(|| LossCount::new(Loss::Inconsistent, violations.len() as u64));
    // If the numbers contradict each other, the calibrated cost of a hit does not fit this run, so
    // it is not subtracted.
    shown.raw |= loss.is_some();
    let losses = profile.all_losses();
    let losses = merge_losses(losses.iter().chain(&recorded.losses).chain(&loss));
    let names = violations.iter().filter_map(|one| {
        let tree = shown.table.modules.get(one.module)?;
        Some(format!("{} ({})", name(tree, tree.nodes.get(one.node)?), words(one.what)))
    });
    let contradictions = names.take(NAMED).collect::<Vec<_>>().join(", ");
    let is_text = chosen.format == LoopFormat::Of(Format::Table);
    let format = if let LoopFormat::Of(format) = chosen.format { format } else { Format::Csv };
    let top = crate::view::table::top(chosen.top, format);
    shown.choose(chosen.filter, chosen.sort, top, chosen.all || !is_text)?;
    if let (true, Some(glob)) = (shown.rows.iter().all(Vec::is_empty), chosen.filter) {
        say!("--filter {}: no function and no loop of this profile matches", visible(glob));
        return Ok(ExitCode::from(1));
    }
    let mut out = BufWriter::new(stdout(chosen.format.into()));
    match chosen.format {
        LoopFormat::Of(Format::Table) => {
            let rows = Rows { threads: chosen.threads, all: chosen.all, verbose: chosen.verbose };
            let width = chosen.width.or_else(known_width);
            text(&mut out, &shown, &losses, rows, width)?;
            if !contradictions.is_empty() {
                let prose = width.unwrap_or(PROSE_WIDTH);
                wrapped(&mut out, "note: ", &format!("this cannot be: {contradictions}"), prose)?;
            }
            if let Some(text) = preempted_threads(profile, chosen.raw) {
                wrapped(&mut out, "note: ", &text, width.unwrap_or(PROSE_WIDTH))?;
            }
        }
        LoopFormat::Of(Format::Json) => json::print(&mut out, &shown, &losses, chosen.threads)?,
        LoopFormat::Of(Format::Csv) => {
            csv::print(&mut out, &columns::full(&shown, chosen.threads))?;
        }
        LoopFormat::LwpCsv => columns::original(&mut out, &shown)?,
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the sentence of `report` about threads that lost the CPU during calls. `None` if the
/// profile has no calls, because the loss of a CPU is only known for calls.
fn preempted_threads(profile: &Profile, raw: bool) -> Option<String> {
    if profile.calls() == 0 {
        return None;
    }
    let summary = analysis::summarize(profile, &analysis::Options { raw, ..Default::default() });
    preempted::text_of(profile, &summary, "times of loops")
}

/// Prints the trees. If `width` is `None`, tables are as wide as they need to be.
pub(super) fn text(
    out: &mut impl Write,
    shown: &Loops<'_>,
    losses: &[LossCount],
    rows: Rows,
    width: Option<usize>,
) -> io::Result<()> {
    let tables = width.map(|width| width.max(40));
    let prose = tables.unwrap_or(PROSE_WIDTH);
    let manifest = &shown.profile.manifest;
    let is_empty = shown.table.modules.is_empty();
    if !manifest.command.is_empty() && (rows.verbose || is_empty) {
        wrapped(out, "command   ", &command(manifest), prose)?;
    }
    if is_empty {
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
    let (mut left_modules, mut left_rows) = (0, 0);
    for (index, module) in shown.table.modules.iter().enumerate() {
        if shown.rows[index].is_empty() && shown.is_chosen {
            continue;
        }
        let more = &shown.more;
        let is_named = !more.of.is_empty() && module.nodes.iter().any(|n| more.wants(module, n));
        // With `--top`, a module has no rows if all rows that are kept belong to other modules.
        if shown.rows[index].is_empty() && shown.left_out[index] > 0 && !is_named {
            left_modules += 1;
            left_rows += shown.left_out[index];
            continue;
        }
        wrapped(out, "", &notes::first(shown, module), prose)?;
        if !shown.rows[index].is_empty() {
            writeln!(out)?;
            marks = marks.and(tree(out, shown, index, rows, tables)?);
            trips::histograms(out, module, tables)?;
        }
        for (label, text) in notes::facts(shown, module, rows.verbose) {
            wrapped(out, label, &text, prose)?;
        }
        code_and_text(out, shown, index, rows, tables)?;
        for note in notes::notes(module, rows.all) {
            wrapped(out, "note: ", &note, prose)?;
        }
        writeln!(out)?;
    }
    if left_modules > 0 {
        let (modules, rows) = (plural(left_modules, "module"), plural(left_rows as u128, "row"));
        writeln!(out, "… and {modules} with {rows} (--top 0 shows all)\n")?;
    }
    for (mark, text) in notes::legend(marks) {
        wrapped(out, mark, text, prose)?;
    }
    for note in notes::of_table(shown) {
        wrapped(out, "note: ", &note, prose)?;
    }
    losses::print(out, losses, prose)
}

/// Returns an error if `--only` matches nothing, or if it is given but neither `--asm` nor
/// `--source` is.
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

/// Prints the machine code and the texts of a module, if the user asked for them.
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

#[cfg(test)]
mod tests {
    use profile::Usage;
    use testkit::{CallScript, ProfileScript};

    use super::*;

    /// The calls of a thread take 1 s, and the thread was on a CPU for 0.6 s of this time. The
    /// thread lost the CPU 300 times.
    #[test]
    fn times_of_loops_include_what_other_programs_took() {
        let mut script = ProfileScript::monotonic();
        let process = script.process(4711);
        process.library("m", &["f"]);
        let thread = process.thread("main");
        for n in 0..100 {
            thread.call(CallScript::new(0, n * 10_000_000, 10_000_000));
        }
        let begin = Usage {
            ticks: 0,
            cpu_ns: 0,
            minor_faults: 0,
            major_faults: 0,
            voluntary_switches: 0,
            involuntary_switches: 0,
        };
        let end = |switches| Usage {
            ticks: 1_000_000_000,
            cpu_ns: 600_000_000,
            involuntary_switches: switches,
            ..begin
        };
        thread.usages = vec![(Some(begin), Some(end(300)))];
        let (_scratch, profile) = script.opened();
        let said = preempted_threads(&profile, false).unwrap_or_default();
        let expected =
            "at least 400 ms of its time in calls (40.0 %), which times of loops include";
        assert!(said.contains(expected), "{said}");
        script.processes[0].threads[0].usages = vec![(Some(begin), Some(end(3)))];
        assert_eq!(preempted_threads(&script.opened().1, false), None);
    }
}
