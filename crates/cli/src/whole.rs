//! A file that has its name once it is whole.
//!
//! Half a trace that looks like a whole one would be worse than none, and what was there before
//! would be lost for it. So what is written goes into a file beside it, `NAME.PID.tmp`, which takes
//! the name at the end and is removed when something fails. Written directly: what is no file
//! (pipes, devices), and where the directory takes no other file.

use std::ffi::OsString;
use std::fs::{self, File, Metadata};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// See the module's page.
#[derive(Debug)]
pub struct WholeFile {
    file: File,
    /// The file that is written, and the name that it gets.
    beside: Option<(PathBuf, PathBuf)>,
}

impl WholeFile {
    /// Starts a file that is to have this name.
    pub fn create(path: &Path) -> io::Result<Self> {
        let direct = || Ok(Self { file: File::create(path)?, beside: None });
        let (target, old) = match fs::metadata(path) {
            Ok(old) if !old.is_file() => return direct(),
            Ok(old) => {
                // It may not be written: that is to be said, not gone around.
                File::options().write(true).open(path)?;
                // A link goes on being one.
                (path.canonicalize()?, Some(old))
            }
            Err(_) if path.is_symlink() => return direct(),
            Err(_) => (path.to_owned(), None),
        };
        match open(&target, old) {
            Ok((file, temporary)) => Ok(Self { file, beside: Some((temporary, target)) }),
            // The error, if there still is one, is about the file itself.
            Err(_) => direct(),
        }
    }

    /// Gives the file its name.
    pub fn finish(mut self) -> io::Result<()> {
        self.file.flush()?;
        if let Some((temporary, target)) = &self.beside {
            fs::rename(temporary, target)?;
            self.beside = None;
        }
        Ok(())
    }
}

fn open(target: &Path, old: Option<Metadata>) -> io::Result<(File, PathBuf)> {
    let mut name = OsString::from(target.file_name().ok_or(io::ErrorKind::InvalidFilename)?);
    name.push(format!(".{}.tmp", std::process::id()));
    let temporary = target.with_file_name(name);
    let file = File::create_new(&temporary)?;
    let same_rights = old.map_or(Ok(()), |old| file.set_permissions(old.permissions()));
    match same_rights {
        Ok(()) => Ok((file, temporary)),
        Err(error) => {
            let _ = fs::remove_file(&temporary);
            Err(error)
        }
    }
}

impl Write for WholeFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for WholeFile {
    fn drop(&mut self) {
        if let Some((temporary, _)) = &self.beside {
            let _ = fs::remove_file(temporary);
        }
    }
}
