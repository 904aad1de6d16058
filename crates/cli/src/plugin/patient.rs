//! Reads from the process of a plugin, and stops with an error if no data arrives for too long.

use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::time::Duration;

pub const PATIENCE: Duration = Duration::from_secs(30);

pub fn gave_up(patience: Duration) -> String {
    format!("took longer than {} seconds and was given up", patience.as_secs_f64().ceil())
}

/// A pipe with a limit on each wait. A read that has to wait longer fails with
/// [`io::ErrorKind::TimedOut`].
pub struct Patient<R> {
    pipe: R,
    patience: Duration,
}

impl<R> Patient<R> {
    pub fn new(pipe: R) -> Self {
        Self { pipe, patience: PATIENCE }
    }

    pub fn wait_at_most(&mut self, patience: Duration) {
        self.patience = patience;
    }
}

impl<R: Read + AsRawFd> Read for Patient<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let mut wanted =
            libc::pollfd { fd: self.pipe.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: the call gets one entry, `wanted`, which outlives the call.
        let ready = unsafe { libc::poll(&mut wanted, 1, self.patience.as_millis() as i32) };
        match ready {
            0 => Err(io::ErrorKind::TimedOut.into()),
            // The caller repeats the read if a signal interrupted the wait.
            n if n < 0 => Err(io::Error::last_os_error()),
            _ => self.pipe.read(to),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_silent_pipe_is_given_up_and_a_closed_one_ends() {
        let (pipe, mut writes) = io::pipe().expect("a pipe");
        let mut reader = Patient { pipe, patience: Duration::from_millis(10) };
        writes.write_all(b"answer").expect("writes");
        let mut text = Vec::new();
        let error = reader.read_to_end(&mut text).expect_err("nobody closes it");
        assert_eq!((error.kind(), &text[..]), (io::ErrorKind::TimedOut, &b"answer"[..]));
        drop(writes);
        assert_eq!(reader.read_to_end(&mut text).expect("it ends"), 0);
    }
}
