//! `report --tree`: calls inside of calls, and the loops inside of dispatches.
//!
//! ```text
//!  analysis::call_tree ─┐
//!  analysis::loops ─────┴─► rows in the order of a tree ─┬─► text
//!                                                        ├─► json
//!                                                        └─► csv
//! ```

use std::collections::HashMap;
use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

use analysis::loops::{LoopNode, LoopTree};
use analysis::{By, CallTree, Estimate, Key, TreeNode, call_tree, passes};
use profile::{Profile, Role};
use serde::Serialize;

use super::Args;
use crate::failure::Failure;
use crate::matching;
use crate::output::Format;
use crate::terminal::{known_width, stdout};
use crate::view::csv;
use crate::view::head::ProfileHead;
use crate::view::labels::{labels, op_of};
use crate::view::loops::{Loops, is_called, readable_name};
use crate::view::losses::{self, LossOut, losses_out};
use crate::view::open::NOTHING;
use crate::view::table::{Column, Quantity, Table, Value};
use crate::view::text::table;
use crate::view::units::{plural, time};
use crate::view::wrap::{PROSE_WIDTH, wrapped};

/// The version of the document.
const TREE_SCHEMA: &str = "counterpoint.tree/1";
/// Levels are indented up to this one.
const DEEPEST: usize = 30;

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    profile: ProfileHead<'a>,
    filter: Option<&'a str>,
    /// The time in calls, before filtering.
    self_ns: f64,
    rows: Vec<RowOut<'a>>,
    losses: Vec<LossOut>,
}

#[derive(Serialize)]
struct RowOut<'a> {
    /// Index of the row above in `rows`.
    parent: Option<usize>,
    depth: u32,
    kind: &'a str,
    name: &'a str,
    /// Null if the passes cannot have had the same number.
    calls: Option<u128>,
    total_ns: Option<f64>,
    self_ns: Option<f64>,
    share: Option<f64>,
}

/// One row of the tree. Times are in ns.
struct Row {
    /// Index of the row above.
    parent: Option<usize>,
    depth: u32,
    kind: &'static str,
    name: String,
    /// `None`: passes of which this is the mean cannot have had the same number.
    calls: Option<u128>,
    total: Option<Estimate>,
    own: Option<Estimate>,
    /// Whether the filter selects it by its own name.
    is_match: bool,
}

impl Row {
    fn be_mean_of(&mut self, passes: u64) {
        let n = u128::from(passes);
        self.calls = self.calls.filter(|calls| calls % n == 0).map(|calls| calls / n);
        for time in [&mut self.total, &mut self.own] {
            *time = time.map(|time| time.times(1.0 / passes as f64));
        }
    }
}

/// Prints the report as a tree.
pub fn main(args: &Args, profile: &Profile) -> Result<ExitCode, Failure> {
    let Some(calls) = call_tree(profile, args.raw, 0) else {
        return Err(Failure::new(
            "--tree: with a budget, it is not known what was around a call that was only counted",
        )
        .hint("`report` without --tree has one row for each op"));
    };
    let recorded = profile.loops().map_err(Failure::new)?;
    let loops = Loops::new(profile, &recorded, &[], args.raw);
    let mut all = rows(profile, &calls, &loops, args.filter.as_deref());
    // Each pass repeats all calls.
    let passes = passes(profile, By::Op);
    all.iter_mut().for_each(|row| row.be_mean_of(passes));
    let whole = calls.own() * profile.timeline.ns_per_tick() / passes as f64;
    let order = chosen(&all, args)?;
    if let (true, Some(glob)) = (order.shown.is_empty(), &args.filter) {
        matching::no_op(profile, "--filter", glob);
        return Ok(ExitCode::from(1));
    }
    let share = |row: &Row| Some(row.own?.value / whole).filter(|_| whole > 0.0);
    let mut table = columns(&all, &share);
    table.order = order.shown;
    table.left_out = order.left_out;
    let mut out = BufWriter::new(stdout(args.format.into()));
    match args.format {
        Format::Table if all.is_empty() => writeln!(out, "{NOTHING}")?,
        Format::Table => text(&mut out, args, profile, &all, &table, whole)?,
        Format::Csv => csv::print(&mut out, &table)?,
        Format::Json => {
            let mut places = vec![None; all.len()];
            for (place, row) in table.order.iter().enumerate() {
                places[*row] = Some(place);
            }
            let row = |i: &usize| {
                let row = &all[*i];
                RowOut {
                    parent: row.parent.and_then(|parent| places[parent]),
                    depth: row.depth,
                    kind: row.kind,
                    name: &row.name,
                    calls: row.calls,
                    total_ns: row.total.map(|total| total.value),
                    self_ns: row.own.map(|own| own.value),
                    share: share(row),
                }
            };
            let document = Document {
                schema: TREE_SCHEMA,
                profile: ProfileHead::new(&profile.manifest, profile),
                filter: args.filter.as_deref(),
                self_ns: whole,
                rows: table.order.iter().map(row).collect(),
                losses: losses_out(&profile.all_losses()),
            };
            serde_json::to_writer_pretty(&mut out, &document).map_err(io::Error::from)?;
            writeln!(out)?;
        }
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

fn kind(profile: &Profile, node: &TreeNode) -> &'static str {
    match op_of(profile, node.key).map(|op| op.role) {
        _ if node.is_deeper => "deeper",
        Some(Role::Workgroup) => "dispatch",
        Some(role) => role.name(),
        None => "call",
    }
}

/// The rows of calls and of loops, each after the one above it.
fn rows(profile: &Profile, calls: &CallTree, loops: &Loops<'_>, filter: Option<&str>) -> Vec<Row> {
    let mut keys: Vec<Key> = calls.nodes.iter().map(|node| node.key).collect();
    keys.sort_unstable();
    keys.dedup();
    let labels = labels(profile, &keys);
    let mut nodes_of: HashMap<Key, usize> = HashMap::new();
    calls.nodes.iter().for_each(|node| *nodes_of.entry(node.key).or_default() += 1);
    let mut rows: Vec<Row> = Vec::new();
    let mut places = Vec::new();
    for node in &calls.nodes {
        let label = keys.binary_search(&node.key).ok().and_then(|at| labels.get(at));
        let label = label.cloned().unwrap_or_default();
        let name = op_of(profile, node.key).map_or(label.as_str(), |op| &op.name);
        let in_ns = |ticks: Estimate| Some(ticks.times(profile.timeline.ns_per_tick()));
        places.push(rows.len());
        rows.push(Row {
            parent: node.parent.map(|parent| places[parent]),
            depth: node.depth,
            kind: kind(profile, node),
            is_match: filter.is_none_or(|glob| profile::demangle::matches(glob, name)),
            name: if node.is_deeper { "(deeper calls)".to_owned() } else { label },
            calls: Some(node.calls.into()),
            total: in_ns(node.total),
            own: in_ns(node.own),
        });
        let is_only = nodes_of.get(&node.key) == Some(&1);
        if let (Key::Op(op), true) = (node.key, is_only) {
            let of = |(tree, node): &(&LoopTree, &LoopNode)| {
                loops.inside(tree, node).is_some_and(|(dispatch, _)| dispatch.ops.contains(&op))
            };
            add_loops(&mut rows, Some(places[places.len() - 1]), loops, of, filter);
        }
    }
    let is_alone = |(tree, node): &(&LoopTree, &LoopNode)| loops.inside(tree, node).is_none();
    add_loops(&mut rows, None, loops, is_alone, filter);
    rows
}

/// Adds the functions and loops that `of` selects below a row.
fn add_loops(
    rows: &mut Vec<Row>,
    above: Option<usize>,
    loops: &Loops<'_>,
    of: impl Fn(&(&LoopTree, &LoopNode)) -> bool,
    filter: Option<&str>,
) {
    let depth = above.map_or(0, |above| rows[above].depth + 1);
    // The rows of the loops around the next one, by their levels.
    let mut around: Vec<(u32, usize)> = Vec::new();
    let mut inside: Option<Estimate> = Some(Estimate::exact(0.0));
    for (tree, node) in loops.entered().filter(of) {
        around.retain(|(level, _)| *level < node.level);
        let parent = around.last().map(|(_, row)| *row).or(above);
        let times = node.all.times(loops.raw);
        let ns = |of: analysis::loops::Estimate| {
            let value = tree.ns(of.value)?;
            let margin = of.margin.and_then(|margin| tree.ns(margin)).unwrap_or(0.0);
            Some(Estimate { value, low: (value - margin).max(0.0), high: value + margin })
        };
        let total = times.and_then(|times| ns(times.inclusive));
        if around.is_empty() {
            inside = inside.zip(total).map(|(sum, more)| sum.plus(more));
        }
        around.push((node.level, rows.len()));
        rows.push(Row {
            parent,
            depth: depth + around.len() as u32 - 1,
            kind: "loop",
            is_match: filter.is_none_or(|glob| is_called(glob, tree, node)),
            name: readable_name(tree, node),
            calls: Some(node.all.hits),
            total,
            own: times.and_then(|times| times.own).and_then(ns),
        });
    }
    // What belongs to loops does not belong to the dispatch around them as well.
    if let Some(above) = above.filter(|above| rows.len() > above + 1) {
        rows[above].own = rows[above].own.zip(inside).map(|(own, inside)| {
            let rest = own.minus(inside);
            Estimate {
                value: rest.value.max(0.0),
                high: rest.high.max(0.0),
                low: rest.low.max(0.0),
            }
        });
    }
}

/// The rows that are shown, in the order of the tree, and how many are not.
struct Order {
    shown: Vec<usize>,
    left_out: usize,
}

/// Those that the filter selects, with what is around and inside of them, and of these as many as
/// `--top` allows: those with the most time, which never leaves out what is around another one.
fn chosen(rows: &[Row], args: &Args) -> Result<Order, Failure> {
    let mut shown: Vec<bool> = rows.iter().map(|row| row.is_match).collect();
    for i in 0..rows.len() {
        shown[i] |= rows[i].parent.is_some_and(|parent| shown[parent]);
    }
    for i in (0..rows.len()).rev() {
        if let (true, Some(parent)) = (shown[i], rows[i].parent) {
            shown[parent] = true;
        }
    }
    let time = |i: usize| rows[i].total.map_or(f64::MAX, |total| total.value);
    let mut by_time: Vec<usize> = (0..rows.len()).filter(|i| shown[*i]).collect();
    by_time.sort_by(|a, b| time(*b).total_cmp(&time(*a)).then(a.cmp(b)));
    let all = by_time.len();
    by_time.truncate(args.top().unwrap_or(usize::MAX));
    let mut kept = vec![false; rows.len()];
    for i in by_time {
        let mut at = Some(i);
        while let Some(row) = at.filter(|row| !kept[*row]) {
            kept[row] = true;
            at = rows[row].parent;
        }
    }
    let key = |i: usize| -> Result<f64, Failure> {
        let row = &rows[i];
        Ok(match args.sort.as_deref() {
            None | Some("total" | "total_ns") => row.total.map_or(0.0, |total| total.value),
            Some("self" | "self_ns" | "share") => row.own.map_or(0.0, |own| own.value),
            Some("calls") => row.calls.unwrap_or(0) as f64,
            Some(other) => {
                return Err(Failure::new(format!("--sort {other}: no such column"))
                    .hint("columns: calls, total_ns, self_ns, share"));
            }
        })
    };
    let mut below: Vec<Vec<usize>> = vec![Vec::new(); rows.len() + 1];
    for i in (0..rows.len()).filter(|i| kept[*i]) {
        below[rows[i].parent.map_or(0, |parent| parent + 1)].push(i);
    }
    let mut shown = Vec::new();
    let mut open = vec![];
    let push = |open: &mut Vec<usize>, of: usize| -> Result<(), Failure> {
        let mut rows: Vec<(f64, usize)> =
            below[of].iter().map(|i| Ok((key(*i)?, *i))).collect::<Result<_, Failure>>()?;
        rows.sort_by(|a, b| a.0.total_cmp(&b.0).then(b.1.cmp(&a.1)));
        open.extend(rows.into_iter().map(|(_, i)| i));
        Ok(())
    };
    push(&mut open, 0)?;
    while let Some(row) = open.pop() {
        shown.push(row);
        push(&mut open, row + 1)?;
    }
    Ok(Order { left_out: all - shown.len(), shown })
}

fn columns(rows: &[Row], share: &dyn Fn(&Row) -> Option<f64>) -> Table {
    let column = |rank, name: &str, title: &str, cell: &dyn Fn(&Row) -> Option<Value>| {
        Column::new(rank, name, title, rows.iter().map(cell).collect())
    };
    let ns = |of: Option<Estimate>| of.map(|of| Value::Estimated(Quantity::Ns, of, false));
    let columns = vec![
        column(0, "name", "call", &|row| {
            let indent = "  ".repeat((row.depth as usize).min(DEEPEST));
            Some(Value::Text(format!("{indent}{}", row.name)))
        }),
        column(1, "calls", "calls", &|row| row.calls.map(Value::Count)),
        column(1, "total_ns", "total", &|row| ns(row.total)),
        column(1, "self_ns", "self", &|row| ns(row.own)),
        column(1, "share", "share", &|row| share(row).map(Value::Part)),
        // Names say it where it is not plain.
        Column {
            csv_only: true,
            ..column(9, "kind", "", &|row| Some(Value::Text(row.kind.to_owned())))
        },
        Column {
            csv_only: true,
            ..column(9, "depth", "", &|row| Some(Value::Count(row.depth.into())))
        },
    ];
    let is_tree = rows.iter().any(|row| row.depth > 0);
    Table { is_tree, ..Table::new(columns, Vec::new()) }
}

fn text(
    out: &mut impl Write,
    args: &Args,
    profile: &Profile,
    all: &[Row],
    rows: &Table,
    whole: f64,
) -> io::Result<()> {
    let width = args.width.or_else(known_width).map(|width| width.max(40));
    let prose = width.unwrap_or(PROSE_WIDTH);
    let ways = plural(all.len() as u128, "row");
    let mean = match passes(profile, By::Op) {
        1 => String::new(),
        n => format!(" (mean of {n} passes)"),
    };
    let head = time(whole);
    let head = format!("{head} in calls{mean}; {ways}, each below what it was called in");
    wrapped(out, "", &head, prose)?;
    writeln!(out)?;
    table(out, rows, width)?;
    let text = "total: with what is inside; self: without; share: of the time in calls, by self";
    wrapped(out, "", text, prose)?;
    losses::print_brief(out, &profile.all_losses(), prose)
}
