//! The program's output below a view.

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};

/// What the program writes to a terminal, until it can be shown.
pub struct Output {
    /// A file without a name.
    file: File,
    /// Which of stdout and stderr are terminals.
    of: [bool; 2],
    /// The start of the part that was not shown yet.
    from: u64,
}

/// Descriptors 0, 1 and 2 as they were; put back when this is dropped.
pub struct Redirected(Vec<(RawFd, OwnedFd)>);

impl Output {
    /// Makes the file.
    ///
    /// # Errors
    /// Neither a temporary directory nor memory has room for it.
    pub fn new() -> io::Result<Self> {
        let mut options = File::options();
        options.read(true).append(true).custom_flags(libc::O_TMPFILE).mode(0o600);
        let file = options.open(std::env::temp_dir()).or_else(|_| {
            // glibc 2.17 has no function for this system call.
            // SAFETY: the name is a C string.
            let file = unsafe {
                libc::syscall(libc::SYS_memfd_create, c"output".as_ptr(), libc::MFD_CLOEXEC)
            };
            match RawFd::try_from(file) {
                // SAFETY: the descriptor is new, and nobody else has it.
                Ok(file @ 0..) => Ok(unsafe { File::from_raw_fd(file) }),
                _ => Err(io::Error::last_os_error()),
            }
        })?;
        let of = [io::stdout().is_terminal(), io::stderr().is_terminal()];
        Ok(Self { file, of, from: 0 })
    }

    /// Lets the program write to the file instead of a terminal, and read nothing from one.
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
            // SAFETY: descriptors of our own; the new one belongs to nobody else.
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

    /// Shows what the program has written since the last time.
    pub fn pass_on(&mut self) {
        let mut part = vec![0; 1 << 16];
        while let Ok(read @ 1..) = self.file.read_at(&mut part, self.from) {
            self.from += read as u64;
            // As the program wrote it: it could have written to the terminal itself.
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
            // SAFETY: descriptors of our own.
            unsafe { libc::dup2(file.as_raw_fd(), *number) };
        }
    }
}
