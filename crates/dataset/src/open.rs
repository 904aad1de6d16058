//! Opens a dataset, and finds what is incomplete in it.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::gaps::{self, Gap};
use crate::layout::{
    self, DATASET_NAME, DATASET_SCHEMA, File, GROWING_PART_SCHEMA, Member, PART_SCHEMA, PARTS_NAME,
    Part, components,
};
use crate::schema::Table;

/// The largest JSON file that is read, in bytes. The file of a part with 10⁵ members has 30 MB.
const MOST_BYTES: u64 = 1 << 28;

/// How often reading is tried again because a part was replaced.
const MOST_CHANGES: u32 = 5;

#[derive(Clone, Debug, Default)]
pub struct Dataset {
    /// The dataset's directory.
    pub dir: PathBuf,
    /// The parts whose files all exist and match their descriptions, sorted by their first member.
    pub parts: Vec<Part>,
    /// What readers of the dataset must know: missing, repeated, unfinished or unreadable
    /// recordings.
    pub gaps: Vec<Gap>,
}

/// A function that returns why a file of a table does not match the description in its part, or
/// `None` if it does. The check is called only for files that have the size that the part states.
pub type Check<'a> = &'a dyn Fn(&Path, Table, &File, &Part) -> Option<String>;

impl Dataset {
    /// Opens a dataset.
    ///
    /// # Errors
    /// Fails if the directory is not a dataset of this version, or if a directory of parts cannot be
    /// read.
    #[cfg(feature = "write")]
    pub fn open(dir: &Path) -> Result<Self> {
        Self::open_with(dir, &crate::footer::problem)
    }

    /// Opens a dataset, and checks its files with `check`. A program with another Parquet library
    /// passes a check of its own.
    ///
    /// # Errors
    /// Fails if the directory is not a dataset of this version, or if a directory of parts cannot be
    /// read.
    pub fn open_with(dir: &Path, check: Check<'_>) -> Result<Self> {
        check_version(dir)?;
        let mut found = Self { dir: dir.to_owned(), ..Self::default() };
        let mut files = Vec::new();
        find_parts(&dir.join(PARTS_NAME), 0, &mut files, &mut found.gaps)?;
        files.sort();
        let mut taken: BTreeSet<(String, u32, String)> = BTreeSet::new();
        for path in files {
            let (part, broken) = match look_at(dir, &path, check) {
                Ok(part) => part,
                Err(e) => {
                    found.gaps.push(Gap::Unreadable { why: e.to_string() });
                    continue;
                }
            };
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
        let of_ranks =
            gaps::of_ranks(found.parts.iter().flat_map(|part| &part.members), &found.gaps);
        found.gaps.extend(of_ranks);
        found.gaps.sort();
        Ok(found)
    }

    /// Returns the members of all parts, sorted.
    pub fn members(&self) -> Vec<&Member> {
        let mut all: Vec<&Member> = self.parts.iter().flat_map(|part| &part.members).collect();
        all.sort();
        all
    }

    pub fn files(&self, table: Table) -> impl Iterator<Item = &File> {
        self.parts.iter().flat_map(move |part| part.files_of(table.name()))
    }

    /// Opens a dataset and calls `read` with it. If `read` fails and the parts have changed
    /// meanwhile, both steps are repeated, a few times at most.
    ///
    /// # Errors
    /// Fails if [`Dataset::open`] or `read` fails.
    #[cfg(feature = "write")]
    pub fn reading<T>(dir: &Path, mut read: impl FnMut(&Self) -> Result<T>) -> Result<(Self, T)> {
        let mut dataset = Self::open(dir)?;
        for _ in 0..MOST_CHANGES {
            let done = read(&dataset);
            let now = if done.is_err() { Self::open(dir)? } else { Self::default() };
            match done {
                Ok(done) => return Ok((dataset, done)),
                Err(e) if now.parts == dataset.parts => return Err(e),
                Err(_) => dataset = now,
            }
        }
        let done = read(&dataset)?;
        Ok((dataset, done))
    }
}

/// Reads a part, and returns why it is broken, if it is. If the part was replaced between reading
/// its JSON and looking at its files, it is read again.
fn look_at(dir: &Path, path: &Path, check: Check<'_>) -> Result<(Part, Option<String>)> {
    let mut part = read_part(path)?;
    for _ in 0..MOST_CHANGES {
        let broken = part.all_files().find_map(|(name, file)| {
            problem(dir, name, file).or_else(|| {
                let (table, path) = (Table::parse(name)?, place(dir, name, file)?);
                check(&path, table, file, &part)
            })
        });
        let now = match broken {
            None => return Ok((part, None)),
            Some(_) => read_part(path)?,
        };
        if now == part {
            return Ok((part, broken));
        }
        part = now;
    }
    Ok((part, Some("it changed again and again while it was read".to_owned())))
}

fn owned(member: &Member) -> (String, u32, String) {
    (member.run.clone(), member.rank, member.part.clone())
}

/// Returns whether a directory is marked as a dataset, of any version.
pub fn is_dataset(dir: &Path) -> bool {
    dir.join(DATASET_NAME).symlink_metadata().is_ok()
}

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

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let found = path.symlink_metadata()?;
    if !found.is_file() || found.len() > MOST_BYTES {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "not a small regular file"));
    }
    fs::read(path)
}

pub(crate) fn read_part(path: &Path) -> Result<Part> {
    let text = read(path).map_err(Error::io("read", path))?;
    let unknown = |why: String| Error::Unknown { path: path.to_owned(), why };
    let mut part: Part = serde_json::from_slice(&text).map_err(|e| unknown(e.to_string()))?;
    if part.schema != PART_SCHEMA && part.schema != GROWING_PART_SCHEMA {
        let why = format!("it is {:?}, not {PART_SCHEMA} or {GROWING_PART_SCHEMA}", part.schema);
        return Err(unknown(why));
    }
    if part.all_files().any(|(name, _)| Table::parse(name).is_none()) {
        return Err(unknown("it has a table that this version does not know".to_owned()));
    }
    if let Some(why) = part.problem() {
        return Err(unknown(why));
    }
    part.members.sort();
    Ok(part)
}

/// Finds the JSON files below the directory of parts, at most two directories deep. A directory
/// below these, or something that is neither a file nor a directory, becomes a [`Gap::Unreadable`].
fn find_parts(dir: &Path, depth: u32, found: &mut Vec<PathBuf>, gaps: &mut Vec<Gap>) -> Result<()> {
    let not_read =
        |path: &Path| Gap::Unreadable { why: format!("{}: not a regular file", path.display()) };
    if dir.symlink_metadata().is_ok_and(|found| !found.is_dir()) {
        gaps.push(not_read(dir));
        return Ok(());
    }
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
            find_parts(&path, depth + 1, found, gaps)?;
        } else if !kind.is_file() {
            gaps.push(not_read(&path));
        } else if layout::is_part_json(&name) {
            found.push(path);
        }
    }
    Ok(())
}

/// Returns whether a file exists with the size that its part states.
#[cfg(feature = "write")]
pub(crate) fn is_there(dir: &Path, table: &str, file: &File) -> bool {
    problem(dir, table, file).is_none()
}

/// Returns why `file` is not a regular file of the size that its part states, or `None` if it is.
fn problem(dir: &Path, table: &str, file: &File) -> Option<String> {
    let Some(path) = place(dir, table, file) else {
        return Some(format!("{:?} is not a place inside of the dataset's {table}", file.path));
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

/// Returns the path of a Parquet file. Returns `None` if the path is outside of the table's
/// directory, contains a hidden name, leads through a link, or does not end in `.parquet`.
pub(crate) fn place(dir: &Path, table: &str, file: &File) -> Option<PathBuf> {
    let mut path = dir.to_owned();
    let names = components(&file.path)?;
    let is_of_table = names.len() > 1 && names.first() == Some(&table);
    for name in Some(names).filter(|_| is_of_table && file.path.ends_with(".parquet"))? {
        // This tests the directories of the path. `problem` tests the file itself.
        if path != dir && path.symlink_metadata().is_ok_and(|found| found.is_symlink()) {
            return None;
        }
        path.push(name);
    }
    Some(path)
}
