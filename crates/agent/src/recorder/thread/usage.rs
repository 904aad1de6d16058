//! Stores in each page what the kernel has counted for the page's thread ([`Usage`]), at the
//! beginning and at the end of the page. The kernel counts these numbers for every thread in any
//! case.

use record::Usage;

use super::Thread;

impl Thread {
    /// Stores what the thread has used up to now. `begun_ns` is its processor time when attaching
    /// began. The usage of attaching is stored separately, because it does not belong to the
    /// program.
    pub(crate) fn store_first_usage(&mut self, begun_ns: u64) {
        if let Some(usage) = Usage::of_thread(self.run.clock.begin()) {
            // SAFETY: callers have attached this thread, so its writer has a page.
            unsafe { self.writer.set_begin(usage, usage.cpu_ns.wrapping_sub(begun_ns)) };
        }
    }

    /// Stores what the thread has used up to the end of its page.
    pub(crate) fn store_last_usage(&mut self) {
        if let Some(usage) = Usage::of_thread(self.run.clock.begin()) {
            // SAFETY: callers call this while the thread is attached, so its writer has a page.
            unsafe { self.writer.set_end(usage) };
        }
    }
}
