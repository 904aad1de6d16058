//! Mounts tracefs, which tests of tracepoints need and which is not mounted on every machine.

use std::path::Path;

const AT: &std::ffi::CStr = c"/sys/kernel/tracing";

/// Mounts tracefs, if it is not mounted yet, in a separate mount namespace, so that nothing changes
/// for other processes. Call this function before there are other threads, because they would stay
/// in the old namespace.
pub fn provide() {
    if Path::new("/sys/kernel/tracing/events").is_dir()
        || !Path::new("/sys/kernel/tracing").is_dir()
    {
        return;
    }
    // This fails without root, and in most containers. Tests of tracepoints are then skipped.
    // SAFETY: all strings are C strings that live for ever, and mount(2) allows null pointers for
    // the other arguments.
    unsafe {
        let (none, kind) = (std::ptr::null(), c"tracefs".as_ptr());
        let _ = libc::unshare(libc::CLONE_NEWNS) == 0
            && libc::mount(none, c"/".as_ptr(), none, libc::MS_REC | libc::MS_PRIVATE, none.cast())
                == 0
            && libc::mount(kind, AT.as_ptr(), kind, 0, none.cast()) == 0;
    }
}
