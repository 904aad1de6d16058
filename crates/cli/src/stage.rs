//! Temporary directories named `.counterpoint-….cpt.tmp`. A profile or dataset is made in such a
//! directory and then moved to its place.
//!
//! If a process is killed, its directory remains. Therefore each process locks its directory while
//! it uses the directory (with `flock`; the kernel releases the lock when the process ends). Before
//! a process creates a directory, it removes old ones of the same user in the same place: those
//! that no process has locked.
//!
//! Before a new directory is locked, another process may remove it. In this case the process that
//! created it creates another one.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::whole;

/// The beginning and the end of the directories' names. Between them are 16 hexadecimal digits.
const NAME: (&str, &str) = (".counterpoint-", ".cpt.tmp");
/// The number of attempts to create a directory if other processes remove it.
const TRIES: usize = 20;

/// A directory that is removed when this value is dropped, unless it has been renamed before.
pub struct Stage {
    path: PathBuf,
    /// The directory, which is locked as long as this file is open.
    _held: File,
}

impl Stage {
    /// Removes what killed processes have left in `directory`, and creates a temporary directory
    /// there.
    ///
    /// # Errors
    /// Returns an error if the temporary directory cannot be created.
    pub fn create(directory: &Path) -> io::Result<Self> {
        remove_left(directory);
        for _ in 0..TRIES {
            let (begin, end) = NAME;
            let path = directory.join(format!("{begin}{:016x}{end}", whole::random()?));
            fs::DirBuilder::new().mode(0o700).create(&path)?;
            if let Some(held) = hold(&path) {
                return Ok(Self { path, _held: held });
            }
        }
        Err(io::Error::new(io::ErrorKind::ResourceBusy, "temporary directories disappear"))
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // If the directory has been renamed, there is nothing to remove at this path.
        let _ = fs::remove_dir_all(&self.path);
    }
}

fn hold(path: &Path) -> Option<File> {
    let flags = libc::O_DIRECTORY | libc::O_NOFOLLOW;
    let directory = File::options().read(true).custom_flags(flags).open(path).ok()?;
    // SAFETY: flock takes numbers only, and `directory` keeps its descriptor open; `geteuid` has no
    // preconditions.
    let (locked, user) = unsafe {
        (libc::flock(directory.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) == 0, libc::geteuid())
    };
    let (own, there) = (directory.metadata().ok()?, fs::symlink_metadata(path).ok()?);
    let same = (own.dev(), own.ino()) == (there.dev(), there.ino());
    (locked && same && own.uid() == user).then_some(directory)
}

/// Removes the directories that killed processes have left. Those that cannot be removed are kept.
fn remove_left(directory: &Path) {
    let place = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
    for entry in fs::read_dir(place).into_iter().flatten().flatten() {
        if entry.file_name().to_str().is_some_and(is_ours)
            && let Some(_held) = hold(&entry.path())
        {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

fn is_ours(name: &str) -> bool {
    let digits = name.strip_prefix(NAME.0).and_then(|rest| rest.strip_suffix(NAME.1));
    digits.is_some_and(|digits| digits.len() == 16 && digits.bytes().all(|b| b.is_ascii_hexdigit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(directory: &Path) -> Vec<String> {
        let all = fs::read_dir(directory).unwrap();
        let mut names: Vec<String> =
            all.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn what_nobody_holds_is_removed_and_nothing_else() {
        let scratch = testkit::Scratch::new();
        let at = scratch.path();
        let living = Stage::create(at).unwrap();
        fs::write(living.path().join("file"), b"x").unwrap();
        let dead = at.join(".counterpoint-00000000000000aa.cpt.tmp");
        fs::create_dir_all(dead.join("merged/1")).unwrap();
        fs::write(dead.join("merged/1/file"), b"x").unwrap();
        // These must be kept: names that a stage never has, a file, and a link.
        let others = [
            ".counterpoint-aa.cpt.tmp",
            ".counterpoint-00000000000000aa.tmp",
            ".counterpoint-000000000000000g.cpt.tmp",
        ];
        others.iter().for_each(|name| fs::create_dir(at.join(name)).unwrap());
        fs::write(at.join(".counterpoint-00000000000000ab.cpt.tmp"), b"x").unwrap();
        let link = at.join(".counterpoint-00000000000000ac.cpt.tmp");
        std::os::unix::fs::symlink(at.join(others[0]), link).unwrap();
        let before = names(at).len();
        let second = Stage::create(at).unwrap();
        assert!(!dead.exists());
        assert_eq!(names(at).len(), before);
        assert!(living.path().join("file").exists() && second.path().is_dir());
        drop((living, second));
        assert_eq!(names(at).len(), before - 2);
    }
}
