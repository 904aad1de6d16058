//! Loops of instrumented modules: how often each was entered and how long it took, as a tree.
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
//! | [`estimate`] | the total time of sampled hits, its interval, and how both propagate |
//! | `student` | quantiles of Student's t |
//! | `merge` | the counts of all threads and all registrations of one module |
//! | [`numbers`] | inclusive time, self time, mean and share of each row of a tree |
//! | [`tree`] | side tables, and the order of rows |
//! | [`trips`] | iterations of single hits, and of all hits where only some were counted |
//! | [`unrolled`](mod@unrolled) | what an iteration in the machine code is in the schedule |
//! | [`log`] | mode log: starts and ends matched |
//! | [`traffic`] | bounds of the data that a loop moved |
//! | [`dispatches`] | the dispatches of IREE that loops are in |
//! | [`ops`] | the ops around loops: dispatches, and ops of a virtual machine |
//! | [`workgroups`] | mode log: the workgroup calls that starts and ends are in |
//!
//! A *module* is a text that was instrumented at once and has one identity. It may be registered several
//! times, in one process or in several, and each of its threads counts for itself. All counts are added up,
//! and each thread's own numbers are kept.

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

use ir::table::{Entry, SideTable};
use profile::loops::{LoopEvent, LoopModule, LoopRow};

pub use estimate::Estimate;
pub use numbers::{Numbers, Times, estimated_iterations, iterations, iterations_per_hit};
pub use tree::{TableChoice, UnfitTable, agree, fits};
pub use trips::Trips;
pub use unrolled::{Unrolled, unrolled};

/// How a module was instrumented.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mode {
    /// Each hit is counted; the first ones and then random ones are timed.
    Sampled,
    /// Each hit is counted and timed.
    Timed,
    /// Each hit is counted, none is timed.
    Count,
    /// Starts and ends of the first hits are written down one by one.
    Log,
    /// A mode of a later version.
    Other(u32),
}

impl Mode {
    /// The mode with this number in the descriptor.
    pub fn from_number(number: u32) -> Self {
        match number {
            0 => Self::Sampled,
            1 => Self::Timed,
            2 => Self::Count,
            3 => Self::Log,
            other => Self::Other(other),
        }
    }

    /// The mode's name on the command line and in side tables.
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

/// The loops of a profile.
#[derive(Clone, Copy, Debug, Default)]
pub struct LoopData<'a> {
    /// The modules that were registered.
    pub modules: &'a [LoopModule],
    /// The counts of each thread for each id.
    pub rows: &'a [LoopRow],
    /// Mode log: starts and ends; those of one thread and module are in the order in which they happened.
    pub events: &'a [LoopEvent],
    /// For each process, which of the profile's counters its rows have. A process that is missing has none.
    pub counters: &'a [Vec<usize>],
}

/// All loops of a profile.
#[derive(Clone, Debug, Default)]
pub struct LoopTable {
    /// One for each module, in the order of their first registrations.
    pub modules: Vec<LoopTree>,
    /// Rows that belong to no module of the profile.
    pub strays: u64,
}

/// The loops of one module.
#[derive(Clone, Debug)]
pub struct LoopTree {
    /// Identity of the instrumented text.
    pub id: [u8; 16],
    /// How the module was instrumented.
    pub mode: Mode,
    /// How many ids the module has.
    pub ids: u32,
    /// Ticks in a second; `None` if that is not known. If registrations differ, the first one's.
    pub ticks_per_second: Option<f64>,
    /// Indices of the loops' registrations in the modules of the profile.
    pub registrations: Vec<usize>,
    /// The function or loop of each id, if it is known.
    pub table: Option<SideTable>,
    /// The place that the side table is from.
    pub choice: TableChoice,
    /// Functions and loops: each after the one around it, siblings by id.
    pub nodes: Vec<LoopNode>,
    /// The threads that entered any of them, in ascending order.
    pub threads: Vec<LoopThread>,
    /// Rows whose id is not below `ids`. They are in no sum.
    pub beyond: u64,
    /// Rows whose times contradict each other (damaged). Only their hits are used.
    pub damaged: u64,
    /// Registrations whose empty hits were not measured, so that nothing can be subtracted.
    pub uncalibrated: usize,
}

/// A thread that entered loops.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LoopThread {
    /// Index of the process in the profile.
    pub process: usize,
    /// The kernel's number of the thread.
    pub tid: u32,
}

/// A function or a loop.
#[derive(Clone, Debug)]
pub struct LoopNode {
    /// The id of the function or loop.
    pub id: u32,
    /// The function or loop around this one, as an index in the nodes.
    pub parent: Option<usize>,
    /// How many nodes are around it: its indentation.
    pub level: u32,
    /// All threads together.
    pub all: Numbers,
    /// Each thread that entered it, by its index in the threads of the tree.
    pub threads: Vec<(usize, Numbers)>,
    /// The largest inclusive time of a thread over the mean of the threads that entered it, at
    /// least 1. Missing where no times are known, or where their mean is not above 0.
    pub imbalance: Option<f64>,
    /// The largest number of hits of a thread over the mean of the threads that entered the loop.
    pub hit_imbalance: Option<f64>,
}

impl LoopTree {
    /// The function or loop of the node, if there is a side table.
    pub fn entry(&self, node: &LoopNode) -> Option<&Entry> {
        self.table.as_ref()?.entries.get(node.id as usize)
    }

    /// The module's identity as 32 hexadecimal digits.
    pub fn identity(&self) -> String {
        identity(&self.id)
    }

    /// Ticks as nanoseconds.
    pub fn ns(&self, ticks: f64) -> Option<f64> {
        self.ticks_per_second.map(|rate| ticks * (1e9 / rate))
    }

    /// The nodes without a node around them.
    pub fn roots(&self) -> impl Iterator<Item = &LoopNode> {
        self.nodes.iter().filter(|node| node.parent.is_none())
    }
}

/// An identity as 32 hexadecimal digits.
pub fn identity(id: &[u8; 16]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Adds up the loops of a profile. `tables` are side tables from files: for a module of the same
/// identity and size they replace one that is embedded. [`fits`] says whether there is such a
/// module.
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
