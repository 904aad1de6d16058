//! The epoch: the number of what is being recorded. It is 1 for what the environment asks for, and
//! one more for each session.
//!
//! The state of a thread belongs to an epoch, too, and is valid only while the two are equal. So one
//! relaxed load tells a thread that nothing is being recorded, that it has to begin anew, or that
//! the agent is off.

use std::sync::atomic::{AtomicU32, Ordering};

/// Nothing is being recorded.
pub const IDLE: u32 = u32::MAX - 1;
/// Nothing will ever be recorded: after an error of our own, or where recording is impossible.
pub const OFF: u32 = u32::MAX;
/// What the environment asks for.
const OF_ENVIRONMENT: u32 = 1;

static EPOCH: AtomicU32 = AtomicU32::new(IDLE);

/// Whether there is anything to do in this process at all. One relaxed load.
#[inline(always)]
pub fn wanted() -> bool {
    EPOCH.load(Ordering::Relaxed) < IDLE
}

/// What is being recorded; while nothing is, a number that no thread has. One relaxed load.
#[inline(always)]
pub fn current() -> u32 {
    EPOCH.load(Ordering::Relaxed)
}

/// Whether [`switch_off`] was called.
pub fn is_off() -> bool {
    current() == OFF
}

/// Switches the agent off for good and returns the epoch that was current before. Calls pass
/// through; what was recorded stays.
pub fn switch_off() -> u32 {
    EPOCH.swap(OFF, Ordering::SeqCst)
}

/// Begins to record what the environment asks for. Called by the constructor.
pub fn begin_environment() {
    EPOCH.store(OF_ENVIRONMENT, Ordering::Release);
}

/// Begins the epoch of a session. The caller holds the process's lock, and nothing is being
/// recorded.
pub fn begin_session() {
    static LAST: AtomicU32 = AtomicU32::new(OF_ENVIRONMENT);
    // After four thousand million sessions the numbers begin again.
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
