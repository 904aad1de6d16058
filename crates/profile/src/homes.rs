//! Finds threads whose calls come from two sources: the recorder, and a plugin or a profiler of the
//! host.
//!
//! ```text
//!  4711 python              thread 4712   aten::mm ├──┤      ├──┤      recorded live
//!  PyTorch of python 4711   thread 4712   step() ├─────────────────┤   by PyTorch's own profiler
//! ```
//!
//! A profiler of the host, such as PyTorch's, reports functions that the recorder does not record.
//! The calls of these functions are in a separate part (directory) of the profile, but ran on the
//! same operating-system thread. Self times, and the time that the thread spent in calls, must be
//! computed from both sources together.

use std::collections::HashMap;

use crate::{Process, Profile};

/// Maps threads of a plugin or a profiler of the host to recorded threads. See [`Profile::homes`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Homes {
    by_thread: HashMap<(usize, usize), (usize, usize)>,
}

impl Homes {
    /// Returns the indices of the process and the thread on which the calls of `thread` ran: the
    /// recorded thread if there is one, else `thread` itself.
    pub fn of(&self, thread: (usize, usize)) -> (usize, usize) {
        self.by_thread.get(&thread).copied().unwrap_or(thread)
    }

    /// Returns whether no thread has two sources.
    pub fn is_empty(&self) -> bool {
        self.by_thread.is_empty()
    }
}

impl Profile {
    /// Finds the recorded threads on which the calls from plugins and from PyTorch's profiler ran.
    /// If several recorded threads had the same operating-system id, a plugin's thread with this id
    /// is mapped to none of them.
    pub fn homes(&self) -> Homes {
        let mut by_thread = HashMap::new();
        for (process, of_plugins) in self.processes.iter().enumerate() {
            let Some(owner) = of_plugins.id.owner() else { continue };
            // A plugin's part whose number is not the process id contains the streams of a device.
            // The numbers of streams may equal the ids of threads by chance.
            if of_plugins.number() != owner.pid {
                continue;
            }
            let is_home = |p: &Process| {
                p.id == owner && (p.member, p.pass) == (of_plugins.member, of_plugins.pass)
            };
            let Some(home) = self.processes.iter().position(is_home) else { continue };
            let threads = self.processes[home].by_tid();
            for (thread, row) in of_plugins.threads.iter().enumerate() {
                if let Some(Some(found)) = threads.get(&row.tid) {
                    by_thread.insert((process, thread), (home, *found));
                }
            }
        }
        Homes { by_thread }
    }
}

impl Process {
    /// Returns the index of each thread by the operating system's thread id; `None` for an id that
    /// several threads had.
    fn by_tid(&self) -> HashMap<u32, Option<usize>> {
        let mut threads = HashMap::new();
        for (at, thread) in self.threads.iter().enumerate().filter(|(_, thread)| thread.tid != 0) {
            threads.entry(thread.tid).and_modify(|known| *known = None).or_insert(Some(at));
        }
        threads
    }
}
