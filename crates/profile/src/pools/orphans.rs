//! Finds pools that no profile and no process can use any more.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::PathBuf;

use record::PageHeader;
use record::pool::{Owner, PoolFile, VERSION};

use super::{LINKS, POOL_NAME, Place, is_given_name, is_name_of, places, user};
use crate::live::ProcessId;
use crate::safe_dir::Dir;
use crate::unfinished;

/// A pool of the caller that no profile can use, or the remains of one.
#[derive(Debug)]
pub struct Orphan {
    /// The path of the pool, or of its directory if there is no pool in it.
    pub path: PathBuf,
    /// Path of the profile when it was made; `None` if it was too long to be stored, or if the pool
    /// does not contain it.
    pub profile: Option<PathBuf>,
    /// Memory that the pool takes, in bytes.
    pub bytes: u64,
    /// The reason why the pool still exists.
    pub state: Lost,
    /// Seconds since the last data was recorded into the pool, as far as can be determined.
    pub age_s: u64,
    place: Place,
    /// The pool's file; `None` if there is only a directory.
    file: Option<File>,
}

/// The state of a pool that no profile can use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    /// The pool's profile was deleted, so nobody can use the pool any more.
    Deleted,
    /// The pool's profile was deleted, or moved to another directory and not opened there since.
    /// Only processes that may open files by their handles (root) can distinguish the two cases.
    DeletedOrMoved,
    /// The command that made it was killed before the profile had a manifest, so nothing was recorded.
    Unfinished,
    /// The file is not a pool, or names no profile: somebody has changed its size or its header. No process
    /// can record into it, and nothing can be collected from it.
    Damaged,
    /// The pool's header has another version of the format. Only a program of that version can tell
    /// whether the pool is in use.
    OtherVersion,
}

/// Within this time, a pool may still be in the making and is ignored. Making one takes
/// milliseconds.
const MAKING_S: u64 = 60;

/// Returns the pools of the caller, and the remains of pools, that no process uses and that no
/// profile can use. The pool of an existing profile is not an orphan, because `recover` can collect
/// it.
pub fn orphans() -> Vec<Orphan> {
    let mut found: Vec<Orphan> = Vec::new();
    for place in places(user()) {
        let Ok(around) = Dir::open(&place) else { continue };
        for name in around.names().unwrap_or_default() {
            let orphan = if is_name_of(&name, user()) { orphan(&around, name) } else { None };
            // Two names may refer to the same place.
            found.extend(orphan.filter(|o| found.iter().all(|known| known.path != o.path)));
        }
    }
    found
}

fn orphan(around: &Dir, name: OsString) -> Option<Orphan> {
    let place = Place { inside: around.dir(&name).ok()?, around: around.clone(), name };
    if place.inside.stat().ok()?.st_uid != user() {
        return None;
    }
    let orphan = match place.inside.file(POOL_NAME) {
        Ok(file) => with_pool(place, file)?,
        Err(e) if e.is_not_found() => without_pool(place)?,
        // The entry is a link, a pipe, or something that we may not read, so `run` has not made it.
        Err(_) => return None,
    };
    let may_be_in_the_making = matches!(orphan.state, Lost::Unfinished | Lost::Damaged);
    (!may_be_in_the_making || orphan.age_s >= MAKING_S).then_some(orphan)
}

/// Returns an empty directory, into which the command that made it put no pool.
fn without_pool(place: Place) -> Option<Orphan> {
    if !is_only(&place, &[]) {
        return None;
    }
    Some(Orphan {
        path: place.inside.path().to_owned(),
        profile: None,
        bytes: 0,
        state: Lost::Unfinished,
        age_s: unchanged_s(&place.inside.to_file().ok()?),
        place,
        file: None,
    })
}

fn with_pool(place: Place, file: File) -> Option<Orphan> {
    let found = rustix::fs::fstat(&file).ok()?;
    if found.st_uid != user() || found.st_nlink != 1 {
        return None;
    }
    // The kernel knows about processes in any container.
    if record::pool::owner::is_in_use(&file) != Some(false) {
        return None;
    }
    let (profile, state, age_s) = match PoolFile::of(file.try_clone().ok()?) {
        Ok(pool) if pool.owner().id.is_some() => {
            let profile = pool.owner().path.as_ref().map(PathBuf::from);
            (profile, state_of(&pool)?, age_s(&pool))
        }
        Err(e) if e.kind() != io::ErrorKind::InvalidData => return None,
        _ => (None, damage(&place, &file)?, unchanged_s(&file)),
    };
    Some(Orphan {
        path: place.inside.path_of(POOL_NAME),
        profile,
        bytes: u64::try_from(found.st_blocks).unwrap_or(0) * 512,
        state,
        age_s,
        place,
        file: Some(file),
    })
}

/// Determines the state of a pool of this version; `None` if its profile can use it.
fn state_of(pool: &PoolFile) -> Option<Lost> {
    // The kernel's answer does not cover processes that have not opened the pool yet.
    let lives = |row: &record::pool::ProcessRow| {
        let process = ProcessId { pid: row.pid, start_time: row.start_time };
        row.pid != 0 && !row.left && process.is_alive()
    };
    if pool.processes().ok()?.iter().any(lives) {
        return None;
    }
    lost(pool.owner())
}

/// Determines what is wrong with a file that is not a pool of this version; `None` if it may be
/// something else of the user's.
fn damage(place: &Place, file: &File) -> Option<Lost> {
    match PoolFile::version(file).ok()? {
        Some(version) if version != VERSION => Some(Lost::OtherVersion),
        _ => is_only(place, &[POOL_NAME, LINKS[0], LINKS[1]]).then_some(Lost::Damaged),
    }
}

/// Whether the directory has a name that `run` gives, and nothing but entries of these names.
fn is_only(place: &Place, known: &[&str]) -> bool {
    let is_known = |name: &OsString| known.iter().any(|known| name == known);
    is_given_name(&place.name) && place.inside.names().is_ok_and(|names| names.iter().all(is_known))
}

/// Returns for how many seconds nobody has written to a file, or changed the names in a directory.
fn unchanged_s(file: &File) -> u64 {
    let changed = file.metadata().and_then(|found| found.modified()).ok();
    changed.and_then(|time| time.elapsed().ok()).map_or(0, |age| age.as_secs())
}

/// Returns the pool's age in seconds. A mapped file's modification time is not updated by writes to
/// the mapping, so the start times of the newest pages are used.
fn age_s(pool: &PoolFile) -> u64 {
    let headers = pool.claimed().filter_map(|(number, _)| pool.page(number).ok());
    let begun = headers.filter_map(|page| PageHeader::parse(&page).ok());
    let last_ns = begun.map(|header| header.start.base_monotonic_ns).max();
    let since = last_ns.map(|ns| record::clock::monotonic_ns().saturating_sub(ns) / 1_000_000_000);
    let made = unchanged_s(pool.file());
    since.map_or(made, |since| since.min(made))
}

/// Determines what happened to the profile; `None` if it is as it should be or if that is unknown.
fn lost(owner: &Owner) -> Option<Lost> {
    let path = PathBuf::from(owner.path.as_ref()?);
    let is_it = |dir: &Dir| dir.stat().is_ok_and(|s| owner.is(s.st_dev, s.st_ino, s.st_uid));
    match Dir::open(&path) {
        Ok(there) if is_it(&there) => {
            return unfinished::is_one(&there).ok()?.then_some(Lost::Unfinished);
        }
        Ok(_) => {}
        Err(e) if e.is_not_found() => {}
        // The profile may be in a directory that we may not enter.
        Err(_) => return None,
    }
    // Any directory of the file system will do. The nearest one may have been deleted with the
    // profile.
    let near = path.ancestors().skip(1).find_map(|above| Dir::open(above).ok())?;
    match near.to_file().ok().and_then(|near| owner.is_deleted(&near)) {
        Some(true) => return Some(Lost::Deleted),
        Some(false) => return None,
        None => {}
    }
    // If it was renamed within the same directory, it can be found without special rights.
    let renamed = near
        .names()
        .ok()?
        .iter()
        .any(|name| near.look(name).is_ok_and(|s| owner.is(s.st_dev, s.st_ino, s.st_uid)));
    (!renamed).then_some(Lost::DeletedOrMoved)
}

impl Orphan {
    /// Deletes the pool with its directory, unless a process uses it by now.
    ///
    /// # Errors
    /// Fails if it cannot be deleted.
    pub fn remove(self) -> io::Result<()> {
        match &self.file {
            Some(file) if record::pool::owner::is_in_use(file) != Some(false) => {
                Err(io::ErrorKind::ResourceBusy.into())
            }
            Some(_) => self.place.remove(),
            None => self.place.remove_directory(),
        }
    }
}
