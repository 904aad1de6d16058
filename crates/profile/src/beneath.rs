//! Files below a directory that somebody else may have made: opened from the directory's
//! descriptor, one name at a time, and never through a link.
//!
//! A profile that was mailed may hold anything in the place of its files: links to files of the
//! reader, pipes that nobody writes to, devices that never end. So every name is looked at before
//! it is opened, must be a plain file (or a directory), is opened without following links and
//! without waiting, and is looked at again once it is open, in case somebody has changed it in
//! between. What is refused is an [`ErrorKind::Refused`].
//!
//! What is written takes care of one more thing: a file that is appended to must have no other
//! name (a hard link would lead out of the directory), and files that are replaced are written
//! under a new, random name first.

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

/// Two are equal if they were reached by the same path.
impl PartialEq for Dir {
    fn eq(&self, other: &Self) -> bool {
        self.path == other.path
    }
}

pub(crate) const OPEN: OFlags = OFlags::CLOEXEC.union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK);

impl Dir {
    /// Opens the directory that a person has named; links in `path` are followed.
    ///
    /// # Errors
    /// It does not exist, is not a directory, may not be read.
    pub fn open(path: &Path) -> Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(CWD, path, flags, Mode::empty());
        let fd = fd.map_err(|e| Error::new("open", path, io::Error::from(e)))?;
        Ok(Self { fd: Arc::new(fd), path: path.to_owned() })
    }

    /// The path by which it was reached: for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path of something in it: for messages.
    pub fn path_of(&self, name: impl AsRef<OsStr>) -> PathBuf {
        self.path.join(name.as_ref())
    }

    /// What it is itself.
    ///
    /// # Errors
    /// As `fstat`.
    pub fn stat(&self) -> Result<Stat> {
        rustix::fs::fstat(&*self.fd).map_err(|e| self.error("read", "", e))
    }

    /// Its descriptor, for calls that must not allocate.
    pub(crate) fn descriptor(&self) -> &OwnedFd {
        &self.fd
    }

    /// A second descriptor of it.
    ///
    /// # Errors
    /// There are no more descriptors.
    pub fn to_file(&self) -> io::Result<File> {
        Ok(File::from(self.fd.try_clone()?))
    }

    /// Opens a directory in it.
    ///
    /// # Errors
    /// It does not exist, or is something else: [`ErrorKind::Refused`].
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
    /// It does not exist, may not be read, or is something else: [`ErrorKind::Refused`].
    pub fn file(&self, name: impl AsRef<OsStr>) -> Result<File> {
        let name = name.as_ref();
        let found = self.look(name)?;
        self.plain(name, &found)?;
        let fd = rustix::fs::openat(&*self.fd, name, OFlags::RDONLY | OPEN, Mode::empty());
        let fd = fd.map_err(|e| self.error("open", name, e))?;
        self.plain(name, &rustix::fs::fstat(&fd).map_err(|e| self.error("open", name, e))?)?;
        Ok(File::from(fd))
    }

    /// The bytes of a plain file in it.
    ///
    /// # Errors
    /// As [`Dir::file`]; [`ErrorKind::Refused`] for more than `most` bytes.
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

    /// The names in it, without `.` and `..`.
    ///
    /// # Errors
    /// As `getdents`.
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

    /// What has this name, links not followed.
    ///
    /// # Errors
    /// It does not exist, or `name` is more than one name.
    pub fn look(&self, name: impl AsRef<OsStr>) -> Result<Stat> {
        let name = name.as_ref();
        if matches!(name.as_bytes(), b"" | b"." | b"..") || name.as_bytes().contains(&b'/') {
            return Err(self.refuse(name, "that is not the name of a file"));
        }
        rustix::fs::statat(&*self.fd, name, AtFlags::SYMLINK_NOFOLLOW)
            .map_err(|e| self.error("open", name, e))
    }

    /// Opens a plain file in it for reading and appending; makes it if it does not exist.
    ///
    /// # Errors
    /// As [`Dir::file`]; [`ErrorKind::Refused`] if it has a second name somewhere, or belongs to
    /// somebody else than the directory and the caller.
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

    /// Makes a directory in it unless there is one, and opens it.
    ///
    /// # Errors
    /// It is something else, or cannot be made.
    pub(crate) fn make_dir(&self, name: &str) -> Result<Self> {
        match rustix::fs::mkdirat(&*self.fd, name, Mode::from_raw_mode(0o777)) {
            Ok(()) | Err(Errno::EXIST) => self.dir(name),
            Err(e) => Err(self.error("create", name, e)),
        }
    }

    /// Puts a file with these bytes in the place of whatever has this name, at once.
    ///
    /// # Errors
    /// The directory is not writable, the disk is full.
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

    /// Removes a file, or (`AtFlags::REMOVEDIR`) an empty directory, by its name in it.
    ///
    /// # Errors
    /// As `unlinkat`.
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
    fn a_second_name_is_not_appended_to() {
        let scratch = Scratch::new();
        let dir = Dir::open(scratch.path()).unwrap();
        dir.append("new").unwrap().write_all(b"1").unwrap();
        dir.append("new").unwrap().write_all(b"2").unwrap();
        assert_eq!(fs::read(scratch.join("new")).unwrap(), b"12");
        fs::hard_link(scratch.join("new"), scratch.join("other")).unwrap();
        assert!(refused(dir.append("new")).contains("hard link"));
    }

    /// Whatever had the name is replaced, never written through.
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
        assert_eq!(dir.names().unwrap().len(), 4, "nothing is left behind");
    }
}
