//! Makes empty calls without and with a bracket (the recorder's work before and after a call), to
//! measure the cost of a bracket. Each adapter that records calls provides its own empty call and
//! the bracket around it.
//!
//! Adapters that record no calls use [`rehearse_plain_calls`]. If such an adapter attaches a thread
//! to the recorder, it does so only to read counters.

use record::Call;
use record::clock::ClockKind;

use crate::recorder::adapter::Took;
use crate::recorder::bracket::{Ending, NewCall, stack_address};
use crate::recorder::budget::sampling::How;
use crate::recorder::thread::{BEFORE, Thread};

/// Alternates `calls` times between an empty call without a bracket (`bare`) and one with a bracket
/// (`probed`). Everything is inlined, so that only the empty call and its bracket (if any) are
/// between two readings of the clock.
#[inline(always)]
pub fn rehearse(
    clock: ClockKind,
    calls: usize,
    mut bare: impl FnMut(),
    mut probed: impl FnMut(),
) -> Took {
    let mut took = Took { bare: Vec::with_capacity(calls), probed: Vec::with_capacity(calls) };
    for _ in 0..calls {
        let begin = clock.begin();
        bare();
        took.bare.push(clock.begin().wrapping_sub(begin));
        let begin = clock.begin();
        probed();
        took.probed.push(clock.begin().wrapping_sub(begin));
    }
    took
}

#[inline(never)]
fn nothing() {
    std::hint::black_box(());
}

/// Makes `calls` calls of an empty function without a bracket, and as many inside a bracket.
pub fn rehearse_plain_calls(thread: &mut Thread, calls: usize, _: bool) -> Took {
    let clock = thread.run.clock;
    let empty: fn() = std::hint::black_box(nothing);
    rehearse(clock, calls, empty, || bracketed(thread, empty))
}

#[inline(never)]
fn bracketed(thread: &mut Thread, empty: fn()) {
    let clock = thread.run.clock;
    let frame = stack_address();
    let entered = thread.enter(BEFORE);
    let call = NewCall {
        export: 0,
        frame,
        ending: Ending::Here,
        may_read: true,
        is_counted: false,
        how: How::Due,
        subject: std::ptr::null(),
    };
    if !thread.begin(&call) {
        return empty();
    }
    let start = clock.begin();
    empty();
    let (end, location) = clock.end();
    let at = thread.call_at(frame).unwrap_or_default();
    let counted = thread.end(at, &Call { location, start, end, ..Call::default() }, &[]);
    thread.bracket_ends(entered, (start, end), counted);
}
