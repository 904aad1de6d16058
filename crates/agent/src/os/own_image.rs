//! Makes this library's code and data, and the part of a thread's stack that the library needs,
//! present in memory. Otherwise, a counter of page faults would also count faults that the library
//! causes.
//!
//! The kernel maps a page of a library when the page is first used. The recorder may use a page for
//! the first time between the two readings of the counters around a call:
//!
//! ```text
//!  counters read ─► the program's op … a hook of ours: code, or a table, that was not used before ─► counters read
//!                                      └── a page fault, counted as the op's
//! ```
//!
//! A page fault also happens after a fork: the kernel copies a page of data at the next write to
//! it.

use std::hint::black_box;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

use crate::os::{elf, sys};

const PT_LOAD: u32 = 1;
const PT_GNU_RELRO: u32 = 0x6474_E552;
/// The flag of a writable segment, which is in the upper half of a program header's first word.
const PF_W: u64 = 2 << 32;
const PAGE: usize = 4096;

/// The address range of the library's writable data; zeros before [`make_present`] has run.
static DATA: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

unsafe extern "C" {
    /// This library's ELF header, defined by the linker.
    #[link_name = "__ehdr_start"]
    static HEADER: u8;
}

/// Makes the pages of this library's code and data present. Takes 0.2 to 0.4 ms, measured with
/// `strace -T`.
pub fn make_present() {
    let base = &raw const HEADER as usize;
    let Some(headers) = elf::program_headers(base) else { return };
    let range =
        |header: &[u64; 7]| base + header[2] as usize..base + (header[2] + header[5]) as usize;
    let of_kind = |kind: u32| headers.iter().filter(move |header| header[0] as u32 == kind);
    // The dynamic linker has written to these ranges, and they are read-only now.
    let relocated: Vec<Range<usize>> = of_kind(PT_GNU_RELRO).map(range).collect();
    for header in of_kind(PT_LOAD) {
        let whole = range(header);
        let Range { start, end } = whole;
        if header[0] & PF_W == 0 {
            populate(start, end, false);
            continue;
        }
        let inside = relocated.iter().find(|part| whole.contains(&part.start));
        let start = inside.map_or(start, |part| part.end.next_multiple_of(PAGE));
        if start < end {
            populate(start, end, true);
            DATA[0].store(start, Ordering::Relaxed);
            DATA[1].store(end, Ordering::Relaxed);
        }
    }
}

/// Makes this library's data writable without page faults again. Called in the parent after a fork.
/// Takes about 0.25 ms, measured with `strace -T`.
pub fn make_own() {
    let [start, end] = DATA.each_ref().map(|place| place.load(Ordering::Relaxed));
    if start < end {
        populate(start, end, true);
    }
}

#[inline(never)]
pub fn touch_stack<const BYTES: usize>() {
    let mut frame = MaybeUninit::<[u8; BYTES]>::uninit();
    let lowest = frame.as_mut_ptr().cast::<u8>();
    // SAFETY: `lowest` points to the first byte of `frame`.
    unsafe { lowest.write_volatile(0) };
    // Without this use of the whole array, the compiler would shrink it to the one byte that is
    // written.
    black_box(&mut frame);
}

fn populate(start: usize, end: usize, for_writing: bool) {
    let start = start / PAGE * PAGE;
    let bytes = end.next_multiple_of(PAGE) - start;
    // If there is no memory for the pages, their later use may cause page faults. Kernels before
    // Linux 5.14 cannot populate pages and return EINVAL; each page is touched instead. But newer
    // kernels also return EINVAL for a page that may not be read or not be written, and touching
    // such a page would end the program. A call with an empty range distinguishes the two cases:
    // only a kernel before 5.14 returns EINVAL for it.
    let is_invalid = |bytes| sys::populate(start, bytes, for_writing) == Err(libc::EINVAL);
    if is_invalid(bytes) && is_invalid(0) {
        (start..end).step_by(PAGE).for_each(|at| touch(at, for_writing));
    }
}

fn touch(at: usize, for_writing: bool) {
    // SAFETY: `at` is in a page of this library, which may be read, and written if `for_writing` is
    // set. The byte keeps its value, and nothing that another thread writes at the same time is
    // lost.
    unsafe {
        if for_writing {
            (*(at as *const AtomicU8)).fetch_or(0, Ordering::Relaxed);
        } else {
            std::ptr::read_volatile(at as *const u8);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::c_long;

    use super::*;

    /// Returns how many minor page faults the calling thread has caused.
    fn faults() -> c_long {
        // SAFETY: `rusage` consists of integers, which may be zero; `usage` outlives the call that
        // fills it.
        unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            assert_eq!(libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage), 0);
            usage.ru_minflt
        }
    }

    static TABLE: [AtomicU8; 64 * PAGE] = [const { AtomicU8::new(0) }; 64 * PAGE];

    fn write_each_page() -> c_long {
        let before = faults();
        (0..TABLE.len()).step_by(PAGE).for_each(|at| {
            TABLE[at].fetch_add(1, Ordering::Relaxed);
        });
        faults() - before
    }

    fn waiting_child() -> libc::pid_t {
        // SAFETY: the child only makes system calls.
        unsafe {
            let child = libc::fork();
            if child == 0 {
                libc::pause();
                libc::_exit(0)
            }
            child
        }
    }

    #[test]
    fn own_data_does_not_fault_also_after_a_fork() {
        make_present();
        assert_eq!(write_each_page(), 0);
        let mut children = vec![waiting_child()];
        assert_ne!(write_each_page(), 0, "the child shares the pages");
        children.push(waiting_child());
        make_own();
        assert_eq!(write_each_page(), 0);
        children.push(waiting_child());
        let table = &raw const TABLE as usize;
        (table..table + TABLE.len()).step_by(PAGE).for_each(|at| touch(at, true));
        assert_eq!(write_each_page(), 0);
        assert!(TABLE.iter().step_by(PAGE).all(|byte| byte.load(Ordering::Relaxed) == 4));
        for child in children {
            // SAFETY: `child` was forked by this test and has not been waited for yet.
            unsafe {
                libc::kill(child, libc::SIGKILL);
                libc::waitpid(child, std::ptr::null_mut(), 0);
            }
        }
    }

    /// The test would crash if `populate` wrote to the read-only page or read the unreadable one.
    #[test]
    fn what_may_not_be_used_is_left_alone() {
        let at = sys::map_zeros(PAGE).expect("a page") as usize;
        for (protection, for_writing) in [(libc::PROT_READ, true), (libc::PROT_NONE, false)] {
            sys::protect(at, PAGE, protection).expect("protection");
            populate(at, at + PAGE, for_writing);
        }
        sys::unmap(at as *mut u8, PAGE);
    }
}
