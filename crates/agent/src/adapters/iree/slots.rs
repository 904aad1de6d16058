//! The slots of recorded exports (functions that IREE's runtime calls). A slot maps a stub (a small
//! function that the runtime calls instead of an export) to the original function.
//!
//! A slot belongs to one export of one loaded library. Runtimes do not report when they unload a
//! library. The agent has stored the address of the slot's stub in the library's export table (an
//! array of function addresses). When no slot is free, the agent looks for slots whose entry in
//! that table no longer contains the stub: their library was unloaded.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use crate::os::sys;
use crate::process::lock::Lock;

/// Maximum number of exports that can have a stub at the same time.
pub const SLOTS: usize = 16_384;
/// Maximum number of distinct query functions (functions that return an IREE library) of system
/// libraries that can have a stub at the same time.
pub const QUERIES: usize = 4_096;
pub const STUB_BYTES: usize = 16;

#[repr(C)]
pub struct Slot {
    /// The original function. It is kept when the slot becomes free, so that a late call of the
    /// stub still works.
    pub original: AtomicUsize,
    /// Address of the entry in the library's export table that contains our stub; 0 while the slot
    /// is free.
    place: AtomicUsize,
    pub export: AtomicU32,
}

pub static TABLE: [Slot; SLOTS] = [const {
    Slot { original: AtomicUsize::new(0), place: AtomicUsize::new(0), export: AtomicU32::new(0) }
}; SLOTS];

/// Returns the addresses of the tables of dispatch stubs and of query stubs.
pub fn stubs() -> (usize, usize) {
    let (dispatch, query): (usize, usize);
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the instructions only compute the addresses of two symbols of this library.
    unsafe {
        std::arch::asm!(
            "lea {0}, [rip + cp_stubs]",
            "lea {1}, [rip + cp_query_stubs]",
            out(reg) dispatch,
            out(reg) query,
            options(nomem, nostack, preserves_flags),
        );
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: the instructions only compute the addresses of two symbols of this library.
    unsafe {
        std::arch::asm!(
            "adrp {0}, cp_stubs",
            "add {0}, {0}, :lo12:cp_stubs",
            "adrp {1}, cp_query_stubs",
            "add {1}, {1}, :lo12:cp_query_stubs",
            out(reg) dispatch,
            out(reg) query,
            options(nomem, nostack, preserves_flags),
        );
    }
    (dispatch, query)
}

pub fn is_stub(address: usize) -> bool {
    let (first, _) = stubs();
    (first..first + SLOTS * STUB_BYTES).contains(&address)
}

/// Claims a slot for `original` and returns its stub. `place` is the address of the entry in the
/// library's export table that will contain the stub. Returns `None` if all slots are in use.
pub fn claim(original: usize, place: usize, export: u32, lock: &Lock) -> Option<usize> {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let first = NEXT.load(Ordering::Relaxed);
    // The search begins after the slot that was claimed last, so that a slot is reused as late as
    // possible.
    let free = |n: &usize| TABLE[*n].place.load(Ordering::Relaxed) == 0;
    let mut order = (0..SLOTS).map(|i| (first + i) % SLOTS);
    let number = order.clone().find(free).or_else(|| {
        reclaim(lock);
        order.find(free)
    })?;
    NEXT.store(number + 1, Ordering::Relaxed);
    let slot = &TABLE[number];
    slot.export.store(export, Ordering::Relaxed);
    slot.original.store(original, Ordering::Release);
    slot.place.store(place, Ordering::Release);
    Some(stubs().0 + number * STUB_BYTES)
}

/// Gives back a slot whose stub was never stored in a table.
pub fn give_back(stub: usize, _: &Lock) {
    let number = stub.wrapping_sub(stubs().0) / STUB_BYTES;
    if let Some(slot) = TABLE.get(number) {
        slot.place.store(0, Ordering::Release);
    }
}

/// Frees the slots of unloaded libraries. Such a slot's entry in the export table is unmapped or no
/// longer contains the stub.
fn reclaim(_: &Lock) {
    let (first, _) = stubs();
    for (number, slot) in TABLE.iter().enumerate() {
        let place = slot.place.load(Ordering::Relaxed);
        if place != 0 && sys::read_value::<usize>(place) != Some(first + number * STUB_BYTES) {
            slot.place.store(0, Ordering::Release);
        }
    }
}
