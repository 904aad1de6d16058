//! Pages of memory for data that would take too much of the program's stack, on paths that are too
//! hot for a stack of our own ([`super::own_stack`]). One page is kept for the next user; taking
//! and giving it back is one atomic operation each.
//!
//! A page is given back by hand, because functions through which the program's exceptions pass must
//! have nothing to clean up (`adapters/iree/probe.rs` says why). If an exception does pass, its
//! page is lost.

use std::sync::atomic::{AtomicPtr, Ordering};

use crate::os::sys;

/// The size of a page in bytes.
pub const BYTES: usize = 4096;

/// A page that is free; null if there is none.
static FREE: AtomicPtr<u8> = AtomicPtr::new(std::ptr::null_mut());

/// Returns memory for a `T`, with any content, or `None` if there is no memory.
#[inline(always)]
pub fn take<T>() -> Option<*mut T> {
    const { assert!(size_of::<T>() <= BYTES && align_of::<T>() <= BYTES) };
    let free = FREE.swap(std::ptr::null_mut(), Ordering::Acquire);
    if free.is_null() { map().map(<*mut u8>::cast) } else { Some(free.cast()) }
}

#[cold]
#[inline(never)]
fn map() -> Option<*mut u8> {
    sys::map_present(BYTES).ok()
}

/// Gives memory back.
///
/// # Safety The memory must be from [`take`], and must not be used any more.
#[inline(always)]
pub unsafe fn give_back<T>(page: *mut T) {
    let other = FREE.swap(page.cast(), Ordering::AcqRel);
    if !other.is_null() {
        unmap(other);
    }
}

#[cold]
#[inline(never)]
fn unmap(page: *mut u8) {
    sys::unmap(page, BYTES);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_users_have_two_pages_and_one_is_kept() {
        let (first, second) = (take::<u64>().expect("memory"), take::<u64>().expect("memory"));
        assert_ne!(first, second);
        // SAFETY: both pointers were taken above and not given back yet.
        unsafe {
            (*first, *second) = (1, 2);
            assert_eq!(*first, 1);
            give_back(first);
            give_back(second);
        }
    }
}
