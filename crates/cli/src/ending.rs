//! What a signal that ends a command does first.
//!
//! SIGINT, SIGTERM, SIGHUP and SIGQUIT are how people and their tools end a command. It may have a file
//! by then that is not complete, or a group of processes in which it asks a plugin (`plugin/answer.rs`).
//! Both end with it.

use std::ffi::CString;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicI32, AtomicPtr, Ordering};

/// The file to remove: a C string, or null.
static FILE: AtomicPtr<libc::c_char> = AtomicPtr::new(null_mut());
/// The group of processes to kill, or 0.
static GROUP: AtomicI32 = AtomicI32::new(0);

/// Has a signal remove the file `path`, instead of the one that was named before.
pub fn removes(path: CString) {
    watch();
    forget(FILE.swap(path.into_raw(), Ordering::SeqCst));
}

/// The file is complete, or removed.
pub fn removes_nothing() {
    forget(FILE.swap(null_mut(), Ordering::SeqCst));
}

fn forget(path: *mut libc::c_char) {
    if !path.is_null() {
        // SAFETY: only `removes` stores pointers here, each from `into_raw`. Whoever swaps one out is its
        // only owner.
        drop(unsafe { CString::from_raw(path) });
    }
}

/// A group of processes that a signal kills. When this is dropped, the group is killed as well.
pub struct Group(i32);

impl Group {
    /// `leader` leads the group, and has not been waited for. There is one group at a time.
    pub fn of(leader: u32) -> Self {
        watch();
        let group = leader as i32;
        GROUP.store(group, Ordering::SeqCst);
        Self(group)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // A signal between the two kills the group a second time, and its leader has not been waited for.
        // SAFETY: takes no pointer.
        unsafe { libc::kill(-self.0, libc::SIGKILL) };
        GROUP.store(0, Ordering::SeqCst);
    }
}

/// Takes the signals. One that was ignored or handled before is left alone.
fn watch() {
    extern "C" fn end(signal: libc::c_int) {
        let path = FILE.swap(null_mut(), Ordering::SeqCst);
        let group = GROUP.swap(0, Ordering::SeqCst);
        // SAFETY: a C string that nobody else owns any more, and async-signal-safe calls only.
        unsafe {
            if !path.is_null() {
                libc::unlink(path);
            }
            if group != 0 {
                libc::kill(-group, libc::SIGKILL);
            }
            libc::signal(signal, libc::SIG_DFL);
            libc::raise(signal);
        }
    }
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT] {
        // SAFETY: a zeroed `sigaction` is valid; both outlive the calls.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            libc::sigaction(signal, std::ptr::null(), &mut action);
            if action.sa_sigaction == libc::SIG_DFL {
                action.sa_sigaction = end as *const () as usize;
                action.sa_flags = libc::SA_NODEFER;
                libc::sigaction(signal, &action, null_mut());
            }
        }
    }
}
