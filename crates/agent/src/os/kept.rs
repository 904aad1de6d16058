//! Memory on the heap that lives as long as the process.
//!
//! LeakSanitizer, in a host that is built with it, reports memory that no pointer leads to. It looks
//! for pointers in the writable data of each library, on stacks and on the heap, but not in memory
//! in mappings, where most of our state is ([`crate::process::part`], [`crate::recorder::thread`]).
//! Whatever is never freed is therefore in one list, whose head is in our data.

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

#[repr(C)]
struct Kept<T> {
    /// What was kept before this; never followed by us.
    before: *mut c_void,
    value: T,
}

static NEWEST: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// Keeps `value` until the process ends. May be called on any thread; allocates.
pub fn keep<T: 'static>(value: T) -> &'static T {
    let node = Box::into_raw(Box::new(Kept { before: ptr::null_mut(), value }));
    let mut before = NEWEST.load(Ordering::Relaxed);
    loop {
        // SAFETY: made above; nobody else knows it before the exchange below succeeds.
        unsafe { (*node).before = before };
        match NEWEST.compare_exchange_weak(
            before,
            node.cast(),
            Ordering::Release,
            Ordering::Relaxed,
        ) {
            // SAFETY: never freed, and from now on never written.
            Ok(_) => return unsafe { &(*node).value },
            Err(newer) => before = newer,
        }
    }
}
