//! `report --roofline`: shows how far each op is from the limits of the machine.

use std::io::{self, Read};
use std::path::Path;
use std::process::ExitCode;
use std::rc::Rc;

use analysis::roofline::{Level, Placed, Roofs, WORK_COUNTERS, roofline, unplaced};
use analysis::torch::by_shape;
use analysis::work::Rules;
use analysis::{Options, summarize};
use model::metric::Bound;
use profile::Profile;
use serde::Serialize;

use super::{Args, Out, output};
use crate::failure::Failure;
use crate::matching;
use crate::metrics;
use crate::object::{object, unless_empty};
use crate::output::Format;
use crate::page::{Explained, NEAR, Roofline};
use crate::roofs::{self, Document as Measured};
use crate::view::head::ProfileHead;
use crate::view::labels::labels;
use crate::view::losses::{self, losses_out};
use crate::view::metrics::{metrics_out, rank};
use crate::view::table::{Column, Table, Value};
use crate::view::text::table;
use crate::view::units::{percent, plural, shorten};
use crate::view::wrap::{PROSE_WIDTH, wrapped};

const SCHEMA: &str = "counterpoint.placed/1";

/// At most this many ops without a row are named, each in at most [`NAME`] characters.
const NAMED: usize = 3;
const NAME: usize = 40;

/// What is read before opening the profile, because opening gives up the right to read other files.
pub struct Before {
    rules: Rules,
    measured: Option<Measured>,
    /// Whether the user named the file with the roofs (the highest rates that the machine reaches).
    named: bool,
}

impl Before {
    pub fn read(args: &Args) -> Result<Self, Failure> {
        let mut rules = Rules::builtin();
        for path in args.work.iter().rev() {
            rules = of_file(path)?.before(rules);
        }
        let measured = match &args.roofs {
            Some(path) => Some(roofs::of_file(path)?),
            None => roofs::here(),
        };
        Ok(Self { rules, measured, named: args.roofs.is_some() })
    }

    /// Returns the measured roofs if the user named their file with `--roofs`, or if they were
    /// measured on the machine on which the profile was recorded.
    fn measured_for(&self, profile: &Profile) -> Option<&Measured> {
        self.measured.as_ref().filter(|measured| self.named || measured.is_of(&profile.manifest))
    }

    fn no_roofs(&self) -> &'static str {
        match self.measured {
            Some(_) => {
                "the profile was recorded on another machine: run `counterpoint roofline --format json` \
                 there, and give that file to --roofs"
            }
            None => "no roofs: `counterpoint roofline` measures those of this machine",
        }
    }
}

fn of_file(path: &Path) -> Result<Rules, Failure> {
    let mut text = String::new();
    crate::input::once(path)
        .and_then(|mut file| file.read_to_string(&mut text))
        .map_err(|error| Failure::new(format!("--work {}: {error}", path.display())))?;
    Rules::parse(&text).map_err(|error| Failure::new(format!("--work {}: {error}", path.display())))
}

fn level_name(level: Level) -> String {
    level.map_or_else(|| "memory".to_owned(), |level| format!("L{level}"))
}

/// Returns the ops whose work (operations or bytes) is known, and the roofs.
fn placed(profile: &Profile, before: &Before) -> Result<(Vec<Placed>, Option<Roofs>), Failure> {
    let activities = profile.activities().map_err(Failure::new)?;
    let recorded = by_shape(&activities).map_err(Failure::new)?;
    let roofs = before.measured_for(profile).map(Measured::roofs);
    let rows = roofline(profile, &before.rules, roofs.as_ref(), &recorded.rows);
    Ok((rows, roofs))
}

/// Returns the table, the explanations of its columns, and the chart, for the HTML page. Returns
/// `None` if the work (operations or bytes) is not known for any op.
pub fn whole(
    profile: &Profile,
    before: &Before,
) -> Result<Option<(Table, Vec<Explained>, Roofline)>, Failure> {
    let (rows, roofs) = placed(profile, before)?;
    if rows.is_empty() {
        return Ok(None);
    }
    let mut table = columns(&rows, &[], true);
    table.sort("total")?;
    let explained = EXPLAINED.iter().filter(|(name, ..)| roofs.is_some() || !is_of_roofs(name));
    let mut explained: Vec<Explained> =
        explained.map(|(name, label, text)| Explained::column(name, label, *text)).collect();
    if rows.iter().any(|row| row.roof.is_some_and(|roof| roof.part < NEAR)) {
        explained.push(Explained::word(&format!("{FAR}: "), FAR_MEANS));
    }
    let no_roofs = roofs.is_none().then(|| before.no_roofs());
    explained.extend(no_roofs.map(|why| Explained::word("note: ", why)));
    Ok(Some((table, explained, Roofline { rows, roofs, no_roofs })))
}

pub fn main(args: &Args, profile: &Profile, before: &Before) -> Result<ExitCode, Failure> {
    let (mut rows, _) = placed(profile, before)?;
    let measured = before.measured_for(profile);
    let metrics = metrics::of_operands(&args.metrics, &WORK_COUNTERS)?;
    if rows.is_empty() {
        return Err(Failure::new("--roofline: the profile has no op whose work is known").hint(
            "work is known from shapes: of PyTorch's ops with `run --shapes`, of TVM's, and of IREE's \
             dispatches by their names; --work FILE adds rules",
        ));
    }
    if let Some(glob) = &args.filter {
        rows.retain(|row| profile::demangle::matches(glob, &row.name));
        if rows.is_empty() {
            matching::no_op(profile, "--filter", glob);
            return Ok(ExitCode::from(1));
        }
    }
    let mut table = columns(&rows, &metrics, args.format == Format::Table);
    let sort = args.sort.as_deref().unwrap_or("total");
    table.sort(sort)?;
    table.keep_first(args.top());
    let document = || {
        object! {
            schema: SCHEMA,
            profile: ProfileHead::new(&profile.manifest, profile),
            sort,
            filter: args.filter.as_deref(),
            // Null if no measured roofs are used for this profile.
            measured_unix_ns: measured.map(|measured| measured.measured_unix_ns),
            metrics?: unless_empty(metrics_out(&metrics)),
            rows: table.order.iter().map(|row| row_out(&rows[*row], &metrics)).collect::<Vec<_>>(),
            losses: losses_out(&profile.all_losses()),
        }
    };
    // With a filter, missing rows are expected, and JSON and CSV have no place for a note about
    // missing rows.
    let is_asked = args.format == Format::Table && args.filter.is_none();
    let missing = is_asked.then(|| missing(profile, args.raw, &rows)).flatten();
    let has_dispatches = rows.iter().any(|row| row.dispatches.is_some());
    let text = |out: &mut Out, width: Option<usize>| {
        let no_roofs = measured.is_none().then(|| before.no_roofs());
        text(out, width, &table, no_roofs, has_dispatches)?;
        if let Some(missing) = &missing {
            wrapped(out, "not in the table: ", missing, width.unwrap_or(PROSE_WIDTH))?;
        }
        losses::print_brief(out, &profile.all_losses(), width.unwrap_or(PROSE_WIDTH))
    };
    output(args, &table, text, document)
}

fn row_out<'a>(row: &'a Placed, metrics: &'a [Bound]) -> impl Serialize {
    let metrics = metrics.iter().map(|metric| {
        object! {
            name: &metric.name,
            unit: &metric.unit.name,
            value: row.metric(metric),
        }
    });
    object! {
        op: &row.name,
        arguments: &row.arguments,
        calls: row.calls,
        dispatches: row.dispatches,
        total_ns: row.ns,
        threads: row.threads,
        flop_per_call: row.work.flop,
        bytes_per_call: row.work.bytes,
        flop_per_s: row.flop_rate(),
        bytes_per_s: row.byte_rate(),
        flop_per_byte: row.intensity(),
        roof: row.roof.map(|roof| {
            object! {
                bound: roof.holds.name(),
                level: level_name(roof.level),
                least_ns: roof.least_ns,
                part: roof.part,
            }
        }),
        metrics?: unless_empty(metrics.collect()),
    }
}

/// In a table for people (`people`), the column `bound` contains [`FAR`] for an op that is far
/// below both roofs, because neither limits it.
fn columns(rows: &[Placed], metrics: &[Bound], people: bool) -> Table {
    let column = |rank, name: &str, title: &str, cell: &dyn Fn(&Placed) -> Option<Value>| {
        Column::new(rank, name, title, rows.iter().map(cell).collect())
    };
    let giga = |rate: Option<f64>| rate.map(|rate| Value::Number(rate / 1e9));
    let mut columns = vec![
        column(0, "op", "op", &|row| Some(Value::Text(row.name.clone()))),
        column(3, "arguments", "arguments", &|row| {
            (!row.arguments.is_empty()).then(|| Value::Text(row.arguments.clone()))
        }),
        column(6, "calls", "calls", &|row| Some(Value::Count(row.calls.into()))),
        column(2, "total_ns", "total", &|row| Some(Value::Ns(row.ns))),
        column(5, "threads", "threads", &|row| Some(Value::Count(row.threads.into()))),
        column(7, "flop_per_call", "FLOP/call", &|row| {
            row.work.flop.map(|flop| Value::Count(flop as u128))
        }),
        column(8, "bytes_per_call", "bytes/call", &|row| row.work.bytes.map(Value::Bytes)),
        column(1, "gflop_per_s", "GFLOP/s", &|row| giga(row.flop_rate())),
        column(2, "gbyte_per_s", "GB/s", &|row| giga(row.byte_rate())),
        column(3, "flop_per_byte", "FLOP/byte", &|row| row.intensity().map(Value::Number)),
        column(1, "roof", "of roof", &|row| row.roof.map(|roof| Value::Part(roof.part))),
        column(1, "bound", "bound", &|row| {
            row.roof.map(|roof| {
                let is_far = people && roof.part < NEAR;
                Value::Text(if is_far { FAR } else { roof.holds.name() }.to_owned())
            })
        }),
        column(4, "level", "level", &|row| {
            row.roof.map(|roof| Value::Text(level_name(roof.level)))
        }),
    ];
    for metric in metrics {
        let unit: Rc<str> = Rc::from(metric.unit.name.as_str());
        let value = |row: &Placed| {
            let value = row.metric(metric)?;
            Some(Value::Metric(value, Rc::clone(&unit), metric.unit.declared))
        };
        columns.push(column(rank(metric), &metric.name, &metric.name, &value));
    }
    Table::new(columns, (0..rows.len()).collect())
}

/// The text in the column `bound` for an op that reaches less than [`NEAR`] of its roof.
const FAR: &str = "far below both";
const FAR_MEANS: &str =
    "less than a quarter of the lower roof, so something else holds the op back";

/// The names of columns, each with its label and explanation.
const EXPLAINED: [(&str, &str, &str); 4] = [
    ("threads", "threads: ", "that worked on a call; the roof is that of as many cores"),
    ("flop_per_byte", "FLOP/byte: ", "of the bytes that the call has to read and write at least"),
    (
        "roof",
        "of roof: ",
        "the least time that this machine needs for this work / the time it took",
    ),
    ("level", "level: ", "the nearest cache with room for the bytes of a call, or memory"),
];

/// Whether a column of [`EXPLAINED`] has values only if there are roofs.
fn is_of_roofs(column: &str) -> bool {
    matches!(column, "roof" | "level")
}

fn text(
    out: &mut Out,
    width: Option<usize>,
    rows: &Table,
    no_roofs: Option<&str>,
    has_dispatches: bool,
) -> io::Result<()> {
    let prose = width.unwrap_or(PROSE_WIDTH);
    let left_out = table(out, rows, width)?;
    for (_, label, text) in EXPLAINED
        .iter()
        .filter(|(name, ..)| !left_out.contains(name) && (no_roofs.is_none() || !is_of_roofs(name)))
    {
        wrapped(out, label, text, prose)?;
    }
    let is_far = |row: &usize| {
        let bound = rows.columns.iter().find(|column| column.name == "bound");
        let cell = bound.and_then(|column| column.cells.get(*row));
        matches!(cell.as_deref(), Some(Value::Text(text)) if text == FAR)
    };
    if rows.order.iter().any(is_far) && !left_out.contains(&"bound") {
        wrapped(out, &format!("{FAR}: "), FAR_MEANS, prose)?;
    }
    if has_dispatches {
        let text = "of dispatches; `report` counts the calls of their workgroups";
        wrapped(out, "calls: ", text, prose)?;
    }
    if let Some(why) = no_roofs {
        wrapped(out, "note: ", why, prose)?;
    }
    Ok(())
}

/// Returns a note that names ops without a row, and says which part of the time in calls all ops
/// without a row took.
fn missing(profile: &Profile, raw: bool, rows: &[Placed]) -> Option<String> {
    let summary = summarize(profile, &Options { raw, ..Options::default() });
    let unplaced = unplaced(profile, &summary, rows)?;
    let named: Vec<String> = labels(profile, &unplaced.ops[..unplaced.ops.len().min(NAMED)])
        .iter()
        .map(|name| shorten(name, NAME))
        .collect();
    let more = match unplaced.ops.len() - named.len() {
        0 => String::new(),
        n => format!(" and {n} more"),
    };
    Some(format!(
        "{} with {} of the time in calls, whose work is not known ({}{more}); --work FILE adds rules",
        plural(unplaced.ops.len() as u128, "op"),
        percent(unplaced.share),
        named.join(", ")
    ))
}
