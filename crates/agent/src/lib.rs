//! The part of Counterpoint that runs inside other people's processes. It is loaded into the host
//! (the profiled program), usually by `LD_PRELOAD`. It must never harm the host.
//!
//! ```text
//!  mmap, mprotect, dlsym ──► adapters/iree: find the executable library, put a stub in the
//!  (interposed)              place of each exported function
//!                                        │
//!  runtime calls an export ──► stub ──► bracket: read, clock ─► original ─► clock, read
//!                                                                              │
//!                                          recorder/thread: this thread's page, counters
//!                                          process/part:    part of the profile, losses
//! ```
//!
//! The folders are layers. A file uses only its own layer and the layers above it in this table;
//! `cargo xtask tidy` checks this. Each folder's `mod.rs` lists its files.
//!
//! | layer | purpose |
//! |---|---|
//! | [`os`] | wraps the operating system; injects panics in test builds |
//! | [`state`] | knows whether something is being recorded, and what was requested |
//! | [`process`] | manages a process's row of the loss table and its part of the profile |
//! | [`recorder`] | records calls of a thread: bracket, pages, collectors, calibration, fork |
//! | [`adapters`] | one folder for each kind of host: [`adapters::iree`], [`adapters::tvm`], [`adapters::torch`], [`adapters::loops`], and [`adapters::announced`] for hosts that announce their calls; [`adapters::plugins`] for profiler plugins; `op_calls` for what several adapters share |
//! | [`entry`] | contains the host's entry points: constructor, sessions, C interface, `exec` |
//!
//! Rules:
//!
//! - Panics do not leave the agent's exported functions.
//! - The agent ends the host's process only in three cases:
//!   - A variable of IREE's original hook asks only for the list of counters, and the list was
//!     printed.
//!   - All of the program's own threads have ended, and only threads of plugins are left.
//!   - A plugin has crashed at the program's end, and the program hangs. The agent then ends the
//!     process by the signal of the crash.
//! - After an internal error, the agent switches itself off and lets calls pass through.
//! - Code on a hot path does not allocate, lock, print or change `errno`.
//! - In a process in which there is nothing to record, the agent opens no file after its
//!   constructor, unless the run asks for profiler plugins.
//! - The agent needs Linux 4.14 or later (`MADV_WIPEONFORK`).
#![allow(rustdoc::private_intra_doc_links, reason = "the table above is for readers of the code")]

/// Marks a point in the agent at which a library that is built for tests can panic or raise a
/// signal. Expands to nothing in other builds.
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
pub use adapters::torch::ops::counterpoint_torch_ops;
pub use adapters::torch::plugins::counterpoint_torch_plugins;
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
pub use entry::namespaces::{setns, unshare};
pub use entry::sanitizer::__asan_default_options;
#[cfg(feature = "inject-panics")]
pub use os::inject::counterpoint_injection_points;
pub use process::program::__libc_start_main;
pub use recorder::handler_fork::_Fork;
