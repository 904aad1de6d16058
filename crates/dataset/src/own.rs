//! Distinguishes a dataset's own files from other files, which this crate does not replace or
//! remove.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::layout::{DATASET_NAME, PARTS_NAME};
use crate::schema::Table;

/// Returns the path, relative to `dir`, of the first entry below `dir` that does not belong to a
/// dataset. Files with names as in [`crate::layout`] belong to it, whether a part lists them or
/// not, and so do unfinished files.
///
/// # Errors
/// Fails if a directory cannot be read.
pub fn foreign(dir: &Path) -> Result<Option<PathBuf>> {
    first_in(dir, &mut Vec::new())
}

fn first_in(dir: &Path, above: &mut Vec<String>) -> Result<Option<PathBuf>> {
    let failed = |e| Error::io("read", dir)(e);
    let mut entries =
        fs::read_dir(dir).map_err(failed)?.collect::<io::Result<Vec<_>>>().map_err(failed)?;
    entries.sort_by_key(|entry| entry.file_name());
    for entry in entries {
        let kind = entry.file_type().map_err(failed)?;
        let name = entry.file_name();
        let name = name.to_str().filter(|name| match kind.is_dir() {
            true => is_directory(above, name),
            false => kind.is_file() && is_file(above, name),
        });
        let Some(name) = name else {
            let path = above.iter().collect::<PathBuf>();
            return Ok(Some(path.join(entry.file_name())));
        };
        if kind.is_dir() {
            above.push(name.to_owned());
            let found = first_in(&entry.path(), above)?;
            above.pop();
            if found.is_some() {
                return Ok(found);
            }
        }
    }
    Ok(None)
}

fn is_directory(above: &[String], name: &str) -> bool {
    match above.len() {
        0 => name == PARTS_NAME || Table::parse(name).is_some(),
        1 => name.starts_with("run="),
        2 => name.starts_with("rank="),
        _ => false,
    }
}

/// Returns whether a file has no final name yet.
pub(crate) fn is_unfinished(name: &str) -> bool {
    name.starts_with(".part-") && name.ends_with(".tmp")
}

fn is_file(above: &[String], name: &str) -> bool {
    let is_unfinished = is_unfinished(name);
    let ending =
        if above.first().is_some_and(|first| first == PARTS_NAME) { ".json" } else { ".parquet" };
    match above.len() {
        0 => name == DATASET_NAME || is_unfinished,
        2 | 3 => is_unfinished || name.starts_with("part-") && name.ends_with(ending),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_others_are_told_apart() {
        let above = |path: &str| path.split_terminator('/').map(str::to_owned).collect::<Vec<_>>();
        let own = ["", "stats/run=a/", "parts/run=a/rank=3/", "parts/run=a/"];
        let names = ["dataset.json", "part-1.parquet", "part-1.json", ".part-7-0.tmp"];
        for (directory, name) in own.into_iter().zip(names) {
            assert!(is_file(&above(directory), name), "{directory}{name}");
        }
        let others = ["stats/", "stats/run=a/", "", "parts/run=a/", "stats/run=a/rank=1/x/"];
        let names =
            ["part-1.parquet", "part-1.json", "main.rs", "part-1.parquet", "part-1.parquet"];
        for (directory, name) in others.into_iter().zip(names) {
            assert!(!is_file(&above(directory), name), "{directory}{name}");
        }
        assert!(is_directory(&above("calls/run=a"), "rank=1") && !is_directory(&[], "src"));
    }
}
