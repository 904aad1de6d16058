//! Cleans up when a signal ends a command.
//!
//! People and their tools end a command with SIGINT, SIGTERM, SIGHUP or SIGQUIT. The command may
//! then have written a part of a file, or have started a process group that examines a plugin
//! (`plugin/answer.rs`). So the file is removed and the group is killed.

use std::ffi::CString;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, Ordering};

/// The file that is removed if a signal ends this process, as a C string, or null.
static FILE: AtomicPtr<libc::c_char> = AtomicPtr::new(null_mut());
/// The process group that is killed if a signal ends this process, or 0.
static GROUP: AtomicI32 = AtomicI32::new(0);
/// Whether a process is being started, so that its group is not known yet.
static STARTING: AtomicBool = AtomicBool::new(false);
/// A signal that arrived while a process was being started and has not been handled yet, or 0.
static LATE: AtomicI32 = AtomicI32::new(0);

/// From now on, a signal that ends this process removes the file at `path`. An earlier call's file
/// is then no longer removed.
pub fn removes(path: CString) {
    watch();
    forget(FILE.swap(path.into_raw(), Ordering::SeqCst));
}

/// From now on, a signal that ends this process removes no file.
pub fn removes_nothing() {
    forget(FILE.swap(null_mut(), Ordering::SeqCst));
}

fn forget(path: *mut libc::c_char) {
    if !path.is_null() {
        // SAFETY: only `removes` stores pointers other than null in `FILE`, each from `into_raw`.
        // `swap` takes a pointer out, so the function that called `swap` is the only owner of the
        // pointer.
        drop(unsafe { CString::from_raw(path) });
    }
}

/// A process group that is killed when a signal ends this process, or when this value is dropped.
pub struct Group(i32);

impl Group {
    /// Starts a process that leads a new process group. At most one `Group` may exist at a time. A
    /// signal that arrives on any thread during the start is held back until the group is known.
    /// Then the signal ends the group and this process. The signals are not blocked during the
    /// start, because other threads could still receive them, and the new process would have to
    /// unblock them.
    ///
    /// # Errors
    /// Returns an error if the process cannot be started.
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
        // A signal that arrives between `kill` and `store` kills the group a second time. The
        // group's leader has not been waited for yet, so its id is not used for another process.
        // SAFETY: `kill` takes numbers only.
        unsafe { libc::kill(-self.0, libc::SIGKILL) };
        GROUP.store(0, Ordering::SeqCst);
    }
}

/// Installs the handler for the four signals that end a command. Signals that are ignored or
/// already have a handler are not changed.
fn watch() {
    extern "C" fn end(signal: libc::c_int) {
        if STARTING.load(Ordering::SeqCst) {
            LATE.store(signal, Ordering::SeqCst);
            // `start` may have finished in the meantime. Then either this handler takes the signal
            // out of `LATE` and continues, or `start` has taken it and raises it again.
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
        // SAFETY: a `sigaction` may consist of zero bytes, and `action` outlives both calls.
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

    /// The variable that passes the signal's number to the process that the test starts.
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
            // `sleep` has inherited the pipe, so the thread reads the end of the pipe only after
            // `sleep` has ended.
            is_ended.recv_timeout(Duration::from_secs(60)).unwrap();
        }
    }

    /// Starts `sleep` as a [`Group`]. The new process sends `signal` to this process before it
    /// executes `sleep`, while `spawn` has not returned.
    fn start_and_wait(signal: libc::c_int) {
        let mut command = Command::new("sleep");
        command.arg("600");
        // SAFETY: the closure only calls async-signal-safe functions, which take numbers only.
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
