//! State that this process inherited and passes on to the program unchanged.
//!
//! A Rust program changes some state that its child would otherwise inherit. The runtime ignores
//! SIGPIPE and opens `/dev/null` for standard streams that were closed. We need SIGCHLD to wait for
//! the program, and the recorder's files need a larger `RLIMIT_FSIZE`. This module remembers the
//! original state before `main` and restores it between fork and exec.

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::failure::Failure;

/// The disposition of SIGPIPE, and whether streams 0 to 2 were closed, before Rust's runtime
/// started.
static ON_BROKEN_PIPE: AtomicUsize = AtomicUsize::new(libc::SIG_DFL);
static CLOSED: [AtomicBool; 3] = [const { AtomicBool::new(false) }; 3];

#[used]
#[unsafe(link_section = ".init_array")]
static NOTE: extern "C" fn() = note;

extern "C" fn note() {
    // SAFETY: plain system calls with valid arguments; nothing else runs yet.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        if libc::sigaction(libc::SIGPIPE, std::ptr::null(), &mut action) == 0 {
            ON_BROKEN_PIPE.store(action.sa_sigaction, Ordering::Relaxed);
        }
        for (stream, closed) in CLOSED.iter().enumerate() {
            closed.store(libc::fcntl(stream as i32, libc::F_GETFD) < 0, Ordering::Relaxed);
        }
    }
}

/// The state to restore for the program.
#[derive(Clone, Copy)]
pub struct Inherited {
    file_size: libc::rlimit,
    on_excess: libc::sighandler_t,
    on_child: libc::sighandler_t,
}

/// Prepares this process for recording and waiting. Raises the soft limit on file sizes to the hard
/// limit, makes a write above it an error instead of SIGXFSZ, and allows waiting for children.
pub fn prepare_process() -> Result<Inherited, Failure> {
    let mut file_size = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `file_size` outlives the call.
    unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &mut file_size) };
    let needed = record::pool::POOL_BYTES as u64;
    if file_size.rlim_max < needed {
        return Err(Failure::new(format!(
            "the hard limit on file sizes is {} bytes, but the recorder needs {needed}",
            file_size.rlim_max
        ))
        .hint("raise it where it was set (ulimit -Hf, limits.conf, a service's LimitFSIZE=)"));
    }
    let lifted = libc::rlimit { rlim_cur: file_size.rlim_max, rlim_max: file_size.rlim_max };
    // SAFETY: system calls with valid arguments.
    unsafe {
        libc::setrlimit(libc::RLIMIT_FSIZE, &lifted);
        Ok(Inherited {
            file_size,
            on_excess: libc::signal(libc::SIGXFSZ, libc::SIG_IGN),
            on_child: libc::signal(libc::SIGCHLD, libc::SIG_DFL),
        })
    }
}

impl Inherited {
    /// Makes `command` start the program with the original state.
    pub fn restore_in(self, command: &mut Command) {
        let ignored = |handler: usize| handler == libc::SIG_IGN;
        let (excess, child) = (ignored(self.on_excess), ignored(self.on_child));
        let pipe = ignored(ON_BROKEN_PIPE.load(Ordering::Relaxed));
        // SAFETY: between fork and exec only async-signal-safe functions are called. Handlers do
        // not survive exec, so what was not ignored is the default.
        unsafe {
            command.pre_exec(move || {
                libc::setrlimit(libc::RLIMIT_FSIZE, &self.file_size);
                for (signal, ignore) in
                    [(libc::SIGXFSZ, excess), (libc::SIGCHLD, child), (libc::SIGPIPE, pipe)]
                {
                    libc::signal(signal, if ignore { libc::SIG_IGN } else { libc::SIG_DFL });
                }
                for (stream, closed) in CLOSED.iter().enumerate() {
                    if closed.load(Ordering::Relaxed) {
                        libc::close(stream as i32);
                    }
                }
                Ok(())
            });
        }
    }
}
