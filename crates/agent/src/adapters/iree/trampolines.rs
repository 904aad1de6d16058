//! The functions that take the places of exports: a table of stubs, each of which loads its own
//! number and jumps to [`dispatch_entry`]. The table is ordinary code of this library, so nothing
//! ever needs memory that is writable and executable.
//!
//! A slot is used by one export of one loaded library. Runtimes do not tell when they unload, so
//! slots are taken back when others are wanted: a library whose table no longer holds our stub
//! was unmapped.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use abi::iree::{Dispatch, DispatchState, Environment, LibraryHead, Query, WorkgroupState};

use crate::os::sys;
use crate::process::part::Lock;
use crate::recorder::bracket;

/// Exports that can be bracketed at the same time.
pub const SLOTS: usize = 16_384;
/// Distinct query functions of system libraries that can be wrapped.
pub const QUERIES: usize = 4_096;
const STUB_BYTES: usize = 16;

#[repr(C)]
struct Slot {
    /// The original function. Stays when the slot is given back, so that a late call still lands.
    original: AtomicUsize,
    /// Where in the library's table our stub stands; 0 while the slot is free.
    place: AtomicUsize,
    export: AtomicU32,
}

static TABLE: [Slot; SLOTS] = [const {
    Slot { original: AtomicUsize::new(0), place: AtomicUsize::new(0), export: AtomicU32::new(0) }
}; SLOTS];

static WRAPPED: [AtomicUsize; QUERIES] = [const { AtomicUsize::new(0) }; QUERIES];

#[cfg(target_arch = "x86_64")]
std::arch::global_asm!(
    ".pushsection .text.cp_stubs,\"ax\",@progbits",
    ".balign 64",
    "cp_stubs:",
    ".set cp_number, 0",
    ".rept {slots}",
    ".balign 16",
    "endbr64",
    "mov ecx, cp_number",
    "jmp {dispatch}",
    ".set cp_number, cp_number + 1",
    ".endr",
    ".balign 16",
    "cp_query_stubs:",
    ".set cp_number, 0",
    ".rept {queries}",
    ".balign 16",
    "endbr64",
    "mov edx, cp_number",
    "jmp {query}",
    ".set cp_number, cp_number + 1",
    ".endr",
    ".popsection",
    slots = const SLOTS,
    queries = const QUERIES,
    dispatch = sym dispatch_entry,
    query = sym query_entry,
);

#[cfg(target_arch = "aarch64")]
std::arch::global_asm!(
    ".pushsection .text.cp_stubs,\"ax\",@progbits",
    ".balign 64",
    "cp_stubs:",
    ".set cp_number, 0",
    ".rept {slots}",
    ".balign 16",
    "bti c",
    "movz w3, #cp_number",
    "b {dispatch}",
    ".set cp_number, cp_number + 1",
    ".endr",
    ".balign 16",
    "cp_query_stubs:",
    ".set cp_number, 0",
    ".rept {queries}",
    ".balign 16",
    "bti c",
    "movz w2, #cp_number",
    "b {query}",
    ".set cp_number, cp_number + 1",
    ".endr",
    ".popsection",
    slots = const SLOTS,
    queries = const QUERIES,
    dispatch = sym dispatch_entry,
    query = sym query_entry,
);

const _: () = assert!(SLOTS <= 1 << 16 && QUERIES <= 1 << 16);

/// The addresses of the two tables of stubs.
fn stubs() -> (usize, usize) {
    let (dispatch, query): (usize, usize);
    #[cfg(target_arch = "x86_64")]
    // SAFETY: only computes two addresses of this library.
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
    // SAFETY: only computes two addresses of this library.
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

/// Whether an address is one of our dispatch stubs.
pub fn is_stub(address: usize) -> bool {
    let (first, _) = stubs();
    (first..first + SLOTS * STUB_BYTES).contains(&address)
}

/// A slot for `original`, and the stub that calls it. `place` is the table entry that will hold
/// the stub. `None` when all slots are in use.
pub fn claim(original: usize, place: usize, export: u32, lock: &Lock) -> Option<usize> {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let first = NEXT.load(Ordering::Relaxed);
    // Round robin, so that a slot just given back is reused last.
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

/// Gives a slot back that was claimed but never came into a table.
pub fn give_back(stub: usize, _: &Lock) {
    let number = stub.wrapping_sub(stubs().0) / STUB_BYTES;
    if let Some(slot) = TABLE.get(number) {
        slot.place.store(0, Ordering::Release);
    }
}

/// Frees the slots whose table entry is gone or holds something else: its library was unloaded.
fn reclaim(_: &Lock) {
    let (first, _) = stubs();
    for (number, slot) in TABLE.iter().enumerate() {
        let place = slot.place.load(Ordering::Relaxed);
        if place != 0 && sys::read_value::<usize>(place) != Some(first + number * STUB_BYTES) {
            slot.place.store(0, Ordering::Release);
        }
    }
}

/// Where every stub jumps: the runtime's call, with the number of the slot behind its arguments.
unsafe extern "C-unwind" fn dispatch_entry(
    environment: *const Environment,
    dispatch: *const DispatchState,
    workgroup: *const WorkgroupState,
    number: u32,
) -> c_int {
    // SAFETY: stubs are numbered below SLOTS.
    let slot = unsafe { TABLE.get_unchecked(number as usize) };
    let original = slot.original.load(Ordering::Relaxed);
    // SAFETY: the runtime holds our stub in the place of this function, so the library is loaded
    // and the slot in use.
    let original = unsafe { std::mem::transmute::<usize, Dispatch>(original) };
    let export = slot.export.load(Ordering::Relaxed);
    // SAFETY: the runtime's arguments for that function.
    unsafe { bracket::call(export, original, environment, dispatch, workgroup) }
}

/// The stub that stands in for the query function `real` of a system library, or `real` itself
/// when there is no room.
pub fn wrap_query(real: *mut c_void) -> *mut c_void {
    point!(WrapQuery);
    let (_, first) = stubs();
    let address = real as usize;
    if (first..first + QUERIES * STUB_BYTES).contains(&address) {
        return real;
    }
    let find = || {
        WRAPPED.iter().position(|wrapped| {
            let taken = wrapped
                .compare_exchange(0, address, Ordering::AcqRel, Ordering::Acquire)
                .unwrap_or_else(|other| other);
            taken == 0 || taken == address
        })
    };
    let number = find().or_else(|| {
        // Full: those of libraries that were unloaded are free again.
        for wrapped in &WRAPPED {
            let known = wrapped.load(Ordering::Acquire);
            if sys::read_value::<u8>(known).is_none() {
                let _ = wrapped.compare_exchange(known, 0, Ordering::AcqRel, Ordering::Relaxed);
            }
        }
        find()
    });
    match number {
        Some(number) => (first + number * STUB_BYTES) as *mut c_void,
        None => {
            crate::process::part::lose(model::Loss::SlotsExhausted, 1, 0);
            real
        }
    }
}

/// Where every query stub jumps: asks the real library, and takes in what it answers.
unsafe extern "C-unwind" fn query_entry(
    max_version: u32,
    environment: *const Environment,
    number: u32,
) -> *const LibraryHead {
    let real = WRAPPED.get(number as usize).map_or(0, |w| w.load(Ordering::Acquire));
    if real == 0 {
        return std::ptr::null();
    }
    // SAFETY: `real` is what `dlsym` returned for the name of a query function.
    let library = unsafe { std::mem::transmute::<usize, Query>(real)(max_version, environment) };
    crate::adapters::iree::patch::take_in_guarded(
        library,
        record::meta::LibraryKind::SystemLibrary,
    );
    library
}
