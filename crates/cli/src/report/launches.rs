//! `report --by launch`: shows the work that ops launched on devices. With `run --plugin-ids`, a
//! plugin gets an id for each op. The plugin records this id in the activities (pieces of work on a
//! device) that the op launched.

use std::io;
use std::process::ExitCode;

use analysis::launches::{LaunchRow, Launched, by_launch};
use profile::Profile;
use serde::Serialize;

use super::{Args, Out, output};
use crate::failure::Failure;
use crate::object::object;
use crate::terminal::{say, visible};
use crate::view::head::ProfileHead;
use crate::view::losses::{self, losses_out};
use crate::view::table::{Column, Table, Value};
use crate::view::text::table;
use crate::view::units::plural;
use crate::view::wrap::{PROSE_WIDTH, in_one_line, wrapped};

/// Returns a table of the work that ops launched, for the HTML page. Returns `None` if no activity
/// has the id of an op.
pub fn whole(profile: &Profile) -> Result<Option<Table>, Failure> {
    let activities = profile.activities().map_err(Failure::new)?;
    let Launched { rows, total_ns, .. } = by_launch(profile, &activities).map_err(Failure::new)?;
    let table = Table::new(columns(&rows, total_ns), (0..rows.len()).collect());
    Ok((!rows.is_empty()).then_some(table))
}

/// The names of columns, each with its label and explanation.
pub const EXPLAINED: [(&str, &str, &str); 2] = [
    ("total_ns", "total: ", "durations on devices, which may be later than the op itself"),
    ("share", "share: ", "of all that ops launched"),
];

pub fn main(args: &Args, profile: &Profile) -> Result<ExitCode, Failure> {
    let activities = profile.activities().map_err(Failure::new)?;
    let Launched { mut rows, total_ns, of_no_op } =
        by_launch(profile, &activities).map_err(Failure::new)?;
    if rows.is_empty() {
        return Err(Failure::new(format!(
            "{}: nothing on a device has the id of an op",
            profile.dir.display()
        ))
        .hint("ids are recorded with run --plugin FILE --plugin-ids, if the plugin uses them"));
    }
    rows.retain(|row| {
        args.filter.as_deref().is_none_or(|glob| model::glob::matches(glob, &row.op))
    });
    let table = columns(&rows, total_ns);
    let mut table = Table::new(table, (0..rows.len()).collect());
    // `by_launch` has already sorted the ops by their total time, and the rows of each op by
    // `total`.
    if let Some(sort) = args.sort.as_deref().filter(|sort| *sort != "total") {
        table.sort(sort)?;
    }
    table.keep_first(args.top());
    let document = || {
        object! {
            schema: "counterpoint.launches/1",
            profile: ProfileHead::new(&profile.manifest, profile),
            sort: args.sort.as_deref().unwrap_or("total"),
            filter: args.filter.as_deref(),
            // The sum of the durations of all activities with the id of a recorded op, including
            // activities that a filter leaves out.
            total_ns,
            // The number of activities whose id belongs to no recorded op.
            of_no_op,
            rows: table.order.iter().map(|row| out_of(&rows[*row])).collect::<Vec<_>>(),
            losses: losses_out(&profile.all_losses()),
        }
    };
    let text = |out: &mut Out, width: Option<usize>| text(out, width, profile, &table, of_no_op);
    let done = output(args, &table, text, document)?;
    match &args.filter {
        Some(glob) if table.order.is_empty() => {
            say!("--filter {}: no op matches", visible(glob));
            Ok(ExitCode::from(1))
        }
        _ => Ok(done),
    }
}

fn out_of(row: &LaunchRow) -> impl Serialize {
    object! {
        op: &row.op,
        activity: &row.activity,
        kind: &row.kind,
        calls: row.calls,
        total_ns: row.total_ns,
        min_ns: row.min_ns,
        max_ns: row.max_ns,
    }
}

fn columns(rows: &[LaunchRow], total_ns: i64) -> Vec<Column> {
    let ns = |of: fn(&LaunchRow) -> f64| -> Vec<Option<Value>> {
        rows.iter().map(|row| Some(Value::Ns(of(row)))).collect()
    };
    let text = |of: fn(&LaunchRow) -> &String| -> Vec<Option<Value>> {
        rows.iter().map(|row| Some(Value::Text(of(row).clone()))).collect()
    };
    let calls = rows.iter().map(|row| Some(Value::Count(row.calls.into())));
    let part = |ns: i64| (total_ns > 0).then(|| Value::Part(ns as f64 / total_ns as f64));
    vec![
        Column::new(0, "op", "launched by op", text(|row| &row.op)),
        Column::new(0, "activity", "on device", text(|row| &row.activity)),
        Column::new(4, "kind", "kind", text(|row| &row.kind)),
        Column::new(1, "calls", "calls", calls.collect()),
        Column::new(1, "total_ns", "total", ns(|row| row.total_ns as f64)),
        Column::new(2, "share", "share", rows.iter().map(|row| part(row.total_ns)).collect()),
        Column::new(3, "mean_ns", "mean", ns(|row| row.total_ns as f64 / row.calls as f64)),
        Column::new(5, "min_ns", "min", ns(|row| row.min_ns as f64)),
        Column::new(5, "max_ns", "max", ns(|row| row.max_ns as f64)),
    ]
}

fn text(
    out: &mut Out,
    width: Option<usize>,
    profile: &Profile,
    rows: &Table,
    of_no_op: u64,
) -> io::Result<()> {
    let prose = width.unwrap_or(PROSE_WIDTH);
    table(out, rows, width)?;
    wrapped(out, "", &in_one_line(&EXPLAINED), prose)?;
    if of_no_op > 0 {
        let text = format!(
            "{} on devices with the id of an op that has no record",
            plural(of_no_op.into(), "call")
        );
        wrapped(out, "note: ", &text, prose)?;
    }
    losses::print(out, &profile.all_losses(), prose)?;
    for note in &profile.manifest.notes {
        wrapped(out, "note: ", note, prose)?;
    }
    Ok(())
}
