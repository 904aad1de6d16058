//! Reads counters for each op (`cuda.range-counters=…,cuda.ranges=op`). The host says when an op
//! begins and ends, and gives each op a number.

use std::cell::Cell;
use std::ffi::c_void;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::collect::{self, Range, What};
use crate::cupti::Cupti;
use crate::lock::lock;
use crate::op_ranges::OpRanges;
use crate::range;

#[derive(Clone, Copy, Debug)]
struct Counting {
    recording: u64,
    ranges: &'static OpRanges,
}

static COUNTING: Mutex<Option<Counting>> = Mutex::new(None);
/// The number of the last recording that counted ops.
static LAST: Mutex<u64> = Mutex::new(0);
/// False while the recording is paused.
static IS_ON: AtomicBool = AtomicBool::new(true);
static WHY: Mutex<Option<String>> = Mutex::new(None);

#[derive(Clone, Copy, Debug)]
struct Open {
    op: u64,
    begin: u64,
    device: u32,
    ranges: &'static OpRanges,
    /// How many ops the thread had open when this op began.
    depth: u32,
}

/// A thread's open ops in one recording. If ops are open when the recording ends, a host may end
/// them in a later recording, or never; `recording` distinguishes them from later ops.
#[derive(Clone, Copy, Debug, Default)]
struct Ops {
    recording: u64,
    depth: u32,
    open: Option<Open>,
}

thread_local! {
    static OPS: Cell<Ops> = const { Cell::new(Ops { recording: 0, depth: 0, open: None }) };
}

pub fn begin(cupti: &'static Cupti, names: &[String]) {
    *lock(&WHY) = None;
    IS_ON.store(true, Ordering::Release);
    if let Err(why) = range::check(cupti) {
        *lock(&WHY) = Some(why);
        return;
    }
    let recording = {
        let mut last = lock(&LAST);
        *last += 1;
        *last
    };
    // This leaks a few hundred bytes, because an op of another thread may still use the ranges when
    // the recording ends.
    let ranges = Box::leak(Box::new(OpRanges::new(cupti, names, None)));
    *lock(&COUNTING) = Some(Counting { recording, ranges });
}

fn counting() -> Option<Counting> {
    *lock(&COUNTING)
}

/// Sets whether ops that begin from now on are counted.
pub fn go_on(is_on: bool) {
    IS_ON.store(is_on, Ordering::Release);
}

pub fn end() {
    let Some(Counting { ranges, .. }) = lock(&COUNTING).take() else { return };
    *lock(&WHY) = ranges.finish();
}

/// Gives the ranges of a context that is about to be destroyed back to CUPTI.
pub fn gone(context: *mut c_void) {
    if let Some(Counting { ranges, .. }) = counting() {
        ranges.forget(context);
    }
}

pub fn why() -> Option<String> {
    counting().and_then(|counting| counting.ranges.why()).or_else(|| lock(&WHY).clone())
}

/// Begins an op on the calling thread.
pub fn push(cupti: &Cupti, op: u64) {
    let Some(Counting { recording, ranges }) = counting() else { return };
    let mut ops = OPS.get();
    if ops.recording != recording {
        ops = Ops { recording, ..Ops::default() };
    }
    let depth = ops.depth;
    ops.depth += 1;
    OPS.set(ops);
    if ops.open.is_some() || !IS_ON.load(Ordering::Acquire) {
        return;
    }
    match ranges.begin() {
        Ok(Some(device)) => {
            let begin = cupti.timestamp().unwrap_or(0);
            ops.open = Some(Open { op, begin, device, ranges, depth });
            OPS.set(ops);
        }
        Ok(None) => {}
        Err(_) => collect::add_uncounted_op(),
    }
}

pub fn pop(cupti: &Cupti) {
    let Some(Counting { recording, .. }) = counting() else { return };
    let mut ops = OPS.get();
    if ops.recording != recording {
        return;
    }
    ops.depth = ops.depth.saturating_sub(1);
    let ended = ops.open.take_if(|open| open.depth == ops.depth);
    OPS.set(ops);
    let Some(open) = ended else { return };
    let end = cupti.timestamp().unwrap_or(0);
    let values = match open.ranges.end() {
        Ok(Some(values)) => values,
        Ok(None) => return,
        Err(_) => return collect::add_uncounted_op(),
    };
    collect::add_range(Range {
        what: What::Op(open.op),
        times: (open.begin, end),
        thread: collect::own_thread(),
        device: open.device,
        correlation: 0,
        values,
    });
}
