//! Lets only one process at a time write the parts of a rank.
//!
//! An export reads the existing part, computes for a while, and replaces it. Two exports at the
//! same time could each continue the same old part. The part of the export that ends last would
//! stay, although the other export may contain the end of the recording. So an export locks before
//! it reads the part, and unlocks after it has replaced the part.
//!
//! The lock is an `flock` on the directory of the rank's parts. The lock needs no file of its own,
//! and the kernel releases it when the process that holds it ends. NFS has no locks on directories.
//! On NFS, exports do not wait for each other. There, only a second check of the part, right before
//! it is replaced, prevents an export of an earlier state from replacing a later one.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::Path;

use crate::error::{Error, Result};

/// The right to write the parts of a rank, which ends when the value is dropped.
pub(crate) struct RankLock {
    directory: File,
    is_held: bool,
}

impl RankLock {
    /// Waits until no other process writes parts to this directory, which is created if necessary.
    ///
    /// # Errors
    /// Fails if the directory cannot be created or opened. A file system without such locks is not
    /// an error.
    pub fn wait(directory: &Path) -> Result<Self> {
        fs::create_dir_all(directory).map_err(Error::io("make directory", directory))?;
        let opened = File::open(directory).map_err(Error::io("open", directory))?;
        let is_held = loop {
            match opened.lock() {
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                done => break done.is_ok(),
            }
        };
        Ok(Self { directory: opened, is_held })
    }

    /// Whether the directory is really locked, so that other processes wait. Then files that no
    /// part lists are left over from killed processes.
    pub fn is_held(&self) -> bool {
        self.is_held
    }
}

impl Drop for RankLock {
    fn drop(&mut self) {
        // Closing the file would also release the lock, unless a child process had inherited the
        // file at this moment.
        let _ = self.directory.unlock();
    }
}
