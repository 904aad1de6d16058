//! A *source of runs* lets the environment ask for a profile without naming a run file, with
//! variables that one adapter defines. For example, IREE's original hook has its own environment
//! variables for this.

use std::sync::atomic::{AtomicPtr, Ordering};

/// The functions of a source of runs. None of them runs on a hot path.
#[derive(Debug)]
pub struct RunSource {
    /// Common prefix of the environment variables with which this source asks for a profile. A
    /// program that the process starts with one of these variables is recorded, too.
    pub prefix: &'static [u8],
    /// Called by the constructor if the environment names no run file, but not in a process that
    /// has more rights than its user.
    pub is_asked_for: fn() -> bool,
    /// Called when the process is about to record something for the first time. Makes the run file,
    /// and writes its NUL-terminated path to the buffer. Returns false if nothing can be recorded.
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
