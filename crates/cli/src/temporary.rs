//! A folder for files between two steps, which is removed when it is dropped.

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use crate::failure::Failure;

/// The folder.
pub struct Temporary(PathBuf);

impl Temporary {
    /// Makes one that nobody else can read, in `TMPDIR`.
    pub fn new() -> Result<Self, Failure> {
        let wanted = std::env::temp_dir().join("counterpoint-XXXXXX");
        let failed = |e: &dyn std::fmt::Display| {
            Failure::new(format!("make a folder {}: {e}", wanted.display()))
        };
        let template = CString::new(wanted.as_os_str().as_bytes()).map_err(|e| failed(&e))?;
        let template = template.into_raw();
        // SAFETY: `template` is a string with a NUL from `into_raw`, and mkdtemp(3) only replaces its X's.
        let (made, template) = unsafe { (libc::mkdtemp(template), CString::from_raw(template)) };
        if made.is_null() {
            return Err(failed(&io::Error::last_os_error()));
        }
        Ok(Self(std::ffi::OsString::from_vec(template.into_bytes()).into()))
    }

    /// Where the folder is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
