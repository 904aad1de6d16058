//! A source of runs: an adapter's own way of asking for a profile, when there is no run file. IREE's
//! original hook has one, its environment variables.

use std::sync::atomic::{AtomicPtr, Ordering};

/// What a source of runs can do. All of it is cold.
#[derive(Debug)]
pub struct RunSource {
    /// How its variables begin: a program that gets one of them is asked to record, too.
    pub prefix: &'static [u8],
    /// In the constructor: whether the environment asks for a profile in this way. Not called in a
    /// process that has more rights than its user.
    pub is_asked_for: fn() -> bool,
    /// At the first thing to record: has the run file made, and puts its path into the buffer,
    /// terminated. False: nothing can be recorded, and the user has been told why.
    pub prepare: fn(&mut [u8]) -> bool,
    /// In the destructor: reports on the profile at this path.
    pub report: fn(&str),
}

static SOURCE: AtomicPtr<RunSource> = AtomicPtr::new(std::ptr::null_mut());

/// Makes `source` the one that this process asks. Called by the constructor.
pub fn set(source: &'static RunSource) {
    SOURCE.store(std::ptr::from_ref(source).cast_mut(), Ordering::Release);
}

/// The source of this process, if its run file comes from one.
pub fn current() -> Option<&'static RunSource> {
    // SAFETY: null, or what `set` was given.
    unsafe { SOURCE.load(Ordering::Acquire).as_ref() }
}
