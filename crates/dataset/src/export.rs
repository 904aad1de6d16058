//! Adds a profile to a dataset: one part for each of its ranks.

use std::fs;
use std::path::Path;

use analysis::{By, summarize};
use profile::Profile;

use crate::calls;
use crate::error::{Error, Result};
use crate::file::{TableWriter, replace};
use crate::keys::names;
use crate::layout::{self, DATASET_NAME, Member, PARTS_NAME, Part};
use crate::open;
use crate::own;
use crate::pages;
use crate::rows::{Made, Rows};
use crate::schema::Table;
use crate::steps::step;

#[derive(Clone, Debug, Default)]
pub struct Options {
    pub run: String,
    pub rank: u32,
    /// The id of the recording.
    pub part: String,
    /// The number of ranks of the run, if it is known.
    pub world_size: Option<u32>,
    /// Whether to write the calls, too.
    pub calls: bool,
    /// Whether to replace names of ops, programs and machines.
    pub redacted: bool,
    /// Whether the recording goes on, so that the part is to be replaced later.
    pub unfinished: bool,
}

/// The result of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exported {
    /// The part was written. Its files of calls have this many bytes.
    New { bytes_of_calls: u64 },
    /// The dataset already had this part.
    AlreadyThere,
}

/// Adds the calls of `profile`, which are all of one rank, to the dataset in `dir`, which is made
/// if it does not exist. Several processes may add to the same dataset at the same time.
///
/// While a recording goes on, each export replaces its part. Files of single calls stay: each export adds one,
/// with the pages that were completed since the last one.
///
/// # Errors
/// `dir` is not a dataset of this version, a file cannot be written, or the profile has several
/// passes.
pub fn export(profile: &Profile, dir: &Path, options: &Options) -> Result<Exported> {
    if profile.passes() > 0 {
        let why = "it has several passes (run --passes), whose calls are not the same calls";
        return Err(Error::Profile(why.to_owned()));
    }
    if options.calls && profile.is_sampled() {
        let why = "its calls are a sample (run --budget), and rows of calls would count each once";
        return Err(Error::Profile(why.to_owned()));
    }
    match dir.join(DATASET_NAME).exists() {
        true => open::check_version(dir)?,
        false => {
            fs::create_dir_all(dir).map_err(Error::io("make directory", dir))?;
            // Another process may have begun to add to the dataset.
            if let Some(found) = own::foreign(dir)? {
                return Err(Error::Foreign { dir: dir.to_owned(), found });
            }
        }
    }
    let member = Member {
        run: options.run.clone(),
        rank: options.rank,
        part: options.part.clone(),
        world_size: options.world_size,
        calls: options.calls,
        sampled: profile.is_sampled(),
        redacted: options.redacted,
        unfinished: options.unfinished,
        program_version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    let counters = profile.manifest.counters.iter().map(|counter| counter.name.clone());
    let counters: Vec<String> = counters.filter(|_| options.calls).collect();
    let mut part = Part { counters, ..Part::default() };
    part.members.push(member.clone());
    if let Some(why) = part.problem() {
        return Err(Error::Profile(why));
    }
    let below = layout::rank_directory(&member.run, member.rank);
    let name = format!("part-{}", layout::escaped(&member.part));
    let place = dir.join(PARTS_NAME).join(&below).join(format!("{name}.json"));
    let old = open::read_part(&place).ok();
    let is_whole = |part: &Part| {
        !member.unfinished
            && part.members == [member.clone()]
            && part.all_files().all(|(table, f)| open::is_there(dir, table, f))
    };
    if old.as_ref().is_some_and(is_whole) && dir.join(DATASET_NAME).exists() {
        return Ok(Exported::AlreadyThere);
    }
    let summary =
        summarize(profile, &analysis::Options { by: By::OpInProcess, ..Default::default() });
    let exact = analysis::exact::exact(profile, summary.raw);
    let names = names(profile, summary.rows.iter().map(|row| row.key), options.redacted);
    let labels = &profile.manifest.labels;
    let labels = (!labels.is_empty()).then(|| serde_json::to_string(labels).unwrap_or_default());
    let made =
        Made { profile, member: &member, summary: &summary, exact: &exact, names: &names, labels };
    for table in Table::ALL {
        if table == Table::Calls && !options.calls {
            continue;
        }
        let within = format!("{table}/{below}");
        let directory = dir.join(&within);
        let mut out = TableWriter::create(&directory, table, table.schema(&part.counters))?;
        let mut rows = Rows::new(table, &part.counters);
        match table {
            Table::Stats => made.stats(&mut rows),
            Table::Counters => made.counters(&mut rows)?,
            Table::Hist => made.hist(&mut rows),
            Table::Ops => made.ops(&mut rows),
            Table::Processes => made.processes(&mut rows),
            Table::Losses => made.losses(&mut rows),
            Table::Calls => {
                let before = old.as_ref().filter(|old| is_begun(old, &member, &part, dir));
                let written = before.and_then(|old| old.written.as_ref());
                let next = pages::next(profile, &names, written, options.unfinished);
                let kept = before.filter(|_| next.continues);
                for file in kept.iter().flat_map(|old| old.files_of(table.name())) {
                    part.add(table, file.clone());
                }
                part.written = next.written;
                let of = calls::Of { profile, member: &member, names: &names, pages: next.pages };
                calls::write(&of, &part.counters, &directory, &mut out)?;
            }
        }
        if rows.len() > 0 {
            out.write(&rows.take(&directory)?)?;
        }
        if let Some(file) = out.finish(&within, |hash| format!("{name}-{hash}.parquet"))? {
            part.add(table, file);
        }
    }
    step();
    write_part(&place, &mut part)?;
    if !dir.join(DATASET_NAME).exists() {
        replace(&dir.join(DATASET_NAME), &layout::dataset_json())?;
    }
    // No part lists these files any more.
    for (table, file) in old.iter().flat_map(Part::all_files) {
        if !part.all_files().any(|(_, new)| new.path == file.path)
            && let Some(path) = open::place(dir, table, file)
        {
            let _ = fs::remove_file(path);
        }
    }
    let bytes_of_calls = part.files_of(Table::Calls.name()).map(|file| file.bytes).sum();
    Ok(Exported::New { bytes_of_calls })
}

/// Whether an older part has the beginning of the calls that `part` is to have, so that only the others have to
/// be written.
fn is_begun(old: &Part, member: &Member, part: &Part, dir: &Path) -> bool {
    let [known] = &old.members[..] else { return false };
    let alike = Member { unfinished: known.unfinished, ..member.clone() };
    *known == alike
        && old.counters == part.counters
        && old.files_of(Table::Calls.name()).all(|f| open::is_there(dir, Table::Calls.name(), f))
}

/// Writes the JSON file of a part as a whole.
pub(crate) fn write_part(place: &Path, part: &mut Part) -> Result<()> {
    part.schema = part.own_schema().to_owned();
    let mut text = serde_json::to_vec_pretty(part).unwrap_or_default();
    text.push(b'\n');
    replace(place, &text)
}
