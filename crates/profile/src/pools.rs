//! Decides where pools are made, and which of them belong to a profile.
//!
//! ```text
//!  /dev/shm/counterpoint-UID-PID-TIME/pool            (or /run/user/UID, $XDG_RUNTIME_DIR)
//!  x.cpt/pool/pool                                     where there is no memory file system
//! ```
//!
//! A manifest names its pool by a path, and anybody may have written the manifest. Therefore the
//! path is only accepted if it is one of those above. The directory and the file in it must belong
//! to the profile's user and contain no links, and the file must be a pool with the profile's id.
//! Then it is read. Data moves out of it, and it is deleted, only if it belongs to the caller and
//! says that this very directory is its profile. A copy of a profile has the same id, and leaves
//! the pool alone.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use record::PageHeader;
use record::pool::{Owner, PoolFile, ProfileId};
use rustix::fs::AtFlags;

use crate::beneath::Dir;
use crate::error::{ErrorKind, Result};
use crate::live::ProcessId;
use crate::manifest::Manifest;

/// File name of every pool in its directory.
pub const POOL_NAME: &str = "pool";
/// The directory in which the system has everybody's shared memory.
pub const SHARED_MEMORY: &str = "/dev/shm";
/// Common prefix of the names of pool directories.
const PREFIX: &str = "counterpoint-";
/// Other files that `run` puts next to a pool: links to the library and to the Python package.
pub(crate) const LINKS: [&str; 2] = ["libcounterpoint.so", "counterpoint"];

/// Returns the user who owns the files that the caller creates.
pub fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Returns the directories in which pools of this user are made, best first. Each may be absent.
pub fn places(user: u32) -> Vec<PathBuf> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let mut places = vec![PathBuf::from(SHARED_MEMORY)];
    places.extend(runtime.filter(|path| path.is_absolute() && user == self::user()));
    places.push(PathBuf::from(format!("/run/user/{user}")));
    places
}

/// Returns a new name for a pool directory of the caller, for use in one of [`places`].
pub fn directory_name() -> String {
    let time = record::clock::monotonic_ns();
    format!("{PREFIX}{}-{}-{time:x}", user(), std::process::id())
}

/// Describes the profile in `dir` for the header of its pool.
///
/// # Errors
/// Fails if the directory cannot be opened.
pub fn owner(dir: &Path, id: ProfileId) -> Result<Owner> {
    let directory = Dir::open(dir)?;
    let of = || Owner::of(&directory.to_file()?, &dir.to_string_lossy(), id);
    of().map_err(crate::Error::on("open", dir))
}

/// A pool and its location.
#[derive(Debug)]
pub(crate) struct Found {
    pub file: PoolFile,
    /// Whether it belongs to this profile and not to one that this is a copy of.
    pub is_of_profile: bool,
    /// Whether it belongs to the caller.
    pub is_own: bool,
    place: Place,
}

/// The directory of a pool, and its name in the directory around it.
#[derive(Debug)]
pub(crate) struct Place {
    around: Dir,
    name: OsString,
    inside: Dir,
}

/// Why a profile has no usable pool.
#[derive(Debug)]
pub(crate) enum NoPool {
    /// Nothing exists at that path.
    Gone,
    /// The file there is not this profile's pool.
    Refused(&'static str),
    /// It could not be read.
    Unreadable(io::Error),
}

impl From<crate::Error> for NoPool {
    fn from(error: crate::Error) -> Self {
        match error.into_kind() {
            ErrorKind::Io(e) if e.kind() == io::ErrorKind::NotFound => Self::Gone,
            ErrorKind::Io(e) => Self::Unreadable(e),
            ErrorKind::Refused(why) => Self::Refused(why),
            _ => Self::Refused("it is not a pool"),
        }
    }
}

/// Splits a path that has the form of our shared paths into the shared directory and the name in
/// it.
fn shared(path: &Path, user: u32) -> Option<(PathBuf, &OsStr)> {
    let directory = path.parent().filter(|_| path.file_name() == Some(OsStr::new(POOL_NAME)))?;
    let (around, name) = (directory.parent()?, directory.file_name()?);
    let known = places(user).into_iter().find(|place| place == around)?;
    is_name_of(name, user).then_some((known, name))
}

fn is_name_of(name: &OsStr, user: u32) -> bool {
    let rest = name.to_str().and_then(|name| name.strip_prefix(&format!("{PREFIX}{user}-")));
    rest.is_some_and(|rest| !rest.is_empty())
}

/// Finds the pool that the manifest names.
pub(crate) fn find(root: &Dir, manifest: &Manifest) -> Result<Found, NoPool> {
    let Some(path) = &manifest.pool else { return Err(NoPool::Gone) };
    let profile = root.stat()?;
    let id: ProfileId = manifest.id.parse().unwrap_or_default();
    // A pool made by root belongs to root, wherever the profile is, so either user may have made
    // it.
    let users = [profile.st_uid, user()];
    let outside = users.iter().find_map(|user| shared(path, *user));
    let is_inside = outside.is_none();
    let place = match outside {
        Some((around, name)) => {
            let around = Dir::open(&around)?;
            Place { inside: around.dir(name)?, around, name: name.to_owned() }
        }
        // The profile may have been moved since; the pool has moved with it.
        None => match root.dir(POOL_NAME) {
            Ok(inside) => Place { inside, around: root.clone(), name: POOL_NAME.into() },
            Err(e) if e.is_not_found() && path.ends_with("pool/pool") => return Err(NoPool::Gone),
            Err(e) if e.is_not_found() => {
                return Err(NoPool::Refused("it is not in a place where pools are made"));
            }
            Err(e) => return Err(e.into()),
        },
    };
    let file = place.inside.file(POOL_NAME)?;
    let found = rustix::fs::fstat(&file).map_err(|e| NoPool::Unreadable(e.into()))?;
    let directory = place.inside.stat()?;
    let file = match PoolFile::of(file) {
        Err(e) if e.kind() == io::ErrorKind::InvalidData => {
            return Err(NoPool::Refused("it is not a recorder pool of this version"));
        }
        other => other.map_err(NoPool::Unreadable)?,
    };
    if !id.is_some() || file.owner().id != id {
        return Err(NoPool::Refused("it belongs to another profile"));
    }
    let owner = file.owner();
    // A network file system may show the caller's own profile as another user's. The pool's header
    // then contains the same user.
    if found.st_uid != directory.st_uid || !users.contains(&found.st_uid) {
        return Err(NoPool::Refused("it belongs to another user"));
    }
    let is_own = found.st_uid == user() && found.st_nlink == 1;
    let is_of_profile = match is_inside {
        true => profile.st_uid == user(),
        false => owner.is(profile.st_dev, profile.st_ino, profile.st_uid),
    };
    Ok(Found { file, is_of_profile, is_own, place })
}

impl Found {
    /// Returns why its data may not move into the profile and it may not be deleted; `None` if both
    /// are allowed.
    pub fn refusal(&self) -> Option<&'static str> {
        if !self.is_own {
            return Some("it belongs to another user");
        }
        (!self.is_of_profile).then_some("it belongs to the profile that this one is a copy of")
    }

    /// Returns the pool and its location, which is needed to delete it.
    pub fn into_parts(self) -> (PoolFile, Place) {
        (self.file, self.place)
    }
}

impl Place {
    /// Deletes the pool and its directory.
    pub fn remove(&self) -> io::Result<()> {
        match self.inside.remove(POOL_NAME, AtFlags::empty()) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        for link in LINKS {
            let found = self.inside.look(link);
            if found.is_ok_and(|f| rustix::fs::FileType::from_raw_mode(f.st_mode).is_symlink()) {
                let _ = self.inside.remove(link, AtFlags::empty());
            }
        }
        // This fails, as it should, if the directory contains anything else.
        let _ = self.around.remove(&self.name, AtFlags::REMOVEDIR);
        Ok(())
    }
}

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
