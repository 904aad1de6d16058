//! What this process inherited, and hands on to the program unchanged.
//!
//! Being a Rust program that starts another changes things that the program would have got: the
//! runtime ignores SIGPIPE and opens `/dev/null` for standard streams that were closed, waiting
//! needs SIGCHLD, and the recorder's files need a larger `RLIMIT_FSIZE`. What was there before is
//! noted before `main` and put back between fork and exec.
//!
//! Mostly there is nothing to put back, and the program is then started without a fork, by
//! `posix_spawn`, which does not copy the tables of our pages.

use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::failure::Failure;

/// SIGPIPE's disposition and whether streams 0 to 2 were closed, before Rust's runtime started.
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

/// What the program is to find as it was.
#[derive(Clone, Copy)]
pub struct Inherited {
    file_size: libc::rlimit,
    on_child: libc::sighandler_t,
}

/// Makes this process fit to record and to wait: lifts the soft limit on file sizes to the hard
/// one (passing it gives an error instead of SIGXFSZ) and lets children be waited for.
pub fn prepare_process() -> Result<Inherited, Failure> {
    let mut file_size = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `file_size` outlives the call.
    unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &mut file_size) };
    let needed = record::pool::POOL_BYTES as u64;
    if file_size.rlim_max < needed {
        return Err(Failure::new(format!(
            "the hard limit on file sizes is {} bytes, the recorder needs {needed}",
            file_size.rlim_max
        ))
        .hint("raise it where it was set (ulimit -Hf, limits.conf, a service's LimitFSIZE=)"));
    }
    let lifted = libc::rlimit { rlim_cur: file_size.rlim_max, rlim_max: file_size.rlim_max };
    // SAFETY: plain calls with valid arguments; the handler does nothing.
    unsafe {
        if file_size.rlim_cur != lifted.rlim_cur {
            libc::setrlimit(libc::RLIMIT_FSIZE, &lifted);
        }
        // Exec puts a handler back to the default, so that only an ignored signal is left to hand
        // on; that it stays ignored needs no help either.
        let on_excess = libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
        if on_excess != libc::SIG_IGN {
            libc::signal(libc::SIGXFSZ, unheard as *const () as libc::sighandler_t);
        }
        Ok(Inherited { file_size, on_child: libc::signal(libc::SIGCHLD, libc::SIG_DFL) })
    }
}

/// The write that went too far returns `EFBIG`, which is all that is wanted.
extern "C" fn unheard(_: i32) {}

impl Inherited {
    /// Has the program start with what was there before.
    pub fn restore_in(self, command: &mut Command) {
        let child = self.on_child == libc::SIG_IGN;
        let pipe = ON_BROKEN_PIPE.load(Ordering::Relaxed) == libc::SIG_IGN;
        let limited = self.file_size.rlim_cur != self.file_size.rlim_max;
        let closed = CLOSED.iter().any(|closed| closed.load(Ordering::Relaxed));
        // SIGPIPE is the default in the program of a `Command` that does not say otherwise.
        if !(child || pipe || limited || closed) {
            return;
        }
        // SAFETY: between fork and exec only async-signal-safe functions are called.
        unsafe {
            command.pre_exec(move || {
                libc::setrlimit(libc::RLIMIT_FSIZE, &self.file_size);
                for (signal, ignore) in [(libc::SIGCHLD, child), (libc::SIGPIPE, pipe)] {
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

/// Starts the program. A file that is executable and of no format that the kernel knows is run by
/// a shell, as `execvp` does and `posix_spawn` does not.
pub fn spawn(command: &mut Command) -> std::io::Result<Child> {
    match command.spawn() {
        Err(e) if e.raw_os_error() == Some(libc::ENOEXEC) => {
            // A command that has something to do in the child is started by fork and `execvp`.
            // SAFETY: nothing is called.
            unsafe { command.pre_exec(|| Ok(())) };
            command.spawn()
        }
        started => started,
    }
}
