//! The page of a profile: one file for a browser that needs nothing else (`report --html`).
//!
//! ```text
//!  the tables of the report ──┐
//!  analysis::details ─────────┼─► Head (JSON) ──┐
//!  trace export ─► timeline ──┴─► bytes ────────┴─► assemble ─► one HTML file
//!                        app/*.js, page.css, page.html ─┘
//! ```
//!
//! All numbers come as the texts that the report prints, so the page cannot say anything else. What it
//! draws is made from bins and moments, which are not numbers of the report. `app/data.js` describes
//! what the program in the page gets; the structures of `data.rs` are the same in Rust.

mod assemble;
mod data;
mod encode;
mod ops;
mod tables;
mod timeline;

use std::io::Write;
use std::path::Path;

use analysis::{By, Key, Options, summarize};
use profile::{Origin, Profile};

use crate::failure::Failure;
use crate::report::Wanted;
use crate::terminal::Kind;
use crate::view::columns;
use crate::view::head;
use crate::view::losses;
use crate::view::notes::notes;
use crate::view::overview::{Overview, name_of};
use crate::view::price;
use crate::view::units::{grouped, plural};
use crate::whole::WholeFile;
use data::{Head, LossOut, TableOut};

/// So many ops have details: those with the most time.
const DETAILED: usize = 200;
/// So many rows of a table are in the page.
const ROWS: usize = 2_000;

/// The groupings of calls, and the name of each.
const GROUPS: [(By, &str); 8] = [
    (By::Op, "Ops"),
    (By::Thread, "Threads"),
    (By::Cpu, "CPUs"),
    (By::Process, "Processes"),
    (By::Rank, "Ranks"),
    (By::Kind, "Kinds"),
    (By::Device, "Devices"),
    (By::Stream, "Streams"),
];

/// Writes the page of a profile.
///
/// # Errors
/// The profile cannot be read, or the file cannot be written.
pub fn write(path: &Path, profile: &Profile, wanted: &Wanted<'_>) -> Result<(), Failure> {
    let page = make(profile, wanted)?;
    let name = |e| Failure::writing(path, e);
    let mut file = WholeFile::create(path, Kind::Binary).map_err(name)?;
    file.write_all(page.as_bytes()).map_err(name)?;
    file.finish().map_err(name)
}

fn make(profile: &Profile, wanted: &Wanted<'_>) -> Result<String, Failure> {
    let (timeline, calls) = timeline::read(profile).map_err(Failure::new)?;
    let overview = wanted.overview;
    let summary = overview.summary;
    let keys = detailed(overview);
    let mut all = vec![tables::of(wanted.table, wanted.sort, "op", "Ops", &keys, &summary.rows)];
    for (by, title) in GROUPS.into_iter().skip(1) {
        all.extend(grouped_by(profile, wanted, by, title));
    }
    let ops = ops::of(profile, overview, &keys, &all[0], &timeline);
    let head = Head {
        schema: data::SCHEMA,
        program: head::program_name(profile),
        about: about(overview),
        version: env!("CARGO_PKG_VERSION"),
        sentences: lines(overview, true),
        warnings: lines(overview, false),
        recording: head::recording(overview).into_iter().map(|(l, t)| (l.to_owned(), t)).collect(),
        price: price::line(overview),
        price_parts: price::text(overview),
        losses: losses::by_severity(&summary.losses)
            .into_iter()
            .map(|loss| LossOut(loss.name.clone(), grouped(loss.count.into()), loss.help().to_owned()))
            .collect(),
        notes: notes(overview),
        tables: all,
        timeline: timeline.out(&ops),
        ops,
        listings: Vec::new(),
    };
    let head = serde_json::to_vec(&head).map_err(Failure::new)?;
    Ok(assemble::page(&overview_title(profile), &[("head", &head), ("timeline", &calls)]))
}

fn overview_title(profile: &Profile) -> String {
    format!("{} · Counterpoint", head::program_name(profile))
}

/// The lines above a report: those in words, or those with a label.
fn lines(overview: &Overview<'_>, in_words: bool) -> Vec<String> {
    let all = head::lines(overview).into_iter();
    let wanted = all.filter(|(label, _)| label.is_empty() == in_words);
    wanted.map(|(label, text)| if in_words { text } else { format!("{label}: {text}") }).collect()
}

fn about(overview: &Overview<'_>) -> String {
    let calls = plural(overview.summary.calls.into(), "call");
    let host = &overview.profile.manifest.host;
    if host.is_empty() { calls } else { format!("{calls} · {host}") }
}

/// The ops with the most time of their own.
fn detailed(overview: &Overview<'_>) -> Vec<Key> {
    let is_op = |key: &Key| matches!(key, Key::Op(_) | Key::Unknown(..));
    let mut rows: Vec<_> = overview.summary.rows.iter().filter(|row| is_op(&row.key)).collect();
    rows.sort_by(|a, b| b.own.value.total_cmp(&a.own.value).then(a.key.cmp(&b.key)));
    rows.iter().take(DETAILED).map(|row| row.key).collect()
}

/// Whether anything happened on a device.
fn has_activities(profile: &Profile) -> bool {
    profile.ops.all().iter().any(|op| !op.device.is_empty() && op.role.is_apart())
        || profile.processes.iter().any(|process| process.id.is_of_plugins())
        || profile.manifest.origin == Origin::Import
}

/// The table of another grouping. `None` if it says no more than that there is one of them.
fn grouped_by(profile: &Profile, wanted: &Wanted<'_>, by: By, title: &str) -> Option<TableOut> {
    let options = Options { by, raw: wanted.overview.raw, ..Options::default() };
    let summary = summarize(profile, &options);
    let is_of_devices = matches!(by, By::Kind | By::Device | By::Stream);
    let is_one = summary.rows.len() < 2 && by != By::Thread;
    if is_one || (is_of_devices && !has_activities(profile)) {
        return None;
    }
    let mut table = columns::of_summary(profile, &summary, &options);
    table.sort("total").ok()?;
    Some(tables::of(&table, "total", name_of(by), title, &[], &summary.rows))
}
