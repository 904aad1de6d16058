//! A *source of runs*: an adapter's own way in which the environment asks for a profile without a
//! run file, such as the environment variables of IREE's original hook.

use std::sync::atomic::{AtomicPtr, Ordering};

/// None of these functions runs on a hot path.
#[derive(Debug)]
pub struct RunSource {
    /// Common prefix of the environment variables with which this source asks for a profile. A
    /// program that the process starts with one of these variables is recorded, too.
    pub prefix: &'static [u8],
    /// Called by the constructor, but not in a process that has more rights than its user.
    pub is_asked_for: fn() -> bool,
    /// Called when there is something to record for the first time. Makes the run file, and writes
    /// its NUL-terminated path to the buffer. Returns false if nothing can be recorded.
    pub prepare: fn(&mut [u8]) -> bool,
    /// Prints a report about the profile at this path. Called by this library's destructor.
    pub report: fn(&str),
}

static SOURCE: AtomicPtr<RunSource> = AtomicPtr::new(std::ptr::null_mut());

/// Called by the constructor.
pub fn set(source: &'static RunSource) {
    SOURCE.store(std::ptr::from_ref(source).cast_mut(), Ordering::Release);
}

pub fn current() -> Option<&'static RunSource> {
    // SAFETY: `SOURCE` is null or a value that `set` received, which is never freed.
    unsafe { SOURCE.load(Ordering::Acquire).as_ref() }
}
