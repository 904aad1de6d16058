//! A source of runs: an adapter's own way of asking for a profile when there is no run file. The
//! environment variables of IREE's original hook are one.

use std::sync::atomic::{AtomicPtr, Ordering};

/// The functions of a source of runs. None of them runs on a hot path.
#[derive(Debug)]
pub struct RunSource {
    /// Common prefix of the environment variables that ask for such a profile. A program that receives one of them is recorded
    /// too.
    pub prefix: &'static [u8],
    /// Called by the constructor: returns whether the environment asks for a profile in this way.
    /// Not called in a process that has more rights than its user.
    pub is_asked_for: fn() -> bool,
    /// Called when there is something to record for the first time: makes the run file, and writes
    /// its NUL-terminated path to the buffer. Returns false if nothing can be recorded; the user
    /// has then been told why.
    pub prepare: fn(&mut [u8]) -> bool,
    /// Called by the destructor: reports on the profile at this path.
    pub report: fn(&str),
}

static SOURCE: AtomicPtr<RunSource> = AtomicPtr::new(std::ptr::null_mut());

/// Makes `source` the one that this process uses. Called by the constructor.
pub fn set(source: &'static RunSource) {
    SOURCE.store(std::ptr::from_ref(source).cast_mut(), Ordering::Release);
}

/// Returns this process's source, if its run file comes from one.
pub fn current() -> Option<&'static RunSource> {
    // SAFETY: `SOURCE` is null or a value that `set` received, which lives for ever.
    unsafe { SOURCE.load(Ordering::Acquire).as_ref() }
}
