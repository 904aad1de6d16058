//! Makes the page of a profile (`report --html`). The page is a single HTML file for a browser and
//! needs no other files.
//!
//! ```text
//!  the tables of the report ──┐
//!  analysis::details ─────────┼─► Head (JSON) ──┐
//!  trace export ─► timeline ──┴─► bytes ────────┴─► assemble ─► one HTML file
//!                        app/*.js, page.css, page.html ─┘
//! ```
//!
//! In tables, the page shows numbers as the texts that the report prints. A cell may also have the
//! number itself, for sorting. `app/data.js` describes the data that the page's JavaScript gets,
//! and `data.rs` has the same structures in Rust.

mod assemble;
pub mod compare;
mod data;
mod encode;
mod explained;
mod goes_with;
mod listings;
mod ops;
mod roofline;
mod tables;
mod timeline;

use std::io::Write;
use std::path::Path;

use analysis::Key;

use crate::failure::Failure;
use crate::terminal::{Kind, note, progress, visible};
use crate::trace::export::Ending;
use crate::view::head;
use crate::view::held_back;
use crate::view::lengths;
use crate::view::loops::Loops;
use crate::view::losses;
use crate::view::notes::{notes, reasons};
use crate::view::overview::Overview;
use crate::view::preempted;
use crate::view::price;
use crate::view::roles::roles;
use crate::view::sampled;
use crate::view::table::Table;
use crate::view::units::{bytes, grouped, plural};
use crate::whole::WholeFile;
use data::{Head, LossOut, TableOut, TraceOut};
pub use explained::Explained;
pub use roofline::{NEAR, Roofline};
pub use tables::{LOOPS_SORT, columns_of};

/// The page has details of at most this many ops, those with the most self time.
const DETAILED: usize = 200;
const ROWS: usize = 2_000;

pub struct Wanted<'a> {
    pub overview: &'a Overview<'a>,
    /// The tables of the page. The first one shows ops.
    pub forms: Vec<Form>,
    pub loops: &'a Loops<'a>,
    pub roofline: Option<Roofline>,
    pub trace: Option<TraceOut>,
}

pub struct Form {
    pub id: String,
    pub title: String,
    pub group: Group,
    pub table: Table,
    pub sort: String,
    /// The index of each row's parent, if the table is a tree.
    pub parents: Option<Vec<Option<usize>>>,
    /// The op of each row. Empty if no row is about an op.
    pub keys: Vec<Option<Key>>,
    pub lead: Vec<String>,
    /// The lines below the table.
    pub explained: Vec<Explained>,
}

impl Form {
    pub fn new(id: &str, title: &str, group: Group, table: Table) -> Self {
        Self {
            id: id.to_owned(),
            title: title.to_owned(),
            group,
            table,
            sort: "total".to_owned(),
            parents: None,
            keys: Vec::new(),
            lead: Vec::new(),
            explained: Vec::new(),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    Ops,
    Loops,
    Activities,
    Roofline,
}

impl Group {
    fn name(self) -> &'static str {
        match self {
            Self::Ops => "ops",
            Self::Loops => "loops",
            Self::Activities => "activities",
            Self::Roofline => "roofline",
        }
    }
}

/// Describes the exported trace of `report --trace`.
///
/// # Errors
/// Returns an error if the extension of the file name does not belong to a trace format.
pub fn exported(trace: &Path) -> Result<TraceOut, Failure> {
    let name = trace.to_string_lossy();
    let is_address = ["https://", "http://"].iter().any(|scheme| name.starts_with(scheme));
    let path = match is_address {
        true => Path::new(name.split(['?', '#']).next().unwrap_or_default()),
        false => trace,
    };
    let ending = Ending::of(None, path).map_err(|_| {
        Failure::new(format!("--trace {name}: unknown ending"))
            .hint("the name of an exported trace ends with .json, .json.gz or .pftrace")
    })?;
    let url = is_address.then(|| name.clone().into_owned());
    Ok(TraceOut { name: name.into_owned(), url, is_json: ending != Ending::Perfetto })
}

pub fn write(path: &Path, wanted: &Wanted<'_>) -> Result<(), Failure> {
    let _making = progress::step("making the page");
    write_to(path, &make(wanted)?)
}

/// The text above the tables of a page that is not made from a profile.
pub struct About {
    pub program: String,
    pub about: String,
    pub sentences: Vec<String>,
    pub warnings: Vec<String>,
    /// Facts about the recording, each with a label and a text.
    pub recording: Vec<(String, String)>,
}

/// Writes a page that has tables only, such as that of a dataset.
pub fn write_tables(path: &Path, of: About, forms: &[Form]) -> Result<(), Failure> {
    let head = Head {
        schema: data::SCHEMA,
        program: of.program,
        about: of.about,
        version: env!("CARGO_PKG_VERSION"),
        sentences: of.sentences,
        warnings: of.warnings,
        recording: of.recording,
        tables: forms.iter().map(|form| tables::of(form, &[])).collect(),
        ..Head::default()
    };
    write_to(path, &assembled(&head, &[])?)
}

fn write_to(path: &Path, page: &str) -> Result<(), Failure> {
    let name = |e| Failure::writing(path, e);
    let mut file = WholeFile::create(path, Kind::Binary).map_err(name)?;
    file.write_all(page.as_bytes()).map_err(name)?;
    file.finish().map_err(name)?;
    if path.as_os_str() != "-" {
        note!("wrote {} ({})", visible(&path.display().to_string()), bytes(page.len() as f64));
    }
    Ok(())
}

fn make(wanted: &Wanted<'_>) -> Result<String, Failure> {
    let overview = wanted.overview;
    let profile = overview.profile;
    let summary = overview.summary;
    let keys = detailed(overview);
    let room = encode::room(summary.rows.len().min(ROWS), keys.len());
    // The details of ops do not depend on the timeline, so both are read at the same time.
    let (timeline, found) = std::thread::scope(|scope| {
        let timeline = scope.spawn(|| timeline::read(profile, room));
        let found = ops::find(profile, summary.raw, &keys);
        let timeline = timeline.join();
        (timeline.unwrap_or_else(|panic| std::panic::resume_unwind(panic)), found)
    });
    let (timeline, calls) = timeline.map_err(Failure::new)?;
    let mut all: Vec<TableOut> = wanted.forms.iter().map(|form| tables::of(form, &keys)).collect();
    let roles = roles(profile, summary.rows.iter().map(|row| row.key));
    let more = roles.map(|(word, meaning)| Explained::word(word, meaning));
    let more =
        more.chain(sampled::limits(summary).map(|text| Explained::any_mark("sample: ", text)));
    more.for_each(|line| all[0].explain(&line));
    let (ops, series) = ops::of(profile, &found, &keys, &all[0], &timeline);
    let of_loops = tables::of_loops(wanted.loops);
    let sentences = match summary.calls {
        0 => without_calls(overview, &of_loops),
        _ => lines(overview, true).into_iter().chain(held_back::most(overview)).collect(),
    };
    all.extend(of_loops);
    // Tables without rows are left out, such as the table of ops if no calls were recorded.
    all.retain(|table| !table.rows.is_empty());
    let (listings, listings_about) = listings::of(wanted.loops);
    let head = Head {
        schema: data::SCHEMA,
        program: head::program_name(profile),
        about: about(overview),
        version: env!("CARGO_PKG_VERSION"),
        sentences,
        warnings: lines(overview, false).into_iter().chain(preempted::text(overview)).collect(),
        recording: head::recording(overview).into_iter().map(|(l, t)| (l.to_owned(), t)).collect(),
        lengths: lengths::rows(overview),
        price: price::whole(overview),
        price_parts: price::text(overview),
        losses: losses::by_severity(&summary.losses)
            .into_iter()
            .map(|loss| {
                LossOut(loss.name.clone(), grouped(loss.count.into()), loss.help().to_owned())
            })
            .collect(),
        notes: notes(overview),
        tables: all,
        timeline: timeline.out(profile, &ops, series, wanted.trace.clone()),
        ops,
        listings,
        listings_about,
        roofline: wanted.roofline.as_ref().map(roofline::of),
        compare: None,
    };
    assembled(&head, &calls)
}

fn assembled(head: &Head, calls: &[u8]) -> Result<String, Failure> {
    let title = format!("{} · Counterpoint", head.program);
    let head = serde_json::to_vec(head).map_err(Failure::new)?;
    Ok(assemble::page(&title, &[("head", &head), ("timeline", calls)]))
}

/// Returns the lines above the report's tables: with `in_words` those that are sentences, and
/// otherwise those that begin with a label.
fn lines(overview: &Overview<'_>, in_words: bool) -> Vec<String> {
    let all = head::lines(overview).into_iter();
    let wanted = all.filter(|(label, _)| label.is_empty() == in_words);
    wanted.map(|(label, text)| if in_words { text } else { format!("{label}: {text}") }).collect()
}

/// Returns sentences about the loops or, if there are no loops, the likely reasons why no calls
/// were recorded.
fn without_calls(overview: &Overview<'_>, of_loops: &[TableOut]) -> Vec<String> {
    let loops: Vec<String> =
        of_loops.iter().filter_map(|table| table.lead.first().cloned()).collect();
    if !loops.is_empty() {
        return loops;
    }
    let why = reasons(overview).into_iter();
    ["no calls were recorded; likely reasons:".to_owned()].into_iter().chain(why).collect()
}

fn about(overview: &Overview<'_>) -> String {
    let by_steps = overview.summary.sampled.as_ref().and_then(|run| run.all.by_steps.as_ref());
    let calls = plural(overview.summary.calls.into(), "call");
    let calls = format!("{}{calls}", sampled::about(by_steps));
    let host = &overview.profile.manifest.host;
    if host.is_empty() { calls } else { format!("{calls} · {host}") }
}

/// Returns the ops with the most self time.
fn detailed(overview: &Overview<'_>) -> Vec<Key> {
    let is_op = |key: &Key| matches!(key, Key::Op(_) | Key::Unknown(..));
    let mut rows: Vec<_> = overview.summary.rows.iter().filter(|row| is_op(&row.key)).collect();
    rows.sort_by(|a, b| b.own.value.total_cmp(&a.own.value).then(a.key.cmp(&b.key)));
    rows.iter().take(DETAILED).map(|row| row.key).collect()
}
