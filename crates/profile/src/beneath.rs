//! Accesses files below a directory that somebody else may have made. They are opened from the
//! directory's descriptor, one name at a time, and never through a link.
//!
//! A profile that was received by mail may contain anything in place of its files: links to files
//! of the reader, pipes to which nobody writes, devices that never end. Every name is therefore
//! checked before it is opened and must be a plain file (or a directory). It is opened without
//! following links and without waiting, and checked again once it is open, in case somebody has
//! changed it in between. A refusal is an [`ErrorKind::Refused`].
//!
//! Writing has two more rules. A file that is appended to must have no other name, because a hard
//! link would lead out of the directory. A file that is replaced is first written under a new,
//! random name.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use record::pool::ProfileId;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::error::{Error, ErrorKind, Result};

/// An open directory.
#[derive(Clone, Debug)]
pub struct Dir {
    fd: Arc<OwnedFd>,
    path: PathBuf,
}

/// Two directories are equal if they were reached by the same path.
impl PartialEq for Dir {
    fn eq(&self, other: &Self) -> bool {
        self.path == other.path
    }
}

pub(crate) const OPEN: OFlags = OFlags::CLOEXEC.union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK);

impl Dir {
    /// Opens a directory that a person has named; links in `path` are followed.
    ///
    /// # Errors
    /// Fails if it does not exist, is not a directory, or may not be read.
    pub fn open(path: &Path) -> Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(CWD, path, flags, Mode::empty());
        let fd = fd.map_err(|e| Error::new("open", path, io::Error::from(e)))?;
        Ok(Self { fd: Arc::new(fd), path: path.to_owned() })
    }

    /// Returns the path by which it was reached, for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path of an entry, for messages.
    pub fn path_of(&self, name: impl AsRef<OsStr>) -> PathBuf {
        self.path.join(name.as_ref())
    }

    /// Returns the directory's own metadata.
    ///
    /// # Errors
    /// Returns the error of `fstat`.
    pub fn stat(&self) -> Result<Stat> {
        rustix::fs::fstat(&*self.fd).map_err(|e| self.error("read", "", e))
    }

    /// Returns its descriptor, for calls that must not allocate.
    pub(crate) fn descriptor(&self) -> &OwnedFd {
        &self.fd
    }

    /// Returns a second descriptor of the directory.
    ///
    /// # Errors
    /// Fails if there are no more descriptors.
    pub fn to_file(&self) -> io::Result<File> {
        Ok(File::from(self.fd.try_clone()?))
    }

    /// Opens a directory in it.
    ///
    /// # Errors
    /// Fails if it does not exist, or with [`ErrorKind::Refused`] if it is something else.
    pub fn dir(&self, name: impl AsRef<OsStr>) -> Result<Self> {
        let name = name.as_ref();
        let found = self.look(name)?;
        if FileType::from_raw_mode(found.st_mode) != FileType::Directory {
            return Err(self.refuse(name, kind_of(&found)));
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OPEN;
        let fd = rustix::fs::openat(&*self.fd, name, flags, Mode::empty());
        let fd = fd.map_err(|e| self.error("open", name, e))?;
        Ok(Self { fd: Arc::new(fd), path: self.path_of(name) })
    }

    /// Opens a plain file in it for reading.
    ///
    /// # Errors
    /// Fails if it does not exist or may not be read, or with [`ErrorKind::Refused`] if it is
    /// something else.
    pub fn file(&self, name: impl AsRef<OsStr>) -> Result<File> {
        let name = name.as_ref();
        let found = self.look(name)?;
        self.plain(name, &found)?;
        let fd = rustix::fs::openat(&*self.fd, name, OFlags::RDONLY | OPEN, Mode::empty());
        let fd = fd.map_err(|e| self.error("open", name, e))?;
        self.plain(name, &rustix::fs::fstat(&fd).map_err(|e| self.error("open", name, e))?)?;
        Ok(File::from(fd))
    }

    /// Returns the bytes of a plain file in it.
    ///
    /// # Errors
    /// Same as for [`Dir::file`]; also fails with [`ErrorKind::Refused`] if the file has more than
    /// `most` bytes.
    pub fn read(&self, name: impl AsRef<OsStr>, most: u64) -> Result<Vec<u8>> {
        let name = name.as_ref();
        let (file, mut bytes) = (self.file(name)?, Vec::new());
        let read = file.take(most.saturating_add(1)).read_to_end(&mut bytes);
        read.map_err(Error::on("read", &self.path_of(name)))?;
        match bytes.len() as u64 > most {
            true => Err(self.refuse(name, "it is too long for such a file")),
            false => Ok(bytes),
        }
    }

    /// Returns the names in it, except `.` and `..`.
    ///
    /// # Errors
    /// Returns the error of `getdents`.
    pub fn names(&self) -> Result<Vec<OsString>> {
        let failed = |e| self.error("read", "", e);
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::read_from(&*self.fd).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name().to_bytes().to_vec();
            if name != b"." && name != b".." {
                names.push(OsString::from_vec(name));
            }
        }
        Ok(names)
    }

    /// Returns the metadata of an entry without following links.
    ///
    /// # Errors
    /// Fails if the entry does not exist or if `name` is not a single name.
    pub fn look(&self, name: impl AsRef<OsStr>) -> Result<Stat> {
        let name = name.as_ref();
        if matches!(name.as_bytes(), b"" | b"." | b"..") || name.as_bytes().contains(&b'/') {
            return Err(self.refuse(name, "that is not the name of a file"));
        }
        rustix::fs::statat(&*self.fd, name, AtFlags::SYMLINK_NOFOLLOW)
            .map_err(|e| self.error("open", name, e))
    }

    /// Opens a plain file in it for reading and appending, and creates it if it does not exist.
    ///
    /// # Errors
    /// Same as for [`Dir::file`]. Also fails with [`ErrorKind::Refused`] if the file has a second
    /// name, or belongs to a user other than the caller and the directory's owner.
    pub(crate) fn append(&self, name: &str) -> Result<File> {
        match self.look(name) {
            Err(e) if e.is_not_found() => {}
            Err(e) => return Err(e),
            Ok(found) => self.plain(OsStr::new(name), &found)?,
        }
        let flags = OFlags::RDWR | OFlags::APPEND | OFlags::CREATE | OPEN;
        let fd = rustix::fs::openat(&*self.fd, name, flags, Mode::from_raw_mode(0o666));
        let fd = fd.map_err(|e| self.error("open", name, e))?;
        let found = rustix::fs::fstat(&fd).map_err(|e| self.error("open", name, e))?;
        self.plain(OsStr::new(name), &found)?;
        if found.st_nlink > 1 {
            return Err(self.refuse(name, "it has a second name (a hard link)"));
        }
        let ours = [rustix::process::geteuid().as_raw(), self.stat()?.st_uid];
        if !ours.contains(&found.st_uid) {
            return Err(self.refuse(name, "it belongs to another user"));
        }
        Ok(File::from(fd))
    }

    /// Creates a directory in it unless it exists, and opens it.
    ///
    /// # Errors
    /// Fails if it is something else or cannot be created.
    pub(crate) fn make_dir(&self, name: &str) -> Result<Self> {
        match rustix::fs::mkdirat(&*self.fd, name, Mode::from_raw_mode(0o777)) {
            Ok(()) | Err(Errno::EXIST) => self.dir(name),
            Err(e) => Err(self.error("create", name, e)),
        }
    }

    /// Atomically replaces whatever has this name with a file that contains these bytes.
    ///
    /// # Errors
    /// Fails if the directory is not writable or the disk is full.
    pub(crate) fn replace(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let failed = |e| Error::new("write", &self.path_of(name), e);
        let temporary = temporary(name).map_err(failed)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OPEN;
        let fd = rustix::fs::openat(&*self.fd, &temporary, flags, Mode::from_raw_mode(0o666));
        let mut file = File::from(fd.map_err(|e| failed(e.into()))?);
        let written = file
            .write_all(bytes)
            .and_then(|()| Ok(rustix::fs::renameat(&*self.fd, &temporary, &*self.fd, name)?));
        if written.is_err() {
            let _ = rustix::fs::unlinkat(&*self.fd, &temporary, AtFlags::empty());
        }
        written.map_err(failed)
    }

    /// Removes a file or, with `AtFlags::REMOVEDIR`, an empty directory.
    ///
    /// # Errors
    /// Returns the error of `unlinkat`.
    pub(crate) fn remove(&self, name: impl AsRef<OsStr>, flags: AtFlags) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&*self.fd, name.as_ref(), flags)?)
    }

    fn plain(&self, name: &OsStr, found: &Stat) -> Result<()> {
        match FileType::from_raw_mode(found.st_mode) {
            FileType::RegularFile => Ok(()),
            _ => Err(self.refuse(name, kind_of(found))),
        }
    }

    fn refuse(&self, name: impl AsRef<OsStr>, why: &'static str) -> Error {
        Error::new("open", &self.path_of(name), ErrorKind::Refused(why))
    }

    fn error(&self, action: &'static str, name: impl AsRef<OsStr>, errno: Errno) -> Error {
        if errno == Errno::LOOP {
            return self.refuse(name, "it is a symbolic link");
        }
        Error::new(action, &self.path_of(name), io::Error::from(errno))
    }
}

/// A new name for a file that will be renamed to `name`: nobody can have put anything there before,
/// and two writers never share one.
pub(crate) fn temporary(name: &str) -> io::Result<String> {
    Ok(format!(".{name}.{}.tmp", ProfileId::random()?))
}

fn kind_of(found: &Stat) -> &'static str {
    match FileType::from_raw_mode(found.st_mode) {
        FileType::RegularFile => "it is a file",
        FileType::Directory => "it is a directory",
        FileType::Symlink => "it is a symbolic link",
        FileType::Fifo => "it is a pipe",
        FileType::Socket => "it is a socket",
        _ => "it is a device",
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use std::fs;
    use std::os::unix::fs::{MetadataExt, symlink};

    use testkit::Scratch;

    use super::*;

    fn refused<T>(result: Result<T>) -> String {
        match result {
            Err(e) if matches!(e.kind(), ErrorKind::Refused(_)) => e.to_string(),
            Err(e) => panic!("another error: {e}"),
            Ok(_) => panic!("not refused"),
        }
    }

    #[test]
    fn only_plain_files_are_opened() {
        let scratch = Scratch::new();
        let dir = Dir::open(scratch.path()).unwrap();
        fs::write(scratch.join("file"), "abc").unwrap();
        fs::create_dir(scratch.join("sub")).unwrap();
        symlink("file", scratch.join("link")).unwrap();
        symlink("sub", scratch.join("linked")).unwrap();
        symlink("/dev/zero", scratch.join("endless")).unwrap();
        rustix::fs::mkfifoat(CWD, scratch.join("pipe"), Mode::from_raw_mode(0o600)).unwrap();
        std::os::unix::net::UnixListener::bind(scratch.join("socket")).unwrap();

        assert_eq!(dir.read("file", 3).unwrap(), b"abc");
        assert!(refused(dir.read("file", 2)).contains("too long"));
        for (name, why) in [
            ("link", "symbolic link"),
            ("endless", "symbolic link"),
            ("pipe", "pipe"),
            ("socket", "socket"),
            ("sub", "directory"),
            ("../file", "name"),
            ("..", "name"),
            ("sub/../file", "name"),
            ("/etc/passwd", "name"),
        ] {
            let said = refused(dir.file(name));
            assert!(said.contains(why), "{name}: {said}");
            refused(dir.append(name));
        }
        assert!(refused(dir.dir("linked")).contains("symbolic link"));
        assert!(refused(dir.dir("file")).contains("it is a file"));
        assert!(dir.dir("sub").is_ok() && dir.make_dir("sub").is_ok());
        assert!(refused(dir.make_dir("linked")).contains("symbolic link"));
        assert!(dir.file("nothing").unwrap_err().is_not_found());
        let mut names = dir.names().unwrap();
        names.sort();
        assert_eq!(names, ["endless", "file", "link", "linked", "pipe", "socket", "sub"]);
    }

    #[test]
    fn a_file_with_a_hard_link_is_not_appended_to() {
        let scratch = Scratch::new();
        let dir = Dir::open(scratch.path()).unwrap();
        dir.append("new").unwrap().write_all(b"1").unwrap();
        dir.append("new").unwrap().write_all(b"2").unwrap();
        assert_eq!(fs::read(scratch.join("new")).unwrap(), b"12");
        fs::hard_link(scratch.join("new"), scratch.join("other")).unwrap();
        assert!(refused(dir.append("new")).contains("hard link"));
    }

    /// Whatever had the name is replaced and never written through.
    #[test]
    fn replacing_writes_a_new_file() {
        let scratch = Scratch::new();
        let dir = Dir::open(scratch.path()).unwrap();
        fs::write(scratch.join("victim"), "precious").unwrap();
        symlink("victim", scratch.join("a.json")).unwrap();
        fs::hard_link(scratch.join("victim"), scratch.join("b.json")).unwrap();
        for name in ["a.json", "b.json", "c.json"] {
            dir.replace(name, b"new").unwrap();
            assert_eq!(fs::read(scratch.join(name)).unwrap(), b"new");
            assert!(!fs::symlink_metadata(scratch.join(name)).unwrap().is_symlink());
        }
        let victim = scratch.join("victim");
        assert_eq!(fs::read(&victim).unwrap(), b"precious");
        assert_eq!(fs::metadata(&victim).unwrap().nlink(), 1);
        assert_eq!(dir.names().unwrap().len(), 4, "no temporary file is left");
    }
}
