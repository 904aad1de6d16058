//! Defines places at which tests kill a writer, to see which files it leaves, or stop it, to see
//! what other processes do meanwhile.
//!
//! In a release build, a step does nothing.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// The number of steps until the process kills or stops itself; 0 if it does not.
static LEFT: AtomicU32 = AtomicU32::new(0);
/// Whether the process stops, instead of killing itself, when [`LEFT`] becomes 0.
static ONLY_STOPS: AtomicBool = AtomicBool::new(false);

/// Makes this process kill itself at this step, counted from 1.
pub fn die_at(step: u32) {
    LEFT.store(step, Ordering::Relaxed);
}

/// Makes this process stop at this step, as SIGSTOP does.
pub fn stop_at(step: u32) {
    ONLY_STOPS.store(true, Ordering::Relaxed);
    LEFT.store(step, Ordering::Relaxed);
}

pub(crate) fn step() {
    if !cfg!(debug_assertions) {
        return;
    }
    let before =
        LEFT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
    if before == Ok(1) {
        let own = rustix::process::getpid();
        if ONLY_STOPS.load(Ordering::Relaxed) {
            let _ = rustix::process::kill_process(own, rustix::process::Signal::STOP);
            return;
        }
        // SIGKILL leaves the process no chance to remove its files.
        let _ = rustix::process::kill_process(own, rustix::process::Signal::KILL);
        std::process::abort();
    }
}
