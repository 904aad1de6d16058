//! Blocks most signals on a thread, for work of the agent that the host's signal handlers must not
//! interrupt.

use std::ffi::c_long;

/// Blocks most signals on this thread until dropped, for work that their handlers must not
/// interrupt, for example because a handler might fork. Signals that the thread's own instructions
/// cause stay unblocked, and so does glibc's `SIGSETXID`, because `setuid` and related functions
/// wait until every thread has handled it.
pub struct SignalsBlocked(u64);

/// glibc's own signals: `SIGCANCEL` asks a thread to end (`pthread_cancel`), `SIGSETXID` sets the
/// ids of a thread. glibc's functions for blocking signals leave these two out, but a bare system
/// call does not.
const SIGCANCEL: i32 = 32;
const SIGSETXID: i32 = 33;

impl SignalsBlocked {
    /// Blocks signals, also `SIGCANCEL`, so the thread cannot be cancelled meanwhile.
    pub fn new() -> Self {
        Self::except(&[SIGSETXID])
    }

    /// Blocks signals while threads are started. The new threads inherit the mask, so the kernel
    /// delivers the program's signals to other threads. glibc's own signals are not blocked.
    pub fn for_new_threads() -> Self {
        Self::except(&[SIGSETXID, SIGCANCEL])
    }

    fn except(open: &[i32]) -> Self {
        const OWN: [i32; 7] = [
            libc::SIGSEGV,
            libc::SIGBUS,
            libc::SIGILL,
            libc::SIGFPE,
            libc::SIGTRAP,
            libc::SIGSYS,
            libc::SIGABRT,
        ];
        let open = OWN.iter().chain(open);
        let all = open.fold(u64::MAX, |mask, signal| mask & !(1 << (signal - 1)));
        let mut before = 0u64;
        let (set, old) = (&raw const all, &raw mut before);
        let _ = syscall!(libc::SYS_rt_sigprocmask, libc::SIG_BLOCK, set, old, 8);
        Self(before)
    }
}

impl Drop for SignalsBlocked {
    fn drop(&mut self) {
        let set = &raw const self.0;
        let _ = syscall!(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, set, 0, 8);
    }
}
