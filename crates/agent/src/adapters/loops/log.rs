//! Mode log: records when the first hits (executions) of each function or loop start and end. Each
//! function or loop has an id. Each record contains the return address of the call with which
//! instrumented code reported the start or end.
//!
//! A hit that is left by an exception or `longjmp` has a start and no end, and only the first
//! starts of an id are recorded. Therefore an end is recorded only if the start of the same hit was
//! recorded. Otherwise, the end of the thousandth hit could be mistaken for the end of the first
//! one.

use std::sync::atomic::Ordering;

use abi::loops::Entry;
use model::Loss;
use record::loops::{BLOCK_BYTES, BlockHeader, Event, Shape};

use super::open_hits::{OpenHits, add};
use super::{tables, ticks};
use crate::process::losses;
use crate::process::panics::guarded;

// The return address is on the stack or in the link register, where a Rust function cannot read it.
// So the code below passes it as the fourth argument, and the stack pointer as the fifth.
#[cfg(target_arch = "x86_64")]
std::arch::global_asm!(
    ".globl cp_loops_log",
    ".hidden cp_loops_log",
    ".type cp_loops_log,@function",
    "cp_loops_log:",
    "mov rcx, qword ptr [rsp]",
    "mov r8, rsp",
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
    "mov x4, sp",
    "b {log}",
    ".size cp_loops_log, . - cp_loops_log",
    log = sym log,
);

unsafe extern "C" {
    fn cp_loops_log(entry: *mut Entry, id: u32, end: u32);
}

pub fn address() -> *mut () {
    cp_loops_log as *mut ()
}

/// # Safety
/// `entry` must be the entry of this id in the table that `enter` has returned. If `enter` has
/// returned null, `entry` must be the address computed from null in the same way.
unsafe extern "C" fn log(entry: *mut Entry, id: u32, end: u32, from: u64, frame: usize) {
    let table = (entry as usize).wrapping_sub(id as usize * size_of::<Entry>());
    if table < BLOCK_BYTES {
        return; // `enter` had returned null.
    }
    let now = ticks::now();
    guarded(|| {
        point!(LoopLog);
        // SAFETY: by contract, `entry` is in a table, and the header of the table's block is
        // directly before the table. Only this thread writes to the block.
        unsafe {
            let block = &*((table - BLOCK_BYTES) as *const BlockHeader);
            let entry = &*entry;
            let Some(open) = tables::open_hits() else { return };
            let is_written = match end != 0 {
                true => open.ends(entry, frame),
                false => begins(entry, block, open, frame),
            };
            if !is_written {
                return;
            }
            let made = block.logged.load(Ordering::Relaxed);
            if made >= block.events.into() {
                block.unlogged.fetch_add(1, Ordering::Relaxed);
                return losses::lose(Loss::LoopLogFull, 1, 0);
            }
            let address = from.wrapping_sub(block.base);
            let event = Event { id, end: end != 0, ticks: now, address };
            let shape = Shape { ids: block.ids, counters: block.counters, ..Shape::default() };
            let events = table - BLOCK_BYTES + shape.events_offset();
            let at = (events as *mut [u64; 3]).add(made as usize);
            at.write(event.to_words());
            block.logged.store(made + 1, Ordering::Release);
        }
    });
}

/// Counts the start of a hit. Returns whether to record the start: only if it is one of the first
/// starts of its id, and there is memory to remember the hit.
fn begins(entry: &Entry, block: &BlockHeader, open: &mut OpenHits, frame: usize) -> bool {
    let hits = add(&entry.trips);
    entry.hits.store(hits, Ordering::Relaxed);
    let is_first = hits <= block.logged_first;
    let is_written = open.begins(entry, frame, is_first);
    if is_written {
        add(&entry.begun);
    } else if is_first {
        block.unlogged.fetch_add(1, Ordering::Relaxed);
        losses::lose(Loss::LoopLogFull, 1, 0);
    }
    is_written
}
