//! System calls about this process and its threads.

use std::ffi::c_long;

use super::files::read_file;

/// Ends the process with status 0. Called if the user has asked for nothing but the list of
/// counters.
pub fn end_process() -> ! {
    loop {
        let _ = syscall!(libc::SYS_exit_group, 0);
    }
}

/// Ends the process with this status. Called if all of the program's own threads have ended.
pub fn end_process_with(status: i32) -> ! {
    loop {
        let _ = syscall!(libc::SYS_exit_group, status);
    }
}

/// Ends the process by this signal, even if the program handles or ignores it.
pub fn end_process_by(signal: i32) -> ! {
    // SAFETY: zeros are a valid `sigaction` and mean the default action; the struct outlives the
    // call.
    unsafe {
        let default: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, &default, std::ptr::null_mut());
    }
    loop {
        let _ = syscall!(libc::SYS_tgkill, process_id(), thread_id(), signal);
    }
}

/// Returns whether this process has a thread with this id, which may be ending already.
pub fn thread_exists(id: u32) -> bool {
    syscall!(libc::SYS_tgkill, process_id(), id, 0).is_ok()
}

pub fn process_id() -> u32 {
    syscall!(libc::SYS_getpid).unwrap_or(0) as u32
}

pub fn parent_id() -> u32 {
    syscall!(libc::SYS_getppid).unwrap_or(0) as u32
}

pub fn thread_id() -> u32 {
    syscall!(libc::SYS_gettid).unwrap_or(0) as u32
}

/// Sleeps for 50 µs. Used in loops that wait for another thread.
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

/// Returns when this process started, in clock ticks since boot (field 22 of `/proc/self/stat`), or
/// 0 if `/proc` cannot be read. The second field is a name that may contain spaces and parentheses,
/// so parsing starts after the last parenthesis.
pub fn start_time() -> u64 {
    let Ok(stat) = read_file(c"/proc/self/stat") else { return 0 };
    let after_name = stat.iter().rposition(|b| *b == b')').map_or(0, |at| at + 1);
    let rest = String::from_utf8_lossy(&stat[after_name..]).into_owned();
    rest.split_ascii_whitespace().nth(19).and_then(|field| field.parse().ok()).unwrap_or(0)
}
