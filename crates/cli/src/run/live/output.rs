//! Redirects the program's output and terminal input while a view is on the terminal.

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};

pub struct Output {
    file: File,
    /// Whether stdout and stderr are terminals.
    of: [bool; 2],
    /// The part of the file from this offset on has not been shown yet.
    from: u64,
}

/// The redirected descriptors, each with a copy of the original one. The original descriptors are
/// restored when this value is dropped.
pub struct Redirected(Vec<(RawFd, OwnedFd)>);

impl Output {
    /// Creates the file for the output.
    ///
    /// # Errors
    /// Returns an error if the file can be created neither in the temporary directory nor in
    /// memory.
    pub fn new() -> io::Result<Self> {
        let mut options = File::options();
        options.read(true).append(true).custom_flags(libc::O_TMPFILE).mode(0o600);
        let file = options.open(std::env::temp_dir()).or_else(|_| {
            // glibc 2.17, which the release supports, has no function for this system call.
            // SAFETY: the name is a C string, and the kernel does not keep the pointer.
            let file = unsafe {
                libc::syscall(libc::SYS_memfd_create, c"output".as_ptr(), libc::MFD_CLOEXEC)
            };
            match RawFd::try_from(file) {
                // SAFETY: the system call returned this descriptor as a new one, so nothing else
                // owns it.
                Ok(file @ 0..) => Ok(unsafe { File::from_raw_fd(file) }),
                _ => Err(io::Error::last_os_error()),
            }
        })?;
        let of = [io::stdout().is_terminal(), io::stderr().is_terminal()];
        Ok(Self { file, of, from: 0 })
    }

    /// Redirects the standard descriptors that are terminals.
    pub fn redirect(&self) -> Redirected {
        let mut before = Vec::new();
        let null = File::open("/dev/null").ok();
        let input = null.as_ref().filter(|_| io::stdin().is_terminal());
        let files = [
            input,
            Some(&self.file).filter(|_| self.of[0]),
            Some(&self.file).filter(|_| self.of[1]),
        ];
        for (number, file) in (0..).zip(files) {
            let Some(file) = file else { continue };
            // SAFETY: fcntl and dup2 take numbers only, and nothing else owns the new descriptor.
            unsafe {
                let kept = libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 3);
                if kept < 0 || libc::dup2(file.as_raw_fd(), number) < 0 {
                    continue;
                }
                before.push((number, OwnedFd::from_raw_fd(kept)));
            }
        }
        Redirected(before)
    }

    /// Shows what the program has written since the last call of this function.
    pub fn pass_on(&mut self) {
        let mut part = vec![0; 1 << 16];
        while let Ok(read @ 1..) = self.file.read_at(&mut part, self.from) {
            self.from += read as u64;
            // The output is not escaped: without the view, the program would write the same bytes
            // to the terminal.
            let shown = match self.of {
                [true, _] => io::stdout().write_all(&part[..read]),
                _ => io::stderr().write_all(&part[..read]),
            };
            if shown.is_err() {
                return;
            }
        }
        let _ = io::stdout().flush();
    }
}

impl Drop for Redirected {
    fn drop(&mut self) {
        for (number, file) in &self.0 {
            // SAFETY: dup2 takes numbers only, and `file` keeps its descriptor open.
            unsafe { libc::dup2(file.as_raw_fd(), *number) };
        }
    }
}
