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

/// A pool of this user that no profile can use, or the empty directory that is left of such a pool.
#[derive(Debug)]
pub struct Orphan {
    /// The path of the pool, or of its directory if there is no pool in it.
    pub path: PathBuf,
    /// Path that the profile had when the pool was made; `None` if unknown.
    pub profile: Option<PathBuf>,
    /// Memory that the pool takes, in bytes.
    pub bytes: u64,
    /// Why the pool is an orphan.
    pub state: Lost,
    /// Seconds since the pool, or the empty directory, was last changed, as far as known.
    pub age_s: u64,
    place: Place,
    /// The pool's file; `None` if there is only an empty directory.
    file: Option<File>,
}

/// Why a pool is an [`Orphan`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    /// The pool's profile was deleted.
    Deleted,
    /// The pool's profile was deleted, or was moved to another directory. The two cases can be told
    /// apart only with the right to open files by their handles, which root has.
    DeletedOrMoved,
    /// The command that made the pool was killed before it wrote the profile's manifest, so nothing
    /// was recorded. An empty directory that is left of a pool has this state, too.
    Unfinished,
    /// The file is not a pool, or does not name a profile. No data can be moved from it to a
    /// profile.
    Damaged,
    /// The pool has another version of the format. Only a program of that version can find out
    /// whether a profile still needs the pool.
    OtherVersion,
}

/// An unfinished or damaged pool that is less than this many seconds old is ignored, because a
/// command may still be making it. Making a pool takes milliseconds.
const MAKING_S: u64 = 60;

/// Returns this user's pools that no process and no profile can use, and the empty directories that
/// are left of such pools. The pool of an existing profile is no orphan, because `recover` can move
/// its data to the profile.
pub fn orphans() -> Vec<Orphan> {
    let mut found: Vec<Orphan> = Vec::new();
    for place in places(user()) {
        let Ok(around) = Dir::open(&place) else { continue };
        for name in around.names().unwrap_or_default() {
            let orphan = if is_name_of(&name, user()) { orphan(&around, name) } else { None };
            // `places` may list the same directory twice.
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
        // The entry named [`POOL_NAME`] is a link, a pipe or a file that we may not read. `run`
        // does not make such entries.
        Err(_) => return None,
    };
    let may_be_in_the_making = matches!(orphan.state, Lost::Unfinished | Lost::Damaged);
    (!may_be_in_the_making || orphan.age_s >= MAKING_S).then_some(orphan)
}

/// Returns the directory as an orphan if it is empty and has a name that `run` gives. In that case,
/// the command that made the directory was killed before it made the pool, or while the directory
/// was being deleted.
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
    // `is_in_use` asks the operating system's kernel, which also knows the processes in other
    // containers.
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

/// Determines the state of a pool of this version; `None` if it may still be used.
fn state_of(pool: &PoolFile) -> Option<Lost> {
    // `is_in_use` misses a process that has not mapped the pool at this moment, so the processes in
    // the pool's table are checked, too.
    let lives = |row: &record::pool::ProcessRow| {
        let process = ProcessId { pid: row.pid, start_time: row.start_time };
        row.pid != 0 && !row.left && process.is_alive()
    };
    if pool.processes().ok()?.iter().any(lives) {
        return None;
    }
    lost(pool.owner())
}

/// Determines what is wrong with a file that is not a pool of this version, or names no profile.
/// Returns `None` if the file may be something else that belongs to the user.
fn damage(place: &Place, file: &File) -> Option<Lost> {
    match PoolFile::version(file).ok()? {
        Some(version) if version != VERSION => Some(Lost::OtherVersion),
        _ => is_only(place, &[POOL_NAME, LINKS[0], LINKS[1]]).then_some(Lost::Damaged),
    }
}

/// Returns whether the directory has a name that `run` gives, and no entries beside `known`.
fn is_only(place: &Place, known: &[&str]) -> bool {
    let is_known = |name: &OsString| known.iter().any(|known| name == known);
    is_given_name(&place.name) && place.inside.names().is_ok_and(|names| names.iter().all(is_known))
}

/// Returns the seconds since a file was last written to, or since an entry of a directory was last
/// added, removed or renamed.
fn unchanged_s(file: &File) -> u64 {
    let changed = file.metadata().and_then(|found| found.modified()).ok();
    changed.and_then(|time| time.elapsed().ok()).map_or(0, |age| age.as_secs())
}

/// Returns about how many seconds ago data was last recorded into the pool. Writes to a mapping do
/// not update the file's modification time, so the start of the newest page counts, too.
fn age_s(pool: &PoolFile) -> u64 {
    let headers = pool.claimed().filter_map(|(number, _)| pool.page(number).ok());
    let begun = headers.filter_map(|page| PageHeader::parse(&page).ok());
    let last_ns = begun.map(|header| header.start.base_monotonic_ns).max();
    let since = last_ns.map(|ns| record::clock::monotonic_ns().saturating_sub(ns) / 1_000_000_000);
    let made = unchanged_s(pool.file());
    since.map_or(made, |since| since.min(made))
}

/// Determines what happened to the profile; `None` if it still exists as a profile, or if nothing
/// is known.
fn lost(owner: &Owner) -> Option<Lost> {
    let path = PathBuf::from(owner.path.as_ref()?);
    let is_it = |dir: &Dir| dir.stat().is_ok_and(|s| owner.is(s.st_dev, s.st_ino, s.st_uid));
    match Dir::open(&path) {
        Ok(there) if is_it(&there) => {
            return unfinished::is_one(&there).ok()?.then_some(Lost::Unfinished);
        }
        Ok(_) => {}
        Err(e) if e.is_not_found() => {}
        // The profile may be in a directory that we cannot access.
        Err(_) => return None,
    }
    // To find the profile by its handle, any directory in the same file system will do. The nearest
    // directories may have been deleted with the profile.
    let near = path.ancestors().skip(1).find_map(|above| Dir::open(above).ok())?;
    match near.to_file().ok().and_then(|near| owner.is_deleted(&near)) {
        Some(true) => return Some(Lost::Deleted),
        Some(false) => return None,
        None => {}
    }
    // A profile that was renamed within its directory can be found without special rights.
    let renamed = near
        .names()
        .ok()?
        .iter()
        .any(|name| near.look(name).is_ok_and(|s| owner.is(s.st_dev, s.st_ino, s.st_uid)));
    (!renamed).then_some(Lost::DeletedOrMoved)
}

impl Orphan {
    /// Deletes the pool with its directory, unless a process uses the pool now.
    ///
    /// # Errors
    /// Fails if a process uses the pool, if this cannot be found out, or if the pool cannot be
    /// deleted.
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
