//! Measures how long a call of a plugin has been running, for threads that wait for the plugin.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Tells how long a plugin's current call has been running, step by step. A step begins when the
/// agent calls a function of the plugin, and whenever events are written. Any thread may read a
/// `Progress`.
#[derive(Debug, Default)]
pub struct Progress {
    /// Time at which the latest step of the current call began, in ms of the monotonic clock; 0
    /// while the plugin is not being called.
    since_ms: AtomicU64,
    /// Time at which the latest step began. Unlike `since_ms`, this time stays after the call has
    /// returned.
    last_ms: AtomicU64,
    given_up: AtomicBool,
}

impl Progress {
    /// Begins a step: called before a function of the plugin, and when events are written.
    pub fn step(&self) {
        let now = now_ms();
        self.last_ms.store(now, Ordering::Relaxed);
        self.since_ms.store(now, Ordering::Relaxed);
    }

    /// Called when a call begins. If an earlier call of the plugin has not returned, the measured
    /// time is still that of the earlier call.
    pub fn begins(&self) {
        let (idle, now) = (0, now_ms());
        let _ = self.since_ms.compare_exchange(idle, now, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Called when the call has returned, before the next call can begin.
    pub fn ends(&self) {
        self.since_ms.store(0, Ordering::Relaxed);
    }

    pub fn give_up(&self) {
        self.given_up.store(true, Ordering::Relaxed);
    }

    /// Returns whether the plugin has taken too long, and must not be called again.
    pub fn is_given_up(&self) -> bool {
        self.given_up.load(Ordering::Relaxed)
    }

    /// Returns how much of `patience`, the time that one step may take, is left.
    pub fn left(&self, patience: Duration) -> Duration {
        match self.since_ms.load(Ordering::Relaxed) {
            0 => patience,
            since => left_since(since, patience),
        }
    }

    /// Returns how much of `patience` is left for a thread whose call has returned, but which has
    /// not ended yet. The destructors of the plugin's thread-local objects are part of the last
    /// step.
    pub fn left_for_end(&self, patience: Duration) -> Duration {
        left_since(self.last_ms.load(Ordering::Relaxed), patience)
    }
}

fn left_since(since_ms: u64, patience: Duration) -> Duration {
    patience.saturating_sub(Duration::from_millis(now_ms().saturating_sub(since_ms)))
}

/// Returns the time of the monotonic clock in ms, which is never 0.
fn now_ms() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` has space for the result and outlives the call.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000 + 1
}

#[cfg(test)]
mod tests {
    use super::{Duration, Progress};

    #[test]
    fn the_end_of_a_thread_has_what_its_last_step_has_left() {
        let (progress, patience) = (Progress::default(), Duration::from_secs(60));
        progress.step();
        std::thread::sleep(Duration::from_millis(30));
        progress.ends();
        assert_eq!(progress.left(patience), patience);
        assert!(progress.left_for_end(patience) <= patience - Duration::from_millis(29));
        assert!(progress.left_for_end(Duration::from_millis(20)).is_zero());
    }
}
