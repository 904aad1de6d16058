//! The pages that a thread writes to. A page is claimed from the pool, appended to the profile when
//! it is full, and released at the end.

use std::sync::atomic::{AtomicUsize, Ordering};

use model::Loss;
use record::Usage;

use crate::os::sys::{self, AppendError, ErrnoGuard};
use crate::process::part::Process;
use crate::recorder::fork;
use crate::recorder::thread::Thread;
use crate::state::run::Run;

/// Index at which to look for a free page first. A page that this process released is still mapped
/// in it.
static HINT: AtomicUsize = AtomicUsize::new(0);

/// Claims a page of the pool and makes it present. If it returns `None`, the loss has been counted.
pub fn claim(run: &Run, process: &Process) -> Option<usize> {
    let page = run.pool.claim_page(process.row_number(), HINT.load(Ordering::Relaxed))?;
    if !fork::share(run, page) {
        return None; // The page stays claimed, because this process cannot use it.
    }
    match run.pool.populate(page, &run.pool_path) {
        Ok(()) => Some(page),
        Err(errno) => {
            run.pool.release_page(page);
            process.lose(Loss::PoolTooSmall, 1, errno);
            None
        }
    }
}

/// Notes that the process has released this page.
pub fn note_released(page: usize) {
    HINT.store(page, Ordering::Relaxed);
}

impl Thread {
    /// Records the current values of the thread's clocks, and schedules the next such record in one
    /// millisecond.
    #[cold]
    #[inline(never)]
    pub(crate) fn clock_record(&mut self) {
        point!(ClockRecord);
        if !self.writer.has_room() {
            self.flush();
        }
        let cpu_ns = record::clock::thread_cpu_ns();
        let monotonic_ns = record::clock::monotonic_ns();
        let ticks = self.run.clock.begin();
        // SAFETY: a page with room is attached.
        unsafe { self.writer.thread_clock(ticks, cpu_ns, monotonic_ns) };
        self.next_clock = ticks + self.run.ticks_per_ms;
        self.settle_account(ticks, cpu_ns);
    }

    /// Appends the page to the profile and starts the next one. If the file cannot be written, the
    /// page stays in the pool and the thread moves on to another page, as long as there are any.
    #[cold]
    #[inline(never)]
    pub(crate) fn flush(&mut self) {
        if self.epoch.load(Ordering::Relaxed) == 0 {
            // We are in a forked child, in code that a signal handler had interrupted: see `fork`.
            // SAFETY: a page is attached, and by now it is private memory.
            return unsafe { self.writer.next_page(&self.start) };
        }
        let _errno = ErrnoGuard::new();
        let _calm = sys::SignalsBlocked::new();
        point!(Flush);
        let begun = self.run.clock.begin();
        let calls = self.writer.calls();
        self.end_usage();
        let failure = self.append_page(false).err();
        let mut start = self.start;
        start.sequence += 1;
        start.base_cpu_ns = record::clock::thread_cpu_ns();
        start.base_monotonic_ns = record::clock::monotonic_ns();
        start.base_ticks = self.run.clock.begin();
        start.flush_ticks += start.base_ticks.wrapping_sub(begun);
        start.flushes += 1;
        // The flush lies between the two pages, so its own usage is not attributed to the program.
        start.usage = Usage::of_thread(start.base_ticks);
        self.start = start;
        // The number of calls is added to the process's total, not written to the page.
        self.process.row().calls.fetch_add(calls.into(), Ordering::Relaxed);
        if let Some(error) = failure {
            if let Some(other) = claim(self.run, &self.process) {
                // SAFETY: the page was claimed for this thread and is present.
                unsafe { self.writer.attach(self.run.pool.page(other), &start) };
                self.page = other;
                return;
            }
            self.lose_calls(error, calls);
        }
        // SAFETY: the page is attached, and its content was either written or given up.
        unsafe { self.writer.next_page(&start) };
    }

    fn lose_calls(&self, error: AppendError, calls: u32) {
        let (loss, errno) = match error {
            AppendError::FileSizeLimit => (Loss::FileSizeLimit, 0),
            AppendError::Errno(errno) => (Loss::FlushFailed, errno),
        };
        self.process.lose(loss, calls.into(), errno);
    }

    pub(super) fn append_page(&mut self, last: bool) -> Result<(), AppendError> {
        let paths = self.process.paths().ok_or(AppendError::Errno(libc::ENOENT))?;
        // SAFETY: the page is attached and nothing else writes to it meanwhile: a signal handler on
        // this thread finds `busy` set.
        let bytes = unsafe { self.writer.seal(last, sys::thread_name()) };
        point!(Append);
        let result = sys::append(&paths.pages, bytes);
        if result.is_err() {
            // SAFETY: a page is attached.
            unsafe { self.writer.unseal(last) };
        }
        result
    }
}
