//! Directories in memory, for files that a report makes for a profile but must not write into the
//! profile's directory.
//!
//! ```text
//!  Dir::in_memory ─► writers of parts, activities, tracks ─► a tree of files without names
//!  Dir::showing   ─► the profile's own directory, in which that tree seems to be
//! ```
//!
//! A file is a `memfd`: it has no name on disk, and disappears when its last descriptor is closed.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::{CWD, MemfdFlags, Mode, OFlags};

use super::Dir;

/// A directory in memory. Clones share its entries.
#[derive(Clone, Debug, Default)]
pub(super) struct Tree(Arc<Mutex<BTreeMap<OsString, Node>>>);

#[derive(Clone, Debug)]
pub(super) enum Node {
    File(Arc<OwnedFd>),
    /// A directory in memory.
    Dir(Tree),
    /// Stands for the directory of the same name in this other directory.
    Elsewhere(Dir),
    /// An entry on disk that must not be shown.
    Hidden,
}

impl Tree {
    fn entries(&self) -> MutexGuard<'_, BTreeMap<OsString, Node>> {
        // A panic while the lock is held leaves the map in a valid state.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn get(&self, name: &OsStr) -> Option<Node> {
        self.entries().get(name).cloned()
    }

    pub fn put(&self, name: &OsStr, node: Node) {
        self.entries().insert(name.to_owned(), node);
    }

    /// Returns the names of the entries, and for each of them whether it is shown.
    pub fn names(&self) -> Vec<(OsString, bool)> {
        let is_shown = |node: &Node| !matches!(node, Node::Hidden);
        self.entries().iter().map(|(name, node)| (name.clone(), is_shown(node))).collect()
    }

    /// Returns the directory with this name, and creates it if necessary.
    pub fn make_dir(&self, name: &OsStr) -> io::Result<Self> {
        match self.entries().entry(name.to_owned()).or_insert_with(|| Node::Dir(Self::default())) {
            Node::Dir(tree) => Ok(tree.clone()),
            _ => Err(io::ErrorKind::NotADirectory.into()),
        }
    }

    /// Returns the file with this name for appending, and creates it if necessary. With
    /// `must_be_new`, an existing entry is an error.
    pub fn append(&self, name: &OsStr, must_be_new: bool) -> io::Result<File> {
        let mut entries = self.entries();
        match entries.get(name) {
            Some(Node::File(fd)) if !must_be_new => return Ok(File::from(fd.try_clone()?)),
            Some(_) => return Err(io::ErrorKind::AlreadyExists.into()),
            None => {}
        }
        let fd = rustix::fs::memfd_create("counterpoint", MemfdFlags::CLOEXEC)?;
        rustix::fs::fcntl_setfl(&fd, OFlags::APPEND)?;
        let fd = Arc::new(fd);
        entries.insert(name.to_owned(), Node::File(Arc::clone(&fd)));
        Ok(File::from(fd.try_clone()?))
    }
}

/// Opens a file in memory for reading from its start. A duplicate of the descriptor would share its
/// file position, so the file is opened once more.
pub(super) fn open(fd: &OwnedFd) -> io::Result<File> {
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    Ok(File::from(rustix::fs::openat(CWD, Path::new(&path), flags, Mode::empty())?))
}
