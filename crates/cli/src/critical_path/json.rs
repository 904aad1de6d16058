//! `critical-path --format json`.

use std::io::{self, Write};

use analysis::Key;
use serde::Serialize;

use super::View;
use crate::view::head::ProfileHead;
use crate::view::labels::{op_of, process_label, thread_label};
use crate::view::losses::{LossOut, losses_out};

/// The version of the document.
const SCHEMA: &str = "counterpoint.critical-path/1";

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    profile: ProfileHead<'a>,
    sort: &'a str,
    filter: Option<&'a str>,
    length_ns: f64,
    between_ns: f64,
    links: LinksOut,
    threads: Vec<ThreadOut>,
    rows: Vec<RowOut<'a>>,
    losses: Vec<LossOut>,
}

#[derive(Serialize)]
struct LinksOut {
    dispatches: u64,
    tasks: u64,
    launches: u64,
    waits: u64,
}

#[derive(Serialize)]
struct ThreadOut {
    process: String,
    thread: String,
    on_path_ns: f64,
}

#[derive(Serialize)]
struct RowOut<'a> {
    op: &'a str,
    op_id: u32,
    library: &'a str,
    role: &'static str,
    own_ns: f64,
    on_path_ns: f64,
    steps: u64,
    gaps_ns: f64,
    gain_ns: Option<f64>,
}

/// Prints the document.
pub fn print(out: &mut impl Write, view: &View<'_>) -> io::Result<()> {
    let View { profile, path, .. } = view;
    let ns = |ticks: u64| ticks as f64 * profile.timeline.ns_per_tick();
    let row = |at: &usize| {
        let row = view.rows[*at];
        let op = op_of(profile, Key::Op(row.op));
        RowOut {
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
    let document = Document {
        schema: SCHEMA,
        profile: ProfileHead::new(&profile.manifest, profile),
        sort: view.sort,
        filter: view.filter,
        length_ns: ns(path.length),
        between_ns: ns(path.between),
        links: LinksOut {
            dispatches: links.dispatches,
            tasks: links.tasks,
            launches: links.launches,
            waits: links.waits,
        },
        threads: path
            .threads
            .iter()
            .map(|one| ThreadOut {
                process: process_label(profile, one.process),
                thread: thread_label(profile, one.process, one.thread),
                on_path_ns: ns(one.on_path),
            })
            .collect(),
        rows: view.table.order.iter().map(row).collect(),
        losses: losses_out(&profile.all_losses()),
    };
    serde_json::to_writer_pretty(&mut *out, &document).map_err(io::Error::from)?;
    writeln!(out)
}
