//! Reads arbitrary bytes as a profile's file of loops, and as pages (the recorder's blocks of
//! memory) with tables of loops.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| testkit::fuzz::loops(data));
