//! Maps only the start of the pool, which contains the run's row (for losses outside of recorded
//! processes). This is for code that has not mapped the pool.

use std::ffi::CStr;

use super::{
    CLAIMS_OFFSET, Header, Layout, MAGIC, RUN_ROW_OFFSET, Row, TruncationGuard, VERSION, close_raw,
    errno, open_raw,
};

/// Calls `body` with the run's row of the pool at `path`. The function is for processes that do not
/// record, and for code between `vfork` and `exec`. The function does not allocate or lock, and
/// leaves nothing mapped.
///
/// # Errors
/// Returns the `errno` of `open` or `mmap`, or `EINVAL` for a file that is not a pool of this
/// version.
pub fn with_run_row(path: &CStr, body: impl FnOnce(&Row)) -> Result<(), i32> {
    with_run_row_and(path, |_| Ok(()), body)
}

/// Does what [`with_run_row`] does, for a process of Counterpoint that is not recorded itself. If
/// the recorded program truncates the pool meanwhile, the changes of `body` are lost.
///
/// # Errors
/// Same as [`with_run_row`], or as [`TruncationGuard::new`].
pub fn with_guarded_run_row(path: &CStr, body: impl FnOnce(&Row)) -> Result<(), i32> {
    // SAFETY: the range is a mapping that is unmapped only after the guard was dropped.
    with_run_row_and(path, |page| unsafe { TruncationGuard::new(page..page + CLAIMS_OFFSET) }, body)
}

fn with_run_row_and<G>(
    path: &CStr,
    guard: impl FnOnce(usize) -> Result<G, i32>,
    body: impl FnOnce(&Row),
) -> Result<(), i32> {
    let fd = open_raw(path)?;
    let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
    let number = |n: libc::c_int| libc::c_long::from(n);
    // The agent replaces the function `mmap`, so this is a raw system call.
    // SAFETY: the address is 0, so the kernel chooses a free one. Nothing touches the mapping
    // before the file's length is checked.
    let (length, base) = unsafe {
        let (zero, end) = (number(0), number(libc::SEEK_END));
        let length = libc::syscall(libc::SYS_lseek, number(fd), zero, end);
        let (bytes, prot, flags) = (CLAIMS_OFFSET as libc::c_long, number(prot), number(flags));
        (length, libc::syscall(libc::SYS_mmap, zero, bytes, prot, flags, number(fd), zero))
    };
    close_raw(fd);
    if base < 0 {
        return Err(errno());
    }
    let page = base as *mut u8;
    let guarded = guard(page as usize);
    // SAFETY: `page` was mapped above. The file is a whole pool, whose header consists of integers.
    let known = u64::try_from(length).ok().and_then(Layout::of_size).is_some()
        && guarded.is_ok()
        && unsafe {
            let header = &*page.cast::<Header>();
            header.magic == MAGIC && header.version == VERSION
        };
    if known {
        // SAFETY: the row is inside of the mapping and aligned, and consists of integers.
        body(unsafe { &*page.add(RUN_ROW_OFFSET).cast::<Row>() });
    }
    let guarded = guarded.map(drop);
    // SAFETY: `base` was mapped above with this length, and no reference to it survives.
    unsafe { libc::syscall(libc::SYS_munmap, base, CLAIMS_OFFSET) };
    if known { Ok(()) } else { guarded.and(Err(libc::EINVAL)) }
}
