//! Mode log: the first begins and ends of each id with the return address of the handler's call.

use std::sync::atomic::Ordering;

use abi::loops::Entry;
use model::Loss;
use record::loops::{BLOCK_BYTES, BlockHeader, Event, events_offset};

use super::ticks;
use crate::process::guard::guarded;
use crate::process::losses;

// The return address is what the caller has put on the stack or into the link register; a function
// in Rust cannot see it, so it becomes the fourth argument.
#[cfg(target_arch = "x86_64")]
std::arch::global_asm!(
    ".globl cp_loops_log",
    ".hidden cp_loops_log",
    ".type cp_loops_log,@function",
    "cp_loops_log:",
    "mov rcx, qword ptr [rsp]",
    "jmp {log}",
    ".size cp_loops_log, . - cp_loops_log",
    log = sym log,
);
#[cfg(target_arch = "aarch64")]
std::arch::global_asm!(
    ".globl cp_loops_log",
    ".hidden cp_loops_log",
    ".type cp_loops_log,@function",
    "cp_loops_log:",
    "hint #34",
    "mov x3, x30",
    "b {log}",
    ".size cp_loops_log, . - cp_loops_log",
    log = sym log,
);

unsafe extern "C" {
    fn cp_loops_log(entry: *mut Entry, id: u32, end: u32);
}

/// What instrumented code calls.
pub fn address() -> *mut () {
    cp_loops_log as *mut ()
}

/// # Safety
/// The entry of this id in a table that `enter` has returned.
unsafe extern "C" fn log(entry: *mut Entry, id: u32, end: u32, from: u64) {
    let table = (entry as usize).wrapping_sub(id as usize * size_of::<Entry>());
    if table < BLOCK_BYTES {
        return; // `enter` had returned null.
    }
    let now = ticks::now();
    guarded(|| {
        point!(LoopLog);
        // SAFETY: by contract; the block's header is before the table. Only this thread writes to
        // either.
        unsafe {
            let block = &*((table - BLOCK_BYTES) as *const BlockHeader);
            let entry = &*entry;
            if !counts(entry, block, end != 0) {
                return;
            }
            let made = block.logged.load(Ordering::Relaxed);
            if made >= block.events.into() {
                block.unlogged.fetch_add(1, Ordering::Relaxed);
                return losses::lose(Loss::LoopLogFull, 1, 0);
            }
            let address = from.wrapping_sub(block.base);
            let event = Event { id, end: end != 0, ticks: now, address };
            let events = table - BLOCK_BYTES + events_offset(block.ids, block.counters);
            let at = (events as *mut [u64; 3]).add(made as usize);
            at.write(event.to_words());
            block.logged.store(made + 1, Ordering::Release);
        }
    });
}

/// Counts a begin or an end, and says whether it is one to record: the first begins of an id, and as
/// many ends.
fn counts(entry: &Entry, block: &BlockHeader, end: bool) -> bool {
    let add = |number: &std::sync::atomic::AtomicU64| {
        let next = number.load(Ordering::Relaxed) + 1;
        number.store(next, Ordering::Relaxed);
        next
    };
    if end {
        let open = entry.ended.load(Ordering::Relaxed) < entry.begun.load(Ordering::Relaxed);
        if open {
            add(&entry.ended);
        }
        return open;
    }
    let hits = add(&entry.reserved);
    entry.hits.store(hits, Ordering::Relaxed);
    let first = hits <= block.logged_first;
    if first {
        add(&entry.begun);
    }
    first
}
