//! Lets only one xtask process at a time work in a shared folder. Two processes that install into
//! the same virtual environment or `dist/` at the same time would leave a mixture of files.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;

use anyhow::{Context, Result};

/// The lock is held until this value is dropped. The kernel also releases it when the process dies.
pub struct Lock {
    _file: File,
}

impl Lock {
    /// Waits until this process holds the lock on the file `xtask-NAME.lock` in the folder
    /// `target`. The lock is not re-entrant: release it before you call another function that takes
    /// the same lock.
    pub fn take(target: &Path, name: &str) -> Result<Self> {
        std::fs::create_dir_all(target).with_context(|| format!("create {}", target.display()))?;
        let path = target.join(format!("xtask-{name}.lock"));
        let file = File::create(&path).with_context(|| format!("create {}", path.display()))?;
        // SAFETY: `flock` takes a descriptor, which `file` keeps open during the call.
        if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX) } != 0 {
            return Err(std::io::Error::last_os_error())
                .with_context(|| format!("lock {}", path.display()));
        }
        Ok(Lock { _file: file })
    }
}
