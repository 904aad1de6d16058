//! A fast way to begin an op. The adapter has stored what is needed from the op's entry, so the
//! entry itself is not read. This way is for ops that the host ends even if they throw. The
//! functions for other ops are in [`bracket`].

use crate::adapters::op_calls::bracket;
use crate::adapters::op_calls::op::Entry;
use crate::recorder::bracket::held;
use crate::recorder::collectors;
use crate::recorder::thread::Thread;

/// Does what [`bracket::begin_held_op`] does, for an entry with the id `export`. But this function
/// can only open the bracket (read the clock and the counters). It neither calls collectors nor
/// writes metadata. `told` is what [`Entry::told`] returned when the adapter stored the op. If the
/// op cannot begin in this way, does nothing and returns false.
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
    // SAFETY: `recording` returns the calling thread's own state, which no other code uses
    // meanwhile.
    let thread = unsafe { &mut *thread };
    if !thread.short_ops || told != Entry::told_to(thread) || collectors::any() {
        return false;
    }
    let numbers = [0, 0, forward(thread)];
    thread.try_open_op(export, held(address), bracket::slot(entry, numbers), entered)
}

/// Returns whether most ops on the calling thread can begin with [`try_begin_op`].
#[inline(always)]
pub fn is_for_ops() -> bool {
    // SAFETY: `recording` returns the calling thread's own state.
    bracket::recording().is_some_and(|thread| unsafe { (*thread).short_ops })
}
