//! The descriptors of the counters that threads of this process have opened. A forked child has to
//! close the ones it inherits.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::os::sys;
use crate::process::lock;

/// One bit for each descriptor below 65,536.
static DESCRIPTORS: [AtomicU64; 1024] = [const { AtomicU64::new(0) }; 1024];

/// Stores whether a thread of this process has the counter `fd` open.
pub fn note(fd: i32, held: bool) {
    let Some(word) = usize::try_from(fd).ok().and_then(|fd| DESCRIPTORS.get(fd / 64)) else {
        return;
    };
    let bit = 1u64 << (fd % 64);
    if held {
        word.fetch_or(bit, Ordering::Relaxed);
    } else {
        word.fetch_and(!bit, Ordering::Relaxed);
    }
}

/// Called when a process creates its part of the profile (the directory for its files). In a forked
/// child, closes the counters of the parent's threads. Otherwise they would continue to count while
/// the child lives.
pub fn close_inherited() {
    // In a later session (a recording that the program itself begins), there are no inherited
    // counters, and the process's other threads close their own.
    if !lock::is_first_in_process() {
        return;
    }
    for (i, word) in DESCRIPTORS.iter().enumerate() {
        let mut bits = word.swap(0, Ordering::Relaxed);
        while bits != 0 {
            point!(ForkedChild);
            sys::close_counter((i * 64) as i32 + bits.trailing_zeros() as i32);
            bits &= bits - 1;
        }
    }
}
