//! Brackets empty calls for adapters that have no calls of their own to bracket: a thread that attaches
//! in order to read counters measures what all brackets have in common.

use record::Call;

use crate::recorder::adapter::Took;
use crate::recorder::bracket::{Newcomer, stack_address};
use crate::recorder::thread::{BEFORE, Thread};

#[inline(never)]
fn nothing() {
    std::hint::black_box(());
}

/// Brackets `calls` functions that do nothing. Counters are read for each of them.
pub fn rehearse_plain_calls(thread: &mut Thread, calls: usize, _: bool) -> Took {
    let clock = thread.run.clock;
    let empty: fn() = std::hint::black_box(nothing);
    let (mut bare, mut probed) = (Vec::with_capacity(calls), Vec::with_capacity(calls));
    for _ in 0..calls {
        let begin = clock.begin();
        empty();
        bare.push(clock.begin().wrapping_sub(begin));
        let begin = clock.begin();
        bracketed(thread, empty);
        probed.push(clock.begin().wrapping_sub(begin));
    }
    Took { bare, probed }
}

#[inline(never)]
fn bracketed(thread: &mut Thread, empty: fn()) {
    let clock = thread.run.clock;
    let frame = stack_address();
    let entered = thread.enter(BEFORE);
    if !thread.begin_drawn(0, frame, Newcomer::Synchronous, false) {
        return empty();
    }
    let start = clock.begin();
    empty();
    let (end, location) = clock.end();
    let counted = thread.counting && thread.uncounted == 0;
    thread.end(&Call { location, start, end, ..Call::default() }, frame, &[]);
    thread.left(entered, (start, end), counted);
}
