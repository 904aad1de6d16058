//! Newtypes for the numbers that travel through records.

use std::fmt;

/// One exported function of one loaded executable, numbered from 0 in the order in which a
/// process saw them. A module that is unloaded and loaded again keeps its ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ExportId(pub u32);

/// One thread of one process, numbered from 0 in the order in which threads made their first
/// recorded call. Kernel thread ids are reused by the kernel; these are not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ThreadUid(pub u32);

impl fmt::Display for ExportId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "export {}", self.0)
    }
}

impl fmt::Display for ThreadUid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "thread {}", self.0)
    }
}
