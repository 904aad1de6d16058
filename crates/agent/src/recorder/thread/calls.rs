//! The open calls of a thread: calls that have begun and not ended. [`crate::recorder::bracket`]
//! has a diagram of their states.
//!
//! The fields that every call needs are in one cache line, [`OpenCall`]. Other fields are in
//! further arrays of the thread's state, at the same index. A bit of the call's [`State`] says
//! whether the call's element of such an array is valid.

use std::ffi::c_void;

use model::MAX_COUNTERS;

use super::{DEEPEST, Thread};

/// Maximum number of users' collectors that can be registered at the same time.
pub(crate) const MOST_COLLECTORS: usize = 8;

/// An open call. Its index in [`Thread::calls`] is the number of calls around it.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct OpenCall {
    /// A stack address (see [`crate::recorder::bracket::Ending`]), or the result of
    /// [`crate::recorder::bracket::held`].
    pub(crate) frame: usize,
    /// The called export (recorded function). Valid if the call has [`State::SPLIT`].
    pub(crate) export: u32,
    pub(crate) state: State,
    /// Time at which the call began. Valid if the call has [`State::SPLIT`].
    pub(crate) start: u64,
    /// Valid if the call has [`State::SLOT`].
    pub(crate) slot: Slot,
}

const _: () = assert!(size_of::<OpenCall>() == 64);

impl OpenCall {
    pub(crate) const NONE: Self =
        Self { frame: 0, export: 0, state: State::PLAIN, start: 0, slot: Slot::EMPTY };
}

/// The properties of an open call, as a set of bits.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct State(u32);

impl State {
    /// The call begins and ends in one function of the agent.
    pub(crate) const PLAIN: Self = Self(0);
    /// The host calls the agent once when the call begins and once when it ends. `export` and
    /// `start` are set.
    pub(crate) const SPLIT: Self = Self(1);
    /// There may be stack frames of the host between the stored frame of the call and the called
    /// code ([`crate::recorder::bracket::WRAPPERS`]).
    pub(crate) const WRAPPED: Self = Self(1 << 1);
    /// The call is an op whose start and end the host announces.
    pub(crate) const OP: Self = Self::SPLIT.and(Self::WRAPPED);
    /// `slot` is set.
    pub(crate) const SLOT: Self = Self(1 << 2);
    /// No counters are read for the call.
    pub(crate) const UNCOUNTED: Self = Self(1 << 3);
    /// The call was drawn (chosen at random), in a run with a budget for recording; see the
    /// thread's `draws.open`.
    pub(crate) const DRAWN: Self = Self(1 << 4);
    /// Users' collectors were started for the call, or it has an id for plugins; see the thread's
    /// `collected`.
    pub(crate) const COLLECTED: Self = Self(1 << 5);
    /// Other threads have worked for the call, in its parallel regions; see the thread's `workers`.
    /// This bit stays set after the end of the call, until the next call uses the same element of
    /// the thread's `calls`.
    pub(crate) const WORKERS: Self = Self(1 << 6);

    #[inline(always)]
    pub(crate) const fn and(self, more: Self) -> Self {
        Self(self.0 | more.0)
    }

    #[inline(always)]
    pub(crate) const fn without(self, less: Self) -> Self {
        Self(self.0 & !less.0)
    }

    #[inline(always)]
    pub(crate) const fn after_end(self) -> Self {
        Self(self.0 & Self::WORKERS.0)
    }

    #[inline(always)]
    pub(crate) const fn has(self, bits: Self) -> bool {
        self.0 & bits.0 == bits.0
    }
}

impl Thread {
    /// Returns the open calls, the outermost first.
    #[inline(always)]
    pub(crate) fn open_calls(&self) -> &[OpenCall] {
        self.calls.get(..self.depth as usize).unwrap_or_default()
    }

    /// Returns the call that has just been opened.
    #[inline(always)]
    pub(crate) fn last_opened(&mut self) -> &mut OpenCall {
        &mut self.calls[(self.depth as usize).wrapping_sub(1) % DEEPEST]
    }

    /// Returns the index of the innermost open call for which `is_it` returns true.
    #[inline(always)]
    pub(crate) fn innermost(&self, is_it: impl Fn(&OpenCall) -> bool) -> Option<usize> {
        let mut at = (self.depth as usize).min(DEEPEST);
        while at > 0 {
            at -= 1;
            if is_it(&self.calls[at % DEEPEST]) {
                return Some(at);
            }
        }
        None
    }

    /// Returns the index of the innermost open call with this frame. Usually, this call is the
    /// innermost of all open calls.
    #[inline(always)]
    pub(crate) fn call_at(&self, frame: usize) -> Option<usize> {
        let top = (self.depth as usize).wrapping_sub(1);
        if self.calls.get(top).is_some_and(|call| call.frame == frame) {
            return Some(top);
        }
        self.call_further_out(frame)
    }

    #[cold]
    #[inline(never)]
    fn call_further_out(&self, frame: usize) -> Option<usize> {
        self.innermost(|call| call.frame == frame)
    }

    /// Returns the index of the innermost open op with this frame.
    #[inline(always)]
    pub(crate) fn wrapped_at(&self, frame: usize) -> Option<usize> {
        self.innermost(|call| call.frame == frame && call.state.has(State::WRAPPED))
    }

    /// Returns the index of the innermost open op inside of call `at`. If call `at` ends with an
    /// error, this is the recorded op that has raised the error.
    pub(crate) fn wrapped_inside(&self, at: usize) -> Option<usize> {
        self.innermost(|call| call.state.has(State::WRAPPED)).filter(|inner| *inner > at)
    }

    #[inline(always)]
    pub(crate) fn innermost_slot(&self, owner: *const c_void) -> Option<usize> {
        self.innermost(|call| call.state.has(State::SLOT) && call.slot.owner == owner)
    }

    /// Returns the index of the innermost open call of `export` with [`State::SPLIT`].
    #[inline(always)]
    pub(crate) fn innermost_split(&self, export: u32) -> Option<usize> {
        self.innermost(|call| call.state.has(State::SPLIT) && call.export == export)
    }

    #[inline(always)]
    pub(crate) fn state_of(&self, at: usize) -> State {
        self.calls[at % DEEPEST].state
    }

    /// Returns whether the thread's counters, if it has any, are read for this open call.
    #[inline(always)]
    pub(crate) fn reads_call(&self, at: usize) -> bool {
        !self.state_of(at).has(State::UNCOUNTED)
    }

    #[inline(always)]
    pub(crate) fn is_drawn(&self, at: usize) -> bool {
        self.state_of(at).has(State::DRAWN)
    }

    /// Adds the counts of other threads that have worked in a parallel region of this open call.
    /// `known` has a bit for each counter whose sum is known, and `more` the sums of the run's
    /// counters.
    pub(crate) fn add_workers(&mut self, at: usize, known: u32, more: impl Iterator<Item = u64>) {
        let counters = usize::from(self.counters_of_run);
        let (Some(call), Some(sum)) = (self.calls.get_mut(at), self.workers.get_mut(at)) else {
            return;
        };
        if !call.state.has(State::WORKERS) {
            call.state = call.state.and(State::WORKERS);
            sum.known = !u32::MAX.unbounded_shl(counters as u32);
            sum.sums.iter_mut().take(counters).for_each(|sum| *sum = 0);
        }
        sum.known &= known;
        sum.sums
            .iter_mut()
            .take(counters)
            .zip(more)
            .for_each(|(sum, more)| *sum = sum.wrapping_add(more));
    }

    /// Stores in the thread's page of records how many calls are still open after some were
    /// forgotten, and the export of the outermost one.
    pub(crate) fn note_open_calls(&mut self) {
        // SAFETY: this thread is attached, so its writer has a page.
        unsafe { self.writer.set_open(self.depth, self.calls[0].export) };
    }
}

/// Data that an adapter stores with an open call.
#[derive(Clone, Copy)]
pub(crate) struct Slot {
    /// Identifies the adapters that may use the slot.
    pub(crate) owner: *const c_void,
    /// Address of a description of the called function, which is never freed.
    pub(crate) subject: *const c_void,
    /// Numbers that the adapter may change during the call.
    pub(crate) numbers: [u64; 3],
}

impl Slot {
    pub(crate) const EMPTY: Self =
        Self { owner: std::ptr::null(), subject: std::ptr::null(), numbers: [0; 3] };
}

/// The counts of other threads in the parallel regions of an open call.
#[derive(Clone, Copy)]
pub(crate) struct Workers {
    /// One bit for each counter whose sum is known.
    pub(crate) known: u32,
    /// The sums of the run's counters; the other elements are not used.
    pub(crate) sums: [u64; MAX_COUNTERS],
}

impl Workers {
    pub(crate) const NONE: Self = Self { known: 0, sums: [0; MAX_COUNTERS] };
}

/// The users' collectors that were started for a call.
#[derive(Clone, Copy)]
pub(crate) struct Started {
    /// One bit for each collector that was started.
    pub(crate) mask: u32,
    /// Whether a collector's `start` reported that it was interrupted. If so, the call must not
    /// begin.
    pub(crate) interrupted: bool,
    /// The id that profiler plugins got for the call, or 0.
    pub(crate) plugin_id: u64,
    /// For each collector: the address of the agent's data about it, which is never freed, and the
    /// state that its `start` returned.
    pub(crate) states: [(*const c_void, *mut c_void); MOST_COLLECTORS],
}

impl Started {
    pub(crate) const NONE: Self = Self {
        mask: 0,
        interrupted: false,
        plugin_id: 0,
        states: [(std::ptr::null(), std::ptr::null_mut()); MOST_COLLECTORS],
    };
}
