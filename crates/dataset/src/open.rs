//! Opens a dataset, and finds what is incomplete in it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::layout::{
    DATASET_NAME, DATASET_SCHEMA, File, Member, PART_SCHEMA, PARTS_NAME, Part, components,
};
use crate::schema::Table;

/// The largest size of a JSON file that is read, in bytes. 10⁵ members take 30 MB.
const MOST_BYTES: u64 = 1 << 28;

/// An opened dataset.
#[derive(Clone, Debug, Default)]
pub struct Dataset {
    /// Where it is.
    pub dir: PathBuf,
    /// Its parts whose files are all there, sorted by their first member.
    pub parts: Vec<Part>,
    /// What is missing.
    pub gaps: Vec<Gap>,
}

/// What is missing in a dataset.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Gap {
    /// A rank of a run of which nothing is there, although the run had so many ranks.
    NoPart {
        /// The run.
        run: String,
        /// The rank.
        rank: u32,
    },
    /// A part that is left out, because one of its files is not what the part says.
    Broken {
        /// The run.
        run: String,
        /// The rank.
        rank: u32,
        /// The id of the recording.
        part: String,
        /// The file, and what is wrong with it.
        why: String,
    },
    /// A file of the directory of parts that says nothing.
    Unreadable {
        /// The file, and why.
        why: String,
    },
}

impl Dataset {
    /// Opens a dataset. Nothing is changed.
    ///
    /// # Errors
    /// It is not a dataset, or of another version.
    pub fn open(dir: &Path) -> Result<Self> {
        check_version(dir)?;
        let mut found = Self { dir: dir.to_owned(), ..Self::default() };
        let mut files = Vec::new();
        find_parts(&dir.join(PARTS_NAME), 0, &mut files)?;
        files.sort();
        let mut taken: BTreeSet<(String, u32, String)> = BTreeSet::new();
        for path in files {
            let part = match read_part(&path) {
                Ok(part) => part,
                Err(e) => {
                    found.gaps.push(Gap::Unreadable { why: e.to_string() });
                    continue;
                }
            };
            let broken = part.files.values().find_map(|file| problem(dir, file));
            if let Some(why) = broken {
                for member in &part.members {
                    let (run, rank) = (member.run.clone(), member.rank);
                    let (part, why) = (member.part.clone(), why.clone());
                    found.gaps.push(Gap::Broken { run, rank, part, why });
                }
                continue;
            }
            let ids: Vec<_> = part.members.iter().map(owned).collect();
            if ids.iter().any(|id| taken.contains(id)) {
                let why = format!("{}: some of its parts are also in another file", path.display());
                found.gaps.push(Gap::Unreadable { why });
                continue;
            }
            taken.extend(ids);
            found.parts.push(part);
        }
        found.parts.sort_by(|a, b| a.members.first().cmp(&b.members.first()));
        found.find_missing_ranks();
        found.gaps.sort();
        Ok(found)
    }

    /// The members of all parts, sorted.
    pub fn members(&self) -> Vec<&Member> {
        let mut all: Vec<&Member> = self.parts.iter().flat_map(|part| &part.members).collect();
        all.sort();
        all
    }

    /// The files of a table.
    pub fn files(&self, table: Table) -> impl Iterator<Item = &File> {
        self.parts.iter().filter_map(move |part| part.files.get(table.name()))
    }

    fn find_missing_ranks(&mut self) {
        let mut runs: BTreeMap<String, (u32, BTreeSet<u32>)> = BTreeMap::new();
        for member in self.parts.iter().flat_map(|part| &part.members) {
            let run = runs.entry(member.run.clone()).or_default();
            run.0 = run.0.max(member.world_size.unwrap_or(0));
            run.1.insert(member.rank);
        }
        for gap in &self.gaps {
            // It is named already.
            if let Gap::Broken { run, rank, .. } = gap {
                runs.entry(run.clone()).or_default().1.insert(*rank);
            }
        }
        for (run, (size, ranks)) in runs {
            // A size that nobody can have had names no ranks.
            for rank in (0..size.min(1 << 20)).filter(|rank| !ranks.contains(rank)) {
                self.gaps.push(Gap::NoPart { run: run.clone(), rank });
            }
        }
    }
}

fn owned(member: &Member) -> (String, u32, String) {
    (member.run.clone(), member.rank, member.part.clone())
}

/// Whether a directory says that it is a dataset, of any version.
pub fn is_dataset(dir: &Path) -> bool {
    dir.join(DATASET_NAME).symlink_metadata().is_ok()
}

/// Checks that a directory is a dataset of this version.
pub(crate) fn check_version(dir: &Path) -> Result<()> {
    #[derive(serde::Deserialize)]
    struct Head {
        schema: String,
    }
    let path = dir.join(DATASET_NAME);
    let text = match read(&path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            return Err(Error::NotADataset { path: dir.to_owned() });
        }
        other => other.map_err(Error::io("read", &path))?,
    };
    let head: Head = serde_json::from_slice(&text)
        .map_err(|e| Error::Unknown { path: path.clone(), why: e.to_string() })?;
    match head.schema == DATASET_SCHEMA {
        true => Ok(()),
        false => {
            let why = format!("it is {:?}, and this version reads {DATASET_SCHEMA}", head.schema);
            Err(Error::Unknown { path, why })
        }
    }
}

/// Reads a regular file that is not too large.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    let found = path.symlink_metadata()?;
    if !found.is_file() || found.len() > MOST_BYTES {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "not a small regular file"));
    }
    fs::read(path)
}

/// Reads what a part consists of.
pub(crate) fn read_part(path: &Path) -> Result<Part> {
    let text = read(path).map_err(Error::io("read", path))?;
    let unknown = |why: String| Error::Unknown { path: path.to_owned(), why };
    let mut part: Part = serde_json::from_slice(&text).map_err(|e| unknown(e.to_string()))?;
    if part.schema != PART_SCHEMA {
        return Err(unknown(format!("it is {:?}, not {PART_SCHEMA}", part.schema)));
    }
    if part.files.keys().any(|name| Table::parse(name).is_none()) {
        return Err(unknown("it has a table that this version does not know".to_owned()));
    }
    part.members.sort();
    Ok(part)
}

/// Finds the JSON files below the directory of parts, which are at most two directories deep.
fn find_parts(dir: &Path, depth: u32, found: &mut Vec<PathBuf>) -> Result<()> {
    let entries = match fs::read_dir(dir) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other.map_err(Error::io("read", dir))?,
    };
    for entry in entries {
        let entry = entry.map_err(Error::io("read", dir))?;
        let (path, name) = (entry.path(), entry.file_name());
        let kind = entry.file_type().map_err(Error::io("read", &path))?;
        let name = name.to_string_lossy();
        if kind.is_dir() && depth < 2 {
            find_parts(&path, depth + 1, found)?;
        } else if kind.is_file() && name.starts_with("part-") && name.ends_with(".json") {
            found.push(path);
        }
    }
    Ok(())
}

/// Whether a file is there with the size that its part says.
#[cfg(feature = "write")]
pub(crate) fn is_there(dir: &Path, file: &File) -> bool {
    problem(dir, file).is_none()
}

/// Why a file is not what its part says.
fn problem(dir: &Path, file: &File) -> Option<String> {
    let Some(path) = place(dir, file) else {
        return Some(format!("{:?} is not a place inside of the dataset", file.path));
    };
    match path.symlink_metadata() {
        Err(e) => Some(format!("{}: {e}", file.path)),
        Ok(found) if !found.is_file() => Some(format!("{}: not a regular file", file.path)),
        Ok(found) if found.len() != file.bytes => {
            Some(format!("{}: {} of {} bytes", file.path, found.len(), file.bytes))
        }
        Ok(_) => None,
    }
}

/// Where a file is; `None` if that is outside of the dataset, or behind a link.
pub(crate) fn place(dir: &Path, file: &File) -> Option<PathBuf> {
    let mut path = dir.to_owned();
    for name in components(&file.path)? {
        // Of the last one, the caller finds out what it is.
        if path != dir && path.symlink_metadata().is_ok_and(|found| found.is_symlink()) {
            return None;
        }
        path.push(name);
    }
    Some(path)
}
