//! The part of Counterpoint that runs inside other people's processes: preloaded, silent and harmless.
//!
//! ```text
//!  mmap, mprotect, dlsym ──► adapters/iree: find the executable library, put a trampoline in the
//!  (interposed)              place of each exported function
//!                                        │
//!  runtime calls an export ──► trampoline ──► bracket: read, clock ─► original ─► clock, read
//!                                                                                    │
//!                                          recorder/thread: this thread's page, counters
//!                                          process/part:    part of the profile, losses
//! ```
//!
//! The folders are layers. A file uses only its own layer and those above it in this table, which
//! `cargo xtask tidy` checks; each folder's `mod.rs` says what its files are for.
//!
//! | layer | what |
//! |---|---|
//! | [`os`] | what the agent asks of the operating system; panics on demand, for tests |
//! | [`state`] | whether something is being recorded, and what was asked for |
//! | [`process`] | what one process owns: its row of the loss table and its part of the profile |
//! | [`recorder`] | records calls of a thread: bracket, pages, collectors, calibration, fork |
//! | [`adapters`] | one folder for each kind of host: [`adapters::iree`], [`adapters::tvm`] and [`adapters::loops`] |
//! | [`entry`] | where the host enters: constructor, sessions, C interface, `exec` |
//!
//! Rules. The host never dies of us: we never call exit (except for the one variable of IREE's original
//! hook that asks for a list and nothing else) or abort, and no panic leaves an exported function.
//! After an error of our own the agent switches itself off and lets calls through. Nothing on a hot
//! path allocates, locks, prints or touches `errno`. In a process that shows no IREE executable
//! nothing happens; not even a file is opened. Needs Linux 4.14 or later (`MADV_WIPEONFORK`).
#![allow(rustdoc::private_intra_doc_links, reason = "the table above is for readers of the code")]

/// Names a place in the agent at which the test library can panic. In other builds it does nothing.
macro_rules! point {
    ($name:ident) => {
        #[cfg(feature = "inject-panics")]
        crate::os::inject::reach(crate::os::inject::Point::$name);
    };
}

mod adapters;
mod entry;
mod os;
mod process;
mod recorder;
mod state;

pub use adapters::iree::call_hook::{
    iree_hal_executable_library_call_hook_begin, iree_hal_executable_library_call_hook_end,
};
pub use adapters::iree::interpose::{dlsym, mmap, mmap64, mprotect};
pub use adapters::loops::register::{counterpoint_loops_register, counterpoint_loops_unregister};
pub use adapters::tvm::exports::{
    __tvm_ffi_counterpoint_calls, __tvm_ffi_counterpoint_collector,
    __tvm_ffi_counterpoint_collector_remove, __tvm_ffi_counterpoint_entry,
    __tvm_ffi_counterpoint_instrument, __tvm_ffi_counterpoint_parallel, __tvm_ffi_counterpoint_vm,
};
pub use entry::c_interface::counterpoint_agent;
pub use entry::exec::{
    execl, execle, execlp, execv, execve, execveat, execvp, execvpe, fexecve, posix_spawn,
    posix_spawnp,
};
pub use entry::sanitizer::__asan_default_options;
#[cfg(feature = "inject-panics")]
pub use os::inject::counterpoint_injection_points;
pub use recorder::fork::_Fork;
