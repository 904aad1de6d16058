//! Counts the memory that the program has allocated, and refuses allocations beyond a limit.
//!
//! A limit for the address space alone would have to be far too high, because threads have stacks
//! and arenas of many megabytes.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

static HELD: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);
static LIMIT: AtomicUsize = AtomicUsize::new(usize::MAX);

pub struct Held;

#[global_allocator]
static ALLOCATOR: Held = Held;

/// Sets the limit for the sum of allocated bytes. An allocation that would exceed it fails.
pub fn limit(bytes: usize) {
    LIMIT.store(bytes, Ordering::Relaxed);
}

/// Returns the largest number of bytes that were allocated at one time since the last call of this
/// function.
pub fn most() -> usize {
    MOST.swap(HELD.load(Ordering::Relaxed), Ordering::Relaxed)
}

pub fn now() -> usize {
    HELD.load(Ordering::Relaxed)
}

/// Adds `size` to the allocated bytes if the sum is within the limit, and returns whether it is.
fn take(size: usize) -> bool {
    let held = HELD.fetch_add(size, Ordering::Relaxed).saturating_add(size);
    if held > LIMIT.load(Ordering::Relaxed) {
        HELD.fetch_sub(size, Ordering::Relaxed);
        return false;
    }
    if held > MOST.load(Ordering::Relaxed) {
        MOST.fetch_max(held, Ordering::Relaxed);
    }
    true
}

fn give(size: usize) {
    HELD.fetch_sub(size, Ordering::Relaxed);
}

/// Allocates memory with `allocate`, and counts it if `allocate` succeeds. Returns null if the
/// limit would be exceeded.
fn counted(size: usize, allocate: impl FnOnce() -> *mut u8) -> *mut u8 {
    if !take(size) {
        return std::ptr::null_mut();
    }
    let memory = allocate();
    if memory.is_null() {
        give(size);
    }
    memory
}

// SAFETY: each function passes its arguments on to the system's allocator and returns its result,
// or returns a null pointer. According to the trait, a null pointer means that the allocation
// failed.
unsafe impl GlobalAlloc for Held {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller meets the contract of `alloc`, which is also that of the system's
        // allocator.
        counted(layout.size(), || unsafe { System.alloc(layout) })
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller meets the contract of `alloc_zeroed`, which is also that of the
        // system's allocator.
        counted(layout.size(), || unsafe { System.alloc_zeroed(layout) })
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        give(layout.size());
        // SAFETY: the caller meets the contract of `dealloc`, and the memory came from the system's
        // allocator.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // The whole new size is counted, because the old and the new memory may exist at the same
        // time.
        // SAFETY: the caller meets the contract of `realloc`, and the memory came from the system's
        // allocator.
        let moved = counted(size, || unsafe { System.realloc(memory, layout, size) });
        if !moved.is_null() {
            give(layout.size());
        }
        moved
    }
}
