//! Keeps the program's signals away from a plugin's threads.

/// Blocks the program's signals on this thread until this value is dropped. Make a value before you
/// start a thread, and drop it afterwards: a new thread inherits the blocked signals. Signals of a
/// thread's own faults stay unblocked, and so do those that glibc itself sends to threads (for
/// `setuid`).
#[derive(Debug)]
pub struct Blocked {
    before: libc::sigset_t,
}

impl Blocked {
    /// Blocks the signals. This call and the drop take one system call each.
    #[allow(clippy::new_without_default, reason = "what blocks signals should say so")]
    pub fn new() -> Self {
        const OWN: [i32; 7] = [
            libc::SIGSEGV,
            libc::SIGBUS,
            libc::SIGILL,
            libc::SIGFPE,
            libc::SIGTRAP,
            libc::SIGSYS,
            libc::SIGABRT,
        ];
        // SAFETY: the sets are local variables, for which zeros are a valid value, and they outlive
        // the calls.
        unsafe {
            let mut all: libc::sigset_t = std::mem::zeroed();
            let mut before = std::mem::zeroed();
            libc::sigfillset(&mut all);
            for signal in OWN {
                libc::sigdelset(&mut all, signal);
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, &all, &mut before);
            Self { before }
        }
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        // SAFETY: `before` is the set that the thread had, and outlives the call.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, std::ptr::null_mut()) };
    }
}
