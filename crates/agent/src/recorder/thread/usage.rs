//! Stores in pages what the kernel has counted for the thread ([`Usage`], such as its processor
//! time). The kernel counts this whether it is read or not.

use record::Usage;

use super::Thread;

impl Thread {
    /// Stores the usage at the beginning of the thread's first page. `begun_ns` is the thread's
    /// processor time when attaching began. The time of attaching is stored separately, because it
    /// does not belong to the program.
    pub(crate) fn store_first_usage(&mut self, begun_ns: u64) {
        if let Some(usage) = Usage::of_thread(self.run.clock.begin()) {
            // SAFETY: callers have attached this thread, so its writer has a page.
            unsafe { self.writer.set_begin(usage, usage.cpu_ns.wrapping_sub(begun_ns)) };
        }
    }

    /// Stores the usage at the end of the thread's page.
    pub(crate) fn store_last_usage(&mut self) {
        if let Some(usage) = Usage::of_thread(self.run.clock.begin()) {
            // SAFETY: callers call this while the thread is attached, so its writer has a page.
            unsafe { self.writer.set_end(usage) };
        }
    }
}
