//! The stages of attaching a thread. Each stage takes a resource, and gives it back when the stage
//! is dropped, unless `keep` was called. If a stage fails, the earlier stages are dropped in
//! reverse order.
//!
//! ```text
//!  ClaimedPage ─► Memory ─► Counters ─► TakenDraws ─► all are kept by the thread's state
//! ```

use std::mem::MaybeUninit;

use counters::ThreadCounters;
use model::Loss;
use record::page::PageStart;

use super::TryLater;
use crate::os::sys;
use crate::process::descriptors;
use crate::process::part::Process;
use crate::recorder::budget::sampling::Draws;
use crate::recorder::pages;
use crate::recorder::thread::{THREAD_BYTES, Thread};
use crate::state::epoch;
use crate::state::run::Run;

pub(super) struct ClaimedPage {
    run: &'static Run,
    pub(super) number: usize,
}

impl ClaimedPage {
    pub(super) fn claim(run: &'static Run, process: &Process) -> Result<Self, TryLater> {
        let number = pages::claim(run, process).ok_or(TryLater)?;
        Ok(Self { run, number })
    }

    pub(super) fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for ClaimedPage {
    fn drop(&mut self) {
        self.run.pool.release_page(self.number);
    }
}

pub(super) struct Memory {
    pub(super) at: *mut Thread,
    /// Whether the memory was mapped for this attempt. Otherwise, it contains an earlier state of
    /// the thread.
    pub(super) is_fresh: bool,
}

impl Memory {
    pub(super) fn take(old: Option<&mut Thread>, process: &Process) -> Result<Self, TryLater> {
        if let Some(old) = old {
            return Ok(Self { at: old, is_fresh: false });
        }
        match sys::map_wiped_on_fork(THREAD_BYTES) {
            Ok(memory) => Ok(Self { at: memory.cast(), is_fresh: true }),
            Err(errno) => {
                process.lose(Loss::AgentDisabled, 1, errno);
                if errno == libc::EINVAL {
                    // Linux before 4.14 has no MADV_WIPEONFORK, so the agent could not notice a
                    // fork.
                    epoch::switch_off();
                }
                Err(TryLater)
            }
        }
    }

    pub(super) fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if self.is_fresh {
            sys::unmap(self.at.cast(), THREAD_BYTES);
        }
    }
}

/// The thread's counters. They are not opened if the run has no counters or the budget 0, and
/// opening them can fail.
pub(super) struct Counters {
    counters: ThreadCounters<'static>,
    pub(super) are_open: bool,
}

impl Counters {
    /// Opens the thread's counters. If that fails, counts a loss.
    pub(super) fn open(run: &'static Run, process: &Process) -> Self {
        let mut this = Self { counters: ThreadCounters::closed(), are_open: false };
        if run.counter_mask != 0 && run.budget != Some(0.0) {
            match this.counters.open(&run.plan) {
                Ok(()) => {
                    this.note_descriptors(true);
                    this.are_open = true;
                }
                Err(failure) => process.lose(Loss::CounterOpenFailed, 1, failure.error.errno),
            }
        }
        this
    }

    fn note_descriptors(&self, are_open: bool) {
        self.counters.descriptors().for_each(|fd| descriptors::note(fd, are_open));
    }

    pub(super) fn close_for_now(&mut self) {
        self.note_descriptors(false);
        self.counters.close_for_now();
    }

    pub(super) fn keep(self) -> ThreadCounters<'static> {
        let this = std::mem::ManuallyDrop::new(self);
        // SAFETY: `ManuallyDrop` keeps `this` from being dropped, so the counters still have a
        // single owner.
        unsafe { std::ptr::read(&raw const this.counters) }
    }
}

impl Drop for Counters {
    fn drop(&mut self) {
        self.note_descriptors(false);
        self.counters.close();
    }
}

/// The data for choosing calls at random in a run with a budget (a limit for the cost of
/// recording). They include a table with the thread's numbers of calls. If the thread was attached
/// before, the address range of its earlier table is reused.
pub(super) struct TakenDraws<'a> {
    pub(super) draws: Draws,
    memory: &'a Memory,
}

impl<'a> TakenDraws<'a> {
    pub(super) fn new(memory: &'a Memory) -> Self {
        let base = match memory.is_fresh {
            true => std::ptr::null_mut(),
            // SAFETY: memory that is not fresh contains the thread's earlier state, which is
            // detached.
            false => unsafe { (*memory.at).draws.base() },
        };
        Self { draws: Draws::off(base), memory }
    }

    pub(super) fn prepare(
        &mut self,
        run: &Run,
        process: &Process,
        start: &PageStart,
        counts: bool,
        began_ns: u64,
    ) -> Result<(), TryLater> {
        self.draws.prepare(run, process, start, counts, began_ns).map_err(|errno| {
            if errno != 0 {
                process.lose(Loss::PoolTooSmall, 1, errno);
            }
            TryLater
        })
    }

    pub(super) fn keep(self) -> Draws {
        let this = std::mem::ManuallyDrop::new(self);
        // SAFETY: `ManuallyDrop` keeps `this` from being dropped, so the value in `draws` still has
        // a single owner.
        unsafe { std::ptr::read(&raw const this.draws) }
    }
}

impl Drop for TakenDraws<'_> {
    fn drop(&mut self) {
        if self.memory.is_fresh {
            self.draws.unmap();
        } else {
            // The earlier state keeps the reserved address range.
            // SAFETY: memory that is not fresh contains the thread's earlier state, which is
            // detached.
            unsafe { put_in_words(&raw mut (*self.memory.at).draws, &self.draws) };
        }
    }
}

/// Writes a value word by word. For a large value, a plain write would call `memmove`.
/// ThreadSanitizer in the host would see this call, and would report a race with the thread that
/// had this memory before. The reason is that ThreadSanitizer does not see the agent's system
/// calls, which unmap and map memory in between.
///
/// # Safety
/// `to` must be valid for writes.
pub(super) unsafe fn put_in_words<T>(to: *mut T, from: &T) {
    const { assert!(size_of::<T>().is_multiple_of(8) && align_of::<T>() == 8) };
    let (to, from) =
        (to.cast::<MaybeUninit<u64>>(), std::ptr::from_ref(from).cast::<MaybeUninit<u64>>());
    for word in 0..size_of::<T>() / 8 {
        // SAFETY: `word` is an index within both values, and by contract `to` is valid for writes.
        unsafe { to.add(word).write_volatile(*from.add(word)) };
    }
}
