//! Files, directories and pipes.

use std::ffi::{CStr, c_long};

/// An open file, closed when this value is dropped. The operation that opened the file must drop
/// the value when it ends, because the program may close any descriptor and reuse its number.
pub struct Descriptor(i32);

impl Descriptor {
    pub fn open(path: &CStr, flags: i32) -> Result<Self, i32> {
        let at = libc::AT_FDCWD;
        let fd = syscall!(libc::SYS_openat, at, path.as_ptr(), flags | libc::O_CLOEXEC, 0o600)?;
        Ok(Self(fd as i32))
    }

    pub fn number(&self) -> i32 {
        self.0
    }

    /// Reads from `offset`. Returns how many bytes were read; 0 on failure.
    pub fn read_at(&self, offset: u64, to: &mut [u8]) -> usize {
        let read = syscall!(libc::SYS_pread64, self.0, to.as_mut_ptr(), to.len(), offset);
        read.map_or(0, |count| count as usize)
    }

    /// Returns the size in bytes, and the time of the last change in ns since 1970; zeros on
    /// failure.
    pub fn size_and_time(&self) -> (u64, u64) {
        // SAFETY: `stat` consists of integers, for which zeros are values.
        let mut found: libc::stat = unsafe { std::mem::zeroed() };
        match syscall!(libc::SYS_fstat, self.0, &raw mut found) {
            Ok(_) => {
                let ns = found.st_mtime as u64 * 1_000_000_000 + found.st_mtime_nsec as u64;
                (found.st_size as u64, ns)
            }
            Err(_) => (0, 0),
        }
    }

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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AppendError {
    /// The append would exceed `RLIMIT_FSIZE`, and SIGXFSZ would by default kill the process.
    FileSizeLimit,
    Errno(i32),
}

/// Appends `bytes` to the file at `path`, which is created if necessary. The file is opened and
/// closed each time, because the program could close a descriptor that stayed open and reuse its
/// number.
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

/// Appends `bytes` if the file stays within `limit` (`RLIMIT_FSIZE`). Exceeding the limit would
/// raise SIGXFSZ, which by default kills the process. The length of the file is checked first, but
/// another thread may append after the check. Therefore SIGXFSZ is blocked during the write, and a
/// SIGXFSZ that our write has caused is consumed.
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

/// Creates a pipe and returns its read end and its write end. Both descriptors are 10 or higher,
/// because the pipe must not take the place of standard streams that the host has closed.
pub fn pipe() -> Result<(Descriptor, Descriptor), i32> {
    let mut ends = [0i32; 2];
    syscall!(libc::SYS_pipe2, ends.as_mut_ptr(), libc::O_CLOEXEC)?;
    let low = ends.map(Descriptor);
    let high = |end: &Descriptor| {
        syscall!(libc::SYS_fcntl, end.0, libc::F_DUPFD_CLOEXEC, 10).map(|fd| Descriptor(fd as i32))
    };
    Ok((high(&low[0])?, high(&low[1])?))
}

/// Returns whether `path` is a file that may be executed, or a directory that may be entered.
pub fn is_executable(path: &CStr) -> bool {
    syscall!(libc::SYS_faccessat, libc::AT_FDCWD, path.as_ptr(), libc::X_OK).is_ok()
}

/// Creates a directory that only its owner can access.
pub fn make_directory(path: &CStr) -> Result<(), i32> {
    syscall!(libc::SYS_mkdirat, libc::AT_FDCWD, path.as_ptr(), 0o700).map(|_| ())
}

/// Does what [`make_directory`] does, but ignores the process's file mode creation mask, so that
/// all processes of the owner can create files in the directory.
pub fn make_directory_for_all(path: &CStr) -> Result<(), i32> {
    make_directory(path)?;
    syscall!(libc::SYS_fchmodat, libc::AT_FDCWD, path.as_ptr(), 0o700).map(|_| ())
}

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

/// Returns those names of a directory's entries that are numbers, in ascending order.
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
        // An entry consists of inode and offset (8 bytes each), length of the entry (2 bytes), type
        // (1 byte) and name.
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

pub fn read_link(path: &CStr) -> Result<Vec<u8>, i32> {
    let mut buffer = vec![0u8; 4096];
    let at = libc::AT_FDCWD;
    let pointer = buffer.as_mut_ptr();
    let count = syscall!(libc::SYS_readlinkat, at, path.as_ptr(), pointer, buffer.len())?;
    buffer.truncate(count as usize);
    Ok(buffer)
}

/// Closes `fd` if it is a perf counter. Other descriptors refuse the `ioctl` that returns a
/// counter's id.
pub fn close_counter(fd: i32) {
    const PERF_EVENT_IOC_ID: c_long = 0x8008_2407;
    let mut id = 0u64;
    if syscall!(libc::SYS_ioctl, fd, PERF_EVENT_IOC_ID, &raw mut id).is_ok() {
        let _ = syscall!(libc::SYS_close, fd);
    }
}
