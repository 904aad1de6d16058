//! Whether the environment asks for a profile, and the path of the run file. The constructor only
//! copies the path: the file is read when there is something to record.

use std::ffi::CStr;
use std::sync::atomic::{AtomicBool, Ordering};

use record::run_file::RUN_FILE_VARIABLE;

const VARIABLE: &CStr = c"COUNTERPOINT_RUN_FILE";
const _: () = assert!(VARIABLE.to_bytes().len() == RUN_FILE_VARIABLE.len());

/// Bytes of a path, at most.
pub const PATH_BYTES: usize = 4096;

/// The run file's path, copied before the program can change its environment. Written by the
/// constructor, which the dynamic linker runs before there are threads, or by the one thread that
/// loads the run.
static mut PATH: [u8; PATH_BYTES] = [0; PATH_BYTES];
/// Whether the environment asks for a profile.
static WANTED: AtomicBool = AtomicBool::new(false);

/// In the constructor: looks for the variable that names the run file, and copies the path. Returns
/// whether the variable is there; an empty one declines to be recorded.
pub fn note_variable() -> bool {
    // SAFETY: the name is a C string; the result points into the environment, which nothing
    // changes while the dynamic linker runs constructors.
    let value = unsafe { libc::getenv(VARIABLE.as_ptr()) };
    if value.is_null() {
        return false;
    }
    // SAFETY: `getenv` returns C strings.
    let bytes = unsafe { CStr::from_ptr(value) }.to_bytes();
    if bytes.is_empty() || bytes.len() >= PATH_BYTES {
        return true;
    }
    // SAFETY: there is still only one thread, see PATH; the length was checked.
    unsafe {
        let path = (&raw mut PATH).cast::<u8>();
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), path, bytes.len());
    }
    ask();
    true
}

/// In the constructor: notes that the environment asks for a profile.
pub fn ask() {
    WANTED.store(true, Ordering::Release);
}

/// In the constructor: this process is not to be recorded after all.
pub fn decline() {
    WANTED.store(false, Ordering::Release);
}

/// Whether the environment asks for a profile, whatever became of it.
pub fn is_asked_for() -> bool {
    WANTED.load(Ordering::Relaxed)
}

/// The path of the run file; empty before there is one.
///
/// # Safety
/// No other thread is in [`path_mut`].
pub unsafe fn path() -> &'static CStr {
    // SAFETY: whoever writes it terminates it, and the caller promises that nobody does so now.
    unsafe { CStr::from_ptr((&raw const PATH).cast()) }
}

/// The place of the path, for a source of runs.
///
/// # Safety
/// Only the thread that loads the run calls this, and nobody reads the path before it is done.
pub unsafe fn path_mut() -> &'static mut [u8] {
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts_mut((&raw mut PATH).cast(), PATH_BYTES) }
}
