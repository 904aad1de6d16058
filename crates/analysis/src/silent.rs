//! Finds the threads that made no recorded call. The profile contains the processor time of such
//! threads, because the recorder in the process reads it when the process or the recording session
//! ends.

use std::collections::HashSet;

use profile::{Profile, Thread};

use crate::threads::ThreadTime;

/// For threads that ended before their process, less processor time than this, in ns, is not
/// reported. Such a time is computed as a difference of numbers that were not read at the same
/// moment.
const LEAST_NS: f64 = 1e6;

/// One thread without calls, or all such threads that ended before their process.
#[derive(Clone, Debug, PartialEq)]
pub struct SilentThread {
    /// Process index.
    pub process: usize,
    /// The operating system's id of the thread, and its name. `None` stands for all threads without
    /// calls that ended before the process.
    pub thread: Option<(u32, String)>,
    /// Processor time in ns, from the start of the thread. It includes nothing after the end of the
    /// process or of the recording session.
    pub cpu_ns: f64,
}

/// Returns the threads without calls, for all processes that have calls. In each process, the
/// threads are sorted by processor time, the most first. Last comes the entry for threads that
/// ended before the process. Threads of a process that did not end in an orderly way are left out,
/// because their times are not known.
pub(crate) fn silent(profile: &Profile, threads: &[ThreadTime]) -> Vec<SilentThread> {
    let mut all = Vec::new();
    let mut processes: Vec<usize> = threads.iter().map(|thread| thread.process).collect();
    processes.dedup();
    for process in processes {
        let of = &profile.processes[process];
        let Some(at_end) = &of.thread_times else { continue };
        // Plugins can record calls in this process, and `profile.processes` has separate entries
        // for them. So the threads of all entries of this process are collected. `member` and
        // `pass` are compared, too, because processes of other machines or runs may have the same
        // ids.
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

/// Returns the processor time of a thread that has ended, from its start to its end. `None` if the
/// thread's last page (block of recorded calls) was not finished, or was written by an older
/// version.
fn life_ns(thread: &Thread) -> Option<f64> {
    Some(thread.headers().next_back()?.usage_end?.cpu_ns as f64)
}
