//! The adapter for instrumented loops: modules that `counterpoint loops instrument` has rewritten.
//! `include/counterpoint/loops.h` is the contract, docs/loops.md the description.
//!
//! ```text
//!  constructor of a module ──► register ──► a number, the costs of its hits, `enter`
//!  instrumented function ────► enter ─────► this thread's table, in pages of the pool
//!     inline code ───────────► counts in the table, without us
//!  end of the thread ────────► what was counted goes to the part's file, the pages go back
//! ```
//!
//! | module | what |
//! |---|---|
//! | [`register`] | what modules call: `counterpoint_loops_register` and its counterpart |
//! | [`modules`] | the modules of this process, and what the profile is told about them |
//! | [`code`] | says where their machine code is, and copies it |
//! | [`notes`] | finds modules whose constructors found no runtime |
//! | [`executables`] | finds the modules in executables of IREE, which have no constructors |
//! | [`local`] | what a thread knows, in thread-local storage |
//! | [`enter`] | from a module to the calling thread's table |
//! | [`tables`] | the tables of a thread: pages of the pool, and what happens to them when the thread ends |
//! | [`counters`] | counters around hits |
//! | [`log`] | mode log |
//! | [`open_hits`] | which begin an end in mode log belongs to |
//! | [`ticks`] | the clock of instrumented code |
//!
//! The tables of a thread are mapped as long as the thread lives, even if the session ends or the
//! pool is replaced: functions that were entered keep their addresses, and write to them.

mod callees;
mod code;
mod counters;
mod enter;
pub mod executables;
mod local;
mod log;
mod modules;
mod notes;
mod open_hits;
pub mod register;
mod tables;
mod ticks;

use crate::recorder::adapter::Adapter;
use crate::recorder::rehearsal;

/// This adapter's interface to the recorder.
pub static ADAPTER: Adapter = Adapter {
    constructed: register::constructed,
    session_began,
    at_exit: tables::at_process_exit,
    // A thread that attaches in order to read counters around loops measures the bracket that all
    // adapters have in common.
    rehearse: rehearsal::rehearse_plain_calls,
    ..Adapter::NOTHING
};

/// Registers the modules that were loaded before the session began.
fn session_began() {
    register::register_all();
}
