//! Finds out whether the environment asks for a profile, and stores the path of the run file.

use std::ffi::CStr;
use std::sync::atomic::{AtomicBool, Ordering};

use record::run_file::{RUN_FILE_VARIABLE, RUN_FILE_WITH_PLUGINS_NAME};

const VARIABLE: &CStr = c"COUNTERPOINT_RUN_FILE";
const _: () = assert!(VARIABLE.to_bytes().len() == RUN_FILE_VARIABLE.len());

/// The size of the buffer for the path, in bytes. It includes the terminator.
pub const PATH_BYTES: usize = 4096;

/// The path of the run file. This library's constructor copies it from the environment, before
/// there are other threads and before the program can change its environment. If a source of runs
/// makes the run file, the path is written by the thread that loads the run.
static mut PATH: [u8; PATH_BYTES] = [0; PATH_BYTES];
static WANTED: AtomicBool = AtomicBool::new(false);

/// Looks for the environment variable that names the run file, and copies the path. Returns whether
/// the variable is set. If its value is empty or too long for the buffer, the process is not
/// recorded. Called by the constructor.
pub fn note_variable() -> bool {
    // SAFETY: the name is a C string. The result points into the environment, which nothing changes
    // while the dynamic linker runs constructors.
    let value = unsafe { libc::getenv(VARIABLE.as_ptr()) };
    if value.is_null() {
        return false;
    }
    // SAFETY: `getenv` returned a C string, which nothing changes while the dynamic linker runs
    // constructors.
    let bytes = unsafe { CStr::from_ptr(value) }.to_bytes();
    if bytes.is_empty() || bytes.len() >= PATH_BYTES {
        return true;
    }
    // SAFETY: there is still only one thread (see PATH), and the length was checked.
    unsafe {
        let path = (&raw mut PATH).cast::<u8>();
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), path, bytes.len());
    }
    ask();
    true
}

/// Stores that the environment asks for a profile. Called by the constructor.
pub fn ask() {
    WANTED.store(true, Ordering::Release);
}

/// Stores that this process is not to be recorded after all. Called by the constructor.
pub fn decline() {
    WANTED.store(false, Ordering::Release);
}

/// Returns whether the environment asks for a profile and the constructor has not called
/// [`decline`]. This stays true if the run cannot be loaded.
pub fn is_asked_for() -> bool {
    WANTED.load(Ordering::Relaxed)
}

/// Returns whether the environment asks for a profile with plugins. The name of the run file says
/// this, so no file is read. Called by the constructor and before `main`.
pub fn asks_for_plugins() -> bool {
    // SAFETY: nothing writes the path now: the constructor wrote it earlier, and a source of runs
    // does so only when the run is loaded.
    let path = unsafe { path() }.to_bytes();
    is_asked_for() && path.ends_with(RUN_FILE_WITH_PLUGINS_NAME.as_bytes())
}

/// Returns the path of the run file; empty if there is none yet.
///
/// # Safety
/// No other thread may be writing through [`path_mut`].
pub unsafe fn path() -> &'static CStr {
    // SAFETY: every writer terminates the path with a zero, and by contract nobody is writing now.
    unsafe { CStr::from_ptr((&raw const PATH).cast()) }
}

/// Returns the buffer for the path, into which a source of runs ([`super::source`]) writes.
///
/// # Safety
/// Only the thread that loads the run may call this, and the path must not be read before that
/// thread has written it.
pub unsafe fn path_mut() -> &'static mut [u8] {
    // SAFETY: by contract, only the calling thread uses the path until it is done with the slice.
    unsafe { std::slice::from_raw_parts_mut((&raw mut PATH).cast(), PATH_BYTES) }
}
