//! Mounts tracefs, which tests of tracepoints need and which is not mounted on every machine.

use std::path::Path;

const AT: &std::ffi::CStr = c"/sys/kernel/tracing";

/// The mount is in a separate namespace, so nothing changes for other processes. Call this before
/// there are other threads, because they would stay in the old namespace.
pub fn provide() {
    if Path::new("/sys/kernel/tracing/events").is_dir()
        || !Path::new("/sys/kernel/tracing").is_dir()
    {
        return;
    }
    // Fails without root, and in most containers. Tests of tracepoints are then skipped. SAFETY: C
    // strings that live for ever and null pointers, as mount(2) allows.
    unsafe {
        let (none, kind) = (std::ptr::null(), c"tracefs".as_ptr());
        let _ = libc::unshare(libc::CLONE_NEWNS) == 0
            && libc::mount(none, c"/".as_ptr(), none, libc::MS_REC | libc::MS_PRIVATE, none.cast())
                == 0
            && libc::mount(kind, AT.as_ptr(), kind, 0, none.cast()) == 0;
    }
}
