//! Computes a tree of functions and loops for each instrumented module. The tree shows how often
//! each loop was entered, and how long it took.
//!
//! ```text
//!  LoopModule, LoopRow, LoopEvent ─► merge: cells by id, for all threads and for each
//!                                       │
//!  side table (ir) ─► parents ─────────►│  numbers: inclusive, self, mean, share
//!                                       ▼  estimate: intervals, compensation
//!                                   LoopTable ─ LoopTree ─ LoopNode
//! ```
//!
//! | module | what |
//! |---|---|
//! | [`estimate`] | the total time of sampled hits with its interval, and arithmetic with it |
//! | `merge` | adds up the counts of all threads and all registrations of one module |
//! | [`numbers`] | inclusive time, self time, mean and share of each row of a tree |
//! | [`tree`] | side tables, and the order of rows |
//! | [`trips`] | iterations of single hits, and an estimate for all hits if some were not counted |
//! | [`unrolled`](mod@unrolled) | how many iterations of the schedule's loop are in one iteration of the loop in the machine code |
//! | [`log`] | mode log: matches the starts and ends of hits |
//! | [`traffic`] | bounds of the bytes that a loop moved |
//! | [`dispatches`] | the dispatches of IREE that contain loops |
//! | [`ops`] | the ops around loops: dispatches, and ops of a virtual machine |
//! | [`workgroups`] | mode log: the workgroup calls of IREE in which loops started and ended |
//!
//! A *module* is a text (LLVM IR or MLIR) that was instrumented as a whole and has one identity. A
//! *hit* is one entry into a function or a loop. A process registers a module when it loads the
//! module, so a module can have several registrations. Each thread has its own counts for each
//! registration. For a module in one mode, [`LoopTree`] has the sums over all threads and
//! registrations, and the numbers of each thread.

pub mod dispatches;
pub mod estimate;
pub mod log;
mod merge;
pub mod numbers;
pub mod ops;
pub mod traffic;
pub mod tree;
pub mod trips;
pub mod unrolled;
pub mod workgroups;

use std::collections::HashMap;

use ir::schedule::ScheduledLoop;
use ir::table::{Entry, SideTable};
use profile::loops::{LoopEvent, LoopModule, LoopRow};

pub use estimate::Estimate;
pub use numbers::{Numbers, Times, estimated_iterations, iterations, iterations_per_hit};
pub use tree::{TableChoice, UnfitTable, agree, fits};
pub use trips::Trips;
pub use unrolled::{Unrolled, unrolled};

/// The way in which a module was instrumented.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mode {
    /// Each hit is counted. The first hits, and later random hits, are timed.
    Sampled,
    /// Each hit is counted and timed.
    Timed,
    /// Each hit is counted, and none is timed.
    Count,
    /// The starts and ends of the first hits are recorded one by one.
    Log,
    /// A mode that this version does not know, with its number.
    Other(u32),
}

impl Mode {
    /// Returns the mode with this number. A module's descriptor contains the number.
    pub fn from_number(number: u32) -> Self {
        match number {
            0 => Self::Sampled,
            1 => Self::Timed,
            2 => Self::Count,
            3 => Self::Log,
            other => Self::Other(other),
        }
    }

    /// Returns the mode's name on the command line and in side tables (descriptions of a module's
    /// loops).
    pub fn name(self) -> &'static str {
        match self {
            Self::Sampled => "sampled",
            Self::Timed => "timed",
            Self::Count => "count",
            Self::Log => "log",
            Self::Other(_) => "unknown",
        }
    }
}

/// The recorded data about loops in a profile, from which [`loops`] computes a [`LoopTable`].
#[derive(Clone, Copy, Debug, Default)]
pub struct LoopData<'a> {
    /// One element for each registration of a module.
    pub modules: &'a [LoopModule],
    /// The counts of each thread for each function or loop.
    pub rows: &'a [LoopRow],
    /// Mode log: the recorded starts and ends of hits. The events of one thread and module are in
    /// the order in which they happened.
    pub events: &'a [LoopEvent],
    /// For each process, the counters whose sums its rows contain, as indices of the profile's
    /// counters. A process without an element has no counters.
    pub counters: &'a [Vec<usize>],
}

/// The trees of all loops of a profile.
#[derive(Clone, Debug, Default)]
pub struct LoopTable {
    /// One tree for each module and mode, in the order of their first registrations.
    pub modules: Vec<LoopTree>,
    /// Number of rows and events whose module is not in the profile.
    pub strays: u64,
}

/// The tree of a module's functions and loops, for one mode.
#[derive(Clone, Debug)]
pub struct LoopTree {
    /// Identity of the instrumented text.
    pub id: [u8; 16],
    pub mode: Mode,
    /// Number of ids of the module. Each function and each loop has one.
    pub ids: u32,
    /// Ticks per second; `None` if not known. If the registrations differ, the first known value
    /// counts.
    pub ticks_per_second: Option<f64>,
    /// The module's registrations, as indices in the profile's modules.
    pub registrations: Vec<usize>,
    /// The side table, which describes the function or loop of each id. `None` if no table can be
    /// used.
    pub table: Option<SideTable>,
    /// Where the side table came from.
    pub choice: TableChoice,
    /// If the module was compiled from a schedule (TIR of TVM): for each id of a loop that
    /// implements a loop of the schedule, the index of that loop in [`SideTable::schedule`].
    pub scheduled: HashMap<u32, usize>,
    /// Functions and loops. Each node comes after the function or loop around it, and siblings are
    /// sorted by id.
    pub nodes: Vec<LoopNode>,
    /// The threads that entered any of the nodes, in ascending order.
    pub threads: Vec<LoopThread>,
    /// Number of rows whose id is not below `ids`. No sum includes them.
    pub beyond: u64,
    /// Number of damaged rows, whose times contradict each other. A sum that includes a damaged row
    /// has no time.
    pub damaged: u64,
    /// Number of registrations for which the cost of empty hits was not measured, so nothing can be
    /// subtracted.
    pub uncalibrated: usize,
}

/// A thread that entered functions or loops of a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LoopThread {
    /// Index of the process in the profile.
    pub process: usize,
    /// The operating system's id of the thread.
    pub tid: u32,
}

/// A function or a loop.
#[derive(Clone, Debug)]
pub struct LoopNode {
    /// The id of the function or loop.
    pub id: u32,
    /// The function or loop around this one, as an index in [`LoopTree::nodes`].
    pub parent: Option<usize>,
    /// The number of nodes around this one.
    pub level: u32,
    /// The numbers over all threads.
    pub all: Numbers,
    /// The numbers of each thread that entered the node, with its index in [`LoopTree::threads`].
    pub threads: Vec<(usize, Numbers)>,
    /// The largest inclusive time of a thread, divided by the mean over the threads that entered
    /// the node. `None` for fewer than two threads, if times are not known, or if their mean is not
    /// above 0.
    pub imbalance: Option<f64>,
    /// The largest number of hits of a thread, divided by the mean over the threads that entered
    /// the node. `None` for fewer than two threads.
    pub hit_imbalance: Option<f64>,
}

impl LoopTree {
    /// Returns the side table's entry for the node, if there is a side table.
    pub fn entry(&self, node: &LoopNode) -> Option<&Entry> {
        self.table.as_ref()?.entries.get(node.id as usize)
    }

    /// Returns the loop of the schedule that the node implements, and the index of this loop in
    /// [`SideTable::schedule`].
    pub fn scheduled(&self, node: &LoopNode) -> Option<(usize, &ScheduledLoop)> {
        let number = *self.scheduled.get(&node.id)?;
        Some((number, self.table.as_ref()?.schedule.get(number)?))
    }

    /// Returns the module's identity as 32 hexadecimal digits.
    pub fn identity(&self) -> String {
        identity(&self.id)
    }

    /// Converts ticks to nanoseconds; `None` if the length of a tick is not known.
    pub fn ns(&self, ticks: f64) -> Option<f64> {
        self.ticks_per_second.map(|rate| ticks * (1e9 / rate))
    }

    /// Returns the nodes that are not inside of another node.
    pub fn roots(&self) -> impl Iterator<Item = &LoopNode> {
        self.nodes.iter().filter(|node| node.parent.is_none())
    }
}

/// Returns an identity as 32 hexadecimal digits.
pub fn identity(id: &[u8; 16]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Adds up the counts of a profile's loops, and computes the trees. `tables` are side tables from
/// files. Such a table replaces the embedded table of a module with the same identity and number of
/// ids. [`fits`] checks whether there is a module for a table.
pub fn loops(data: LoopData<'_>, tables: &[SideTable]) -> LoopTable {
    let rows = merge::by_module(&data);
    let logged = log::Logged::new(data.modules, data.events);
    let trees = merge::groups(data.modules)
        .into_iter()
        .map(|group| merge::tree(&data, &rows, &logged, group, tables));
    let beyond = |module: usize| module >= data.modules.len();
    let strays = data.rows.iter().filter(|row| beyond(row.module)).count()
        + data.events.iter().filter(|event| beyond(event.module)).count();
    LoopTable { modules: trees.collect(), strays: strays as u64 }
}
