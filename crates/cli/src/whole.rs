//! Writes an output file that gets its name when it is complete. In a sticky directory that
//! everybody may write to, no file is written through another user's link, unless that user owns
//! the directory.
//!
//! An incomplete trace that looks complete would be worse than none, and would replace an earlier
//! file. So the output is first an unnamed file in the same directory (`O_TMPFILE`). If the program
//! ends before the file has a name, even by `SIGKILL`, no file remains. If the file system has no
//! unnamed files, or `/proc` is not mounted, the new file has a random name, `.counterpoint-….tmp`.
//! That file is removed if something fails, and on SIGINT, SIGTERM, SIGHUP and SIGQUIT. A file that
//! replaces another one also has a random name for a moment. If the directory takes no new file, an
//! existing file is overwritten, unless it has several names (hard links).
//!
//! How the file is written depends on what the name refers to:
//!
//! | name | how it is written |
//! |---|---|
//! | `-` | to standard output |
//! | nothing yet, or a regular file | a new file takes the name; it gets the old file's mode, but never set-user-id bits, and not more rights than a new file if the old one belonged to another user |
//! | a symbolic link | the link stays, and its target is handled in the same way, link by link |
//! | `/dev/stdout`, `/dev/fd/3`, `/proc/self/fd/3` | to that descriptor |
//! | another device, a FIFO | directly, because nobody names one by accident |
//! | a directory | refused |
//!
//! In a sticky directory that everybody may write to, such as `/tmp`, a link, a file or a FIFO is
//! refused if it belongs neither to this user nor to the directory's owner. The kernel has the same
//! rule (`fs.protected_symlinks`, `protected_regular`, `protected_fifos`; proc_sys_fs(5)), but the
//! rule is not enabled everywhere, and does not apply to `rename`.

use std::ffi::CString;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::ending;
use crate::terminal::{Kind, Screen, progress};

/// The kernel follows at most this many symbolic links in a path (`MAXSYMLINKS`).
const MOST_LINKS: usize = 40;

#[derive(Debug)]
pub struct WholeFile {
    out: Screen<File>,
    /// How the file gets its name; `None` if it has its name or needs none.
    end: Option<Naming>,
}

#[derive(Debug)]
enum Naming {
    /// The file has no name yet.
    Unnamed { target: PathBuf },
    /// The file has a random name and will be renamed.
    Random { own: Temporary, target: PathBuf },
}

impl WholeFile {
    /// Opens the output that `path` names, for text or data of the given kind. A new file gets this
    /// name in [`Self::finish`].
    pub fn create(path: &Path, kind: Kind) -> io::Result<Self> {
        if path.as_os_str() == "-" {
            return descriptor(io::stdout().as_fd(), kind);
        }
        let (target, old) = match Place::of(path)? {
            Place::Descriptor(number) => {
                // SAFETY: the borrow ends with this statement, and no other code closes the
                // descriptor before that. If the descriptor is not open, an error is returned.
                return descriptor(unsafe { BorrowedFd::borrow_raw(number) }, kind);
            }
            Place::Special(path, old) => return direct(same(open(&path, 0)?, &old)?, kind),
            Place::File(path, old) => {
                // Opening checks that the old file may be written to: a protected file is not
                // replaced.
                same(open(&path, 0)?, &old)?;
                (path, Some(old))
            }
            Place::New(path) => (path, None),
        };
        match (fresh(&target), old) {
            (Ok((file, end)), old) => {
                // If `take_mode` fails, dropping `whole` removes the file.
                let whole = Self { out: Screen::new(file, kind, false), end: Some(end) };
                if let Some(old) = old {
                    take_mode(whole.out.inner(), &old)?;
                }
                Ok(whole)
            }
            // If the directory takes no new file, the old file is overwritten, unless it has other
            // names (hard links).
            (Err(_), Some(old)) if old.nlink() == 1 => {
                direct(same(open(&target, libc::O_TRUNC)?, &old)?, kind)
            }
            (Err(error), _) => Err(error),
        }
    }

    /// Writes the remaining output and gives the file its name.
    pub fn finish(mut self) -> io::Result<()> {
        self.out.flush()?;
        match self.end.take() {
            None => Ok(()),
            Some(Naming::Random { own, target }) => own.rename(&target),
            Some(Naming::Unnamed { target }) => {
                let file = self.out.inner();
                match link(file, &target) {
                    Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                        let (own, ()) = Temporary::make(&target, |path| link(file, path))?;
                        own.rename(&target)
                    }
                    other => other,
                }
            }
        }
    }
}

impl Write for WholeFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        progress::wrote(written as u64);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Where an output is written.
#[derive(Debug)]
pub enum Written {
    /// A new or replaced file in this directory.
    In(PathBuf),
    /// Directly to this device or FIFO.
    Itself(PathBuf),
    /// To a descriptor that is already open.
    Open,
}

/// Returns where [`WholeFile::create`] would write.
pub fn written(path: &Path) -> io::Result<Written> {
    if path.as_os_str() == "-" {
        return Ok(Written::Open);
    }
    Ok(match Place::of(path)? {
        Place::New(path) | Place::File(path, _) => Written::In(directory(&path).to_owned()),
        Place::Special(path, _) => Written::Itself(path),
        Place::Descriptor(_) => Written::Open,
    })
}

/// What a path refers to.
enum Place {
    New(PathBuf),
    File(PathBuf, Metadata),
    Special(PathBuf, Metadata),
    /// An open descriptor of this process.
    Descriptor(i32),
}

impl Place {
    fn of(path: &Path) -> io::Result<Self> {
        let mut path = path.to_owned();
        for _ in 0..=MOST_LINKS {
            let found = match fs::symlink_metadata(&path) {
                Err(e) if e.kind() == ErrorKind::NotFound => {
                    return match path.file_name() {
                        Some(_) => Ok(Self::New(path)),
                        None => Err(e),
                    };
                }
                found => found?,
            };
            if found.is_dir() {
                return Err(ErrorKind::IsADirectory.into());
            }
            if let Some(number) = own_descriptor(&path) {
                return Ok(Self::Descriptor(number));
            }
            allowed(&path, &found)?;
            if !found.is_symlink() {
                return Ok(match found.is_file() {
                    true => Self::File(path, found),
                    false => Self::Special(path, found),
                });
            }
            path = directory(&path).join(fs::read_link(&path)?);
        }
        Err(io::Error::from_raw_os_error(libc::ELOOP))
    }
}

pub fn directory(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        Some(_) => Path::new("."),
        None => Path::new("/"),
    }
}

/// Returns the descriptor of this process that `path` names, if any.
fn own_descriptor(path: &Path) -> Option<i32> {
    let number: i32 = path.file_name()?.to_str()?.parse().ok()?;
    let ours = fs::canonicalize("/proc/self/fd").ok()?;
    (fs::canonicalize(directory(path)).ok()? == ours).then_some(number)
}

/// Returns an error if another user may have put the file into a sticky directory to which
/// everybody can write.
fn allowed(path: &Path, found: &Metadata) -> io::Result<()> {
    const EVERYBODY: u32 = libc::S_ISVTX | libc::S_IWOTH;
    let around = fs::metadata(directory(path))?;
    // SAFETY: `geteuid` has no preconditions.
    let us = unsafe { libc::geteuid() };
    let open = around.mode() & EVERYBODY == EVERYBODY;
    if !open || found.uid() == us || found.uid() == around.uid() {
        return Ok(());
    }
    let what = match found.file_type() {
        kind if kind.is_symlink() => "link",
        kind if kind.is_fifo() => "FIFO",
        _ => "file",
    };
    let (path, owner) = (path.display(), found.uid());
    let why = format!(
        "{path} is a {what} of user {owner} in a directory that everybody can write to, so it is \
         not followed or replaced"
    );
    Err(io::Error::new(ErrorKind::PermissionDenied, why))
}

/// Gives a new file the permissions of the file that it replaces. Nobody but this user gets more
/// rights than before.
///
/// The new file belongs to this user, even if the old one did not. Set-user-id and set-group-id
/// bits are never copied, because another user's program would become one that runs with this
/// user's rights. If another user owned the old file, the new file gets only permissions that both
/// the old file had and a new file has by default. If the new file cannot have the old file's
/// group, the same holds for the permissions of the group.
fn take_mode(file: &File, old: &Metadata) -> io::Result<()> {
    const GROUP: u32 = 0o070;
    let new = file.metadata()?;
    let mut mode = old.mode() & 0o777;
    if old.uid() != new.uid() {
        mode &= new.mode();
    }
    if old.gid() != new.gid() && std::os::unix::fs::fchown(file, None, Some(old.gid())).is_err() {
        mode &= new.mode() | !GROUP;
        // The members of the new file's group had only the rights of "others" on the old file, so
        // they get no more.
        mode &= (mode & 0o007) << 3 | !GROUP;
    }
    file.set_permissions(fs::Permissions::from_mode(mode))
}

/// Opens an existing file for writing, but not through a symbolic link.
fn open(path: &Path, flags: i32) -> io::Result<File> {
    let flags = flags | libc::O_NOFOLLOW | libc::O_NOCTTY;
    OpenOptions::new().write(true).custom_flags(flags).open(path)
}

/// Returns `file` if it is the file that `looked_at` describes. Otherwise the file was replaced
/// after the check, which is an error.
fn same(file: File, looked_at: &Metadata) -> io::Result<File> {
    let opened = file.metadata()?;
    if (opened.dev(), opened.ino()) == (looked_at.dev(), looked_at.ino()) {
        return Ok(file);
    }
    Err(io::Error::other("it was replaced at the same moment"))
}

fn descriptor(fd: BorrowedFd<'_>, kind: Kind) -> io::Result<WholeFile> {
    direct(File::from(fd.try_clone_to_owned()?), kind)
}

fn direct(file: File, kind: Kind) -> io::Result<WholeFile> {
    let terminal = file.is_terminal();
    if terminal && kind == Kind::Binary {
        return Err(io::Error::other(
            "this format is not text and cannot be written to a terminal",
        ));
    }
    Ok(WholeFile { out: Screen::new(file, kind, terminal), end: None })
}

/// Creates a new file, without a name or with a random one, in the directory of `target`.
fn fresh(target: &Path) -> io::Result<(File, Naming)> {
    let unnamed = OpenOptions::new()
        .write(true)
        .custom_flags(libc::O_TMPFILE)
        .open(directory(target))
        .ok()
        // Without `/proc`, an unnamed file could not get a name.
        .filter(|file| fs::symlink_metadata(through_proc(file)).is_ok());
    if let Some(file) = unnamed {
        return Ok((file, Naming::Unnamed { target: target.to_owned() }));
    }
    let make = |path: &Path| {
        OpenOptions::new().write(true).create_new(true).custom_flags(libc::O_NOFOLLOW).open(path)
    };
    let (own, file) = Temporary::make(target, make)?;
    Ok((file, Naming::Random { own, target: target.to_owned() }))
}

fn through_proc(file: &File) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

/// Gives an unnamed file the name `path`, if no file has this name.
fn link(file: &File, path: &Path) -> io::Result<()> {
    let (from, to) = (CString::new(through_proc(file))?, c_path(path)?);
    let at = libc::AT_FDCWD;
    // SAFETY: `from` and `to` are C strings that outlive the call.
    let failed =
        unsafe { libc::linkat(at, from.as_ptr(), at, to.as_ptr(), libc::AT_SYMLINK_FOLLOW) };
    if failed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn c_path(path: &Path) -> io::Result<CString> {
    Ok(CString::new(path.as_os_str().as_bytes())?)
}

/// A file with a random name, which is removed on drop unless it was renamed.
#[derive(Debug)]
struct Temporary {
    path: PathBuf,
}

impl Temporary {
    /// Calls `make` with random paths in the directory of `target`, until one of the names is free.
    fn make<T>(target: &Path, make: impl Fn(&Path) -> io::Result<T>) -> io::Result<(Self, T)> {
        loop {
            let path = target.with_file_name(format!(".counterpoint-{:016x}.tmp", random()?));
            ending::removes(c_path(&path)?);
            match make(&path) {
                Ok(made) => return Ok((Self { path }, made)),
                Err(error) => {
                    ending::removes_nothing();
                    if error.kind() != ErrorKind::AlreadyExists {
                        return Err(error);
                    }
                }
            }
        }
    }

    fn rename(self, target: &Path) -> io::Result<()> {
        fs::rename(&self.path, target)?;
        // Dropping `self` finds no file, because the file now has another name.
        Ok(())
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
        ending::removes_nothing();
    }
}

/// Returns a random number, for names that nobody should be able to guess.
pub fn random() -> io::Result<u64> {
    let mut bytes = [0u8; 8];
    // The oldest glibc that releases of Counterpoint support has no function `getrandom`.
    //
    // SAFETY: the kernel writes at most `bytes.len()` bytes to `bytes`.
    let got = unsafe { libc::syscall(libc::SYS_getrandom, bytes.as_mut_ptr(), bytes.len(), 0) };
    if usize::try_from(got) == Ok(bytes.len()) {
        return Ok(u64::from_ne_bytes(bytes));
    }
    Err(io::Error::last_os_error())
}
