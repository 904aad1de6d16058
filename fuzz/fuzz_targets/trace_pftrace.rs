//! Reads arbitrary bytes as a trace in Perfetto's format.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/trace/tests/support/mod.rs"]
mod support;

fuzz_target!(|data: &[u8]| support::packets(data));
