//! Reads counters at the start and the end of each timed hit (one execution) of instrumented
//! functions and of loops of depth 0 and 1. Adds the differences to the sums of the function or
//! loop.
//!
//! A hit that begins may never end (`longjmp`, exceptions). So the reading at its start is kept on
//! a list of open hits. When a later hit begins, the hits whose stack frames are gone are removed
//! from this list.

use std::sync::atomic::{AtomicU32, Ordering};

use abi::loops::{Entry, Mode};
use counters::{Coverage, Readings};
use record::loops::{BLOCK_BYTES, BlockHeader, LoopFrame, sums_offset};

use super::modules::spread;
use super::{ADAPTER, local, ticks};
use crate::process::panics::guarded;
use crate::process::part::Process;
use crate::recorder::attach;
use crate::recorder::bracket::stack_address;
use crate::recorder::busy::while_busy;
use crate::recorder::thread::{self, Thread};
use crate::state::run::Run;

/// The largest depth of nested hits for which counters are read.
const DEEPEST: usize = 32;

struct Open {
    entry: *const Entry,
    frame: usize,
    readings: Readings,
}

struct Stack {
    depth: usize,
    open: [Open; DEEPEST],
    after: Readings,
}

impl Stack {
    fn new() -> Box<Self> {
        const NONE: Open = Open { entry: std::ptr::null(), frame: 0, readings: Readings::new() };
        Box::new(Self { depth: 0, open: [NONE; DEEPEST], after: Readings::new() })
    }

    /// Removes open hits whose frames are gone: those in frames below `frame`, where a new hit
    /// begins. If `frame` already has a hit of the same id, removes that hit and all hits inside of
    /// it.
    fn forget(&mut self, entry: *const Entry, frame: usize) {
        while self.depth > 0 && self.open[self.depth - 1].frame < frame {
            self.depth -= 1;
        }
        let same = |open: &Open| open.frame == frame && std::ptr::eq(open.entry, entry);
        if let Some(at) = self.open[..self.depth].iter().position(same) {
            self.depth = at;
        }
    }
}

/// Returns how many counters have sums in the tables of modules with this mode.
pub fn count(run: &Run, mode: Mode) -> u32 {
    match mode {
        Mode::Sampled | Mode::Timed => run.counter_mask.count_ones(),
        Mode::Count | Mode::Log => 0,
    }
}

/// Attaches the calling thread to the recorder, so that it has counters, and allocates memory for
/// its open hits.
pub fn prepare() {
    let local = local::get();
    // SAFETY: `local::get` returns the calling thread's own thread-local, which lives as long as
    // the thread.
    unsafe {
        if (*local).stack.is_null() {
            (*local).stack = Box::into_raw(Stack::new()).cast();
        }
    }
    let thread = thread::current();
    // SAFETY: `thread::current` returns null or the calling thread's own state.
    if thread.is_null() || !unsafe { (*thread).is_attached() } {
        attach::attach(&ADAPTER);
    }
}

/// The number of rounds in which the cost of a hit's readings is measured, and the number of hits
/// in each round.
const ROUNDS: usize = 25;
const HITS: u32 = 4;

/// Serial number ([`Process::serial`]) of the part of the profile to which [`tell`] has written how
/// long readings take.
static TOLD: AtomicU32 = AtomicU32::new(0);

/// Writes to the part of `process` (its directory in the profile), once, how long it takes to read
/// counters at the start and the end of a hit. Measures the time with this thread's counters, in
/// about 0.1 ms; [`prepare`] must have been called. A hit's own time does not include these
/// readings, but the time of the function or loop around it does.
pub fn tell(process: &Process, counters: u32) {
    if TOLD.load(Ordering::Acquire) == process.serial() {
        return;
    }
    // If this thread's counters cannot be read, a later call of this function measures the time.
    // Two threads may both write the time.
    let Some(ticks) = measure(counters) else { return };
    TOLD.store(process.serial(), Ordering::Release);
    // `append_loops` counts a failure as a loss. After a failure, the time is not written later.
    let _ = process.append_loops(&LoopFrame::Reading(ticks).to_bytes());
}

/// Measures how many ticks the readings of a hit take, if this thread's counters can be read.
fn measure(counters: u32) -> Option<[f64; 3]> {
    let bytes = sums_offset(1) + 8 * (1 + counters as usize);
    let mut block = vec![0u64; bytes.div_ceil(8)];
    let header = block.as_mut_ptr().cast::<BlockHeader>();
    // SAFETY: `block` has `bytes` zeroed bytes, enough for a header, one entry and its sums, and is
    // aligned for the `u64`s of which they consist.
    let entry = unsafe {
        (&raw mut (*header).counters).write(counters);
        (&raw mut (*header).ids).write(1);
        header.byte_add(BLOCK_BYTES).cast::<Entry>()
    };
    let local = local::get();
    let mut fresh = Stack::new();
    // SAFETY: `local` is the calling thread's own thread-local. Its stack contains the thread's
    // open hits and is kept in `mine` until the measurement ends.
    let mine = unsafe { std::mem::replace(&mut (*local).stack, (&raw mut *fresh).cast()) };
    let mut took = Vec::with_capacity(ROUNDS);
    for round in 0..=ROUNDS {
        let (mut read, before) = (true, ticks::now());
        for _ in 0..HITS {
            // SAFETY: `entry` has the id 0, and the block's header is directly before it, as in a
            // table that `enter` returns.
            unsafe {
                let began = begin(entry, 0);
                read &= began != 0;
                end(entry, 0, began);
            }
        }
        let ticks = ticks::now().wrapping_sub(before);
        // The first round only loads code and memory into the caches.
        if read && round > 0 {
            took.push(ticks as f64 / f64::from(HITS));
        }
    }
    // SAFETY: `local` is the calling thread's own thread-local, and `mine` is the stack of open
    // hits that was in it before.
    unsafe { (*local).stack = mine };
    spread(took)
}

/// Frees the stack of open hits of a thread that exits.
///
/// # Safety
/// `local` must be what [`local::get`] returns for the calling thread.
pub unsafe fn forget(local: *mut local::Local) {
    // SAFETY: by contract, `local` is the calling thread's. Its stack of open hits is null or was
    // made by `prepare` with `Box::into_raw`, and the pointer is cleared before the box is freed.
    unsafe {
        let stack = std::mem::replace(&mut (*local).stack, std::ptr::null_mut()).cast::<Stack>();
        if !stack.is_null() {
            drop(Box::from_raw(stack));
        }
    }
}

/// Returns the calling thread, if its counters can be read at this moment.
fn counting() -> Option<&'static mut Thread> {
    // SAFETY: `thread::current` returns null or the calling thread's own state, which lives as long
    // as the thread.
    let thread = unsafe { thread::current().as_mut() }?;
    let can = thread.is_attached() && thread.counting && !thread.busy.is_set();
    can.then_some(thread)
}

fn busy<T>(thread: &mut Thread, body: impl FnOnce(&mut Thread) -> T) -> T {
    while_busy!(thread, body(thread))
}

/// Called by instrumented code when a timed hit begins. Returns a number for [`end`], or 0 if the
/// hit was not put on the list of open hits.
///
/// # Safety
/// `entry` must be an entry of a table that `enter` has returned.
pub unsafe extern "C" fn begin(entry: *mut Entry, _: u32) -> u64 {
    let frame = stack_address();
    let begun = guarded(|| {
        point!(LoopBegin);
        let thread = counting()?;
        // SAFETY: the thread-local and the stack in it are the calling thread's own. Only functions
        // of this file use the stack. If a signal handler calls one of them while `busy` is set,
        // the call returns without using the stack.
        let stack = unsafe { (*local::get()).stack.cast::<Stack>().as_mut() }?;
        busy(thread, |thread| {
            stack.forget(entry, frame);
            let open = stack.open.get_mut(stack.depth)?;
            (open.entry, open.frame) = (entry, frame);
            stack.depth += 1;
            // A failed read is marked in the readings, and the end of the hit checks the mark.
            let _ = thread.counters.read(&mut open.readings);
            Some(stack.depth as u64)
        })
    });
    begun.flatten().unwrap_or(0)
}

/// Called by instrumented code when a timed hit ends. `began` is what [`begin`] returned.
///
/// # Safety
/// The requirements of [`begin`] apply, and `begin` must have returned `began` for this entry. `id`
/// must be the entry's id.
pub unsafe extern "C" fn end(entry: *mut Entry, id: u32, began: u64) {
    if began == 0 {
        return;
    }
    guarded(|| {
        point!(LoopEnd);
        let thread = counting()?;
        // SAFETY: the thread-local and the stack in it are the calling thread's own. Only functions
        // of this file use the stack. If a signal handler calls one of them while `busy` is set,
        // the call returns without using the stack.
        let stack = unsafe { (*local::get()).stack.cast::<Stack>().as_mut() }?;
        busy(thread, |thread| {
            let _ = thread.counters.read(&mut stack.after);
            let at = began as usize - 1;
            if at >= stack.depth || !std::ptr::eq(stack.open[at].entry, entry) {
                return None;
            }
            stack.depth = at;
            // SAFETY: by this function's contract, `entry` is the entry of `id` in a table that
            // `enter` has returned.
            unsafe { add(entry, id, &stack.open[at].readings, &stack.after) }
        })
    });
}

/// Adds the counts of a hit to the sums of its id, if every counter counted during the whole hit.
///
/// # Safety
/// The requirements of [`end`] apply.
unsafe fn add(entry: *mut Entry, id: u32, before: &Readings, after: &Readings) -> Option<()> {
    let table = (entry as usize).wrapping_sub(id as usize * size_of::<Entry>());
    // SAFETY: by contract, `entry` is in a table, and the header of the table's block is directly
    // before the table. If the table was replaced by private memory (see [`super::tables`]), the
    // header is zero.
    let block = unsafe { &*((table - BLOCK_BYTES) as *const BlockHeader) };
    let count = block.counters as usize;
    if count == 0 || id >= block.ids {
        return None;
    }
    let whole = |i| after.coverage(before, i) == Coverage::Whole;
    if !(0..count).all(whole) {
        return None;
    }
    let sums = table - BLOCK_BYTES + sums_offset(block.ids) + id as usize * 8 * (1 + count);
    for (at, added) in
        std::iter::once(Some(1)).chain((0..count).map(|i| after.since(before, i))).enumerate()
    {
        let sum = (sums as *mut u64).wrapping_add(at);
        // SAFETY: the sum is aligned. It is in the block, because `id` is below the block's number
        // of ids. Only this thread writes to the block.
        unsafe { sum.write_volatile(sum.read_volatile().wrapping_add(added?)) };
    }
    Some(())
}
