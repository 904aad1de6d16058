//! Decides where pools (the files to which the threads of a run write events) are made, and which
//! of the pools belong to a profile.
//!
//! ```text
//!  /dev/shm/counterpoint-UID-PID-TIME/pool            (or /run/user/UID, $XDG_RUNTIME_DIR)
//!  x.cpt/pool/pool                                     where there is no memory file system
//! ```
//!
//! A manifest contains the path of a pool, but anybody may have written the manifest. So a pool
//! outside of the profile is accepted only if its path has the first form. Otherwise, only
//! `pool/pool` in the profile's directory is accepted. The pool's directory and file must not be
//! links, and must belong to the caller or to the owner of the profile's directory. The file must
//! be a pool with the profile's id. Only if all this holds is the pool read.
//!
//! There are more conditions for moving the pool's data to the profile and deleting the pool. The
//! pool must belong to the caller and have no second name (hard link). It must be inside of a
//! profile that belongs to the caller, or its header must name the profile's directory. So
//! collecting a copy of a profile does not change the original's pool, although the copy has the
//! same id.

mod orphans;

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};

use record::pool::{Owner, PoolFile, ProfileId};
use rustix::fs::AtFlags;

use crate::error::{ErrorKind, Result};
use crate::manifest::Manifest;
use crate::passes;
use crate::safe_dir::Dir;

pub use orphans::{Lost, Orphan, orphans};

/// File name of a pool in its directory.
pub const POOL_NAME: &str = "pool";
/// The system's directory for shared memory.
pub const SHARED_MEMORY: &str = "/dev/shm";
/// The beginning of the names of pool directories.
const PREFIX: &str = "counterpoint-";
/// The names of the links next to a pool: to the library and to the Python package.
pub(crate) const LINKS: [&str; 2] = ["libcounterpoint.so", "counterpoint"];

/// Returns the id of the user who owns the files that this process creates.
pub fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Returns the directories for pools of this user, the best one first. Some may not exist.
pub fn places(user: u32) -> Vec<PathBuf> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let mut places = vec![PathBuf::from(SHARED_MEMORY)];
    places.extend(runtime.filter(|path| path.is_absolute() && user == self::user()));
    places.push(PathBuf::from(format!("/run/user/{user}")));
    places
}

/// Returns a new name for a pool directory in one of [`places`].
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

/// Opens a directory if its location, its name and its owner are those of a pool directory of the
/// caller.
pub fn own_directory(path: &Path) -> Option<Dir> {
    let pool = path.join(POOL_NAME);
    let (around, name) = shared(&pool, user())?;
    let directory = Dir::open(&around).ok()?.dir(name).ok()?;
    directory.stat().is_ok_and(|found| found.st_uid == user()).then_some(directory)
}

/// Returns the directories in [`places`] whose names are those of pool directories of the caller.
pub fn own_directories() -> Vec<PathBuf> {
    let around = places(user()).into_iter().filter_map(|place| Dir::open(&place).ok());
    let in_place = |around: Dir| {
        let names = around.names().unwrap_or_default().into_iter();
        names.filter(|name| is_name_of(name, user())).map(move |name| around.path_of(name))
    };
    around.flat_map(in_place).collect()
}

/// Returns the directories of the pools in the manifests of a profile and its passes.
pub fn named_directories(root: &Dir) -> Result<Vec<PathBuf>> {
    let manifest = Manifest::read_in(root)?;
    let passes = (1..=manifest.passes).map_while(|number| passes::open_dir(root, number).ok());
    let passes: Vec<_> = passes.filter_map(|pass| Manifest::read_in(&pass).ok()).collect();
    let named = std::iter::once(&manifest).chain(&passes).filter_map(|one| one.pool.as_ref());
    Ok(named.filter_map(|pool| Some(pool.parent()?.to_owned())).collect())
}

#[derive(Debug)]
pub(crate) struct Found {
    pub file: PoolFile,
    /// Whether the pool belongs to this profile, and not to another profile that this one is a copy
    /// of.
    pub is_of_profile: bool,
    pub is_own: bool,
    place: Place,
}

/// A pool's directory (`inside`), its name, and the directory that contains it (`around`).
#[derive(Debug)]
pub(crate) struct Place {
    around: Dir,
    name: OsString,
    inside: Dir,
}

#[derive(Debug)]
pub(crate) enum NoPool {
    /// The manifest names no pool, or the pool does not exist.
    Gone,
    /// The file is not accepted as this profile's pool; the text says why.
    Refused(&'static str),
    /// The pool could not be read.
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

/// Splits the path of a pool into one of the user's [`places`] and the name of the pool's directory
/// there. Returns `None` if the path does not have this form.
fn shared(path: &Path, user: u32) -> Option<(PathBuf, &OsStr)> {
    let directory = path.parent().filter(|_| path.file_name() == Some(OsStr::new(POOL_NAME)))?;
    let (around, name) = (directory.parent()?, directory.file_name()?);
    let known = places(user).into_iter().find(|place| place == around)?;
    is_name_of(name, user).then_some((known, name))
}

/// Returns whether the name has the form of a [`directory_name`], of any user.
fn is_given_name(name: &OsStr) -> bool {
    let mut parts =
        name.to_str().and_then(|name| name.strip_prefix(PREFIX)).unwrap_or("").split('-');
    let decimal = |part: &str| part.parse::<u32>().is_ok();
    parts.next().is_some_and(decimal)
        && parts.next().is_some_and(decimal)
        && parts.next().is_some_and(|time| u64::from_str_radix(time, 16).is_ok())
        && parts.next().is_none()
}

/// Returns whether a directory with this name may contain a pool of this user.
fn is_name_of(name: &OsStr, user: u32) -> bool {
    let rest = name.to_str().and_then(|name| name.strip_prefix(&format!("{PREFIX}{user}-")));
    rest.is_some_and(|rest| !rest.is_empty())
}

/// Finds the pool that the manifest names.
pub(crate) fn find(root: &Dir, manifest: &Manifest) -> Result<Found, NoPool> {
    let Some(path) = &manifest.pool else { return Err(NoPool::Gone) };
    let profile = root.stat()?;
    let id: ProfileId = manifest.id.parse().unwrap_or_default();
    // The pool may belong to the caller instead of the profile's owner: if root recorded, it
    // belongs to root, whoever owns the profile's directory.
    let users = [profile.st_uid, user()];
    let outside = users.iter().find_map(|user| shared(path, *user));
    let is_inside = outside.is_none();
    let place = match outside {
        Some((around, name)) => {
            let around = Dir::open(&around)?;
            Place { inside: around.dir(name)?, around, name: name.to_owned() }
        }
        // Else the pool must be inside of the profile. The path in the manifest is not opened,
        // because the profile may have been moved with its pool.
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
    // On a network file system, the caller's own profile may seem to belong to another user, so a
    // pool of the caller is accepted, too. The pool's header names the owner of the profile's
    // directory, as the file system reported it, so this user is wrong in the same way.
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
    /// Returns why the caller may neither move the pool's data to the profile nor delete the pool;
    /// `None` if both are allowed.
    pub fn refusal(&self) -> Option<&'static str> {
        if !self.is_own {
            return Some("it belongs to another user");
        }
        (!self.is_of_profile).then_some("it belongs to the profile that this one is a copy of")
    }

    /// Returns the pool, and its location for [`Place::remove`].
    pub fn into_parts(self) -> (PoolFile, Place) {
        (self.file, self.place)
    }
}

impl Place {
    /// Deletes the pool, and its directory if nothing else is in it. The links are deleted before
    /// the pool. So if the deletion is interrupted after the pool was deleted, the directory is
    /// empty.
    pub fn remove(&self) -> io::Result<()> {
        for link in LINKS {
            let found = self.inside.look(link);
            if found.is_ok_and(|f| rustix::fs::FileType::from_raw_mode(f.st_mode).is_symlink()) {
                let _ = self.inside.remove(link, AtFlags::empty());
            }
        }
        match self.inside.remove(POOL_NAME, AtFlags::empty()) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        // The removal fails if the directory contains anything else.
        let _ = self.remove_directory();
        Ok(())
    }

    /// Deletes the directory, which must be empty.
    pub fn remove_directory(&self) -> io::Result<()> {
        self.around.remove(&self.name, AtFlags::REMOVEDIR)
    }
}
