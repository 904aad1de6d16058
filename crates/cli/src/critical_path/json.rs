//! Writes the JSON of `critical-path --format json`.

use std::io::{self, Write};

use analysis::Key;

use super::View;
use crate::object::object;
use crate::view::head::ProfileHead;
use crate::view::labels::{op_of, process_label, thread_label};
use crate::view::losses::losses_out;

const SCHEMA: &str = "counterpoint.critical-path/1";

pub fn print(out: &mut impl Write, view: &View<'_>) -> io::Result<()> {
    let View { profile, path, .. } = view;
    let ns = |ticks: u64| ticks as f64 * profile.timeline.ns_per_tick();
    let row = |at: &usize| {
        let row = view.rows[*at];
        let op = op_of(profile, Key::Op(row.op));
        object! {
            op: op.map_or("", |op| &op.name),
            op_id: row.op,
            library: op.map_or("", |op| &*op.library),
            role: op.map_or("", |op| op.role.name()),
            own_ns: ns(row.own),
            on_path_ns: ns(row.on_path),
            steps: row.steps,
            gaps_ns: ns(row.gaps),
            gain_ns: row.gain.map(ns),
        }
    };
    let links = path.links;
    let document = object! {
        schema: SCHEMA,
        profile: ProfileHead::new(&profile.manifest, profile),
        sort: view.sort,
        filter: view.filter,
        length_ns: ns(path.length),
        between_ns: ns(path.between),
        without_gain: path.without_gain,
        links: object! {
            dispatches: links.dispatches,
            tasks: links.tasks,
            launches: links.launches,
            waits: links.waits,
        },
        threads: path
            .threads
            .iter()
            .map(|one| object! {
                process: process_label(profile, one.process),
                thread: thread_label(profile, one.process, one.thread),
                on_path_ns: ns(one.on_path),
            })
            .collect::<Vec<_>>(),
        rows: view.table.order.iter().map(row).collect::<Vec<_>>(),
        losses: losses_out(&profile.all_losses()),
    };
    serde_json::to_writer_pretty(&mut *out, &document).map_err(io::Error::from)?;
    writeln!(out)
}
