//! Calls of the program, and the commands that they enqueue.

use std::sync::Arc;

use crate::api::Code;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// The command runs a kernel.
    Kernel,
    /// The command moves bytes.
    Copy,
    /// The command writes one pattern many times.
    Fill,
}

/// A name that is known at compile time, or one that the program chose.
#[derive(Clone, Debug)]
pub enum Name {
    /// A name for what the command does, such as `write buffer`.
    Fixed(&'static str),
    /// The name of a kernel.
    Kernel(Arc<str>),
}

/// The index space of a kernel. Only the first `dimensions` numbers of each array are meaningful.
#[derive(Clone, Debug)]
pub struct Sizes {
    /// The number of dimensions, from 1 to 3.
    pub dimensions: usize,
    /// Numbers of work items.
    pub global: [i64; 3],
    /// Numbers of work items in a workgroup; `None` if the implementation chose them.
    pub local: Option<[i64; 3]>,
    /// First index in each dimension; `None` if the program gave none, which means 0.
    pub offset: Option<[i64; 3]>,
}

/// Work for a device.
#[derive(Clone, Debug)]
pub struct Command {
    pub work: Work,
    pub name: Name,
    /// Number of bytes that the command moves or fills, if it is known.
    pub bytes: Option<u64>,
    /// The index space of a kernel.
    pub sizes: Option<Box<Sizes>>,
}

impl Command {
    /// Makes a command without an index space.
    pub fn new(work: Work, name: &'static str, bytes: Option<u64>) -> Self {
        Self { work, name: Name::Fixed(name), bytes, sizes: None }
    }
}

/// A call of the program. Times are ns since 1970 UTC.
#[derive(Clone, Debug)]
pub struct Call {
    /// The function.
    pub name: &'static str,
    pub thread: i32,
    /// Time at which the call began.
    pub start_ns: i64,
    /// Time at which the call returned.
    pub end_ns: i64,
    /// Result of the call: 0, or an error.
    pub code: Code,
    /// Number of the queue that the call names, if it names one.
    pub queue: Option<i32>,
    /// Id of the op in which the call was made, or of the range if there was no op.
    pub op: Option<u64>,
}

/// Returns the time in nanoseconds since 1970 UTC.
pub fn unix_ns() -> i64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` outlives the call, and this clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_REALTIME, &raw mut time) };
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}
