//! The functions that replace exports (functions that IREE's runtime calls): a table of stubs. Each
//! stub loads its own number into a register and jumps to [`dispatch_entry`]. Query functions
//! (functions that return an IREE library) have a second table of stubs, which jump to
//! [`query_entry`]. The tables are ordinary code of this library, so no memory needs to be both
//! writable and executable.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

use abi::iree::{Dispatch, DispatchState, Environment, LibraryHead, Query, WorkgroupState};

use crate::adapters::iree::slots::{QUERIES, SLOTS, STUB_BYTES, Slot, TABLE, stubs};
use crate::adapters::iree::{patch, probe};
use crate::adapters::loops::executables;
use crate::os::sys;
use crate::process::losses;
use crate::recorder::budget::calls::is_only_counted;
use crate::recorder::thread;

static WRAPPED: [AtomicUsize; QUERIES] = [const { AtomicUsize::new(0) }; QUERIES];

#[cfg(target_arch = "x86_64")]
std::arch::global_asm!(
    ".pushsection .text.cp_stubs,\"ax\",@progbits",
    ".balign 64",
    ".globl cp_stubs",
    ".hidden cp_stubs",
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
    ".globl cp_query_stubs",
    ".hidden cp_query_stubs",
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
    ".globl cp_stubs",
    ".hidden cp_stubs",
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
    ".globl cp_query_stubs",
    ".hidden cp_query_stubs",
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

/// The dispatch stubs jump to this function. It gets the arguments with which the runtime called
/// the stub, and the stub's number.
unsafe extern "C-unwind" fn dispatch_entry(
    environment: *const Environment,
    dispatch: *const DispatchState,
    workgroup: *const WorkgroupState,
    number: u32,
) -> c_int {
    // SAFETY: `number` is the number of a stub, which is below SLOTS, the length of the table.
    let slot = unsafe { TABLE.get_unchecked(number as usize) };
    // SAFETY: the runtime called the stub of this slot.
    let (export, original) = unsafe { of_slot(slot) };
    // With optimization, the compiler makes each of the three calls below a jump, so this function
    // has no stack frame during them. Then, during a call that is only counted, the stack contains
    // no frame of the agent.
    // SAFETY: the arguments are those with which the runtime called the stub in place of
    // `original`.
    unsafe {
        match is_only_counted(thread::current(), export) {
            Some(true) => original(environment, dispatch, workgroup),
            Some(false) => drawn(environment, dispatch, workgroup, slot),
            None => bracketed(environment, dispatch, workgroup, slot),
        }
    }
}

/// Records a call that was already counted, and that was chosen at random to be timed.
///
/// # Safety
/// The requirements of [`probe::call`] apply, for the slot's function.
#[inline(never)]
unsafe extern "C-unwind" fn drawn(
    environment: *const Environment,
    dispatch: *const DispatchState,
    workgroup: *const WorkgroupState,
    slot: &Slot,
) -> c_int {
    // SAFETY: by contract, the runtime called the slot's stub, with these arguments.
    unsafe {
        let (export, original) = of_slot(slot);
        probe::call_otherwise(export, original, environment, dispatch, workgroup, true)
    }
}

/// Records a call that has not been counted yet. In a run with a budget (a limit for the cost of
/// recording), counts it first, and records it only if it is chosen at random.
///
/// # Safety
/// The requirements of [`drawn`] apply.
#[inline(never)]
unsafe extern "C-unwind" fn bracketed(
    environment: *const Environment,
    dispatch: *const DispatchState,
    workgroup: *const WorkgroupState,
    slot: &Slot,
) -> c_int {
    // SAFETY: by contract, the runtime called the slot's stub, with these arguments.
    unsafe {
        let (export, original) = of_slot(slot);
        probe::call(export, original, environment, dispatch, workgroup)
    }
}

/// Returns the export id and the original function of a slot.
///
/// # Safety
/// The runtime must have called the slot's stub.
#[inline(always)]
unsafe fn of_slot(slot: &Slot) -> (u32, Dispatch) {
    let original = slot.original.load(Ordering::Relaxed);
    // SAFETY: the runtime called the slot's stub in place of the original function, so `original`
    // is the address of a dispatch function in a loaded library.
    let original = unsafe { std::mem::transmute::<usize, Dispatch>(original) };
    (slot.export.load(Ordering::Relaxed), original)
}

/// Returns the stub that replaces the query function `real` of a system library. Returns `real` if
/// all stubs are in use or if `real` is a stub itself.
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
        // All stubs are in use. Free the stubs of libraries that were unloaded.
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
            losses::lose(model::Loss::SlotsExhausted, 1, 0);
            real
        }
    }
}

/// The query stubs jump to this function. It asks the real query function for the library, and
/// registers that library.
unsafe extern "C-unwind" fn query_entry(
    max_version: u32,
    environment: *const Environment,
    number: u32,
) -> *const LibraryHead {
    let real = WRAPPED.get(number as usize).map_or(0, |w| w.load(Ordering::Acquire));
    if real == 0 {
        return std::ptr::null();
    }
    // SAFETY: `dlsym` returned `real` for the name of a query function, and the arguments are those
    // with which the runtime called the stub.
    let library = unsafe { std::mem::transmute::<usize, Query>(real)(max_version, environment) };
    patch::take_in_guarded(library, |export| {
        executables::system(real, export);
    });
    library
}
