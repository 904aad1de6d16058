//! What one thread owns: a page of the pool, its counters, and the calls that it is in.
//!
//! ```text
//!            first call            every call            thread exit
//!  (nothing) ──────────► attached ──────────► attached ──────────────► gone
//!      ▲                    │ fork: the child finds zeroed memory        │ destructors that call
//!      └────────────────────┘                                            ▼ again, up to 3 times
//!                                                                     (nothing)
//! ```
//!
//! The thread-local itself is two words in the static TLS block: reading it never allocates and
//! is safe in a signal handler. Everything else is in memory of its own that is present from the
//! start and zeroed in a forked child. [`crate::recorder::attach`] makes it and gives it back.

use std::sync::atomic::{AtomicU32, Ordering};

use counters::{Readings, ThreadCounters};
use record::page::{PageStart, PageWriter};

use crate::process::descriptors;
use crate::process::part::Process;
use crate::state::epoch;
use crate::state::run::Run;

mod calls;
mod local;
mod usage;

pub(crate) use calls::{Apart, MOST_COLLECTORS, Slot, Started};
pub use local::current;
pub(crate) use local::{get as local, set_saved, take_saved, with_current};

/// Nested calls (from a signal handler, a dispatch that dispatches, functions of a model that call
/// one another) that are recorded.
pub const DEEPEST: usize = 32;

/// See the module's documentation.
#[repr(C)]
pub struct Thread {
    /// The epoch that the state belongs to ([`epoch::current`]) while attached; zero before and
    /// afterwards, and in a forked child.
    pub(crate) epoch: AtomicU32,
    /// 1 while the recorder itself runs: a signal handler that calls then passes through.
    pub(crate) busy: AtomicU32,
    pub(crate) depth: u32,
    /// [`OURS`]; zero in a forked child, also where a copy of the parent's state was put back.
    pub(crate) memory: u32,
    /// Whether counters are read.
    pub(crate) counting: bool,
    /// Bit *i*: call *i* in progress is timed only.
    pub(crate) uncounted: u32,
    /// Whether the calls are empty ones, for calibration: their losses do not count.
    pub(crate) rehearsing: bool,
    /// Whether the loss of its descriptors was counted.
    pub(crate) lost_noted: bool,
    pub(crate) run: &'static Run,
    pub(crate) writer: PageWriter,
    /// Stack addresses of the calls in progress. A call was abandoned if a later one has a frame
    /// above it.
    pub(crate) frames: [usize; DEEPEST],
    /// Bit *i*: call *i* in progress begins and ends in two calls of the host, and `apart[i]` is
    /// what its end has to know.
    pub(crate) is_apart: u32,
    pub(crate) apart: [Apart; DEEPEST],
    /// Bit *i*: the host may have frames of its own between the begin of call *i* and the call
    /// ([`crate::recorder::bracket::WRAPPERS`]).
    pub(crate) is_wrapped: u32,
    /// Bit *i*: `slots[i]` belongs to call *i*.
    pub(crate) has_slot: u32,
    pub(crate) slots: [Slot; DEEPEST],
    /// Bit *i*: `collected[i]` belongs to call *i*.
    pub(crate) has_collected: u32,
    pub(crate) collected: [Started; DEEPEST],
    pub(crate) next_clock: u64,
    pub(crate) counters: ThreadCounters<'static>,
    pub(crate) after: Readings,
    pub(crate) before: [Readings; DEEPEST],
    pub(super) page: usize,
    pub(super) start: PageStart,
    pub(super) process: Process,
}

/// Marks memory that the thread's next state may be made in.
pub(super) const OURS: u32 = 0x7468_7264;

/// Bytes that are mapped for a state.
pub(super) const THREAD_BYTES: usize = size_of::<Thread>().next_multiple_of(4096);

impl Thread {
    /// Whether calls can be recorded: attached to what is being recorded now.
    #[inline(always)]
    pub(crate) fn is_attached(&self) -> bool {
        self.epoch.load(Ordering::Relaxed) == epoch::current()
    }

    /// Whether it was attached to something that is no longer being recorded.
    pub(super) fn is_stale(&self) -> bool {
        let epoch = self.epoch.load(Ordering::Relaxed);
        epoch != 0 && epoch != epoch::current()
    }

    /// Whether its memory can take the thread's next state. In a forked child it cannot, because
    /// what a handler had interrupted still ends in it.
    pub(super) fn is_reusable(&self) -> bool {
        self.memory == OURS
    }

    /// Its session has ended. The page is left for the collector, and the counters are closed.
    pub(super) fn discard(&mut self) {
        self.epoch.store(0, Ordering::Relaxed);
        self.close_counters();
        self.writer.detach();
        // SAFETY: only this thread wrote to it, and it has stopped.
        unsafe { self.run.pool.unmap_page(self.page) };
        self.run.threads.fetch_sub(1, Ordering::SeqCst);
    }

    pub(super) fn close_counters(&mut self) {
        self.counters.descriptors().for_each(|fd| descriptors::note(fd, false));
        self.counters.close();
    }

    /// Its page of the pool.
    pub(crate) fn page_number(&self) -> usize {
        self.page
    }

    /// The process that the thread belongs to.
    pub(crate) fn process(&self) -> &Process {
        &self.process
    }

    /// Runs `body`, which brackets empty calls, with `scratch` in the place of the thread's page.
    pub(crate) fn with_scratch<T>(
        &mut self,
        scratch: *mut u8,
        body: impl FnOnce(&mut Self) -> T,
    ) -> T {
        let mut writer = PageWriter::detached();
        // SAFETY: the caller's scratch is a whole page of its own.
        unsafe { writer.attach(scratch, &self.start) };
        std::mem::swap(&mut self.writer, &mut writer);
        self.rehearsing = true;
        self.busy.store(0, Ordering::Relaxed);
        let result = body(self);
        self.busy.store(1, Ordering::Relaxed);
        self.rehearsing = false;
        // If a session ended meanwhile, an empty call has no end.
        (self.depth, self.uncounted) = (0, 0);
        (self.is_apart, self.is_wrapped, self.has_slot) = (0, 0, 0);
        std::mem::swap(&mut self.writer, &mut writer);
        result
    }
}

// The bracket's state must not need dropping: its memory is unmapped, not dropped.
const _: () = assert!(!std::mem::needs_drop::<Thread>());
