//! Provides pages of memory for data that would take too much of the program's stack, on paths that
//! are too hot to switch to another stack ([`super::own_stack`]). Unused pages are kept in a fixed
//! number of places. Each thread looks at only a few of these places. Usually, one atomic operation
//! takes a page, and one gives it back.
//!
//! The caller must give a page back explicitly. A destructor could not do this, because functions
//! through which the program's exceptions pass must not need any clean-up (`adapters/iree/probe.rs`
//! says why). If an exception passes through a function that has taken a page, this page is never
//! given back.

use std::sync::atomic::{AtomicPtr, Ordering};

use crate::os::sys;

pub const BYTES: usize = 4096;

const PLACES: usize = 64;
/// Number of places that one thread looks at. A thread seldom uses more pages at once.
const OF_THREAD: usize = 4;

/// The address of an unused page, or null. Each place has its own cache line, because different
/// threads use the places.
#[repr(align(64))]
struct Place(AtomicPtr<u8>);

static FREE: [Place; PLACES] = [const { Place(AtomicPtr::new(std::ptr::null_mut())) }; PLACES];

#[inline(always)]
fn places() -> impl Iterator<Item = &'static AtomicPtr<u8>> {
    // SAFETY: `pthread_self` has no preconditions.
    let thread = unsafe { libc::pthread_self() } as u64;
    let first = (thread.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 58) as usize;
    (first..first + OF_THREAD).map(|at| &FREE[at % PLACES].0)
}

/// Returns memory for a `T`, with undefined content, or `None` if there is no memory.
#[inline(always)]
pub fn take<T>() -> Option<*mut T> {
    const { assert!(size_of::<T>() <= BYTES && align_of::<T>() <= BYTES) };
    for place in places() {
        let free = place.swap(std::ptr::null_mut(), Ordering::Acquire);
        if !free.is_null() {
            return Some(free.cast());
        }
    }
    map().map(<*mut u8>::cast)
}

#[cold]
#[inline(never)]
fn map() -> Option<*mut u8> {
    sys::map_present(BYTES).ok()
}

/// Gives memory back. Unmaps it if none of the thread's places is free.
///
/// # Safety
/// The memory must be from [`take`], and must not be used any more.
#[inline(always)]
pub unsafe fn give_back<T>(page: *mut T) {
    let page = page.cast::<u8>();
    for place in places() {
        let order = (Ordering::Release, Ordering::Relaxed);
        if place.compare_exchange(std::ptr::null_mut(), page, order.0, order.1).is_ok() {
            return;
        }
    }
    unmap(page);
}

#[cold]
#[inline(never)]
fn unmap(page: *mut u8) {
    sys::unmap(page, BYTES);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A thread takes several pages at once if a user's collector itself makes calls.
    #[test]
    fn a_thread_finds_the_pages_again_that_it_gave_back() {
        let take = || take::<u64>().expect("memory");
        let mut first: Vec<_> = (0..OF_THREAD).map(|_| take()).collect();
        for (i, page) in first.iter().enumerate() {
            // SAFETY: the page was taken above and is not given back yet.
            unsafe { **page = i as u64 };
        }
        for (i, page) in first.iter().enumerate() {
            // SAFETY: taken above.
            unsafe {
                assert_eq!(**page, i as u64);
                give_back(*page);
            }
        }
        let mut again: Vec<_> = (0..OF_THREAD).map(|_| take()).collect();
        first.sort();
        again.sort();
        assert_eq!(first, again);
        // SAFETY: the pages were taken above, and nobody uses them any more.
        again.iter().for_each(|page| unsafe { give_back(*page) });
    }

    fn is_mapped(page: *mut u64) -> bool {
        let mut present = 0u8;
        // SAFETY: `mincore` does not read the page, and writes one byte about it to `present`.
        unsafe { libc::mincore(page.cast(), BYTES, &mut present) == 0 }
    }

    /// Uses a forked child, where no other thread can map memory at the address of a page that was
    /// just unmapped.
    #[test]
    fn a_page_for_which_no_place_is_free_is_unmapped() {
        let pages: [_; OF_THREAD + 1] = std::array::from_fn(|_| take::<u64>().expect("memory"));
        // SAFETY: the child only makes system calls, and ends without returning.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // Another test may have given back pages before the fork, so the places are emptied
            // first.
            places().for_each(|place| place.store(std::ptr::null_mut(), Ordering::Relaxed));
            let before = pages.iter().all(|page| is_mapped(*page));
            // SAFETY: the pages were taken above, and nobody uses them any more in the child.
            pages.iter().for_each(|page| unsafe { give_back(*page) });
            let left = pages.iter().filter(|page| is_mapped(**page)).count();
            let fails = !before || left != OF_THREAD;
            // SAFETY: `_exit` has no preconditions.
            unsafe { libc::_exit(i32::from(fails)) };
        }
        let mut status = 0;
        // SAFETY: `status` outlives the call.
        let ended = unsafe { libc::waitpid(child, &mut status, 0) };
        assert_eq!((ended, status), (child, 0));
    }
}
