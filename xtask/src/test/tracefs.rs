//! Makes tracefs visible, which tracepoints need and which is not mounted on every machine.

use std::path::Path;

const AT: &std::ffi::CStr = c"/sys/kernel/tracing";

/// Makes tracefs visible to this process and to the processes that it starts, where this process
/// may do so. The mount is in a namespace of its own, so nothing changes for other processes. Must
/// be called before this process has threads, because the others would stay in the old namespace.
pub fn provide() {
    if Path::new("/sys/kernel/tracing/events").is_dir()
        || !Path::new("/sys/kernel/tracing").is_dir()
    {
        return;
    }
    // Fails without root, and in most containers. Tests of tracepoints then say that they are skipped.
    // SAFETY: C strings that live for ever and null pointers, as mount(2) allows.
    unsafe {
        let (none, kind) = (std::ptr::null(), c"tracefs".as_ptr());
        let _ = libc::unshare(libc::CLONE_NEWNS) == 0
            && libc::mount(none, c"/".as_ptr(), none, libc::MS_REC | libc::MS_PRIVATE, none.cast())
                == 0
            && libc::mount(kind, AT.as_ptr(), kind, 0, none.cast()) == 0;
    }
}
