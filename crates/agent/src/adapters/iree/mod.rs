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
//! | [`interpose`] | the exported `dlsym` and `mprotect` |
//! | [`elf`] | from an executable range to the query function of an embedded ELF |
//! | [`library`] | reads both versions of the interface without trusting it; the known libraries |
//! | [`patch`] | takes a library in: overwrites its export table |
//! | [`trampolines`] | the functions that take the exports' places, and which call what |
//! | [`call_hook`] | what a runtime with IREE's own hook calls; records what is not patched |

pub mod call_hook;
pub mod elf;
pub mod hook_variables;
pub mod interpose;
pub mod library;
pub mod patch;
pub mod trampolines;
