//! Cleans up when a signal ends a command.
//!
//! SIGINT, SIGTERM, SIGHUP and SIGQUIT are how people and their tools end a command. By then, the
//! command may have written a file that is not complete, or started a group of processes to ask a
//! plugin (`plugin/answer.rs`). The signal handler removes the file and kills the group.

use std::ffi::CString;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, Ordering};

/// The file to remove: a C string, or null.
static FILE: AtomicPtr<libc::c_char> = AtomicPtr::new(null_mut());
/// The id of the group of processes to kill, or 0.
static GROUP: AtomicI32 = AtomicI32::new(0);
/// Whether a process is being started, so that the id of its group is not known yet.
static STARTING: AtomicBool = AtomicBool::new(false);
/// A signal that came while a process was being started and that has not taken effect, or 0.
static LATE: AtomicI32 = AtomicI32::new(0);

/// From now on, a signal removes the file `path` instead of the file that was named before.
pub fn removes(path: CString) {
    watch();
    forget(FILE.swap(path.into_raw(), Ordering::SeqCst));
}

/// From now on, a signal removes no file: the file is complete, or was removed.
pub fn removes_nothing() {
    forget(FILE.swap(null_mut(), Ordering::SeqCst));
}

fn forget(path: *mut libc::c_char) {
    if !path.is_null() {
        // SAFETY: only `removes` stores pointers here, each from `into_raw`. A pointer is taken out
        // with `swap`, so whoever has taken it is its only owner.
        drop(unsafe { CString::from_raw(path) });
    }
}

/// A group of processes that a signal kills. Dropping this value kills the group as well.
pub struct Group(i32);

impl Group {
    /// Starts a process that leads a group of its own. There is one group at a time. A signal that
    /// comes meanwhile, on whichever thread, waits until the group is known, and then ends the
    /// group and this process. Blocking the signals instead would delay them on this thread only,
    /// and the new process would have to unblock them.
    ///
    /// # Errors
    /// The process cannot be started.
    pub fn start(command: &mut Command) -> io::Result<(Child, Self)> {
        watch();
        STARTING.store(true, Ordering::SeqCst);
        let started = command.process_group(0).spawn().map(|child| {
            let group = child.id() as i32;
            GROUP.store(group, Ordering::SeqCst);
            (child, Self(group))
        });
        STARTING.store(false, Ordering::SeqCst);
        let late = LATE.swap(0, Ordering::SeqCst);
        if late != 0 {
            // SAFETY: `raise` takes a number only.
            unsafe { libc::raise(late) };
        }
        started
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // A signal between the two kills the group a second time, and its leader has not been waited for.
        // SAFETY: `kill` takes numbers only.
        unsafe { libc::kill(-self.0, libc::SIGKILL) };
        GROUP.store(0, Ordering::SeqCst);
    }
}

/// Installs the handler for the four signals. A signal that is ignored or has a handler already is
/// left alone.
fn watch() {
    extern "C" fn end(signal: libc::c_int) {
        if STARTING.load(Ordering::SeqCst) {
            LATE.store(signal, Ordering::SeqCst);
            // If the process has been started in the meantime, either the handler takes the signal
            // back here, or `start` has taken it and raises it again.
            if STARTING.load(Ordering::SeqCst) || LATE.swap(0, Ordering::SeqCst) == 0 {
                return;
            }
        }
        let path = FILE.swap(null_mut(), Ordering::SeqCst);
        let group = GROUP.swap(0, Ordering::SeqCst);
        // SAFETY: `path` is null or a C string that nobody else owns any more, and the calls are
        // async-signal-safe.
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
        // SAFETY: zeros are a value of `sigaction`, and both actions outlive the calls.
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use std::io::Read;
    use std::os::unix::process::ExitStatusExt;
    use std::process::Stdio;
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    /// The variable that gives the signal to the process that this test starts.
    const SIGNAL: &str = "COUNTERPOINT_TEST_SIGNAL";

    #[test]
    fn a_signal_while_a_process_is_started_leaves_nothing_behind() {
        if let Ok(signal) = std::env::var(SIGNAL) {
            start_and_wait(signal.parse().unwrap());
            return;
        }
        for signal in [libc::SIGINT, libc::SIGTERM] {
            let mut host = Command::new(std::env::current_exe().unwrap());
            host.args(["--exact", "--nocapture"]);
            host.arg("ending::tests::a_signal_while_a_process_is_started_leaves_nothing_behind");
            host.env(SIGNAL, signal.to_string()).stdout(Stdio::piped()).stderr(Stdio::null());
            let mut host = host.spawn().unwrap();
            let mut pipe = host.stdout.take().unwrap();
            let (ended, is_ended) = mpsc::channel();
            std::thread::spawn(move || {
                pipe.read_to_end(&mut Vec::new()).unwrap();
                ended.send(()).unwrap();
            });
            assert_eq!(host.wait().unwrap().signal(), Some(signal));
            // The started process has the pipe open for as long as it lives.
            is_ended.recv_timeout(Duration::from_secs(60)).unwrap();
        }
    }

    /// Sends itself the signal when the child exists but `spawn` has not returned.
    fn start_and_wait(signal: libc::c_int) {
        let mut command = Command::new("sleep");
        command.arg("600");
        // SAFETY: the handler only calls async-signal-safe functions, which take numbers only.
        unsafe {
            command.pre_exec(move || {
                libc::kill(libc::getppid(), signal);
                Ok(())
            });
        }
        let (mut child, _group) = Group::start(&mut command).unwrap();
        child.wait().unwrap();
    }
}
