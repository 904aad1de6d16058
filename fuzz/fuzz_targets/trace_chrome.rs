//! Any bytes as a trace: read, written and read again.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/trace/tests/support/mod.rs"]
mod support;

fuzz_target!(|data: &[u8]| support::chrome(data));
