//! Contains the loops of floating-point instructions.
//!
//! A loop has 12 chains (24 on AArch64), each of which waits only for the result of its own
//! previous instruction. An instruction takes about 4 cycles, and a core begins at most 2
//! instructions in each cycle (4 on AArch64), so the core need not wait. No number in the loops
//! becomes subnormal, infinite or not a number.

#[derive(Clone, Copy, Debug)]
pub struct Loop {
    pub bits: u32,
    pub scalar: bool,
    pub number: u32,
    pub fused: bool,
    /// Number of operations in one iteration.
    work: u32,
    body: fn(u64, &Operands),
}

/// Iterations in one step, which takes some microseconds.
const ITERATIONS: u64 = 4_000;

impl Loop {
    /// Does one step, and returns the number of its operations.
    pub fn run(&self) -> f64 {
        (self.body)(ITERATIONS, &OPERANDS);
        ITERATIONS as f64 * f64::from(self.work)
    }
}

/// The two operands of the instructions, repeated for each element of the widest vector.
#[repr(C, align(64))]
struct Operands {
    /// 1.0, then 0.5.
    singles: [[f32; 16]; 2],
    /// 1.0, then 0.5.
    doubles: [[f64; 8]; 2],
}

static OPERANDS: Operands =
    Operands { singles: [[1.0; 16], [0.5; 16]], doubles: [[1.0; 8], [0.5; 8]] };

/// Returns the loops that this processor can run, from slow to fast.
pub fn loops() -> Vec<Loop> {
    arch::loops()
}

#[cfg(target_arch = "x86_64")]
mod arch {
    use std::arch::asm;

    use super::{Loop, Operands};

    /// Makes a loop with 12 chains in registers 0 to 11, and operands in 14 and 15. The instruction
    /// `$load` loads the operands from the field `$of` of [`Operands`]. `$r` begins the names of
    /// the registers. `$form` says which operands the instructions have.
    macro_rules! chains {
        ($name:ident, $of:ident, $load:literal, $r:literal, $form:ident, $even:literal, $odd:literal, $end:literal) => {
            fn $name(iterations: u64, operands: &Operands) {
                // SAFETY: the loop reads two operands of at most 64 bytes each, writes no memory,
                // and names every register that it changes. `loops` lists this loop only if the
                // processor knows the loop's instructions.
                unsafe {
                    asm!(
                        chains!(loads $load, $r),
                        ".p2align 4",
                        "2:",
                        chains!(step $r, $form, $even, $odd),
                        chains!(step $r, $form, $even, $odd),
                        "dec {n}",
                        "jnz 2b",
                        $end,
                        n = inout(reg) iterations => _,
                        first = in(reg) &operands.$of[0],
                        second = in(reg) &operands.$of[1],
                        out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _,
                        out("xmm4") _, out("xmm5") _, out("xmm6") _, out("xmm7") _,
                        out("xmm8") _, out("xmm9") _, out("xmm10") _, out("xmm11") _,
                        out("xmm14") _, out("xmm15") _,
                        options(nostack, readonly),
                    );
                }
            }
        };
        (loads $load:literal, $r:literal) => {
            concat!(
                $load, " ", $r, "14, [{first}]\n", $load, " ", $r, "15, [{second}]\n",
                $load, " ", $r, "0, [{first}]\n", $load, " ", $r, "1, [{first}]\n",
                $load, " ", $r, "2, [{first}]\n", $load, " ", $r, "3, [{first}]\n",
                $load, " ", $r, "4, [{first}]\n", $load, " ", $r, "5, [{first}]\n",
                $load, " ", $r, "6, [{first}]\n", $load, " ", $r, "7, [{first}]\n",
                $load, " ", $r, "8, [{first}]\n", $load, " ", $r, "9, [{first}]\n",
                $load, " ", $r, "10, [{first}]\n", $load, " ", $r, "11, [{first}]",
            )
        };
        (step $r:literal, $form:ident, $even:literal, $odd:literal) => {
            concat!(
                chains!($form $r, "0", $even, "14"), chains!($form $r, "1", $odd, "15"),
                chains!($form $r, "2", $even, "14"), chains!($form $r, "3", $odd, "15"),
                chains!($form $r, "4", $even, "14"), chains!($form $r, "5", $odd, "15"),
                chains!($form $r, "6", $even, "14"), chains!($form $r, "7", $odd, "15"),
                chains!($form $r, "8", $even, "14"), chains!($form $r, "9", $odd, "15"),
                chains!($form $r, "10", $even, "14"), chains!($form $r, "11", $odd, "15"),
            )
        };
        // Each instruction adds the product of both operands to its chain.
        (fused $r:literal, $n:literal, $i:literal, $k:literal) => {
            concat!($i, " ", $r, $n, ", ", $r, "14, ", $r, "15\n")
        };
        // Even chains are multiplied by register 14, and register 15 is added to odd chains.
        (vex $r:literal, $n:literal, $i:literal, $k:literal) => {
            concat!($i, " ", $r, $n, ", ", $r, $n, ", ", $r, $k, "\n")
        };
        (sse $r:literal, $n:literal, $i:literal, $k:literal) => {
            concat!($i, " ", $r, $n, ", ", $r, $k, "\n")
        };
    }

    chains!(sse_ss, singles, "movups", "xmm", sse, "mulss", "addss", "");
    chains!(sse_sd, doubles, "movupd", "xmm", sse, "mulsd", "addsd", "");
    chains!(sse_ps, singles, "movups", "xmm", sse, "mulps", "addps", "");
    chains!(sse_pd, doubles, "movupd", "xmm", sse, "mulpd", "addpd", "");
    chains!(avx_ps, singles, "vmovups", "ymm", vex, "vmulps", "vaddps", "vzeroupper");
    chains!(avx_pd, doubles, "vmovupd", "ymm", vex, "vmulpd", "vaddpd", "vzeroupper");
    macro_rules! fused {
        ($name:ident, $of:ident, $r:literal, $i:literal) => {
            chains!($name, $of, "vmovups", $r, fused, $i, $i, "vzeroupper");
        };
    }

    fused!(fma_ss, singles, "xmm", "vfmadd231ss");
    fused!(fma_sd, doubles, "xmm", "vfmadd231sd");
    fused!(fma_128_ps, singles, "xmm", "vfmadd231ps");
    fused!(fma_128_pd, doubles, "xmm", "vfmadd231pd");
    fused!(fma_256_ps, singles, "ymm", "vfmadd231ps");
    fused!(fma_256_pd, doubles, "ymm", "vfmadd231pd");
    fused!(fma_512_ps, singles, "zmm", "vfmadd231ps");
    fused!(fma_512_pd, doubles, "zmm", "vfmadd231pd");

    /// Describes a loop with 24 instructions in an iteration.
    fn of(bits: u32, number: u32, fused: bool, body: fn(u64, &Operands)) -> Loop {
        let scalar = bits == number;
        let each = if fused { 2 } else { 1 };
        Loop { bits, scalar, number, fused, work: 24 * each * bits / number, body }
    }

    pub fn loops() -> Vec<Loop> {
        let fused = is_x86_feature_detected!("fma");
        let mut all = match fused {
            true => vec![
                of(32, 32, true, fma_ss),
                of(64, 64, true, fma_sd),
                of(128, 32, true, fma_128_ps),
                of(128, 64, true, fma_128_pd),
                of(256, 32, true, fma_256_ps),
                of(256, 64, true, fma_256_pd),
            ],
            false => vec![
                of(32, 32, false, sse_ss),
                of(64, 64, false, sse_sd),
                of(128, 32, false, sse_ps),
                of(128, 64, false, sse_pd),
            ],
        };
        if !fused && is_x86_feature_detected!("avx") {
            all.extend([of(256, 32, false, avx_ps), of(256, 64, false, avx_pd)]);
        }
        if is_x86_feature_detected!("avx512f") {
            all.extend([of(512, 32, true, fma_512_ps), of(512, 64, true, fma_512_pd)]);
        }
        all
    }
}

#[cfg(target_arch = "aarch64")]
mod arch {
    use std::arch::asm;

    use super::{Loop, Operands};

    /// Makes a loop with 24 chains in registers 0 to 23, and operands in 30 and 31.
    macro_rules! chains {
        ($name:ident, $of:ident, $instruction:literal, $r:literal, $shape:literal, $adds:ident) => {
            fn $name(iterations: u64, operands: &Operands) {
                // SAFETY: the loop reads two operands of 16 bytes each, writes no memory, and names
                // every register that it changes. Every AArch64 processor with Linux has these
                // instructions.
                unsafe {
                    asm!(
                        "ldr q30, [{first}]",
                        "ldr q31, [{second}]",
                        ".p2align 4",
                        "2:",
                        chains!($adds $instruction, $r, $shape,
                            0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23),
                        "subs {n}, {n}, #1",
                        "b.ne 2b",
                        n = inout(reg) iterations => _,
                        first = in(reg) &operands.$of[0],
                        second = in(reg) &operands.$of[1],
                        inout("v0") 0f64 => _, inout("v1") 0f64 => _, inout("v2") 0f64 => _,
                        inout("v3") 0f64 => _, inout("v4") 0f64 => _, inout("v5") 0f64 => _,
                        inout("v6") 0f64 => _, inout("v7") 0f64 => _, inout("v8") 0f64 => _,
                        inout("v9") 0f64 => _, inout("v10") 0f64 => _, inout("v11") 0f64 => _,
                        inout("v12") 0f64 => _, inout("v13") 0f64 => _, inout("v14") 0f64 => _,
                        inout("v15") 0f64 => _, inout("v16") 0f64 => _, inout("v17") 0f64 => _,
                        inout("v18") 0f64 => _, inout("v19") 0f64 => _, inout("v20") 0f64 => _,
                        inout("v21") 0f64 => _, inout("v22") 0f64 => _, inout("v23") 0f64 => _,
                        out("v30") _, out("v31") _,
                        options(nostack, readonly),
                    );
                }
            }
        };
        // `fmla` adds to its first register; `fmadd` names the register to which it adds.
        (itself $i:literal, $r:literal, $s:literal, $($n:literal)*) => {
            concat!($($i, " ", $r, $n, $s, ", ", $r, "30", $s, ", ", $r, "31", $s, "\n"),*)
        };
        (named $i:literal, $r:literal, $s:literal, $($n:literal)*) => {
            concat!($($i, " ", $r, $n, ", ", $r, "30, ", $r, "31, ", $r, $n, "\n"),*)
        };
    }

    chains!(scalar_s, singles, "fmadd", "s", "", named);
    chains!(scalar_d, doubles, "fmadd", "d", "", named);
    chains!(vector_s, singles, "fmla", "v", ".4s", itself);
    chains!(vector_d, doubles, "fmla", "v", ".2d", itself);

    pub fn loops() -> Vec<Loop> {
        let of = |bits: u32, number: u32, body| {
            let scalar = bits == number;
            Loop { bits, scalar, number, fused: true, work: 24 * 2 * bits / number, body }
        };
        vec![
            of(32, 32, scalar_s),
            of(64, 64, scalar_d),
            of(128, 32, vector_s),
            of(128, 64, vector_d),
        ]
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
mod arch {
    pub fn loops() -> Vec<super::Loop> {
        Vec::new()
    }
}
