//! Lets only one process at a time write the parts of a rank.
//!
//! An export reads the existing part, computes for a while, and replaces it. Two exports at the
//! same time could continue the same old part. The part that is written last would replace the
//! other, even if only the other contains the end of the recording. So an export holds the lock
//! from reading to replacing.
//!
//! The lock is an `flock` on the directory of the rank's parts. It needs no file of its own, and
//! the kernel releases it when the process ends. NFS has no locks on directories, so exports do not
//! wait for each other there. On NFS, a second check of the part, right before it is replaced, has
//! to suffice.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::Path;

use crate::error::{Error, Result};

/// The lock for the parts of a rank, until the value is dropped; not held if the file system cannot
/// lock directories.
pub(crate) struct RankLock {
    directory: File,
    is_held: bool,
}

impl RankLock {
    /// Waits until no other process holds the lock on this directory, and takes it. Creates the
    /// directory if necessary.
    ///
    /// # Errors
    /// Fails if the directory cannot be created or opened. A file system without locks on
    /// directories is not an error.
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

    /// Returns whether the lock is held, so that other processes have to wait. While it is held, no
    /// other export writes files of this rank, so files that no part lists are left over from
    /// killed processes.
    pub fn is_held(&self) -> bool {
        self.is_held
    }
}

impl Drop for RankLock {
    fn drop(&mut self) {
        // If a child process has inherited the open file, closing it here does not release the
        // lock.
        let _ = self.directory.unlock();
    }
}
