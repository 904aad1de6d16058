//! How this crate takes a mutex: a thread that panicked while it held the mutex does not keep others from it.
//! Nothing is left half done by such a panic, because no function of CUDA's or CUPTI's is called under a mutex
//! that their callbacks take.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Waits for the mutex.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
