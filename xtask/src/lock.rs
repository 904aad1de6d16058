//! One xtask at a time in a shared folder: two that install into the same virtual environment
//! or `dist/` would leave halves of each.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;

use anyhow::{Context, Result};

/// Held until dropped; the kernel also releases it when the process dies.
pub struct Lock {
    _file: File,
}

impl Lock {
    /// Waits for the lock `name` below `target`. Not re-entrant: a chore releases its lock before
    /// it calls another chore that takes the same one.
    pub fn take(target: &Path, name: &str) -> Result<Self> {
        std::fs::create_dir_all(target).with_context(|| format!("create {}", target.display()))?;
        let path = target.join(format!("xtask-{name}.lock"));
        let file = File::create(&path).with_context(|| format!("create {}", path.display()))?;
        // SAFETY: flock takes a descriptor, which `file` keeps open across the call.
        if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX) } != 0 {
            return Err(std::io::Error::last_os_error())
                .with_context(|| format!("lock {}", path.display()));
        }
        Ok(Lock { _file: file })
    }
}
