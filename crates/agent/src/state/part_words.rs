//! The data of a process about its part of a profile (the directory with the files of this
//! process). [`crate::process::part`] interprets this data.

use std::ffi::CString;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use crate::os::sys;

/// Integers and a pointer, in memory that is zeroed in a forked child. The fields are zero until
/// the process prepares to record.
#[repr(C)]
#[derive(Debug)]
pub struct PartWords {
    /// 0 at first, then [`NAMED`], then [`READY`].
    pub ready: AtomicU32,
    /// Index of the process's row in the table of losses (counts of things that could not be
    /// recorded).
    pub row: AtomicU32,
    /// The number that the next attaching thread will get.
    pub next_thread: AtomicU32,
    /// 1 if a thread has begun to calibrate (to measure what the recorder itself costs); otherwise
    /// 0.
    pub calibrated: AtomicU32,
    pub pid: AtomicU32,
    /// Distinguishes this part from other parts of the same process in the profile.
    pub generation: AtomicU32,
    /// Different for each part that this process and its ancestors have made.
    pub serial: AtomicU32,
    /// Number of detached threads that have appended their last page of records.
    pub leaving_pages: AtomicU32,
    /// A thread stores its tables of loops in blocks of contiguous pages. This is the number that
    /// the next block will get.
    pub next_loops: AtomicU32,
    /// The number that the next file of events or trace file will get.
    pub next_events: AtomicU32,
    /// Processor time in ns that threads needed to append their last data when they were detached.
    pub leaving_ns: AtomicU64,
    /// The time at which the process started, in clock ticks since boot.
    pub start_time: AtomicU64,
    /// Null until the part is created; stays null if the part cannot be created.
    pub paths: AtomicPtr<Paths>,
}

/// The process has a row, so that losses can be counted.
pub const NAMED: u32 = 1;
/// The process has a row, and its metadata was appended to the profile (unless writing failed).
/// Threads may record from now on, because the metadata contains the names that records refer to.
pub const READY: u32 = 2;

#[derive(Debug)]
pub struct Paths {
    /// The file with metadata, as frames (records as bytes).
    pub meta: CString,
    /// The file to which threads append their pages of records.
    pub pages: CString,
    /// The file with counts of loops.
    pub loops: CString,
    pub directory: String,
}

const BYTES: usize = 4096;
const _: () = assert!(size_of::<PartWords>() <= BYTES);

impl PartWords {
    /// Allocates a zeroed `PartWords`, which is never freed.
    ///
    /// # Errors
    /// Returns the `errno` of `mmap` or `madvise`.
    pub fn make() -> Result<&'static Self, i32> {
        let at = sys::map_wiped_on_fork(BYTES)?.cast::<Self>();
        // SAFETY: `at` was just mapped and is never unmapped; its memory is zeroed, and all fields
        // are atomics.
        Ok(unsafe { &*at })
    }

    /// Clears the words for the next session (a recording that the program itself begins). The
    /// caller makes sure that no thread records with them any more.
    pub fn begin_anew(&'static self) -> &'static Self {
        let words = [
            &self.ready,
            &self.row,
            &self.next_thread,
            &self.calibrated,
            &self.pid,
            &self.generation,
            &self.serial,
            &self.leaving_pages,
            &self.next_loops,
            &self.next_events,
        ];
        words.iter().for_each(|word| word.store(0, Ordering::SeqCst));
        self.leaving_ns.store(0, Ordering::SeqCst);
        self.start_time.store(0, Ordering::SeqCst);
        // The old paths are not freed, because a thread may have loaded the pointer to them
        // earlier.
        self.paths.store(std::ptr::null_mut(), Ordering::SeqCst);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_an_earlier_session_is_left() {
        let words = PartWords::make().expect("the pages can be mapped");
        for i in 0..size_of::<PartWords>() / 4 {
            let at = std::ptr::from_ref(words).cast::<AtomicU32>().wrapping_add(i);
            // SAFETY: `at` is inside the words, which are atomics of at least four bytes each. The
            // field `paths` becomes an invalid pointer, but nothing uses it.
            unsafe { (*at).store(7, Ordering::Relaxed) };
        }
        words.begin_anew();
        for i in 0..size_of::<PartWords>() / 4 {
            let at = std::ptr::from_ref(words).cast::<AtomicU32>().wrapping_add(i);
            // SAFETY: `at` is inside the words, which are atomics of at least four bytes each.
            assert_eq!(unsafe { (*at).load(Ordering::Relaxed) }, 0, "word {i} of {words:?}");
        }
    }
}
