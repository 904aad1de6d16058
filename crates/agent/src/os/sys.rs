//! System calls for code that runs inside of other people's processes. The functions are no
//! cancellation points. Neither they nor their callers keep a descriptor open longer than one
//! operation. The functions may change `errno`, so their callers use [`ErrnoGuard`].
//!
//! | module | purpose |
//! |---|---|
//! | [`files`] | reads and writes files, directories and pipes |
//! | [`memory`] | maps memory |
//! | [`mappings`] | finds out what is mapped at an address |
//! | [`untrusted`] | reads memory at addresses that may be unmapped |
//! | [`processes`] | finds ids and names of this process and its threads, and ends the process |
//! | [`signals`] | blocks signals, so that no signal handler of the host runs |

use std::ffi::{CString, c_long};
use std::os::unix::ffi::OsStringExt;

/// Restores the thread's `errno` when dropped. Functions that the host calls use it, so that the
/// host sees no change of `errno`.
pub struct ErrnoGuard(i32);

impl ErrnoGuard {
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

/// Returns whether this process has more rights than the user who started it: because of
/// set-user-id, set-group-id, file capabilities or a security module (`AT_SECURE` of getauxval(3)).
pub fn has_more_rights() -> bool {
    // SAFETY: `getauxval` reads a value that the kernel passed to the program, and takes no
    // pointer.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

pub fn set_errno(value: i32) {
    // SAFETY: glibc returns the address of the calling thread's errno, which is always valid.
    unsafe { *libc::__errno_location() = value }
}

/// Makes a system call through `libc::syscall`, which is not a cancellation point. libc's `open`
/// and `write` are cancellation points: if the host cancelled a thread there, the thread would
/// unwind through our stack frames, which must not happen.
macro_rules! syscall {
    ($number:expr $(, $argument:expr)*) => {{
        // SAFETY: each use passes the arguments that its system call documents, with pointers that
        // outlive the call.
        let result = unsafe { libc::syscall($number $(, $argument as c_long)*) };
        if result < 0 { Err(record::pool::errno()) } else { Ok(result) }
    }};
}

// The modules are declared below the macro, because they use it.
mod files;
mod mappings;
mod memory;
mod processes;
mod signals;
mod untrusted;

pub use files::{
    AppendError, Descriptor, append, close_counter, is_executable, make_directory,
    make_directory_for_all, numbers_in, pipe, read_file, read_link,
};
pub use mappings::{Mapping, file_at, mapping_of, protection_of};
pub use memory::{
    host_mmap, host_mprotect, map_present, map_private_at, map_stacks, map_wiped_on_fork,
    map_zeros, map_zeros_at, move_mapping, page_of, page_size, populate, protect, reserve, unmap,
};
pub use processes::{
    end_process, end_process_by, end_process_with, nap, parent_id, process_id, start_time,
    thread_exists, thread_id, thread_name,
};
pub use signals::SignalsBlocked;
pub use untrusted::{AnyBytes, copy_memory, read_c_string, read_value};

/// Writes `line` to stderr. Used for problems of which the user must be told at once, or that
/// cannot be reported in the profile.
pub fn complain(line: &str) {
    let _ = syscall!(libc::SYS_write, 2, line.as_ptr(), line.len());
}

/// Converts bytes to text. Replaces invalid UTF-8.
pub fn lossy(bytes: Vec<u8>) -> String {
    std::ffi::OsString::from_vec(bytes).to_string_lossy().into_owned()
}

/// Converts text to a path for system calls. Text with a NUL byte gives the empty path, which names
/// no file.
pub fn path(text: String) -> CString {
    CString::new(text).unwrap_or_default()
}
