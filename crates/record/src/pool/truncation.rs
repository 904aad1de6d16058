//! Keeps a process alive if a program truncates a pool that the process has mapped.
//!
//! The kernel sends SIGBUS for an access to a mapping beyond the end of the file. A program can
//! truncate its pool at any moment, so checking the size first does not help. Therefore
//! Counterpoint's own processes read from the file instead of a mapping where possible. That is not
//! possible for words that change by atomic operations (claims, losses, the number of offered
//! pages), nor for the word of a futex. The part of the pool with these words is mapped and
//! guarded: our handler of SIGBUS replaces the mapping by private zeros. The interrupted operation
//! then continues on a pool in which nothing is claimed and nothing is offered.
//!
//! Signal handlers would disturb a recorded program, so only Counterpoint's own processes use this
//! guard.

use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Start and end of each guarded mapping; start 0 if the entry is free.
static GUARDED: [[AtomicUsize; 2]; 8] = [const { [const { AtomicUsize::new(0) }; 2] }; 8];
/// The handler of SIGBUS that the process had before ours.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

/// Guards a mapping as long as this value exists.
#[derive(Debug)]
pub struct TruncationGuard {
    place: &'static [AtomicUsize; 2],
}

impl TruncationGuard {
    /// Guards the memory in `range`, which must begin and end on a page boundary.
    ///
    /// # Errors
    /// Returns the `errno` if the handler cannot be set, or EAGAIN if there are too many guards.
    ///
    /// # Safety
    /// The range must be a mapping that belongs to the caller until the guard is dropped. The
    /// caller must allow that its content becomes zero at any moment.
    pub unsafe fn new(range: Range<usize>) -> Result<Self, i32> {
        set_handler()?;
        let place = GUARDED.iter().find(|[start, _]| {
            start.compare_exchange(0, range.start, Ordering::SeqCst, Ordering::SeqCst).is_ok()
        });
        let place = place.ok_or(libc::EAGAIN)?;
        place[1].store(range.end, Ordering::SeqCst);
        Ok(Self { place })
    }
}

impl Drop for TruncationGuard {
    fn drop(&mut self) {
        self.place[1].store(0, Ordering::SeqCst);
        self.place[0].store(0, Ordering::SeqCst);
    }
}

fn set_handler() -> Result<(), i32> {
    if BEFORE.get().is_some() {
        return Ok(());
    }
    // SAFETY: zeros are a valid value of `sigaction`, and the actions outlive the calls. The
    // handler only reads atomics and makes system calls, so it may interrupt any code.
    unsafe {
        let (mut action, mut before): (libc::sigaction, libc::sigaction) = std::mem::zeroed();
        action.sa_sigaction = on_bus_error as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        // Our other signal handlers may access the mapping, so they must not interrupt this one.
        libc::sigfillset(&mut action.sa_mask);
        if libc::sigaction(libc::SIGBUS, std::ptr::null(), &mut before) != 0 {
            return Err(super::errno());
        }
        // The earlier handler is stored before ours can run. If another thread has already stored
        // a handler, that handler stays.
        let _ = BEFORE.set(before);
        match libc::sigaction(libc::SIGBUS, &action, std::ptr::null_mut()) {
            0 => Ok(()),
            _ => Err(super::errno()),
        }
    }
}

extern "C" fn on_bus_error(_: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid pointer to handlers with SA_SIGINFO.
    let (code, at) = unsafe { ((*info).si_code, (*info).si_addr() as usize) };
    if code > 0 {
        for [start, end] in &GUARDED {
            let range = start.load(Ordering::SeqCst)..end.load(Ordering::SeqCst);
            if range.contains(&at) && replace(range) {
                return;
            }
        }
    }
    // A process sent the signal, the fault is in no guarded mapping, or the mapping could not be
    // replaced. The earlier handler is set again, so it gets the fault when the processor repeats
    // the instruction.
    if let Some(before) = BEFORE.get() {
        // SAFETY: `before` is an action that sigaction returned, and is never freed.
        unsafe { libc::sigaction(libc::SIGBUS, before, std::ptr::null_mut()) };
    }
    if code <= 0 {
        // A process has sent the signal, so no instruction is repeated. The earlier handler gets
        // this second signal when this handler returns.
        // SAFETY: `raise` is async-signal-safe.
        unsafe { libc::raise(libc::SIGBUS) };
    }
}

fn replace(range: Range<usize>) -> bool {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::c_long::from(flags));
    let (none, zero) = (libc::c_long::from(-1), libc::c_long::from(0));
    // SAFETY: `TruncationGuard::new` requires that the caller owns the range, so it may be
    // replaced.
    let place = unsafe {
        let access = libc::c_long::from(access);
        libc::syscall(libc::SYS_mmap, range.start, range.len(), access, flags, none, zero)
    };
    place != -1
}
