//! A file that has its name once it is whole, and that never follows somebody else's link.
//!
//! Half a trace that looks like a whole one would be worse than none, and what was there before
//! would be lost for it. So what is written goes into a new file without a name in the same
//! directory (`O_TMPFILE`), which gets its name at the end: whatever ends the program before, even
//! `SIGKILL`, leaves nothing. Where a file system has no such files (or `/proc` is not there), the
//! new file has a random name, `.counterpoint-….tmp`, and is removed when something fails and when
//! SIGINT, SIGTERM, SIGHUP or SIGQUIT ends the program. A file that replaces another one has such
//! a name too, for the moment between its making and the `rename`.
//!
//! What the name stands for decides how it is written:
//!
//! | name | written |
//! |---|---|
//! | `-` | standard output |
//! | nothing yet, or a regular file | a new file takes the name; it has the old one's mode, but never set-user-id bits, nor more rights than a new file if the old one was somebody else's |
//! | a link | what it points to is looked at in the same way, link by link; the link stays |
//! | `/dev/stdout`, `/dev/fd/3`, `/proc/self/fd/3` | that descriptor |
//! | another device, a FIFO | written directly: nobody names one by accident |
//! | a directory | refused |
//!
//! In a directory that everybody may write to and that is sticky, as `/tmp`, a link, a file or a
//! FIFO that belongs neither to us nor to the directory's owner is refused. The kernel has the
//! same rule (`fs.protected_symlinks`, `protected_regular`, `protected_fifos`; proc_sys_fs(5)), but
//! not switched on everywhere, and `rename` is not subject to it.

use std::ffi::CString;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::terminal::{Kind, Screen};

/// As many links as the kernel follows (`MAXSYMLINKS`).
const MOST_LINKS: usize = 40;

/// See the module's page.
#[derive(Debug)]
pub struct WholeFile {
    out: Screen<File>,
    /// How it gets its name; `None` where it has one, or none to get.
    end: Option<Naming>,
}

/// How a new file gets its name.
#[derive(Debug)]
enum Naming {
    /// It has none.
    Unnamed { target: PathBuf },
    /// It has a random one.
    Random { own: Temporary, target: PathBuf },
}

impl WholeFile {
    /// Starts a file that is to have this name, for output of this kind.
    pub fn create(path: &Path, kind: Kind) -> io::Result<Self> {
        if path.as_os_str() == "-" {
            return descriptor(io::stdout().as_fd(), kind);
        }
        let (target, old) = match Place::of(path)? {
            Place::Descriptor(number) => {
                // SAFETY: borrowed for this statement; a number that is not open is an error.
                return descriptor(unsafe { BorrowedFd::borrow_raw(number) }, kind);
            }
            Place::Special(path, old) => return direct(same(open(&path, 0)?, &old)?, kind),
            Place::File(path, old) => {
                // It may not be written: that is to be said, not gone around.
                same(open(&path, 0)?, &old)?;
                (path, Some(old))
            }
            Place::New(path) => (path, None),
        };
        match (fresh(&target), old) {
            (Ok((file, end)), old) => {
                // Made before, so that `end` removes the file when this fails.
                let whole = Self { out: Screen::new(file, kind, false), end: Some(end) };
                if let Some(old) = old {
                    take_mode(whole.out.inner(), &old)?;
                }
                Ok(whole)
            }
            // The directory takes no other file.
            (Err(_), Some(old)) if old.nlink() == 1 => {
                direct(same(open(&target, libc::O_TRUNC)?, &old)?, kind)
            }
            (Err(error), _) => Err(error),
        }
    }

    /// Gives the file its name.
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
        self.out.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// What a name stands for.
enum Place {
    New(PathBuf),
    File(PathBuf, Metadata),
    Special(PathBuf, Metadata),
    /// An open file of our own.
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

/// The directory of a name.
fn directory(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        Some(_) => Path::new("."),
        None => Path::new("/"),
    }
}

/// The number of a descriptor of this process that `path` names.
fn own_descriptor(path: &Path) -> Option<i32> {
    let number: i32 = path.file_name()?.to_str()?.parse().ok()?;
    let ours = fs::canonicalize("/proc/self/fd").ok()?;
    (fs::canonicalize(directory(path)).ok()? == ours).then_some(number)
}

/// Refuses what somebody else may have put where everybody can.
fn allowed(path: &Path, found: &Metadata) -> io::Result<()> {
    const EVERYBODY: u32 = libc::S_ISVTX | libc::S_IWOTH;
    let around = fs::metadata(directory(path))?;
    // SAFETY: no arguments, cannot fail.
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

/// Gives a new file the permissions of the one that it replaces, as far as they give nobody more
/// rights than the old file did.
///
/// The new file is ours, whoever owned the old one. Set-user-id and set-group-id bits are never
/// taken over: somebody else's file would become a program that runs with our rights. A file of
/// somebody else can only take away permissions that a new file of ours has. Likewise for the
/// group, where the new file cannot have the old one's.
fn take_mode(file: &File, old: &Metadata) -> io::Result<()> {
    const GROUP: u32 = 0o070;
    let new = file.metadata()?;
    let mut mode = old.mode() & 0o777;
    if old.uid() != new.uid() {
        mode &= new.mode();
    }
    if old.gid() != new.gid() && std::os::unix::fs::fchown(file, None, Some(old.gid())).is_err() {
        mode &= new.mode() | !GROUP;
        // Whoever is in our group had the rights of everybody.
        mode &= (mode & 0o007) << 3 | !GROUP;
    }
    file.set_permissions(fs::Permissions::from_mode(mode))
}

/// Opens what is there, and no link.
fn open(path: &Path, flags: i32) -> io::Result<File> {
    let flags = flags | libc::O_NOFOLLOW | libc::O_NOCTTY;
    OpenOptions::new().write(true).custom_flags(flags).open(path)
}

/// The file, if it is still the one that was looked at.
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

/// A new file in the directory of `target`.
fn fresh(target: &Path) -> io::Result<(File, Naming)> {
    let unnamed = OpenOptions::new()
        .write(true)
        .custom_flags(libc::O_TMPFILE)
        .open(directory(target))
        .ok()
        // It could not get a name.
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

/// Gives a file without a name this one, if nothing has it.
fn link(file: &File, path: &Path) -> io::Result<()> {
    let (from, to) = (CString::new(through_proc(file))?, c_path(path)?);
    let at = libc::AT_FDCWD;
    // SAFETY: both are C strings.
    let failed =
        unsafe { libc::linkat(at, from.as_ptr(), at, to.as_ptr(), libc::AT_SYMLINK_FOLLOW) };
    if failed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn c_path(path: &Path) -> io::Result<CString> {
    Ok(CString::new(path.as_os_str().as_bytes())?)
}

/// A file with a random name, which is removed unless it gets another one.
#[derive(Debug)]
struct Temporary {
    path: PathBuf,
}

/// The file to remove when a signal ends the program: a C string, or null.
static REMOVED_BY_SIGNALS: AtomicPtr<libc::c_char> = AtomicPtr::new(null_mut());

impl Temporary {
    /// Has `make` make one beside `target`.
    fn make<T>(target: &Path, make: impl Fn(&Path) -> io::Result<T>) -> io::Result<(Self, T)> {
        loop {
            let path = target.with_file_name(format!(".counterpoint-{:016x}.tmp", random()?));
            watch_signals();
            let guarded = c_path(&path)?.into_raw();
            forget(REMOVED_BY_SIGNALS.swap(guarded, Ordering::SeqCst));
            match make(&path) {
                Ok(made) => return Ok((Self { path }, made)),
                Err(error) => {
                    forget(REMOVED_BY_SIGNALS.swap(null_mut(), Ordering::SeqCst));
                    if error.kind() != ErrorKind::AlreadyExists {
                        return Err(error);
                    }
                }
            }
        }
    }

    fn rename(self, target: &Path) -> io::Result<()> {
        fs::rename(&self.path, target)?;
        // `drop` finds nothing to remove.
        Ok(())
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
        forget(REMOVED_BY_SIGNALS.swap(null_mut(), Ordering::SeqCst));
    }
}

fn forget(path: *mut libc::c_char) {
    if !path.is_null() {
        // SAFETY: only `Temporary::make` puts pointers there, each from `into_raw`, and whoever
        // swaps one out has it alone.
        drop(unsafe { CString::from_raw(path) });
    }
}

/// A number for a name that nobody can guess.
pub fn random() -> io::Result<u64> {
    let mut bytes = [0u8; 8];
    // Not glibc's function, which is newer than the oldest glibc that the release runs on.
    // SAFETY: as many bytes as are there.
    let got = unsafe { libc::syscall(libc::SYS_getrandom, bytes.as_mut_ptr(), bytes.len(), 0) };
    if usize::try_from(got) == Ok(bytes.len()) {
        return Ok(u64::from_ne_bytes(bytes));
    }
    Err(io::Error::last_os_error())
}

/// Has the signals by which people and their tools end a command remove the file. One that was
/// ignored or handled before stays so.
fn watch_signals() {
    extern "C" fn end(signal: libc::c_int) {
        let path = REMOVED_BY_SIGNALS.swap(null_mut(), Ordering::SeqCst);
        // SAFETY: a C string that nobody else has any more, and calls that are async-signal-safe.
        unsafe {
            if !path.is_null() {
                libc::unlink(path);
            }
            libc::signal(signal, libc::SIG_DFL);
            libc::raise(signal);
        }
    }
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT] {
        // SAFETY: a zeroed `sigaction` is valid; both outlive the calls.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            libc::sigaction(signal, std::ptr::null(), &mut action);
            if action.sa_sigaction == libc::SIG_DFL {
                action.sa_sigaction = end as *const () as usize;
                action.sa_flags = libc::SA_NODEFER;
                libc::sigaction(signal, &action, null_mut());
            }
        }
    }
}
