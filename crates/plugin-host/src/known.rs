//! Finds the object for a handle that a plugin passes. A plugin may pass a handle that it has made
//! up or overwritten, so a handle is looked up before it is used.

use std::ffi::c_void;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A short list of objects that exist as long as the process.
#[derive(Debug)]
pub(crate) struct Known<T: 'static> {
    first: AtomicPtr<Node<T>>,
}

#[derive(Debug)]
struct Node<T: 'static> {
    object: &'static T,
    next: *mut Self,
}

impl<T> Known<T> {
    pub(crate) const fn new() -> Self {
        Self { first: AtomicPtr::new(std::ptr::null_mut()) }
    }

    /// Adds an object. The object's address is its handle.
    pub(crate) fn add(&self, object: &'static T) {
        let node: &'static mut Node<T> =
            Box::leak(Box::new(Node { object, next: std::ptr::null_mut() }));
        let mut next = self.first.load(Ordering::Relaxed);
        loop {
            node.next = next;
            let added = std::ptr::from_mut(node);
            match self.first.compare_exchange(next, added, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(other) => next = other,
            }
        }
    }

    /// Returns the object with this handle, without a lock.
    pub(crate) fn find(&self, handle: *const c_void) -> Option<&'static T> {
        let mut at = self.first.load(Ordering::Acquire);
        // SAFETY: `at` is null or a node that `add` has published, which is never freed or changed.
        while let Some(node) = unsafe { at.as_ref() } {
            if std::ptr::from_ref(node.object).cast::<c_void>() == handle {
                return Some(node.object);
            }
            at = node.next;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_handles_that_were_given_out_are_found() {
        static NUMBERS: Known<u64> = Known::new();
        let handle = |number: &u64| std::ptr::from_ref(number).cast::<c_void>();
        let [one, two]: [&'static u64; 2] = [1, 2].map(|number| &*Box::leak(Box::new(number)));
        NUMBERS.add(one);
        assert_eq!(NUMBERS.find(handle(two)), None);
        NUMBERS.add(two);
        assert_eq!(NUMBERS.find(handle(one)), Some(&1));
        assert_eq!(NUMBERS.find(handle(two)), Some(&2));
        assert_eq!(NUMBERS.find(std::ptr::null()), None);
        assert_eq!(NUMBERS.find(handle(one).wrapping_byte_add(1)), None);
    }
}
