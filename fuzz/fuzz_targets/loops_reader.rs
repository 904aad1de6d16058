//! Reads arbitrary bytes as the file of loops in a profile, and as a sequence of this file's pages
//! with their tables.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| testkit::fuzz::loops(data));
