//! `report --html`: gathers every form of the report for the page.

use std::path::{Path, PathBuf};

use analysis::{By, CriticalRow, Key, Options, critical_path, summarize};
use clap::ValueEnum;
use profile::loops::Loops as Recorded;
use profile::{Origin, Profile};

use super::{RowKind, launches, roofline, sites, torch, tree};
use crate::failure::Failure;
use crate::page::{self, Form, Group, Wanted};
use crate::view::columns;
use crate::view::critical;
use crate::view::loops::files::Files;
use crate::view::loops::source::Texts;
use crate::view::loops::{Loops, More, code};
use crate::view::overview::{Overview, name_of};
use crate::view::table::Table;

/// The groupings of calls besides that by op.
const OTHERS: [(By, &str); 7] = [
    (By::Thread, "Threads"),
    (By::Cpu, "CPUs"),
    (By::Process, "Processes"),
    (By::Rank, "Ranks"),
    (By::Kind, "Kinds"),
    (By::Device, "Devices"),
    (By::Stream, "Streams"),
];

/// Where the code of loops is looked for, besides the profile.
pub struct CodeFiles<'a> {
    /// Whether files are opened that a profile of the caller names.
    pub named: bool,
    /// Directories of object files and of source texts.
    pub objects: &'a [PathBuf],
    pub sources: &'a [PathBuf],
}

/// Writes the page. `table` is the table of ops, sorted by the column `sort`.
pub fn write(
    path: &Path,
    overview: &Overview<'_>,
    table: Table,
    sort: &str,
    recorded: &Recorded,
    files: &CodeFiles<'_>,
    before: &roofline::Before,
) -> Result<(), Failure> {
    let profile = overview.profile;
    let keys = |rows: &[analysis::Row]| rows.iter().map(|row| Some(row.key)).collect();
    let mut forms = vec![Form {
        sort: sort.to_owned(),
        keys: keys(&overview.summary.rows),
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
    loops.choose(None, None, None, false)?;
    if let Some(tree::Whole { table, parents, keys }) = tree::whole(profile, &loops, overview.raw) {
        let explained = vec![tree::EXPLAINED.to_owned()];
        let tree = Form::new("tree", "Calls inside of calls", Group::Ops, table);
        forms.push(Form { parents: Some(parents), keys, explained, ..tree });
    }
    if let Some((table, keys)) = sites::whole(profile, overview.raw) {
        let explained = sites::EXPLAINED.iter().map(|(_, label, text)| format!("{label}{text}"));
        let explained = explained.collect();
        let sites = Form::new("site", "Dispatch sites", Group::Ops, table);
        forms.push(Form { keys, explained, sort: "share".to_owned(), ..sites });
    }
    forms.extend(critical(profile)?);
    for (kind, table) in torch::whole(profile)? {
        let title = match kind {
            RowKind::Module => "Modules",
            RowKind::Line => "Lines of Python",
            _ => "Shapes",
        };
        let name = kind.to_possible_value().map_or(String::new(), |v| v.get_name().to_owned());
        let explained = vec![torch::explained(Some(kind)).to_owned()];
        forms.push(Form { explained, ..Form::new(&name, title, Group::Ops, table) });
    }
    for (by, title) in OTHERS {
        forms.extend(grouped(overview, by, title));
    }
    if let Some(table) = launches::whole(profile)? {
        let explained = vec![launches::EXPLAINED.to_owned()];
        let form = Form::new("launch", "Launched by ops", Group::Activities, table);
        forms.push(Form { explained, ..form });
    }
    let mut chart = None;
    if let Some((table, explained, found)) = roofline::whole(profile, before)? {
        chart = Some(found);
        forms.push(Form { explained, ..Form::new("roofline", "Roofline", Group::Roofline, table) });
    }
    page::write(path, &Wanted { overview, forms, loops: &loops, roofline: chart })
}

/// The critical path, if something is known of who waited for whom on other threads.
fn critical(profile: &Profile) -> Result<Option<Form>, Failure> {
    let Ok(path) = critical_path(profile).map_err(Failure::new)? else { return Ok(None) };
    let links = path.links;
    if links.dispatches + links.tasks + links.launches + links.waits == 0 {
        return Ok(None);
    }
    let rows: Vec<&CriticalRow> = path.rows.iter().collect();
    let mut table = critical::columns(profile, &path, &rows, true);
    table.sort("gain")?;
    let meanings = critical::EXPLAINED.iter().map(|(_, label, text)| format!("{label}{text}"));
    let explained = critical::head(profile, &path).into_iter().chain(meanings).collect();
    let keys = rows.iter().map(|row| Some(Key::Op(row.op))).collect();
    let form = Form::new("path", "Critical path", Group::Ops, table);
    Ok(Some(Form { keys, explained, sort: "gain".to_owned(), ..form }))
}

/// The table of another grouping. `None` if it says no more than that there is one of them.
fn grouped(overview: &Overview<'_>, by: By, title: &str) -> Option<Form> {
    let profile = overview.profile;
    let is_of_devices = matches!(by, By::Kind | By::Device | By::Stream);
    if is_of_devices && !has_activities(profile) {
        return None;
    }
    let options = Options { by, raw: overview.raw, ..Options::default() };
    let summary = summarize(profile, &options);
    if summary.rows.len() < 2 && by != By::Thread {
        return None;
    }
    let mut table = columns::of_summary(profile, &summary, &options);
    table.sort("total").ok()?;
    let group = if is_of_devices { Group::Activities } else { Group::Ops };
    Some(Form::new(name_of(by), title, group, table))
}

/// Whether anything may have happened on a device.
fn has_activities(profile: &Profile) -> bool {
    profile.processes.iter().any(|process| process.id.is_of_plugins())
        || profile.manifest.origin == Origin::Import
        || profile.activities().is_ok_and(|activities| !activities.is_empty())
}
