//! Reads arbitrary bytes as a trace in Perfetto's format, writes the result as Chrome JSON, and
//! reads that again.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/trace/tests/support/mod.rs"]
mod support;

fuzz_target!(|data: &[u8]| support::packets(data));
