//! `libcounterpoint.so`: exports the agent's names and contains nothing else.
//!
//! The re-export makes rustc link the agent crate, including its `no_mangle` functions and its
//! `.init_array` entry. `exports.txt` lists the exported names.

pub use agent::*;
