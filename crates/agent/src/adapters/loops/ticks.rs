//! Reads the clock of instrumented code, which may be another clock than the one with which calls
//! are recorded.

#[inline(always)]
pub fn now() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the instruction reads a register that every x86-64 processor has. If the program has
    // forbidden this instruction, its instrumented code cannot run either.
    return unsafe { core::arch::x86_64::_rdtsc() };
    #[cfg(target_arch = "aarch64")]
    {
        let ticks: u64;
        // SAFETY: the instruction reads a register that Linux allows programs to read.
        unsafe {
            std::arch::asm!("mrs {}, cntvct_el0", out(reg) ticks, options(nomem, nostack));
        }
        ticks
    }
}

/// Returns the number of ticks per second on AArch64, and 0 (unknown) on x86-64.
pub fn per_second() -> u64 {
    #[cfg(target_arch = "x86_64")]
    return 0;
    #[cfg(target_arch = "aarch64")]
    {
        let rate: u64;
        // SAFETY: the instruction reads a register that Linux allows programs to read.
        unsafe {
            std::arch::asm!("mrs {}, cntfrq_el0", out(reg) rate, options(nomem, nostack));
        }
        rate
    }
}
