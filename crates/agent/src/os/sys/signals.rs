//! Keeps the host's signal handlers away.

use std::ffi::c_long;

/// Blocks signals on this thread until dropped, so that none of the host's handlers runs. Used for
/// work that a forked child must not find half done. Signals caused by the thread's own
/// instructions stay unblocked. So does glibc's signal for `setuid` and its relatives
/// (`SIGSETXID`): they wait until every thread has handled it.
pub struct SignalsBlocked(u64);

/// glibc's own signals: the first asks a thread to end (`pthread_cancel`), the second one sets the
/// ids of a thread. glibc's functions do not block them; a bare system call does.
const SIGCANCEL: i32 = 32;
const SIGSETXID: i32 = 33;

impl SignalsBlocked {
    /// Blocks the signals. A request to cancel the thread waits as well.
    pub fn new() -> Self {
        Self::except(&[SIGSETXID])
    }

    /// Blocks the signals in order to start threads, which inherit the mask: they get none of the
    /// program's signals, and all of glibc's.
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
