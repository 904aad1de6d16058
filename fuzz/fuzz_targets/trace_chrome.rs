//! Reads arbitrary bytes as a Chrome trace, writes the trace that was read, and reads that again.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/trace/tests/support/mod.rs"]
mod support;

fuzz_target!(|data: &[u8]| support::chrome(data));
