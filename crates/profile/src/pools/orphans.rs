//! Finds pools that nobody can use any more.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::PathBuf;

use record::PageHeader;
use record::pool::{Owner, PoolFile};

use super::{POOL_NAME, Place, is_name_of, places, user};
use crate::beneath::Dir;
use crate::live::ProcessId;

/// A pool of the caller whose profile is not where it was made.
#[derive(Debug)]
pub struct Orphan {
    /// The pool.
    pub path: PathBuf,
    /// Path of the profile when it was made; `None` if it was too long to be stored.
    pub profile: Option<PathBuf>,
    /// Memory that the pool takes, in bytes.
    pub bytes: u64,
    /// What is known about its profile.
    pub state: Lost,
    /// Seconds since something was recorded into it, as far as can be determined.
    pub age_s: u64,
    place: Place,
    file: File,
}

/// What is known about a profile that is not where it was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    /// It was deleted, so nobody can use the pool any more.
    Deleted,
    /// It was deleted, or moved to another directory and not opened there since. The kernel can
    /// tell the two cases apart only for processes that may open files by their handles (root).
    DeletedOrMoved,
}

/// Returns the pools of the caller that no process uses and whose profiles are not where they were
/// made. The pool of an existing profile is not an orphan, because `recover` can collect it.
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
    let file = place.inside.file(POOL_NAME).ok()?;
    let found = rustix::fs::fstat(&file).ok()?;
    let pool = PoolFile::of(file).ok()?;
    if found.st_uid != user() || found.st_nlink != 1 || !pool.owner().id.is_some() {
        return None;
    }
    // The kernel knows about processes in any container. Our own check also covers processes in
    // this container that have not written yet.
    if record::pool::owner::is_in_use(pool.file()) != Some(false) {
        return None;
    }
    let lives = |row: &record::pool::ProcessRow| {
        let process = ProcessId { pid: row.pid, start_time: row.start_time };
        row.pid != 0 && !row.left && process.is_alive()
    };
    if pool.processes().ok()?.iter().any(lives) {
        return None;
    }
    let state = lost(pool.owner())?;
    Some(Orphan {
        path: place.inside.path_of(POOL_NAME),
        profile: pool.owner().path.as_ref().map(PathBuf::from),
        bytes: u64::try_from(found.st_blocks).unwrap_or(0) * 512,
        state,
        age_s: age_s(&pool),
        file: pool.file().try_clone().ok()?,
        place,
    })
}

/// Returns the pool's age in seconds. A mapped file's modification time is not updated by writes to
/// the mapping, so the start times of the newest pages are used.
fn age_s(pool: &PoolFile) -> u64 {
    let made =
        pool.file().metadata().and_then(|m| m.modified()).ok().and_then(|t| t.elapsed().ok());
    let headers = pool.claimed().filter_map(|(number, _)| pool.page(number).ok());
    let begun = headers.filter_map(|page| PageHeader::parse(&page).ok());
    let last_ns = begun.map(|header| header.start.base_monotonic_ns).max();
    let since = last_ns.map(|ns| record::clock::monotonic_ns().saturating_sub(ns) / 1_000_000_000);
    let made = made.map_or(0, |age| age.as_secs());
    since.map_or(made, |since| since.min(made))
}

/// Determines what happened to the profile; `None` if it exists or if that is unknown.
fn lost(owner: &Owner) -> Option<Lost> {
    let path = PathBuf::from(owner.path.as_ref()?);
    let is_it = |dir: &Dir| dir.stat().is_ok_and(|s| owner.is(s.st_dev, s.st_ino, s.st_uid));
    match Dir::open(&path) {
        Ok(there) if is_it(&there) => return None,
        Ok(_) => {}
        Err(e) if e.is_not_found() => {}
        // The profile may be behind a directory that we may not enter.
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
        if record::pool::owner::is_in_use(&self.file) != Some(false) {
            return Err(io::ErrorKind::ResourceBusy.into());
        }
        self.place.remove()
    }
}
