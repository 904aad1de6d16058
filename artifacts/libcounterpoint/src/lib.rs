//! `libcounterpoint.so`: exports the agent's names and contains nothing else.
//!
//! The re-export makes rustc link the agent crate, including its `no_mangle` functions and its
//! `.init_array` entry. `exports.txt` in this crate's folder lists the exported names.
//! `cargo xtask tidy` compares the list with the built file.

pub use agent::*;
