//! Places at which tests kill a writer, to see which files it leaves.
//!
//! The steps of a process are numbered. Only a build for tests looks at the number; in a release, a
//! step does nothing.

use std::sync::atomic::{AtomicU32, Ordering};

/// The number of steps until the process kills itself; 0 if it does not.
static LEFT: AtomicU32 = AtomicU32::new(0);

/// Makes this process kill itself at this step, counted from 1.
pub fn die_at(step: u32) {
    LEFT.store(step, Ordering::Relaxed);
}

/// Marks a place at which a writer may be killed.
pub(crate) fn step() {
    if !cfg!(debug_assertions) {
        return;
    }
    let before =
        LEFT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
    if before == Ok(1) {
        // A killed process removes nothing that it has left.
        let own = rustix::process::getpid();
        let _ = rustix::process::kill_process(own, rustix::process::Signal::KILL);
        std::process::abort();
    }
}
