//! `libcounterpoint.so`: nothing but the agent's exported names.
//!
//! Re-exporting the crate is what makes rustc link it, and with it its `no_mangle` functions
//! and its `.init_array` entry. The exported names are listed in `exports.txt` beside this
//! crate; `cargo xtask tidy` compares that list with the built file.

pub use agent::*;
