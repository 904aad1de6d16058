//! Counterpoint inside a process that is not ours: preloaded, silent, and harmless.
//!
//! ```text
//!  mmap, mprotect, dlsym ──► iree: find the executable library, put a trampoline in the place of each
//!  (interposed)                    exported function
//!                                        │
//!  runtime calls an export ──► trampoline ──► probe: read, clock ─► original ─► clock, read
//!                                                                                   │
//!                                                             thread: this thread's page, counters
//!                                                             process: part of the profile, losses
//! ```
//!
//! | module | what |
//! |---|---|
//! | [`run`] | start-up: the run file, read at the first executable; nothing happens before |
//! | [`hook`] | the original hook's variables instead of a run file; its report at the end |
//! | [`helper`] | runs a program so that the host cannot notice |
//! | `sanitizer` | what AddressSanitizer asks of the program that it is in |
//! | [`session`] | recording that begins and ends within the process |
//! | [`process`] | what one process owns: its row of the loss table, its part; renewed after fork |
//! | [`thread`] | what one thread owns: page, counters; made at its first call, given back at its exit |
//! | [`probe`] | the bracket around a call: the hot path |
//! | [`calibrate`] | what the bracket costs when there is nothing in it |
//! | `inject` | panics on demand, in a library built for tests |
//! | [`iree`] | the adapter: interposed functions, ELF walk, export tables, trampolines |
//! | [`tvm`] | the adapter for TVM's virtual machine: instrument, entry functions, regions |
//! | [`exec`] | programs that the host starts: which of them can carry us |
//! | [`fork`] | a fork by a signal handler that has interrupted the recorder |
//! | `kept` | memory for as long as the process lives, found by LeakSanitizer |
//! | [`table`] | the exported table that names the one agent of a process |
//! | [`sys`] | system calls that leave `errno` alone, memory reads that cannot fault |
//!
//! Rules. The host never dies of us: no exit (but for the one variable of the original hook that
//! asks for a list and nothing else), no abort, no panic that leaves an exported function; an error
//! of our own switches the agent off and lets calls through. Nothing on a hot path allocates,
//! locks, prints or touches `errno`. Nothing happens, not even a file opened, in a process that
//! shows no IREE executable. Linux 4.14 or later (`MADV_WIPEONFORK`).
#![allow(rustdoc::private_intra_doc_links, reason = "the table above is for readers of the code")]

/// Names a place in the agent at which the test library can panic. Nothing in any other build.
macro_rules! point {
    ($name:ident) => {
        #[cfg(feature = "inject-panics")]
        crate::inject::reach(crate::inject::Point::$name);
    };
}

mod calibrate;
mod exec;
mod fork;
mod helper;
mod hook;
#[cfg(feature = "inject-panics")]
mod inject;
mod iree;
mod kept;
mod probe;
mod process;
mod run;
mod sanitizer;
mod session;
mod sys;
mod table;
mod thread;
mod tvm;

pub use exec::{
    execl, execle, execlp, execv, execve, execveat, execvp, execvpe, fexecve, posix_spawn,
    posix_spawnp,
};
pub use fork::_Fork;
#[cfg(feature = "inject-panics")]
pub use inject::counterpoint_injection_points;
pub use iree::call_hook::{
    iree_hal_executable_library_call_hook_begin, iree_hal_executable_library_call_hook_end,
};
pub use iree::interpose::{dlsym, mmap, mmap64, mprotect};
pub use sanitizer::__asan_default_options;
pub use table::counterpoint_agent;
pub use tvm::exports::{
    __tvm_ffi_counterpoint_calls, __tvm_ffi_counterpoint_collector,
    __tvm_ffi_counterpoint_collector_remove, __tvm_ffi_counterpoint_entry,
    __tvm_ffi_counterpoint_instrument, __tvm_ffi_counterpoint_parallel, __tvm_ffi_counterpoint_vm,
};
