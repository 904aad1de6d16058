//! Reads arbitrary bytes as a file of loops, and as a run of pages with their tables.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| testkit::fuzz::loops(data));
