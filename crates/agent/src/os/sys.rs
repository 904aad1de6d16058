//! System calls for injected code. They are not cancellation points, leave `errno` alone, keep no
//! descriptor open, and read memory without trusting addresses.
//!
//! above 600 lines: all of them are short, and only this file has the macro that makes them.

use std::ffi::{CStr, CString, c_long, c_void};
use std::os::unix::ffi::OsStringExt;

/// Restores the thread's `errno` when dropped. Every function that the host calls and that leads to
/// slow code holds one.
pub struct ErrnoGuard(i32);

impl ErrnoGuard {
    /// Saves the current `errno`.
    pub fn new() -> Self {
        Self(record::pool::errno())
    }
}

impl Default for ErrnoGuard {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for ErrnoGuard {
    fn drop(&mut self) {
        set_errno(self.0);
    }
}

/// Returns whether this process has more rights than the user who started it: set-user-id,
/// set-group-id, file capabilities, or a security module's decision (`AT_SECURE` of getauxval(3)).
pub fn has_more_rights() -> bool {
    // SAFETY: reads a value that the kernel passed to the program; no memory of ours is involved.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// Sets the calling thread's `errno`.
pub fn set_errno(value: i32) {
    // SAFETY: glibc returns the address of the calling thread's errno, which is always valid.
    unsafe { *libc::__errno_location() = value }
}

/// Makes a system call through `libc::syscall`, which is not a cancellation point. `open` and
/// `write` are cancellation points, and a host that cancels its threads must not unwind through our
/// frames.
macro_rules! syscall {
    ($number:expr $(, $argument:expr)*) => {{
        // SAFETY: each use passes the arguments that its system call documents; pointers outlive
        // the call.
        let result = unsafe { libc::syscall($number $(, $argument as c_long)*) };
        if result < 0 { Err(record::pool::errno()) } else { Ok(result) }
    }};
}

/// Blocks signals on this thread until dropped, so that none of the host's handlers runs. Used for
/// work that a forked child must not find half done. Signals caused by the thread's own
/// instructions stay unblocked. So does glibc's signal for `setuid` and its relatives
/// (`SIGSETXID`): they wait until every thread has handled it.
pub struct SignalsBlocked(u64);

/// glibc's own signals: the first asks a thread to end (`pthread_cancel`), the second one sets the
/// ids of a thread. glibc does not let anybody block them; a bare system call does.
const SIGCANCEL: i32 = 32;
const SIGSETXID: i32 = 33;

impl SignalsBlocked {
    /// Blocks the signals. A request to cancel the thread waits as well.
    pub fn new() -> Self {
        Self::except(&[SIGSETXID])
    }

    /// For starting threads, which inherit what is blocked: they get none of the program's signals,
    /// and all of glibc's.
    pub fn for_new_threads() -> Self {
        Self::except(&[SIGSETXID, SIGCANCEL])
    }

    fn except(open: &[i32]) -> Self {
        const OWN: [i32; 7] = [
            libc::SIGSEGV,
            libc::SIGBUS,
            libc::SIGILL,
            libc::SIGFPE,
            libc::SIGTRAP,
            libc::SIGSYS,
            libc::SIGABRT,
        ];
        let open = OWN.iter().chain(open);
        let all = open.fold(u64::MAX, |mask, signal| mask & !(1 << (signal - 1)));
        let mut before = 0u64;
        let (set, old) = (&raw const all, &raw mut before);
        let _ = syscall!(libc::SYS_rt_sigprocmask, libc::SIG_BLOCK, set, old, 8);
        Self(before)
    }
}

impl Drop for SignalsBlocked {
    fn drop(&mut self) {
        let set = &raw const self.0;
        let _ = syscall!(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, set, 0, 8);
    }
}

/// An open file that is closed when dropped. It is meant for the length of one operation only.
pub struct Descriptor(i32);

impl Descriptor {
    /// Opens the file at `path`.
    pub fn open(path: &CStr, flags: i32) -> Result<Self, i32> {
        let at = libc::AT_FDCWD;
        let fd = syscall!(libc::SYS_openat, at, path.as_ptr(), flags | libc::O_CLOEXEC, 0o600)?;
        Ok(Self(fd as i32))
    }

    /// Returns the number of the descriptor.
    pub fn number(&self) -> i32 {
        self.0
    }

    /// Reads from `offset`. Returns the number of bytes read; 0 on failure.
    pub fn read_at(&self, offset: u64, to: &mut [u8]) -> usize {
        let read = syscall!(libc::SYS_pread64, self.0, to.as_mut_ptr(), to.len(), offset);
        read.map_or(0, |count| count as usize)
    }

    /// Returns the size of the file, and when it was modified last, in ns since 1970; zeros on failure.
    pub fn size_and_time(&self) -> (u64, u64) {
        // SAFETY: integers, for which zeros are values.
        let mut found: libc::stat = unsafe { std::mem::zeroed() };
        match syscall!(libc::SYS_fstat, self.0, &raw mut found) {
            Ok(_) => {
                let ns = found.st_mtime as u64 * 1_000_000_000 + found.st_mtime_nsec as u64;
                (found.st_size as u64, ns)
            }
            Err(_) => (0, 0),
        }
    }

    /// Reads until the end of the file or until `to` is full. Returns the number of bytes read.
    pub fn read_into(&self, to: &mut [u8]) -> usize {
        let mut length = 0;
        while let Some(rest) = to.get_mut(length..).filter(|rest| !rest.is_empty()) {
            match syscall!(libc::SYS_read, self.0, rest.as_mut_ptr(), rest.len()) {
                Ok(0) => break,
                Ok(count) => length += count as usize,
                Err(libc::EINTR) => {}
                Err(_) => break,
            }
        }
        length
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        let _ = syscall!(libc::SYS_close, self.0);
    }
}

/// Why an append failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AppendError {
    /// The append would exceed `RLIMIT_FSIZE`; writing would kill the process with SIGXFSZ.
    FileSizeLimit,
    /// The `errno` of the system call that failed.
    Errno(i32),
}

/// Appends `bytes` to the file at `path`, which is created if it does not exist. The file is opened
/// and closed each time, because the program could close a descriptor that stayed open and reuse
/// its number.
pub fn append(path: &CStr, bytes: &[u8]) -> Result<(), AppendError> {
    let flags = libc::O_WRONLY | libc::O_APPEND | libc::O_CREAT;
    let file = Descriptor::open(path, flags).map_err(AppendError::Errno)?;
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` outlives the call.
    let known = unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &mut limit) } == 0;
    if known && limit.rlim_cur != libc::RLIM_INFINITY {
        return append_within(&file, bytes, limit.rlim_cur);
    }
    write_all(&file, bytes)
}

/// Does what [`write_all`] does, under `RLIMIT_FSIZE`. The length of the file is checked first, but
/// another thread may append in between, and exceeding the limit raises SIGXFSZ, which kills the
/// process. Therefore SIGXFSZ is blocked during the write, and one that our write caused is
/// consumed.
fn append_within(file: &Descriptor, bytes: &[u8], limit: u64) -> Result<(), AppendError> {
    let end = syscall!(libc::SYS_lseek, file.0, 0, libc::SEEK_END).map_err(AppendError::Errno)?;
    if end as u64 + bytes.len() as u64 > limit {
        return Err(AppendError::FileSizeLimit);
    }
    let only = 1u64 << (libc::SIGXFSZ - 1);
    let mut before = 0u64;
    let block = libc::SIG_BLOCK;
    let (set, old) = (&raw const only, &raw mut before);
    let _ = syscall!(libc::SYS_rt_sigprocmask, block, set, old, 8);
    let result = match write_all(file, bytes) {
        Err(AppendError::Errno(libc::EFBIG)) => {
            let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
            let _ = syscall!(libc::SYS_rt_sigtimedwait, set, 0, &raw const now, 8);
            Err(AppendError::FileSizeLimit)
        }
        other => other,
    };
    let _ = syscall!(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, old, 0, 8);
    result
}

fn write_all(file: &Descriptor, bytes: &[u8]) -> Result<(), AppendError> {
    let mut rest = bytes;
    while !rest.is_empty() {
        match syscall!(libc::SYS_write, file.0, rest.as_ptr(), rest.len()) {
            Ok(0) => return Err(AppendError::Errno(libc::EIO)),
            Ok(count) => rest = rest.get(count as usize..).unwrap_or_default(),
            Err(libc::EINTR) => {}
            Err(errno) => return Err(AppendError::Errno(errno)),
        }
    }
    Ok(())
}

/// Creates a pipe and returns its read end and its write end. Both are closed on exec. Their
/// numbers are 10 or higher: a host that has closed its standard streams must not get a pipe in
/// their place.
pub fn pipe() -> Result<(Descriptor, Descriptor), i32> {
    let mut ends = [0i32; 2];
    syscall!(libc::SYS_pipe2, ends.as_mut_ptr(), libc::O_CLOEXEC)?;
    let low = ends.map(Descriptor);
    let high = |end: &Descriptor| {
        syscall!(libc::SYS_fcntl, end.0, libc::F_DUPFD_CLOEXEC, 10).map(|fd| Descriptor(fd as i32))
    };
    Ok((high(&low[0])?, high(&low[1])?))
}

/// Writes `line` to stderr unchanged. Meant for problems that cannot be reported in any other way.
pub fn complain(line: &str) {
    let _ = syscall!(libc::SYS_write, 2, line.as_ptr(), line.len());
}

/// Returns whether `path` is a file that may be executed.
pub fn is_executable(path: &CStr) -> bool {
    syscall!(libc::SYS_faccessat, libc::AT_FDCWD, path.as_ptr(), libc::X_OK).is_ok()
}

/// Ends the process at once, as `_exit` does. Called only if the user has asked for it.
pub fn end_process() -> ! {
    loop {
        let _ = syscall!(libc::SYS_exit_group, 0);
    }
}

/// Ends the process at once with this status. Called only if the program has ended already.
pub fn end_process_with(status: i32) -> ! {
    loop {
        let _ = syscall!(libc::SYS_exit_group, status);
    }
}

/// Ends the process by this signal, whatever the program does at it.
pub fn end_process_by(signal: i32) -> ! {
    // SAFETY: zeros are a value of `sigaction`: the default.
    unsafe {
        let default: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, &default, std::ptr::null_mut());
    }
    loop {
        let _ = syscall!(libc::SYS_tgkill, process_id(), thread_id(), signal);
    }
}

/// Returns whether this process has a thread with this id, which may be about to end.
pub fn thread_exists(id: u32) -> bool {
    syscall!(libc::SYS_tgkill, process_id(), id, 0).is_ok()
}

/// Maps private memory whose pages are present from the start.
pub fn map_present(bytes: usize) -> Result<*mut u8, i32> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE;
    syscall!(libc::SYS_mmap, 0, bytes, protection, flags, -1, 0).map(|at| at as *mut u8)
}

/// Maps private memory whose pages appear on first use.
pub fn map_zeros(bytes: usize) -> Result<*mut u8, i32> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    syscall!(libc::SYS_mmap, 0, bytes, protection, flags, -1, 0).map(|at| at as *mut u8)
}

/// Reserves addresses: nothing may be read or written there until something is mapped over it.
pub fn reserve(bytes: usize) -> Result<*mut u8, i32> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    syscall!(libc::SYS_mmap, 0, bytes, libc::PROT_NONE, flags, -1, 0).map(|at| at as *mut u8)
}

/// Moves a mapping to `to`, in place of what is mapped there, in one step.
pub fn move_mapping(from: *mut u8, bytes: usize, to: *mut u8) -> Result<(), i32> {
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    syscall!(libc::SYS_mremap, from, bytes, bytes, flags, to).map(|_| ())
}

/// Maps read-only zeros at `address`, where nothing is mapped any more.
pub fn map_zeros_at(address: usize, bytes: usize) -> Result<(), i32> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    syscall!(libc::SYS_mmap, address, bytes, libc::PROT_READ, flags, -1, 0).map(|_| ())
}

/// Replaces memory of ours by private memory at the same address.
pub fn map_private_at(address: usize, bytes: usize) -> Result<(), i32> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    syscall!(libc::SYS_mmap, address, bytes, protection, flags, -1, 0).map(|_| ())
}

/// Maps memory for the stacks of short-lived children.
pub fn map_stacks(bytes: usize) -> Result<*mut u8, i32> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_STACK;
    syscall!(libc::SYS_mmap, 0, bytes, protection, flags, -1, 0).map(|at| at as *mut u8)
}

/// Creates a directory that only its owner can access.
pub fn make_directory(path: &CStr) -> Result<(), i32> {
    syscall!(libc::SYS_mkdirat, libc::AT_FDCWD, path.as_ptr(), 0o700).map(|_| ())
}

/// Makes a directory for its owner only, in which all processes of that owner can make their own.
/// This program's file mode creation mask does not apply.
pub fn make_directory_for_all(path: &CStr) -> Result<(), i32> {
    make_directory(path)?;
    syscall!(libc::SYS_fchmodat, libc::AT_FDCWD, path.as_ptr(), 0o700).map(|_| ())
}

/// Reads a whole small file, such as those in `/proc`.
pub fn read_file(path: &CStr) -> Result<Vec<u8>, i32> {
    let file = Descriptor::open(path, libc::O_RDONLY)?;
    let mut content = Vec::new();
    let mut buffer = [0u8; 4096];
    loop {
        match syscall!(libc::SYS_read, file.0, buffer.as_mut_ptr(), buffer.len()) {
            Ok(0) => return Ok(content),
            Ok(count) => content.extend_from_slice(&buffer[..count as usize]),
            Err(libc::EINTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

/// Returns the entries of a directory whose names are numbers, in ascending order.
pub fn numbers_in(path: &CStr) -> Result<Vec<u32>, i32> {
    let directory = Descriptor::open(path, libc::O_RDONLY | libc::O_DIRECTORY)?;
    let mut found = Vec::new();
    let mut buffer = [0u8; 4096];
    loop {
        let fd = directory.0;
        let count = syscall!(libc::SYS_getdents64, fd, buffer.as_mut_ptr(), buffer.len())?;
        let mut rest = buffer.get(..count as usize).unwrap_or_default();
        if rest.is_empty() {
            found.sort_unstable();
            return Ok(found);
        }
        // Inode and offset of 8 bytes each, length of the entry, type of one byte, name.
        while let Some([low, high]) = rest.get(16..18) {
            let length = usize::from(u16::from_le_bytes([*low, *high]));
            let (Some(entry), Some(next)) = (rest.get(19..length), rest.get(length..)) else {
                break;
            };
            let name = entry.split(|b| *b == 0).next().unwrap_or_default();
            found.extend(std::str::from_utf8(name).ok().and_then(|name| name.parse::<u32>().ok()));
            rest = next;
        }
    }
}

/// Reads the target of a symbolic link.
pub fn read_link(path: &CStr) -> Result<Vec<u8>, i32> {
    let mut buffer = vec![0u8; 4096];
    let at = libc::AT_FDCWD;
    let pointer = buffer.as_mut_ptr();
    let count = syscall!(libc::SYS_readlinkat, at, path.as_ptr(), pointer, buffer.len())?;
    buffer.truncate(count as usize);
    Ok(buffer)
}

pub fn process_id() -> u32 {
    syscall!(libc::SYS_getpid).unwrap_or(0) as u32
}

/// Returns the parent's process id.
pub fn parent_id() -> u32 {
    syscall!(libc::SYS_getppid).unwrap_or(0) as u32
}

/// Returns the calling thread's id.
pub fn thread_id() -> u32 {
    syscall!(libc::SYS_gettid).unwrap_or(0) as u32
}

/// Sleeps for 50 µs while another thread finishes something.
pub fn nap() {
    let time = libc::timespec { tv_sec: 0, tv_nsec: 50_000 };
    let _ = syscall!(libc::SYS_nanosleep, &raw const time, 0);
}

/// Returns the calling thread's name, padded with zeros.
pub fn thread_name() -> [u8; 16] {
    let mut name = [0u8; 16];
    let _ = syscall!(libc::SYS_prctl, libc::PR_GET_NAME, name.as_mut_ptr(), 0, 0, 0);
    name
}

/// Closes `fd` if it is a perf counter. Called only in a forked child, for counters that it
/// inherited.
pub fn close_counter(fd: i32) {
    const PERF_EVENT_IOC_ID: c_long = 0x8008_2407;
    let mut id = 0u64;
    if syscall!(libc::SYS_ioctl, fd, PERF_EVENT_IOC_ID, &raw mut id).is_ok() {
        let _ = syscall!(libc::SYS_close, fd);
    }
}

/// Maps private memory that a forked child finds zeroed. It is present from the start, so using it
/// never faults. It is never copied on write, so a fork does not cause faults in the parent.
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

/// Unmaps memory that a function of this module mapped.
pub fn unmap(at: *mut u8, bytes: usize) {
    let _ = syscall!(libc::SYS_munmap, at, bytes);
}

/// Changes protection without going through our own interposed `mprotect`.
pub fn protect(at: usize, bytes: usize, protection: i32) -> Result<(), i32> {
    syscall!(libc::SYS_mprotect, at, bytes, protection).map(|_| ())
}

/// Behaves like libc's `mprotect`: returns −1 and sets `errno` on failure, leaves `errno` alone on
/// success.
///
/// # Safety
/// As for `mprotect(2)`: the owner of the memory must be ready for its new protection.
pub unsafe fn host_mprotect(at: *mut c_void, bytes: usize, protection: i32) -> i32 {
    // SAFETY: the caller guarantees this.
    unsafe { libc::syscall(libc::SYS_mprotect, at, bytes, protection) as i32 }
}

/// Behaves like libc's `mmap`: returns `MAP_FAILED` and sets `errno` on failure.
///
/// # Safety
/// As for `mmap(2)`.
pub unsafe fn host_mmap(
    address: *mut c_void,
    bytes: usize,
    protection: i32,
    flags: i32,
    fd: i32,
    offset: i64,
) -> *mut c_void {
    // SAFETY: the caller guarantees this.
    let at =
        unsafe { libc::syscall(libc::SYS_mmap, address, bytes, protection, flags, fd, offset) };
    at as *mut c_void
}

/// Copies memory at an untrusted address without faulting. Returns the number of readable bytes,
/// counted from the start.
pub fn copy_memory(from: usize, to: &mut [u8]) -> usize {
    let local = libc::iovec { iov_base: to.as_mut_ptr().cast(), iov_len: to.len() };
    let remote = libc::iovec { iov_base: from as *mut c_void, iov_len: to.len() };
    let call = libc::SYS_process_vm_readv;
    match syscall!(call, process_id(), &raw const local, 1, &raw const remote, 1, 0) {
        Ok(count) => count as usize,
        Err(libc::EFAULT) => 0,
        // The call is forbidden (seccomp, Yama): read through /proc instead.
        Err(_) => copy_through_proc(from, to),
    }
}

fn copy_through_proc(from: usize, to: &mut [u8]) -> usize {
    let Ok(memory) = Descriptor::open(c"/proc/self/mem", libc::O_RDONLY) else { return 0 };
    let count = syscall!(libc::SYS_pread64, memory.0, to.as_mut_ptr(), to.len(), from);
    count.map_or(0, |n| n as usize)
}

/// Reads a plain value from an untrusted address.
pub fn read_value<T: Copy>(from: usize) -> Option<T> {
    let mut value = std::mem::MaybeUninit::<T>::uninit();
    // SAFETY: these are the bytes of `value`, zeroed first.
    let bytes = unsafe {
        value.as_mut_ptr().write_bytes(0, 1);
        std::slice::from_raw_parts_mut(value.as_mut_ptr().cast::<u8>(), size_of::<T>())
    };
    if from == 0 || copy_memory(from, bytes) != bytes.len() {
        return None;
    }
    // SAFETY: fully written; used only with `repr(C)` structs of integers and raw pointers.
    Some(unsafe { value.assume_init() })
}

/// Reads at most `limit` bytes of a C string from an untrusted address. Returns the text and
/// whether it was cut off.
pub fn read_c_string(from: usize, limit: usize) -> Option<(String, bool)> {
    let mut text = Vec::new();
    let mut chunk = [0u8; 256];
    while from != 0 && text.len() < limit {
        let at = from + text.len();
        // Each step stays within one page, because the next page may not be mapped.
        let step = (4096 - at % 4096).min(chunk.len());
        let count = copy_memory(at, &mut chunk[..step]);
        if count == 0 {
            return None;
        }
        if let Some(end) = chunk[..count].iter().position(|b| *b == 0) {
            text.extend_from_slice(&chunk[..end]);
            return Some((String::from_utf8_lossy(&text).into_owned(), false));
        }
        text.extend_from_slice(&chunk[..count]);
    }
    if from == 0 {
        return None;
    }
    text.truncate(limit);
    Some((String::from_utf8_lossy(&text).into_owned(), true))
}

/// A line of `/proc/self/maps`.
pub struct Mapping<'a> {
    /// Its first address.
    pub start: u64,
    /// The address after it.
    pub end: u64,
    /// Whether it is executable.
    pub executable: bool,
    /// Its file, or what the kernel calls it; empty: anonymous.
    pub path: &'a [u8],
}

impl<'a> Mapping<'a> {
    /// Reads a line.
    pub fn parse(line: &'a [u8]) -> Option<Self> {
        let mut fields = line.splitn(6, |b| *b == b' ');
        let range = std::str::from_utf8(fields.next()?).ok()?;
        let (start, end) = range.split_once('-')?;
        let mode = fields.next()?;
        let path = fields.nth(3).unwrap_or_default().trim_ascii();
        Some(Self {
            start: u64::from_str_radix(start, 16).ok()?,
            end: u64::from_str_radix(end, 16).ok()?,
            executable: mode.get(2) == Some(&b'x'),
            path,
        })
    }
}

/// Returns the protection of the mapping that contains `address`, from `/proc/self/maps`.
pub fn protection_of(address: usize) -> Option<i32> {
    mapping_of(address).map(|(protection, _)| protection)
}

/// Returns the protection of the mapping that contains `address`, and whether it is shared, from
/// `/proc/self/maps`.
pub fn mapping_of(address: usize) -> Option<(i32, bool)> {
    with_mapping(address, |line| {
        let mode = line.split(|b| *b == b' ').nth(1).unwrap_or_default();
        let bit = |letter, value| if mode.contains(&letter) { value } else { 0 };
        let protection =
            bit(b'r', libc::PROT_READ) | bit(b'w', libc::PROT_WRITE) | bit(b'x', libc::PROT_EXEC);
        Some((protection, mode.contains(&b's')))
    })
}

/// Returns the path of the file that is mapped at `address`, with links resolved.
pub fn file_at(address: usize) -> Option<Vec<u8>> {
    with_mapping(address, |line| {
        let path = line.iter().position(|b| *b == b'/').and_then(|at| line.get(at..))?;
        Some(path.to_vec())
    })
}

/// Calls `body` with the line of `/proc/self/maps` whose range contains `address`.
fn with_mapping<T>(address: usize, body: impl FnOnce(&[u8]) -> Option<T>) -> Option<T> {
    let maps = read_file(c"/proc/self/maps").ok()?;
    let holds = |line: &&[u8]| {
        let range = line.split(|b| *b == b' ').next().unwrap_or_default();
        let range = std::str::from_utf8(range).unwrap_or_default();
        let parsed = range
            .split_once('-')
            .map(|(start, end)| (usize::from_str_radix(start, 16), usize::from_str_radix(end, 16)));
        matches!(parsed, Some((Ok(start), Ok(end))) if (start..end).contains(&address))
    };
    maps.split(|b| *b == b'\n').find(holds).and_then(body)
}

/// Returns when this process started, in clock ticks since boot (field 22 of `/proc/self/stat`), or
/// 0 if `/proc` cannot be read. The second field may contain spaces and parentheses, so parsing
/// starts after the last parenthesis.
pub fn start_time() -> u64 {
    let Ok(stat) = read_file(c"/proc/self/stat") else { return 0 };
    let behind_name = stat.iter().rposition(|b| *b == b')').map_or(0, |at| at + 1);
    let rest = String::from_utf8_lossy(&stat[behind_name..]).into_owned();
    rest.split_ascii_whitespace().nth(19).and_then(|field| field.parse().ok()).unwrap_or(0)
}

/// Converts bytes to text; invalid UTF-8 is replaced.
pub fn lossy(bytes: Vec<u8>) -> String {
    std::ffi::OsString::from_vec(bytes).to_string_lossy().into_owned()
}

/// Converts text to a path for system calls. Text that contains a NUL becomes the empty path, which
/// names no file.
pub fn path(text: String) -> CString {
    CString::new(text).unwrap_or_default()
}
