//! Reads arbitrary bytes as a page (the recorder's block of records), or as the records of a page,
//! with several layouts of counters.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| testkit::fuzz::page(data));
