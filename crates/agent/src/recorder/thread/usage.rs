//! What the kernel counts for a thread anyway, noted where its pages begin and end.

use record::Usage;

use super::Thread;

impl Thread {
    /// Notes what the thread has used so far, attaching included, which is not the program's.
    /// `begun_ns`: its processor time when attaching began.
    pub(crate) fn begin_usage(&mut self, begun_ns: u64) {
        if let Some(usage) = Usage::of_thread(self.run.clock.begin()) {
            // SAFETY: a page is attached.
            unsafe { self.writer.set_begin(usage, usage.cpu_ns.wrapping_sub(begun_ns)) };
        }
    }

    /// Notes what it has used until its page ended.
    pub(crate) fn end_usage(&mut self) {
        if let Some(usage) = Usage::of_thread(self.run.clock.begin()) {
            // SAFETY: a page is attached.
            unsafe { self.writer.set_end(usage) };
        }
    }
}
