//! The IREE adapter: finds the executable libraries (compiled code) that unmodified IREE runtimes
//! load, and records the calls of their functions.
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
//! | [`description`] | describes IREE for a profile |
//! | [`elf`] | finds the query function of an embedded ELF in an executable range |
//! | [`library`] | reads and checks a library's tables, in both versions of the interface |
//! | [`loaded`] | finds the executables that are loaded when a session begins, for their loops |
//! | [`patch`] | registers a library: stores its names, and puts stubs into its export table |
//! | [`slots`] | maps each stub to its original function |
//! | [`stubs`] | contains the functions that replace exports and query functions |
//! | [`probe`] | the code around a call of a dispatch function (the hot path); its calibration |
//! | [`call_hook`] | exports IREE's own call hook; records calls that have no stub |
//! | [`hook_variables`] | makes a run file (settings) if variables of IREE's original hook are set |

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

pub static HOST: Described = Described::new(description::HOST);

pub static ADAPTER: Adapter = Adapter {
    prepare: interpose::prepare,
    session_began: loaded::register,
    rehearse: probe::rehearse,
    run_source: Some(&hook_variables::SOURCE),
    ..Adapter::NOTHING
};
