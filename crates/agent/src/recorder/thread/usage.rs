//! Stores at the beginning and at the end of each page what the kernel has counted for the page's
//! thread. The kernel counts these numbers for every thread in any case ([`Usage`]).

use record::Usage;

use super::Thread;

impl Thread {
    /// Stores what the thread has used so far. `begun_ns` is its CPU time when attaching began.
    /// What attaching used is stored separately, because it does not belong to the program.
    pub(crate) fn store_first_usage(&mut self, begun_ns: u64) {
        if let Some(usage) = Usage::of_thread(self.run.clock.begin()) {
            // SAFETY: callers have attached this thread, so its writer has a page.
            unsafe { self.writer.set_begin(usage, usage.cpu_ns.wrapping_sub(begun_ns)) };
        }
    }

    /// Stores what the thread has used by the end of its page.
    pub(crate) fn store_last_usage(&mut self) {
        if let Some(usage) = Usage::of_thread(self.run.clock.begin()) {
            // SAFETY: callers call this while the thread is attached, so its writer has a page.
            unsafe { self.writer.set_end(usage) };
        }
    }
}
