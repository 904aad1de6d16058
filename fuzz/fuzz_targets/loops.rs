//! Mutates texts of LLVM IR, reads them and instruments them.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[expect(dead_code, reason = "the texts are for the test that mutates them")]
#[path = "../../crates/ir/tests/support/mutate.rs"]
mod mutate;

fuzz_target!(|data: &[u8]| {
    let choice =
        data.iter().take(64).fold(0_u64, |sum, byte| sum.wrapping_mul(31) + u64::from(*byte));
    mutate::check(data, choice);
});
