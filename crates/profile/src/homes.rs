//! Finds threads whose calls come from two sources: the recorder, and a plugin or a profiler of the
//! host.
//!
//! ```text
//!  4711 python              thread 4712   aten::mm ├──┤      ├──┤      recorded live
//!  PyTorch of python 4711   thread 4712   step() ├─────────────────┤   by PyTorch's own profiler
//! ```
//!
//! A profiler of the host, such as PyTorch's, reports functions that the recorder does not record.
//! Their calls are in a separate part of the profile, but ran on the same thread of the kernel. The
//! self time of these functions, and the time that the thread was in calls, can only be computed
//! from both sources together.

use std::collections::HashMap;

use crate::{Process, Profile};

/// Maps threads that a plugin or a profiler of the host reported to the recorded threads that they
/// are. See [`Profile::homes`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Homes {
    by_thread: HashMap<(usize, usize), (usize, usize)>,
}

impl Homes {
    /// Returns the indices of the process and the thread on which the calls of `thread` ran. If the
    /// recorder recorded this thread, too, the result is the recorded thread; otherwise, it is
    /// `thread`.
    pub fn of(&self, thread: (usize, usize)) -> (usize, usize) {
        self.by_thread.get(&thread).copied().unwrap_or(thread)
    }

    /// Returns whether no thread has two sources.
    pub fn is_empty(&self) -> bool {
        self.by_thread.is_empty()
    }
}

impl Profile {
    /// Finds the threads to which events of plugins and of PyTorch's profiler belong. If the kernel
    /// has used the id of a thread again, it is not known which of these threads is the right one,
    /// and none is returned.
    pub fn homes(&self) -> Homes {
        let mut by_thread = HashMap::new();
        for (process, of_plugins) in self.processes.iter().enumerate() {
            let Some(owner) = of_plugins.id.owner() else { continue };
            // These rows belong to a device. They are its streams, and their numbers may equal
            // those of threads by chance.
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
    /// Returns the index of each thread by the kernel's id of the thread; `None` for an id that
    /// several threads had.
    fn by_tid(&self) -> HashMap<u32, Option<usize>> {
        let mut threads = HashMap::new();
        for (at, thread) in self.threads.iter().enumerate().filter(|(_, thread)| thread.tid != 0) {
            threads.entry(thread.tid).and_modify(|known| *known = None).or_insert(Some(at));
        }
        threads
    }
}
