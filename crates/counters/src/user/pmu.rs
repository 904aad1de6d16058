//! The instructions that read a counter and the time. Tests replace only this part of user-space
//! reads.

pub(crate) trait Pmu {
    /// Reads the counter whose number is in the field `index` of a page (not 0). The page's width
    /// says how many low bits are valid. Returns `None` if this implementation cannot read the
    /// counter.
    fn counter(&self, index: u32) -> Option<u64>;
    /// Returns the time-stamp counter.
    fn ticks(&self) -> u64;
}

/// The real processor. Its `counter` may be called only with an `index` from a page of the calling
/// thread.
pub(crate) struct Hardware;

#[cfg(target_arch = "x86_64")]
impl Pmu for Hardware {
    #[inline(always)]
    fn counter(&self, index: u32) -> Option<u64> {
        let (low, high): (u32, u32);
        // SAFETY: the page named the counter, so the kernel allows `rdpmc` to this thread (Intel
        // SDM volume 2B, AMD APM volume 3: ecx selects, edx:eax returns, nothing else changes). The
        // instruction is not serialising; the kernel's example does not serialise either.
        unsafe {
            core::arch::asm!(
                "rdpmc",
                in("ecx") index.wrapping_sub(1),
                lateout("eax") low, lateout("edx") high,
                options(nomem, nostack, preserves_flags)
            );
        }
        Some(u64::from(high) << 32 | u64::from(low))
    }

    #[inline(always)]
    fn ticks(&self) -> u64 {
        // SAFETY: every x86-64 processor has the instruction `rdtsc`.
        unsafe { core::arch::x86_64::_rdtsc() }
    }
}

#[cfg(target_arch = "aarch64")]
macro_rules! system_register {
    ($name:literal) => {{
        let value: u64;
        // SAFETY: the macro is used for `cntvct_el0` and `tpidr_el0` only, and the kernel always
        // lets user mode read these registers.
        unsafe {
            core::arch::asm!(concat!("mrs {}, ", $name), out(reg) value,
                options(nomem, nostack, preserves_flags));
        }
        value
    }};
}

#[cfg(target_arch = "aarch64")]
impl Pmu for Hardware {
    /// The register number is part of the instruction (Arm ARM, D19), so there is one instruction
    /// for each counter. The code jumps into a table whose entries have two instructions; the first
    /// entry stands for no counter. A `match` would take four instructions more.
    ///
    /// The jump would fault in code that is guarded by BTI (branch target identification), but no
    /// stable Rust compiler generates such code.
    #[inline(always)]
    fn counter(&self, index: u32) -> Option<u64> {
        if index > 32 {
            return None;
        }
        let value: u64;
        // SAFETY: `index` is at most 32, so the jump goes to one of the 33 entries. The registers
        // are open to user mode, because a page of this thread names the counter.
        unsafe {
            core::arch::asm!(
                "adr {to}, 2f",
                "add {to}, {to}, {index}, lsl #3",
                "br {to}",
                "2: mov {value}, xzr", "b 3f",
                "mrs {value}, pmevcntr0_el0", "b 3f",
                "mrs {value}, pmevcntr1_el0", "b 3f",
                "mrs {value}, pmevcntr2_el0", "b 3f",
                "mrs {value}, pmevcntr3_el0", "b 3f",
                "mrs {value}, pmevcntr4_el0", "b 3f",
                "mrs {value}, pmevcntr5_el0", "b 3f",
                "mrs {value}, pmevcntr6_el0", "b 3f",
                "mrs {value}, pmevcntr7_el0", "b 3f",
                "mrs {value}, pmevcntr8_el0", "b 3f",
                "mrs {value}, pmevcntr9_el0", "b 3f",
                "mrs {value}, pmevcntr10_el0", "b 3f",
                "mrs {value}, pmevcntr11_el0", "b 3f",
                "mrs {value}, pmevcntr12_el0", "b 3f",
                "mrs {value}, pmevcntr13_el0", "b 3f",
                "mrs {value}, pmevcntr14_el0", "b 3f",
                "mrs {value}, pmevcntr15_el0", "b 3f",
                "mrs {value}, pmevcntr16_el0", "b 3f",
                "mrs {value}, pmevcntr17_el0", "b 3f",
                "mrs {value}, pmevcntr18_el0", "b 3f",
                "mrs {value}, pmevcntr19_el0", "b 3f",
                "mrs {value}, pmevcntr20_el0", "b 3f",
                "mrs {value}, pmevcntr21_el0", "b 3f",
                "mrs {value}, pmevcntr22_el0", "b 3f",
                "mrs {value}, pmevcntr23_el0", "b 3f",
                "mrs {value}, pmevcntr24_el0", "b 3f",
                "mrs {value}, pmevcntr25_el0", "b 3f",
                "mrs {value}, pmevcntr26_el0", "b 3f",
                "mrs {value}, pmevcntr27_el0", "b 3f",
                "mrs {value}, pmevcntr28_el0", "b 3f",
                "mrs {value}, pmevcntr29_el0", "b 3f",
                "mrs {value}, pmevcntr30_el0", "b 3f",
                "mrs {value}, pmccntr_el0",
                "3:",
                to = out(reg) _, index = in(reg) u64::from(index), value = lateout(reg) value,
                options(nomem, nostack, preserves_flags)
            );
        }
        Some(value)
    }

    #[inline(always)]
    fn ticks(&self) -> u64 {
        system_register!("cntvct_el0")
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
impl Pmu for Hardware {
    fn counter(&self, _: u32) -> Option<u64> {
        None
    }

    fn ticks(&self) -> u64 {
        0
    }
}

/// Returns the thread pointer, which differs between all living threads of a process; 0 on
/// architectures other than x86-64 and AArch64.
#[inline(always)]
pub(crate) fn thread_pointer() -> usize {
    #[cfg(target_arch = "x86_64")]
    {
        let at: usize;
        // SAFETY: by the x86-64 TLS ABI, the word at fs:0 contains its own address, which is the
        // thread pointer.
        unsafe {
            core::arch::asm!("mov {}, qword ptr fs:0", out(reg) at,
                options(nostack, readonly, preserves_flags));
        }
        at
    }
    #[cfg(target_arch = "aarch64")]
    {
        system_register!("tpidr_el0") as usize
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    0
}
