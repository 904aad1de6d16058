//! Accesses files in a directory that somebody else may have made. A file is opened relative to the
//! descriptor of its directory, one name at a time, and not through a link.
//!
//! A profile that was received by mail may contain anything in place of its files: links to files
//! of the reader, pipes to which nobody writes, devices that never end. Therefore an entry is
//! checked before it is opened: it must be a regular file or a directory. It is opened without
//! following links and without waiting, and then checked again, in case somebody has changed it. If
//! a check fails, the error is [`ErrorKind::Refused`].
//!
//! Writing has two more rules. A file to append to must have no second name (hard link), because
//! writing to it could then change a file of another directory. A file that is replaced is first
//! written under a new, random name.
//!
//! A directory can also be in memory ([`Dir::in_memory`]), or show entries in memory as if they
//! were on disk ([`Dir::showing`]). So a report can make parts of a profile without writing to
//! disk, with the usual code for writing and reading profiles.

mod memory;

use std::collections::BTreeSet;
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

use memory::{Node, Tree};

/// An open directory.
#[derive(Clone, Debug)]
pub struct Dir {
    /// The directory on disk; `None` if it is only in memory.
    disk: Option<Arc<OwnedFd>>,
    /// The entries in memory. They hide entries with the same names on disk.
    memory: Option<Tree>,
    path: PathBuf,
}

/// Two directories are equal if they were opened by the same path.
impl PartialEq for Dir {
    fn eq(&self, other: &Self) -> bool {
        self.path == other.path
    }
}

/// Maximum depth of directories for [`Dir::remove_all`].
const DEEPEST: usize = 16;

pub(crate) const OPEN: OFlags = OFlags::CLOEXEC.union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK);

impl Dir {
    /// Opens a directory that a person has named. Links in `path` are followed.
    ///
    /// # Errors
    /// Fails if the directory does not exist, is not a directory, or may not be read.
    pub fn open(path: &Path) -> Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(CWD, path, flags, Mode::empty());
        let fd = fd.map_err(|e| Error::new("open", path, io::Error::from(e)))?;
        Ok(Self::on_disk(fd, path.to_owned()))
    }

    /// Returns an empty directory in memory. `path` is used in messages.
    pub fn in_memory(path: &Path) -> Self {
        Self { disk: None, memory: Some(Tree::default()), path: path.to_owned() }
    }

    /// Returns a view of this directory that also has the entries of `memory` (a directory in
    /// memory), as if they were on disk. Nothing can be written into the view.
    pub fn showing(&self, memory: &Self) -> Self {
        Self { memory: memory.memory.clone(), ..self.clone() }
    }

    /// Makes `within/name` visible under `name` in directories that show this one
    /// ([`Dir::showing`]). Does nothing if this directory is only on disk.
    pub fn show(&self, name: impl AsRef<OsStr>, within: &Self) {
        if let Some(memory) = &self.memory {
            memory.put(name.as_ref(), Node::Elsewhere(within.clone()));
        }
    }

    /// Hides an entry in directories that show this one ([`Dir::showing`]). Does nothing if this
    /// directory is only on disk.
    pub fn hide(&self, name: impl AsRef<OsStr>) {
        if let Some(memory) = &self.memory {
            memory.put(name.as_ref(), Node::Hidden);
        }
    }

    fn on_disk(fd: OwnedFd, path: PathBuf) -> Self {
        Self { disk: Some(Arc::new(fd)), memory: None, path }
    }

    fn disk(&self, name: impl AsRef<OsStr>) -> Result<&OwnedFd> {
        self.disk.as_deref().ok_or_else(|| self.error("open", name, Errno::NOENT))
    }

    /// Returns the descriptor of the directory on disk, to change its entries. Fails if there are
    /// entries in memory, because they may hide entries on disk.
    fn to_write(&self, name: impl AsRef<OsStr>) -> Result<&OwnedFd> {
        match &self.memory {
            None => self.disk(name),
            Some(_) => Err(self.error("write", name, Errno::ROFS)),
        }
    }

    fn node(&self, name: &OsStr) -> Option<Node> {
        self.memory.as_ref()?.get(name)
    }

    /// Returns the entries in memory, if the directory is only in memory.
    fn tree(&self) -> Option<&Tree> {
        self.memory.as_ref().filter(|_| self.disk.is_none())
    }

    /// Returns the path of the directory, for messages.
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
    /// Returns the error of `fstat`, or fails if the directory is only in memory.
    pub fn stat(&self) -> Result<Stat> {
        rustix::fs::fstat(self.disk("")?).map_err(|e| self.error("read", "", e))
    }

    /// Returns the directory's descriptor, for code that must not allocate memory. `None` if the
    /// directory is only in memory.
    pub(crate) fn descriptor(&self) -> Option<&OwnedFd> {
        self.disk.as_deref()
    }

    /// Returns a second descriptor of the directory.
    ///
    /// # Errors
    /// Fails if the process has no free descriptors, or if the directory is not on disk.
    pub fn to_file(&self) -> io::Result<File> {
        let disk = self.disk.as_ref().ok_or(io::ErrorKind::NotFound)?;
        Ok(File::from(disk.try_clone()?))
    }

    /// Opens a directory in this one.
    ///
    /// # Errors
    /// Fails if the directory does not exist or may not be read, or with [`ErrorKind::Refused`] if
    /// the entry is not a directory.
    pub fn dir(&self, name: impl AsRef<OsStr>) -> Result<Self> {
        let name = name.as_ref();
        match self.node(name) {
            None => self.dir_on_disk(name),
            Some(Node::Hidden) => Err(self.error("open", name, Errno::NOENT)),
            Some(Node::File(_)) => Err(self.refuse(name, "it is a file")),
            Some(Node::Elsewhere(within)) => within.dir(name),
            Some(Node::Dir(tree)) => match self.dir_on_disk(name) {
                Ok(dir) => Ok(Self { memory: Some(tree), ..dir }),
                Err(e) if e.is_not_found() => {
                    Ok(Self { disk: None, memory: Some(tree), path: self.path_of(name) })
                }
                Err(e) => Err(e),
            },
        }
    }

    fn dir_on_disk(&self, name: &OsStr) -> Result<Self> {
        let found = self.look(name)?;
        if FileType::from_raw_mode(found.st_mode) != FileType::Directory {
            return Err(self.refuse(name, kind_of(&found)));
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OPEN;
        let fd = rustix::fs::openat(self.disk(name)?, name, flags, Mode::empty());
        let fd = fd.map_err(|e| self.error("open", name, e))?;
        Ok(Self::on_disk(fd, self.path_of(name)))
    }

    /// Opens a regular file in this directory for reading.
    ///
    /// # Errors
    /// Fails if the file does not exist or may not be read, or with [`ErrorKind::Refused`] if the
    /// entry is not a regular file.
    pub fn file(&self, name: impl AsRef<OsStr>) -> Result<File> {
        let name = name.as_ref();
        match self.node(name) {
            None => {}
            Some(Node::Hidden) => return Err(self.error("open", name, Errno::NOENT)),
            Some(Node::File(fd)) => {
                return memory::open(&fd).map_err(Error::on("open", &self.path_of(name)));
            }
            Some(Node::Dir(_) | Node::Elsewhere(_)) => {
                return Err(self.refuse(name, "it is a directory"));
            }
        }
        let found = self.look(name)?;
        self.plain(name, &found)?;
        let disk = self.disk(name)?;
        let fd = rustix::fs::openat(disk, name, OFlags::RDONLY | OPEN, Mode::empty());
        let fd = fd.map_err(|e| self.error("open", name, e))?;
        self.plain(name, &rustix::fs::fstat(&fd).map_err(|e| self.error("open", name, e))?)?;
        Ok(File::from(fd))
    }

    /// Returns the content of a regular file in this directory.
    ///
    /// # Errors
    /// Same as for [`Dir::file`]. Also fails with [`ErrorKind::Refused`] if the file has more than
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

    /// Returns the sorted names of the entries, except `.` and `..`.
    ///
    /// # Errors
    /// Returns the error of `getdents`.
    pub fn names(&self) -> Result<Vec<OsString>> {
        let failed = |e| self.error("read", "", e);
        let mut names = BTreeSet::new();
        if let Some(disk) = &self.disk {
            for entry in rustix::fs::Dir::read_from(disk).map_err(failed)? {
                let name = entry.map_err(failed)?.file_name().to_bytes().to_vec();
                if name != b"." && name != b".." {
                    names.insert(OsString::from_vec(name));
                }
            }
        }
        for (name, is_shown) in self.memory.as_ref().map(Tree::names).unwrap_or_default() {
            match is_shown {
                true => names.insert(name),
                false => names.remove(&name),
            };
        }
        Ok(names.into_iter().collect())
    }

    /// Returns the metadata of an entry on disk without following links.
    ///
    /// # Errors
    /// Fails if the entry does not exist on disk, or if `name` is empty, is `.` or `..`, or
    /// contains `/`.
    pub fn look(&self, name: impl AsRef<OsStr>) -> Result<Stat> {
        let name = name.as_ref();
        if matches!(name.as_bytes(), b"" | b"." | b"..") || name.as_bytes().contains(&b'/') {
            return Err(self.refuse(name, "that is not the name of a file"));
        }
        rustix::fs::statat(self.disk(name)?, name, AtFlags::SYMLINK_NOFOLLOW)
            .map_err(|e| self.error("open", name, e))
    }

    /// Opens a regular file for reading and appending, and creates it if it does not exist.
    ///
    /// # Errors
    /// Fails if the file can neither be opened nor created. Fails with [`ErrorKind::Refused`] if it
    /// is not a regular file, has a second name, or belongs neither to the user of this process nor
    /// to the directory's owner.
    pub(crate) fn append(&self, name: &str) -> Result<File> {
        if let Some(tree) = self.tree() {
            return tree
                .append(name.as_ref(), false)
                .map_err(Error::on("write", &self.path_of(name)));
        }
        let disk = self.to_write(name)?;
        match self.look(name) {
            Err(e) if e.is_not_found() => {}
            Err(e) => return Err(e),
            Ok(found) => self.plain(OsStr::new(name), &found)?,
        }
        let flags = OFlags::RDWR | OFlags::APPEND | OFlags::CREATE | OPEN;
        let fd = rustix::fs::openat(disk, name, flags, Mode::from_raw_mode(0o666));
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

    /// Creates a file for appending. No entry with this name may exist.
    ///
    /// # Errors
    /// Fails if an entry with this name exists, or if the file cannot be created.
    pub(crate) fn create(&self, name: &str) -> Result<File> {
        if let Some(tree) = self.tree() {
            return tree
                .append(name.as_ref(), true)
                .map_err(Error::on("create", &self.path_of(name)));
        }
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::EXCL | OPEN;
        let mode = Mode::from_raw_mode(0o666);
        let fd = rustix::fs::openat(self.to_write(name)?, name, flags, mode);
        Ok(File::from(fd.map_err(|e| self.error("create", name, e))?))
    }

    /// Creates a directory if it does not exist, and opens it.
    ///
    /// # Errors
    /// Fails if the entry is not a directory, or if the directory cannot be created.
    pub fn make_dir(&self, name: &str) -> Result<Self> {
        match self.create_dir(name) {
            Err(e) if e.is_there() => self.dir(name),
            made => made,
        }
    }

    /// Creates a directory, which must not exist, and opens it.
    ///
    /// # Errors
    /// Fails if an entry with this name exists, or if the directory cannot be created.
    pub fn create_dir(&self, name: &str) -> Result<Self> {
        if let Some(tree) = self.tree() {
            if tree.get(name.as_ref()).is_some() {
                return Err(self.error("create", name, Errno::EXIST));
            }
            let tree = tree.make_dir(name.as_ref());
            let tree = tree.map_err(Error::on("create", &self.path_of(name)))?;
            return Ok(Self { disk: None, memory: Some(tree), path: self.path_of(name) });
        }
        rustix::fs::mkdirat(self.to_write(name)?, name, Mode::from_raw_mode(0o777))
            .map_err(|e| self.error("create", name, e))?;
        self.dir(name)
    }

    /// Atomically writes a file with these bytes, in place of the entry with this name if there is
    /// one.
    ///
    /// # Errors
    /// Fails if the directory is not writable or the disk is full. In memory, `replace` also fails
    /// if the entry exists.
    pub fn replace(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let failed = |e| Error::new("write", &self.path_of(name), e);
        if let Some(tree) = self.tree() {
            let file = tree.append(name.as_ref(), true);
            return file.and_then(|mut file| file.write_all(bytes)).map_err(failed);
        }
        let disk = self.to_write(name)?;
        let temporary = temporary(name).map_err(failed)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OPEN;
        let fd = rustix::fs::openat(disk, &temporary, flags, Mode::from_raw_mode(0o666));
        let mut file = File::from(fd.map_err(|e| failed(e.into()))?);
        let written = file
            .write_all(bytes)
            .and_then(|()| Ok(rustix::fs::renameat(disk, &temporary, disk, name)?));
        if written.is_err() {
            let _ = rustix::fs::unlinkat(disk, &temporary, AtFlags::empty());
        }
        written.map_err(failed)
    }

    /// Moves an entry into another directory of the same file system.
    ///
    /// # Errors
    /// Fails if the entry does not exist or one of the directories is not writable. Also fails if
    /// `to` is in another file system, or has an entry with this name that cannot be replaced.
    pub fn move_to(&self, name: impl AsRef<OsStr>, to: &Self) -> Result<()> {
        let name = name.as_ref();
        let (from, into) = (self.to_write(name)?, to.to_write(name)?);
        rustix::fs::renameat(from, name, into, name).map_err(|e| to.error("write", name, e))
    }

    /// Removes a file or, with `AtFlags::REMOVEDIR`, an empty directory.
    ///
    /// # Errors
    /// Returns the error of `unlinkat`, or fails if this directory has entries in memory.
    pub(crate) fn remove(&self, name: impl AsRef<OsStr>, flags: AtFlags) -> io::Result<()> {
        let disk = self.to_write(name.as_ref()).map_err(io::Error::other)?;
        Ok(rustix::fs::unlinkat(disk, name.as_ref(), flags)?)
    }

    /// Removes a file or link, if it exists. The target of a link stays.
    ///
    /// # Errors
    /// Fails if the entry is a directory, or if this directory is not writable.
    pub fn remove_file(&self, name: impl AsRef<OsStr>) -> Result<()> {
        let name = name.as_ref();
        let removed = rustix::fs::unlinkat(self.to_write(name)?, name, AtFlags::empty());
        match removed {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(e) => Err(self.error("remove", name, e)),
        }
    }

    /// Removes a directory with its content, if it exists. Links in it are removed, but not their
    /// targets.
    ///
    /// # Errors
    /// Fails if the entry is not a directory, is nested too deeply, or cannot be removed.
    pub fn remove_all(&self, name: impl AsRef<OsStr>) -> Result<()> {
        self.remove_below(name.as_ref(), DEEPEST)
    }

    fn remove_below(&self, name: &OsStr, deepest: usize) -> Result<()> {
        let dir = match self.dir(name) {
            Err(e) if e.is_not_found() => return Ok(()),
            dir => dir?,
        };
        for entry in dir.names()? {
            let found = dir.look(&entry)?;
            match (FileType::from_raw_mode(found.st_mode), deepest) {
                (FileType::Directory, 0) => {
                    return Err(self.refuse(name, "it has too many directories in each other"));
                }
                (FileType::Directory, _) => dir.remove_below(&entry, deepest - 1)?,
                _ => dir.remove_file(&entry)?,
            }
        }
        let removed = rustix::fs::unlinkat(self.to_write(name)?, name, AtFlags::REMOVEDIR);
        removed.map_err(|e| self.error("remove", name, e))
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

/// Returns a random name for a file that will be renamed to `name`. Nobody can have guessed the
/// name and made a file with it.
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

    /// [`Dir::replace`] must not write to the file that it replaces, not even through a link.
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
