//! The process's lock. A thread takes the lock for changes of shared data that only one thread at a
//! time may make.

use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use crate::os::sys;

/// Two words in memory that is zeroed in a forked child. The first word is the id of the thread
/// that has the lock, or 0 while the lock is free. The second word is 1 after the first call of
/// [`is_first_in_process`].
static WORDS: AtomicPtr<[AtomicU32; 2]> = AtomicPtr::new(std::ptr::null_mut());
const BYTES: usize = 4096;

fn words() -> Result<&'static [AtomicU32; 2], i32> {
    let mut at = WORDS.load(Ordering::Acquire);
    if at.is_null() {
        let fresh = sys::map_wiped_on_fork(BYTES)?.cast::<[AtomicU32; 2]>();
        match WORDS.compare_exchange(at, fresh, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => at = fresh,
            Err(other) => {
                sys::unmap(fresh.cast(), BYTES);
                at = other;
            }
        }
    }
    // SAFETY: `at` was mapped above, with zeros, and is never unmapped.
    Ok(unsafe { &*at })
}

/// Returns true at the first call in this process, and at every call if the memory for `WORDS`
/// cannot be mapped. A forked child counts as a new process.
pub fn is_first_in_process() -> bool {
    words().map_or(true, |[_, done]| done.swap(1, Ordering::Relaxed) == 0)
}

/// As long as this value exists, the thread that took it has the process's lock.
pub struct Lock {
    word: &'static AtomicU32,
    /// Unblocks the signals when dropped. This happens after `Lock::drop` has released the lock.
    _calm: sys::SignalsBlocked,
}

impl Lock {
    /// Waits for the lock, without a time limit. Returns `None` if the words could not be mapped,
    /// or if this thread already has the lock (in a signal handler).
    pub fn take() -> Option<Self> {
        let [word, _] = words().ok()?;
        let me = sys::thread_id();
        let calm = sys::SignalsBlocked::new();
        loop {
            match word.compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return Some(Self { word, _calm: calm }),
                Err(holder) if holder == me => return None,
                Err(_) => sys::nap(),
            }
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        self.word.store(0, Ordering::Release);
    }
}
