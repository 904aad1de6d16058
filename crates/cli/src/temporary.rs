//! A temporary folder that is removed when its value is dropped.

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use crate::failure::Failure;

pub struct Temporary(PathBuf);

impl Temporary {
    /// Creates a folder that other users cannot read, in the directory for temporary files
    /// (`TMPDIR`, or else `/tmp`).
    pub fn new() -> Result<Self, Failure> {
        let wanted = std::env::temp_dir().join("counterpoint-XXXXXX");
        let failed = |e: &dyn std::fmt::Display| {
            Failure::new(format!("make a folder {}: {e}", wanted.display()))
        };
        let template = CString::new(wanted.as_os_str().as_bytes()).map_err(|e| failed(&e))?;
        let template = template.into_raw();
        // SAFETY: `template` is a NUL-terminated string from `into_raw`, and mkdtemp(3) only
        // replaces its X's, so the string that `from_raw` takes back has the same length.
        let (made, template) = unsafe { (libc::mkdtemp(template), CString::from_raw(template)) };
        if made.is_null() {
            return Err(failed(&io::Error::last_os_error()));
        }
        Ok(Self(std::ffi::OsString::from_vec(template.into_bytes()).into()))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
