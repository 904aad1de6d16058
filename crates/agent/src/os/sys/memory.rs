//! Maps memory.

use std::ffi::{c_long, c_void};

/// Maps private memory whose pages are present from the start.
pub fn map_present(bytes: usize) -> Result<*mut u8, i32> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE;
    syscall!(libc::SYS_mmap, 0, bytes, protection, flags, -1, 0).map(|at| at as *mut u8)
}

/// Maps private memory whose pages are allocated on first use.
pub fn map_zeros(bytes: usize) -> Result<*mut u8, i32> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    syscall!(libc::SYS_mmap, 0, bytes, protection, flags, -1, 0).map(|at| at as *mut u8)
}

/// Reserves addresses, over which other memory can be mapped later.
pub fn reserve(bytes: usize) -> Result<*mut u8, i32> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    syscall!(libc::SYS_mmap, 0, bytes, libc::PROT_NONE, flags, -1, 0).map(|at| at as *mut u8)
}

/// Moves a mapping to `to`. Replaces what is mapped there, in one step.
pub fn move_mapping(from: *mut u8, bytes: usize, to: *mut u8) -> Result<(), i32> {
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    syscall!(libc::SYS_mremap, from, bytes, bytes, flags, to).map(|_| ())
}

/// Maps read-only zeros at `address`. Replaces what is mapped there.
pub fn map_zeros_at(address: usize, bytes: usize) -> Result<(), i32> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    syscall!(libc::SYS_mmap, address, bytes, libc::PROT_READ, flags, -1, 0).map(|_| ())
}

/// Replaces memory of the agent, which begins at `address`, by new private memory.
pub fn map_private_at(address: usize, bytes: usize) -> Result<(), i32> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    syscall!(libc::SYS_mmap, address, bytes, protection, flags, -1, 0).map(|_| ())
}

pub fn map_stacks(bytes: usize) -> Result<*mut u8, i32> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_STACK;
    syscall!(libc::SYS_mmap, 0, bytes, protection, flags, -1, 0).map(|at| at as *mut u8)
}

/// Maps private memory that is zeroed in a forked child. Its pages are present from the start and
/// are not copied on write, so using them causes no page faults in this process, even after a fork.
pub fn map_wiped_on_fork(bytes: usize) -> Result<*mut u8, i32> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE;
    let at = syscall!(libc::SYS_mmap, 0, bytes, protection, flags, -1, 0)?;
    if let Err(errno) = syscall!(libc::SYS_madvise, at, bytes, libc::MADV_WIPEONFORK) {
        unmap(at as *mut u8, bytes);
        return Err(errno);
    }
    let _ = syscall!(libc::SYS_madvise, at, bytes, libc::MADV_NOHUGEPAGE);
    Ok(at as *mut u8)
}

/// Makes the pages of a mapped range present. Before Linux 5.14, returns `EINVAL`.
pub fn populate(at: usize, bytes: usize, for_writing: bool) -> Result<(), i32> {
    let advice = if for_writing { libc::MADV_POPULATE_WRITE } else { libc::MADV_POPULATE_READ };
    syscall!(libc::SYS_madvise, at, bytes, advice).map(|_| ())
}

/// Returns the size of the kernel's memory pages: 4 KiB on x86-64, up to 64 KiB on AArch64. The
/// protection of memory can only be changed for whole pages.
pub fn page_size() -> usize {
    // SAFETY: `getauxval` only reads the values that the kernel has given to the process.
    let size = unsafe { libc::getauxval(libc::AT_PAGESZ) } as usize;
    size.max(4096)
}

/// Returns the address of the memory page that contains `at`.
pub fn page_of(at: usize) -> usize {
    at & !(page_size() - 1)
}

pub fn unmap(at: *mut u8, bytes: usize) {
    let _ = syscall!(libc::SYS_munmap, at, bytes);
}

/// Changes the protection of memory. Does not call our own replacement of `mprotect`.
pub fn protect(at: usize, bytes: usize, protection: i32) -> Result<(), i32> {
    syscall!(libc::SYS_mprotect, at, bytes, protection).map(|_| ())
}

/// Behaves like libc's `mprotect`, also with respect to `errno`.
///
/// # Safety
/// The requirements of `mprotect(2)` apply: the owner of the memory must be prepared for the new
/// protection.
pub unsafe fn host_mprotect(at: *mut c_void, bytes: usize, protection: i32) -> i32 {
    // SAFETY: by contract, the arguments meet the requirements of `mprotect(2)`.
    unsafe { libc::syscall(libc::SYS_mprotect, at, bytes, protection) as i32 }
}

/// Behaves like libc's `mmap`, also with respect to `errno`.
///
/// # Safety
/// The requirements of `mmap(2)` apply.
pub unsafe fn host_mmap(
    address: *mut c_void,
    bytes: usize,
    protection: i32,
    flags: i32,
    fd: i32,
    offset: i64,
) -> *mut c_void {
    // SAFETY: by contract, the arguments meet the requirements of `mmap(2)`.
    let at =
        unsafe { libc::syscall(libc::SYS_mmap, address, bytes, protection, flags, fd, offset) };
    at as *mut c_void
}
