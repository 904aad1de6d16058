//! Moves the events of plugins into a profile whose recording is over.
//!
//! ```text
//!  convert ─► plugins.tmp/{processes,activities,tracks} ─► done.json ─► moved into the profile
//! ```
//!
//! A conversion first writes to a separate directory. The file that it writes last marks this
//! directory as complete. Then the conversion moves the contents of the directory into the profile.
//! After an interruption, the next conversion starts again or finishes the moving, so no event is
//! in the profile twice.
//!
//! Files are opened relative to the descriptor of the profile's directory, and links are not
//! followed. So a conversion changes nothing outside of the profile, even if somebody else made the
//! profile.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::{Duration, Instant};

use profile::safe_dir::Dir;
use profile::{Manifest, Profile};
use record::meta::PARTS_NAME;

use super::convert::{Converted, WRITTEN, is_file_of_events, write};
use crate::failure::Failure;

const STAGE_NAME: &str = "plugins.tmp";
/// This file is written last: the conversion is complete if it exists.
const DONE_NAME: &str = "done.json";
const MOST_DONE: u64 = 1 << 24;

/// Converts the events of processes that have ended. Returns `None` if there is nothing to do, if
/// the recording is not over, or if somebody else owns the profile or everybody can write to it.
/// The recording must be over because the conversion changes the manifest.
///
/// # Errors
/// Returns an error if the profile cannot be read or written.
pub fn convert(dir: &Path) -> Result<Option<Converted>, Failure> {
    let manifest = Manifest::read(dir).map_err(Failure::new)?;
    let root = Dir::open(dir).map_err(Failure::new)?;
    if manifest.pool.is_some() || !has_files(&root) || !is_own(&root) {
        return Ok(None);
    }
    let _lock = lock(&root)?;
    if let Some((_, done)) = interrupted(&root) {
        return move_into_profile(&root, done).map(Some).map_err(Failure::new);
    }
    staged(&root, write)
}

/// Adds to the profile the files that `write` writes into an empty directory. An interruption does
/// no harm, as for [`convert`].
///
/// # Errors
/// Returns an error if the recording is not over, if somebody else owns the profile or everybody
/// can write to it, or if reading or writing the profile fails.
pub fn add(
    root: &Dir,
    write: impl FnOnce(&Profile, &Dir) -> Result<Option<Converted>, Failure>,
) -> Result<Option<Converted>, Failure> {
    let name = root.path().display().to_string();
    if Manifest::read_in(root).map_err(Failure::new)?.pool.is_some() {
        return Err(Failure::new(format!("write {name}: the recording is not over"))
            .hint(format!("`counterpoint recover {name}` ends it")));
    }
    if !is_own(root) {
        return Err(Failure::new(format!("write {name}: only its owner may change it")));
    }
    let _lock = lock(root)?;
    if let Some((_, done)) = interrupted(root) {
        move_into_profile(root, done).map_err(Failure::new)?;
    }
    staged(root, write)
}

fn lock(root: &Dir) -> Result<ConversionLock, Failure> {
    ConversionLock::wait(root)
        .map_err(|e| Failure::new(format!("write {}: {e}", root.path().display())))
}

fn staged(
    root: &Dir,
    write: impl FnOnce(&Profile, &Dir) -> Result<Option<Converted>, Failure>,
) -> Result<Option<Converted>, Failure> {
    root.remove_all(STAGE_NAME).map_err(Failure::new)?;
    let profile = Profile::open_at(root).map_err(Failure::new)?;
    let stage = root.create_dir(STAGE_NAME).map_err(Failure::new)?;
    match write(&profile, &stage) {
        Ok(Some(done)) => {
            let text = serde_json::to_vec(&done).map_err(Failure::new)?;
            stage.replace(DONE_NAME, &text).map_err(Failure::new)?;
            move_into_profile(root, done).map(Some).map_err(Failure::new)
        }
        nothing => {
            let _ = root.remove_all(STAGE_NAME);
            nothing
        }
    }
}

/// Whether there is something to convert or to finish. Recordings of PyTorch's own profiler are
/// converted too, and any program may use PyTorch. So the parts of all processes are checked.
fn has_files(root: &Dir) -> bool {
    let names = |dir: &Dir| dir.names().unwrap_or_default().into_iter();
    let has_files = |parts: Dir| {
        names(&parts)
            .filter_map(|part| parts.dir(part).ok())
            .any(|part| names(&part).any(|name| name.to_str().is_some_and(is_file_of_events)))
    };
    root.dir(STAGE_NAME).is_ok() || root.dir(PARTS_NAME).is_ok_and(has_files)
}

/// Whether the directories that a conversion changes belong to this user, and not everybody can
/// write to them.
fn is_own(root: &Dir) -> bool {
    let user = profile::pools::user();
    let is_own = |dir: &Dir| {
        dir.stat().is_ok_and(|found| found.st_uid == user && found.st_mode & 0o002 == 0)
    };
    let all_are_own = |dir: &Dir| {
        is_own(dir)
            && WRITTEN.iter().all(|name| match dir.dir(name) {
                Ok(inside) => is_own(&inside),
                Err(e) => e.is_not_found(),
            })
    };
    all_are_own(root)
        && match root.dir(STAGE_NAME) {
            Ok(stage) => all_are_own(&stage),
            Err(e) => e.is_not_found(),
        }
}

/// A lock on the profile's directory, so that only one conversion runs at a time. When the process
/// ends, the operating system releases the lock.
struct ConversionLock {
    #[expect(dead_code, reason = "only held")]
    directory: File,
}

impl ConversionLock {
    /// Waits for the lock. The wait is limited, because anybody who may read the directory can
    /// lock it.
    fn wait(root: &Dir) -> io::Result<Self> {
        const PATIENCE: Duration = Duration::from_secs(10);
        let (directory, since) = (root.to_file()?, Instant::now());
        loop {
            // SAFETY: flock takes numbers only, and `directory` keeps its descriptor open.
            if unsafe { libc::flock(directory.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } == 0 {
                return Ok(Self { directory });
            }
            let error = io::Error::last_os_error();
            let is_busy = error.kind() == io::ErrorKind::WouldBlock;
            if !is_busy && error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
            if since.elapsed() >= PATIENCE {
                return Err(io::Error::other("another command has locked it"));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Returns the conversion that was interrupted while its files were being moved, if there is one.
pub(super) fn interrupted(root: &Dir) -> Option<(Dir, Converted)> {
    let stage = root.dir(STAGE_NAME).ok()?;
    let done = serde_json::from_slice(&stage.read(DONE_NAME, MOST_DONE).ok()?).ok()?;
    Some((stage, done))
}

fn move_into_profile(root: &Dir, done: Converted) -> profile::Result<Converted> {
    let stage = root.dir(STAGE_NAME)?;
    for name in WRITTEN {
        let from = match stage.dir(name) {
            Err(e) if e.is_not_found() => continue,
            from => from?,
        };
        let to = root.make_dir(name)?;
        for entry in from.names()? {
            from.move_to(entry, &to)?;
        }
    }
    let mut manifest = Manifest::read_in(root)?;
    if done.add_notes(&mut manifest) {
        manifest.write_in(root)?;
    }
    for (part, name) in done.files() {
        match root.dir(PARTS_NAME).and_then(|parts| parts.dir(part)) {
            Err(e) if e.is_not_found() => {}
            part => part?.remove_file(name)?,
        }
    }
    root.remove_all(STAGE_NAME)?;
    Ok(done)
}
