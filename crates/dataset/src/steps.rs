//! Places at which tests kill a writer, to see what it leaves.
//!
//! The steps of a process are numbered. Only a build for tests looks at the number; in a release, a
//! step is nothing.

use std::sync::atomic::{AtomicU32, Ordering};

/// The steps that are left until the process kills itself; 0 stands for no end.
static LEFT: AtomicU32 = AtomicU32::new(0);

/// Says that this process kills itself at this step, counted from 1.
pub fn die_at(step: u32) {
    LEFT.store(step, Ordering::Relaxed);
}

/// A place at which a writer may be killed.
pub(crate) fn step() {
    if !cfg!(debug_assertions) {
        return;
    }
    let before =
        LEFT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
    if before == Ok(1) {
        // A killed process cleans nothing up.
        let own = rustix::process::getpid();
        let _ = rustix::process::kill_process(own, rustix::process::Signal::KILL);
        std::process::abort();
    }
}
