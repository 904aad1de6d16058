//! Gives the sampling thread its own table of file descriptors. If the sampled files were in the
//! program's table, the program's own files would get other numbers, and the program could close
//! the sampled files.

use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd};

/// Gives the calling thread a new table, without the program's descriptors. In the new table, the
/// numbers 0 to 2 are `/dev/null`, so that text that the thread prints does not go into a sampled
/// file. Returns false before Linux 5.9, or if the system call is forbidden.
pub fn leave_the_programs() -> bool {
    let (first, last) = (0u32, u32::MAX);
    // SAFETY: close_range takes numbers only. It closes no descriptor of another thread, because
    // the kernel first makes a copy of the table for this thread.
    let left =
        unsafe { libc::syscall(libc::SYS_close_range, first, last, libc::CLOSE_RANGE_UNSHARE) };
    if left == 0 {
        for _ in 0..3 {
            let null = File::options().read(true).write(true).open("/dev/null");
            let _ = null.map(IntoRawFd::into_raw_fd);
        }
    }
    left == 0
}

/// Moves the file to a descriptor number from 100 on, if possible. If the thread still uses the
/// program's table, low numbers stay free for the program's own files.
pub fn high(file: File) -> File {
    const LOWEST: libc::c_int = 100;
    // SAFETY: `file` keeps its descriptor open, and the new descriptor belongs to nobody else.
    unsafe {
        match libc::fcntl(file.as_raw_fd(), libc::F_DUPFD_CLOEXEC, LOWEST) {
            -1 => file,
            number => File::from_raw_fd(number),
        }
    }
}
