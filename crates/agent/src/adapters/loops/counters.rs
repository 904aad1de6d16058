//! Counters around hits of functions and outer loops: read at the begin and the end of each timed
//! hit, what they add is summed for each id.
//!
//! A hit that begins may never end (`longjmp`, exceptions). So its reading is on a stack, and a later
//! hit forgets those whose stack frames are gone, as the recorder does with calls.

use abi::loops::{Entry, Mode};
use counters::{Coverage, Readings};
use record::loops::{BLOCK_BYTES, BlockHeader, sums_offset};

use super::{ADAPTER, local};
use crate::process::guard::guarded;
use crate::recorder::attach;
use crate::recorder::bracket::stack_address;
use crate::recorder::busy::while_busy;
use crate::recorder::thread::{self, Thread};
use crate::state::run::Run;

/// Hits inside of one another for which counters are read.
const DEEPEST: usize = 32;

/// A hit in progress.
struct Open {
    entry: *const Entry,
    frame: usize,
    readings: Readings,
}

/// The hits that a thread is in.
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

    /// Forgets hits whose frames are gone: those below the frame of the one that begins, and one of
    /// the same id in the same frame, with all that are inside of it.
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

/// How many counters the tables of this run have sums for, for a module of this mode.
pub fn count(run: &Run, mode: Mode) -> u32 {
    match mode {
        Mode::Sampled | Mode::Timed => run.counter_mask.count_ones(),
        Mode::Count | Mode::Log => 0,
    }
}

/// Makes the calling thread have counters, and room for hits. One that cannot is a counted loss.
pub fn prepare() {
    let local = local::get();
    // SAFETY: this thread's own.
    unsafe {
        if (*local).stack.is_null() {
            (*local).stack = Box::into_raw(Stack::new()).cast();
        }
    }
    let thread = thread::current();
    // SAFETY: null or this thread's own state.
    if thread.is_null() || !unsafe { (*thread).is_attached() } {
        attach::attach(&ADAPTER);
    }
}

/// The thread exits.
///
/// # Safety
/// The calling thread's own.
pub unsafe fn forget(local: *mut local::Local) {
    // SAFETY: made by `prepare`, or null.
    unsafe {
        let stack = std::mem::replace(&mut (*local).stack, std::ptr::null_mut()).cast::<Stack>();
        if !stack.is_null() {
            drop(Box::from_raw(stack));
        }
    }
}

/// The calling thread, if its counters can be read now.
fn counting() -> Option<&'static mut Thread> {
    // SAFETY: null or this thread's own state, which lives as long as the thread.
    let thread = unsafe { thread::current().as_mut() }?;
    let can = thread.is_attached() && thread.counting && !thread.busy.is_set();
    can.then_some(thread)
}

/// Runs `body` so that a signal handler that calls us passes through.
fn busy<T>(thread: &mut Thread, body: impl FnOnce(&mut Thread) -> T) -> T {
    while_busy!(thread, body(thread))
}

/// A hit begins. What this returns belongs to its end; 0: nothing was read.
///
/// # Safety
/// The entry of this id in a table that `enter` has returned.
pub unsafe extern "C" fn begin(entry: *mut Entry, _: u32) -> u64 {
    let frame = stack_address();
    let begun = guarded(|| {
        point!(LoopBegin);
        let thread = counting()?;
        // SAFETY: this thread's own; only functions of this file use the stack.
        let stack = unsafe { (*local::get()).stack.cast::<Stack>().as_mut() }?;
        busy(thread, |thread| {
            stack.forget(entry, frame);
            let open = stack.open.get_mut(stack.depth)?;
            (open.entry, open.frame) = (entry, frame);
            stack.depth += 1;
            // A failed read leaves its mark in the readings; the end sees it.
            let _ = thread.counters.read(&mut open.readings);
            Some(stack.depth as u64)
        })
    });
    begun.flatten().unwrap_or(0)
}

/// The hit ends.
///
/// # Safety
/// As [`begin`], which has returned `began` for it.
pub unsafe extern "C" fn end(entry: *mut Entry, id: u32, began: u64) {
    if began == 0 {
        return;
    }
    guarded(|| {
        point!(LoopEnd);
        let thread = counting()?;
        // SAFETY: as above.
        let stack = unsafe { (*local::get()).stack.cast::<Stack>().as_mut() }?;
        busy(thread, |thread| {
            let _ = thread.counters.read(&mut stack.after);
            let at = began as usize - 1;
            if at >= stack.depth || !std::ptr::eq(stack.open[at].entry, entry) {
                return None;
            }
            stack.depth = at;
            // SAFETY: by contract.
            unsafe { add(entry, id, &stack.open[at].readings, &stack.after) }
        })
    });
}

/// Adds what was counted to the sums of this id, if every counter counted all the time.
///
/// # Safety
/// As [`end`].
unsafe fn add(entry: *mut Entry, id: u32, before: &Readings, after: &Readings) -> Option<()> {
    let table = (entry as usize).wrapping_sub(id as usize * size_of::<Entry>());
    // SAFETY: by contract the block's header is before the table. Where private memory has taken the
    // table's place, it is zero.
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
        // SAFETY: inside of the block, aligned; only this thread writes there.
        unsafe { sum.write_volatile(sum.read_volatile().wrapping_add(added?)) };
    }
    Some(())
}
