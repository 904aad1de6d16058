//! Locks a mutex even if a thread panicked while it held the mutex. The plugin then goes on with
//! the data that the mutex protects.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Waits until the mutex is free, and locks it.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
