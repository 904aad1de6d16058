//! Catches crashes of a plugin after the program has ended, while the host takes the last events. A
//! fault or `abort` then ends the call instead of the process, so that other plugins hand over
//! their events and the program's own output is written.
//!
//! Only faults inside of a guarded call are caught, on threads that ask for it ([`OnThread`]). All
//! other signals have the effect that they had before.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicI32, AtomicPtr, Ordering};

use super::call;

/// The signals that faults and `abort` cause.
const SIGNALS: [c_int; 7] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGILL,
    libc::SIGFPE,
    libc::SIGTRAP,
    libc::SIGABRT,
    libc::SIGSYS,
];

/// The earlier actions of these signals. They are leaked, because a handler may be reading them.
static BEFORE: [AtomicPtr<libc::sigaction>; SIGNALS.len()] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; SIGNALS.len()];

static LAST: AtomicI32 = AtomicI32::new(0);

thread_local! {
    static IS_ASKED_FOR: Cell<bool> = const { Cell::new(false) };
}

/// Catches faults of guarded calls, on threads that have an [`OnThread`], as long as this value
/// exists. Only one such value may exist at a time.
#[derive(Debug)]
pub struct Caught(());

impl Caught {
    /// Begins to catch faults.
    pub fn new() -> Self {
        // SAFETY: zeros are a value of `sigaction`.
        let mut ours: libc::sigaction = unsafe { std::mem::zeroed() };
        ours.sa_sigaction = handle as *const () as usize;
        // The handler blocks no signals, so a jump out of it has nothing to restore.
        ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
        for (signal, place) in SIGNALS.into_iter().zip(&BEFORE) {
            // SAFETY: both actions outlive the calls, and `handle` may run in any context. The
            // earlier action is stored before ours is set, because a handler may read it at once.
            unsafe {
                let mut before: libc::sigaction = std::mem::zeroed();
                if libc::sigaction(signal, std::ptr::null(), &mut before) == 0 {
                    place.store(Box::leak(Box::new(before)), Ordering::Release);
                    libc::sigaction(signal, &ours, std::ptr::null_mut());
                }
            }
        }
        Self(())
    }

    /// Returns the signal of the last fault on a thread with an [`OnThread`], if there was one.
    pub fn last() -> Option<c_int> {
        Some(LAST.load(Ordering::Relaxed)).filter(|signal| *signal != 0)
    }
}

impl Default for Caught {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Caught {
    fn drop(&mut self) {
        for (signal, place) in SIGNALS.into_iter().zip(&BEFORE) {
            let before = place.load(Ordering::Acquire);
            // SAFETY: `now` outlives the call, and `before` is an action that is never freed.
            unsafe {
                let mut now: libc::sigaction = std::mem::zeroed();
                let is_ours = libc::sigaction(signal, std::ptr::null(), &mut now) == 0
                    && now.sa_sigaction == handle as *const () as usize;
                if is_ours && !before.is_null() {
                    libc::sigaction(signal, before, std::ptr::null_mut());
                }
            }
        }
    }
}

/// The size in bytes of the stack on which the handler runs. (The thread's own stack may be full.)
const STACK: usize = 64 * 1024;

/// Catches faults of guarded calls on this thread as long as this value and a [`Caught`] exist.
#[derive(Debug)]
pub struct OnThread {
    stack: *mut c_void,
    before: libc::stack_t,
}

impl OnThread {
    /// Begins to catch faults. Returns `None` if the thread cannot get a stack for the handler.
    pub fn new() -> Option<Self> {
        // SAFETY: the stack is new memory, which the thread uses for nothing else; `ours` and
        // `before` outlive the call.
        unsafe {
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let stack = libc::mmap(std::ptr::null_mut(), STACK, protection, flags, -1, 0);
            if stack == libc::MAP_FAILED {
                return None;
            }
            let mut before: libc::stack_t = std::mem::zeroed();
            let ours = libc::stack_t { ss_sp: stack, ss_flags: 0, ss_size: STACK };
            if libc::sigaltstack(&ours, &mut before) != 0 {
                libc::munmap(stack, STACK);
                return None;
            }
            IS_ASKED_FOR.set(true);
            Some(Self { stack, before })
        }
    }
}

impl Drop for OnThread {
    fn drop(&mut self) {
        IS_ASKED_FOR.set(false);
        // SAFETY: the thread gets the signal stack back that it had before, so nobody uses our
        // memory when it is unmapped.
        unsafe {
            libc::sigaltstack(&self.before, std::ptr::null_mut());
            libc::munmap(self.stack, STACK);
        }
    }
}

unsafe extern "C" fn handle(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes `info`, which is valid during the handler. For signals that a
    // process sends, the kernel sets `si_pid` to the sender's process id.
    let is_own = unsafe {
        let code = (*info).si_code;
        code > 0 || code == libc::SI_TKILL && (*info).si_pid() == libc::getpid()
    };
    if is_own && IS_ASKED_FOR.get() {
        LAST.store(signal, Ordering::Relaxed);
        // If this thread is in a guarded call, `leave_by` does not return.
        call::leave_by(signal);
    }
    let index = SIGNALS.iter().position(|known| *known == signal).unwrap_or(0);
    let before = BEFORE[index].load(Ordering::Acquire);
    // SAFETY: `before` is null or an action that is never freed.
    let Some(before) = (unsafe { before.as_ref() }) else { return };
    match before.sa_sigaction {
        libc::SIG_IGN if !is_own => {}
        libc::SIG_DFL | libc::SIG_IGN => {
            // After most faults, the same instruction runs again after the handler. After a breakpoint
            // or a forbidden system call, the next instruction runs.
            let goes_on = matches!(signal, libc::SIGTRAP | libc::SIGSYS);
            // SAFETY: the action outlives the call, which only changes what the signal does. A
            // signal that would not come back by itself is raised again here.
            unsafe {
                let mut default: libc::sigaction = std::mem::zeroed();
                default.sa_sigaction = libc::SIG_DFL;
                libc::sigaction(signal, &default, std::ptr::null_mut());
                if (*info).si_code <= 0 || goes_on {
                    libc::raise(signal);
                }
            }
        }
        // SAFETY: the handler is the program's own, and gets the arguments that the kernel would
        // pass to it.
        handler => unsafe {
            type Long = unsafe extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);
            std::mem::transmute::<usize, Long>(handler)(signal, info, context);
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(signal: c_int) {
        // SAFETY: these instructions cause a signal that ends the process, and nothing else.
        unsafe {
            match signal {
                #[cfg(target_arch = "x86_64")]
                libc::SIGTRAP => std::arch::asm!("int3"),
                #[cfg(target_arch = "aarch64")]
                libc::SIGTRAP => std::arch::asm!("brk #0"),
                #[cfg(target_arch = "x86_64")]
                libc::SIGILL => std::arch::asm!("ud2"),
                #[cfg(target_arch = "aarch64")]
                libc::SIGILL => std::arch::asm!("udf #0"),
                _ => _ = libc::raise(signal),
            }
        }
    }

    /// A thread that is not in a guarded call faults. The process ends as it would without us.
    #[test]
    fn a_fault_outside_of_guarded_calls_ends_the_process() {
        for signal in [libc::SIGTRAP, libc::SIGILL, libc::SIGABRT] {
            // SAFETY: the child makes only system calls and one allocation, for which glibc
            // prepares its allocator at a fork. It ends without returning.
            let child = unsafe { libc::fork() };
            if child == 0 {
                let _caught = Caught::new();
                fault(signal);
                // SAFETY: `_exit` has no preconditions.
                unsafe { libc::_exit(0) };
            }
            let mut status = 0;
            // SAFETY: `status` outlives the call.
            assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
            assert!(libc::WIFSIGNALED(status), "{signal}: it went on");
            assert_eq!(libc::WTERMSIG(status), signal);
        }
    }
}
