//! Ops of virtual machines as trees: runs, the ops in them, and what pool threads did for each op.
//!
//! ```text
//!  launching thread   run ├───────────────────────────────────────────────────┤
//!                      op    ├───────────────┤    ├────────────────────────┤
//!                                            between      ├─ op ─┤   inside: not self time
//!                  region       ├──────────┤
//!                    task       ├─ 0 ─┤
//!  pool thread       task        ├── 1 ───┤        found by the number that it has in common
//!                                                  with the region
//! ```
//!
//! A thread's calls are recorded when they end, so a call finds what lies in it among those that
//! ended before it and that nobody else has taken: one way over the pages, with the calls of one
//! run in memory. A first way ([`OpTrees::new`]) notes the tasks of all threads, and for each page
//! when the earliest call behind it begins, which tells when a tree is whole.
//!
//! Of a run, each moment belongs to exactly one of: the run itself (before the first op and behind
//! the last), the gaps between its ops, an op's self time. Regions and tasks are part of their op.
//! So `duration = own + between + Σ self`, over the ops of the run and the parts of runs in it.

mod rows;
mod tasks;
mod tree;

pub use rows::{BOOKKEEPING, CounterSum, OpRow, OpRowKind, OpTable, RegionSum, ValueSum};

use profile::{LossCount, OpId, Profile};

use tasks::Tasks;

/// Which trees to look at: each counts as a whole, by its outermost call.
#[derive(Clone, Debug, Default)]
pub struct OpFilter {
    /// Of the machine with this name.
    pub machine: Option<String>,
    /// Begun at this tick or later.
    pub since: Option<u64>,
    /// Begun before this tick.
    pub until: Option<u64>,
}

/// A call of an entry function. Times in ticks.
#[derive(Clone, Debug)]
pub struct RunCall<'a> {
    /// Its number among the runs of the view, from 0.
    pub number: u64,
    /// The run in which it lies.
    pub parent: Option<u64>,
    /// Process index.
    pub process: usize,
    /// Thread index.
    pub thread: usize,
    /// The function.
    pub op: OpId,
    /// It ended with an error.
    pub failed: bool,
    /// The op that threw, if one did: the innermost that had not returned.
    pub failed_op: Option<OpId>,
    /// Begin.
    pub start: u64,
    /// Length.
    pub duration: u64,
    /// From its begin to that of its first op; `None` without ops.
    pub first_op: Option<u64>,
    /// Gaps between its ops.
    pub between: u64,
    /// Before the first and behind the last op; all without ops.
    pub own: u64,
    /// What each counter of the profile read; `None`: not known.
    pub counters: &'a [Option<u64>],
    /// The same without its ops: of `own` and `between` together, and of book-keeping ops that were
    /// timed only.
    pub own_counters: &'a [Option<u64>],
    /// Parallel regions in it, but in no op.
    pub regions: &'a [Region],
}

/// A call of an op. Times in ticks.
#[derive(Clone, Debug)]
pub struct OpCall<'a> {
    /// Its number among the ops of the view, from 0; an op has a higher one than that it lies in.
    pub number: u64,
    /// The innermost run in which it lies.
    pub run: Option<u64>,
    /// The op in which it lies.
    pub parent: Option<u64>,
    /// In how many ops it lies.
    pub depth: u32,
    /// Process index.
    pub process: usize,
    /// Thread index.
    pub thread: usize,
    /// What was called.
    pub op: OpId,
    /// Begin.
    pub start: u64,
    /// Length.
    pub duration: u64,
    /// Length without the ops and runs in it.
    pub self_ticks: u64,
    /// Bytes of storage that it allocated.
    pub storage: Option<u64>,
    /// Bytes of workspace that it allocated.
    pub workspace: Option<u64>,
    /// What each counter of the profile read on the calling thread; `None`: not known.
    pub counters: &'a [Option<u64>],
    /// The same without the ops and runs in it.
    pub self_counters: &'a [Option<u64>],
    /// The sum over its tasks on other threads; `None` where a task is missing or does not know.
    /// Empty for an op without regions.
    pub workers: &'a [Option<u64>],
    /// Values of users' collectors: keys and bits.
    pub values: &'a [(u32, u64)],
    /// Parallel regions in it.
    pub regions: &'a [Region],
}

/// A parallel launch.
#[derive(Clone, Debug, PartialEq)]
pub struct Region {
    /// What it is called by.
    pub op: OpId,
    /// Begin.
    pub start: u64,
    /// Length.
    pub duration: u64,
    /// How many tasks it has; `None` if none of them was recorded.
    pub of: Option<u32>,
    /// Its tasks that were recorded, by number.
    pub tasks: Vec<Task>,
    /// The longest task by the mean of all; `None` unless all were recorded.
    pub imbalance: Option<f64>,
    /// Tasks waited for one another where they need not have.
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
    /// Its number in the region.
    pub number: u32,
    /// Thread index.
    pub thread: usize,
    /// CPU at its end.
    pub cpu: u32,
    /// Begin.
    pub start: u64,
    /// Length.
    pub duration: u64,
    /// What each counter of the profile read; `None`: not known.
    pub counters: Vec<Option<u64>>,
    /// It lies in another call of its thread, which has counted the same.
    pub nested: bool,
}

/// How tasks ran one after the other although there were processors for more of them at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Serial {
    /// Two on one thread.
    Thread,
    /// Two on one CPU, by different threads.
    Cpu(u32),
}

/// Takes trees, each call before those in it.
pub trait OpVisitor {
    /// A run.
    fn run(&mut self, run: &RunCall<'_>);
    /// An op.
    fn op(&mut self, op: &OpCall<'_>);
    /// A region in no run and no op: of process and thread.
    fn region(&mut self, process: usize, thread: usize, region: &Region);
}

/// What is known before the trees are looked at.
#[derive(Debug)]
pub struct OpTrees<'a> {
    profile: &'a Profile,
    tasks: Tasks,
    /// For each process, thread and page the earliest begin in the pages behind it.
    later: Vec<Vec<Vec<u64>>>,
    first_tick: Option<u64>,
    losses: Vec<LossCount>,
}

impl<'a> OpTrees<'a> {
    /// Goes once over every page.
    pub fn new(profile: &'a Profile) -> Self {
        tasks::collect(profile)
    }

    /// The begin of the profile's first call, whatever it is; `None` without calls.
    pub fn first_tick(&self) -> Option<u64> {
        self.first_tick
    }

    /// The losses found inside pages.
    pub fn losses(&self) -> &[LossCount] {
        &self.losses
    }

    /// Shows every tree that `filter` wants, ordered by process, thread and begin. Numbers are the
    /// same each time.
    pub fn visit(&self, filter: &OpFilter, visitor: &mut impl OpVisitor) {
        tree::visit(self, filter, visitor);
    }
}
