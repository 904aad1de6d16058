//! Begins and ends the calls of a thread in a run with a budget (a limit for the cost of
//! recording): counts each call, and times those that are drawn (chosen at random).

use std::sync::atomic::{AtomicU64, Ordering};

use counters::OpenFailure;
use model::Loss;
use record::Call;
use record::counts::{COUNTS_NAME, CountsFrame, Entry, Spent};

use super::account::Cost;
use super::sampling::{DEEPEST, DrawnCall, How, count, count_unwatched};
use crate::os::own_stack;
use crate::os::sys::ErrnoGuard;
use crate::process::descriptors;
use crate::recorder::bracket::NewCall;
use crate::recorder::busy::while_busy;
use crate::recorder::thread::Thread;
use crate::state::run::Run;

/// Counts a call, if possible. Returns true if the call must not be timed. Returns `None` if the
/// call was not counted: `thread` is null or not attached, or its table has no entry for the export
/// (recorded function).
///
/// # Safety
/// `thread` must be null or the calling thread's state.
#[inline(always)]
pub(crate) unsafe fn is_only_counted(thread: *mut Thread, export: u32) -> Option<bool> {
    // SAFETY: by contract, `thread` is null or the calling thread's state.
    let thread = unsafe { thread.as_ref() }?;
    let entry = thread.draws.entry(export)?;
    thread.is_attached().then(|| !count(entry))
}

impl Thread {
    /// Begins to count calls. Called after calibration; until then, no call finds an entry in the
    /// table.
    pub(crate) fn begin_draws(&mut self) {
        if !self.draws.is_on {
            return;
        }
        self.draws.account.only_counted = Cost::new(cost_of_counting(self.run));
        (self.draws.entries, self.draws.len) = (self.draws.table.entries(), self.draws.table.len());
        let cpu_ns = record::clock::thread_cpu_ns().wrapping_sub(self.draws.began_ns);
        self.draws.begin_steps();
        self.draws.account.add_attaching(cpu_ns);
        self.draws.account.update_share(cpu_ns, self.draws.counts);
        self.store_spent(cpu_ns);
    }

    /// Counts a call. Returns whether it must be recorded. If the call cannot be counted, counts a
    /// loss and returns false.
    #[inline(always)]
    pub(crate) fn count_call(&mut self, export: u32) -> bool {
        match self.draws.entry(export) {
            Some(entry) => count(entry),
            None => self.count_first(export),
        }
    }

    /// Enlarges the table for an export without an entry, and counts its call.
    #[cold]
    #[inline(never)]
    fn count_first(&mut self, export: u32) -> bool {
        self.make_room(export) && self.draws.entry(export).is_some_and(count)
    }

    /// Makes the table large enough for an export. If that fails, counts a loss and returns false.
    #[cold]
    fn make_room(&mut self, export: u32) -> bool {
        let _errno = ErrnoGuard::new();
        let made = own_stack::run(|| self.grow_table(export));
        if let Err(errno) = made.unwrap_or_else(Err) {
            self.process().lose(Loss::NoPage, 1, errno);
            return false;
        }
        true
    }

    /// Runs on a separate stack with signals blocked, because a signal handler must not find the
    /// table half replaced.
    fn grow_table(&mut self, export: u32) -> Result<(), i32> {
        self.draws.table.make(self.run, &self.process, &self.start, export)?;
        (self.draws.entries, self.draws.len) = (self.draws.table.entries(), self.draws.table.len());
        Ok(())
    }

    /// Counts a call unless that was done before, and opens it if it must be recorded. Returns
    /// whether it was opened.
    #[inline(always)]
    pub(crate) fn begin_in_budget(&mut self, call: &NewCall) -> bool {
        let is_wanted = self.rehearsing || call.is_counted || {
            self.draws.look_at_step();
            call.how.wants(self.count_call(call.export))
        };
        is_wanted && self.open_drawn(call)
    }

    /// Prepares for a call that was not drawn and begins while other calls are open. Its end must
    /// not be mistaken for the end of an open call. So abandoned calls are forgotten, and if a call
    /// of the same export is open, this call is recorded too. Returns whether the call was opened.
    #[cold]
    #[inline(never)]
    pub(crate) fn begin_within(&mut self, call: &NewCall) -> bool {
        if self.draws.only_counts || self.busy.is_set() {
            return false;
        }
        while_busy!(self, {
            self.forget_abandoned(|open| open.frame <= call.frame);
            self.note_open_calls();
        });
        self.innermost_split(call.export).is_some()
            && self.open_drawn(&NewCall { how: How::Within, ..*call })
    }

    /// Draws and opens a call that was counted and must be recorded. Returns false if it cannot be
    /// recorded. Calibration makes empty calls (of a function that does nothing). They are not
    /// drawn, but go through the same code, so that its cost is measured.
    #[inline(always)]
    pub(super) fn open_drawn(&mut self, call: &NewCall) -> bool {
        // If `busy` is set, this call is made by a signal handler that has interrupted the
        // recorder. Such calls are only counted.
        if self.busy.is_set() {
            return false;
        }
        let (mut drawn, mut reads) = (None, call.may_read);
        if !self.rehearsing {
            if self.draws.only_counts {
                let entry = self.draws.entry(call.export);
                entry.iter().for_each(|entry| entry.next.store(u64::MAX, Ordering::Relaxed));
                return false;
            }
            let Some((as_drawn, reads_it)) = self.draws.draw(call.export, call.how, self.run.clock)
            else {
                return false;
            };
            drawn = Some(DrawnCall { is_billed: call.ending.is_of_op(), ..as_drawn });
            reads = reads && (reads_it || matches!(call.how, How::Within));
        }
        self.open(call, reads, drawn.as_ref())
    }

    /// Called if a call cannot begin. Gives back its draw (so that the next drawn call also
    /// represents it), and returns false.
    #[cold]
    pub(crate) fn refuse(&self, open: Option<&DrawnCall>) -> bool {
        open.iter().for_each(|open| self.draws.give_back(open.export, &open.drawn));
        false
    }

    /// Opens the thread's counters for the call with index `depth`, unless an outer call has them
    /// open. Returns false if they cannot be opened.
    #[cold]
    #[inline(never)]
    pub(crate) fn open_for_call(&mut self, depth: usize) -> bool {
        if self.draws.reading == 0 {
            let opened = own_stack::run(|| self.counters.open_again(&self.run.plan));
            match opened.unwrap_or_else(|errno| Err(OpenFailure::of_first(errno))) {
                Ok(()) => self.counters.descriptors().for_each(|fd| descriptors::note(fd, true)),
                Err(failure) => {
                    if self.draws.counts {
                        self.process().lose(Loss::CounterOpenFailed, 1, failure.error.errno);
                    }
                    self.draws.counts = false;
                    return false;
                }
            }
        }
        self.draws.reading |= 1 << depth;
        true
    }

    /// Closes the thread's counters, unless an outer call still needs them.
    #[cold]
    #[inline(never)]
    pub(crate) fn close_after_call(&mut self, depth: usize) {
        self.draws.reading &= (1 << depth) - 1;
        if self.draws.reading == 0 {
            self.close_for_now();
        }
    }

    pub(crate) fn close_for_now(&mut self) {
        self.counters.descriptors().for_each(|fd| descriptors::note(fd, false));
        self.counters.close_for_now();
    }

    /// Returns whether the counters are open for the call with index `depth` or for a call inside
    /// of it.
    #[inline(always)]
    pub(crate) fn reads_from(&self, depth: usize) -> bool {
        self.draws.reading >> depth != 0
    }

    /// Gives back the draw of an abandoned call, and closes the thread's counters unless an outer
    /// call still needs them.
    pub(crate) fn abandon_draw(&mut self, depth: usize) {
        if self.is_drawn(depth) {
            let DrawnCall { export, drawn, .. } = self.draws.open[depth % DEEPEST];
            self.draws.give_back(export, &drawn);
        }
        self.draws.forget_inside(depth);
        if self.reads_from(depth) {
            self.close_after_call(depth);
        }
    }

    /// Called after a call was recorded. Closes the thread's counters unless an outer call still
    /// needs them. If the call was drawn, adds it to its export's entry and to the account.
    #[inline(always)]
    pub(crate) fn finish_draw(&mut self, call: &Call, is_drawn: bool) {
        let depth = self.depth as usize;
        let read = self.reads_from(depth);
        self.draws.forget_inside(depth);
        if read {
            self.close_after_call(depth);
        }
        if is_drawn {
            self.bill_call(depth, call.start, call.end, read);
        }
    }

    /// Counts and draws a call that has just ended and was not among the open calls
    /// ([`Thread::record_apart`]). Returns whether it must be recorded.
    pub(crate) fn draw_apart(&mut self, export: u32) -> bool {
        self.draws.look_at_step();
        self.count_call(export);
        self.draws.is_always_announced(export);
        if self.draws.only_counts {
            return false;
        }
        let Some((open, _)) = self.draws.draw(export, How::Always, self.run.clock) else {
            return false;
        };
        // The recorder's own time for this call is not measured.
        self.draws.open[self.depth as usize % DEEPEST] = DrawnCall { begun: 0, ..open };
        true
    }

    /// Counts calls that the host did not announce. The number of announced calls until the next
    /// timed call does not change.
    pub(crate) fn count_unwatched(&mut self, export: u32, calls: u64) {
        if self.draws.entry(export).is_none() && !self.make_room(export) {
            return;
        }
        self.draws.entry(export).iter().for_each(|entry| count_unwatched(entry, calls));
    }

    /// Adds a recorded call to the export's entry and to the account. The call was not among the
    /// open calls.
    pub(crate) fn bill_apart(&mut self, call: &Call) {
        self.bill_call(self.depth as usize, call.start, call.end, false);
    }

    /// Adds a drawn call, which was recorded before, to the export's entry and to the account.
    /// `start` and `end` are its times in ticks, and `depth` was its index.
    #[inline(always)]
    fn bill_call(&mut self, depth: usize, start: u64, end: u64, read: bool) {
        let open = self.draws.open[depth % DEEPEST];
        let mut own = None;
        if open.begun != 0 {
            let after = self.run.clock.begin();
            let ticks = start.wrapping_sub(open.begun).wrapping_add(after.wrapping_sub(end));
            own = Some(ticks).filter(|ticks| *ticks < i64::MAX as u64);
        }
        self.draws.add(&open, end.wrapping_sub(start), read, own);
    }

    /// Called after a record of the thread's clocks was written, with the time and the processor
    /// time in that record.
    pub(crate) fn update_account(&mut self, ticks: u64, cpu_ns: u64) {
        if !self.draws.is_on {
            return;
        }
        let flush_ticks = self.start.flush_ticks;
        let flushed = flush_ticks.wrapping_sub(self.draws.flush_ticks);
        self.draws.flush_ticks = flush_ticks;
        let cpu_ns = cpu_ns.wrapping_sub(self.draws.began_ns);
        let account = &mut self.draws.account;
        account.clock.measured(self.run.clock.begin().wrapping_sub(ticks));
        account.add_fixed(account.clock.ticks() + flushed as f64);
        account.update_share(cpu_ns, self.draws.counts);
        // The cost of the call before the clock record is not measured, because the measured time
        // would contain this function.
        self.draws.open[self.depth as usize % DEEPEST].begun = 0;
        self.store_spent(cpu_ns);
    }

    fn store_spent(&mut self, cpu_ns: u64) {
        let price_ns = self.draws.account.price_ns();
        let (told_calls, told_ns) = self.draws.account.told();
        self.draws.table.set_spent(Spent { cpu_ns, price_ns, told_calls, told_ns });
    }

    /// Called when the thread ends. Adds to the account the calls that were only counted.
    fn bill_counting(&mut self, counted: &CountsFrame) {
        let only_counted: u64 =
            counted.rows.iter().map(|row| row.calls.saturating_sub(row.timed)).sum();
        let cpu_ns = record::clock::thread_cpu_ns().wrapping_sub(self.draws.began_ns);
        self.draws.account.end(only_counted);
        self.store_spent(cpu_ns);
    }

    /// Called when the thread ends. Appends its counts to the profile. If that fails, the counts
    /// stay in the pool (memory that the processes of a run share), from which `counterpoint run`
    /// or `counterpoint report` collects them.
    pub(crate) fn leave_draws(&mut self) {
        if !self.draws.is_on {
            return;
        }
        self.draws.end_steps();
        if let Some(counted) = self.draws.table.frame() {
            self.bill_counting(&counted);
        }
        let Some(frame) = self.draws.table.frame() else { return };
        (self.draws.entries, self.draws.len) = (std::ptr::null_mut(), 0);
        let bytes = frame.to_bytes();
        match self.process.append_to(COUNTS_NAME, &bytes) {
            Ok(()) => self.draws.table.release(self.run),
            Err(_) => self.draws.table.part(),
        }
    }
}

/// Measures the cost of counting a call, in ticks. The result is doubled, because calls of a
/// program cost more: in this loop, caches are warm and jumps are predicted.
#[cold]
fn cost_of_counting(run: &Run) -> f64 {
    const CALLS: u32 = 256;
    // SAFETY: an entry consists of integers, for which zeros are values.
    let mut entry: Entry = unsafe { std::mem::zeroed() };
    entry.next = AtomicU64::new(u64::MAX);
    let entry = std::hint::black_box(&entry);
    let once = || {
        let begin = run.clock.begin();
        for _ in 0..CALLS {
            std::hint::black_box(count(entry));
        }
        run.clock.begin().wrapping_sub(begin)
    };
    let least = (0..3).map(|_| once()).min().unwrap_or(0);
    2.0 * least as f64 / f64::from(CALLS)
}
