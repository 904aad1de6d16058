//! Temporary directories for tests.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A new directory, which is removed with its contents when this value is dropped.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
}

impl Scratch {
    /// Creates a directory.
    ///
    /// # Panics
    /// Panics if the system's directory for temporary files is not writable.
    #[expect(clippy::new_without_default, reason = "it makes a directory")]
    pub fn new() -> Self {
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("cp-test-{}-{n}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).expect("the temporary directory is writable");
        Self { path }
    }

    /// Returns the path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path of the entry `name` in the directory.
    pub fn join(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}

/// The directories to remove when a process exits, each with the id of that process.
static AT_EXIT: Mutex<Vec<(u32, PathBuf)>> = Mutex::new(Vec::new());

unsafe extern "C" {
    safe fn atexit(function: extern "C" fn()) -> i32;
}

extern "C" fn remove_all() {
    // A forked child must not remove its parent's directories.
    let me = std::process::id();
    let Ok(all) = AT_EXIT.lock() else { return };
    for (_, path) in all.iter().filter(|(owner, _)| *owner == me) {
        remove(path);
    }
}

/// Removes a directory. For each profile in it, also removes the pool that the profile's manifest
/// names. A pool stays if the name of its directory does not start with `counterpoint-`.
fn remove(path: &Path) {
    for entry in std::fs::read_dir(path).into_iter().flatten().flatten() {
        let pool = profile::Manifest::read(&entry.path()).ok().and_then(|manifest| manifest.pool);
        let Some(directory) = pool.as_deref().and_then(Path::parent) else { continue };
        let name = directory.file_name().unwrap_or_default().as_encoded_bytes();
        if name.starts_with(b"counterpoint-") {
            let _ = std::fs::remove_dir_all(directory);
        }
    }
    let _ = std::fs::remove_dir_all(path);
}

impl Scratch {
    /// Also removes the directory when the process exits, for directories in statics, which are
    /// never dropped.
    pub fn until_exit(self) -> Self {
        if let Ok(mut all) = AT_EXIT.lock() {
            if all.is_empty() {
                atexit(remove_all);
            }
            all.push((std::process::id(), self.path.clone()));
        }
        self
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        remove(&self.path);
    }
}
