//! Collects facts about the machine: from system calls, from the processor, and from small files.

use std::ffi::{CStr, CString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::files::Machine;

/// Returns a soft limit from `/proc/self/limits`. `Some(None)` means that there is no limit.
pub(super) fn soft_limit(machine: &Machine, name: &str) -> Option<Option<u64>> {
    let text = machine.read("proc/self/limits").ok()?;
    let line = text.lines().find_map(|l| l.strip_prefix(name))?;
    match line.split_whitespace().next()? {
        "unlimited" => Some(None),
        number => Some(Some(number.parse().ok()?)),
    }
}

/// Returns the size of the file system at `path` and how much of it unprivileged users may still
/// fill, in bytes.
pub(super) fn file_system(path: &Path) -> Option<(u64, u64)> {
    let path = CString::new(path.as_os_str().as_bytes()).ok()?;
    let mut stat = std::mem::MaybeUninit::<libc::statvfs>::zeroed();
    // SAFETY: `path` is a C string, `stat` has room for the answer, and `statvfs` consists of
    // integers, for which zeros are values.
    let stat = unsafe {
        if libc::statvfs(path.as_ptr(), stat.as_mut_ptr()) != 0 {
            return None;
        }
        stat.assume_init()
    };
    let block = stat.f_frsize as u64;
    Some((stat.f_blocks as u64 * block, stat.f_bavail as u64 * block))
}

#[cfg(target_env = "gnu")]
pub(super) fn glibc() -> Option<String> {
    // SAFETY: `gnu_get_libc_version` returns a C string that lives for ever.
    let version = unsafe { CStr::from_ptr(libc::gnu_get_libc_version()) };
    Some(version.to_string_lossy().into_owned())
}

#[cfg(not(target_env = "gnu"))]
pub(super) fn glibc() -> Option<String> {
    let _: Option<&CStr> = None;
    None
}

/// Whether the time-stamp counter has the same rate in all power states: CPUID 8000_0007h, EDX bit
/// 8 (manuals of Intel and AMD). On AArch64, the counter always has the same rate.
#[cfg(target_arch = "x86_64")]
pub(super) fn invariant_counter() -> Option<bool> {
    if cpuid(0x8000_0000)[0] < 0x8000_0007 {
        return Some(false);
    }
    Some(cpuid(0x8000_0007)[3] >> 8 & 1 == 1)
}

#[cfg(target_arch = "aarch64")]
pub(super) fn invariant_counter() -> Option<bool> {
    Some(true)
}

/// Number of general-purpose hardware counters of a core, from CPUID: leaf 0Ah (Intel SDM),
/// 8000_0022h or the PerfCtrExtCore bit of 8000_0001h (AMD APM).
#[cfg(target_arch = "x86_64")]
pub(super) fn hardware_counters() -> Option<u32> {
    let [largest, b, c, d] = cpuid(0);
    let vendor: Vec<u8> = [b, d, c].iter().flat_map(|r| r.to_le_bytes()).collect();
    match vendor.as_slice() {
        b"GenuineIntel" if largest >= 0xa => {
            let [a, ..] = cpuid(0xa);
            (a & 0xff > 0).then_some(a >> 8 & 0xff)
        }
        b"AuthenticAMD" | b"HygonGenuine" => {
            let largest = cpuid(0x8000_0000)[0];
            if largest >= 0x8000_0022 && cpuid(0x8000_0022)[0] & 1 == 1 {
                return Some(cpuid(0x8000_0022)[1] & 0xf);
            }
            let core = largest >= 0x8000_0001 && cpuid(0x8000_0001)[2] >> 23 & 1 == 1;
            Some(if core { 6 } else { 4 })
        }
        _ => None,
    }
}

#[cfg(not(target_arch = "x86_64"))]
pub(super) fn hardware_counters() -> Option<u32> {
    None
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(super) fn invariant_counter() -> Option<bool> {
    None
}

#[cfg(target_arch = "x86_64")]
fn cpuid(leaf: u32) -> [u32; 4] {
    // `__cpuid` is safe since Rust 1.93, and was unsafe before.
    #[allow(unused_unsafe)]
    // SAFETY: every x86-64 processor has CPUID, and an unknown leaf does not fault.
    let r = unsafe { core::arch::x86_64::__cpuid(leaf) };
    [r.eax, r.ebx, r.ecx, r.edx]
}
