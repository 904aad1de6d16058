//! The IREE adapter: finds executable libraries of stock runtimes and brackets their functions.
//!
//! ```text
//!  system library    dlsym("iree_hal_executable_library_query") ──► our query, which forwards
//!  embedded ELF      mprotect(text, PROT_EXEC) ──► elf: walk to the header, find the query
//!                                                        │
//!                         library: copy names and metadata, once per distinct library
//!                         patch: exports.ptrs[i] = stub i
//! ```
//!
//! | module | purpose |
//! |---|---|
//! | [`interpose`] | exports `dlsym`, `mmap` and `mprotect` |
//! | [`description`] | what IREE says about itself in a profile |
//! | [`elf`] | finds the query function of an embedded ELF in an executable range |
//! | [`library`] | reads both versions of the interface without trusting it |
//! | [`loaded`] | finds the executables that are loaded when a session begins, for their loops |
//! | [`patch`] | registers a library: names it, and overwrites its export table |
//! | [`slots`] | maps each stub to its original function |
//! | [`stubs`] | contains the functions that replace exports and query functions |
//! | [`probe`] | brackets a dispatch function (the hot path), and calibrates that |
//! | [`call_hook`] | exports IREE's own call hook; records calls that are not patched |
//! | [`hook_variables`] | makes the original hook's variables a source of runs |

pub mod call_hook;
mod description;
pub mod elf;
mod hook_variables;
pub mod interpose;
mod library;
mod loaded;
mod patch;
mod probe;
mod slots;
mod stubs;

use crate::process::hosts::Described;
use crate::recorder::adapter::Adapter;

/// The description of IREE in a profile.
pub static HOST: Described = Described::new(description::HOST);

/// This adapter's interface to the recorder.
pub static ADAPTER: Adapter = Adapter {
    prepare: interpose::prepare,
    session_began: loaded::register,
    rehearse: probe::rehearse,
    run_source: Some(&hook_variables::SOURCE),
    ..Adapter::NOTHING
};
