//! Opens the object files and source texts that a profile names.
//!
//! | who has made the profile | where a file is looked for |
//! |---|---|
//! | the caller: the profile's directory and manifest belong to the caller, and not everybody can write to them | in the directories that the caller named, and then at the file's path |
//! | anybody else | only in the directories that the caller named |
//!
//! A page of `report --html` takes files only from the directories that the caller named, unless
//! `--code` is given.
//!
//! In a directory that the caller named, a file is looked up first at its whole path
//! (`DIR/usr/lib/x.so`), and then by its name (`DIR/x.so`). No link in the directory is followed.
//!
//! Even in the caller's own profile, a path may lead to something that must not be opened. Opening
//! a terminal or a pipe has effects, and `/proc/kmsg` claims to be a regular empty file but blocks
//! its reader. Therefore the file at a path from the profile is first looked up without opening it
//! (`O_PATH`). It is opened only if it is a regular file on a file system that stores files. No
//! more bytes are read than the file had when it was opened.

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Component, Path, PathBuf};

use profile::Profile;
use profile::safe_dir::Dir;

use crate::view::rights::is_of_caller;

#[derive(Debug, Default)]
pub struct Files {
    /// Whether the profile belongs to the caller, as the first row of the table says.
    is_own: bool,
    /// Whether no file is opened at a path from the profile, even if the profile belongs to the
    /// caller.
    is_unasked: bool,
    directories: Vec<PathBuf>,
}

impl Files {
    /// Looks for files in `directories`, and also at the paths from the profile if the profile
    /// belongs to the caller.
    pub fn new(profile: &Profile, directories: Vec<PathBuf>) -> Self {
        Self { is_own: is_of_caller(profile.root()), is_unasked: false, directories }
    }

    /// Looks for files only in the directories that the caller named.
    pub fn unnamed(profile: &Profile, directories: Vec<PathBuf>) -> Self {
        Self { is_unasked: true, ..Self::new(profile, directories) }
    }

    /// Reads a file that the profile names. `option` is the name of the command's option for
    /// directories; error messages mention this option.
    pub fn read(&self, path: &str, most: u64, option: &str) -> Result<(Vec<u8>, Metadata), String> {
        let mut why = None;
        for directory in &self.directories {
            match below(directory, Path::new(path)) {
                Ok(file) => return whole(file, most).map_err(|e| format!("open {path}: {e}")),
                Err(e) if e.is_not_found() => {}
                Err(e) => drop(why.get_or_insert(e.to_string())),
            }
        }
        if self.is_own && !self.is_unasked {
            let read = plain(Path::new(path)).and_then(|file| whole(file, most));
            return read.map_err(|e| why.unwrap_or_else(|| format!("open {path}: {e}")));
        }
        Err(why.unwrap_or_else(|| match self.directories.is_empty() {
            true if self.is_own => {
                format!("{path} is not opened, because neither --code nor {option} DIR is given")
            }
            true => format!(
                "{path} is not opened, because somebody else made the profile; {option} DIR says \
                 where files may be read"
            ),
            false => format!("{path} is not in the directories of {option}"),
        }))
    }
}

/// Opens a file in a directory: at its whole path or, if there is no such file, by its name.
fn below(directory: &Path, path: &Path) -> profile::Result<File> {
    let root = Dir::open(directory)?;
    let names: Vec<_> = path
        .components()
        .filter_map(|part| match part {
            Component::Normal(name) => Some(name),
            _ => None,
        })
        .collect();
    let Some((name, above)) = names.split_last() else { return root.file("") };
    let at_path = above.iter().try_fold(root.clone(), |dir, name| dir.dir(name));
    match at_path.and_then(|dir| dir.file(name)) {
        Err(e) if e.is_not_found() => root.file(name),
        other => other,
    }
}

/// File systems whose regular files store nothing: the kernel makes the bytes when a file is read.
/// The numbers are from `linux/magic.h` and from the sources of the file systems.
const MADE_UP: [i64; 17] = [
    0x9fa0,      // proc
    0x6265_6572, // sysfs
    0x7472_6163, // tracefs
    0x6462_6720, // debugfs
    0x7363_6673, // securityfs
    0x0027_e0eb, // cgroup
    0x6367_7270, // cgroup2
    0xcafe_4a11, // bpf
    0x6165_676c, // pstore
    0xde5e_81e4, // efivarfs
    0x6265_6570, // configfs
    0xf97c_ff8c, // selinux
    0x4341_5d53, // smack
    0x4249_4e4d, // binfmt_misc
    0x6573_5543, // fusectl
    0x1980_0202, // mqueue
    0x0765_5821, // resctrl
];

/// Opens a regular file whose file system stores its contents. For other files, this function fails
/// without opening them.
fn plain(path: &Path) -> io::Result<File> {
    let found =
        File::options().read(true).custom_flags(libc::O_PATH | libc::O_CLOEXEC).open(path)?;
    if !found.metadata()?.is_file() {
        return Err(io::Error::other("it is not a plain file"));
    }
    // SAFETY: `statfs` consists of integers, so zeros are a valid value of it, and `system`
    // outlives the call of `fstatfs`.
    let system = unsafe {
        let mut system: libc::statfs = std::mem::zeroed();
        match libc::fstatfs(found.as_raw_fd(), &mut system) {
            0 => system.f_type,
            _ => return Err(io::Error::last_os_error()),
        }
    };
    if MADE_UP.contains(&system) {
        return Err(io::Error::other("the kernel makes it up when it is read"));
    }
    let path = format!("/proc/self/fd/{}", found.as_raw_fd());
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    File::options().read(true).custom_flags(flags).open(path)
}

/// Reads a regular file. Reads no more bytes than the file has now, and fails if the file has more
/// than `most` bytes.
fn whole(file: File, most: u64) -> io::Result<(Vec<u8>, Metadata)> {
    let found = file.metadata()?;
    if found.len() > most {
        return Err(io::Error::other(format!("it has {} bytes, more than are read", found.len())));
    }
    let mut bytes = Vec::new();
    file.take(found.len()).read_to_end(&mut bytes)?;
    Ok((bytes, found))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::process::Command;

    use testkit::Scratch;

    use super::*;

    #[test]
    fn only_files_that_store_bytes_are_opened() {
        let scratch = Scratch::new();
        std::fs::write(scratch.join("text"), "abc").unwrap();
        symlink("text", scratch.join("link")).unwrap();
        assert!(Command::new("mkfifo").arg(scratch.join("pipe")).status().unwrap().success());
        let own = Files { is_own: true, ..Files::default() };
        let read = |path: &Path| own.read(path.to_str().unwrap(), 3, "--objects");
        assert_eq!(read(&scratch.join("text")).unwrap().0, b"abc");
        assert_eq!(read(&scratch.join("link")).unwrap().0, b"abc");
        for path in [
            "/proc/self/pagemap",
            "/proc/kmsg",
            "/dev/ptmx",
            "/dev/zero",
            "/sys/kernel/uevent_seqnum",
        ] {
            assert!(read(Path::new(path)).is_err(), "{path}");
        }
        assert!(read(&scratch.join("pipe")).is_err());
        std::fs::write(scratch.join("text"), "abcd").unwrap();
        assert!(read(&scratch.join("text")).unwrap_err().contains("more than are read"));
    }

    #[test]
    fn files_of_others_are_looked_for_where_the_caller_says() {
        let scratch = Scratch::new();
        let dir = scratch.join("dir");
        std::fs::create_dir_all(dir.join("usr/lib")).unwrap();
        std::fs::write(scratch.join("secret"), "secret").unwrap();
        std::fs::write(dir.join("usr/lib/a.so"), "a").unwrap();
        std::fs::write(dir.join("b.so"), "b").unwrap();
        symlink("../secret", dir.join("c.so")).unwrap();
        let secret = scratch.join("secret").display().to_string();
        let foreign = Files::default();
        let why = foreign.read(&secret, 9, "--objects").unwrap_err();
        assert!(why.contains("somebody else") && why.contains("--objects DIR"), "{why}");
        let unasked = Files { is_own: true, is_unasked: true, ..Files::default() };
        let why = unasked.read(&secret, 9, "--objects").unwrap_err();
        assert!(why.contains("neither --code nor --objects DIR"), "{why}");
        let files = Files { directories: vec![dir], ..Files::default() };
        let read = |path: &str| files.read(path, 9, "--objects").map(|(bytes, _)| bytes);
        assert_eq!(read("/usr/lib/a.so").unwrap(), b"a");
        assert_eq!(read("/elsewhere/b.so").unwrap(), b"b");
        for path in [&*secret, "../secret", "/usr/../../secret", "/usr/lib/c.so", "/", ""] {
            assert!(read(path).is_err(), "{path}");
        }
    }
}
