//! Checks whether a file may be loaded as a plugin. Only a plain file may be loaded, because
//! opening a FIFO may block, and opening a device may have other effects. A file that root loads
//! runs with root's rights, so other users should not be able to change it or a directory above it.

use std::io;
use std::path::{Path, PathBuf};

/// A place where other users can change a plugin that root loads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exposed {
    /// The file or directory.
    pub place: PathBuf,
    /// Who can change it, and why.
    pub why: String,
    /// Whether a group or all users can change it; root then does not load the plugin. Otherwise
    /// the place belongs to one user who is not root. This is usual with sudo and in containers, so
    /// root loads the plugin.
    pub is_refused: bool,
}

impl std::fmt::Display for Exposed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.place.display(), self.why)
    }
}

/// Checks that a path leads to a plain file, also through links.
///
/// # Errors
/// The path cannot be examined, or leads to something else, which the error names.
pub fn plain(path: &Path) -> io::Result<()> {
    let kind = path.metadata()?.file_type();
    if kind.is_file() {
        return Ok(());
    }
    let name = special(kind);
    Err(io::Error::new(io::ErrorKind::InvalidInput, format!("is {name}, not a plain file")))
}

#[cfg(unix)]
fn special(kind: std::fs::FileType) -> &'static str {
    use std::os::unix::fs::FileTypeExt;
    match () {
        () if kind.is_dir() => "a directory",
        () if kind.is_fifo() => "a FIFO",
        () if kind.is_socket() => "a socket",
        () if kind.is_char_device() || kind.is_block_device() => "a device",
        () => "something else",
    }
}

#[cfg(not(unix))]
fn special(kind: std::fs::FileType) -> &'static str {
    if kind.is_dir() { "a directory" } else { "something else" }
}

/// If this process runs as root, returns a place where other users could change what is loaded for
/// `file`. `of_directory` means that the user named the file's directory, so a new file there
/// would be loaded, too.
#[cfg(unix)]
pub fn exposed_to_others(file: &Path, of_directory: bool) -> Option<Exposed> {
    // SAFETY: `geteuid` has no preconditions.
    if unsafe { libc::geteuid() } != 0 {
        return None;
    }
    // Other users could also change a link in the path as it was given, so that path is examined,
    // too.
    let written = std::path::absolute(file).ok()?;
    let real = file.canonicalize().ok()?;
    let (one, other) = (exposed(&real, of_directory), exposed(&written, of_directory));
    match (&one, &other) {
        (Some(found), _) if found.is_refused => one,
        (_, Some(found)) if found.is_refused => other,
        _ => one.or(other),
    }
}

/// Returns `None`, because this system has no user root.
#[cfg(not(unix))]
pub fn exposed_to_others(_file: &Path, _of_directory: bool) -> Option<Exposed> {
    None
}

#[cfg(unix)]
fn exposed(file: &Path, of_directory: bool) -> Option<Exposed> {
    use std::os::unix::fs::MetadataExt;
    const STICKY: u32 = 0o1000;
    let mut of_user = None;
    for (depth, place) in file.ancestors().enumerate() {
        let Ok(found) = place.metadata() else { continue };
        let exposed =
            |is_refused, why: String| Some(Exposed { place: place.to_owned(), why, is_refused });
        let by_group = found.mode() & 0o020 != 0 && found.gid() != 0;
        let by_all = found.mode() & 0o002 != 0;
        // In a sticky directory, users can add files, but not replace those of others.
        let is_kept = found.is_dir() && found.mode() & STICKY != 0 && !(of_directory && depth == 1);
        if (by_group || by_all) && !is_kept {
            let who =
                if by_all { "all users".to_owned() } else { format!("group {}", found.gid()) };
            let mode = found.mode() & 0o7777;
            return exposed(true, format!("can be changed by {who} (mode {mode:o})"));
        }
        if found.uid() != 0 && of_user.is_none() {
            of_user = exposed(false, format!("belongs to user {}", found.uid()));
        }
    }
    of_user
}

#[cfg(all(test, unix))]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use testkit::Scratch;

    use super::*;

    fn mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("changes the mode");
    }

    #[test]
    fn only_plain_files_pass_and_a_fifo_is_not_opened() {
        let scratch = Scratch::new();
        let file = scratch.join("a.so");
        fs::write(&file, "").expect("writes");
        assert!(plain(&file).is_ok());
        let fifo = scratch.join("b.so");
        let name = std::ffi::CString::new(fifo.to_str().expect("UTF-8")).expect("a C string");
        // SAFETY: `name` is a C string.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        let said = |path: &Path| plain(path).expect_err("not plain").to_string();
        assert_eq!(said(&fifo), "is a FIFO, not a plain file");
        assert_eq!(said(scratch.path()), "is a directory, not a plain file");
        assert_eq!(said(Path::new("/dev/null")), "is a device, not a plain file");
        assert!(plain(&scratch.join("absent")).is_err());
    }

    #[test]
    fn root_loads_nothing_that_others_can_change() {
        // SAFETY: `geteuid` has no preconditions.
        if unsafe { libc::geteuid() } != 0 {
            return testkit::skip("exposed_to_others", "only root refuses");
        }
        let scratch = Scratch::new();
        let (open, shut) = (scratch.join("open"), scratch.join("open/shut"));
        fs::create_dir_all(&shut).expect("makes directories");
        let file = shut.join("a.so");
        fs::write(&file, "").expect("writes");
        for path in [&open, &shut] {
            mode(path, 0o755);
        }
        mode(&file, 0o644);
        let found = |of_directory| exposed_to_others(&file, of_directory);
        let why = |of_directory| found(of_directory).map(|found| (found.place, found.is_refused));
        assert_eq!((why(false), why(true)), (None, None));
        mode(&file, 0o646);
        assert_eq!(why(false), Some((file.clone(), true)));
        mode(&file, 0o644);
        mode(&open, 0o777);
        assert_eq!(
            why(false),
            Some((open.clone(), true)),
            "it could be replaced by another directory"
        );
        mode(&open, 0o1777);
        assert_eq!((why(false), why(true)), (None, None), "others cannot replace what is in it");
        mode(&shut, 0o1777);
        assert_eq!(
            (why(false), why(true)),
            (None, Some((shut.clone(), true))),
            "others can add plugins"
        );
        mode(&shut, 0o755);
        std::os::unix::fs::chown(&file, Some(65_534), None).expect("root may");
        assert_eq!(why(false), Some((file.clone(), false)), "its owner can change it");
        std::os::unix::fs::chown(&file, Some(0), Some(65_534)).expect("root may");
        assert_eq!(why(false), None);
        mode(&file, 0o664);
        assert_eq!(why(false), Some((file.clone(), true)), "its group can change it");
    }
}
