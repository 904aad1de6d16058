//! Prints the ops as text for people.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::io::{self, Write};

use analysis::ops::{OpRow, OpRowKind};

use super::{View, columns, machines};
use crate::failure::Failure;
use crate::output::Format;
use crate::view::head::command;
use crate::view::losses;
use crate::view::notes::{hosts_without_calls, isolated_python, some_of};
use crate::view::price;
use crate::view::table::{Table, top};
use crate::view::text;
use crate::view::units::{grouped, plural, time};
use crate::view::wrap::{PROSE_WIDTH, wrapped};

/// Returns an error if `--sort` names no column.
pub fn check(view: &View<'_>) -> Result<(), Failure> {
    view.chosen.arrange(&mut columns::ops(view, columns::Readers::People))
}

/// Prints the ops. If `width` is `None`, tables are as wide as they need to be.
pub fn print(out: &mut impl Write, view: &View<'_>, width: Option<usize>) -> io::Result<()> {
    let tables = width.map(|width| width.max(40));
    let prose = tables.unwrap_or(PROSE_WIDTH);
    let (profile, table) = (view.profile, view.table);
    let is_empty = table.runs == 0 && table.ops == 0;
    if !profile.manifest.command.is_empty() && (view.chosen.verbose || is_empty) {
        wrapped(out, "command   ", &command(&profile.manifest), prose)?;
    }
    if is_empty {
        writeln!(out, "no ops were recorded; likely reasons:")?;
        for reason in reasons(view) {
            wrapped(out, "  - ", &reason, prose)?;
        }
        return losses::print(out, &view.losses, prose);
    }
    let label = if table.runs == 0 { "ops       " } else { "runs      " };
    wrapped(out, label, &runs(view), prose)?;
    if let Some(text) = price::warning(profile, &table.costs) {
        wrapped(out, "price     ", &text, prose)?;
    }
    writeln!(out)?;
    ops(out, view, tables)?;
    if !profile.manifest.counters.is_empty() && has_inside(view) {
        let text = "as self, without the ops inside (`report` has them with what is inside)";
        wrapped(out, "counters: ", text, prose)?;
        writeln!(out)?;
    }
    let is_of_op = |row: &OpRow| row.kind != OpRowKind::NoOp && row.regions.regions > 0;
    if view.table.rows.iter().any(is_of_op) {
        let text = "with the op's parallel regions, which have rows of their own in `report`";
        wrapped(out, "self: ", text, prose)?;
        writeln!(out)?;
    }
    let mut regions = columns::regions(view);
    view.chosen.keep_matching(&mut regions);
    let all = regions.order.clone();
    regions.keep_first(top(view.chosen.top, Format::Table));
    if !regions.order.is_empty() {
        text::table(out, &regions, tables)?;
        for line in serial(view, &all) {
            wrapped(out, "cores: ", &line, prose)?;
        }
    }
    if view.chosen.verbose {
        wrapped(out, "price: ", &price::text_of(profile, &table.costs), prose)?;
        losses::print(out, &view.losses, prose)?;
    } else {
        wrapped(out, "price: ", &price::line_of(profile, &table.costs, view.raw), prose)?;
        losses::print_brief(out, &view.losses, prose)?;
    }
    for note in notes(view) {
        wrapped(out, "note: ", &note, prose)?;
    }
    Ok(())
}

/// Prints the table of ops. Arguments have their own column. If this column does not fit, the
/// arguments are written after the names that several ops share.
fn ops(out: &mut impl Write, view: &View<'_>, width: Option<usize>) -> io::Result<()> {
    let mut printed = Vec::new();
    let table = arranged(view);
    let left_out = text::table(&mut printed, &table, width)?;
    if left_out.contains(&columns::ARGUMENTS) && columns::names_are_shared(view) {
        printed.clear();
        // In this narrow table, names contain arguments, to which `--filter` must not be applied.
        // So the rows are taken from the wide table, which was already filtered.
        let mut narrow = columns::ops(view, columns::Readers::PeopleInANarrowPlace);
        (narrow.order, narrow.left_out) = (table.order.clone(), table.left_out);
        text::table(&mut printed, &narrow, width)?;
    }
    out.write_all(&printed)
}

/// Returns the rows that the user asked for.
pub fn arranged(view: &View<'_>) -> Table {
    let mut table = columns::ops(view, columns::Readers::People);
    // This cannot fail, because `check` has already accepted the column of `--sort`.
    let _ = view.chosen.arrange(&mut table);
    table
}

/// Whether some op has other ops inside of it, so that its self time differs from its total time.
fn has_inside(view: &View<'_>) -> bool {
    view.table.rows.iter().any(|row| row.total.value > row.own.value)
}

fn ns(view: &View<'_>, ticks: f64) -> f64 {
    ticks.max(0.0) * view.profile.timeline.ns_per_tick()
}

/// Returns a text with the numbers of runs and of op calls, and their time.
fn runs(view: &View<'_>) -> String {
    let table = view.table;
    if table.runs == 0 {
        let together = time(ns(view, view.table.outside.value));
        let calls = plural(table.ops.into(), "call");
        return format!("{calls} took {together}; shares are parts of this time");
    }
    let ops = plural(table.ops.into(), "op call");
    let failed = match table.failed {
        0 => String::new(),
        n => {
            let names: Vec<&str> = table.threw.keys().map(String::as_str).collect();
            let threw = match names.as_slice() {
                [] => String::new(),
                names => format!(" ({} threw)", names.join(", ")),
            };
            format!(", {} failed{threw}", grouped(n.into()))
        }
    };
    let outside = match table.outside.value {
        0.0 => String::new(),
        ticks => format!("; ops outside of runs took {} more", time(ns(view, ticks))),
    };
    format!(
        "{} with {ops}{failed}; wall time {} (the sum of the rows){outside}",
        plural(table.runs.into(), "run"),
        time(ns(view, view.table.wall.value)),
    )
}

/// Returns sentences about parallel regions in which tasks ran one after the other. The reason is
/// not known. For example, another program may have used the other CPUs.
fn serial(view: &View<'_>, order: &[usize]) -> Vec<String> {
    let rows = &view.table.rows;
    let mut lines = Vec::new();
    for row in order.iter().map(|row| &rows[*row]) {
        let (regions, name) = (&row.regions, columns::name(row));
        let of = plural(regions.regions.into(), "region");
        if regions.serial_threads > 0 {
            lines.push(format!(
                "{name}: in {} of {of}, one thread ran several tasks one after the other",
                grouped(regions.serial_threads.into())
            ));
        }
        let on_cpus: u64 = regions.serial_cpus.values().sum();
        if on_cpus > 0 {
            let cpus: Vec<String> = regions.serial_cpus.keys().map(u32::to_string).collect();
            lines.push(format!(
                "{name}: in {} of {of}, tasks of different threads ran one after the other on one \
                 CPU ({})",
                grouped(on_cpus.into()),
                cpus.join(" or ")
            ));
        }
    }
    const MOST: usize = 2;
    if lines.len() > MOST && !view.chosen.verbose {
        let more = lines.len() - MOST;
        lines.truncate(MOST);
        lines.push(format!("and {more} more (--verbose)"));
    }
    lines
}

fn notes(view: &View<'_>) -> Vec<String> {
    let table = view.table;
    let mut notes = Vec::new();
    if !view.contradictions.is_empty() {
        notes.push(format!("this cannot be: {}", view.contradictions));
    }
    let has_counters = !view.profile.manifest.counters.is_empty();
    if table.runs > 0 && has_counters && (table.uncounted > 0 || view.chosen.verbose) {
        notes.push(match table.uncounted {
            0 => "counts of (entry function) include those between ops; counts of an op do not \
                      include the ops inside it"
                .to_owned(),
            _ => format!(
                "counts of (entry function) include those between ops and those of {} ops, which \
                     were only timed (record with --bookkeeping to count them); counts of an op do \
                     not include the ops inside it",
                bookkeeping(view)
            ),
        });
    }
    if table.rows.iter().any(columns::is_asynchronous) {
        notes.push(
            "ops on asynchronous devices return before the device is done, so their time is that \
             of the launch"
                .to_owned(),
        );
    }
    let incomplete: u64 = table.rows.iter().map(|row| row.regions.incomplete).sum();
    if incomplete > 0 {
        notes.push(format!(
            "in {}, not all tasks were recorded, so it is not known what workers counted for the op",
            plural(incomplete.into(), "region")
        ));
    }
    if view.profile.manifest.passes > 0 {
        notes.push(
            "the program ran once for each pass; calls and times are the sums over all passes"
                .into(),
        );
    }
    notes
}

/// Returns the names of the bookkeeping ops in the table, as patterns such as `vm.builtin.*`.
fn bookkeeping(view: &View<'_>) -> String {
    let rows = view.table.rows.iter();
    let of_rows: BTreeSet<Cow<'_, str>> = rows
        .filter_map(|row| match &row.kind {
            OpRowKind::Bookkeeping { names, .. } => Some(names.as_str().into()),
            _ => None,
        })
        .collect();
    // With `--all`, no row sums up bookkeeping: each bookkeeping op has its own row.
    let ops = &view.profile.ops;
    let of_ops = ops.all().iter().filter(|op| of_rows.is_empty() && op.bookkeeping);
    let prefixes: BTreeSet<&str> = of_ops.map(|op| &*ops.host_of(op).bookkeeping).collect();
    let of_ops = prefixes.into_iter().map(|prefix| format!("{prefix}*").into());
    some_of(of_rows.into_iter().chain(of_ops).collect())
}

fn reasons(view: &View<'_>) -> Vec<String> {
    let filter = &view.chosen.trees;
    let mut reasons = Vec::new();
    if filter.machine.is_some() || filter.since.is_some() || filter.until.is_some() {
        reasons.push("no recorded op matches --vm, --since and --until".into());
    }
    let any_op = view.profile.ops.all().iter().any(|op| op.role.is_of_machine());
    if machines(view.profile).is_empty() && !any_op {
        reasons.extend(isolated_python(&view.profile.manifest.command));
        reasons.push(
            "no virtual machine of TVM and no op of PyTorch was seen: the program uses neither, or in \
             a way that is not recorded (see docs/tvm.md and docs/pytorch.md)"
                .into(),
        );
        if view.profile.calls() > 0 {
            reasons.push(
                "the profile has calls of other kinds; `counterpoint report` shows them".into(),
            );
        }
    } else {
        reasons.extend(hosts_without_calls(view.profile, |host| host.calls_ops));
        let filters = &view.profile.manifest.filters;
        if !filters.is_empty() {
            reasons.push(format!("the filter {} matches no op", filters.join(", ")));
        }
    }
    reasons
}
