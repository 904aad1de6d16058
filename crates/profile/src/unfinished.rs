//! Recognises and removes a directory that did not become a profile, because the command that made
//! it was killed before it wrote the manifest.
//!
//! ```text
//!  run.bin, run-with-plugins.bin      a run file, or nothing in it yet
//!  .manifest.json.ID.tmp              the manifest before it was renamed
//!  pool/                              the pool, where there is no memory file system
//!  passes/  tracks/run/               empty, and empty tracks of `run -a`
//! ```
//!
//! Nothing was recorded into such a directory, because the manifest is written before the recorded
//! program starts. The directory is removed only if it contains nothing else, belongs to this user,
//! and no process is known to have its pool open. So a directory into which the user has put
//! another file is kept.

use std::ffi::OsStr;
use std::path::Path;

use record::RunFile;
use record::pool::{Layout, PoolFile, ProfileId, owner::is_in_use};
use record::run_file::{RUN_FILE_NAME, RUN_FILE_WITH_PLUGINS_NAME};
use rustix::fs::{FileType, Stat};

use crate::error::{Error, Result};
use crate::manifest::{MANIFEST_NAME, Manifest};
use crate::passes::PASSES_NAME;
use crate::pools::{self, NoPool, POOL_NAME};
use crate::safe_dir::Dir;
use crate::tracks::{SAMPLED_NAME, SAMPLES_NAME, SERIES_NAME, TRACKS_NAME};

const LONGEST_RUN_FILE: u64 = 16 << 20;

/// Removes the directory at `path` with its pool, if it is an unfinished profile. Returns whether
/// it was removed; it stays if a process uses its pool. The caller must make sure that no other
/// command is making a profile there.
///
/// # Errors
/// Fails if the directory cannot be read, or is an unfinished profile and cannot be removed.
pub fn remove(path: &Path) -> Result<bool> {
    let Ok(root) = Dir::open(path) else { return Ok(false) };
    if !is_one(&root)? {
        return Ok(false);
    }
    let names = root.names()?;
    for name in [RUN_FILE_NAME, RUN_FILE_WITH_PLUGINS_NAME] {
        let run_file = root.read(name, LONGEST_RUN_FILE).ok();
        let Some(run_file) = run_file.and_then(|b| RunFile::from_bytes(&b).ok()) else { continue };
        let manifest = Manifest {
            id: run_file.id.to_string(),
            pool: Some(run_file.pool.into()),
            ..Manifest::new()
        };
        match pools::find(&root, &manifest) {
            Ok(found) if found.refusal().is_none() => {
                if is_in_use(found.file.file()) == Some(true) {
                    return Ok(false);
                }
                let place = found.into_parts().1;
                place.remove().map_err(Error::on("remove", &manifest.pool.unwrap_or_default()))?;
            }
            // The pool is gone, or this command cannot tell whether it may be removed; then it
            // stays for a later command.
            Ok(_) | Err(NoPool::Gone | NoPool::Refused(_) | NoPool::Unreadable(_)) => {}
        }
    }
    for name in names {
        match kind(&root, &name) {
            Some(FileType::Directory) => root.remove_all(&name)?,
            _ => root.remove_file(&name)?,
        }
    }
    std::fs::remove_dir(path).map_err(Error::on("remove", path))?;
    Ok(true)
}

/// Returns whether the directory is an unfinished profile.
///
/// # Errors
/// Fails if the directory cannot be read.
pub(crate) fn is_one(root: &Dir) -> Result<bool> {
    let is_own = root.stat().is_ok_and(|found| found.st_uid == pools::user());
    Ok(is_own && root.names()?.iter().all(|name| is_ours(root, name)))
}

/// Returns whether the entry is one that a recording command makes before it writes the manifest.
fn is_ours(root: &Dir, name: &OsStr) -> bool {
    let Some(name) = name.to_str() else { return false };
    match name {
        RUN_FILE_NAME | RUN_FILE_WITH_PLUGINS_NAME => {
            let read = root.read(name, LONGEST_RUN_FILE);
            read.is_ok_and(|bytes| bytes.is_empty() || RunFile::from_bytes(&bytes).is_ok())
        }
        POOL_NAME => contains_only(root, name, |pool, name| match name.to_str() {
            Some(POOL_NAME) => is_unused_pool(pool),
            Some(name) => {
                pools::LINKS.contains(&name) && kind(pool, name) == Some(FileType::Symlink)
            }
            None => false,
        }),
        PASSES_NAME => contains_only(root, name, |_, _| false),
        TRACKS_NAME => contains_only(root, name, |tracks, name| {
            name == SAMPLED_NAME
                && contains_only(tracks, name, |run, name| {
                    [SERIES_NAME, SAMPLES_NAME].iter().any(|known| name == *known)
                        && kind(run, name) == Some(FileType::RegularFile)
                })
        }),
        _ => {
            let id = name.strip_prefix('.').and_then(|rest| rest.strip_prefix(MANIFEST_NAME));
            let id = id.and_then(|rest| rest.strip_prefix('.')?.strip_suffix(".tmp"));
            id.is_some_and(|id| id.parse::<ProfileId>().is_ok())
                && kind(root, name) == Some(FileType::RegularFile)
        }
    }
}

fn contains_only(
    dir: &Dir,
    name: impl AsRef<OsStr>,
    is_known: impl Fn(&Dir, &OsStr) -> bool,
) -> bool {
    let Ok(inside) = dir.dir(name) else { return false };
    inside.names().is_ok_and(|names| names.iter().all(|name| is_known(&inside, name)))
}

/// Returns whether `dir` contains a pool, complete or not, that no process is known to have open
/// for writing.
fn is_unused_pool(dir: &Dir) -> bool {
    let Ok(file) = dir.file(POOL_NAME) else { return false };
    let is_begun = |found: &Stat| {
        let has_size = || Layout::of_size(u64::try_from(found.st_size).unwrap_or(0)).is_some();
        found.st_size == 0 || (has_size() && found.st_blocks == 0)
    };
    let is_begun = rustix::fs::fstat(&file).is_ok_and(|found| is_begun(&found));
    is_in_use(&file) != Some(true) && (is_begun || PoolFile::of(file).is_ok())
}

fn kind(dir: &Dir, name: impl AsRef<OsStr>) -> Option<FileType> {
    dir.look(name).ok().map(|found| FileType::from_raw_mode(found.st_mode))
}
