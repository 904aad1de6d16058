//! The state that one thread owns: a page for its records, its counters, and its open calls. The
//! page is in the pool, the memory that `counterpoint run` shares with the processes of a run.
//!
//! ```text
//!            first call            every call            thread exit
//!  (nothing) ──────────► attached ──────────► attached ──────────────► gone
//!      ▲                    │ fork: the child finds zeroed memory        │ destructors that call
//!      └────────────────────┘                                            ▼ again, up to 2 times
//!                                                                     (nothing)
//! ```
//!
//! A small struct in the static TLS block (`thread/local.rs`) points to this state. The state
//! itself ([`Thread`]) is in separate memory that is present from the start and is zeroed in a
//! forked child. [`crate::recorder::attach`] creates and releases this memory.

use std::sync::atomic::{AtomicU32, Ordering};

use counters::{Readings, ThreadCounters};
use record::ClockKind;
use record::page::{PageStart, PageWriter};

use crate::process::descriptors;
use crate::process::part::Process;
use crate::recorder::budget::sampling::Draws;
use crate::recorder::busy::Busy;
use crate::state::epoch;
use crate::state::run::Run;

mod announced;
mod brackets;
mod calls;
mod local;
mod usage;

pub(crate) use announced::{Announcing, Times as AnnouncedTimes};
pub(crate) use brackets::{AFTER, BEFORE, BracketTimes, FIRST, Halves};
pub(crate) use calls::{MOST_COLLECTORS, OpenCall, Slot, Started, State, Workers};
pub use local::current;
pub(crate) use local::{get as local, set_saved, take_saved, with_current};

/// Maximum depth of nested calls that are recorded. Calls are nested if, for example, a signal
/// handler makes a call, or functions of a model call each other.
pub const DEEPEST: usize = crate::recorder::budget::sampling::DEEPEST;

/// The state of a thread. The fields that are needed in every call come first. Between two calls,
/// the program displaces them from the processor's caches, so they should be in few cache lines. A
/// call needs the first line of this struct, the line of the open call, and the first line of
/// `writer`.
#[repr(C, align(64))]
pub struct Thread {
    /// The epoch (number of the recording, [`epoch::current`]) to which the state belongs while the
    /// thread is attached; otherwise zero, also in a forked child.
    pub(crate) epoch: AtomicU32,
    /// Set while the recorder changes this state.
    pub(crate) busy: Busy,
    pub(crate) depth: u32,
    /// Whether the thread's counters could be opened.
    pub(crate) counting: bool,
    /// Set while calibration makes empty calls. If the counters cannot be read for such a call,
    /// this is not counted as a loss.
    pub(crate) rehearsing: bool,
    /// Set once a loss was counted because the program has closed the file descriptors of the
    /// thread's counters.
    pub(crate) lost_noted: bool,
    /// Number of counters if they are all in one group; otherwise 0.
    pub(crate) one_group: u8,
    /// Whether calls that are only timed may take the short way ([`crate::recorder::short`]).
    pub(crate) short_calls: bool,
    /// Whether ops may take the short way.
    pub(crate) short_ops: bool,
    pub(crate) clock: ClockKind,
    /// Number of counters of the run, whether or not the thread's could be opened.
    pub(crate) counters_of_run: u8,
    /// For each half of a bracket (the recorder's work before a call, and after it): the number of
    /// calls until this half is timed.
    pub(crate) until_timed: [u16; 2],
    /// Serial number of the part of the profile into which the attached thread records.
    pub(crate) serial: u32,
    /// Decides when the agent next measures how long the host takes to announce an op.
    pub(crate) announcing: Announcing,
    pub(crate) run: &'static Run,
    /// The next record of the thread's clocks is due at this time, in ticks.
    pub(crate) next_clock: u64,
    pub(super) halves: Halves,
    /// The open calls; only the first `depth` elements are in use.
    pub(crate) calls: [OpenCall; DEEPEST],
    pub(crate) writer: PageWriter,
    /// In a run with a budget (a limit for the cost of recording), the data for drawing calls
    /// (choosing calls at random).
    pub(crate) draws: Draws,
    pub(crate) workers: [Workers; DEEPEST],
    pub(crate) collected: [Started; DEEPEST],
    pub(crate) counters: ThreadCounters<'static>,
    pub(crate) after: Readings,
    pub(crate) before: [Readings; DEEPEST],
    pub(super) brackets: BracketTimes,
    pub(super) announced: AnnouncedTimes,
    /// [`OURS`], or zero in a forked child, even if a copy of the parent's state was restored
    /// there.
    pub(crate) memory: u32,
    pub(super) page: usize,
    /// Pages that the thread has offered to `counterpoint run` and that `run` may have given back
    /// empty; [`NO_PAGE`] in unused elements.
    pub(super) spares: [usize; SPARES],
    /// Whether the thread has appended a page itself. This shows that the profile's file of pages
    /// exists and can be written.
    pub(super) has_appended: bool,
    pub(super) start: PageStart,
    pub(super) process: Process,
}

/// The number of full pages that a thread can offer to `counterpoint run` at a time. With only one,
/// a thread with short calls would often find that `run` has not given the page back yet.
pub(super) const SPARES: usize = 2;
/// Stored instead of a page's index if there is no page.
pub(super) const NO_PAGE: usize = usize::MAX;

/// If [`Thread::memory`] has this value, the thread's next state can be created in the same memory.
pub(super) const OURS: u32 = 0x7468_7264;

pub(super) const THREAD_BYTES: usize = size_of::<Thread>().next_multiple_of(4096);

impl Thread {
    /// Returns whether the thread is attached to the current recording.
    #[inline(always)]
    pub(crate) fn is_attached(&self) -> bool {
        self.epoch.load(Ordering::Relaxed) == epoch::current()
    }

    /// Returns whether the thread is attached to a recording that is no longer current.
    pub(super) fn is_stale(&self) -> bool {
        let epoch = self.epoch.load(Ordering::Relaxed);
        epoch != 0 && epoch != epoch::current()
    }

    /// Returns whether the thread's next state can be created in this memory. In a forked child it
    /// cannot, because the recorder's code that a signal handler interrupted before it forked may
    /// still use the memory.
    pub(super) fn is_reusable(&self) -> bool {
        self.memory == OURS
    }

    /// Called when the session (a recording that the program itself begins) to which this state
    /// belongs has ended. Leaves the page in the pool, from which `counterpoint run` or
    /// `counterpoint report` collects it.
    pub(super) fn discard(&mut self) {
        self.epoch.store(0, Ordering::Relaxed);
        self.close_counters();
        self.draws.part();
        self.writer.detach();
        // SAFETY: only this thread wrote to the page, and its writer was detached above.
        unsafe { self.run.pool.unmap_page(self.page) };
        self.leave_spares();
        self.run.threads.fetch_sub(1, Ordering::SeqCst);
    }

    pub(super) fn close_counters(&mut self) {
        self.counters.descriptors().for_each(|fd| descriptors::note(fd, false));
        self.counters.close();
    }

    pub(crate) fn page_number(&self) -> usize {
        self.page
    }

    pub(crate) fn process(&self) -> &Process {
        &self.process
    }

    /// Runs `body`, which makes empty calls with brackets. Their records are written to `scratch`
    /// instead of the thread's page.
    pub(crate) fn with_scratch<T>(
        &mut self,
        scratch: *mut u8,
        body: impl FnOnce(&mut Self) -> T,
    ) -> T {
        let mut writer = PageWriter::detached();
        // SAFETY: `scratch` is a whole page that nothing but the caller uses.
        unsafe { writer.attach(scratch, &self.start) };
        std::mem::swap(&mut self.writer, &mut writer);
        self.rehearsing = true;
        self.busy.clear();
        let result = body(self);
        self.busy.set();
        self.rehearsing = false;
        // If a session ended while `body` ran, an empty call may have begun and not ended.
        self.calls.iter_mut().for_each(|call| call.state = State::PLAIN);
        self.depth = 0;
        if self.draws.forget_calls() {
            self.close_for_now();
        }
        std::mem::swap(&mut self.writer, &mut writer);
        result
    }
}

const _: () = assert!(std::mem::offset_of!(Thread, calls) == 64);

// The memory of the state is unmapped without dropping the state.
const _: () = assert!(!std::mem::needs_drop::<Thread>());
