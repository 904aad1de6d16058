//! The adapter for the Relax virtual machine of TVM's stock releases. A VM has a place for one
//! instrument, which the adapter uses. The adapter also replaces two of the runtime's functions
//! that compiled modules call. `include/counterpoint/tvm.h` documents the interface.
//!
//! ```text
//!  vm["main"](…) ──► entry's wrapper ─────────────────────────────── role run
//!    VM calls an op ──► instrument "before" · op · instrument "after"  role op
//!      generated code ──► parallel launch ───────────────────────── role region
//!        thread of the pool ──► task ────────────────────────────── role task
//!      generated code ──► workspace                                  a value of the call
//! ```
//!
//! | module | purpose |
//! |---|---|
//! | [`exports`] | exports the functions that `tvm_ffi.load_module` finds |
//! | [`description`] | what TVM says about itself in a profile |
//! | [`ffi`] | looks up the FFI's functions by name, and reads its values |
//! | [`instrument`] | records ops and runs |
//! | [`function_collector`] | makes a collector from two TVM functions of the user |
//! | [`call`] | finds the entry of an op from the arguments of the instrument |
//! | [`unwatched`] | removes the instrument for runs whose calls are known |
//! | [`parallel`] | records regions and tasks, and counts workspaces |
//!
//! When an op throws, the exception passes through the function that calls the instrument, but not
//! through the instrument itself. Compiled code may throw through our function that launches a
//! region, so that function must not have a landing pad.

mod call;
mod description;
pub mod exports;
mod ffi;
mod function_collector;
mod instrument;
mod parallel;
mod unwatched;

use crate::process::hosts::Described;
use crate::recorder::adapter::Adapter;

pub static HOST: Described = Described::new(description::HOST).allocating(ALLOC_STORAGE);

/// Name of the op that allocates storage. The arguments are context, shape, device, type and scope.
const ALLOC_STORAGE: &[u8] = b"vm.builtin.alloc_storage";

pub static ADAPTER: Adapter =
    Adapter { rehearse: instrument::rehearse, has_uncounted: true, ..Adapter::NOTHING };
