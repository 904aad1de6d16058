//! The bracket around a call: the states of an open call, and the functions that change them. This is the hot
//! path, whichever adapter brackets the call.
//!
//! ```text
//!  read counters ─ ticks ─►  original call  ─► ticks ─ read counters ─ record
//! ```
//!
//! The clock is read inside the counters, so that reading counters does not lengthen the recorded
//! time. The counters therefore include the two clock reads and half of each `read` (see
//! [`crate::recorder::calibrate`]).
//!
//! A call has the same states whichever adapter makes it. [`OpenCall`] holds its state, and
//! [`Ending`] says how its end finds it again.
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
//! | drawn | how likely it was is known, and it may still be refused, which gives it back | [`Thread::open`] |
//! | open | its [`OpenCall`] has its frame, the page names it, and its counters have been read | the original call |
//! | started | for a call that ends in another function of ours: its start is in its [`OpenCall`] | [`Thread::finish`] |
//! | finished | it has ended, but collectors may still run, whose calls are inside of it | [`Thread::end`] |
//!
//! The most frequent cases have short ways of their own through the same states
//! ([`crate::recorder::short`]).
//!
//! The bracket does not allocate, lock or panic. It makes system calls only for counters, and
//! without touching `errno`. The memory written here belongs to the thread, is present, and is not
//! shared with a forked child, so an empty call counts no page fault.

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
    /// Whether the caller has counted the call, in a run with a budget, and found that it must be
    /// recorded.
    pub(crate) is_counted: bool,
    /// The way in which it is decided whether the call is recorded, in a run with a budget.
    pub(crate) how: How,
    /// For an op: the adapter's description of it, which is never freed. It also identifies an op
    /// that is only counted.
    pub(crate) subject: *const c_void,
}

/// The place where a call ends, and the way in which its end finds the call. This determines what
/// its `frame` refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The call ends in the function of ours that makes it. The frame is that function's.
    Here,
    /// The call ends in another call of the host, which only says which export ends. The frame
    /// belongs to the function that called us before the call.
    ByExport,
    /// The call ends in another call of the host, made from the same place, so that it has the same
    /// frame. The host may have frames of its own between that frame and the call.
    ByFrame,
    /// The call ends in another call of the host, as for [`Self::ByFrame`], but the host makes that
    /// call whatever happens, even if the recorded call throws. The frame is made by [`held`] and
    /// is not a stack address, so the call never counts as abandoned.
    Held,
}

impl Ending {
    /// Returns whether the call is an op, which the host ends even if it is only counted.
    #[inline(always)]
    pub(crate) const fn is_of_op(self) -> bool {
        matches!(self, Self::ByFrame | Self::Held)
    }

    /// Returns the state of an open call whose end is found in this way.
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

/// Maximum number of stack bytes that the host may use between the frame of a wrapped call and the
/// functions that the call itself calls. Such a function may therefore begin above the frame.
pub const WRAPPERS: usize = 4096;

/// Returns an address in the caller's stack frame. Frames of open calls lie above those of
/// later calls.
#[inline(always)]
pub fn stack_address() -> usize {
    let marker = 0u8;
    (&raw const marker) as usize
}

/// The start of a split call (one whose start and end are two calls of the host), kept for its end.
#[derive(Clone, Copy)]
pub(crate) struct Finished {
    pub(crate) export: u32,
    pub(crate) start: u64,
    /// The numbers of the call's slot.
    pub(crate) numbers: [u64; 3],
}

impl Thread {
    /// Begins a call: in a run with a budget, counts it and decides whether it is drawn; then opens
    /// it. Returns false if the call is not recorded and must pass through. After a split call,
    /// [`Thread::start`] must follow.
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

    /// Opens a call; `reads` says whether its counters are read. If it was `drawn`, that is stored before
    /// counters are read. Returns false if the call cannot be recorded now and must pass through.
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

    /// Reads the counters for call `at`, which begins. Like everything that only runs with
    /// counters, this is a function of its own, so that the code of a call that is only timed is
    /// short: between two calls, the program needs the processor's cache for its own code.
    #[inline(never)]
    fn read_before(&mut self, at: usize) {
        // The call's end needs a little more of the stack than its start does. If that is on a page
        // that was not used before, or not since a fork, the page fault must not be counted for the
        // call.
        own_image::touch_stack::<160>();
        // A failed read leaves its mark in the readings, which `end` checks.
        let _ = self.counters.read(&mut self.before[at % DEEPEST]);
    }

    /// Reads the counters for a call that ends.
    #[inline(never)]
    fn read_after(&mut self) {
        let _ = self.counters.read(&mut self.after);
    }

    /// Stores a slot for the call that has just been opened. So far, no other thread has worked for it.
    #[inline(always)]
    pub(crate) fn set_slot(&mut self, slot: Slot) {
        let call = self.last_opened();
        call.state = call.state.and(State::SLOT);
        call.slot = slot;
    }

    /// Starts the call that has just been opened and will end in another call of the host. Returns
    /// the time of the start. This is the last thing that a bracket does before the call.
    #[inline(always)]
    pub(crate) fn start(&mut self) -> u64 {
        let start = self.run.clock.begin();
        self.last_opened().start = start;
        start
    }

    /// Finishes call `at`, which was started and has ended. Calls that collectors make from now on
    /// do not find it any more.
    #[inline(always)]
    pub(crate) fn finish(&mut self, at: usize) -> Finished {
        let call = &mut self.calls[at % DEEPEST];
        call.state = call.state.without(State::OP.and(State::SLOT));
        let OpenCall { export, start, slot, .. } = *call;
        Finished { export, start, numbers: slot.numbers }
    }

    /// Reads the counters for a call that is recorded apart: it is not among the open calls,
    /// because it may end while other calls that began later are still open. Returns false if the
    /// recorder is busy.
    pub(crate) fn read_apart(&mut self, into: &mut Readings) -> bool {
        if self.busy.is_set() {
            losses::lose(Loss::ProbeReentered, 1, 0);
            return false;
        }
        while_busy!(self, {
            if self.counting && !self.draws.is_on() {
                own_image::touch_stack::<160>();
                // A failed read leaves its mark in the readings.
                let _ = self.counters.read(into);
            }
        });
        true
    }

    /// Records such a call, which began with the reading `before` and has just ended.
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
                // Counters are not open between the two readings.
                self.calls[at].state = State::DRAWN.and(State::UNCOUNTED);
            } else if self.counting {
                let _ = self.counters.read(&mut self.after);
            }
            // The place of the next call is free, and the next call overwrites it.
            self.before[at].clone_from(before);
            self.record(call, &[]);
            if is_drawn {
                self.bill_apart(call);
            }
            true
        })
    }

    /// Ends call `at` and records it. Calls inside of it were abandoned. Returns whether counters were read for
    /// it.
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
            // A collector may have made the recorder forget the call.
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

    /// Records the call that has ended, whose index is the number of calls that are still open.
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
        // SAFETY: `at` is the index that the call had, and a page with room is attached.
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

    /// Writes the record of a call of a thread that has counters.
    ///
    /// # Safety
    /// `at` must be the index that the call had, and a page with room must be attached.
    #[inline(never)]
    unsafe fn record_with_counters(
        &mut self,
        call: &Call,
        drawn: Option<&Drawn>,
        at: usize,
        state: State,
    ) {
        // SAFETY: by contract, a page with room is attached and `at` is the index that the call
        // had, so its readings follow this run's plan.
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

/// Begins the record of a call, drawn or not.
///
/// # Safety
/// A page with room must be attached to `writer`.
#[inline(always)]
unsafe fn begin_record(
    writer: &mut record::PageWriter,
    call: &Call,
    drawn: Option<&Drawn>,
    scaled: bool,
) -> record::page::Cursor {
    // SAFETY: by contract, a page with room is attached to `writer`.
    unsafe {
        match drawn {
            Some(drawn) if *drawn != Drawn::default() => writer.drawn_call(call, scaled, drawn),
            _ => writer.call(call, scaled),
        }
    }
}

/// Writes a call for which no counter was read to a page of calls with counters.
///
/// # Safety
/// A page with room must be attached to `writer`.
unsafe fn record_uncounted(
    writer: &mut record::PageWriter,
    call: &Call,
    drawn: Option<&Drawn>,
    run: &Run,
) {
    // SAFETY: by contract, a page with room is attached to `writer`.
    unsafe {
        let mut cursor = begin_record(writer, call, drawn, false);
        run.plan.groups().iter().for_each(|_| cursor.put(0));
        writer.commit_call(cursor);
    }
}

/// # Safety
/// A page with room must be attached to `writer`, and both readings must follow `run`'s plan.
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
    // SAFETY: by contract, both readings follow the plan, and `Plan` guarantees that its blocks fit
    // into the words.
    let delta =
        |word: usize| unsafe { to.get_unchecked(word).wrapping_sub(*from.get_unchecked(word)) };
    let mut scaled = false;
    let mut at = 0;
    for group in groups {
        scaled |= missing & group.mask() == 0 && delta(at + 1) != delta(at + 2);
        at += 3 + 2 * usize::from(group.len);
    }
    // SAFETY: by contract, a page with room is attached to `writer`.
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
