//! Counts losses (things that could not be recorded) at any point in the life of the process.

use model::Loss;
use record::RunFile;
use record::pool::Row;

use crate::os::own_stack;
use crate::os::sys;
use crate::process::part::Process;
use crate::state::{run, run_file, source};

/// Counts a loss if the process already has its own row in the table of losses. The table is in the
/// pool, the memory that `counterpoint run` shares with the processes of a run.
#[cold]
#[inline(never)]
pub fn lose(loss: Loss, count: u64, errno: i32) {
    if let Some(process) = run::current().and_then(Process::existing) {
        process.lose(loss, count, errno);
    }
}

/// Calls `body` with the run's own row of losses, which all processes of the run share. Also works
/// in a process that has a run file but has not loaded the run. Neither allocates heap memory nor
/// locks.
pub fn with_run_row(body: impl FnOnce(&Row)) {
    if let Some(run) = run::current() {
        return body(run.pool.run_row());
    }
    if !run_file::is_asked_for() || source::current().is_some() {
        return;
    }
    // If there is no memory for a separate stack, `body` is not called.
    let _ = own_stack::run(|| {
        // SAFETY: without a source of runs (an adapter's own way to ask for a profile), only the
        // constructor writes the path, and the constructor ran before.
        let path = unsafe { run_file::path() };
        let mut pool = [0u8; run_file::PATH_BYTES];
        if let Ok(file) = sys::Descriptor::open(path, libc::O_RDONLY)
            && let Some(pool) = RunFile::find_pool(|at, to| file.read_at(at, to), &mut pool)
        {
            let _ = record::pool::with_run_row(pool, body);
        }
    });
}
