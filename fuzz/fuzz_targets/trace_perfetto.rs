//! Writes arbitrary events in Perfetto's format and reads them again.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/trace/tests/support/mod.rs"]
mod support;

fuzz_target!(|data: &[u8]| support::perfetto(data));
