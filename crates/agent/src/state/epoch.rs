//! The epoch: a number that identifies the current recording. The epoch is 1 for the recording that
//! the environment asks for. Each session (a recording that the program itself begins) has the next
//! number.
//!
//! The recorder's state of a thread also contains an epoch, and is valid only if that epoch is the
//! current one. So with one relaxed load, a thread finds out whether it can record, must set up new
//! state, or has nothing to record.

use std::sync::atomic::{AtomicU32, Ordering};

/// The epoch while nothing is being recorded.
pub const IDLE: u32 = u32::MAX - 1;
/// The epoch after the agent was switched off permanently, for example because of an internal
/// error.
pub const OFF: u32 = u32::MAX;
/// The epoch of the recording that the environment asks for.
const OF_ENVIRONMENT: u32 = 1;

static EPOCH: AtomicU32 = AtomicU32::new(IDLE);

/// Returns whether anything is being recorded in this process. This costs one relaxed load.
#[inline(always)]
pub fn wanted() -> bool {
    EPOCH.load(Ordering::Relaxed) < IDLE
}

/// Returns the epoch of the current recording. While nothing is being recorded, returns a number
/// that no thread's state has. This costs one relaxed load.
#[inline(always)]
pub fn current() -> u32 {
    EPOCH.load(Ordering::Relaxed)
}

pub fn is_off() -> bool {
    current() == OFF
}

/// Switches the agent off permanently and returns the previous epoch. What was already recorded is
/// kept.
pub fn switch_off() -> u32 {
    EPOCH.swap(OFF, Ordering::SeqCst)
}

/// Called by the constructor.
pub fn begin_environment() {
    EPOCH.store(OF_ENVIRONMENT, Ordering::Release);
}

/// Starts the epoch of a session. The caller must have the process's lock, and no recording may be
/// in progress.
pub fn begin_session() {
    static LAST: AtomicU32 = AtomicU32::new(OF_ENVIRONMENT);
    // When all numbers below `IDLE` are used up, they start again at 2.
    let mut epoch = LAST.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
    if !(2..IDLE).contains(&epoch) {
        epoch = 2;
        LAST.store(epoch, Ordering::Relaxed);
    }
    let _ = EPOCH.compare_exchange(IDLE, epoch, Ordering::SeqCst, Ordering::Relaxed);
}

/// Ends the current epoch. Sets the epoch to [`IDLE`], unless the agent is switched off
/// permanently.
pub fn pause() {
    let epoch = current();
    if epoch != OFF {
        let _ = EPOCH.compare_exchange(epoch, IDLE, Ordering::SeqCst, Ordering::Relaxed);
    }
}
