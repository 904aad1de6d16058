//! Reads arbitrary bytes as the file of loops in a profile, and as pages with tables of loops.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| testkit::fuzz::loops(data));
