//! `report --tree`: shows calls inside of calls, and the loops inside of dispatches.
//!
//! ```text
//!  analysis::call_tree ─┐
//!  analysis::loops ─────┴─► rows in the order of a tree ─┬─► text
//!                                                        ├─► json
//!                                                        └─► csv
//! ```

use std::io::{self, Write};
use std::process::ExitCode;

use analysis::tree::{TreePart, TreeRow, TreeRows};
use analysis::{By, CallTree, Estimate, Key, TreeNode, call_tree, passes};
use profile::{Profile, Role};

use super::{Args, Out, output};
use crate::failure::Failure;
use crate::matching;
use crate::object::object;
use crate::view::forest::{self, Choice};
use crate::view::head::ProfileHead;
use crate::view::labels::{labels, op_of};
use crate::view::layout::Names;
use crate::view::loops::{Loops, is_called, readable_name};
use crate::view::losses::{self, losses_out};
use crate::view::open::NOTHING;
use crate::view::table::{Column, Quantity, Table, Value};
use crate::view::text::table;
use crate::view::units::{plural, time};
use crate::view::wrap::{PROSE_WIDTH, in_one_line, wrapped};

const TREE_SCHEMA: &str = "counterpoint.tree/1";
/// Deeper rows are indented like rows at this level.
const DEEPEST: usize = 30;

struct Row {
    of: TreeRow,
    kind: &'static str,
    name: String,
    /// Whether the user's filter matches the name of this row.
    is_match: bool,
}

/// The whole tree, for the HTML page.
pub struct Whole {
    pub table: Table,
    /// The names of columns, each with its label and explanation.
    pub explained: Vec<(&'static str, &'static str, &'static str)>,
    /// The index of each row's parent.
    pub parents: Vec<Option<usize>>,
    /// The op of each row; `None` for the rows of loops.
    pub keys: Vec<Option<Key>>,
}

/// Returns the whole tree. Returns `None` for a run with `--budget`, or if no call or loop is
/// inside of another one.
pub fn whole(profile: &Profile, loops: &Loops<'_>, raw: bool) -> Option<Whole> {
    let calls = call_tree(profile, raw, 0)?;
    let TreeRows { rows, .. } =
        analysis::tree::rows(profile, &calls, &loops.table, &loops.around, raw);
    let all = named(profile, &calls, loops, rows, None);
    let mut table = columns(&all);
    let parents: Vec<Option<usize>> = all.iter().map(|row| row.of.parent).collect();
    let choice = Choice {
        parents: &parents,
        is_match: &vec![true; all.len()],
        weights: &vec![0.0; all.len()],
        sort: Some("total"),
        top: None,
    };
    forest::choose(&mut table, &choice).ok()?;
    let key = |row: &Row| match row.of.what {
        TreePart::Calls(node) => calls.nodes.get(node).map(|node| node.key),
        TreePart::Loop(..) => None,
    };
    let keys = all.iter().map(key).collect();
    let explained = explained(&table);
    (table.names == Names::Tree).then_some(Whole { table, explained, parents, keys })
}

/// The name of a column: the time of a row, minus the time of all rows below that row.
const REST: &str = "rest_ns";

/// Returns the names of a tree's columns, each with its label and explanation.
fn explained(table: &Table) -> Vec<(&'static str, &'static str, &'static str)> {
    let has_rest = table.columns.iter().any(|column| column.name == REST && !column.csv_only);
    let total = ("total_ns", "total: ", "with what is inside, and as a part of the time in calls");
    match has_rest {
        true => vec![
            total,
            (
                "self_ns",
                "self: ",
                "without the calls inside of a call, as in a report by op, or without the loops inside of a loop",
            ),
            (REST, "rest: ", "without all that is below, also the loops below a call"),
            ("share", "share: ", "by rest"),
        ],
        false => vec![
            total,
            ("self_ns", "self: ", "without the calls inside, as in a report by op"),
            ("share", "share: ", "by self"),
        ],
    }
}

const APART: &str = "loops without a share: it is not known in which calls they ran, so their time can be in \
                     that of the calls";

pub fn main(args: &Args, profile: &Profile) -> Result<ExitCode, Failure> {
    let Some(calls) = call_tree(profile, args.raw, 0) else {
        return Err(Failure::new(
            "--tree: with a budget, it is not known what was around a call that was only counted",
        )
        .hint("`report` without --tree has one row for each op"));
    };
    let recorded = profile.loops().map_err(Failure::new)?;
    let loops = Loops::new(profile, &recorded, &[], args.raw);
    let TreeRows { rows, own_ns } =
        analysis::tree::rows(profile, &calls, &loops.table, &loops.around, args.raw);
    let all = named(profile, &calls, &loops, rows, args.filter.as_deref());
    let mut table = columns(&all);
    let of = |row: &Row| row.of.total.map_or(f64::MAX, |total| total.value);
    let choice = Choice {
        parents: &all.iter().map(|row| row.of.parent).collect::<Vec<_>>(),
        is_match: &all.iter().map(|row| row.is_match).collect::<Vec<_>>(),
        weights: &all.iter().map(of).collect::<Vec<_>>(),
        sort: Some(args.sort.as_deref().unwrap_or("total")),
        top: args.top(),
    };
    forest::choose(&mut table, &choice)?;
    if let (true, Some(glob)) = (table.order.is_empty(), &args.filter) {
        matching::no_op(profile, "--filter", glob);
        return Ok(ExitCode::from(1));
    }
    let document = || {
        let mut places = vec![None; all.len()];
        for (place, row) in table.order.iter().enumerate() {
            places[*row] = Some(place);
        }
        let row = |i: &usize| {
            let row = &all[*i];
            object! {
                // The index of the parent row in `rows`.
                parent: row.of.parent.and_then(|parent| places[parent]),
                depth: row.of.depth,
                kind: row.kind,
                name: &row.name,
                // Null if the passes of `run --passes` may have different numbers of calls.
                calls: row.of.calls,
                total_ns: row.of.total.map(|total| total.value),
                self_ns: row.of.own.map(|own| own.value),
                rest_ns: row.of.rest.map(|rest| rest.value),
                share: row.of.share,
                total_share: row.of.total_share,
            }
        };
        object! {
            schema: TREE_SCHEMA,
            profile: ProfileHead::new(&profile.manifest, profile),
            filter: args.filter.as_deref(),
            // The time in all calls, even in those that a filter leaves out.
            self_ns: own_ns,
            rows: table.order.iter().map(row).collect::<Vec<_>>(),
            losses: losses_out(&profile.all_losses()),
        }
    };
    let is_apart = |row: &usize| {
        let of = &all[*row].of;
        matches!(of.what, TreePart::Loop(..)) && of.share.is_none() && of.own.is_some()
    };
    let some_apart = own_ns > 0.0 && table.order.iter().any(is_apart);
    let text = |out: &mut Out, width: Option<usize>| match all.is_empty() {
        true => writeln!(out, "{NOTHING}"),
        false => {
            text(out, width, profile, all.len(), &table, own_ns)?;
            match some_apart {
                true => wrapped(out, "note: ", APART, width.unwrap_or(PROSE_WIDTH)),
                false => Ok(()),
            }
        }
    };
    output(args, &table, text, document)
}

fn kind(profile: &Profile, node: &TreeNode) -> &'static str {
    match op_of(profile, node.key).map(|op| op.role) {
        _ if node.is_deeper => "deeper",
        Some(Role::Workgroup) => "dispatch",
        Some(role) => role.name(),
        None => "call",
    }
}

fn named(
    profile: &Profile,
    calls: &CallTree,
    loops: &Loops<'_>,
    rows: Vec<TreeRow>,
    filter: Option<&str>,
) -> Vec<Row> {
    let mut keys: Vec<Key> = calls.nodes.iter().map(|node| node.key).collect();
    keys.sort_unstable();
    keys.dedup();
    let labels = labels(profile, &keys);
    let of_calls = |of: TreeRow, node: &TreeNode| {
        let label = keys.binary_search(&node.key).ok().and_then(|at| labels.get(at));
        let label = label.cloned().unwrap_or_default();
        let name = op_of(profile, node.key).map_or(label.as_str(), |op| &op.name);
        Row {
            of,
            kind: kind(profile, node),
            is_match: filter.is_none_or(|glob| profile::demangle::matches(glob, name)),
            name: if node.is_deeper { "(deeper calls)".to_owned() } else { label },
        }
    };
    let row = |of: TreeRow| match of.what {
        TreePart::Calls(node) => of_calls(of, &calls.nodes[node]),
        TreePart::Loop(module, node) => {
            let tree = &loops.table.modules[module];
            let node = &tree.nodes[node];
            let is_match = filter.is_none_or(|glob| is_called(glob, tree, node));
            Row { of, kind: "loop", is_match, name: readable_name(tree, node) }
        }
    };
    rows.into_iter().map(row).collect()
}

fn columns(rows: &[Row]) -> Table {
    let column = |rank, name: &str, title: &str, cell: &dyn Fn(&Row) -> Option<Value>| {
        Column::new(rank, name, title, rows.iter().map(cell).collect())
    };
    let ns = |of: Option<Estimate>| of.map(|of| Value::Estimated(Quantity::Ns, of, false));
    // Without loops below calls, `rest` is the same as the self time.
    let has_rest = rows.iter().any(|row| row.of.rest != row.of.own);
    let columns = vec![
        column(0, "name", "call", &|row| {
            let indent = "  ".repeat((row.of.depth as usize).min(DEEPEST));
            Some(Value::Text(format!("{indent}{}", row.name)))
        }),
        column(1, "calls", "calls", &|row| row.of.calls.map(Value::Count)),
        column(1, "total_ns", "total", &|row| ns(row.of.total)),
        column(1, "total_share", "of all", &|row| row.of.total_share.map(Value::Part)),
        column(1, "self_ns", "self", &|row| ns(row.of.own)),
        Column { csv_only: !has_rest, ..column(1, REST, "rest", &|row| ns(row.of.rest)) },
        column(1, "share", "share", &|row| row.of.share.map(Value::Part)),
        // CSV has the row's kind as a column, because the name alone may not show it.
        Column {
            csv_only: true,
            ..column(9, "kind", "", &|row| Some(Value::Text(row.kind.to_owned())))
        },
        Column {
            csv_only: true,
            ..column(9, "depth", "", &|row| Some(Value::Count(row.of.depth.into())))
        },
    ];
    let is_tree = rows.iter().any(|row| row.of.depth > 0);
    let names = if is_tree { Names::Tree } else { Names::Ops };
    Table { names, ..Table::new(columns, (0..rows.len()).collect()) }
}

fn text(
    out: &mut Out,
    width: Option<usize>,
    profile: &Profile,
    all: usize,
    rows: &Table,
    whole: f64,
) -> io::Result<()> {
    let prose = width.unwrap_or(PROSE_WIDTH);
    let ways = plural(all as u128, "row");
    let mean = match passes(profile, By::Op) {
        1 => String::new(),
        n => format!(" (mean of {n} passes)"),
    };
    let head = time(whole);
    let ranks = match profile.known_ranks().len() {
        0 | 1 => String::new(),
        n => format!(" of all {n} ranks"),
    };
    let head = format!("{head} in calls{ranks}{mean}; {ways}, each below what it was called in");
    wrapped(out, "", &head, prose)?;
    writeln!(out)?;
    table(out, rows, width)?;
    wrapped(out, "", &in_one_line(&explained(rows)), prose)?;
    losses::print_brief(out, &profile.all_losses(), prose)
}
