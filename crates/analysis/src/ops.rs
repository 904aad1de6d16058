//! Reads ops of virtual machines and of PyTorch as trees: runs of the model, the ops in them, and
//! the tasks of each op on pool threads.
//!
//! ```text
//!  launching thread   run ├───────────────────────────────────────────────────┤
//!                      op    ├───────────────┤    ├────────────────────────┤
//!                                            between      ├─ op ─┤   inside: not self time
//!                  region       ├──────────┤
//!                    task       ├─ 0 ─┤
//!  pool thread       task        ├── 1 ───┤        belongs to the region, because both
//!                                                  have the same region number
//! ```
//!
//! A thread's calls are recorded when they end. So the calls inside of a call are those that began
//! after its start, were recorded before it, and are not inside of another call yet. Finding them
//! takes one pass over the pages, with the calls of the current tree in memory. An earlier pass
//! ([`OpTrees::new`]) collects the tasks of all threads and, for each page, the earliest start of
//! any call in later pages. A tree is complete when no later call starts before the tree's end.
//!
//! A run is a call of an entry function. Each moment of a run belongs to the run itself (`own`:
//! before its first op and after its last one), to a gap between its ops (`between`), or to an op
//! or run inside. Regions and tasks are part of their op. Therefore the duration of a run is the
//! sum of `own`, `between` and all self times. The sum covers the ops of the run and, for runs
//! inside of it, also their `own`, `between` and ops.

mod rows;
mod tasks;
mod tree;

pub use rows::{CounterSum, OpRow, OpRowKind, OpTable, RegionSum, ValueSum};

use profile::Drawn;
use profile::{LossCount, OpId, Profile};

use crate::amounts::Brackets;
use crate::estimate::Estimate;
use tasks::Tasks;

/// Selects trees as a whole, by their outermost call.
#[derive(Clone, Debug, Default)]
pub struct OpFilter {
    /// If set, only trees of this virtual machine (or of PyTorch, named `torch`) are selected.
    pub machine: Option<String>,
    /// If set, only trees that began at this tick or later are selected.
    pub since: Option<u64>,
    /// If set, only trees that began before this tick are selected.
    pub until: Option<u64>,
}

/// A run: a call of an entry function. Times are in ticks.
#[derive(Clone, Debug)]
pub struct RunCall<'a> {
    /// The run's number among the visited runs, from 0.
    pub number: u64,
    /// The number of the innermost run that contains this run.
    pub parent: Option<u64>,
    /// Process index.
    pub process: usize,
    /// Thread index.
    pub thread: usize,
    /// The entry function.
    pub op: OpId,
    /// Whether the run ended with an error.
    pub failed: bool,
    /// If the run failed inside of an op, the innermost op that had not returned.
    pub failed_op: Option<OpId>,
    /// The run's start.
    pub start: u64,
    pub duration: u64,
    /// The run's duration as it is used in sums, without the recorder's time.
    pub time: Amount,
    /// The time from the run's start to the start of its first op; `None` without ops. Here and in
    /// the fields below, runs directly inside of this run count as ops.
    pub first_op: Option<u64>,
    /// The time between the run's ops.
    pub between: u64,
    /// The time before the first op and after the last one. Without ops, the whole duration.
    pub own: u64,
    /// `between` as it is used in sums, without the recorder's time.
    pub between_time: Amount,
    /// `own` as it is used in sums, without the recorder's time.
    pub own_time: Amount,
    /// Number of calls directly inside of the run for which counters were read.
    pub read_inside: u32,
    /// The value of each counter of the profile; `None` if not known.
    pub counters: &'a [Option<u64>],
    /// The counters without those of the run's ops. These counters cover `own`, `between` and the
    /// book-keeping ops.
    pub own_counters: &'a [Option<u64>],
    /// The run's parallel regions that belong to no op.
    pub regions: &'a [Region],
    /// In a run with a budget: how the recorder chose this call as one to be timed.
    pub drawn: Drawn,
}

/// A call of an op, or a range that the program marked with a name. Times are in ticks.
#[derive(Clone, Debug)]
pub struct OpCall<'a> {
    /// The op's number among the visited ops, from 0. This number is higher than the number of the
    /// op around it.
    pub number: u64,
    /// The number of the innermost run that contains the op.
    pub run: Option<u64>,
    /// The number of the innermost op that contains this op.
    pub parent: Option<u64>,
    /// The number of ops around this one.
    pub depth: u32,
    /// Process index.
    pub process: usize,
    /// Thread index.
    pub thread: usize,
    pub op: OpId,
    /// Whether the call is a range that the program marked with a name.
    pub is_range: bool,
    /// For a call of a backward pass: the forward op.
    pub forward: Option<OpId>,
    /// The op's start.
    pub start: u64,
    pub duration: u64,
    /// The op's duration without the ops and runs inside it.
    pub self_ticks: u64,
    /// The op's duration as it is used in sums, without the recorder's time.
    pub time: Amount,
    /// The op's self time as it is used in sums.
    pub own_time: Amount,
    /// Number of calls directly inside of this call for which counters were read.
    pub read_inside: u32,
    /// Bytes of storage that the op allocated.
    pub storage: Option<u64>,
    /// Bytes of workspace that the op allocated.
    pub workspace: Option<u64>,
    /// The value of each counter of the profile on the calling thread; `None` if not known.
    pub counters: &'a [Option<u64>],
    /// The value of each counter without the ops and runs inside the call.
    pub self_counters: &'a [Option<u64>],
    /// For each counter, the sum over the op's tasks on other threads. `None` if a task or its
    /// value is missing. Empty for an op without regions.
    pub workers: &'a [Option<u64>],
    /// Values of users' collectors (which measure values for each op), each as a key and the bits
    /// of the value.
    pub values: &'a [(u32, u64)],
    /// The op's parallel regions.
    pub regions: &'a [Region],
    /// In a run with a budget: how the recorder chose this call as one to be timed.
    pub drawn: Drawn,
}

/// A time in ticks, without the recorder's time unless the trees were read with `raw`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Amount {
    /// The time that remains.
    pub ticks: f64,
    /// The time that was subtracted, with its interval.
    pub taken: Estimate,
}

/// A parallel region: work that a thread launched on several threads.
#[derive(Clone, Debug, PartialEq)]
pub struct Region {
    /// The op as which the region was recorded. It has the region's name.
    pub op: OpId,
    /// The region's start.
    pub start: u64,
    pub duration: u64,
    /// Whether the region is inside of another region of the same call and thread. Its time is then
    /// a part of the other region's time.
    pub inner: bool,
    /// The number of tasks that the region was divided into; `None` if no task was recorded.
    pub of: Option<u32>,
    /// The region's recorded tasks, sorted by number.
    pub tasks: Vec<Task>,
    /// The longest task divided by the mean over all tasks. `None` unless all tasks were recorded.
    pub imbalance: Option<f64>,
    /// Set if tasks ran one after the other although more of them could have run at once.
    pub serial: Option<Serial>,
}

impl Region {
    /// Whether every task was recorded.
    pub fn is_whole(&self) -> bool {
        self.of.is_some_and(|of| self.tasks.len() == of as usize)
    }
}

/// One task of a region.
#[derive(Clone, Debug, PartialEq)]
pub struct Task {
    /// The task's number in the region.
    pub number: u32,
    /// Thread index.
    pub thread: usize,
    /// The CPU on which the task ended.
    pub cpu: u32,
    /// The task's start.
    pub start: u64,
    pub duration: u64,
    /// The value of each counter of the profile; `None` if not known.
    pub counters: Vec<Option<u64>>,
    /// Whether the task is inside of another call of its thread. If so, the counters of that call
    /// include those of the task.
    pub nested: bool,
}

/// How tasks ran one after the other although more of them could have run at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Serial {
    /// Two tasks ran on one thread.
    Thread,
    /// Two tasks ran one after the other on this CPU.
    Cpu(u32),
}

/// Receives the runs and ops of the visited trees, and the regions outside of runs and ops. A call
/// is received before the calls inside of it.
pub trait OpVisitor {
    /// Receives a run.
    fn run(&mut self, run: &RunCall<'_>);
    /// Receives an op.
    fn op(&mut self, op: &OpCall<'_>);
    /// Receives a region that is in no run and in no op, with its process and thread.
    fn region(&mut self, process: usize, thread: usize, region: &Region);
}

/// The data that must be read before trees can be visited.
#[derive(Debug)]
pub struct OpTrees<'a> {
    profile: &'a Profile,
    tasks: Tasks,
    /// For each process, thread and page, the earliest start of a call in the thread's later pages.
    later: Vec<Vec<Vec<u64>>>,
    first_tick: Option<u64>,
    losses: Vec<LossCount>,
    brackets: Brackets,
}

impl<'a> OpTrees<'a> {
    /// Reads every page once. With `raw`, sums use the times as recorded, and the recorder's time
    /// is not subtracted.
    pub fn new(profile: &'a Profile, raw: bool) -> Self {
        tasks::collect(profile, Brackets::new(profile, raw))
    }

    /// Returns the start of the profile's first call of any kind; `None` without calls.
    pub fn first_tick(&self) -> Option<u64> {
        self.first_tick
    }

    /// Returns the losses of recorded data that were found while reading the pages.
    pub fn losses(&self) -> &[LossCount] {
        &self.losses
    }

    /// Visits the trees that `filter` selects, sorted by process, thread and start. Runs and ops
    /// get the same numbers in every visit with the same filter.
    pub fn visit(&self, filter: &OpFilter, visitor: &mut impl OpVisitor) {
        tree::visit(self, filter, visitor);
    }
}
