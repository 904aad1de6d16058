//! Ends a recording on a thread of its own, so that a plugin that hangs cannot keep the program from
//! ending. The thread exists only for the end.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use super::control;
use super::recording::{Recording, STEPS};
use crate::os::sys;
use crate::process::guard::guarded;
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
fn patiently<T>(mut attempt: impl FnMut(Duration) -> Option<T>) -> Option<T> {
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

/// Takes the lock, unless a plugin hangs while the control thread holds it.
fn lock() -> Option<MutexGuard<'static, Option<Recording>>> {
    patiently(|_| match RECORDING.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => {
            sys::nap();
            None
        }
    })
}

/// Stops the plugins, takes their events and ends their files. Gives up after a call that takes too
/// long: then a file has no end, and says which call it was.
pub fn end() {
    let Some(recording) = lock().and_then(|mut guard| guard.take()) else { return };
    control::wake();
    let (done, ended) = channel();
    let (hand_over, take) = channel();
    let work = move || {
        if let Ok(recording) = take.recv() {
            guarded(|| Recording::end(recording));
        }
        let _ = done.send(());
    };
    // The thread inherits the mask, so it gets none of the program's signals.
    let calm = sys::SignalsBlocked::new();
    let thread = std::thread::Builder::new().name("plugins end".into()).spawn(work);
    drop(calm);
    match thread {
        Ok(_) => {
            if hand_over.send(recording).is_err() {
                return;
            }
            patiently(|left| match ended.recv_timeout(left) {
                Err(RecvTimeoutError::Timeout) => None,
                Ok(()) | Err(RecvTimeoutError::Disconnected) => Some(()),
            });
        }
        // A program that may start no thread (RLIMIT_NPROC, seccomp) waits however long it takes.
        Err(_) => _ = guarded(|| recording.end()),
    }
}
