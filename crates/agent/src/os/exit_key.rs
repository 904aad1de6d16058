//! Calls a function when a thread exits, if the thread has registered a value for it.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, Ordering};

/// A function, and the key (`pthread_key_create`) under which threads register its argument.
pub struct ExitKey {
    key: AtomicU32,
    function: unsafe extern "C" fn(*mut c_void),
}

const NONE: u32 = u32::MAX;

impl ExitKey {
    pub const fn new(function: unsafe extern "C" fn(*mut c_void)) -> Self {
        Self { key: AtomicU32::new(NONE), function }
    }

    /// Makes the calling thread call the function with `value` when the thread exits. If no further
    /// key can be created, the function will not be called.
    pub fn register(&self, value: *mut c_void) {
        let mut key = self.key.load(Ordering::Acquire);
        if key == NONE {
            let mut fresh: libc::pthread_key_t = 0;
            // SAFETY: `function` has the type that pthread requires and stays valid, because this
            // library is never unloaded.
            if unsafe { libc::pthread_key_create(&mut fresh, Some(self.function)) } != 0 {
                return;
            }
            match self.key.compare_exchange(key, fresh, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => key = fresh,
                Err(other) => {
                    // SAFETY: the key was just created, and nobody else uses it.
                    unsafe { libc::pthread_key_delete(fresh) };
                    key = other;
                }
            }
        }
        // SAFETY: the key was created by this thread or by another one, and is never deleted.
        unsafe { libc::pthread_setspecific(key, value) };
    }
}
