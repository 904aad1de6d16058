//! The IREE adapter: finds executable libraries of stock runtimes and brackets their functions.
//!
//! ```text
//!  system library    dlsym("iree_hal_executable_library_query") ──► our query, which forwards
//!  embedded ELF      mprotect(text, PROT_EXEC) ──► elf: walk to the header, find the query
//!                                                        │
//!                         library: copy names and metadata, once per distinct library
//!                         patch: exports.ptrs[i] = trampoline i
//! ```
//!
//! | module | what |
//! |---|---|
//! | [`interpose`] | the exported `dlsym`, `mmap` and `mprotect` |
//! | [`elf`] | from an executable range to the query function of an embedded ELF |
//! | [`library`] | reads both versions of the interface without trusting it |
//! | [`patch`] | takes a library in: names it, and overwrites its export table |
//! | [`slots`] | which original function belongs to which trampoline |
//! | [`trampolines`] | the functions that take the places of exports and of query functions |
//! | [`probe`] | the bracket around a dispatch function: the hot path; and its calibration |
//! | [`call_hook`] | what a runtime with IREE's own hook calls; records what is not patched |
//! | [`hook_variables`] | the original hook's variables, as a source of runs |

pub mod call_hook;
mod elf;
mod hook_variables;
pub mod interpose;
mod library;
mod patch;
mod probe;
mod slots;
mod trampolines;

use crate::recorder::adapter::Adapter;

/// What the recorder knows about this adapter.
pub static ADAPTER: Adapter = Adapter {
    prepare: interpose::prepare,
    constructed: || {},
    session_began: || {},
    at_exit: || {},
    rehearse: probe::rehearse,
    has_uncounted: false,
    run_source: Some(&hook_variables::SOURCE),
};
