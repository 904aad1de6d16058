//! The bracket around a call (the pair of readings of counters and clock before and after it): the
//! states of an open call, and the functions that change them. This is the hot path of all
//! adapters.
//!
//! ```text
//!  read counters ─ ticks ─►  original call  ─► ticks ─ read counters ─ record
//! ```
//!
//! The clock is read between the two readings of the counters, so that the recorded time does not
//! contain them. The counters therefore include the two clock reads and half of each `read` (see
//! [`crate::recorder::calibrate`]).
//!
//! A call has the same states in all adapters. [`OpenCall`] contains the state, and [`Ending`] says
//! how the end of the call finds it.
//!
//! ```text
//!   new ──── no budget ────────────────────────────────┐
//!    │ begin                                           │
//!    │ budget: count                                   │ open: frame, state, counters
//!    ├──── not due, not drawn ──► only counted         ▼
//!    └──── draw ──────────────► drawn ──────────────► open ──► started ──► finished ──► recorded
//!                                                      │ start   │  finish   │     end
//!                                                      │ (split) │  (split)  │
//!                                                      └─────────┴───────────┴──► abandoned, when a later
//!                                                                                 call finds it left
//! ```
//!
//! | state | what is true in it | left by |
//! |---|---|---|
//! | only counted | the thread's table has counted it; an op that the host ends in any case is on a stack of its own ([`crate::recorder::budget::ops`]) | its end, which records nothing |
//! | drawn | it was chosen at random; if it is refused now, that is undone | [`Thread::open`] |
//! | open | [`OpenCall`] has its frame, the page has its export, counters are read | the call |
//! | started | if it ends in another function of ours: its start is stored | [`Thread::finish`] |
//! | finished | it has ended; its collectors, and calls inside of them, may run | [`Thread::end`] |
//!
//! For the most frequent cases, there are faster functions, which go through the same states
//! ([`crate::recorder::short`]).
//!
//! The bracket does not allocate, lock or panic. It makes system calls only for counters, and does
//! not change `errno`. The memory that it writes to belongs to the thread, is present, and is not
//! shared with a forked child, so no page fault is counted in an empty call.

use std::ffi::c_void;

use counters::Readings;
use model::Loss;
use record::{Call, Drawn};

use crate::os::own_image;
use crate::process::losses;
use crate::recorder::budget::sampling::{DrawnCall, How};
use crate::recorder::busy::while_busy;
use crate::recorder::thread::{DEEPEST, OpenCall, Slot, State, Thread};
use crate::state::run::Run;

/// A call that is about to begin.
#[derive(Clone, Copy)]
pub(crate) struct NewCall {
    pub(crate) export: u32,
    pub(crate) frame: usize,
    pub(crate) ending: Ending,
    /// Whether the call's counters may be read.
    pub(crate) may_read: bool,
    /// In a run with a budget: whether the caller has already counted the call, and found that it
    /// must be recorded.
    pub(crate) is_counted: bool,
    /// In a run with a budget: how it is decided whether the call is recorded.
    pub(crate) how: How,
    /// For an op: the adapter's description of it, which is never freed. If the op is only counted,
    /// it is identified by this pointer.
    pub(crate) subject: *const c_void,
}

/// Where a call ends, and how its end finds the open call. The meaning of the call's `frame`
/// depends on this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The call ends in the same function of ours that makes it. `frame` is an address in that
    /// function's frame.
    Here,
    /// The call ends when the host calls us again. The host then only says which export ends.
    /// `frame` is an address in the function that called us before the call.
    ByExport,
    /// The call ends when the host calls us again, from the same place as before the call, so that
    /// `frame` is the same. There may be further frames of the host between that frame and the
    /// call.
    ByFrame,
    /// The call ends when the host calls us again, as for [`Self::ByFrame`], but the host does this
    /// in any case, even if the recorded call throws. `frame` is made by [`held`] and is not a
    /// stack address. So the call is never regarded as abandoned because of its frame.
    Held,
}

impl Ending {
    /// Returns whether the call is an op. The host calls us at the end of an op even if the op is
    /// only counted.
    #[inline(always)]
    pub(crate) const fn is_of_op(self) -> bool {
        matches!(self, Self::ByFrame | Self::Held)
    }

    /// Returns the first state of an open call with this ending.
    #[inline(always)]
    const fn state(self) -> State {
        match self {
            Self::Here => State::PLAIN,
            Self::ByExport => State::SPLIT,
            Self::ByFrame | Self::Held => State::OP,
        }
    }
}

/// Returns a frame for a call that the host identifies by this address. It is higher than every
/// stack address, and it differs for different addresses.
#[inline(always)]
pub fn held(address: usize) -> usize {
    address | 1 << (usize::BITS - 1)
}

/// The largest number of stack bytes that the host may use between the frame of a wrapped call and
/// the functions that this call calls. Such a function may begin above the frame by this much.
pub const WRAPPERS: usize = 4096;

/// Returns an address in the caller's stack frame. The frames of open calls are above those of
/// later calls.
#[inline(always)]
pub fn stack_address() -> usize {
    let marker = 0u8;
    (&raw const marker) as usize
}

/// The data of a split call (one whose start and end are two calls by the host) that is needed when
/// the call is recorded.
#[derive(Clone, Copy)]
pub(crate) struct Finished {
    pub(crate) export: u32,
    pub(crate) start: u64,
    /// The numbers of the call's slot.
    pub(crate) numbers: [u64; 3],
}

impl Thread {
    /// Begins a call. In a run with a budget, first counts it and decides whether it is drawn
    /// (chosen to be timed). Opens the call. Returns false if the call is not recorded and must
    /// pass through. If the call is split, [`Thread::start`] must be called next.
    #[inline(always)]
    pub(crate) fn begin(&mut self, call: &NewCall) -> bool {
        if !self.draws.is_on() {
            return self.open(call, call.may_read, None);
        }
        match call.ending {
            Ending::Here => self.begin_in_budget(call),
            Ending::ByExport => {
                self.begin_in_budget(call) || self.depth > 0 && self.begin_within(call)
            }
            Ending::ByFrame | Ending::Held => self.begin_op_in_budget(call),
        }
    }

    /// Opens a call. `reads` says whether its counters are read. If `drawn` is set, it is stored
    /// before the counters are read. Returns false if the call cannot be recorded now and must pass
    /// through.
    #[inline(always)]
    pub(super) fn open(&mut self, call: &NewCall, reads: bool, drawn: Option<&DrawnCall>) -> bool {
        if self.busy.is_set() {
            losses::lose(Loss::ProbeReentered, 1, 0);
            return self.refuse(drawn);
        }
        let opened = while_busy!(self, 'opened: {
            point!(Begin);
            if self.depth > 0 && !self.make_way(call.frame, call.ending) {
                break 'opened false;
            }
            let at = self.depth as usize;
            let mut state = call.ending.state();
            if let Some(drawn) = drawn {
                state = state.and(State::DRAWN);
                self.draws.set_open(at, drawn);
            }
            // SAFETY: callers have found this thread attached, so its writer has a page.
            unsafe { self.writer.set_open(self.depth + 1, call.export) };
            // `make_way` refuses a depth beyond the array.
            let place = &mut self.calls[at % DEEPEST];
            (place.frame, place.export) = (call.frame, call.export);
            place.state = state;
            let mut works = || !self.counting || !self.draws.is_on() || self.open_for_call(at);
            if !reads || !works() {
                self.calls[at % DEEPEST].state = state.and(State::UNCOUNTED);
            } else if self.counting {
                self.read_before(at);
            }
            self.depth += 1;
            true
        });
        opened || self.refuse(drawn)
    }

    /// Reads the counters for call `at`, which is beginning. All code that only runs with counters
    /// is in separate functions like this one, so that the code for a call without counters is
    /// small: between two calls, the program displaces this code from the processor's caches.
    #[inline(never)]
    fn read_before(&mut self, at: usize) {
        // The call's end needs a little more of the stack than its start does. If that part of the
        // stack is on a page that was not used before, or not since a fork, the page fault must not
        // be counted for the call.
        own_image::touch_stack::<160>();
        // A failed read is marked in the readings, and `end` checks the mark.
        let _ = self.counters.read(&mut self.before[at % DEEPEST]);
    }

    /// Reads the counters for a call that is ending.
    #[inline(never)]
    fn read_after(&mut self) {
        let _ = self.counters.read(&mut self.after);
    }

    /// Stores a slot for the call that has just been opened. No other thread has worked for this
    /// call yet.
    #[inline(always)]
    pub(crate) fn set_slot(&mut self, slot: Slot) {
        let call = self.last_opened();
        call.state = call.state.and(State::SLOT);
        call.slot = slot;
    }

    /// Starts the call that has just been opened and that will end when the host calls us again.
    /// Returns the time of the start. This is the last thing that is done before the call.
    #[inline(always)]
    pub(crate) fn start(&mut self) -> u64 {
        let start = self.run.clock.begin();
        self.last_opened().start = start;
        start
    }

    /// Marks call `at`, which has ended, as finished. Calls that collectors make from now on are
    /// not attributed to it.
    #[inline(always)]
    pub(crate) fn finish(&mut self, at: usize) -> Finished {
        let call = &mut self.calls[at % DEEPEST];
        call.state = call.state.without(State::OP.and(State::SLOT));
        let OpenCall { export, start, slot, .. } = *call;
        Finished { export, start, numbers: slot.numbers }
    }

    /// Reads the counters for a call that is recorded apart: it is not among the open calls,
    /// because it may end while calls that began later are still open. Returns false if the
    /// recorder is busy.
    pub(crate) fn read_apart(&mut self, into: &mut Readings) -> bool {
        if self.busy.is_set() {
            losses::lose(Loss::ProbeReentered, 1, 0);
            return false;
        }
        while_busy!(self, {
            if self.counting && !self.draws.is_on() {
                own_image::touch_stack::<160>();
                // A failed read is marked in the readings.
                let _ = self.counters.read(into);
            }
        });
        true
    }

    /// Records a call of this kind, which has just ended. `before` is the reading at its start.
    /// Returns whether it was recorded.
    pub(crate) fn record_apart(&mut self, call: &Call, before: &Readings) -> bool {
        if self.busy.is_set() || self.depth as usize >= DEEPEST {
            losses::lose(Loss::ProbeReentered, 1, 0);
            return false;
        }
        while_busy!(self, 'recorded: {
            let at = self.depth as usize;
            let is_drawn = self.draws.is_on();
            if is_drawn {
                if !self.draw_apart(call.export) {
                    break 'recorded false;
                }
                // In a run with a budget, the counters are not open between the start and the end
                // of such a call.
                self.calls[at].state = State::DRAWN.and(State::UNCOUNTED);
            } else if self.counting {
                let _ = self.counters.read(&mut self.after);
            }
            // `before[at]` belongs to the next call, which overwrites it, so it can be used here.
            self.before[at].clone_from(before);
            self.record(call, &[]);
            if is_drawn {
                self.bill_apart(call);
            }
            true
        })
    }

    /// Ends call `at` and records it. Open calls inside of it are regarded as abandoned. Returns
    /// whether counters were read for it.
    #[inline(always)]
    pub(crate) fn end(&mut self, at: usize, call: &Call, values: &[(u32, u64)]) -> bool {
        while_busy!(self, {
            point!(End);
            let state = self.state_of(at);
            let is_read = self.counting && !state.has(State::UNCOUNTED);
            if is_read {
                self.read_after();
            }
            if self.depth as usize != at + 1 {
                self.abandon_inside(at);
            }
            // A collector may have caused the recorder to forget the call.
            if self.depth as usize == at + 1 {
                self.depth = at as u32;
                self.record(call, values);
                if self.draws.is_on() {
                    self.finish_draw(call, state.has(State::DRAWN));
                }
            }
            is_read
        })
    }

    /// Records the call that has just ended. Its index was `depth`, the number of calls that are
    /// still open.
    #[inline(always)]
    pub(super) fn record(&mut self, call: &Call, values: &[(u32, u64)]) {
        // Values must be on the same page as their call.
        let fits = match values {
            [] => self.writer.has_room(),
            _ => self.writer.has_room_with_values(),
        };
        if !fits {
            self.flush();
        }
        let at = self.depth as usize;
        let place = &mut self.calls[at % DEEPEST];
        let state = place.state;
        place.state = state.after_end();
        let drawn = state.has(State::DRAWN).then(|| self.draws.drawn_at(at));
        // SAFETY: `at` is the index that the call had, and a page with enough space is attached.
        unsafe {
            if self.counting {
                self.record_with_counters(call, drawn.as_ref(), at, state);
            } else {
                let cursor = begin_record(&mut self.writer, call, drawn.as_ref(), false);
                point!(Record);
                self.writer.commit_call(cursor);
            }
            if !values.is_empty() {
                self.writer.values(values);
            }
            self.writer.set_open(self.depth, call.export);
        }
        if call.end >= self.next_clock {
            self.clock_record();
        }
    }

    /// Writes the record of a call, on a thread that has counters.
    ///
    /// # Safety
    /// `at` must be the index that the call had, and a page with enough space must be attached.
    #[inline(never)]
    unsafe fn record_with_counters(
        &mut self,
        call: &Call,
        drawn: Option<&Drawn>,
        at: usize,
        state: State,
    ) {
        // SAFETY: by contract, a page with enough space is attached, and `at` is the index that the
        // call had, so the readings at this index follow this run's plan.
        unsafe {
            if state.has(State::UNCOUNTED) {
                return record_uncounted(&mut self.writer, call, drawn, self.run);
            }
            let missing = self.before[at % DEEPEST].missing() | self.after.missing();
            if missing & self.run.counter_mask != 0 {
                self.count_missing();
            }
            let before = &self.before[at % DEEPEST];
            record_counted(&mut self.writer, call, drawn, before, &self.after, self.run);
        }
    }

    #[cold]
    #[inline(never)]
    fn count_missing(&mut self) {
        if self.rehearsing {
            return;
        }
        self.process().lose(Loss::CounterReadFailed, 1, 0);
        if !self.counters.is_open() && !self.lost_noted {
            self.lost_noted = true;
            self.process().lose(Loss::DescriptorLost, 1, 0);
        }
    }
}

/// Begins the record of a call, which may have been drawn or not.
///
/// # Safety
/// A page with enough space must be attached to `writer`.
#[inline(always)]
unsafe fn begin_record(
    writer: &mut record::PageWriter,
    call: &Call,
    drawn: Option<&Drawn>,
    scaled: bool,
) -> record::page::Cursor {
    // SAFETY: by contract, a page with enough space is attached to `writer`.
    unsafe {
        match drawn {
            Some(drawn) if *drawn != Drawn::default() => writer.drawn_call(call, scaled, drawn),
            _ => writer.call(call, scaled),
        }
    }
}

/// Writes the record of a call for which no counter was read, to a page whose calls have counters.
///
/// # Safety
/// A page with enough space must be attached to `writer`.
unsafe fn record_uncounted(
    writer: &mut record::PageWriter,
    call: &Call,
    drawn: Option<&Drawn>,
    run: &Run,
) {
    // SAFETY: by contract, a page with enough space is attached to `writer`.
    unsafe {
        let mut cursor = begin_record(writer, call, drawn, false);
        run.plan.groups().iter().for_each(|_| cursor.put(0));
        writer.commit_call(cursor);
    }
}

/// # Safety
/// A page with enough space must be attached to `writer`, and both readings must follow `run`'s
/// plan.
#[inline(always)]
unsafe fn record_counted(
    writer: &mut record::PageWriter,
    call: &Call,
    drawn: Option<&Drawn>,
    before: &Readings,
    after: &Readings,
    run: &Run,
) {
    let groups = run.plan.groups();
    let missing = before.missing() | after.missing();
    let (from, to) = (before.words(), after.words());
    // SAFETY: by contract, both readings follow the plan, and `Plan` guarantees that all of its
    // blocks are within the words.
    let delta =
        |word: usize| unsafe { to.get_unchecked(word).wrapping_sub(*from.get_unchecked(word)) };
    let mut scaled = false;
    let mut at = 0;
    for group in groups {
        scaled |= missing & group.mask() == 0 && delta(at + 1) != delta(at + 2);
        at += 3 + 2 * usize::from(group.len);
    }
    // SAFETY: by contract, a page with enough space is attached to `writer`.
    unsafe {
        let mut cursor = begin_record(writer, call, drawn, scaled);
        point!(Record);
        at = 0;
        for group in groups {
            if missing & group.mask() != 0 {
                cursor.put(0);
            } else {
                cursor.put(delta(at + 1).wrapping_add(1));
                if scaled {
                    cursor.put(delta(at + 2));
                }
                for i in 0..usize::from(group.len) {
                    cursor.put(delta(at + 3 + 2 * i));
                }
            }
            at += 3 + 2 * usize::from(group.len);
        }
        writer.commit_call(cursor);
    }
}
