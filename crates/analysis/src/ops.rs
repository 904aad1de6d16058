//! Shows ops of virtual machines and of PyTorch as trees: runs, the ops in them, and the tasks of
//! pool threads for each op.
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
//! A thread's calls are recorded when they end. So the calls inside a call are those that began
//! after its start, ended before it, and are in no other call yet. This takes one pass over the
//! pages, with the calls of one run in memory. An earlier pass ([`OpTrees::new`]) collects the
//! tasks of all threads, and for each page the earliest start of any call after it, which shows
//! when a tree is complete.
//!
//! Each moment of a run belongs to exactly one of these: the run itself (before the first op and
//! after the last one), the gaps between its ops, and the self time of an op. Regions and tasks are
//! part of their op. Therefore `duration = own + between + Σ self`, where the sum covers the ops of
//! the run and all parts of the runs inside it.

mod rows;
mod tasks;
mod tree;

pub use rows::{CounterSum, OpRow, OpRowKind, OpTable, RegionSum, ValueSum};

use profile::Drawn;
use profile::{LossCount, OpId, Profile};

use crate::amounts::Brackets;
use crate::estimate::Estimate;
use tasks::Tasks;

/// Selects the trees to show. A tree is selected as a whole, by its outermost call.
#[derive(Clone, Debug, Default)]
pub struct OpFilter {
    /// The name of the machine.
    pub machine: Option<String>,
    /// If set, only trees that began at this tick or later are selected.
    pub since: Option<u64>,
    /// If set, only trees that began before this tick are selected.
    pub until: Option<u64>,
}

/// A call of an entry function. Times are in ticks.
#[derive(Clone, Debug)]
pub struct RunCall<'a> {
    /// The run's number among the runs of the view, from 0.
    pub number: u64,
    /// The run that contains this run.
    pub parent: Option<u64>,
    /// Process index.
    pub process: usize,
    /// Thread index.
    pub thread: usize,
    /// The entry function.
    pub op: OpId,
    /// Whether the run ended with an error.
    pub failed: bool,
    /// The innermost op that had not returned, if the run failed in an op.
    pub failed_op: Option<OpId>,
    /// The run's start.
    pub start: u64,
    pub duration: u64,
    /// The run's duration as it counts in sums: without the time that the recorder added.
    pub time: Amount,
    /// The time from the call's start to the start of its first op; `None` without ops.
    pub first_op: Option<u64>,
    /// The time between the run's ops.
    pub between: u64,
    /// The time before the first op and after the last one; the whole duration without ops.
    pub own: u64,
    /// `between` as it counts in sums.
    pub between_time: Amount,
    /// `own` as it counts in sums.
    pub own_time: Amount,
    /// The number of calls directly inside whose counters were read.
    pub read_inside: u32,
    /// The value of each counter of the profile; `None` if not known.
    pub counters: &'a [Option<u64>],
    /// The counters without those of the run's ops: the counts in `own` and `between` together, and
    /// in book-keeping ops that were only timed.
    pub own_counters: &'a [Option<u64>],
    /// The run's parallel regions that belong to no op.
    pub regions: &'a [Region],
    /// How the call was chosen by sampling; the default in a run without a budget.
    pub drawn: Drawn,
}

/// A call of an op, or a range. Times are in ticks.
#[derive(Clone, Debug)]
pub struct OpCall<'a> {
    /// The op's number among the ops of the view, from 0. It is higher than the number of the op
    /// that contains it.
    pub number: u64,
    /// The innermost run that contains the op.
    pub run: Option<u64>,
    /// The innermost op that contains this op.
    pub parent: Option<u64>,
    /// The number of ops that contain this one.
    pub depth: u32,
    /// Process index.
    pub process: usize,
    /// Thread index.
    pub thread: usize,
    pub op: OpId,
    /// Whether the call is a range that the program marked by name, and not an op.
    pub is_range: bool,
    /// The forward op, for a call of a backward pass.
    pub forward: Option<OpId>,
    /// The op's start.
    pub start: u64,
    pub duration: u64,
    /// The op's duration without the ops and runs inside it.
    pub self_ticks: u64,
    /// The op's duration as it counts in sums: without the time that the recorder added.
    pub time: Amount,
    /// The op's self time as it counts in sums.
    pub own_time: Amount,
    /// The number of calls directly inside whose counters were read.
    pub read_inside: u32,
    /// Bytes of storage that the op allocated.
    pub storage: Option<u64>,
    /// Bytes of workspace that the op allocated.
    pub workspace: Option<u64>,
    /// The value of each counter of the profile on the calling thread; `None` if not known.
    pub counters: &'a [Option<u64>],
    /// The value of each counter without the ops and runs inside the call.
    pub self_counters: &'a [Option<u64>],
    /// For each counter, the sum over the call's tasks on other threads. `None` if a task is
    /// missing or does not have the value. Empty for an op without regions.
    pub workers: &'a [Option<u64>],
    /// Values of users' collectors: keys and bits.
    pub values: &'a [(u32, u64)],
    /// The op's parallel regions.
    pub regions: &'a [Region],
    /// How the op was chosen by sampling; the default in a run without a budget.
    pub drawn: Drawn,
}

/// A time in ticks, and the time that was subtracted for the recorder.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Amount {
    /// The time without the time that the recorder added.
    pub ticks: f64,
    /// The time that was subtracted, with its interval.
    pub taken: Estimate,
}

/// A parallel launch.
#[derive(Clone, Debug, PartialEq)]
pub struct Region {
    /// The op that names the region.
    pub op: OpId,
    /// The region's start.
    pub start: u64,
    pub duration: u64,
    /// The number of tasks that the region was divided into; `None` if none of them was recorded.
    pub of: Option<u32>,
    /// The region's recorded tasks, sorted by number.
    pub tasks: Vec<Task>,
    /// The longest task divided by the mean of all tasks; `None` unless all were recorded.
    pub imbalance: Option<f64>,
    /// Set if tasks waited for one another although they did not have to.
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
    /// The CPU at the task's end.
    pub cpu: u32,
    /// The task's start.
    pub start: u64,
    pub duration: u64,
    /// The value of each counter of the profile; `None` if not known.
    pub counters: Vec<Option<u64>>,
    /// Whether the task is inside another call of its thread, whose counters include the task's.
    pub nested: bool,
}

/// The way in which tasks ran one after the other although there were enough processors to run more
/// at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Serial {
    /// Two tasks ran on one thread.
    Thread,
    /// Two tasks of different threads ran on one CPU.
    Cpu(u32),
}

/// Receives trees. Each call comes before the calls inside of it.
pub trait OpVisitor {
    /// Receives a run.
    fn run(&mut self, run: &RunCall<'_>);
    /// Receives an op.
    fn op(&mut self, op: &OpCall<'_>);
    /// Receives a region that is in no run and in no op, with its process and thread.
    fn region(&mut self, process: usize, thread: usize, region: &Region);
}

/// The data that is read before the trees are shown.
#[derive(Debug)]
pub struct OpTrees<'a> {
    profile: &'a Profile,
    tasks: Tasks,
    /// For each process, thread and page, the earliest start in the pages after it.
    later: Vec<Vec<Vec<u64>>>,
    first_tick: Option<u64>,
    losses: Vec<LossCount>,
    brackets: Brackets,
}

impl<'a> OpTrees<'a> {
    /// Reads every page once. With `raw`, times count in sums as they were recorded.
    pub fn new(profile: &'a Profile, raw: bool) -> Self {
        tasks::collect(profile, Brackets::new(profile, raw))
    }

    /// Returns the start of the profile's first call of any kind; `None` without calls.
    pub fn first_tick(&self) -> Option<u64> {
        self.first_tick
    }

    /// Returns the losses found inside pages.
    pub fn losses(&self) -> &[LossCount] {
        &self.losses
    }

    /// Shows every tree that `filter` selects, ordered by process, thread and start. The numbers of
    /// runs and ops are the same each time.
    pub fn visit(&self, filter: &OpFilter, visitor: &mut impl OpVisitor) {
        tree::visit(self, filter, visitor);
    }
}
