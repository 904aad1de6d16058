//! Sessions: recording that begins and ends within one process, any number of times. Each session
//! has its own run file.
//!
//! ```text
//!  begin   read the run file, map its pool ─► a new epoch
//!  end     the calling thread leaves ─► no epoch ─► the process's row says that it has left
//! ```
//!
//! After a session has ended, each other thread notices at its next recorded call that its state
//! belongs to another epoch (number of a recording). If a new session has begun by then, the thread
//! closes its counters, leaves its page (the memory for its records) in the old session's pool, and
//! attaches again. If a session ends while a thread is inside a call, that call is not recorded.
//!
//! After a session, two things stay allocated: the mapping of what precedes the pages in the pool
//! (1.1 MiB of address space, some 20 KiB of memory), and 20 KiB of the session's own data. The
//! next session reuses both, unless a thread still has state of the ended session. The names of the
//! session's files and its list of counters, about 1 KiB, are never freed.

use std::ffi::CStr;
use std::sync::atomic::Ordering;

use abi::agent::session;
use model::Loss;

use crate::entry::adapters::ADAPTERS;
use crate::entry::one_agent;
use crate::os::kept::keep;
use crate::os::sys::ErrnoGuard;
use crate::process::load;
use crate::process::lock::Lock;
use crate::process::panics::{guarded, guarded_apart};
use crate::process::part::Process;
use crate::recorder::{attach, handler_fork};
use crate::state::run::{self, Run};
use crate::state::{epoch, run_file};

/// The data ([`Run`]) of sessions that have ended. The next session reuses the memory of a run that
/// no thread uses any more. Protected by [`Lock`].
static mut ENDED: Vec<&'static Run> = Vec::new();

fn read_run(path: &CStr, _: &Lock) -> Option<Run> {
    // SAFETY: the `Lock` that the caller passes protects `ENDED`, and no other reference to it
    // exists meanwhile.
    let ended = unsafe { (&raw mut ENDED).as_mut() }?;
    // A thread that is attaching may have read an old run before the session of that run ended. So
    // no run is reused while a thread attaches.
    let calm = attach::nobody_attaches();
    let free = |run: &&Run| calm && run.threads.load(Ordering::SeqCst) == 0;
    let place = ended.iter().position(free);
    let run = run::read(path, place.map(|place| ended[place]))?;
    if let Some(place) = place {
        ended.swap_remove(place);
    }
    Some(run)
}

fn retire(run: &'static Run, _: &Lock) {
    // SAFETY: the `Lock` that the caller passes protects `ENDED`, and no other reference to it
    // exists meanwhile.
    if let Some(ended) = unsafe { (&raw mut ENDED).as_mut() } {
        ended.push(run);
    }
}

/// Begins a session with the run file at `path`. Returns one of the numbers of [`session`].
pub fn begin(path: &CStr) -> i32 {
    let _errno = ErrnoGuard::new();
    guarded_apart(|| begin_unguarded(path)).unwrap_or(session::OFF)
}

fn begin_unguarded(path: &CStr) -> i32 {
    point!(SessionBegin);
    if epoch::is_off() || one_agent::is_quiet() {
        return session::OFF;
    }
    if run_file::is_asked_for() {
        return session::JOINED;
    }
    let Some(lock) = Lock::take() else { return session::BUSY };
    if run::current().is_some() {
        return session::BUSY;
    }
    if one_agent::another_is_first() {
        one_agent::be_quiet();
        return session::OFF;
    }
    let Some(run) = read_run(path, &lock) else { return session::UNUSABLE };
    handler_fork::forget_private_pages();
    run::set(keep(run));
    load::note_loaded();
    epoch::begin_session();
    // The lock is given back first, because an adapter's `session_began` may take it, for example
    // to register modules.
    drop(lock);
    guarded(|| ADAPTERS.iter().for_each(|adapter| (adapter.session_began)()));
    session::BEGAN
}

/// Ends the session. Returns 0, or 1 if no session was ended, usually because none was in progress.
pub fn end() -> i32 {
    let _errno = ErrnoGuard::new();
    guarded(|| {
        point!(SessionEnd);
    });
    if run_file::is_asked_for() {
        return 1;
    }
    guarded(|| ADAPTERS.iter().for_each(|adapter| (adapter.session_ends)()));
    let Some(lock) = Lock::take() else { return 1 };
    let Some(run) = run::current() else { return 1 };
    attach::at_session_end();
    run.ended.store(true, Ordering::SeqCst);
    epoch::pause();
    attach::wait_for_leaving();
    guarded_apart(|| {
        if let Some(process) = Process::existing(run) {
            process.leave();
            run.pool.unmap_free_pages(process.row_number());
        }
    });
    run::forget();
    guarded_apart(|| retire(run, &lock));
    0
}

/// Returns the current time on the clock of the records, or 0 if nothing is being recorded.
pub fn ticks() -> u64 {
    run::current().filter(|_| epoch::wanted()).map_or(0, |run| run.clock.begin())
}

/// Returns the path of the profile that is being recorded, if any.
pub fn profile() -> Option<&'static str> {
    let _errno = ErrnoGuard::new();
    guarded_apart(load::load).flatten().map(|run| run.profile.as_str())
}

/// Counts the loss with this name for this process, or for the whole run if the process has no row
/// in the pool yet. Returns 0, or 1 if nothing is being recorded, or −1 if there is no such loss.
pub fn lose(name: &CStr, count: u64) -> i32 {
    let named = |loss: &&Loss| loss.name().as_bytes() == name.to_bytes();
    let Some(loss) = Loss::ALL.iter().find(named) else { return -1 };
    let Some(run) = run::current().filter(|_| epoch::wanted()) else { return 1 };
    match Process::existing(run) {
        Some(process) => process.lose(*loss, count, 0),
        None => run.pool.run_row().lose(*loss, count, 0),
    }
    0
}
