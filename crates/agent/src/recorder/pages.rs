//! The pages that a thread writes its records to. The pool (memory that `counterpoint run` shares
//! with the processes of a run) consists of such pages. A thread claims a page, appends its content
//! to the profile when it is full, and releases it when the thread ends.
//!
//! If `counterpoint run` takes full pages ([`record::pool::full`]), a thread hands a full page over
//! to `run` and continues with a spare page. A thread that has no empty spare page at that time,
//! and gets no other, appends its full page itself. A thread also appends its first page itself.
//! This creates the profile's file if necessary, and shows that the file can be written.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use model::Loss;
use record::Usage;

use crate::os::sys::{self, AppendError, ErrnoGuard};
use crate::process::panics::guarded_apart;
use crate::process::part::Process;
use crate::recorder::handler_fork;
use crate::recorder::thread::{NO_PAGE, SPARES, Thread};
use crate::state::run::Run;

/// The page that this process released last. The search for a free page begins there, because that
/// page is still mapped.
static HINT: AtomicUsize = AtomicUsize::new(0);

/// Claims a page of the pool and makes it present, so that writing to it causes no page fault. If
/// the page cannot be made present, counts a loss.
pub fn claim(run: &Run, process: &Process) -> Option<usize> {
    let claimed = claim_spare(run, process);
    if let Err(Some(errno)) = claimed {
        process.lose(Loss::PoolTooSmall, 1, errno);
    }
    claimed.ok()
}

/// Claims a page like [`claim`], but counts no loss. If the page could not be made present, the
/// error contains the `errno`.
fn claim_spare(run: &Run, process: &Process) -> Result<usize, Option<i32>> {
    let page =
        run.pool.claim_page(process.row_number(), HINT.load(Ordering::Relaxed)).ok_or(None)?;
    if !handler_fork::share(run, page) {
        return Err(None); // The page stays claimed, because this process cannot use it.
    }
    run.pool.populate(page, &run.pool_path).map_err(|errno| {
        run.pool.release_page(page);
        Some(errno)
    })?;
    Ok(page)
}

pub fn note_released(page: usize) {
    HINT.store(page, Ordering::Relaxed);
}

/// An ending thread tries at most this many times to give up a page that it has offered to `run`.
const MOST_STEPS: usize = 8;

impl Thread {
    /// Writes a record of the thread's clocks. The thread's next record of this kind is due a
    /// millisecond later.
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
        // SAFETY: this thread's writer has a page with enough space for this record.
        unsafe { self.writer.thread_clock(ticks, cpu_ns, monotonic_ns) };
        self.next_clock = ticks + self.run.ticks_per_ms;
        self.update_account(ticks, cpu_ns);
    }

    /// Hands the thread's page over to `run` or appends it to the profile, and starts the next
    /// page. If the profile's file cannot be written, the page stays in the pool, and the thread
    /// continues on another page. If no other page is free, the calls on the full page are lost.
    #[cold]
    #[inline(never)]
    pub(crate) fn flush(&mut self) {
        if self.epoch.load(Ordering::Relaxed) == 0 {
            // The epoch is 0 in a forked child, in code that a signal handler had interrupted when
            // the handler forked (see `handler_fork`).
            // SAFETY: the writer has a page. In a forked child, where `epoch` is 0, that page is
            // private memory.
            return unsafe { self.writer.next_page(&self.start) };
        }
        let _errno = ErrnoGuard::new();
        if guarded_apart(|| self.flush_apart()).is_none() {
            // `None` means that there is no memory for a separate stack, or that there was an
            // internal error. The page must be emptied, and its calls are lost.
            self.lose_calls(AppendError::Errno(libc::ENOMEM), self.writer.calls());
            // SAFETY: the writer has a page, whose content was given up in the line before.
            unsafe { self.writer.next_page(&self.start) };
        }
    }

    /// The part of [`Thread::flush`] that runs on a separate stack, with signals blocked.
    fn flush_apart(&mut self) {
        point!(Flush);
        let begun = self.run.clock.begin();
        let calls = self.writer.calls();
        self.store_last_usage();
        let next = self.offer();
        let failure = match next {
            Some(_) => None,
            None => self.append_page(false).err(),
        };
        self.has_appended |= next.is_none() && failure.is_none();
        let mut start = self.start;
        start.sequence += 1;
        start.base_cpu_ns = record::clock::thread_cpu_ns();
        start.base_monotonic_ns = record::clock::monotonic_ns();
        start.base_ticks = self.run.clock.begin();
        start.flush_ticks += start.base_ticks.wrapping_sub(begun);
        start.flushes += 1;
        // The flush happens between the last record of usage on the old page and the first one on
        // the new page. So readers do not attribute to the program the resources that the flush
        // used.
        start.usage = Usage::of_thread(start.base_ticks);
        self.start = start;
        self.process.row().calls.fetch_add(calls.into(), Ordering::Relaxed);
        if let Some(next) = next {
            // SAFETY: `next` is a page that this thread owns, and that is present and empty.
            unsafe { self.writer.attach(self.run.pool.page(next), &start) };
            self.page = next;
            return;
        }
        if let Some(error) = failure {
            if let Some(other) = claim(self.run, &self.process) {
                // SAFETY: `other` was claimed for this thread; claimed pages are present in memory.
                unsafe { self.writer.attach(self.run.pool.page(other), &start) };
                self.page = other;
                return;
            }
            self.lose_calls(error, calls);
        }
        // SAFETY: the writer has a page, and the content of the page was either written or given
        // up.
        unsafe { self.writer.next_page(&start) };
    }

    /// Hands the full page over to `run`, under three conditions: `run` takes pages, the thread has
    /// already appended a page itself, and it has a spare page or can claim one. Returns the spare
    /// page, on which the thread must continue.
    fn offer(&mut self) -> Option<usize> {
        let (pool, row) = (&self.run.pool, self.process.row_number());
        if !pool.is_drained() || !self.has_appended {
            return None;
        }
        let is_empty = |page: usize| page == NO_PAGE || pool.is_given_back(page, row);
        let at = self.spares.iter().position(|page| is_empty(*page))?;
        let next = match self.spares[at] {
            NO_PAGE => claim_spare(self.run, &self.process).ok()?,
            page => page,
        };
        self.spares[at] = self.page;
        point!(Append);
        // SAFETY: this thread's writer has a page.
        unsafe { self.writer.finish(sys::thread_name()) };
        pool.offer_page(self.page, row);
        Some(next)
    }

    /// Gives up the spare pages, because the thread is ending. Appends pages that `run` has not
    /// taken yet.
    pub(super) fn leave_spares(&mut self) {
        let (pool, row) = (&self.run.pool, self.process.row_number());
        for page in std::mem::replace(&mut self.spares, [NO_PAGE; SPARES]) {
            // `run` may change the state of the page between two of the calls below, so the
            // sequence of calls is repeated.
            for _ in 0..MOST_STEPS {
                if page == NO_PAGE || pool.leave_page(page, row) {
                    break; // `run` releases it.
                }
                // If the page cannot be appended, it stays in the pool, from which `counterpoint
                // run` or `counterpoint report` collects it.
                let was_offered = pool.take_back(page, row);
                if was_offered && !self.append_taken_back(page) {
                    break;
                }
                if was_offered || pool.is_given_back(page, row) {
                    pool.release_page(page);
                    note_released(page);
                    break;
                }
            }
        }
    }

    /// Appends a full page on which the thread no longer writes, and marks the page as empty.
    /// Returns whether it was appended.
    fn append_taken_back(&self, page: usize) -> bool {
        let Some(paths) = self.process.paths() else { return false };
        // SAFETY: the page belongs to this thread and is present, and nobody writes to it any more.
        let Some((_, bytes)) = (unsafe { record::page::seal_in_place(self.run.pool.page(page)) })
        else {
            return false;
        };
        let appended = sys::append(&paths.pages, bytes).is_ok();
        if appended {
            // SAFETY: the page belongs to this thread and is present. Its first word is the magic
            // number, which is accessed atomically.
            unsafe { &*self.run.pool.page(page).cast::<AtomicU64>() }.store(0, Ordering::Release);
        }
        appended
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
        // SAFETY: the writer has a page, and nothing else writes to it meanwhile, because a signal
        // handler on this thread finds `busy` set.
        let bytes = unsafe { self.writer.seal(last, sys::thread_name()) };
        point!(Append);
        let result = sys::append(&paths.pages, bytes);
        if result.is_err() {
            // SAFETY: the writer still has its page, which was sealed above.
            unsafe { self.writer.unseal(last) };
        }
        result
    }
}
