//! `libcounterpoint.so`: turns the crate `agent` into a shared library, and adds nothing to it.
//!
//! The re-export makes rustc link the agent crate, including its `no_mangle` functions and its
//! `.init_array` entry. `exports.txt` lists the exported names.

pub use agent::*;
