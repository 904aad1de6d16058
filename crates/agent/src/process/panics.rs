//! Catches internal panics before they reach the host, and switches the agent off.

use model::Loss;

use crate::os::own_stack;
use crate::os::sys::{self, ErrnoGuard};
use crate::process::losses;
use crate::process::part::Process;
use crate::state::{epoch, run, run_file};

/// Runs agent code that might panic. After a panic, switches the agent off and returns `None`.
/// `body` must not call the host's code, because the agent must not catch the host's exceptions.
#[inline(always)]
pub fn guarded<T>(body: impl FnOnce() -> T) -> Option<T> {
    match std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)) {
        Ok(result) => Some(result),
        Err(panic) => {
            caught(panic);
            None
        }
    }
}

/// Does what [`guarded`] does on a separate stack ([`own_stack`]), for work that needs more than 1
/// KiB of stack. Also returns `None` if there is no memory for such a stack. Most signals are
/// blocked during the work.
#[inline(always)]
pub fn guarded_apart<T>(body: impl FnOnce() -> T) -> Option<T> {
    own_stack::run(|| guarded(body)).ok().flatten()
}

#[cold]
#[inline(never)]
fn caught(panic: Box<dyn std::any::Any + Send>) {
    // Dropping the payload could panic again.
    std::mem::forget(panic);
    let _errno = ErrnoGuard::new();
    switch_off_after_error();
}
/// Switches the agent off after an internal error. Counts a loss, or writes a line to stderr if it
/// cannot be counted. Does neither if the agent was already off, or if nothing was being recorded
/// and the environment asks for no profile.
fn switch_off_after_error() {
    let before = epoch::switch_off();
    if before == epoch::OFF || before == epoch::IDLE && !run_file::is_asked_for() {
        return;
    }
    if let Some(process) = run::current().and_then(Process::existing) {
        return process.lose(Loss::AgentDisabled, 1, 0);
    }
    let mut counted = false;
    losses::with_run_row(|row| {
        row.lose(Loss::AgentDisabled, 1, 0);
        counted = true;
    });
    if !counted {
        sys::complain("counterpoint: the recorder turned itself off after an error of its own\n");
    }
}
