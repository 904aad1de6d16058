//! Analyses the calls of a profile: op table, distributions, threads, cost of recording. A caller
//! opens the profile; this crate reads its columns page by page and prints nothing.
//!
//! ```text
//!  Profile ─ visit ─► Columns ─┬─► clusters: finds pages with nested calls
//!                              ├─► forest: self times of nested calls, and outermost calls
//!                              ├─► amounts: the time that the recorder added to each call
//!                              ├─► table: one accumulator per row and worker ─┐
//!                              └─► threads: one summary per page ─────────────┼─► Summary
//!  calibrations, page headers ──────► probe ──────────────────────────────────┘
//! ```
//!
//! | module | what it does |
//! |---|---|
//! | [`summary`] | makes one pass over a profile and returns everything that a report shows |
//! | [`table`] | rows by op, thread, CPU, process or rank, or by properties of activities |
//! | [`stats`](mod@stats) | distributions and correlations per op, for which the pages are read separately |
//! | [`metrics`] | metrics of a row, computed from the calls that have their counters |
//! | [`ops`] | ops of virtual machines as trees: self time, pool threads, time between ops |
//! | [`diff`](mod@diff) | decides whether runs of B are slower or faster than those of A, and in which ops |
//! | [`explain`](mod@explain) | finds recorded variables that differ in the slow calls of an op |
//! | [`critical`] | finds the critical path: the chain of calls that waited for each other |
//! | [`launches`] | adds up the activities that ops launched on devices |
//! | [`rules`](mod@rules) | checks for causes that often hold a program back |
//! | [`exact`](mod@exact) | sums and histograms that merge exactly, for datasets of many ranks |
//! | [`across`] | compares the ranks of a job: finds the slow one, and the op that makes it slow |
//! | [`durations`] | stores many durations compactly, with exact quantiles |
//! | [`innermost`] | self time: each moment of a thread belongs to its innermost call |
//! | [`threads`] | per thread: time inside and outside of dispatches, and off the CPU |
//! | [`gaps`] | gaps between the calls of threads, by the ops before and after them, and by level |
//! | [`lengths`] | how long a recording took, measured between several pairs of moments |
//! | [`silent`] | processor time of threads that made no recorded call |
//! | [`sites`](mod@sites) | dispatches of IREE by their place in the program: wall time, workers, gaps |
//! | [`tree`] | the tree of calls: each op with the ops called inside of it |
//! | [`loops`](mod@loops) | trees of instrumented loops: estimates from samples, cost subtracted |
//! | [`tracks`](mod@tracks) | time series: totals, rates, how evenly they were sampled |
//! | [`details`](mod@details) | data for the pictures of an op: distributions, drift, the longest calls |
//! | [`torch`] | ops of PyTorch by module and by shapes of their inputs, from its recordings |
//! | [`live`] | ops by time while a program is being recorded |
//! | [`probe`] | the cost of recording |
//! | [`work`] | floating-point operations and bytes of a call, from the shapes of its arguments |
//! | [`roofline`](mod@roofline) | compares ops with the highest rates of their machine |
//! | [`estimate`] | a value with its interval of 95 % confidence |
//! | [`interval`] | sums of independent estimates, and their intervals |
//! | [`sampled`] | runs under a budget: estimates from the calls that were timed |
//! | `empty`, `call_sets` | what an empty call adds to times and counters, from calibrations and from the recorded calls |
//! | [`checks`] | checks what must be true of every table |
//! | `amounts` | the time and counts that the recorder added to each call |
//! | `answer` | finds what matters most in a summary |
//! | `arguments` | adds up the rows of an op that has one row for each kind of arguments |
//! | `by_export` | maps the numbers of recorded functions (exports) to rows of a table |
//! | `clusters`, `forest` | find pages that overlap in time, and how their calls are nested |
//! | `walk` | reads every page once, and passes its calls to the code that adds them up |
//!
//! Worker threads add up integers, so results do not depend on the number of workers. In results, a
//! value that is not known is `None`, not 0.
#![forbid(unsafe_code)]

pub mod across;
mod amounts;
mod answer;
mod arguments;
mod by_export;
mod call_sets;
pub mod checks;
mod clusters;
pub mod critical;
pub mod details;
pub mod diff;
pub mod durations;
mod empty;
pub mod estimate;
pub mod exact;
pub mod explain;
mod forest;
pub mod gaps;
pub mod innermost;
pub mod interval;
pub mod launches;
pub mod lengths;
pub mod live;
pub mod loops;
pub mod metrics;
pub mod ops;
pub mod probe;
pub mod roofline;
pub mod rules;
pub mod sampled;
pub mod silent;
pub mod sites;
pub mod stats;
pub mod summary;
pub mod table;
pub mod threads;
pub mod torch;
pub mod tracks;
pub mod tree;
mod walk;
pub mod work;

pub use answer::{
    Around, Dominant, InPass, Most, Outside, Preempted, SlowFirst, Together, are_means, passes,
};
pub use call_sets::{CallSet, call_sets};
pub use checks::{Contradiction, LoopViolation, OpViolation, Violation};
pub use critical::{CriticalPath, CriticalRow, NoPath, critical_path};
pub use details::{Details, OpDetails, details};
pub use durations::Durations;
pub use empty::{Bracket, EmptyCall};
pub use estimate::Estimate;
pub use explain::{Explained, explain};
pub use gaps::{Gap, Gaps, Level, OfThread, Side};
pub use interval::Sum;
pub use loops::{LoopData, LoopTable, loops};
pub use metrics::{Hidden, MOSTLY_EMPTY, MetricValue, MetricValues, PartOfTime};
pub use ops::{OpFilter, OpTable, OpTrees};
pub use probe::ProbeCost;
pub use rules::{Fired, Rule, rules};
pub use sampled::{Estimated, SampledCounter, SampledRow, SampledRun};
pub use silent::SilentThread;
pub use sites::{
    Before, DispatchTimes, Dispatched, ModelRun, Room, Site, Sites, dispatches, sites, sites_as,
};
pub use stats::{Stats, stats};
pub use summary::{Options, Summary, is_contradicted, summarize, summarize_each};
pub use table::{
    Apart, By, CounterTotal, Counts, FirstCalls, Key, PassTotal, Row, Taken, compensate,
};
pub use threads::ThreadTime;
pub use tracks::{SeriesSummary, TracksSummary, tracks};
pub use tree::{CallTree, TreeNode, call_tree};
