//! Keeps the state that this process inherited, and passes it on unchanged to the profiled program.
//!
//! A Rust program changes some state that its child would otherwise inherit. Rust's runtime ignores
//! SIGPIPE and opens `/dev/null` for standard streams that were closed. Counterpoint sets SIGCHLD
//! to its default action (so that it can wait for the program), ignores SIGXFSZ, and raises
//! `RLIMIT_FSIZE` for the recorder's files. This file restores the original state in the child
//! process before the child executes the program.

use std::ffi::{CStr, c_char, c_int};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use record::pool::Layout;

use crate::failure::Failure;

/// The disposition of SIGPIPE before Rust's runtime started, and which standard streams were closed
/// then.
static ON_BROKEN_PIPE: AtomicUsize = AtomicUsize::new(libc::SIG_DFL);
static CLOSED: [AtomicBool; 3] = [const { AtomicBool::new(false) }; 3];

type Start = extern "C" fn(c_int, *const *const c_char, *const *const c_char);

#[used]
#[unsafe(link_section = ".init_array")]
static NOTE: Start = note;

extern "C" fn note(count: c_int, words: *const *const c_char, _environment: *const *const c_char) {
    // SAFETY: glibc passes what `main` gets: an array of `count` C strings. The second string is
    // read only if there are at least two.
    if count > 1 && unsafe { CStr::from_ptr(*words.add(1)) } == c"run" {
        go_without_stack_overflow_message();
    }
    // SAFETY: zeros are a valid `sigaction`, and `action` outlives the calls; no other code of this
    // program runs yet.
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

/// Prevents Rust's runtime from preparing its message about stack overflows before `main`. To
/// prepare the message, glibc reads and parses `/proc/self/maps`, which takes 60 µs. Handlers for
/// SIGSEGV and SIGBUS make the runtime skip the preparation. The profiled program does not inherit
/// the handlers, because `execve` resets handled signals.
fn go_without_stack_overflow_message() {
    extern "C" fn end(signal: c_int) {
        // After this handler returns, the faulting instruction is executed again, and the signal
        // ends this process.
        // SAFETY: `signal` is async-signal-safe, and SIG_DFL is not a handler function.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    for signal in [libc::SIGSEGV, libc::SIGBUS] {
        // SAFETY: zeros are a valid `sigaction`, and `action` outlives the calls.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            libc::sigaction(signal, std::ptr::null(), &mut action);
            if action.sa_sigaction == libc::SIG_DFL {
                action.sa_sigaction = end as *const () as usize;
                libc::sigaction(signal, &action, std::ptr::null_mut());
            }
        }
    }
}

#[derive(Clone, Copy)]
pub struct Inherited {
    file_size: libc::rlimit,
    on_excess: libc::sighandler_t,
    on_child: libc::sighandler_t,
}

/// Raises the soft limit on open files to the hard limit.
pub fn allow_many_files() {
    let mut files = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `files` outlives the calls. If one of the system calls fails, the limit does not
    // change.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &mut files) == 0 {
            files.rlim_cur = files.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &files);
        }
    }
}

/// Raises the soft limit on file sizes to the hard limit, and makes a write above the limit fail
/// without SIGXFSZ. Sets SIGCHLD to its default action, so that this process can wait for its
/// children. Returns an error if the hard limit is too small for the recorder's memory file (the
/// pool) with the layout `pool`.
pub fn prepare_process(pool: Layout) -> Result<Inherited, Failure> {
    let mut file_size = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `file_size` outlives the call.
    unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &mut file_size) };
    let needed = pool.bytes() as u64;
    if file_size.rlim_max < needed {
        return Err(Failure::new(format!(
            "the hard limit on file sizes is {} bytes, but the recorder needs {needed}",
            file_size.rlim_max
        ))
        .hint("raise it where it was set (ulimit -Hf, limits.conf, a service's LimitFSIZE=)"));
    }
    let lifted = libc::rlimit { rlim_cur: file_size.rlim_max, rlim_max: file_size.rlim_max };
    // SAFETY: `lifted` outlives the call, and `signal` gets no handler function.
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
    /// Returns the size in bytes of the largest file that the profiled program may write.
    pub fn longest_file(&self) -> u64 {
        self.file_size.rlim_cur
    }

    /// Restores the original state in the child process. Makes only system calls.
    pub fn restore(&self) {
        // SAFETY: `file_size` outlives the call.
        unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &self.file_size) };
        restore_signal(libc::SIGXFSZ, self.on_excess);
        restore_signal(libc::SIGCHLD, self.on_child);
        restore_before_start();
    }
}

/// Restores what Rust's runtime changed before `main`. Makes only system calls.
pub fn restore_before_start() {
    restore_signal(libc::SIGPIPE, ON_BROKEN_PIPE.load(Ordering::Relaxed));
    for (stream, closed) in CLOSED.iter().enumerate() {
        if closed.load(Ordering::Relaxed) {
            // SAFETY: this process started without the stream, so the descriptor is `/dev/null`,
            // which Rust's runtime opened and nobody else uses.
            unsafe { libc::close(stream as i32) };
        }
    }
}

/// Restores the disposition of a signal. The signal was either ignored or had the default action,
/// because handlers do not survive the `execve` that started this process.
fn restore_signal(signal: c_int, before: libc::sighandler_t) {
    let ignored = before == libc::SIG_IGN;
    // SAFETY: `signal` gets SIG_IGN or SIG_DFL and no handler function.
    unsafe { libc::signal(signal, if ignored { libc::SIG_IGN } else { libc::SIG_DFL }) };
}
