//! Prepares the place of a profile: its path, the lock for creating it, and the removal of an
//! earlier profile from the same path.

use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use profile::collect::{Closing, collect, is_over};
use profile::manifest::{Manifest, Origin, State};
use profile::pools::user;
use profile::safe_dir::Dir;
use profile::series::{MOST_ROUNDS, SERIES_NAME, Series};
use profile::unfinished;

use crate::failure::Failure;

/// Returns `output` as an absolute, normalized path: `x.cpt/` becomes `x.cpt`. If a symbolic link
/// is at that path, returns the path of its target.
pub fn place(output: &Path) -> Result<PathBuf, Failure> {
    let absolute = std::path::absolute(output)
        .map_err(|e| Failure::new(format!("output {}: {e}", output.display())))?;
    let directory: PathBuf = absolute.components().collect();
    // If `directory` is a symbolic link, the link is kept, and the profile replaces its target.
    match fs::symlink_metadata(&directory) {
        // Anybody can create a link in a directory such as /tmp, so a link of another user may lead
        // to a wrong place.
        Ok(found) if found.is_symlink() && ![user(), 0].contains(&found.uid()) => {
            Err(Failure::new(format!(
                "output {}: is a link that belongs to another user",
                directory.display()
            ))
            .hint("choose another place with -o DIR"))
        }
        Ok(found) if found.is_symlink() => fs::canonicalize(&directory)
            .map_err(|e| Failure::new(format!("output {}: {e}", directory.display()))),
        _ => Ok(directory),
    }
}

/// Makes a directory that is accessible to its owner only.
pub fn make_directory(path: &Path) -> Result<(), Failure> {
    fs::DirBuilder::new()
        .mode(0o700)
        .create(path)
        .map_err(|e| Failure::new(format!("create {}: {e}", path.display())))
}

/// The lock that a command holds while it creates a profile's directory and writes the manifest
/// there. Without the lock, another command could remove the directory while it is still empty.
///
/// The parent directory itself is locked (`flock`), so there is no lock file. If the file system
/// does not support such locks, or the lock is held for too long, the command continues without it.
pub struct DirectoryLock(Option<fs::File>);

impl DirectoryLock {
    pub fn wait(directory: &Path) -> Self {
        const PATIENCE: Duration = Duration::from_secs(2);
        let around = match directory.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let Ok(around) = fs::File::open(around) else { return Self(None) };
        let since = std::time::Instant::now();
        // SAFETY: flock takes numbers only, and `around` keeps its descriptor open.
        while unsafe { libc::flock(around.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } != 0 {
            let held = std::io::Error::last_os_error().kind() == std::io::ErrorKind::WouldBlock;
            if !held || since.elapsed() > PATIENCE {
                return Self(None);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Self(Some(around))
    }
}

/// Moves an earlier profile out of the way, as perf does with its data files. Also removes what is
/// left of a command that was killed before it wrote the manifest. `lock` must be the lock for this
/// directory.
pub fn make_way(directory: &Path, lock: &DirectoryLock) -> Result<(), Failure> {
    let Ok(found) = fs::symlink_metadata(directory) else { return Ok(()) };
    let refuse = |why: &str| {
        Failure::new(format!("output {}: {why}", directory.display()))
            .hint("choose another place with -o DIR")
    };
    if !found.is_dir() {
        return Err(refuse("already exists and is not a Counterpoint profile"));
    }
    if fs::read_dir(directory).is_ok_and(|mut entries| entries.next().is_none()) {
        return fs::remove_dir(directory).map_err(|e| refuse(&e.to_string()));
    }
    if let Some(series) = series_at(directory) {
        if is_running(directory) {
            return Err(refuse("a series is still being recorded into it"));
        }
        if series.iter().any(|(_, run)| run.origin != Origin::Env && !is_over(run)) {
            return Err(refuse("a program is still recording into it"));
        }
        // Records of an interrupted series may still be in shared memory (in pools), so they are
        // first moved into their profiles.
        for (path, _) in series.iter().filter(|(_, run)| run.state != State::Finished) {
            collect(path, Closing::Now).map_err(Failure::new)?;
        }
        return move_away(directory, &found, &refuse);
    }
    let Ok(manifest) = Manifest::read(directory) else {
        // Without the lock, the directory is not removed, because another command may be about to
        // write its manifest there.
        if lock.0.is_some() && unfinished::remove(directory).map_err(Failure::new)? {
            return Ok(());
        }
        return Err(refuse("already exists and is not a Counterpoint profile"));
    };
    if manifest.origin != Origin::Env && !is_over(&manifest) {
        return Err(Failure::new(format!(
            "output {}: a program is still recording into it",
            directory.display()
        ))
        .hint("wait until the program has ended, or choose another place with -o DIR"));
    }
    // Records of an interrupted recording may still be in shared memory (in the pool), so they are
    // first moved into the profile.
    collect(directory, Closing::Now).map_err(Failure::new)?;
    move_away(directory, &found, &refuse)
}

/// This lock shows other commands that the series is being recorded. The kernel releases it when
/// the process ends.
pub struct Running {
    _locked: Option<fs::File>,
}

impl Running {
    /// Locks a series that the caller has just created. If the file system does not support such
    /// locks, the series is recorded without one.
    pub fn lock(directory: &Path) -> Self {
        let file = fs::File::open(directory.join(SERIES_NAME)).ok();
        // SAFETY: flock takes numbers only, and `file` keeps its descriptor open.
        let lock = |file: &fs::File| unsafe {
            libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) == 0
        };
        Self { _locked: file.filter(lock) }
    }
}

fn is_running(directory: &Path) -> bool {
    let Ok(file) = fs::File::open(directory.join(SERIES_NAME)) else { return false };
    // SAFETY: flock takes numbers only, and `file` keeps its descriptor open.
    let held = unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } != 0;
    held && std::io::Error::last_os_error().kind() == std::io::ErrorKind::WouldBlock
}

/// Returns the runs of a series whose manifests can be read; `None` if the directory is not a
/// series.
fn series_at(directory: &Path) -> Option<Vec<(PathBuf, Manifest)>> {
    let series = Series::read_in(&Dir::open(directory).ok()?).ok()?;
    let rounds = 1..=series.rounds.min(MOST_ROUNDS);
    let runs = rounds.flat_map(|round| series.sides().iter().map(move |side| (round, *side)));
    let paths = runs.map(|(round, side)| Series::run_at(directory, round, side));
    let read = |path: PathBuf| Manifest::read(&path).ok().map(|manifest| (path, manifest));
    Some(paths.filter_map(read).collect())
}

/// Moves the directory to `DIR.old`. An older profile or series at that path is removed.
fn move_away(
    directory: &Path,
    found: &fs::Metadata,
    refuse: &impl Fn(&str) -> Failure,
) -> Result<(), Failure> {
    let mut old = directory.as_os_str().to_owned();
    old.push(".old");
    let old = PathBuf::from(old);
    if fs::symlink_metadata(&old).is_ok_and(|m| m.dev() == found.dev()) {
        if Manifest::read(&old).is_err() && series_at(&old).is_none() {
            return Err(refuse(&format!(
                "cannot be moved to {}, which is not a Counterpoint profile",
                old.display()
            )));
        }
        if is_running(&old) {
            return Err(refuse(&format!(
                "cannot be moved to {}, where a series is being recorded",
                old.display()
            )));
        }
        fs::remove_dir_all(&old).map_err(|e| refuse(&format!("remove {}: {e}", old.display())))?;
    }
    fs::rename(directory, &old).map_err(|e| refuse(&format!("move to {}: {e}", old.display())))
}
