//! The limits of this process and of the program that it starts.
//!
//! `ulimit -f` bounds the program's files, and ours with them: the pool is a large sparse file,
//! and passing the limit raises SIGXFSZ, which kills. So this process lifts its own soft limit to
//! the hard one and takes an error number instead of the signal; the program gets back what the
//! user had set.

use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::failure::Failure;

/// What the user had set before [`lift_file_size`].
#[derive(Clone, Copy)]
pub struct Before {
    limit: libc::rlimit,
    on_excess: libc::sighandler_t,
}

/// Lifts the limit on file sizes as far as it goes.
pub fn lift_file_size() -> Result<Before, Failure> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` outlives the call.
    unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &mut limit) };
    let needed = record::pool::POOL_BYTES as u64;
    if limit.rlim_max < needed {
        return Err(Failure::new(format!(
            "the hard limit on file sizes is {} bytes, the recorder needs {needed}",
            limit.rlim_max
        ))
        .hint("raise it where it was set (ulimit -Hf, limits.conf, a service's LimitFSIZE=)"));
    }
    let lifted = libc::rlimit { rlim_cur: limit.rlim_max, rlim_max: limit.rlim_max };
    // SAFETY: plain calls with valid arguments.
    let on_excess = unsafe {
        libc::setrlimit(libc::RLIMIT_FSIZE, &lifted);
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN)
    };
    Ok(Before { limit, on_excess })
}

impl Before {
    /// Has the program start with the limit that the user had set.
    pub fn restore_in(self, command: &mut Command) {
        // SAFETY: between fork and exec only async-signal-safe functions are called.
        unsafe {
            command.pre_exec(move || {
                libc::setrlimit(libc::RLIMIT_FSIZE, &self.limit);
                libc::signal(libc::SIGXFSZ, self.on_excess);
                Ok(())
            });
        }
    }
}
