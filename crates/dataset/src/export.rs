//! Adds a profile of one rank to a dataset, as a part: its statistics and, if wanted, its calls.

use std::fs;
use std::path::{Path, PathBuf};

use analysis::{By, summarize};
use profile::Profile;

use crate::calls;
use crate::error::{Error, Result};
use crate::file::{HASH_DIGITS, TableWriter, replace};
use crate::keys::names;
use crate::layout::{self, DATASET_NAME, Member, PARTS_NAME, Part};
use crate::lock::RankLock;
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
    /// The number of ranks of the run.
    pub world_size: Option<u32>,
    /// Whether to write a row for each call, in addition to the statistics.
    pub calls: bool,
    /// Whether to replace the names of ops and machines, and leave out programs, libraries,
    /// arguments, source locations and labels.
    pub redacted: bool,
    /// Whether the recording has not ended, so that a later export will replace the part.
    pub unfinished: bool,
}

/// The result of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exported {
    /// The part was written. `bytes_of_calls` is the size of its files for the table `calls`.
    New { bytes_of_calls: u64 },
    /// The dataset already had this part, or a later state of it.
    AlreadyThere,
}

/// Adds `profile`, a recording of one rank, to the dataset in `dir`. The directory is made if
/// necessary. Several processes may add to the same dataset at the same time.
///
/// While a recording goes on, each export replaces the recording's part. The files of the table
/// `calls` usually stay, and a new file has the calls that are new. If the older files cannot be
/// continued, one file with all calls replaces them. An export of an earlier state of the recording
/// (for example by a slow process) changes nothing, unless only the new export is redacted.
///
/// Exports to one rank wait for each other, except on file systems that cannot lock directories
/// (NFS).
///
/// # Errors
///
/// Fails if `dir` is a dataset of another version, if it is no dataset and has foreign files, and
/// if a file cannot be written. Fails if the profile has several passes (`run --passes`), and if
/// calls are wanted although only some of them were timed (`run --budget`). Fails with
/// [`Error::Merged`] if the recording was merged with other ranks, and the merged version lacks
/// contents of this one or is redacted differently.
pub fn export(profile: &Profile, dir: &Path, options: &Options) -> Result<Exported> {
    check(profile, dir, options)?;
    let member = Member {
        run: options.run.clone(),
        rank: options.rank,
        part: options.part.clone(),
        world_size: options.world_size,
        calls: options.calls,
        sampled: profile.is_sampled(),
        redacted: options.redacted,
        unfinished: options.unfinished,
        recorded_calls: profile.calls(),
        program_version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    let counters = profile.manifest.counters.iter().map(|counter| counter.name.clone());
    let counters: Vec<String> = counters.filter(|_| options.calls).collect();
    let part = Part { members: vec![member.clone()], counters, ..Part::default() };
    if let Some(why) = part.problem() {
        return Err(Error::Profile(why));
    }
    let below = layout::rank_directory(&member.run, member.rank);
    let name = format!("part-{}", layout::escaped(&member.part));
    let parts = dir.join(PARTS_NAME).join(&below);
    let place = parts.join(format!("{name}.json"));
    step();
    let lock = RankLock::wait(&parts)?;
    let old = open::read_part(&place).ok();
    if old.as_ref().is_some_and(|old| stays(old, &member, dir)) && dir.join(DATASET_NAME).exists() {
        return Ok(Exported::AlreadyThere);
    }
    if dir.join(DATASET_NAME).exists()
        && let Some((path, there)) = merged(dir, &member)
    {
        return match there.has_all_of(&member) {
            true => Ok(Exported::AlreadyThere),
            false => {
                Err(Error::Merged { path, rank: member.rank, advice: advice(&there, &member) })
            }
        };
    }
    let wanted = Wanted { profile, dir, member: &member, below: &below, name: &name };
    let mut part = wanted.tables(part, old.as_ref())?;
    step();
    let now = open::read_part(&place).ok();
    if let Some(now) = now.filter(|now| stays(now, &member, dir)) {
        // Without a lock, another process may have written a later state meanwhile.
        remove_unlisted(dir, &part, &now);
        return Ok(Exported::AlreadyThere);
    }
    write_part(&place, &mut part)?;
    if !dir.join(DATASET_NAME).exists() {
        replace(&dir.join(DATASET_NAME), &layout::dataset_json())?;
    }
    if let Some(old) = &old {
        remove_unlisted(dir, old, &part);
    }
    if lock.is_held() {
        wanted.remove_what_killed_writers_left(&part);
    }
    let bytes_of_calls = part.files_of(Table::Calls.name()).map(|file| file.bytes).sum();
    Ok(Exported::New { bytes_of_calls })
}

fn check(profile: &Profile, dir: &Path, options: &Options) -> Result<()> {
    if profile.passes() > 0 {
        let why = "it has several passes (run --passes), whose calls are not the same calls";
        return Err(Error::Profile(why.to_owned()));
    }
    if options.calls && profile.is_sampled() {
        let why = "its calls are a sample (run --budget), and rows of calls would count each once";
        return Err(Error::Profile(why.to_owned()));
    }
    if dir.join(DATASET_NAME).exists() {
        return open::check_version(dir);
    }
    fs::create_dir_all(dir).map_err(Error::io("make directory", dir))?;
    // The directory need not be empty: another process may have begun to add its part.
    match own::foreign(dir)? {
        Some(found) => Err(Error::Foreign { dir: dir.to_owned(), found }),
        None => Ok(()),
    }
}

/// Finds the recording `member` in a part of several ranks, which `merge` made. Returns the path of
/// that part's JSON file, and the part's description of the recording. Damaged parts are left out,
/// as readers leave them out.
fn merged(dir: &Path, member: &Member) -> Option<(PathBuf, Member)> {
    let of_run = dir.join(PARTS_NAME).join(layout::run_directory(&member.run));
    let entries = fs::read_dir(of_run).into_iter().flatten().flatten();
    let files = entries.filter(|entry| {
        let is_part = entry.file_name().to_str().is_some_and(layout::is_part_json);
        is_part && entry.file_type().is_ok_and(|kind| kind.is_file())
    });
    files.map(|entry| entry.path()).find_map(|path| {
        let part = open::read_part(&path).ok()?;
        let is_whole = part.all_files().all(|(table, file)| open::is_there(dir, table, file));
        let there = part.members.into_iter().find(|there| there.id() == member.id())?;
        is_whole.then_some((path, there))
    })
}

/// Says how to get a dataset with this version of a recording, if another version was merged with
/// other ranks.
fn advice(there: &Member, new: &Member) -> &'static str {
    match (there.redacted, new.redacted) {
        (false, true) => {
            "its names stay there; export all recordings with --redact into another dataset, and merge that"
        }
        _ if new.order() > there.order() => "export it into a dataset of its own, and merge both",
        _ => "export it with --calls into a dataset of its own, and merge both",
    }
}

/// Returns whether the existing part stays: its files exist, and it has a later state of the
/// recording than `member`, or the same final state.
fn stays(there: &Part, member: &Member, dir: &Path) -> bool {
    let [known] = &there.members[..] else { return false };
    let is_same = !member.unfinished && known == member;
    (is_same || known.is_later_than(member))
        && there.all_files().all(|(table, file)| open::is_there(dir, table, file))
}

/// Returns whether an older part may have the first calls of `part`: its recording, options and
/// counters are the same, and its files of calls exist.
fn is_begun(old: &Part, member: &Member, part: &Part, dir: &Path) -> bool {
    let [known] = &old.members[..] else { return false };
    let alike = Member {
        unfinished: known.unfinished,
        recorded_calls: known.recorded_calls,
        ..member.clone()
    };
    *known == alike
        && old.counters == part.counters
        && old.files_of(Table::Calls.name()).all(|f| open::is_there(dir, Table::Calls.name(), f))
}

struct Wanted<'a> {
    profile: &'a Profile,
    dir: &'a Path,
    member: &'a Member,
    /// The rank's directory within the directory of each table.
    below: &'a str,
    /// The text with which the names of the part's files begin.
    name: &'a str,
}

impl Wanted<'_> {
    /// Writes the files of the tables. Returns the part with these files, and with the files of
    /// `old` that stay.
    fn tables(&self, mut part: Part, old: Option<&Part>) -> Result<Part> {
        let (profile, member, dir) = (self.profile, self.member, self.dir);
        let by = analysis::Options { by: By::OpInProcess, ..Default::default() };
        let summary = summarize(profile, &by);
        let exact = analysis::exact::exact(profile, summary.raw);
        let names = names(profile, summary.rows.iter().map(|row| row.key), member.redacted);
        let labels = &profile.manifest.labels;
        let labels =
            (!labels.is_empty()).then(|| serde_json::to_string(labels).unwrap_or_default());
        let made =
            Made { profile, member, summary: &summary, exact: &exact, names: &names, labels };
        for table in Table::ALL {
            if table == Table::Calls && !member.calls {
                continue;
            }
            let within = format!("{table}/{}", self.below);
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
                    let before = old.filter(|old| is_begun(old, member, &part, dir));
                    let written = before.and_then(|old| old.written.as_ref());
                    let next = pages::next(profile, &names, written, member.unfinished);
                    let kept = before.filter(|_| next.continues);
                    for file in kept.iter().flat_map(|old| old.files_of(table.name())) {
                        part.add(table, file.clone());
                    }
                    part.written = next.written;
                    let of = calls::Of { profile, member, names: &names, pages: next.pages };
                    calls::write(&of, &part.counters, &directory, &mut out)?;
                }
            }
            if rows.len() > 0 {
                out.write(&rows.take(&directory)?)?;
            }
            let name = |hash: &str| format!("{}-{hash}.parquet", self.name);
            if let Some(file) = out.finish(&within, name)? {
                part.add(table, file);
            }
        }
        Ok(part)
    }

    /// Removes files of this recording that its part does not list, and files without a final name.
    /// The lock ensures that nobody writes such files for this rank now.
    fn remove_what_killed_writers_left(&self, part: &Part) {
        let within = Table::ALL
            .map(|table| format!("{table}/{}", self.below))
            .into_iter()
            .chain([format!("{PARTS_NAME}/{}", self.below)]);
        for within in within {
            for entry in fs::read_dir(self.dir.join(&within)).into_iter().flatten().flatten() {
                let name = entry.file_name();
                let Some(name) = name.to_str() else { continue };
                let path = format!("{within}/{name}");
                let is_listed = || part.all_files().any(|(_, file)| file.path == path);
                if own::is_unfinished(name) || self.is_own(name) && !is_listed() {
                    let _ = fs::remove_file(entry.path());
                }
            }
        }
    }

    /// Returns whether `name` is the file of a table of this recording. The file name of another
    /// recording may begin with the same letters.
    fn is_own(&self, name: &str) -> bool {
        let rest = name.strip_prefix(self.name).and_then(|rest| rest.strip_prefix('-'));
        let hash = rest.and_then(|rest| rest.strip_suffix(".parquet")).unwrap_or_default();
        hash.len() == HASH_DIGITS && hash.bytes().all(|digit| digit.is_ascii_hexdigit())
    }
}

fn remove_unlisted(dir: &Path, part: &Part, other: &Part) {
    for (table, file) in part.all_files() {
        if !other.all_files().any(|(_, listed)| listed.path == file.path)
            && let Some(path) = open::place(dir, table, file)
        {
            let _ = fs::remove_file(path);
        }
    }
}

pub(crate) fn write_part(place: &Path, part: &mut Part) -> Result<()> {
    part.schema = part.own_schema().to_owned();
    let mut text = serde_json::to_vec_pretty(part).unwrap_or_default();
    text.push(b'\n');
    replace(place, &text)
}
