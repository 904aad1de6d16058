//! Memory for copies of an environment, which are passed to `exec` or `posix_spawn`. A copy is
//! needed until the call returns, but a successful `exec` does not return. So a child of `vfork`
//! cannot give back the memory of its copy, which remains in the address space of the parent.
//!
//! So each place (piece of memory) stores which thread took it: the thread's pointer, which a child
//! of `vfork` shares with its parent, and the thread's id, which they do not share. A thread that
//! calls `vfork` continues when its child has become another program or has ended. So if a thread
//! finds a place with its own pointer and the id of another thread, the place is free.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use crate::os::sys;

struct Kept {
    /// The pointer of the thread that uses the place, or 0.
    thread: AtomicUsize,
    id: AtomicU32,
    /// The address of the place's memory, which exists only if `bytes` is not 0. Only the thread
    /// that has taken the place uses this field.
    at: AtomicUsize,
    bytes: AtomicUsize,
}

/// The places that are kept for reuse. If more are needed at the same time, further memory is
/// mapped, and unmapped after use.
static KEPT: [Kept; 64] = [const {
    Kept {
        thread: AtomicUsize::new(0),
        id: AtomicU32::new(0),
        at: AtomicUsize::new(0),
        bytes: AtomicUsize::new(0),
    }
}; 64];

pub struct Place {
    at: *mut u8,
    bytes: usize,
    kept: Option<&'static Kept>,
}

impl Place {
    /// Returns a place for this many bytes, or `None` if there is no memory.
    pub fn take(bytes: usize) -> Option<Self> {
        // SAFETY: `pthread_self` has no preconditions. In a child of `vfork`, it returns the
        // pointer of the parent's thread.
        let thread = unsafe { libc::pthread_self() } as usize;
        let id = sys::thread_id();
        let left = |kept: &&Kept| {
            kept.thread.load(Ordering::Acquire) == thread && kept.id.load(Ordering::Relaxed) != id
        };
        let claim = |kept: &&Kept| {
            kept.thread.compare_exchange(0, thread, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        let Some(kept) = KEPT.iter().find(left).or_else(|| KEPT.iter().find(claim)) else {
            return Some(Self { at: sys::map_zeros(bytes).ok()?, bytes, kept: None });
        };
        kept.id.store(id, Ordering::Relaxed);
        let place = |at: usize| Self { at: at as *mut u8, bytes, kept: Some(kept) };
        let (at, has) = (kept.at.load(Ordering::Relaxed), kept.bytes.load(Ordering::Relaxed));
        if has >= bytes {
            return Some(place(at));
        }
        if has > 0 {
            kept.bytes.store(0, Ordering::Relaxed);
            sys::unmap(at as *mut u8, has);
        }
        let Ok(fresh) = sys::map_zeros(bytes) else {
            kept.thread.store(0, Ordering::Release);
            return None;
        };
        kept.at.store(fresh as usize, Ordering::Relaxed);
        kept.bytes.store(bytes, Ordering::Relaxed);
        Some(place(fresh as usize))
    }

    pub fn at(&self) -> *mut u8 {
        self.at
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        match self.kept {
            Some(kept) => kept.thread.store(0, Ordering::Release),
            None => sys::unmap(self.at, self.bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A place in use is not given to a second user, but a place that a child of `vfork` has left
    /// is used again.
    #[test]
    fn a_place_left_by_a_child_of_vfork_is_used_again() {
        let first = Place::take(100).expect("a place");
        let other = Place::take(100).expect("a place");
        assert_ne!(first.at(), other.at());
        let at = first.at();
        let kept = first.kept.expect("kept");
        // A child of `vfork` that has become another program leaves a place with its own thread id.
        kept.id.store(u32::MAX, Ordering::Relaxed);
        std::mem::forget(first);
        assert_eq!(Place::take(50).expect("a place").at(), at);
        drop(other);
        let large = Place::take(1 << 20).expect("a place");
        // SAFETY: the place was taken with this size.
        unsafe { large.at().write_bytes(1, 1 << 20) };
    }
}
