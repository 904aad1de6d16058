//! Mutates texts of MLIR's llvm dialect, reads them and instruments them.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[expect(dead_code, reason = "the text is for the test that mutates it")]
#[path = "../../crates/ir/tests/support/mutate_mlir.rs"]
mod mutate;

fuzz_target!(|data: &[u8]| {
    let choice =
        data.iter().take(64).fold(0_u64, |sum, byte| sum.wrapping_mul(31) + u64::from(*byte));
    mutate::check(data, choice);
});
