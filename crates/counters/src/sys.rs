//! Makes system calls without libc's wrappers, because errno belongs to the profiled program, and
//! because other tools that interpose `read` or `close` must not see the calls of this crate.
//!
//! Functions that return `isize` return the kernel's result: a value or a negated error number.

#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn syscall6(n: i64, args: [usize; 6]) -> isize {
    let [a, b, c, d, e, f] = args;
    let ret;
    // SAFETY: the registers follow the x86-64 system call convention (psABI, appendix A.2.1): the
    // number is in rax and the arguments are in rdi, rsi, rdx, r10, r8, r9; rcx and r11 are
    // overwritten; the stack is not used. The caller guarantees that the arguments are valid for
    // the call.
    unsafe {
        core::arch::asm!(
            "syscall",
            inlateout("rax") n => ret,
            in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d, in("r8") e, in("r9") f,
            lateout("rcx") _, lateout("r11") _,
            options(nostack)
        );
    }
    ret
}

#[cfg(target_arch = "aarch64")]
#[inline(always)]
unsafe fn syscall6(n: i64, args: [usize; 6]) -> isize {
    let [a, b, c, d, e, f] = args;
    let ret;
    // SAFETY: Linux on AArch64 takes the number in x8 and the arguments in x0 to x5, returns the
    // result in x0 and preserves everything else. The caller guarantees that the arguments are
    // valid.
    unsafe {
        core::arch::asm!(
            "svc 0",
            in("x8") n, inlateout("x0") a => ret,
            in("x1") b, in("x2") c, in("x3") d, in("x4") e, in("x5") f,
            options(nostack)
        );
    }
    ret
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
unsafe fn syscall6(_: i64, _: [usize; 6]) -> isize {
    -(libc::ENOSYS as isize)
}

/// Makes a system call with up to five arguments.
///
/// # Safety
/// The arguments must be valid for the call.
#[inline(always)]
unsafe fn syscall5(n: i64, a: usize, b: usize, c: usize, d: usize, e: usize) -> isize {
    // SAFETY: by contract, the arguments are valid for the call; the kernel ignores arguments that
    // a call does not have.
    unsafe { syscall6(n, [a, b, c, d, e, 0]) }
}

/// Calls `read(2)`.
///
/// # Safety
/// `buf` must be writable for `len` bytes.
#[inline(always)]
pub(crate) unsafe fn read(fd: i32, buf: *mut u8, len: usize) -> isize {
    // SAFETY: the kernel writes at most `len` bytes to `buf`, which by contract is writable for
    // that many.
    unsafe { syscall5(libc::SYS_read, fd as usize, buf as usize, len, 0, 0) }
}

pub(crate) fn close(fd: i32) -> isize {
    // SAFETY: closing touches none of our memory, and callers only close descriptors that they own.
    unsafe { syscall5(libc::SYS_close, fd as usize, 0, 0, 0, 0) }
}

/// Duplicates the descriptor to a number of at least `lowest`. The duplicate is closed on exec.
pub(crate) fn dup_above(fd: i32, lowest: i32) -> isize {
    let cmd = libc::F_DUPFD_CLOEXEC as usize;
    // SAFETY: this command of fcntl takes plain numbers.
    unsafe { syscall5(libc::SYS_fcntl, fd as usize, cmd, lowest as usize, 0, 0) }
}

/// Returns the kernel's id of the perf event of `fd`. An error number such as `ENOTTY` means
/// that `fd` is not a perf event.
pub(crate) fn perf_event_id(fd: i32) -> Result<u64, i32> {
    // `_IOR('$', 7, __u64 *)` in linux/perf_event.h on 64-bit machines.
    const PERF_EVENT_IOC_ID: usize = 0x8008_2407;
    let mut id = 0u64;
    let out = &raw mut id as usize;
    // SAFETY: PERF_EVENT_IOC_ID writes one u64 to its argument, which points to `id`. Another
    // driver could only write more if it reused perf's number together with perf's type letter.
    let ret = unsafe { syscall5(libc::SYS_ioctl, fd as usize, PERF_EVENT_IOC_ID, out, 0, 0) };
    if ret == 0 { Ok(id) } else { Err(-ret as i32) }
}

/// Makes the tracepoint counter `fd` count only events that meet the condition in `filter`. Returns
/// the error number if the kernel refuses the filter.
pub(crate) fn perf_event_filter(fd: i32, filter: &core::ffi::CStr) -> Option<i32> {
    // `_IOW('$', 6, char *)` in linux/perf_event.h on 64-bit machines.
    const PERF_EVENT_IOC_SET_FILTER: usize = 0x4008_2406;
    let text = filter.as_ptr() as usize;
    // SAFETY: PERF_EVENT_IOC_SET_FILTER reads the C string that its argument points to, and
    // `filter` lives during the call.
    let ret =
        unsafe { syscall5(libc::SYS_ioctl, fd as usize, PERF_EVENT_IOC_SET_FILTER, text, 0, 0) };
    (ret < 0).then_some(-ret as i32)
}

/// Stops and starts a group's leader, which makes the kernel schedule all counters of the group.
pub(crate) fn perf_event_restart(leader: i32) {
    const PERF_EVENT_IOC_ENABLE: usize = 0x2400;
    const PERF_EVENT_IOC_DISABLE: usize = 0x2401;
    for request in [PERF_EVENT_IOC_DISABLE, PERF_EVENT_IOC_ENABLE] {
        // SAFETY: both ioctls take no pointer.
        unsafe { syscall5(libc::SYS_ioctl, leader as usize, request, 0, 0, 0) };
    }
}

/// Calls `perf_event_open(2)`.
///
/// # Safety
/// `attr` must point to a `perf_event_attr` that is readable for as many bytes as its size field
/// states. That field must be writable, because with E2BIG the kernel writes its own size there.
pub(crate) unsafe fn perf_event_open(
    attr: *mut u8,
    pid: i32,
    cpu: i32,
    group_fd: i32,
    flags: usize,
) -> isize {
    let n = libc::SYS_perf_event_open;
    let [pid, cpu, group_fd] = [pid, cpu, group_fd].map(|x| x as isize as usize);
    // SAFETY: by contract, `attr` points to valid attributes; all other arguments are numbers.
    unsafe { syscall5(n, attr as usize, pid, cpu, group_fd, flags) }
}

/// Calls `mmap(2)` at an address that the kernel chooses.
fn mmap(bytes: usize, protection: i32, flags: i32, fd: i32) -> Result<*mut u8, i32> {
    let args = [0, bytes, protection as usize, flags as usize, fd as isize as usize, 0];
    // SAFETY: the address is 0, so the kernel chooses a free one, and the new mapping does not
    // affect existing memory.
    let at = unsafe { syscall6(libc::SYS_mmap, args) };
    // A result between −4095 and −1 is a negated error number, and no address.
    if (-4095..0).contains(&at) { Err(-at as i32) } else { Ok(at as usize as *mut u8) }
}

/// Maps the page in which the kernel publishes a counter's state, read-only. A ring buffer follows
/// the page if `bytes` is larger than a page.
pub(crate) fn map_counter(fd: i32, bytes: usize) -> Result<*mut u8, i32> {
    mmap(bytes, libc::PROT_READ, libc::MAP_SHARED, fd)
}

/// Maps zeroed private memory that is present from the start. A forked child finds it zeroed.
pub(crate) fn map_wiped_on_fork(bytes: usize) -> Result<*mut u8, i32> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE;
    let at = mmap(bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1)?;
    let advice = libc::MADV_WIPEONFORK as usize;
    // SAFETY: the range was mapped just now, and nobody else knows it.
    let ret = unsafe { syscall5(libc::SYS_madvise, at as usize, bytes, advice, 0, 0) };
    if ret < 0 {
        unmap(at, bytes);
        return Err(-ret as i32);
    }
    Ok(at)
}

pub(crate) fn unmap(at: *mut u8, bytes: usize) {
    // SAFETY: callers unmap only their own mappings and do not use them afterwards.
    unsafe { syscall5(libc::SYS_munmap, at as usize, bytes, 0, 0, 0) };
}

/// Returns the size of a page of memory in bytes.
pub(crate) fn page_size() -> usize {
    // SAFETY: `getauxval` reads a value that the kernel passed to the program, and takes no
    // pointer.
    usize::try_from(unsafe { libc::getauxval(libc::AT_PAGESZ) }).unwrap_or(4096).max(4096)
}

/// Returns the soft `RLIMIT_NOFILE`, or `None` if the call fails.
pub(crate) fn descriptor_limit() -> Option<u64> {
    let mut limit = [0u64; 2];
    let out = limit.as_mut_ptr() as usize;
    let resource = libc::RLIMIT_NOFILE as usize;
    // SAFETY: with a null new limit, prlimit64 only writes a `struct rlimit64` (two u64) to `out`.
    let ret = unsafe { syscall5(libc::SYS_prlimit64, 0, resource, 0, out, 0) };
    (ret == 0).then_some(limit[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errno_is_not_touched() {
        // SAFETY: `__errno_location` returns this thread's own `errno`.
        unsafe { *libc::__errno_location() = 4321 };
        // SAFETY: the kernel writes nothing, because the descriptor is not open.
        assert_eq!(unsafe { read(-1, core::ptr::null_mut(), 0) }, -(libc::EBADF as isize));
        assert_eq!(close(-1), -(libc::EBADF as isize));
        assert_eq!(perf_event_id(-1), Err(libc::EBADF));
        // SAFETY: `__errno_location` returns this thread's own `errno`.
        assert_eq!(unsafe { *libc::__errno_location() }, 4321);
    }

    #[test]
    fn limit_agrees_with_libc() {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: getrlimit writes to `limit`, which outlives the call.
        unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) };
        assert_eq!(descriptor_limit(), Some(limit.rlim_cur));
    }
}
