//! Ends a recording on a thread of its own, so that a plugin that hangs cannot keep the program from
//! ending. The thread exists only for the end.

use std::sync::mpsc::{RecvTimeoutError, channel};

use super::recording::Recording;
use super::{control, held};
use crate::os::sys;
use crate::process::guard::guarded;

/// Stops the plugins, takes their events and ends their files. Gives up after a call that takes too
/// long: then a file has no end, and says which call it was.
pub fn end() {
    let Some(recording) = held::take() else { return };
    control::wake();
    let (done, ended) = channel();
    let (hand_over, take) = channel();
    let work = move || {
        if let Ok(recording) = take.recv() {
            guarded(|| Recording::end(recording));
        }
        let _ = done.send(());
    };
    // The thread inherits the mask, so it gets none of the program's signals.
    let calm = sys::SignalsBlocked::new();
    let thread = std::thread::Builder::new().name("plugins end".into()).spawn(work);
    drop(calm);
    match thread {
        Ok(_) => {
            if hand_over.send(recording).is_err() {
                return;
            }
            held::patiently(|left| match ended.recv_timeout(left) {
                Err(RecvTimeoutError::Timeout) => None,
                Ok(()) | Err(RecvTimeoutError::Disconnected) => Some(()),
            });
        }
        // A program that may start no thread (RLIMIT_NPROC, seccomp) waits however long it takes.
        Err(_) => _ = guarded(|| recording.end()),
    }
}
