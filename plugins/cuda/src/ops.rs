//! Counters of each op (`cuda.range-counters=…,cuda.ranges=op`). The host says when an op begins and ends, and gives
//! the op a number.

use std::cell::Cell;
use std::ffi::c_void;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::collect::{self, Range, What};
use crate::cupti::Cupti;
use crate::marked::Marked;
use crate::range;

static COUNTED: Mutex<Option<&'static Marked>> = Mutex::new(None);
static WHY: Mutex<Option<String>> = Mutex::new(None);

/// The op of a thread that is counted.
#[derive(Clone, Copy, Debug)]
struct Open {
    op: u64,
    begin: u64,
    device: u32,
    /// How many ops of the thread were open before it.
    depth: u32,
}

thread_local! {
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    static OPEN: Cell<Option<Open>> = const { Cell::new(None) };
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Begins to count ops.
pub fn begin(cupti: &'static Cupti, names: &[String]) {
    *lock(&WHY) = None;
    match range::check(cupti) {
        // A recording more or less is some hundred bytes; an op of another thread may be in it at the end.
        Ok(()) => *lock(&COUNTED) = Some(Box::leak(Box::new(Marked::new(cupti, names, None)))),
        Err(why) => *lock(&WHY) = Some(why),
    }
}

fn counted() -> Option<&'static Marked> {
    *lock(&COUNTED)
}

/// Counts no more, and gives back all that was made.
pub fn end() {
    let Some(marked) = lock(&COUNTED).take() else { return };
    *lock(&WHY) = marked.finish();
}

/// A context is about to be destroyed.
pub fn gone(context: *mut c_void) {
    if let Some(marked) = counted() {
        marked.forget(context);
    }
}

/// Why ops were not counted, if they were to be and could not be.
pub fn why() -> Option<String> {
    counted().and_then(Marked::why).or_else(|| lock(&WHY).clone())
}

/// An op begins on the calling thread.
pub fn push(cupti: &Cupti, op: u64) {
    let depth = DEPTH.get();
    DEPTH.set(depth + 1);
    if OPEN.get().is_some() {
        return;
    }
    if let Some(device) = counted().and_then(Marked::begin) {
        let begin = cupti.timestamp().unwrap_or(0);
        OPEN.set(Some(Open { op, begin, device, depth }));
    }
}

/// The innermost op of the calling thread ends.
pub fn pop(cupti: &Cupti) {
    let depth = DEPTH.get().saturating_sub(1);
    DEPTH.set(depth);
    let Some(open) = OPEN.get().filter(|open| open.depth == depth) else { return };
    OPEN.set(None);
    let end = cupti.timestamp().unwrap_or(0);
    let Some(values) = counted().and_then(Marked::end) else { return };
    collect::add_range(Range {
        what: What::Op(open.op),
        times: (open.begin, end),
        thread: collect::own_thread(),
        device: open.device,
        correlation: 0,
        values,
    });
}
