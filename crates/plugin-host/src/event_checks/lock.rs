//! The lock of a trace builder. The lock stores which thread has locked it. A signal handler of a
//! plugin may call the builder while it interrupts a call of the builder, or leave that call by
//! `longjmp`. With a mutex of the standard library, the thread would then wait for ever.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicUsize, Ordering};

#[derive(Debug, Default)]
pub(super) struct Lock<T> {
    /// The number of the thread that has the lock, or 0.
    owner: AtomicUsize,
    value: UnsafeCell<T>,
}

// SAFETY: a guard, of which there is one at a time, is the only way to the value.
unsafe impl<T: Send> Sync for Lock<T> {}

/// The error if the calling thread already has the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Held;

/// Returns a number of the calling thread, which no other living thread has. It is not 0.
fn this_thread() -> usize {
    thread_local! {
        static PLACE: u8 = const { 0 };
    }
    PLACE.with(|place| std::ptr::from_ref(place) as usize)
}

impl<T> Lock<T> {
    /// Locks the value. The lock is held only during short calls, so a thread waits for it in a
    /// simple loop.
    #[inline]
    pub(super) fn lock(&self) -> Result<Guard<'_, T>, Held> {
        let me = this_thread();
        match self.owner.compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => Ok(Guard(self)),
            Err(owner) if owner == me => Err(Held),
            Err(_) => Ok(self.wait(me)),
        }
    }

    /// Like [`Lock::lock`], for a thread that is not inside of a call that holds this lock. If the
    /// lock still names this thread, the thread left such a call by a jump, so it gets the lock
    /// again.
    pub(super) fn lock_outermost(&self) -> Guard<'_, T> {
        self.lock().unwrap_or(Guard(self))
    }

    #[cold]
    fn wait(&self, me: usize) -> Guard<'_, T> {
        loop {
            std::thread::yield_now();
            let free = self.owner.load(Ordering::Relaxed) == 0;
            let ours = || self.owner.compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed);
            if free && ours().is_ok() {
                return Guard(self);
            }
        }
    }
}

#[derive(Debug)]
pub(super) struct Guard<'a, T>(&'a Lock<T>);

impl<T> Deref for Guard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: there is one guard at a time, and it is borrowed here, so no mutable reference to
        // the value exists.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: there is one guard at a time, and this call borrows it mutably.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.0.owner.store(0, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thread_at_a_time_and_never_the_same_one_twice() {
        let lock = Lock::<u64>::default();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..10_000 {
                        *lock.lock().expect("not held here") += 1;
                    }
                });
            }
        });
        let guard = lock.lock().expect("free");
        assert_eq!(*guard, 40_000);
        assert_eq!(lock.lock().err(), Some(Held));
        // The lock stays taken, as if the thread had left the call by a jump.
        std::mem::forget(guard);
        assert_eq!(lock.lock().err(), Some(Held));
        *lock.lock_outermost() += 1;
        assert_eq!(*lock.lock().expect("free again"), 40_001);
    }
}
