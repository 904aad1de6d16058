//! Sessions: recording that begins and ends within one process, any number of times, each with a run
//! file of its own.
//!
//! ```text
//!  begin   read the run file, map its pool ─► a new epoch
//!  end     the calling thread leaves ─► no epoch ─► the process's row says that it has left
//! ```
//!
//! Other threads notice at their next call that their state is of another epoch: they close their
//! counters and give up their page, which was or will be collected from the pool, and attach anew if
//! there is a session. One that is inside a call meanwhile does not record that call.
//!
//! What a session leaves in the process is taken over by the next one, unless a thread is still in a
//! call or has not called since: what was mapped of the pool before its pages (1.1 MiB of address
//! space, some 20 KiB of memory), and 20 KiB of its own. What it leaves for good are the names of its
//! files and its list of counters, about 1 KiB.

use std::ffi::CStr;
use std::sync::atomic::Ordering;

use abi::agent::{AgentState, session};
use model::Loss;

use crate::entry::c_interface;
use crate::os::kept::keep;
use crate::os::sys::ErrnoGuard;
use crate::process::part::{Lock, Process};
use crate::recorder::fork;
use crate::recorder::thread;
use crate::recorder::thread::guarded;
use crate::state::run;

/// Begins to record what the run file at `path` says. One of the numbers of [`session`].
pub fn begin(path: &CStr) -> i32 {
    let _errno = ErrnoGuard::new();
    guarded(|| begin_unguarded(path)).unwrap_or(session::OFF)
}

fn begin_unguarded(path: &CStr) -> i32 {
    point!(SessionBegin);
    if run::is_off() || run::state() == AgentState::Quiet {
        return session::OFF;
    }
    if run::is_asked_for() {
        return session::JOINED;
    }
    let Some(lock) = Lock::take() else { return session::BUSY };
    if run::current().is_some() {
        return session::BUSY;
    }
    if c_interface::another_is_first() {
        run::be_quiet();
        return session::OFF;
    }
    let Some(run) = run::read_session(path, &lock) else { return session::UNUSABLE };
    fork::forget_private_pages();
    run::begin(keep(run));
    session::BEGAN
}

/// Ends it. 0, or 1 if there was none.
pub fn end() -> i32 {
    let _errno = ErrnoGuard::new();
    guarded(|| {
        point!(SessionEnd);
    });
    if run::is_asked_for() {
        return 1;
    }
    let Some(lock) = Lock::take() else { return 1 };
    let Some(run) = run::current() else { return 1 };
    guarded(thread::at_session_end);
    run.ended.store(true, Ordering::SeqCst);
    run::pause();
    guarded(|| {
        if let Some(process) = Process::existing(run) {
            process.leave();
            run.pool.unmap_free_pages(process.row_number());
        }
    });
    run::forget();
    run::retire(run, &lock);
    0
}

/// Now, on the clock of the records; 0 if nothing records.
pub fn ticks() -> u64 {
    run::current().filter(|_| run::wanted()).map_or(0, |run| run.clock.begin())
}

/// The path of the profile that is being recorded.
pub fn profile() -> Option<&'static str> {
    let _errno = ErrnoGuard::new();
    guarded(run::load).flatten().map(|run| run.profile.as_str())
}

/// Counts a loss of this process by its name: 0, 1 if nothing records, -1 if there is no such loss.
pub fn lose(name: &CStr, count: u64) -> i32 {
    let named = |loss: &&Loss| loss.name().as_bytes() == name.to_bytes();
    let Some(loss) = Loss::ALL.iter().find(named) else { return -1 };
    let Some(run) = run::current().filter(|_| run::wanted()) else { return 1 };
    match Process::existing(run) {
        Some(process) => process.lose(*loss, count, 0),
        None => run.pool.run_row().lose(*loss, count, 0),
    }
    0
}
