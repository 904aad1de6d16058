//! Loops whose instruction counts are known from their code, and random trip counts for them.

use std::arch::global_asm;

global_asm!(
    ".balign 64",
    ".global pmu_vm_spin",
    "pmu_vm_spin:",
    "  cbz x0, 2f",
    "1: subs x0, x0, #1",
    "  b.ne 1b",
    "2: ret",
    // The next loop has three instructions in each iteration.
    ".balign 64",
    ".global pmu_vm_spin3",
    "pmu_vm_spin3:",
    "  cbz x0, 2f",
    "1: nop",
    "  subs x0, x0, #1",
    "  b.ne 1b",
    "2: ret",
    // The next loop has 256 instructions in each iteration. The emulator translates no-operations
    // into nothing, so this loop can execute billions of instructions in a second.
    ".balign 64",
    ".global pmu_vm_run",
    "pmu_vm_run:",
    "  cbz x0, 2f",
    "1: .rept 254",
    "  nop",
    "  .endr",
    "  subs x0, x0, #1",
    "  b.ne 1b",
    "2: ret",
);

unsafe extern "C" {
    fn pmu_vm_spin(trips: u64);
    fn pmu_vm_spin3(trips: u64);
    fn pmu_vm_run(trips: u64);
}

/// Executes 2 · `trips` + 2 instructions, not counting the call itself.
#[inline(always)]
pub fn spin(trips: u64) {
    // SAFETY: the function only changes a register and the flags, which any call may change.
    unsafe { pmu_vm_spin(trips) }
}

/// Executes 3 · `trips` + 2 instructions, not counting the call itself.
#[inline(always)]
pub fn spin3(trips: u64) {
    // SAFETY: the function only changes a register and the flags, which any call may change.
    unsafe { pmu_vm_spin3(trips) }
}

/// Executes 256 · `trips` + 2 instructions, not counting the call itself.
#[inline(always)]
pub fn run(trips: u64) {
    // SAFETY: the function only changes a register and the flags, which any call may change.
    unsafe { pmu_vm_run(trips) }
}

/// A generator of random numbers (splitmix64), with a seed that the host chooses. The guest prints
/// the seed, so that the tests can be repeated with the same numbers.
pub struct Random(u64);

impl Random {
    /// Creates a generator whose sequence depends on the seed and on the name `test`.
    pub fn new(test: &str) -> Self {
        let mix = |state: u64, byte: u8| (state ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        Self(test.bytes().fold(crate::machine::seed(), mix))
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// Returns a number from 0 up to but not including `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}
