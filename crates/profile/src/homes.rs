//! Threads that have two sources of calls.
//!
//! ```text
//!  4711 python              thread 4712   aten::mm ├──┤      ├──┤      recorded live
//!  PyTorch of python 4711   thread 4712   step() ├─────────────────┤   by PyTorch's own profiler
//! ```
//!
//! A profiler of the host (PyTorch's) has functions that are not recorded live. They are calls of a
//! part of their own, but on the same thread of the kernel. Only together do they say what each of
//! these functions did itself, and for how long the thread was in calls.

use std::collections::HashMap;

use crate::Profile;

/// The threads whose calls are also on another thread of the profile. See [`Profile::homes`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Homes {
    by_thread: HashMap<(usize, usize), (usize, usize)>,
}

impl Homes {
    /// The thread that these calls are on, as process and thread index: the one that was recorded live,
    /// if there is one.
    pub fn of(&self, thread: (usize, usize)) -> (usize, usize) {
        self.by_thread.get(&thread).copied().unwrap_or(thread)
    }

    /// Whether no thread has two sources.
    pub fn is_empty(&self) -> bool {
        self.by_thread.is_empty()
    }
}

impl Profile {
    /// Finds the threads that events of plugins and of PyTorch's profiler are on. If the kernel used the
    /// id of a thread again, it is not known which of the threads is meant, and none is found.
    pub fn homes(&self) -> Homes {
        let mut by_thread = HashMap::new();
        for (process, of_plugins) in self.processes.iter().enumerate() {
            let Some(owner) = of_plugins.id.owner() else { continue };
            let Some(home) = self.processes.iter().position(|p| p.id == owner) else { continue };
            for (thread, row) in of_plugins.threads.iter().enumerate() {
                let threads = self.processes[home].threads.iter().enumerate();
                let mut same = threads.filter(|(_, t)| t.tid == row.tid && row.tid != 0);
                if let (Some((found, _)), None) = (same.next(), same.next()) {
                    by_thread.insert((process, thread), (home, found));
                }
            }
        }
        Homes { by_thread }
    }
}
