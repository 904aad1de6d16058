//! Draws the calls that are timed, in a run with a budget, and counts all of them.
//!
//! ```text
//!  every call   entry.calls += 1 ─► below entry.next? ─► jump to the original      only counted
//!                                        │ no
//!  drawn call   period, gap to the next one ─► bracket, with or without counters ─► record
//!                                                          └─► what it cost ─► account
//! ```
//!
//! | module | purpose |
//! |---|---|
//! | [`table`] | the thread's counts, in pages of the pool |
//! | [`random`] | random numbers and gaps |
//! | [`account`] | what recording costs, and what it may cost |
//!
//! A call is due if its number has reached `next`. So counting and deciding are one increment and
//! one comparison, and the count is exact at every instruction. How many calls were only counted
//! before a drawn one follows from their numbers.
//!
//! A counter that is open slows down each context switch of its thread, even while it is disabled
//! (measured with Linux 6.18: 2.1 µs for a switch without, 3.1 with one counter, 2.8 with one that is
//! disabled, 2.2 with one that was closed). So counters are only open during calls in which they are
//! read.

pub mod account;
pub mod random;
pub mod table;

use std::sync::atomic::{AtomicU64, Ordering, compiler_fence};

use model::Loss;
use record::counts::{COUNTS_NAME, CountsFrame, Entry, Spent};
use record::page::PageStart;
use record::{Call, ClockKind, Drawn};

use self::account::Account;
use self::random::Random;
use self::table::Table;
use crate::os::sys::{self, ErrnoGuard, SignalsBlocked};
use crate::process::descriptors;
use crate::process::part::Process;
use crate::recorder::bracket::Newcomer;
use crate::recorder::thread::{DEEPEST, Thread};
use crate::state::run::Run;

/// Every how many timed calls the recorder measures what timing costs. A power of two.
const MEASURE_EVERY: u64 = 64;

/// A drawn call in progress.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Open {
    export: u32,
    drawn: Drawn,
    /// When the recorder began to work for it, in ticks; 0 if that is not measured.
    begun: u64,
}

impl Open {
    pub(crate) const NONE: Self =
        Self { export: 0, drawn: Drawn { period: 1, counter_period: 1, skipped: 0 }, begun: 0 };
}

/// The part of a thread's state that draws calls. It begins with what the fast path reads.
#[repr(C)]
pub(crate) struct Draws {
    entries: *mut Entry,
    /// Number of entries; 0 in a run without a budget, and in a forked child.
    len: u32,
    /// Whether the run has a budget.
    is_on: bool,
    /// Whether the budget is 0: no call is timed.
    only_counts: bool,
    /// Whether counters can be opened.
    counts: bool,
    /// Bit *i* is set if call *i* in progress was drawn; `open[i]` belongs to it.
    drawn: u32,
    /// Bit *i* is set if call *i* in progress has its counters read.
    reading: u32,
    random: Random,
    account: Account,
    /// Processor time when attaching began, ns.
    began_ns: u64,
    /// Ticks that flushes had taken when the account was settled.
    flush_ticks: u64,
    table: Table,
    open: [Open; DEEPEST],
}

/// Counts a call of an export with an entry. Returns whether it is due: whether its number has reached
/// the number of the next call to time.
#[inline(always)]
pub(crate) fn count(entry: &Entry) -> bool {
    // One instruction, so that a signal handler that makes a call in between loses none. It needs no
    // lock, because only this thread writes.
    #[cfg(target_arch = "x86_64")]
    // SAFETY: this increments the entry's number.
    unsafe {
        std::arch::asm!("inc qword ptr [{}]", in(reg) entry.calls.as_ptr(), options(nostack));
    }
    #[cfg(not(target_arch = "x86_64"))]
    entry.calls.fetch_add(1, Ordering::Relaxed);
    entry.calls.load(Ordering::Relaxed) >= entry.next.load(Ordering::Relaxed)
}

impl Draws {
    /// The state in a run without a budget, or before the table is made. `base` are the addresses that
    /// the thread reserved earlier, or null.
    pub(crate) fn off(base: *mut u8) -> Self {
        Self {
            entries: std::ptr::null_mut(),
            len: 0,
            is_on: false,
            only_counts: false,
            counts: false,
            drawn: 0,
            reading: 0,
            random: Random::new(0),
            account: Account::new(0.0, 1.0, 0, false),
            began_ns: 0,
            flush_ticks: 0,
            table: Table::none(base),
            open: [Open::NONE; DEEPEST],
        }
    }

    /// Prepares a thread for a run with a budget: makes its table. `counts` says whether counters can
    /// be opened, and `began_ns` is the thread's processor time when it began to attach.
    ///
    /// # Errors
    /// As [`Table::make`].
    pub(super) fn prepare(
        &mut self,
        run: &Run,
        process: &Process,
        start: &PageStart,
        counts: bool,
        began_ns: u64,
    ) -> Result<(), i32> {
        let Some(budget) = run.budget else { return Ok(()) };
        self.table.make(run, process, start, 0)?;
        self.is_on = true;
        self.only_counts = budget == 0.0;
        self.counts = counts;
        self.began_ns = began_ns;
        self.random = Random::new(seed(start.thread_uid));
        self.account = Account::new(budget, run.ticks_per_ms as f64 / 1e6, 0, counts);
        Ok(())
    }

    /// The addresses that the thread has reserved.
    pub(crate) fn base(&self) -> *mut u8 {
        self.table.base()
    }

    /// Whether the run has a budget.
    #[inline(always)]
    pub(crate) fn is_on(&self) -> bool {
        self.is_on
    }

    /// Returns the entry of an export, if there is one.
    #[inline(always)]
    pub(crate) fn entry(&self, export: u32) -> Option<&Entry> {
        // SAFETY: the table has this many entries.
        (export < self.len).then(|| unsafe { &*self.entries.add(export as usize) })
    }

    /// Draws the call that was just counted: says how likely it was that it is timed, whether its
    /// counters are read, and which call is the next. Returns `None` if a later call was drawn
    /// meanwhile, by a signal handler.
    #[inline(always)]
    fn draw(&mut self, export: u32, forced: bool, clock: ClockKind) -> Option<(Open, bool)> {
        // SAFETY: the table has this many entries. The reference outlives no change of the table.
        let entry = (export < self.len).then(|| unsafe { &*self.entries.add(export as usize) })?;
        let number = entry.calls.load(Ordering::Relaxed);
        let before = entry.drawn.load(Ordering::Relaxed);
        if number <= before {
            return None;
        }
        let timed = entry.timed.load(Ordering::Relaxed);
        let is_measured = timed < account::FIRST_TIMED || timed & (MEASURE_EVERY - 1) == 0;
        let begun = if is_measured { clock.begin() } else { 0 };
        entry.drawn.store(number, Ordering::Relaxed);
        let mut skipped = number - 1 - before;
        let carried = entry.carried.load(Ordering::Relaxed);
        if carried > 0 {
            entry.carried.store(0, Ordering::Relaxed);
            skipped += carried;
        }
        let ticks = entry.ticks.load(Ordering::Relaxed);
        // Until the first gap is drawn, every call is due.
        let period = entry.period.load(Ordering::Relaxed).max(1);
        let mut new = period;
        // The division is not worth its time after each of many calls.
        if timed & 7 == 0 || period > 8 {
            new = if forced { 1 } else { self.account.period(timed, ticks, period) };
            entry.period.store(new, Ordering::Relaxed);
        }
        entry.next.store(number + self.random.gap(new), Ordering::Relaxed);
        let (mut counter_period, mut reads) = (1, false);
        if self.counts {
            let current = entry.counter_period.load(Ordering::Relaxed).max(1);
            counter_period = self.account.counter_period(timed, ticks, period, current);
            if counter_period != current {
                entry.counter_period.store(counter_period, Ordering::Relaxed);
            }
            reads = self.random.one_in(counter_period);
        }
        let drawn = Drawn { period, counter_period, skipped };
        Some((Open { export, drawn, begun }, reads))
    }

    /// Gives a drawn call back, which gets no record: it joins those that were only counted.
    fn give_back(&self, export: u32, drawn: &Drawn) {
        if let Some(entry) = self.entry(export) {
            let carried = entry.carried.load(Ordering::Relaxed);
            entry.carried.store(carried + drawn.skipped + 1, Ordering::Relaxed);
        }
    }

    /// Whether the call in progress at this depth was drawn.
    #[inline(always)]
    pub(crate) fn is_drawn(&self, depth: usize) -> bool {
        self.drawn >> depth & 1 == 1
    }

    /// Adds a drawn call that was recorded. `ticks` is its duration, and `own` what the recorder needed
    /// for it, if that was measured.
    #[inline(always)]
    fn add(&mut self, open: &Open, ticks: u64, read: bool, own: Option<u64>) {
        let Some(entry) = self.entry(open.export) else { return };
        let add = |to: &AtomicU64, more: u64| {
            to.store(to.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
        };
        add(&entry.timed, 1);
        // The end was read before the begin if the two CPUs' clocks differ.
        add(&entry.ticks, if ticks > i64::MAX as u64 { 0 } else { ticks });
        if read {
            add(&entry.counted, 1);
        }
        if let Some(own) = own {
            let cost = if read { &mut self.account.counted } else { &mut self.account.timed };
            cost.measured(own);
        }
        self.account.add(read, open.drawn.skipped);
    }

    /// Returns how the call at this depth was drawn, which is about to be recorded.
    #[inline(always)]
    pub(crate) fn take(&mut self, depth: usize) -> Option<Drawn> {
        let bit = 1 << depth;
        if self.drawn & bit == 0 {
            return None;
        }
        self.drawn &= !bit;
        // SAFETY: the depth is that of a call that was in progress.
        Some(unsafe { self.open.get_unchecked(depth) }.drawn)
    }

    /// Forgets calls in progress, after calibration. Returns whether counters are open.
    pub(crate) fn forget_calls(&mut self) -> bool {
        self.drawn = 0;
        std::mem::take(&mut self.reading) != 0
    }

    /// In a forked child: the table belongs to the parent.
    pub(crate) fn part(&mut self) {
        (self.entries, self.len) = (std::ptr::null_mut(), 0);
        self.table.part();
    }

    /// Unmaps the table and the reserved addresses, for a thread that ends.
    pub(crate) fn unmap(&mut self) {
        (self.entries, self.len) = (std::ptr::null_mut(), 0);
        self.table.unmap();
    }
}

/// Returns whether this call is one that is counted and not timed; then it has been counted. `None`
/// if the thread has no entry for the export, or is not attached.
///
/// # Safety
/// `thread` must be null or the calling thread's state.
#[inline(always)]
pub(crate) unsafe fn is_only_counted(thread: *mut Thread, export: u32) -> Option<bool> {
    // SAFETY: by contract.
    let thread = unsafe { thread.as_ref() }?;
    let entry = thread.draws.entry(export)?;
    thread.is_attached().then(|| !count(entry))
}

impl Thread {
    /// Begins to draw, after calibration. Until then, no call has an entry.
    pub(super) fn begin_draws(&mut self) {
        if !self.draws.is_on {
            return;
        }
        self.draws.account.only_counted = account::Cost::new(cost_of_counting(self.run));
        (self.draws.entries, self.draws.len) = (self.draws.table.entries(), self.draws.table.len());
        let cpu_ns = record::clock::thread_cpu_ns().wrapping_sub(self.draws.began_ns);
        self.draws.account.add_attaching(cpu_ns);
        self.draws.account.settle(cpu_ns, self.draws.counts);
        self.store_spent(cpu_ns);
    }

    /// Counts a call. Returns whether it is due; false if it could not be counted, which is a loss.
    #[inline(always)]
    pub(crate) fn count_call(&mut self, export: u32) -> bool {
        match self.draws.entry(export) {
            Some(entry) => count(entry),
            None => self.count_first(export),
        }
    }

    /// Counts the first call of an export for which the table is too small.
    #[cold]
    #[inline(never)]
    fn count_first(&mut self, export: u32) -> bool {
        let _errno = ErrnoGuard::new();
        let _calm = SignalsBlocked::new();
        point!(CountsGrow);
        if let Err(errno) = self.draws.table.make(self.run, &self.process, &self.start, export) {
            self.process().lose(Loss::NoPage, 1, errno);
            return false;
        }
        (self.draws.entries, self.draws.len) = (self.draws.table.entries(), self.draws.table.len());
        self.draws.entry(export).is_some_and(count)
    }

    /// Begins a call in a run with or without a budget. With one, the call is counted, unless
    /// `is_counted` says that it has been counted and is due, and it is drawn. Returns false if the
    /// call is not recorded and must pass through.
    #[inline(always)]
    pub(crate) fn begin_drawn(
        &mut self,
        export: u32,
        frame: usize,
        newcomer: Newcomer,
        is_counted: bool,
    ) -> bool {
        if !self.draws.is_on || self.rehearsing {
            return self.begin(export, frame, newcomer);
        }
        if !is_counted && !self.count_call(export) {
            return false;
        }
        self.begin_due(export, frame, newcomer, true, false)
    }

    /// Begins a call that the host brackets with two calls to us, of which the second says only which
    /// export ends. `frame` lies above everything that the host calls in between.
    #[inline(always)]
    pub(crate) fn begin_hooked(&mut self, export: u32, frame: usize) {
        let begun = self.begin_drawn(export, frame, Newcomer::Bracketed, false)
            || self.depth > 0 && self.begin_within(export, frame);
        if begun {
            self.begin_apart(export);
        }
    }

    /// Called for a call that is not recorded, while others are in progress. Its end must not be taken
    /// for theirs. So calls that were abandoned are forgotten, and a call of an export within a call of
    /// the same export is recorded in any case.
    #[cold]
    #[inline(never)]
    fn begin_within(&mut self, export: u32, frame: usize) -> bool {
        if !self.draws.is_on || self.draws.only_counts || self.busy.load(Ordering::Relaxed) != 0 {
            return false;
        }
        self.busy.store(1, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        self.forget_abandoned(|_, open| open <= frame);
        compiler_fence(Ordering::SeqCst);
        self.busy.store(0, Ordering::Relaxed);
        self.innermost_apart(export).is_some()
            && self.begin_due(export, frame, Newcomer::Bracketed, true, true)
    }

    /// Begins a call of an adapter that does not ask before it begins one: it is counted, and always
    /// timed unless the budget is 0.
    #[cold]
    #[inline(never)]
    pub(super) fn begin_forced(
        &mut self,
        export: u32,
        frame: usize,
        newcomer: Newcomer,
        counted: bool,
    ) -> bool {
        self.count_call(export) && self.begin_due(export, frame, newcomer, counted, true)
    }

    #[inline(always)]
    fn begin_due(
        &mut self,
        export: u32,
        frame: usize,
        newcomer: Newcomer,
        may_read: bool,
        forced: bool,
    ) -> bool {
        // The recorder was interrupted by a signal handler that makes calls. They are only counted.
        if self.busy.load(Ordering::Relaxed) != 0 {
            return false;
        }
        if self.draws.only_counts {
            self.draws.entry(export).iter().for_each(|e| e.next.store(u64::MAX, Ordering::Relaxed));
            return false;
        }
        let Some((open, reads)) = self.draws.draw(export, forced, self.run.clock) else {
            return false;
        };
        if !self.begin_bracket(export, frame, newcomer, may_read && (reads || forced)) {
            self.draws.give_back(export, &open.drawn);
            return false;
        }
        let depth = self.depth as usize - 1;
        self.draws.drawn |= 1 << depth;
        // SAFETY: `begin_bracket` refuses a depth beyond the arrays.
        unsafe { *self.draws.open.get_unchecked_mut(depth) = open };
        true
    }

    /// Opens the counters for call `depth`, which reads them. They may be open already, for a call
    /// that contains it.
    #[cold]
    #[inline(never)]
    pub(super) fn open_for_call(&mut self, depth: usize) -> bool {
        if self.draws.reading == 0 {
            match self.counters.open_again(&self.run.plan) {
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

    /// Closes the counters if no call in progress below `depth` reads them.
    #[cold]
    #[inline(never)]
    pub(super) fn close_after_call(&mut self, depth: usize) {
        self.draws.reading &= (1 << depth) - 1;
        if self.draws.reading == 0 {
            self.close_for_now();
        }
    }

    pub(super) fn close_for_now(&mut self) {
        self.counters.descriptors().for_each(|fd| descriptors::note(fd, false));
        self.counters.close_for_now();
    }

    /// Whether counters are open for call `depth` or one that it contains.
    #[inline(always)]
    pub(super) fn reads_from(&self, depth: usize) -> bool {
        self.draws.reading >> depth != 0
    }

    /// Forgets call `depth`, which was abandoned.
    pub(super) fn abandon_draw(&mut self, depth: usize) {
        if self.draws.drawn >> depth & 1 == 1 {
            self.draws.drawn &= !(1 << depth);
            let Open { export, drawn, .. } = self.draws.open[depth];
            self.draws.give_back(export, &drawn);
        }
        if self.reads_from(depth) {
            self.close_after_call(depth);
        }
    }

    /// Called after a call was recorded: closes the counters that were open for it, and adds it to its
    /// entry and to the account.
    #[inline(always)]
    pub(super) fn finish_draw(&mut self, call: &Call, is_drawn: bool) {
        let depth = self.depth as usize;
        let read = self.reads_from(depth);
        if read {
            self.close_after_call(depth);
        }
        if is_drawn {
            self.settle_call(depth, call.start, call.end, read);
        }
    }

    /// Counts a call that is not among the calls in progress, and notes that it is recorded.
    pub(super) fn count_apart(&mut self, export: u32) {
        if self.count_call(export)
            && let Some((open, _)) = self.draws.draw(export, true, self.run.clock)
        {
            let depth = self.depth as usize;
            self.draws.drawn |= 1 << depth;
            self.draws.open[depth] = open;
        }
    }

    /// Adds a drawn call to its entry and to the account, after it was recorded and its counters were
    /// closed. `start` and `end` are its times, and `depth` was its place.
    #[inline(always)]
    fn settle_call(&mut self, depth: usize, start: u64, end: u64, read: bool) {
        // SAFETY: the depth is that of a call that was in progress.
        let open = *unsafe { self.draws.open.get_unchecked(depth) };
        let mut own = None;
        if open.begun != 0 {
            let after = self.run.clock.begin();
            let ticks = start.wrapping_sub(open.begun).wrapping_add(after.wrapping_sub(end));
            own = Some(ticks).filter(|ticks| *ticks < i64::MAX as u64);
        }
        self.draws.add(&open, end.wrapping_sub(start), read, own);
    }

    /// Settles the account. `cpu_ns` is the thread's processor time at `ticks`, when a clock record
    /// began to be written.
    pub(super) fn settle_account(&mut self, ticks: u64, cpu_ns: u64) {
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
        account.settle(cpu_ns, self.draws.counts);
        // The call after which this happens did not cost it.
        self.draws.open[self.depth as usize % DEEPEST].begun = 0;
        self.store_spent(cpu_ns);
    }

    fn store_spent(&mut self, cpu_ns: u64) {
        let price_ns = self.draws.account.price_ns();
        self.draws.table.set_spent(Spent { cpu_ns, price_ns });
    }

    /// Adds the calls that were only counted since an export was last timed.
    fn settle_counting(&mut self, counted: &CountsFrame) {
        let only_counted: u64 =
            counted.rows.iter().map(|row| row.calls.saturating_sub(row.timed)).sum();
        let cpu_ns = record::clock::thread_cpu_ns().wrapping_sub(self.draws.began_ns);
        self.draws.account.end(only_counted);
        self.store_spent(cpu_ns);
    }

    /// Appends the thread's counts to the profile, and gives the table back. If they cannot be
    /// appended, they stay in the pool for the collector.
    pub(super) fn leave_draws(&mut self) {
        if !self.draws.is_on {
            return;
        }
        if let Some(counted) = self.draws.table.frame() {
            self.settle_counting(&counted);
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

/// Measures what counting a call costs, in ticks. The loop's caches are warm and its jumps are
/// predicted, so the result is doubled.
#[cold]
fn cost_of_counting(run: &Run) -> f64 {
    const CALLS: u32 = 256;
    // SAFETY: an entry consists of integers.
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

/// A seed that differs between threads and runs. Tests can fix it with `COUNTERPOINT_TEST_SEED`; then it
/// depends only on the thread's number.
#[cold]
fn seed(thread: u32) -> u64 {
    // SAFETY: a C string; the result is null or a C string.
    let fixed = unsafe { libc::getenv(c"COUNTERPOINT_TEST_SEED".as_ptr()) };
    if !fixed.is_null() {
        // SAFETY: as above.
        let text = unsafe { std::ffi::CStr::from_ptr(fixed) }.to_str().unwrap_or_default();
        if let Ok(number) = text.parse::<u64>() {
            return number ^ u64::from(thread) << 32;
        }
    }
    let place = std::ptr::from_ref(&fixed) as u64;
    record::clock::monotonic_ns() ^ place.rotate_left(20) ^ u64::from(sys::thread_id()) << 40
}

#[cfg(test)]
mod tests;
