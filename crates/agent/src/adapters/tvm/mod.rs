//! The adapter for TVM's Relax virtual machine, on the stock releases: its one instrument, and two
//! of the symbols that compiled modules get from the runtime. `include/counterpoint/tvm.h` is the
//! contract.
//!
//! ```text
//!  vm["main"](…) ──► entry's wrapper ─────────────────────────────── role run
//!    VM calls an op ──► instrument "before" · op · instrument "after"  role op
//!      generated code ──► parallel launch ───────────────────────── role region
//!        thread of the pool ──► task ────────────────────────────── role task
//!      generated code ──► workspace                                  a value of the call
//! ```
//!
//! | module | what |
//! |---|---|
//! | [`exports`] | what `tvm_ffi.load_module` finds |
//! | [`ffi`] | the FFI's functions, looked up by name; its values, read |
//! | [`instrument`] | around each op, and around a run |
//! | [`bracket`] | what both and the regions have in common: begin, end, values |
//! | [`function_collector`] | a user's collector that is two functions of TVM's |
//! | [`op`] | from a call's arguments to the number of its export, without allocation |
//! | [`vm`] | the virtual machines |
//! | [`text`] | how data types, shapes and devices are spelled |
//! | [`parallel`] | regions, tasks and workspaces |
//!
//! The VM passes exceptions through its instrument's caller, never through the instrument; compiled
//! code may pass them through the launch of a region, where no landing pad of ours may lie.

mod bracket;
pub mod exports;
mod ffi;
mod function_collector;
mod instrument;
mod op;
mod parallel;
mod text;
mod vm;

use crate::recorder::adapter::Adapter;

/// What the recorder knows about this adapter.
pub static ADAPTER: Adapter = Adapter {
    prepare: || {},
    constructed: || {},
    session_began: || {},
    at_exit: || {},
    rehearse: instrument::rehearse,
    has_uncounted: true,
    run_source: None,
};
