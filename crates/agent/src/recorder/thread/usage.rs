//! Stores in the thread's pages of records what the kernel has counted for the thread ([`Usage`],
//! such as its processor time). The kernel maintains these counts even if nobody reads them.

use record::Usage;

use super::Thread;

impl Thread {
    /// Stores in the thread's first page what the thread had used when attaching ended. `begun_ns`
    /// is the thread's processor time when attaching began. The processor time that attaching took
    /// is stored separately, because the program did not cause it.
    pub(crate) fn store_first_usage(&mut self, begun_ns: u64) {
        if let Some(usage) = Usage::of_thread(self.run.clock.begin()) {
            // SAFETY: callers have attached this thread, so its writer has a page.
            unsafe { self.writer.set_begin(usage, usage.cpu_ns.wrapping_sub(begun_ns)) };
        }
    }

    /// Stores in the thread's current page what the thread has used so far. Called before the page
    /// is handed over, also when the thread is detached.
    pub(crate) fn store_last_usage(&mut self) {
        if let Some(usage) = Usage::of_thread(self.run.clock.begin()) {
            // SAFETY: callers call this while the thread is attached, so its writer has a page.
            unsafe { self.writer.set_end(usage) };
        }
    }
}
