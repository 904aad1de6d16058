//! The adapter for instrumented loops: modules that `counterpoint loops instrument` has rewritten.
//! `include/counterpoint/loops.h` defines the interface, and docs/loops.md describes it.
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
//! | [`register`] | the functions that modules call to register and unregister themselves |
//! | [`modules`] | the modules of this process, and their metadata in the profile |
//! | [`code`] | finds the modules' machine code, and copies it |
//! | [`callees`] | finds the library functions that JIT-compiled code calls |
//! | [`notes`] | finds modules that have not registered themselves, by their ELF notes |
//! | [`executables`] | finds the modules in executables of IREE, which have no constructors |
//! | [`local`] | the thread-local data |
//! | [`enter`] | finds the calling thread's table of a module |
//! | [`tables`] | makes the tables of a thread in the pool, and stores them when the thread ends |
//! | [`counters`] | reads counters around hits |
//! | [`log`] | records the first starts and ends of each id (mode log) |
//! | [`open_hits`] | finds the start that an end in mode log belongs to |
//! | [`ticks`] | reads the clock of instrumented code |
//!
//! The tables of a thread stay mapped as long as the thread lives, even if the session ends or the
//! pool is replaced. The reason is that functions that the thread has entered keep the tables'
//! addresses and write to the tables.

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

pub static ADAPTER: Adapter = Adapter {
    constructed: register::constructed,
    session_began,
    at_exit: tables::at_process_exit,
    // This adapter attaches threads to the recorder only to read counters, and records no calls. So
    // it has no bracket (the recorder's work around a call) of its own to measure.
    rehearse: rehearsal::rehearse_plain_calls,
    ..Adapter::NOTHING
};

/// Registers the modules that were loaded before the session began.
fn session_began() {
    register::register_all();
}
