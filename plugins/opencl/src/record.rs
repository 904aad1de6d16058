//! Calls of the program, and the commands that they enqueue.

use std::sync::Arc;

use crate::api::Code;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// A kernel.
    Kernel,
    /// Moves bytes.
    Copy,
    /// Writes one pattern many times.
    Fill,
}

#[derive(Clone, Debug)]
pub enum Name {
    /// What the command does, such as `write buffer`.
    Fixed(&'static str),
    Kernel(Arc<str>),
}

/// The index space of a kernel. Only the first `dimensions` numbers of each array are used.
#[derive(Clone, Debug)]
pub struct Sizes {
    /// The number of dimensions, from 1 to 3.
    pub dimensions: usize,
    /// Work items.
    pub global: [i64; 3],
    /// Work items of a workgroup; `None` if the implementation chose them.
    pub local: Option<[i64; 3]>,
    /// The first index in each dimension; `None` means 0.
    pub offset: Option<[i64; 3]>,
}

#[derive(Clone, Debug)]
pub struct Command {
    pub work: Work,
    pub name: Name,
    /// Bytes that the command moves or fills, if known.
    pub bytes: Option<u64>,
    pub sizes: Option<Box<Sizes>>,
}

impl Command {
    pub fn new(work: Work, name: &'static str, bytes: Option<u64>) -> Self {
        Self { work, name: Name::Fixed(name), bytes, sizes: None }
    }
}

/// A call of an OpenCL function by the program. Times are ns since 1970 UTC.
#[derive(Clone, Debug)]
pub struct Call {
    pub name: &'static str,
    pub thread: i32,
    pub start_ns: i64,
    pub end_ns: i64,
    /// 0, or an error.
    pub code: Code,
    /// Number of the queue that the call names, if any.
    pub queue: Option<i32>,
    /// Id of the host's innermost op around the call, or of its innermost range if there was no op.
    pub op: Option<u64>,
}

pub fn unix_ns() -> i64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` outlives the call, and this clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_REALTIME, &raw mut time) };
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}
