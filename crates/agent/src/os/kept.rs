//! Allocates heap memory that is kept until the process ends.
//!
//! LeakSanitizer reports heap memory as leaked if no pointer leads to it. It looks for pointers in
//! the writable data of each library, on stacks and on the heap, but not in anonymous mappings,
//! where most of our state is. [`keep`] therefore links all values that it keeps into one list,
//! whose head is in this library's writable data.

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

#[repr(C)]
struct Kept<T> {
    /// The value that was kept before this one. Only LeakSanitizer follows this pointer.
    before: *mut c_void,
    value: T,
}

static NEWEST: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

pub fn keep<T: 'static>(value: T) -> &'static T {
    let node = Box::into_raw(Box::new(Kept { before: ptr::null_mut(), value }));
    let mut before = NEWEST.load(Ordering::Relaxed);
    loop {
        // SAFETY: the node was allocated above; no other thread has its address before the exchange
        // below succeeds.
        unsafe { (*node).before = before };
        match NEWEST.compare_exchange_weak(
            before,
            node.cast(),
            Ordering::Release,
            Ordering::Relaxed,
        ) {
            // SAFETY: the node is now in the list, and from now on nobody writes to it or frees it.
            Ok(_) => return unsafe { &(*node).value },
            Err(newer) => before = newer,
        }
    }
}
