//! Opens the files that a command reads; `-` means standard input.
//!
//! Some files are read several times, which a pipe, a FIFO or a device does not allow. So
//! [`Input::open`] copies the contents of a pipe, a FIFO or a device into an unnamed temporary
//! file.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Seek};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::builder::{PathBufValueParser, TypedValueParser};

use crate::failure::Failure;
use crate::terminal::progress;

const STANDARD_INPUT: &str = "standard input";

/// A file that can be read from its beginning any number of times.
#[derive(Clone, Debug)]
pub struct Input {
    name: String,
    file: Arc<File>,
    /// The offset at which the data begins.
    from: u64,
}

#[derive(Debug)]
pub struct Reading {
    file: Arc<File>,
    at: u64,
}

impl Input {
    pub fn open(path: &Path) -> Result<Self, Failure> {
        let name = name(path);
        let failed = |e: io::Error| Failure::new(format!("open {name}: {e}"));
        let mut file = once(path).map_err(failed)?;
        let found = file.metadata().map_err(failed)?;
        // If standard input is a regular file, another process may already have read its first
        // bytes.
        let from = if found.is_file() { file.stream_position().map_err(failed)? } else { 0 };
        if !found.is_file() {
            file = copy(file).map_err(|e| {
                let place = std::env::temp_dir();
                Failure::new(format!("copy {name} to {}: {e}", place.display()))
            })?;
        }
        Ok(Self { name, file: Arc::new(file), from })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the size of the data in bytes.
    pub fn bytes(&self) -> u64 {
        self.file.metadata().map_or(0, |found| found.len().saturating_sub(self.from))
    }

    pub fn read(&self) -> Reading {
        Reading { file: self.file.clone(), at: self.from }
    }
}

impl Read for Reading {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(buffer, self.at)?;
        self.at += read as u64;
        progress::read(read as u64);
        Ok(read)
    }
}

/// Returns the name of the file at `path` for messages.
pub fn name(path: &Path) -> String {
    if is_standard(path) { STANDARD_INPUT.to_owned() } else { path.display().to_string() }
}

pub fn is_standard(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Returns an error if several paths name standard input, because the second reader would find
/// nothing.
pub fn at_most_one_standard<'a>(paths: impl IntoIterator<Item = &'a Path>) -> Result<(), Failure> {
    match paths.into_iter().filter(|path| is_standard(path)).count() {
        0 | 1 => Ok(()),
        n => Err(Failure::new(format!("standard input (-) can be read only once, not {n} times"))),
    }
}

/// Opens the file at `path`, without a copy. The caller can read a pipe, a FIFO or a device only
/// once.
pub fn once(path: &Path) -> io::Result<File> {
    let file = match is_standard(path) {
        true => File::from(io::stdin().as_fd().try_clone_to_owned()?),
        false => File::open(path)?,
    };
    match file.metadata()?.is_dir() {
        // Users easily name a profile, which is a directory, where a trace is expected.
        true => Err(io::Error::new(ErrorKind::IsADirectory, trace::kind::of_directory(path))),
        false => Ok(file),
    }
}

fn copy(mut from: File) -> io::Result<File> {
    let place = std::env::temp_dir();
    let unnamed = File::options()
        .read(true)
        .write(true)
        .custom_flags(libc::O_TMPFILE | libc::O_EXCL)
        .mode(0o600)
        .open(&place);
    let mut file = match unnamed {
        Ok(file) => file,
        Err(_) => named(&place)?,
    };
    io::copy(&mut from, &mut file)?;
    Ok(file)
}

/// Opens an unnamed file on a file system without `O_TMPFILE`: creates a file and removes its name.
fn named(place: &Path) -> io::Result<File> {
    loop {
        let path = place.join(format!(".counterpoint-{:016x}.tmp", crate::whole::random()?));
        let file = File::options().read(true).write(true).create_new(true).mode(0o600).open(&path);
        match file {
            Ok(file) => {
                std::fs::remove_file(&path)?;
                return Ok(file);
            }
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
}

/// Returns the parser for arguments that name a profile. A profile cannot be `-`.
pub fn profile() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(|path| match is_standard(&path) {
        true => Err("a profile is a directory and cannot be standard input or output; for a \
                     directory of this name, use ./-"),
        false => Ok(path),
    })
}
