//! The bracket around a call is the pair of readings of counters and clock before and after it.
//! This module contains the functions that begin and end a call, and describes the states of an
//! open call (one that has begun and not ended). This is the hot path of all adapters that record
//! calls.
//!
//! ```text
//!  read counters ─ ticks ─►  original call  ─► ticks ─ read counters ─ record
//! ```
//!
//! The clock is read between the two readings of the counters, so that the recorded time does not
//! contain them. The counters therefore include the two clock reads and half of each reading of the
//! counters (see [`crate::recorder::calibrate`]).
//!
//! A call has the same states in all adapters, unless it is recorded apart
//! ([`Thread::record_apart`]). [`OpenCall`] contains the state, and [`Ending`] says how the
//! recorder finds the open call when the call ends.
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
//! | state | what is true of the call | how the call leaves the state |
//! |---|---|---|
//! | only counted | the thread's table has counted it; if it is an op, it is on the stack of counted ops ([`crate::recorder::budget::ops`]) | by its end, which records nothing |
//! | drawn | it was chosen at random; if it cannot be opened, the choice is undone | by [`Thread::open`] |
//! | open | its frame is in [`OpenCall`], and the header of the thread's page of records contains its export (recorded function); counters were read, if the call has any | by [`Thread::start`] if the call is split, otherwise by [`Thread::end`] |
//! | started | it is split (it ends in another function of the agent), and its start is stored | by [`Thread::finish`] |
//! | finished | it has ended; users' collectors may run and make calls themselves | by [`Thread::end`] |
//!
//! For the most frequent cases, [`crate::recorder::short`] has faster functions.
//!
//! The bracket does not allocate, lock or panic, and it does not change `errno`. Its usual system
//! calls are those of the counters. The memory that the bracket writes to belongs to the thread, is
//! present, and is not shared with a forked child. So these writes cause no page fault that the
//! counters would count for the call.

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

#[derive(Clone, Copy)]
pub(crate) struct NewCall {
    pub(crate) export: u32,
    pub(crate) frame: usize,
    pub(crate) ending: Ending,
    /// Whether the call's counters may be read.
    pub(crate) may_read: bool,
    /// In a run with a budget (a limit for the cost of recording): whether the call was already
    /// counted and must be recorded.
    pub(crate) is_counted: bool,
    /// In a run with a budget: how it is decided whether the call is recorded.
    pub(crate) how: How,
    /// For an op: the address of the adapter's description of it, which is never freed. It
    /// identifies an op that is only counted.
    pub(crate) subject: *const c_void,
}

/// Where a call ends, and how the recorder then finds the open call. The meaning of the call's
/// `frame` depends on this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The call ends in the function of the agent that makes it. `frame` is an address in that
    /// function's stack frame.
    Here,
    /// The call ends when the host calls the agent again, and says which export (recorded function)
    /// has ended. `frame` is a stack address in the frame of the host's function that called the
    /// agent before the call.
    ByExport,
    /// The call ends when the host calls the agent again, from the same stack frame as before the
    /// call, so that `frame` is the same. Further stack frames of the host may be between that
    /// frame and the call.
    ByFrame,
    /// The call ends as with [`Self::ByFrame`], but the host calls the agent in any case, even
    /// after an exception. `frame` is made by [`held`] and is not a stack address. So the recorder
    /// does not regard the call as abandoned because of its frame.
    Held,
}

impl Ending {
    /// Returns whether the call is an op.
    #[inline(always)]
    pub(crate) const fn is_of_op(self) -> bool {
        matches!(self, Self::ByFrame | Self::Held)
    }

    #[inline(always)]
    const fn state(self) -> State {
        match self {
            Self::Here => State::PLAIN,
            Self::ByExport => State::SPLIT,
            Self::ByFrame | Self::Held => State::OP,
        }
    }
}

/// Returns a frame for a call that the host identifies by this address. The frame is higher than
/// every stack address.
#[inline(always)]
pub fn held(address: usize) -> usize {
    address | 1 << (usize::BITS - 1)
}

/// A call inside of an op may have its frame above the frame that is stored for the op, but by at
/// most this many bytes. The host may use this much of the stack between its call of the agent and
/// the functions that the op calls.
pub const WRAPPERS: usize = 4096;

/// Returns an address in the caller's stack frame. The stack grows downwards, so the frames of open
/// calls are above those of calls that begin inside of them.
#[inline(always)]
pub fn stack_address() -> usize {
    let marker = 0u8;
    (&raw const marker) as usize
}

/// The data for the record of a split call (one that begins and ends in two separate calls of the
/// agent by the host).
#[derive(Clone, Copy)]
pub(crate) struct Finished {
    pub(crate) export: u32,
    pub(crate) start: u64,
    /// The numbers that the adapter has stored for the open call ([`Slot`]).
    pub(crate) numbers: [u64; 3],
}

impl Thread {
    /// Begins a call: opens it. In a run with a budget, first counts the call and decides whether
    /// it is drawn (chosen to be timed). Returns false if the call is not recorded; [`Thread::end`]
    /// must then not be called for it. If the call is split, [`Thread::start`] must be called next.
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

    /// Opens a call. `reads` says whether its counters are read. Returns false if the call cannot
    /// be recorded now; the draw is then undone.
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

    /// Reads the counters at the start of the call with the index `at` among the open calls. Code
    /// that only runs with counters is in functions like this one, so that the code for a call
    /// without counters is small. The program displaces the recorder's code from the processor's
    /// caches between two calls, and less code can be fetched again faster.
    #[inline(never)]
    pub(super) fn read_before(&mut self, at: usize) {
        // The recorder's code for the end of a call needs a little more of the stack than its code
        // for the start. If that part is on a page that was not used before, or not since a fork,
        // its first use is a page fault. The fault happens here, so that it is not counted for the
        // call.
        own_image::touch_stack::<160>();
        // A failed read is marked in the readings, and `end` checks the mark.
        let _ = self.counters.read(&mut self.before[at % DEEPEST]);
    }

    #[inline(never)]
    fn read_after(&mut self) {
        let _ = self.counters.read(&mut self.after);
    }

    #[inline(always)]
    pub(crate) fn set_slot(&mut self, slot: Slot) {
        let call = self.last_opened();
        call.state = call.state.and(State::SLOT);
        call.slot = slot;
    }

    /// Stores and returns the time at which the call that has just been opened starts. Used for
    /// split calls. This must be the last thing that the agent does before the call.
    #[inline(always)]
    pub(crate) fn start(&mut self) -> u64 {
        let start = self.run.clock.begin();
        self.last_opened().start = start;
        start
    }

    /// Marks the call with the index `at`, which has ended, as finished. Calls that users'
    /// collectors (which measure values for each op) make from now on are not attributed to it.
    #[inline(always)]
    pub(crate) fn finish(&mut self, at: usize) -> Finished {
        let call = &mut self.calls[at % DEEPEST];
        call.state = call.state.without(State::OP.and(State::SLOT));
        let OpenCall { export, start, slot, .. } = *call;
        Finished { export, start, numbers: slot.numbers }
    }

    /// Reads the counters for a call that is recorded apart, except in a run with a budget. A call
    /// that is recorded apart is not among the open calls, because it may end while calls that
    /// began later are still open. Returns false if the recorder is busy.
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

    /// Records a call that has just ended, and at whose start [`Thread::read_apart`] was called.
    /// `before` is what `read_apart` has stored. Returns whether the call was recorded.
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
                // No counters are read for such a call in a run with a budget.
                self.calls[at].state = State::DRAWN.and(State::UNCOUNTED);
            } else if self.counting {
                let _ = self.counters.read(&mut self.after);
            }
            // `before[at]` is not in use: it comes after the readings of the open calls.
            self.before[at].clone_from(before);
            self.record(call, &[]);
            if is_drawn {
                self.bill_apart(call);
            }
            true
        })
    }

    /// Ends the call with the index `at` and records it. Open calls inside of it are regarded as
    /// abandoned. Returns whether its counters were read.
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
            // A user's collector that ran for this call may itself have made calls, and these may
            // have made the recorder forget this call.
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

    /// Records the call that has just ended. Its state and readings have the index `self.depth`.
    #[inline(always)]
    pub(super) fn record(&mut self, call: &Call, values: &[(u32, u64)]) {
        // The values that collectors measured for a call must be on the same page as the call's
        // record.
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
        // SAFETY: `at` is the index of the call's readings, and a page with enough space is
        // attached.
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
    /// `at` must be the index of the call's readings, and a page with enough space must be
    /// attached.
    #[inline(never)]
    unsafe fn record_with_counters(
        &mut self,
        call: &Call,
        drawn: Option<&Drawn>,
        at: usize,
        state: State,
    ) {
        // SAFETY: by contract, a page with enough space is attached, and `at` is the index of the
        // call's readings, which have the layout of this run's plan of counters.
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

/// Begins to write the record of a call.
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
/// A page with enough space must be attached to `writer`, and both readings must have the layout of
/// `run`'s plan of counters.
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
    // SAFETY: by contract, both readings have the layout of the plan, and `Plan` guarantees that
    // the blocks of its groups are within a reading's words.
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
