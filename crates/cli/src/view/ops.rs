//! Prints the ops of virtual machines and of PyTorch, with their arguments. `report --by arguments`
//! and `ops` use this module.
//!
//! ```text
//!  analysis::ops, trees ─┬─► analysis::OpTable ─► rows of columns ─┬─► text
//!                        │                                         ├─► csv
//!                        │                                         └─► json: rows,
//!                        └───────────────────────────────────────────►   and their calls
//! ```

mod columns;
mod json;
mod sampled;
mod text;

use std::collections::HashSet;
use std::io::{BufWriter, Write};
use std::process::ExitCode;

use analysis::{OpFilter, OpTable, OpTrees, Options, is_contradicted};
use model::Loss;
use profile::{LossCount, Profile, merge_losses};

use super::csv;
use super::held_back::{finding, fired};
use super::inside;
use super::notes::words;
use super::table::{Table, Value, top};
use super::wrap::{PROSE_WIDTH, wrapped};
use crate::failure::Failure;
use crate::matching;
use crate::output::Format;
use crate::terminal::{known_width, stdout};

/// At most this many rows with impossible values are named.
const NAMED: usize = 3;
/// The column by which rows are sorted by default.
const SELF: &str = "self_ns";

/// Which ops are shown, and how. `ops` documents each option.
pub struct Chosen<'a> {
    pub format: Format,
    pub filter: Option<&'a str>,
    pub sort: Option<&'a str>,
    pub top: Option<usize>,
    pub verbose: bool,
    pub trees: OpFilter,
    pub all: bool,
    pub by_rank: bool,
    pub raw: bool,
    pub width: Option<usize>,
}

impl Chosen<'_> {
    fn arrange(&self, table: &mut Table) -> Result<(), Failure> {
        self.keep_matching(table);
        if let Some(sort) = self.sort {
            table.sort(sort)?;
        }
        table.keep_first(top(self.top, self.format));
        Ok(())
    }

    fn keep_matching(&self, table: &mut Table) {
        let Some(glob) = self.filter else { return };
        let Some(names) = table.columns.first().map(|column| &column.cells) else { return };
        table.order.retain(|row| match names.get(*row).as_deref() {
            Some(Value::Text(name)) => profile::demangle::matches(glob, name),
            _ => false,
        });
    }
}

struct View<'a> {
    profile: &'a Profile,
    trees: &'a OpTrees<'a>,
    table: &'a OpTable,
    /// Whether values are as recorded, without subtracting what recording cost.
    raw: bool,
    /// The names of up to [`NAMED`] rows with impossible values. Each name is followed by what is
    /// impossible. Empty if there are no such rows.
    contradictions: String,
    losses: Vec<LossCount>,
    chosen: &'a Chosen<'a>,
}

pub fn print(profile: &Profile, chosen: &Chosen<'_>) -> Result<ExitCode, Failure> {
    if let Some(name) = &chosen.trees.machine {
        known_machine(profile, name)?;
    }
    if profile.is_sampled() && chosen.by_rank {
        return Err(Failure::new(
            "--by rank: the run had a budget, so the self times of ops are not known",
        )
        .hint("`report --by rank` has a row for each rank, and --rank N shows the ops of one"));
    }
    if profile.is_sampled() && chosen.format != Format::Json {
        return sampled::print(profile, chosen);
    }
    // If the values of a profile contradict each other, its views show them as recorded.
    let mut raw = chosen.raw || is_contradicted(profile);
    let mut trees = OpTrees::new(profile, raw);
    let table_of =
        |trees: &OpTrees<'_>| OpTable::new(trees, &chosen.trees, !chosen.all, chosen.by_rank);
    let mut table = table_of(&trees);
    // In a run with a budget (a limit for the cost of recording), only some calls are timed, and
    // sums contain only these calls. Such sums do not match the numbers of all calls, so they are
    // not checked.
    let violations = if profile.is_sampled() { Vec::new() } else { table.violations() };
    let names = violations.iter().take(NAMED).map(|one| {
        let row = one.row.and_then(|row| table.rows.get(row));
        let name = row.map_or_else(|| "all rows".to_owned(), |row| columns::name(row).to_owned());
        format!("{name} ({})", words(one.what))
    });
    let contradictions = names.collect::<Vec<_>>().join(", ");
    if !violations.is_empty() && !raw {
        raw = true;
        trees = OpTrees::new(profile, raw);
        table = table_of(&trees);
    }
    let count = (violations.len() as u64).max(u64::from(raw && !chosen.raw));
    let loss = (count > 0).then(|| LossCount::new(Loss::Inconsistent, count));
    let losses = profile.all_losses();
    let losses = merge_losses(losses.iter().chain(trees.losses()).chain(&loss));
    let (trees, table) = (&trees, &table);
    let view = View { profile, trees, table, raw, contradictions, losses, chosen };
    let mut out = BufWriter::with_capacity(1 << 16, stdout(chosen.format.into()));
    match chosen.format {
        Format::Table => {
            text::check(&view)?;
            if let Some(glob) = chosen.filter
                && view.table.ops > 0
                && text::arranged(&view).order.is_empty()
            {
                matching::no_op(profile, "--filter", glob);
                return Ok(ExitCode::from(1));
            }
            text::print(&mut out, &view, chosen.width.or_else(known_width))?;
            let width = chosen.width.or_else(known_width).map_or(PROSE_WIDTH, |n| n.max(40));
            for (label, text) in last_lines(&view) {
                wrapped(&mut out, label, &text, width)?;
            }
        }
        Format::Json => json::print(&mut out, &view)?,
        Format::Csv => {
            let mut table = columns::ops(&view, columns::Readers::Programs);
            chosen.arrange(&mut table)?;
            csv::print(&mut out, &table)?;
        }
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// Returns what limits the program most, and how to look inside of the op with the most time.
/// Returns nothing if there are no ops, with `--by rank`, or if a filter, a machine or a time range
/// selects some of the ops.
fn last_lines(view: &View<'_>) -> Vec<(&'static str, String)> {
    let trees = &view.chosen.trees;
    let is_whole = view.chosen.filter.is_none()
        && !view.chosen.by_rank
        && (&trees.machine, trees.since, trees.until) == (&None, None, None)
        && view.table.ops > 0;
    if !is_whole {
        return Vec::new();
    }
    let profile = view.profile;
    let options = Options { raw: view.raw, ..Options::default() };
    let summary = analysis::summarize(profile, &options);
    let most = fired(profile, &summary).first().map(|first| finding(profile, first));
    // If reading the loops fails, the profile is treated as one with loops.
    let has_loops = profile.loops().map_or(true, |loops| loops.rows.iter().any(|row| row.hits > 0));
    let inside = inside::text(profile, &summary, has_loops);
    most.map(|text| ("look at: ", text))
        .into_iter()
        .chain(inside.map(|text| ("inside: ", text)))
        .collect()
}

/// Returns the name of each virtual machine, with the index of its process, without duplicates.
fn machines(profile: &Profile) -> Vec<(usize, &str)> {
    let (mut all, mut known) = (Vec::new(), HashSet::new());
    for (index, process) in profile.processes.iter().enumerate() {
        let machines = process.libraries.iter().filter(|l| process.host_of(l).calls_ops);
        for machine in machines.map(|library| (index, library.name.as_str())) {
            if known.insert(machine) {
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
