//! Gives a single test its own `/dev/shm`. Commands that remove leftover pools (the recorder's
//! shared memory) search all of `/dev/shm`, where the developer may have recordings that were not
//! collected yet.

use std::ffi::{CString, c_int};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::ptr::null;
use std::sync::atomic::{AtomicU32, Ordering};

use testkit::skip;

/// A directory that replaces `/dev/shm` for the commands of a test. It is removed when this value
/// is dropped.
#[derive(Debug)]
pub struct Memory {
    path: PathBuf,
}

impl Memory {
    /// Makes the directory. Skips the test and returns `None` if this user may not change the
    /// mounts of a process.
    pub fn new(test: &str) -> Option<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let (process, number) = (std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let path = PathBuf::from(format!("/dev/shm/test-of-counterpoint-{process}-{number}"));
        fs::DirBuilder::new().mode(0o1777).create(&path).unwrap();
        let memory = Self { path };
        let mut probe = Command::new("true");
        memory.make_shared(&mut probe);
        match probe.status() {
            Ok(status) if status.success() => Some(memory),
            failed => {
                skip(test, &format!("no mount namespaces for this user: {failed:?}"));
                None
            }
        }
    }

    /// Returns the path under which the test finds the directory. Commands find it as `/dev/shm`.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Replaces `/dev/shm` for a command, which keeps its user and rights.
    pub fn make_shared(&self, command: &mut Command) {
        let from = CString::new(self.path.as_os_str().as_bytes()).unwrap();
        // SAFETY: both calls have no preconditions.
        let (user, group) = unsafe { (libc::geteuid(), libc::getegid()) };
        let maps = [
            (c"/proc/self/setgroups", "deny".to_owned()),
            (c"/proc/self/uid_map", format!("{user} {user} 1")),
            (c"/proc/self/gid_map", format!("{group} {group} 1")),
        ];
        let shadow = move || {
            let flags = if user == 0 { 0 } else { libc::CLONE_NEWUSER };
            // SAFETY: the calls take numbers, null pointers, C strings, and a buffer with its
            // length. The strings and the buffer outlive the calls.
            unsafe {
                done(libc::unshare(flags | libc::CLONE_NEWNS))?;
                for (file, text) in maps.iter().filter(|_| user != 0) {
                    let file = done(libc::open(file.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC))?;
                    let written = libc::write(file, text.as_ptr().cast(), text.len());
                    done(written as c_int)?;
                }
                let (none, private) = (null(), libc::MS_REC | libc::MS_PRIVATE);
                done(libc::mount(none, c"/".as_ptr(), none, private, null()))?;
                let shared = c"/dev/shm".as_ptr();
                done(libc::mount(from.as_ptr(), shared, none, libc::MS_BIND, null()))?;
            }
            Ok(())
        };
        // SAFETY: between fork and exec, `shadow` only makes system calls.
        unsafe { command.pre_exec(shadow) };
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

fn done(result: c_int) -> io::Result<c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
