//! Distinguishes a process from its forked children. A child has a copy of the memory, but not the
//! threads that the plugins have started. So it must not use its parent's sessions.

use std::sync::atomic::{AtomicU32, Ordering};

/// Returns a number that differs between a process and its forked children, and is not 0. After the
/// first call, each call costs two loads if the kernel can wipe memory at a fork (Linux), and
/// otherwise system calls.
pub fn process_number() -> u32 {
    static LAST: AtomicU32 = AtomicU32::new(0);
    let Some(word) = wiped_word() else {
        return std::process::id();
    };
    let number = word.load(Ordering::Relaxed);
    if number != 0 {
        return number;
    }
    // In a forked child, `LAST` continues from the parent's value, so the child gets another
    // number.
    let fresh = LAST.fetch_add(1, Ordering::Relaxed).wrapping_add(1).max(1);
    match word.compare_exchange(0, fresh, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => fresh,
        Err(other) => other,
    }
}

/// Returns a word that the kernel sets to zero in a forked child; `None` if it cannot do so.
#[cfg(target_os = "linux")]
fn wiped_word() -> Option<&'static AtomicU32> {
    use std::sync::atomic::AtomicPtr;

    const BYTES: usize = 4096;
    static WORD: AtomicPtr<AtomicU32> = AtomicPtr::new(std::ptr::null_mut());
    let mut at = WORD.load(Ordering::Acquire);
    if at.is_null() {
        // SAFETY: the mapping is new, and the kernel chooses its address. The mapping is used only
        // after the kernel has agreed to wipe it in forked children.
        unsafe {
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let fresh = libc::mmap(std::ptr::null_mut(), BYTES, protection, flags, -1, 0);
            if fresh == libc::MAP_FAILED {
                return None;
            }
            if libc::madvise(fresh, BYTES, libc::MADV_WIPEONFORK) != 0 {
                libc::munmap(fresh, BYTES);
                return None;
            }
            match WORD.compare_exchange(at, fresh.cast(), Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => at = fresh.cast(),
                Err(other) => {
                    libc::munmap(fresh, BYTES);
                    at = other;
                }
            }
        }
    }
    // SAFETY: the word was mapped above, is zeroed and aligned to a page, and is never unmapped.
    Some(unsafe { &*at })
}

#[cfg(not(target_os = "linux"))]
fn wiped_word() -> Option<&'static AtomicU32> {
    None
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::process_number;

    #[test]
    fn a_child_has_another_number_and_the_parent_keeps_its_own() {
        let own = process_number();
        // SAFETY: the child only compares two numbers and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let other = process_number();
            let differs = other != own && other != 0 && other == process_number();
            // SAFETY: `_exit` ends the child without running exit handlers that the parent
            // registered.
            unsafe { libc::_exit(i32::from(!differs)) }
        }
        let mut status = 0;
        // SAFETY: `child` was forked above, and `status` has room for its status.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!(status, 0);
        assert_eq!(process_number(), own);
    }
}
