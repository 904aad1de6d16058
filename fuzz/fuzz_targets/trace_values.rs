//! Writes arguments of every kind as Chrome JSON.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/trace/tests/support/mod.rs"]
mod support;

fuzz_target!(|data: &[u8]| support::values(data));
