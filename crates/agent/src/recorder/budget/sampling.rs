//! The data with which a thread draws calls (chooses the calls that are timed): its table, its
//! account, and its drawn calls in progress.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering};

use record::counts::Entry;
use record::page::PageStart;
use record::{ClockKind, Drawn};

use super::account::{self, Account};
use super::random::Random;
use super::table::Table;
use crate::os::sys;
use crate::process::part::Process;
use crate::state::run::Run;

/// The largest number of nested calls that a thread records. It is a power of two, so that the
/// operation `at % DEEPEST` takes one instruction, and its result is an index that the compiler
/// need not check.
pub(crate) const DEEPEST: usize = 32;

const _: () = assert!(DEEPEST.is_power_of_two());

/// After the first timed calls of an export (recorded function), one timed call in this many is
/// used to measure the cost of timing. Must be a power of two.
const MEASURE_EVERY: u64 = 64;

/// The rule that decides whether a counted call is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// Drawn at random. This is the usual rule.
    Due,
    /// Drawn at random, in a *watched* run of the model: the host announces each call of this run.
    /// The run was chosen with the probability 1 divided by this number.
    Watched(u32),
    /// Drawn at random, in a step of the program whose ops the host announces. The step was chosen
    /// with the probability 1 divided by this number.
    Seen(u32),
    /// Timed in any case, because it is inside of an open call of the same export. Its record
    /// contains the export's present period.
    Within,
    /// Timed in any case, so its period is 1.
    Always,
    /// Timed in any case, in a watched run of the model ([`Self::Watched`]). The run was chosen
    /// with the probability 1 divided by this number.
    AlwaysWatched(u32),
    /// Timed because the call around it is timed. That outer call was drawn with these numbers. The
    /// second field says whether the counters of the inner call are read.
    Like(Drawn, bool),
    /// Only counted, because the call around it is only counted.
    Never,
}

impl How {
    /// Returns whether a counted call must be recorded. `is_due` is the result of [`count`].
    #[inline(always)]
    pub(super) fn wants(self, is_due: bool) -> bool {
        match self {
            Self::Never => false,
            Self::Due | Self::Watched(_) | Self::Seen(_) => is_due,
            _ => true,
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct DrawnCall {
    pub(super) export: u32,
    pub(super) drawn: Drawn,
    /// Time in ticks at which the recorder began to work for the call; 0 if its cost is not
    /// measured.
    pub(super) begun: u64,
    /// Whether the cost of the calls that were only counted before this call is already in the
    /// account.
    pub(super) is_billed: bool,
}

impl DrawnCall {
    pub(crate) const NONE: Self = Self {
        export: 0,
        drawn: Drawn { period: 1, counter_period: 1, skipped: 0 },
        begun: 0,
        is_billed: false,
    };
}

/// The largest number of nested ops that a thread remembers if they are only counted. Parallel
/// regions of deeper ops are attributed to an op around them.
pub(super) const MOST_COUNTED: usize = 32;

#[derive(Clone, Copy, Debug)]
pub(crate) struct CountedOp {
    pub(super) frame: usize,
    /// The adapter's description of the op, which is never freed.
    pub(super) subject: *const c_void,
    /// Number of recorded calls that were open when the op began.
    pub(super) depth: u32,
}

impl CountedOp {
    pub(crate) const NONE: Self = Self { frame: 0, subject: std::ptr::null(), depth: 0 };
}

/// The thread's data about the steps of the program ([`super::steps`]).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OwnSteps {
    /// The step whose calls the thread has not added up yet, and its weight.
    pub(super) number: u64,
    pub(super) weight: u32,
    /// The process's totals of the steps in the sample ([`super::steps`]) when the thread attached:
    /// the number of steps, the sum of their weights, and the sum of the squared weights.
    pub(super) before: [u64; 3],
    /// Number of the thread's calls in the last step with calls.
    pub(super) calls: u64,
}

/// The part of a thread's state that draws calls. The fields that the fast path reads come first.
#[repr(C)]
pub(crate) struct Draws {
    pub(super) entries: *mut Entry,
    /// Number of entries in the table; 0 if the thread does not count calls.
    pub(super) len: u32,
    /// Whether the run has a budget (a limit for the cost of recording).
    pub(super) is_on: bool,
    /// Whether the budget is 0, so that no call is timed.
    pub(super) only_counts: bool,
    /// Whether the counters of the run can be opened for this thread.
    pub(super) counts: bool,
    /// Number of elements of `counted_stack` that are in use.
    pub(super) counted_ops: u32,
    /// Bit *i* is set if the open call with index *i* reads counters.
    pub(super) reading: u32,
    pub(super) random: Random,
    pub(super) account: Account,
    /// The thread's processor time when it began to attach, in ns.
    pub(super) began_ns: u64,
    /// Total ticks that flushes (handing over full pages of records) had taken when the account was
    /// last updated.
    pub(super) flush_ticks: u64,
    pub(super) table: Table,
    pub(super) steps: OwnSteps,
    pub(super) open: [DrawnCall; DEEPEST],
    pub(super) counted_stack: [CountedOp; MOST_COUNTED],
}

/// Counts a call. Returns whether the call is due: its number has reached that of the next call to
/// time.
#[inline(always)]
pub(crate) fn count(entry: &Entry) -> bool {
    // The increment is one instruction. So no count is lost if a signal handler interrupts the
    // thread here and makes a call of the same export. The instruction needs no lock prefix,
    // because only this thread writes to the entry.
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the instruction increments `entry.calls`, an atomic that only this thread writes to.
    unsafe {
        std::arch::asm!("inc qword ptr [{}]", in(reg) entry.calls.as_ptr(), options(nostack));
    }
    #[cfg(not(target_arch = "x86_64"))]
    entry.calls.fetch_add(1, Ordering::Relaxed);
    entry.calls.load(Ordering::Relaxed) >= entry.next.load(Ordering::Relaxed)
}

/// Counts calls that the host did not announce. The number of announced calls until the next timed
/// call does not change.
pub(super) fn count_unwatched(entry: &Entry, calls: u64) {
    let next = entry.next.load(Ordering::Relaxed);
    // If `next` is 0, every call is due. If it is `u64::MAX`, no call will be.
    if next != u64::MAX && next != 0 {
        entry.next.store(next.saturating_add(calls), Ordering::Relaxed);
    }
    entry.calls.fetch_add(calls, Ordering::Relaxed);
}

impl Draws {
    /// Makes the state for a run without a budget; [`Draws::prepare`] completes it for a run with
    /// one. `base` is the address range that the thread reserved earlier for its table, or null.
    pub(crate) fn off(base: *mut u8) -> Self {
        Self {
            entries: std::ptr::null_mut(),
            len: 0,
            is_on: false,
            only_counts: false,
            counts: false,
            counted_ops: 0,
            reading: 0,
            random: Random::new(0),
            account: Account::new(0.0, 1.0, 0, false),
            began_ns: 0,
            flush_ticks: 0,
            table: Table::none(base),
            steps: OwnSteps::default(),
            open: [DrawnCall::NONE; DEEPEST],
            counted_stack: [CountedOp::NONE; MOST_COUNTED],
        }
    }

    /// Prepares a thread for a run with a budget. `counts` says whether the counters of the run can
    /// be opened for this thread. `began_ns` is the thread's processor time when it began to
    /// attach.
    ///
    /// # Errors
    /// The errors of [`Table::make`].
    pub(crate) fn prepare(
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

    pub(crate) fn base(&self) -> *mut u8 {
        self.table.base()
    }

    #[inline(always)]
    pub(crate) fn is_on(&self) -> bool {
        self.is_on
    }

    #[inline(always)]
    pub(crate) fn entry(&self, export: u32) -> Option<&Entry> {
        // SAFETY: `export` is below `len`, the number of entries in the table.
        (export < self.len).then(|| unsafe { &*self.entries.add(export as usize) })
    }

    /// Draws the call of `export` that was just counted, and decides which call of the export will
    /// be drawn next. Returns how this call was drawn, and whether its counters are read. Returns
    /// `None` if a signal handler has drawn a later call in the meantime, or if the export has no
    /// entry.
    #[inline(always)]
    pub(super) fn draw(
        &mut self,
        export: u32,
        how: How,
        clock: ClockKind,
    ) -> Option<(DrawnCall, bool)> {
        // SAFETY: `export` is below `len`, the number of entries in the table. The table is not
        // changed while the reference exists.
        let entry = (export < self.len).then(|| unsafe { &*self.entries.add(export as usize) })?;
        let number = entry.calls.load(Ordering::Relaxed);
        let before = entry.drawn.load(Ordering::Relaxed);
        if number <= before {
            return None;
        }
        let timed = entry.timed.load(Ordering::Relaxed);
        let is_measured = timed < account::FIRST_TIMED || timed & (MEASURE_EVERY - 1) == 0;
        let begun = if is_measured { clock.begin() } else { 0 };
        // A signal handler can draw a call at any instruction. If it has drawn a call of the same
        // export, the compare-and-exchange fails, so that no two records represent the same earlier
        // calls.
        let order = Ordering::Relaxed;
        entry.drawn.compare_exchange(before, number, order, order).ok()?;
        let mut skipped = number - 1 - before;
        if entry.carried.load(Ordering::Relaxed) > 0 {
            skipped += entry.carried.swap(0, Ordering::Relaxed);
        }
        if let How::Always | How::AlwaysWatched(_) | How::Like(..) = how {
            // Makes the export's next call due, so that only the rule (`how`) of that call decides
            // whether it is timed.
            entry.period.store(1, Ordering::Relaxed);
            entry.next.store(number + 1, Ordering::Relaxed);
            let (of, reads) = match how {
                How::Like(of, reads) => (of, reads),
                How::AlwaysWatched(period) => (Drawn { period, ..Drawn::default() }, self.counts),
                _ => (Drawn::default(), self.counts),
            };
            let drawn = Drawn { skipped, ..of };
            return Some((DrawnCall { export, drawn, begun, is_billed: false }, reads));
        }
        let watched = match how {
            How::Watched(one_in) | How::Seen(one_in) => one_in.max(1),
            _ => 1,
        };
        let ticks = entry.ticks.load(Ordering::Relaxed);
        // The period is 0 until the first call of the export is drawn, and every call is due until
        // then.
        let period = entry.period.load(Ordering::Relaxed).max(1);
        let mut new = period;
        // If `watched` is 1, a period of at most 8 is computed anew only for every eighth timed
        // call, because the division takes time.
        if timed & 7 == 0 || period > 8 || watched > 1 {
            new = match how {
                How::Within => 1,
                _ => self.account.period(timed, ticks, period, watched),
            };
            entry.period.store(new, Ordering::Relaxed);
        }
        entry.next.store(number + self.random.gap(new), Ordering::Relaxed);
        let of_all = period.saturating_mul(watched);
        let (mut counter_period, mut reads) = (1, false);
        if self.counts {
            let current = entry.counter_period.load(Ordering::Relaxed).max(1);
            counter_period = self.account.counter_period(timed, ticks, of_all, current);
            if counter_period != current {
                entry.counter_period.store(counter_period, Ordering::Relaxed);
            }
            reads = self.random.one_in(counter_period);
        }
        let drawn = Drawn { period: of_all, counter_period, skipped };
        Some((DrawnCall { export, drawn, begun, is_billed: false }, reads))
    }

    #[inline(always)]
    pub(crate) fn set_open(&mut self, at: usize, open: &DrawnCall) {
        self.open[at % DEEPEST] = *open;
    }

    /// Gives back the draw of a call that gets no record. From then on, the call and the calls that
    /// it represented are treated like calls that were only counted.
    pub(super) fn give_back(&self, export: u32, drawn: &Drawn) {
        if let Some(entry) = self.entry(export) {
            entry.carried.fetch_add(drawn.skipped + 1, Ordering::Relaxed);
        }
    }

    /// Adds a recorded, drawn call to the export's entry and to the account. `ticks` is its
    /// duration. `own` is the recorder's time for it, if measured.
    #[inline(always)]
    pub(super) fn add(&mut self, open: &DrawnCall, ticks: u64, read: bool, own: Option<u64>) {
        let Some(entry) = self.entry(open.export) else { return };
        let add = |to: &AtomicU64, more: u64| {
            to.store(to.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
        };
        add(&entry.timed, 1);
        // If the clocks of two CPUs differ, the end may be before the start.
        add(&entry.ticks, if ticks > i64::MAX as u64 { 0 } else { ticks });
        if read {
            add(&entry.counted, 1);
        }
        if let Some(own) = own {
            let cost = if read { &mut self.account.counted } else { &mut self.account.timed };
            cost.measured(own);
        }
        self.account.add(read, if open.is_billed { 0 } else { open.drawn.skipped });
    }

    #[inline(always)]
    pub(crate) fn drawn_at(&self, at: usize) -> Drawn {
        self.open[at % DEEPEST].drawn
    }

    /// Called after calibration. Forgets which ops in progress are only counted, and which open
    /// calls read counters. Returns whether an open call reads counters, so that the thread's
    /// counters are still open.
    pub(crate) fn forget_calls(&mut self) -> bool {
        self.counted_ops = 0;
        std::mem::take(&mut self.reading) != 0
    }

    /// Stops using the table, and leaves its pages in the pool (memory that `counterpoint run`
    /// shares with the processes of a run). Called in a forked child, where the table belongs to
    /// the parent, and when the recording to which the thread's state belongs has ended.
    pub(crate) fn part(&mut self) {
        (self.entries, self.len) = (std::ptr::null_mut(), 0);
        self.table.part();
    }

    /// Unmaps the table and the reserved addresses. Called when the thread ends.
    pub(crate) fn unmap(&mut self) {
        (self.entries, self.len) = (std::ptr::null_mut(), 0);
        self.table.unmap();
    }
}

/// Returns a seed that differs between threads and runs. If the environment variable
/// `COUNTERPOINT_TEST_SEED` is a number, the seed depends only on this number and the thread's.
#[cold]
fn seed(thread: u32) -> u64 {
    // SAFETY: the name is a C string, so `getenv` returns null or a C string.
    let fixed = unsafe { libc::getenv(c"COUNTERPOINT_TEST_SEED".as_ptr()) };
    if !fixed.is_null() {
        // SAFETY: `getenv` returned a C string, and tests do not change this variable.
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
