//! Reads arbitrary bytes as an ELF file with machine code, and as machine code that was copied out
//! of a process.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/code/tests/support/mutate.rs"]
mod mutate;

fuzz_target!(|data: &[u8]| {
    let choice =
        data.iter().take(64).fold(0_u64, |sum, byte| sum.wrapping_mul(31) + u64::from(*byte));
    mutate::check(data, choice);
});
