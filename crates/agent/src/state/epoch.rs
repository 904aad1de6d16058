//! The epoch: a number that identifies the current recording. It is 1 for the recording that the
//! environment asks for, and increases by one with each session.
//!
//! The state of a thread also carries an epoch and is valid only while the two are equal. One
//! relaxed load therefore tells a thread that nothing is being recorded, that it must set up new
//! state, or that the agent is off.

use std::sync::atomic::{AtomicU32, Ordering};

/// Nothing is being recorded.
pub const IDLE: u32 = u32::MAX - 1;
/// Nothing will ever be recorded: there was an internal error, or recording is impossible here.
pub const OFF: u32 = u32::MAX;
/// The recording that the environment asks for.
const OF_ENVIRONMENT: u32 = 1;

static EPOCH: AtomicU32 = AtomicU32::new(IDLE);

/// Returns whether anything is being recorded in this process. One relaxed load.
#[inline(always)]
pub fn wanted() -> bool {
    EPOCH.load(Ordering::Relaxed) < IDLE
}

/// Returns the epoch of the current recording. While nothing is recorded, this is a number that no
/// thread has. One relaxed load.
#[inline(always)]
pub fn current() -> u32 {
    EPOCH.load(Ordering::Relaxed)
}

/// Returns whether [`switch_off`] was called.
pub fn is_off() -> bool {
    current() == OFF
}

/// Switches the agent off permanently and returns the previous epoch. Calls pass through from now
/// on; what was already recorded stays.
pub fn switch_off() -> u32 {
    EPOCH.swap(OFF, Ordering::SeqCst)
}

/// Starts the recording that the environment asks for. Called by the constructor.
pub fn begin_environment() {
    EPOCH.store(OF_ENVIRONMENT, Ordering::Release);
}

/// Starts the epoch of a session. The caller holds the process's lock, and nothing is being
/// recorded.
pub fn begin_session() {
    static LAST: AtomicU32 = AtomicU32::new(OF_ENVIRONMENT);
    // After 2^32 sessions, the numbers start again at 2.
    let mut epoch = LAST.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
    if !(2..IDLE).contains(&epoch) {
        epoch = 2;
        LAST.store(epoch, Ordering::Relaxed);
    }
    let _ = EPOCH.compare_exchange(IDLE, epoch, Ordering::SeqCst, Ordering::Relaxed);
}

/// Pauses recording; an agent that is off stays off.
pub fn pause() {
    let epoch = current();
    if epoch != OFF {
        let _ = EPOCH.compare_exchange(epoch, IDLE, Ordering::SeqCst, Ordering::Relaxed);
    }
}
