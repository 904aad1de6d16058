//! Locks a mutex even if a thread panicked while it held the mutex. Such a panic leaves nothing
//! half done, because no function of CUDA or CUPTI is called under a mutex that their callbacks
//! lock.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Waits until the mutex is free, and locks it.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
