//! Defines the names of files, and the type [`Part`], which lists the files that belong together.
//!
//! ```text
//!  DATASET/dataset.json                            version, tables and types
//!          parts/run=R/rank=N/part-K.json          a part of one rank: its files
//!          parts/run=R/part-H.json                 parts of several ranks in files that they share
//!          TABLE/run=R/rank=N/part-K-H.parquet
//!          TABLE/run=R/part-H.parquet
//! ```
//!
//! `R` is the run and `N` is the rank. Every table has both as columns, too, so that readers need
//! not parse names of directories. `K` is the id of the recording. In the name of a Parquet file,
//! `H` is a hash of the contents: a file with this name never changes. In the name of a JSON file,
//! `H` is a hash of the ranks and ids of the part's recordings.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::schema::Table;

/// The file by which a directory is recognised as a dataset.
pub const DATASET_NAME: &str = "dataset.json";
/// The directory below which each part has its JSON file.
pub const PARTS_NAME: &str = "parts";
/// The version of the format of a dataset.
pub const DATASET_SCHEMA: &str = "counterpoint.dataset/1";
/// The version of the format of a part.
pub const PART_SCHEMA: &str = "counterpoint.dataset_part/1";
/// The version of the format of a part that has several files for one table, or a recording that
/// had not ended. Earlier versions of this program would misread such a part.
pub const GROWING_PART_SCHEMA: &str = "counterpoint.dataset_part/2";

/// The largest number of ranks of a run.
pub const MOST_RANKS: u32 = 1 << 20;
/// The largest number of counters of a part. Each counter is a column of the table `calls`, and a
/// writer needs memory for each column. A recording has 32 at most; a merged part has the counters
/// of all its ranks.
pub const MOST_COUNTERS: usize = 1024;

/// A recording of one rank, or recordings of several ranks in files that they share.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Part {
    /// [`PART_SCHEMA`] or [`GROWING_PART_SCHEMA`].
    pub schema: String,
    /// The recordings, sorted by run, rank and id.
    pub members: Vec<Member>,
    /// The counters that are columns of `calls`.
    pub counters: Vec<String>,
    /// One file for each table that has rows.
    pub files: BTreeMap<String, File>,
    /// The further files of a table, in the order in which they were written. A table can have
    /// several files if the recording was exported while it went on.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub more: BTreeMap<String, Vec<File>>,
    /// The pages (blocks of recorded calls) that are in `calls`, if the recording had not ended
    /// when it was exported. `None` otherwise, and also without `calls` or after a merge.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub written: Option<Written>,
}

/// Which pages of an unfinished recording are in `calls`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Written {
    /// The processes of the recording. The index of a process is its number in `calls`.
    pub processes: Vec<WrittenProcess>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct WrittenProcess {
    /// The id of the process in the recording.
    pub id: String,
    /// The number of ops of the process.
    pub ops: usize,
    /// A hash of the keys, names, devices and sources of these ops.
    pub ops_hash: String,
    /// For each thread, by its number in the process: how many pages are in `calls`.
    pub threads: BTreeMap<u32, u32>,
}

impl Part {
    /// Returns the files of a table, in the order in which they were written.
    pub fn files_of<'a>(&'a self, table: &str) -> impl Iterator<Item = &'a File> + use<'a> {
        self.files.get(table).into_iter().chain(self.more.get(table).into_iter().flatten())
    }

    /// Returns all files, with the names of their tables.
    pub fn all_files(&self) -> impl Iterator<Item = (&str, &File)> {
        let more =
            self.more.iter().flat_map(|(table, files)| files.iter().map(move |f| (table, f)));
        self.files.iter().chain(more).map(|(table, file)| (table.as_str(), file))
    }

    /// Adds a file of a table.
    pub fn add(&mut self, table: Table, file: File) {
        match self.files.contains_key(table.name()) {
            true => self.more.entry(table.name().to_owned()).or_default().push(file),
            false => drop(self.files.insert(table.name().to_owned(), file)),
        }
    }

    /// Returns the version of the format that the part needs for its contents.
    pub fn own_schema(&self) -> &'static str {
        match self.more.is_empty() && !self.members.iter().any(|member| member.unfinished) {
            true => PART_SCHEMA,
            false => GROWING_PART_SCHEMA,
        }
    }

    /// Returns why the part is not valid, or `None` if it is.
    pub fn problem(&self) -> Option<String> {
        let problem = self.members.iter().find_map(Member::problem);
        if problem.is_some() {
            return problem;
        }
        if self.counters.len() > MOST_COUNTERS {
            let found = self.counters.len();
            return Some(format!("it has {found} counters, and a part has up to {MOST_COUNTERS}"));
        }
        let mut columns = Table::Calls.columns();
        let column = columns.find(|column| self.counters.iter().any(|name| name == column.name));
        if let Some(column) = column {
            return Some(format!("a counter is called {}, as a column of calls is", column.name));
        }
        let mut paths: Vec<&str> = self.all_files().map(|(_, file)| &*file.path).collect();
        paths.sort_unstable();
        if let Some(two) = paths.windows(2).find(|two| two[0] == two[1]) {
            return Some(format!("it has the file {} twice", two[0]));
        }
        let mut ids: Vec<_> = self.members.iter().map(Member::id).collect();
        ids.sort_unstable();
        let is_repeated = ids.windows(2).any(|two| two[0] == two[1]);
        match (ids.is_empty(), is_repeated) {
            (true, _) => Some("it has no recordings".to_owned()),
            (_, true) => Some("it has the same recording twice".to_owned()),
            _ => None,
        }
    }
}

/// A recording of one rank.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(default)]
pub struct Member {
    pub run: String,
    pub rank: u32,
    /// The id of the recording.
    pub part: String,
    /// The number of ranks of the run; `None` if it is not known.
    pub world_size: Option<u32>,
    /// Whether the member's calls are in the dataset.
    pub calls: bool,
    /// Whether only some of the calls were timed (`run --budget`).
    pub sampled: bool,
    /// Whether names were replaced.
    pub redacted: bool,
    /// Whether the recording had not ended when it was exported.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub unfinished: bool,
    /// The number of calls of the recording when it was exported. This number never becomes
    /// smaller: of two exports, the one with the larger number is the later one.
    pub recorded_calls: u64,
    /// The version of the program that made the rows.
    pub program_version: String,
}

impl Member {
    /// Returns what identifies the member.
    pub fn id(&self) -> (&str, u32, &str) {
        (&self.run, self.rank, &self.part)
    }

    /// Returns whether `new` must not replace this member, because `new` is an earlier state of the
    /// same recording. If only `new` is redacted, returns false: somebody wants to remove the names
    /// of this member.
    #[cfg(feature = "write")]
    pub(crate) fn is_later_than(&self, new: &Self) -> bool {
        let ahead = self.recorded_calls.cmp(&new.recorded_calls);
        let is_later = ahead.is_gt() || ahead.is_eq() && !self.unfinished;
        let is_as_private = self.redacted || !new.redacted;
        self.id() == new.id() && new.unfinished && is_later && is_as_private
    }

    /// Returns a value for comparisons: of two versions of a recording, `merge` takes the one with
    /// the larger value.
    #[cfg(feature = "write")]
    pub(crate) fn order(&self) -> (bool, bool, bool, u64) {
        (!self.unfinished, self.calls, !self.redacted, self.recorded_calls)
    }

    /// Returns whether this member has all that `new`, another version of the same recording, has.
    /// If only one of them is redacted, returns false.
    #[cfg(feature = "write")]
    pub(crate) fn has_all_of(&self, new: &Self) -> bool {
        self.redacted == new.redacted
            && self.calls >= new.calls
            && self.recorded_calls >= new.recorded_calls
            && (!self.unfinished || new.unfinished)
    }

    /// Returns why the description of the recording is not valid, or `None` if it is.
    pub fn problem(&self) -> Option<String> {
        if self.world_size.is_some_and(|size| size > MOST_RANKS) {
            let size = self.world_size.unwrap_or(0);
            return Some(format!("run {}: {size} ranks are more than {MOST_RANKS}", self.run));
        }
        // The column `rank` is a signed number of 32 bits.
        let most = i32::MAX as u32;
        let rank = self.rank;
        (rank > most).then(|| format!("rank {rank} is larger than {most}, the limit of a dataset"))
    }
}

/// A Parquet file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct File {
    /// The path, relative to the dataset's directory.
    pub path: String,
    pub bytes: u64,
    /// The number of rows.
    pub rows: u64,
}

/// Returns the content of `dataset.json`.
pub fn dataset_json() -> Vec<u8> {
    #[derive(Serialize)]
    struct Out {
        schema: &'static str,
        tables: BTreeMap<&'static str, Vec<crate::schema::Column>>,
    }
    let tables = Table::ALL.into_iter().map(|table| (table.name(), table.columns().collect()));
    let out = Out { schema: DATASET_SCHEMA, tables: tables.collect() };
    let mut text = serde_json::to_vec_pretty(&out).unwrap_or_default();
    text.push(b'\n');
    text
}

pub fn run_directory(run: &str) -> String {
    format!("run={}", escaped(run))
}

pub fn rank_directory(run: &str, rank: u32) -> String {
    format!("{}/rank={rank}", run_directory(run))
}

/// Returns whether a file name has the form of the JSON file of a part.
pub fn is_part_json(name: &str) -> bool {
    name.starts_with("part-") && name.ends_with(".json")
}

/// Turns a text into the name of a file. Each byte that is not an ASCII letter, a digit, `.`, `_`
/// or `-` becomes `%` and two hexadecimal digits, and so does a dot at the beginning. Query engines
/// expect this encoding in names of directories such as `run=R`.
pub fn escaped(text: &str) -> String {
    let mut name = String::new();
    for (place, byte) in text.bytes().enumerate() {
        match byte {
            b'.' if place == 0 => name.push_str("%2E"),
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'_' | b'-' => name.push(byte.into()),
            _ => name.push_str(&format!("%{byte:02X}")),
        }
    }
    name
}

/// Splits a path inside of a dataset. Returns `None` for a path that could lead out of the dataset,
/// or that contains a hidden name or a zero byte.
pub(crate) fn components(path: &str) -> Option<Vec<&str>> {
    let parts: Vec<&str> = path.split('/').collect();
    let fine = |part: &&str| !part.is_empty() && !part.starts_with('.') && !part.contains('\0');
    parts.iter().all(fine).then_some(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_runs_are_names_of_files() {
        assert_eq!(escaped("train-7_b.2"), "train-7_b.2");
        assert_eq!(escaped("a/b c"), "a%2Fb%20c");
        assert_eq!(escaped(".."), "%2E.");
        assert_eq!(rank_directory("é", 3), "run=%C3%A9/rank=3");
    }

    #[test]
    fn paths_stay_inside() {
        assert_eq!(components("stats/run=1/x.parquet").map(|c| c.len()), Some(3));
        for path in ["", "/etc/passwd", "../x", "a/../b", "a//b", "a/.hidden", "a\0b"] {
            assert_eq!(components(path), None, "{path:?}");
        }
    }
}
