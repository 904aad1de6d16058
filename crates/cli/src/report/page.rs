//! `report --html`: collects the tables for the HTML page.

use std::path::{Path, PathBuf};

use analysis::critical::MOST_CALLS;
use analysis::{By, CriticalRow, Key, Options, critical_path, summarize_each};
use clap::ValueEnum;
use profile::loops::Loops as Recorded;
use profile::{Origin, Profile};

use super::{RowKind, between, launches, roofline, sites, torch, tree};
use crate::failure::Failure;
use crate::page::{self, Explained, Form, Group, Wanted};
use crate::terminal::visible;
use crate::view::between::sentences;
use crate::view::columns;
use crate::view::critical;
use crate::view::loops::files::Files;
use crate::view::loops::source::Texts;
use crate::view::loops::{Loops, More, code};
use crate::view::overview::{Overview, name_of};
use crate::view::table::Table;
use crate::view::units;

/// The groupings of calls other than by op, with their titles.
const OTHERS: [(By, &str); 7] = [
    (By::Thread, "Threads"),
    (By::Cpu, "CPUs"),
    (By::Process, "Processes"),
    (By::Rank, "Ranks"),
    (By::Kind, "Kinds"),
    (By::Device, "Devices"),
    (By::Stream, "Streams"),
];

/// The names of columns, each with its explanation.
const EXPLAINED: [(&str, &str); 8] = [
    ("calls", "those that are inside of no other call of the row"),
    (
        "self_ns",
        "time in the calls without the calls inside of them; loops are no calls, so the time in them is in it",
    ),
    ("self_all_arguments_ns", "of all rows of the same op together, whatever its arguments were"),
    ("dispatches", "counted where their first workgroup (0,0,0) ran"),
    ("wall_ns", "from the thread's first call to its last known moment"),
    ("between_ns", "the part of the wall time in which this thread was in no call"),
    ("off_cpu_ns", "the part of the time between calls on no CPU"),
    ("thread_cpu_ns", "the thread's processor time, in calls and between them"),
];

fn explained(table: &Table) -> Vec<Explained> {
    let of = |name: &str| page::columns_of(table).find(|column| column.name == name);
    let known = EXPLAINED.iter().filter_map(|(name, text)| {
        Some(Explained::column(name, &format!("{}: ", of(name)?.title), *text))
    });
    let mut lines: Vec<Explained> = known.collect();
    let per_call = page::columns_of(table).filter(|column| column.title.ends_with("/call"));
    let per_call: Vec<String> = per_call.map(|column| column.name.clone()).collect();
    if !per_call.is_empty() {
        let text = "the mean over the calls that have a value";
        lines.push(Explained::columns(per_call, "/call: ", text));
    }
    // Only the table by op has the row `(between)`.
    if !table.rest.is_empty() && of("op").is_some() {
        let text = "the time in which the threads were in no call, all threads added up";
        lines.push(Explained::word("(between): ", text));
    }
    lines
}

/// Makes lines that explain columns, from their names, labels and explanations. An entry with an
/// empty name explains a word of the table and not a column.
fn columns_explained(all: &[(&str, &str, &str)]) -> Vec<Explained> {
    let line = |(name, label, text): &(&str, &str, &str)| match *name {
        "" => Explained::word(label, *text),
        name => Explained::column(name, label, *text),
    };
    all.iter().map(line).collect()
}

/// The files from which the page is made, in addition to the profile.
pub struct Beside<'a> {
    /// Whether files that the profile names may be opened (`--code`).
    pub named: bool,
    /// Directories in which to look for object files (`objects`) and for the program texts that
    /// were instrumented (`sources`).
    pub objects: &'a [PathBuf],
    pub sources: &'a [PathBuf],
    /// The path or the address of an exported trace of the profile.
    pub trace: Option<&'a Path>,
}

/// Writes the page of a profile. `table` is the table of ops, sorted by the column `sort`.
pub fn write(
    path: &Path,
    overview: &Overview<'_>,
    table: Table,
    sort: &str,
    recorded: &Recorded,
    files: &Beside<'_>,
    before: &roofline::Before,
) -> Result<(), Failure> {
    let profile = overview.profile;
    let keys = |rows: &[analysis::Row]| rows.iter().map(|row| Some(row.key)).collect();
    let mut forms = vec![Form {
        sort: sort.to_owned(),
        keys: keys(&overview.summary.rows),
        explained: explained(&table),
        ..Form::new("op", "Ops", Group::Ops, table)
    }];
    let mut loops = Loops::new(profile, recorded, &[], overview.raw);
    let below = |directories: &[PathBuf]| match files.named {
        true => Files::new(profile, directories.to_vec()),
        false => Files::unnamed(profile, directories.to_vec()),
    };
    loops.more = More {
        codes: Some(code::find(&loops, &below(files.objects))),
        source: true,
        texts: Texts::new(&loops, below(files.sources)),
        of: Vec::new(),
    };
    // Sort the loops by the column that the page marks as sorted.
    loops.choose(None, Some(page::LOOPS_SORT), None, false)?;
    let tree = tree::whole(profile, &loops, overview.raw);
    if let Some(tree::Whole { table, explained, parents, keys }) = tree {
        let explained = columns_explained(&explained);
        let tree = Form::new("tree", "Calls inside of calls", Group::Ops, table);
        forms.push(Form { parents: Some(parents), keys, explained, ..tree });
    }
    if let Some(sites::Whole { table, keys, lead }) = sites::whole(profile, overview.raw) {
        let explained = columns_explained(&sites::EXPLAINED);
        let sites = Form::new("site", "Dispatch sites", Group::Ops, table);
        forms.push(Form { keys, lead, explained, sort: "share".to_owned(), ..sites });
    }
    if let Some(gaps) = &overview.summary.gaps
        && let Some((table, keys)) = between::whole(profile, gaps)
    {
        let (lead, explained) = (sentences(profile, gaps), columns_explained(&between::EXPLAINED));
        let form = Form::new("between", "Between calls", Group::Ops, table);
        forms.push(Form { keys, lead, explained, ..form });
    }
    if let Some(table) =
        overview.summary.gaps.as_ref().and_then(|gaps| between::of_levels(profile, gaps))
    {
        let explained = columns_explained(&between::LEVELS_EXPLAINED);
        let form = Form::new("level", "Between calls by level", Group::Ops, table);
        forms.push(Form { explained, sort: String::new(), ..form });
    }
    match profile.calls() > PATH_CALLS {
        true => forms[0].explained.push(Explained::sentence(no_path(profile))),
        false => forms.extend(critical(profile)?),
    }
    for (kind, table) in torch::whole(profile)? {
        let title = match kind {
            RowKind::Module => "Modules",
            RowKind::Line => "Lines of Python",
            _ => "Shapes",
        };
        let name = kind.to_possible_value().map_or(String::new(), |v| v.get_name().to_owned());
        let explained = columns_explained(torch::explained(Some(kind)));
        forms.push(Form { explained, ..Form::new(&name, title, Group::Ops, table) });
    }
    forms.extend(grouped(overview));
    if let Some(table) = launches::whole(profile)? {
        let explained = columns_explained(&launches::EXPLAINED);
        let form = Form::new("launch", "Launched by ops", Group::Activities, table);
        forms.push(Form { explained, ..form });
    }
    let mut chart = None;
    if let Some((table, explained, found)) = roofline::whole(profile, before)? {
        chart = Some(found);
        forms.push(Form { explained, ..Form::new("roofline", "Roofline", Group::Roofline, table) });
    }
    let trace = files.trace.map(page::exported).transpose()?;
    page::write(path, &Wanted { overview, forms, loops: &loops, roofline: chart, trace })
}

fn no_path(profile: &Profile) -> String {
    let name = visible(&profile.dir.display().to_string()).into_owned();
    let where_else = match profile.calls() > MOST_CALLS {
        true => format!(
            "`critical-path` finds it in recordings of up to {}",
            units::grouped(MOST_CALLS.into())
        ),
        false => format!("`counterpoint critical-path {name}` shows it"),
    };
    let most = units::grouped(PATH_CALLS.into());
    format!("critical path: a page has none for more than {most} calls; {where_else}")
}

/// The page of a profile with more calls than this has no critical path, because all calls would
/// have to be in memory: 150 bytes for each call.
const PATH_CALLS: u64 = 3_000_000;

/// Returns the table of the critical path. Returns `None` if there is no path, or if no waits
/// between calls, tasks or devices were found.
fn critical(profile: &Profile) -> Result<Option<Form>, Failure> {
    let Ok(path) = critical_path(profile).map_err(Failure::new)? else { return Ok(None) };
    let links = path.links;
    if links.dispatches + links.tasks + links.launches + links.waits == 0 {
        return Ok(None);
    }
    let rows: Vec<&CriticalRow> = path.rows.iter().collect();
    let mut table = critical::columns(profile, &path, &rows, true);
    table.sort("gain")?;
    let meanings = critical::explained(profile, &path).into_iter();
    let meanings = meanings.map(|(name, label, text)| Explained::column(name, &label, text));
    let head = critical::head(profile, &path).into_iter().map(Explained::sentence);
    let explained = head.chain(meanings).collect();
    let keys = rows.iter().map(|row| Some(Key::Op(row.op))).collect();
    let form = Form::new("path", "Critical path", Group::Ops, table);
    Ok(Some(Form { keys, explained, sort: "gain".to_owned(), ..form }))
}

/// Returns the tables of the groupings in [`OTHERS`] that make sense for the profile. A table with
/// a single row is left out, except for the table by thread.
fn grouped(overview: &Overview<'_>) -> Vec<Form> {
    let profile = overview.profile;
    let is_of_devices = |by: By| matches!(by, By::Kind | By::Device | By::Stream);
    let wanted = OTHERS.iter().filter(|(by, _)| match by {
        By::Kind | By::Device | By::Stream => has_activities(profile),
        By::Rank => profile.ranks().windows(2).any(|two| two[0] != two[1]),
        By::Process => profile.processes.len() > 1,
        _ => true,
    });
    let wanted: Vec<_> = wanted.collect();
    let options =
        |(by, _): &&(By, &str)| Options { by: *by, raw: overview.raw, ..Options::default() };
    let options: Vec<Options> = wanted.iter().map(options).collect();
    let summaries = summarize_each(profile, &options);
    let mut forms = Vec::new();
    for (((by, title), options), summary) in wanted.iter().zip(&options).zip(summaries) {
        if summary.rows.len() < 2 && *by != By::Thread {
            continue;
        }
        let mut table = columns::of_summary(profile, &summary, options);
        if table.sort("total").is_err() {
            continue;
        }
        let group = if is_of_devices(*by) { Group::Activities } else { Group::Ops };
        let explained = explained(&table);
        forms.push(Form { explained, ..Form::new(name_of(*by), title, group, table) });
    }
    forms
}

/// Whether the profile may have events of devices: from plugins, from an imported trace, or from a
/// recording of another profiler.
fn has_activities(profile: &Profile) -> bool {
    profile.processes.iter().any(|process| process.id.is_of_plugins())
        || profile.manifest.origin == Origin::Import
        || profile.activities().is_ok_and(|activities| !activities.is_empty())
}
