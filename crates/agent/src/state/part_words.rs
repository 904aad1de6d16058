//! What a process knows about its part of a profile: plain words in memory that a forked child finds
//! zeroed. [`crate::process::part`] gives them their meaning.

use std::ffi::CString;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use crate::os::sys;

/// What this process knows about its part in one run. Zero means that nothing was done yet.
#[repr(C)]
#[derive(Debug)]
pub struct PartWords {
    /// 0 for a fresh one, [`NAMED`] or [`READY`].
    pub ready: AtomicU32,
    /// Number of the process's row in the table of losses.
    pub row: AtomicU32,
    /// Number of the next thread that attaches.
    pub next_thread: AtomicU32,
    /// 1 once a thread has begun to calibrate.
    pub calibrated: AtomicU32,
    /// Process id.
    pub pid: AtomicU32,
    /// Tells parts of one process apart.
    pub generation: AtomicU32,
    /// Different for each part that this process and its parents have made.
    pub serial: AtomicU32,
    /// Number of pages that threads appended when they ended.
    pub leaving_pages: AtomicU32,
    /// Number of the next run of pages for tables of loops.
    pub next_loops: AtomicU32,
    /// Nothing, where the compiler would leave a hole.
    reserved: AtomicU32,
    /// Processor time that this took them, in ns.
    pub leaving_ns: AtomicU64,
    /// When the process started, in clock ticks since boot.
    pub start_time: AtomicU64,
    /// The part's files; null where it could not be made.
    pub paths: AtomicPtr<Paths>,
}

/// The process has a row, so that losses can be counted.
pub const NAMED: u32 = 1;
/// Its metadata is in the profile, too: threads may record, and every record has its names.
pub const READY: u32 = 2;

/// The files of a part.
#[derive(Debug)]
pub struct Paths {
    /// Metadata frames.
    pub meta: CString,
    /// Flushed pages.
    pub pages: CString,
    /// Counts of loops.
    pub loops: CString,
}

const BYTES: usize = 4096;
const _: () = assert!(size_of::<PartWords>() <= BYTES);

impl PartWords {
    /// Makes a fresh one, which is never freed.
    ///
    /// # Errors
    /// The `errno` of `mmap` or `madvise`.
    pub fn make() -> Result<&'static Self, i32> {
        let at = sys::map_wiped_on_fork(BYTES)?.cast::<Self>();
        // SAFETY: mapped a moment ago and never unmapped; zeroed, and all fields are atomics.
        Ok(unsafe { &*at })
    }

    /// Clears the words for the next session. Nothing in the process uses them any more.
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
            &self.reserved,
        ];
        words.iter().for_each(|word| word.store(0, Ordering::SeqCst));
        self.leaving_ns.store(0, Ordering::SeqCst);
        self.start_time.store(0, Ordering::SeqCst);
        // The paths are not freed: a thread may be about to read them.
        self.paths.store(std::ptr::null_mut(), Ordering::SeqCst);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A session must not begin with what an earlier one has counted.
    #[test]
    fn nothing_of_an_earlier_session_is_left() {
        let words = PartWords::make().expect("some pages can be mapped");
        for i in 0..size_of::<PartWords>() / 4 {
            let at = std::ptr::from_ref(words).cast::<AtomicU32>().wrapping_add(i);
            // SAFETY: inside of the words, all of which are atomics of at least this size; the path,
            // which becomes an address of nothing, is not read.
            unsafe { (*at).store(7, Ordering::Relaxed) };
        }
        words.begin_anew();
        for i in 0..size_of::<PartWords>() / 4 {
            let at = std::ptr::from_ref(words).cast::<AtomicU32>().wrapping_add(i);
            // SAFETY: as above.
            assert_eq!(unsafe { (*at).load(Ordering::Relaxed) }, 0, "word {i} of {words:?}");
        }
    }
}
