//! The recording of this process while it goes on, and how long its plugins may take.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use super::recording::{Recording, STEPS};
use crate::os::sys;
use crate::state::run::Run;

/// The recording of this process. A forked child must not look at it: another thread may have held
/// the lock at the fork.
static RECORDING: Mutex<Option<Recording>> = Mutex::new(None);
/// How long one call of a plugin may take, in ms.
static PATIENCE_MS: AtomicU64 = AtomicU64::new(0);

/// Keeps the recording until it ends.
pub fn keep(recording: Recording, run: &Run) {
    let patience = run.plugins.as_ref().map_or(0, |options| options.patience_ms);
    PATIENCE_MS.store(patience, Ordering::Relaxed);
    *RECORDING.lock().unwrap_or_else(PoisonError::into_inner) = Some(recording);
}

/// Calls `body` with the recording, if there is one. Returns whether there was.
pub fn with(body: impl FnOnce(&mut Recording)) -> bool {
    let mut recording = RECORDING.lock().unwrap_or_else(PoisonError::into_inner);
    recording.as_mut().map(body).is_some()
}

/// Waits for something that a plugin may never do. Returns `None` if no plugin has taken a step for
/// as long as one call may take.
pub fn patiently<T>(mut attempt: impl FnMut(Duration) -> Option<T>) -> Option<T> {
    let patience = Duration::from_millis(PATIENCE_MS.load(Ordering::Relaxed));
    let (mut steps, mut since) = (STEPS.load(Ordering::Relaxed), Instant::now());
    loop {
        let left = patience.saturating_sub(since.elapsed());
        if let Some(done) = attempt(left) {
            return Some(done);
        }
        let now = STEPS.load(Ordering::Relaxed);
        if now != steps {
            (steps, since) = (now, Instant::now());
        } else if since.elapsed() >= patience {
            return None;
        }
    }
}

/// Takes the recording out, so that it ends. Returns `None` if there is none, or if a plugin hangs
/// while the control thread has called it.
pub fn take() -> Option<Recording> {
    patiently(|_| match RECORDING.try_lock() {
        Ok(mut recording) => Some(recording.take()),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner().take()),
        Err(TryLockError::WouldBlock) => {
            sys::nap();
            None
        }
    })?
}
