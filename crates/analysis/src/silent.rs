//! Finds threads of a program that made no recorded call. The profile has no pages of such threads,
//! but their processor time, which the recorder in the process reads when the process ends.

use std::collections::HashSet;

use profile::{Profile, Thread};

use crate::threads::ThreadTime;

/// Processor time below this, in ns, is not reported for threads that ended before the process:
/// this time is a difference of numbers that were not read at the same moment.
const LEAST_NS: f64 = 1e6;

/// One thread without calls, or all such threads that ended before their process.
#[derive(Clone, Debug, PartialEq)]
pub struct SilentThread {
    /// Process index.
    pub process: usize,
    /// The kernel's id and the name of the thread. `None` stands for all threads without calls that
    /// ended before the process.
    pub thread: Option<(u32, String)>,
    /// Processor time in ns, from the thread's start to the end of the process or session.
    pub cpu_ns: f64,
}

/// Returns the threads without calls, for all processes that have calls. In each process, the
/// thread with the most processor time comes first. Threads of a process that did not end in an
/// orderly way are left out, because their times are not known.
pub(crate) fn silent(profile: &Profile, threads: &[ThreadTime]) -> Vec<SilentThread> {
    let mut all = Vec::new();
    let mut processes: Vec<usize> = threads.iter().map(|thread| thread.process).collect();
    processes.dedup();
    for process in processes {
        let of = &profile.processes[process];
        let Some(at_end) = &of.thread_times else { continue };
        // The events of plugins in the same process are stored in separate parts of the profile.
        // Processes of other machines or runs may have the same ids as this process.
        let key = |p: &profile::Process| (p.member, p.pass, p.id.of_process());
        let same = profile.processes.iter().filter(|p| key(p) == key(of));
        let called: HashSet<u32> = same.flat_map(|p| &p.threads).map(|t| t.tid).collect();
        let silent = at_end.iter().filter(|thread| !called.contains(&thread.tid));
        let first = all.len();
        all.extend(silent.map(|thread| SilentThread {
            process,
            thread: Some((thread.tid, thread.name.clone())),
            cpu_ns: thread.cpu_ns as f64,
        }));
        all[first..].sort_by(|a, b| b.cpu_ns.total_cmp(&a.cpu_ns));
        let whole = of.cost.map(|cost| cost.process_cpu_ns as f64).filter(|ns| *ns > 0.0);
        let alive: HashSet<u32> = at_end.iter().map(|thread| thread.tid).collect();
        let ended = of.threads.iter().filter(|thread| !alive.contains(&thread.tid));
        let ended: Option<f64> = ended.map(life_ns).sum();
        let rest = whole.zip(ended).map(|(whole, ended)| {
            whole - ended - at_end.iter().map(|thread| thread.cpu_ns as f64).sum::<f64>()
        });
        all.extend(rest.filter(|ns| *ns >= LEAST_NS).map(|cpu_ns| SilentThread {
            process,
            thread: None,
            cpu_ns,
        }));
    }
    all
}

/// Returns the processor time of a thread that has ended, since its start. `None` if its last page
/// has no end, or was written by an older version.
fn life_ns(thread: &Thread) -> Option<f64> {
    Some(thread.headers().next_back()?.usage_end?.cpu_ns as f64)
}
