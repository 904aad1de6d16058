//! The table through which the shim (a library inside PyTorch's process) reports ops and ranges to
//! the recorder: `include/counterpoint/torch_ops.h` in Rust.

use core::ffi::{c_char, c_void};
use core::mem::offset_of;

/// The version of the table's layout. A later version only adds fields at the end.
pub const VERSION: u32 = 1;
/// The largest number of counters that a recording can have.
pub const COUNTERS: usize = 32;

/// The kinds of calls, for [`Call::kind`].
pub mod kind {
    /// An op.
    pub const OP: u32 = 0;
    /// An op that autograd calls in a backward pass.
    pub const BACKWARD: u32 = 1;
    /// A range that the program named.
    pub const RANGE: u32 = 2;
}

/// Results of [`Table::watch_parallel`].
pub mod parallel {
    /// Parallel regions are recorded from now on.
    pub const WATCHED: i32 = 0;
    /// PyTorch does not use `GOMP_parallel`.
    pub const ABSENT: i32 = 1;
    /// The pointer through which `libtorch_cpu` calls `GOMP_parallel` could not be replaced.
    pub const REFUSED: i32 = 2;
}

/// The description of a call (an op or a range) that begins.
#[repr(C)]
#[derive(Debug)]
pub struct Call {
    /// Size of the struct in bytes.
    pub size: u32,
    /// Kind of the call: one of the constants in [`kind`].
    pub kind: u32,
    /// Name of the op or range, a C string.
    pub name: *const c_char,
    /// PyTorch's sequence number; negative if there is none.
    pub sequence: i64,
    /// PyTorch's number of the calling thread, from 1.
    pub thread: u64,
    /// For an op of the backward pass: PyTorch's number of the thread that called the forward op; 0
    /// if unknown.
    pub forward_thread: u64,
    /// Types, devices and shapes of the tensors among the arguments, or null.
    pub tensors: *const u64,
    /// Number of words at `tensors`.
    pub words: usize,
    /// A pointer that identifies the op until `forget` is called with it; null if the op has none.
    pub identity: *const c_void,
}

/// The values of the counters for a call.
#[repr(C)]
#[derive(Debug)]
pub struct Counts {
    /// Size of the struct in bytes.
    pub size: u32,
    /// Number of counters of the recording; 0 if none were read for the call.
    pub count: u32,
    /// One bit for each counter whose value in `values` is known.
    pub known: u32,
    /// One bit for each counter whose value in `workers` is known.
    pub workers_known: u32,
    /// The counts of the calling thread.
    pub values: [u64; COUNTERS],
    /// The counts of other threads in the parallel regions that the call itself launched.
    pub workers: [u64; COUNTERS],
}

/// The table of functions that `torch_ops.h` describes.
#[repr(C)]
#[derive(Debug)]
pub struct Table {
    /// Size of the table in bytes.
    pub size: u32,
    /// Version of the table's layout: [`VERSION`].
    pub version: u32,
    /// Begins an op. The first pointer identifies the op until it ends: it is the address of
    /// PyTorch's `at::RecordFunction` object on the stack.
    pub begin: unsafe extern "C" fn(*const c_void, *const Call),
    /// Ends the op that began with this address. Returns how many empty ops PyTorch shall announce
    /// (report to an observer), so that the shim can measure what this costs.
    pub end: unsafe extern "C" fn(*const c_void, *mut Counts) -> i32,
    /// Size in bytes of the memory to which the first argument of `begin_apart` must point.
    pub apart_bytes: usize,
    /// Begins a call that need not nest with other calls and may end on another thread.
    pub begin_apart: unsafe extern "C" fn(*mut c_void, *const Call) -> i32,
    /// Ends a call that `begin_apart` began.
    pub end_apart: unsafe extern "C" fn(*mut c_void, *mut Counts),
    /// Begins to record parallel regions. Returns one of the constants in [`parallel`].
    pub watch_parallel: extern "C" fn() -> i32,
    /// Copies the name of the counter with this number. Returns the length of the name, or 0 if
    /// there is no such counter.
    pub counter_name: unsafe extern "C" fn(u32, *mut c_char, usize) -> usize,
    /// Returns the number of calls that `begin_apart` began and that have not ended yet.
    pub open_apart: extern "C" fn() -> u32,
    /// Prepares the calling thread for recording. Returns 1, or 0 if nothing is being recorded.
    pub ready: extern "C" fn() -> i32,
    /// Returns the time on the clock of the recording, or 0 if the calling thread is not being
    /// recorded.
    pub ticks: extern "C" fn() -> u64,
    /// Takes the times in ticks that PyTorch needed to announce the begin and the end of an op.
    pub announced: extern "C" fn(u64, u64),
    /// Begins an op without tensors that the recorder already knows, by its identity or its name.
    /// Returns 0 if the recorder does not know the op; `begin` must then be called.
    pub begin_known: unsafe extern "C" fn(*const c_void, *const Call) -> i32,
    /// Forgets an op's identity.
    pub forget: unsafe extern "C" fn(*const c_void),
    /// Returns 1 if the shim shall call `range_begins` before each range, otherwise 0. The argument
    /// says whether this process is a forked child.
    pub steps: extern "C" fn(i32) -> i32,
    /// Reports that a range begins. Returns 1 if PyTorch shall announce ops from now on, 0 if not,
    /// or -1 if nothing changes.
    pub range_begins: unsafe extern "C" fn(*const c_char, u32, i32) -> i32,
    /// Returns whether PyTorch must begin to announce ops again.
    pub is_overdue: extern "C" fn() -> i32,
}

const _: () = assert!(size_of::<Call>() == 64 && offset_of!(Call, tensors) == 40);
const _: () = assert!(size_of::<Counts>() == 528 && offset_of!(Counts, workers) == 272);
const _: () = assert!(size_of::<Table>() == 136 && offset_of!(Table, begin_apart) == 32);
