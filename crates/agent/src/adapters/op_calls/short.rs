//! A fast way to begin an op that the host ends even if the op throws, if the adapter knows the
//! op's entry and need not read it. [`bracket`] has the other functions.

use crate::adapters::op_calls::bracket;
use crate::adapters::op_calls::op::Entry;
use crate::recorder::bracket::held;
use crate::recorder::collectors;
use crate::recorder::thread::Thread;

/// Does what [`bracket::begin_held_op`] does for an entry with this `export`, if nothing but the
/// bracket is needed (no collectors, no metadata). `told` is what [`Entry::told`] returned when the
/// adapter stored the op. If more is needed, does nothing and returns false.
///
/// # Safety
/// The requirements of [`bracket::begin_op`] apply.
#[inline(always)]
pub unsafe fn try_begin_op(
    (entry, export, told): (&'static Entry, u32, u32),
    entered: u64,
    address: usize,
    forward: impl FnOnce(&Thread) -> u64,
) -> bool {
    let Some(thread) = bracket::recording() else { return false };
    // SAFETY: `recording` returns the calling thread's own state, and no code that uses it runs
    // meanwhile.
    let thread = unsafe { &mut *thread };
    if !thread.short_ops || told != Entry::told_to(thread) || collectors::any() {
        return false;
    }
    let numbers = [0, 0, forward(thread)];
    thread.try_open_op(export, held(address), bracket::slot(entry, numbers), entered)
}

/// Returns whether the calling thread's ops take the short way most of the time.
#[inline(always)]
pub fn is_for_ops() -> bool {
    // SAFETY: `recording` returns the calling thread's own state.
    bracket::recording().is_some_and(|thread| unsafe { (*thread).short_ops })
}
