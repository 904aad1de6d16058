//! Reads arbitrary bytes as a profile's file of loops, and as a sequence of its pages with their
//! tables.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| testkit::fuzz::loops(data));
