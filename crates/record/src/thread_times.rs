//! The processor time of each thread of a process, as the kernel had counted it when the process or
//! the session ended. Also of threads that recorded nothing, which have no pages.

use crate::wire::{Decoder, Encoder, Truncated};

/// The processor time of one thread, from its begin on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ThreadCpu {
    /// The kernel's id of the thread.
    pub tid: u32,
    /// Its name.
    pub name: String,
    /// Its processor time in ns.
    pub cpu_ns: u64,
}

/// The largest number of threads that are listed.
pub const MOST_THREADS: usize = 1024;

/// Writes the payload of the frame.
pub(crate) fn put(e: &mut Encoder, threads: &[ThreadCpu]) {
    e.u32(threads.len() as u32);
    for thread in threads {
        e.u32(thread.tid).u64(thread.cpu_ns).str(&thread.name);
    }
}

/// Reads the payload of the frame.
pub(crate) fn get(d: &mut Decoder<'_>) -> Result<Vec<ThreadCpu>, Truncated> {
    let one = |d: &mut Decoder<'_>| {
        let (tid, cpu_ns, name) = (d.u32()?, d.u64()?, d.string()?);
        Ok(ThreadCpu { tid, name, cpu_ns })
    };
    (0..d.u32()?).map(|_| one(d)).collect()
}
