//! `report --by module`, `--by line` and `--by shape`: shows tables that are made from recordings
//! of PyTorch's profiler.

use std::io;
use std::process::ExitCode;
use std::rc::Rc;

use analysis::torch::{ModuleRow, Modules, ShapeRow, Shapes, by_line, by_module, by_shape};
use model::metric::Bound;
use profile::Profile;
use profile::activities::Activities;
use serde::Serialize;

use super::{Args, Out, RowKind, output};
use crate::failure::Failure;
use crate::metrics;
use crate::object::{object, unless_empty};
use crate::terminal::{say, visible};
use crate::view::head::ProfileHead;
use crate::view::losses::{self, losses_out};
use crate::view::metrics::{metrics_out, rank};
use crate::view::table::{Column, Table, Value};
use crate::view::text::table;
use crate::view::wrap::{PROSE_WIDTH, in_one_line, wrapped};

const MODULES_SCHEMA: &str = "counterpoint.modules/1";
const LINES_SCHEMA: &str = "counterpoint.lines/1";
const SHAPES_SCHEMA: &str = "counterpoint.shapes/1";
/// The name of the row for ops in no module.
const NO_MODULE: &str = "(no module)";
/// The name of the row for ops that no line of Python code called.
const NO_LINE: &str = "(no line)";
/// Stands for shapes that were not recorded.
const NO_SHAPES: &str = "(not recorded)";

pub fn main(args: &Args, profile: &Profile, by: RowKind) -> Result<ExitCode, Failure> {
    let activities = profile.activities().map_err(Failure::new)?;
    match by {
        RowKind::Module | RowKind::Line => modules(args, profile, &activities, by),
        _ => shapes(args, profile, &activities),
    }
}

fn modules(
    args: &Args,
    profile: &Profile,
    activities: &[Activities],
    by: RowKind,
) -> Result<ExitCode, Failure> {
    let is_line = by == RowKind::Line;
    let (what, none) = if is_line { ("line", NO_LINE) } else { ("module", NO_MODULE) };
    let found = if is_line { by_line(activities) } else { by_module(activities) };
    let Modules { mut rows, ops_ns, any } = found.map_err(Failure::new)?;
    if !any {
        let why = match ops_ns {
            0 => "no recording of PyTorch's profiler".to_owned(),
            _ => format!("no {what} in its recordings of PyTorch's profiler"),
        };
        return Err(Failure::new(format!("{}: has {why}", profile.dir.display()))
            .hint(format!("{what}s are recorded with torch.profiler.profile(with_stack=True)")));
    }
    let matches = |glob: &str, row: &ModuleRow| {
        model::glob::matches(glob, row.module.as_deref().unwrap_or(none))
    };
    rows.retain(|row| args.filter.as_deref().is_none_or(|glob| matches(glob, row)));
    let mut table = of_modules(&rows, ops_ns, is_line);
    // `by_module` and `by_line` have already sorted the rows by the time in ops.
    if let Some(sort) = args.sort.as_deref().filter(|sort| *sort != "total") {
        table.sort(sort)?;
    }
    table.keep_first(args.top());
    let out = |row: &usize| {
        let row = &rows[*row];
        object! {
            // Present only with `--by module`; null for ops in no module.
            module?: (!is_line).then_some(row.module.as_deref()),
            // Present only with `--by line`; null for ops that no line of Python code called.
            line?: is_line.then_some(row.module.as_deref()),
            calls: row.calls,
            total_ns: row.total_ns,
            self_ns: row.self_ns,
            ops: row.ops,
            ops_ns: row.ops_ns,
            backward_ops: row.backward_ops,
            backward_ns: row.backward_ns,
        }
    };
    let document = || table.order.iter().map(out).collect::<Vec<_>>();
    let schema = if is_line { LINES_SCHEMA } else { MODULES_SCHEMA };
    print(args, profile, schema, (ops_ns, &[]), &table, document)
}

fn of_modules(rows: &[ModuleRow], ops_ns: i64, is_line: bool) -> Table {
    let (what, none) = if is_line { ("line", NO_LINE) } else { ("module", NO_MODULE) };
    let ns = |of: fn(&ModuleRow) -> i64| -> Vec<Option<Value>> {
        rows.iter().map(|row| Some(Value::Ns(of(row) as f64))).collect()
    };
    let count = |of: fn(&ModuleRow) -> u64| -> Vec<Option<Value>> {
        rows.iter().map(|row| Some(Value::Count(of(row).into()))).collect()
    };
    let called = |cells: Vec<Option<Value>>| -> Vec<Option<Value>> {
        // The row for ops in no module, or called by no line, has no calls, so its cells in these
        // columns are empty.
        rows.iter().zip(cells).map(|(row, cell)| cell.filter(|_| row.calls > 0)).collect()
    };
    let names = rows
        .iter()
        .map(|row| Some(Value::Text(row.module.as_deref().map_or(none, |name| name).to_owned())));
    let columns = vec![
        Column::new(0, what, what, names.collect()),
        Column::new(2, "calls", "calls", called(count(|row| row.calls))),
        Column::new(3, "total_ns", "total", called(ns(|row| row.total_ns))),
        Column::new(4, "self_ns", "self", called(ns(|row| row.self_ns))),
        Column::new(5, "ops", "ops", count(|row| row.ops)),
        Column::new(1, "ops_ns", "in ops", ns(|row| row.ops_ns)),
        Column::new(6, "backward_ops", "backward ops", count(|row| row.backward_ops)),
        Column::new(1, "backward_ns", "in backward", ns(|row| row.backward_ns)),
        Column::new(
            2,
            "share",
            "share",
            rows.iter().map(|row| part(row.ops_ns + row.backward_ns, ops_ns)).collect(),
        ),
    ];
    Table::new(columns, (0..rows.len()).collect())
}

fn of_shapes(rows: &[ShapeRow], self_ns: i64, metrics: &[Bound]) -> Table {
    let ns = |of: fn(&ShapeRow) -> f64| -> Vec<Option<Value>> {
        rows.iter().map(|row| Some(Value::Ns(of(row)))).collect()
    };
    let flops = |row: &ShapeRow| row.flops.map(|flops| Value::Count(flops.into()));
    let text = |of: &dyn Fn(&ShapeRow) -> Option<String>| -> Vec<Option<Value>> {
        rows.iter().map(|row| of(row).map(Value::Text)).collect()
    };
    let mut columns = vec![
        Column::new(0, "op", "op", text(&|row| Some(row.op.clone()))),
        Column::new(
            1,
            "shapes",
            "shapes of inputs",
            text(&|row| Some(row.shapes.clone().unwrap_or_else(|| NO_SHAPES.to_owned()))),
        ),
        Column::new(
            2,
            "calls",
            "calls",
            rows.iter().map(|row| Some(Value::Count(row.calls.into()))).collect(),
        ),
        Column::new(2, "total_ns", "total", ns(|row| row.total_ns as f64)),
        Column::new(1, "self_ns", "self", ns(|row| row.self_ns as f64)),
        Column::new(
            1,
            "share",
            "share",
            rows.iter().map(|row| part(row.self_ns, self_ns)).collect(),
        ),
        Column::new(3, "mean_ns", "mean", ns(|row| row.total_ns as f64 / row.calls as f64)),
        Column {
            csv_only: rows.iter().all(|row| row.flops.is_none()),
            ..Column::new(4, "flops", "FLOPs", rows.iter().map(flops).collect())
        },
        Column::new(5, "min_ns", "min", ns(|row| row.min_ns as f64)),
        Column::new(5, "max_ns", "max", ns(|row| row.max_ns as f64)),
    ];
    let place = columns.len() - 2;
    let of_metric = |metric: &Bound| {
        let (unit, declared) = (Rc::from(metric.unit.name.as_str()), metric.unit.declared);
        let cell = |row: &ShapeRow| {
            row.metric(metric).map(|value| Value::Metric(value, Rc::clone(&unit), declared))
        };
        let cells = rows.iter().map(cell).collect();
        Column::new(rank(metric), &metric.name, &metric.name, cells)
    };
    columns.splice(place..place, metrics.iter().map(of_metric));
    Table::new(columns, (0..rows.len()).collect())
}

/// Returns the tables of modules, lines and shapes, for the HTML page. A table is left out if no
/// module, line or shape was recorded for it.
pub fn whole(profile: &Profile) -> Result<Vec<(RowKind, Table)>, Failure> {
    let activities = profile.activities().map_err(Failure::new)?;
    let mut tables = Vec::new();
    for (kind, is_line) in [(RowKind::Module, false), (RowKind::Line, true)] {
        let found = if is_line { by_line(&activities) } else { by_module(&activities) };
        let Modules { rows, ops_ns, any } = found.map_err(Failure::new)?;
        if any {
            tables.push((kind, of_modules(&rows, ops_ns, is_line)));
        }
    }
    let Shapes { rows, self_ns, .. } = by_shape(&activities).map_err(Failure::new)?;
    if rows.iter().any(|row| row.shapes.is_some()) {
        let mut table = of_shapes(&rows, self_ns, &[]);
        table.sort("total")?;
        tables.push((RowKind::Shape, table));
    }
    Ok(tables)
}

/// Returns the names of columns, each with its label and explanation.
pub fn explained(kind: Option<RowKind>) -> &'static [(&'static str, &'static str, &'static str)] {
    match kind {
        Some(RowKind::Module) => &[
            ("total_ns", "total: ", "time of a module's calls"),
            ("self_ns", "self: ", "without the modules inside of it"),
            ("ops_ns", "in ops: ", "self times of the forward ops that it called itself"),
            ("backward_ns", "in backward: ", "those of their backward ops"),
            ("share", "share: ", "of all self times of ops"),
        ],
        Some(RowKind::Line) => &[
            (
                "line",
                "line: ",
                "outside of PyTorch, the innermost that called the op (a function, with its first line, if the \
                 recording does not have the line of the call)",
            ),
            ("total_ns", "total: ", "time of the calls from there"),
            ("self_ns", "self: ", "without calls from other such lines"),
            ("ops_ns", "in ops: ", "self times of the forward ops that were called there"),
            ("backward_ns", "in backward: ", "those of their backward ops"),
            ("share", "share: ", "of all self times of ops"),
        ],
        _ => &[
            (
                "self_ns",
                "self: ",
                "without the ops inside of it, as PyTorch recorded them (calls that only Counterpoint recorded, \
                 of TVM for example, are in it, unlike in a report by op)",
            ),
            ("share", "share: ", "of all self times of ops"),
            ("flops", "FLOPs: ", "floating-point operations, as PyTorch counts them"),
        ],
    }
}

fn part(of: i64, all: i64) -> Option<Value> {
    (all > 0).then(|| Value::Part(of as f64 / all as f64))
}

fn shapes(args: &Args, profile: &Profile, activities: &[Activities]) -> Result<ExitCode, Failure> {
    let Shapes { mut rows, self_ns, .. } = by_shape(activities).map_err(Failure::new)?;
    if rows.iter().all(|row| row.shapes.is_none()) {
        let why = match rows.is_empty() {
            true => "no recording of PyTorch's profiler",
            false => "no shapes in its recordings of PyTorch's profiler",
        };
        return Err(Failure::new(format!("{}: has {why}", profile.dir.display()))
            .hint("shapes are recorded with torch.profiler.profile(record_shapes=True)"));
    }
    rows.retain(|row| {
        args.filter.as_deref().is_none_or(|glob| model::glob::matches(glob, &row.op))
    });
    let metrics = metrics::of_shapes(&args.metrics)?;
    let mut table = of_shapes(&rows, self_ns, &metrics);
    table.sort(args.sort.as_deref().unwrap_or("total"))?;
    table.keep_first(args.top());
    let out = |row: &usize| {
        let row = &rows[*row];
        let json = |text: &String| {
            serde_json::from_str(text).unwrap_or(serde_json::Value::String(text.clone()))
        };
        object! {
            op: &row.op,
            // The shapes, as PyTorch recorded them.
            shapes: row.shapes.as_ref().map(json),
            // Null if the number of operations is not known.
            flops: row.flops,
            calls: row.calls,
            total_ns: row.total_ns,
            self_ns: row.self_ns,
            min_ns: row.min_ns,
            max_ns: row.max_ns,
            metrics?: unless_empty(metrics.iter().map(|metric| value_out(row, metric)).collect()),
        }
    };
    let document = || table.order.iter().map(out).collect::<Vec<_>>();
    print(args, profile, SHAPES_SCHEMA, (self_ns, &metrics), &table, document)
}

fn value_out(row: &ShapeRow, metric: &Bound) -> impl Serialize {
    object! {
        name: &metric.name,
        unit: &metric.unit.name,
        value: row.metric(metric),
    }
}

fn print<R: Serialize>(
    args: &Args,
    profile: &Profile,
    schema: &'static str,
    (ops_ns, metrics): (i64, &[Bound]),
    rows: &Table,
    document: impl FnOnce() -> Vec<R>,
) -> Result<ExitCode, Failure> {
    let document = || {
        object! {
            schema,
            profile: ProfileHead::new(&profile.manifest, profile),
            sort: args.sort.as_deref().unwrap_or("total"),
            filter: args.filter.as_deref(),
            // The sum of the self times of all ops, even of those that a filter leaves out.
            ops_ns,
            metrics?: unless_empty(metrics_out(metrics)),
            rows: document(),
            losses: losses_out(&profile.all_losses()),
        }
    };
    let text = |out: &mut Out, width: Option<usize>| text(out, width, args, profile, rows);
    let done = output(args, rows, text, document)?;
    match &args.filter {
        Some(glob) if rows.order.is_empty() => {
            say!(
                "--filter {}: no {} matches",
                visible(glob),
                match args.by {
                    Some(RowKind::Module) => "module",
                    Some(RowKind::Line) => "line",
                    _ => "op",
                }
            );
            Ok(ExitCode::from(1))
        }
        _ => Ok(done),
    }
}

fn text(
    out: &mut Out,
    width: Option<usize>,
    args: &Args,
    profile: &Profile,
    rows: &Table,
) -> io::Result<()> {
    let prose = width.unwrap_or(PROSE_WIDTH);
    table(out, rows, width)?;
    wrapped(out, "", &in_one_line(explained(args.by)), prose)?;
    losses::print(out, &profile.all_losses(), prose)?;
    for note in &profile.manifest.notes {
        wrapped(out, "note: ", note, prose)?;
    }
    Ok(())
}
