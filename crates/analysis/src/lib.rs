//! What the calls of a profile say: op table, distributions, threads, cost of the probes. Takes an opened
//! profile and looks at its columns page by page; opens no file and prints nothing.
//!
//! ```text
//!  Profile ─ visit ─► Columns ─┬─► table: one accumulator per row and worker ─┐
//!                              └─► threads: one summary per page ─┬───────────┼─► Summary
//!                                  nested: pages with calls in calls, again ──┤
//!  calibrations, page headers ──────► probe ──────────────────────────────────┘
//! ```
//!
//! | module | what |
//! |---|---|
//! | [`summary`] | the one pass over a profile, and everything that it gives |
//! | [`table`] | rows by op, thread, CPU or process |
//! | [`stats`](mod@stats) | distributions and correlations per op: a second way over the pages |
//! | [`metrics`] | metrics of a row, from the calls that have their counters |
//! | [`ops`] | ops of virtual machines as trees: self time, pool threads, what lies between |
//! | [`durations`] | many durations in little memory, exact quantiles |
//! | [`innermost`] | self time: who owns each moment of a thread |
//! | [`threads`] | per thread: time in dispatches, in none, off the CPU |
//! | [`loops`](mod@loops) | loops of instrumented modules as trees: estimates from samples, compensation |
//! | [`tracks`](mod@tracks) | time series: totals, rates, how evenly they were sampled |
//! | [`probe`] | what the probes cost |
//! | `empty` | what an empty call reads, from the calibration of its process |
//! | `clusters`, `nested` | self time: which pages overlap in time, and the second pass over them |
//!
//! Sums are of integers, so results do not depend on how many workers there were. Missing is
//! never zero: what is not known is `None`.
#![forbid(unsafe_code)]

mod clusters;
pub mod durations;
mod empty;
pub mod innermost;
pub mod loops;
pub mod metrics;
mod nested;
pub mod ops;
pub mod probe;
pub mod stats;
pub mod summary;
pub mod table;
pub mod threads;
pub mod tracks;

pub use durations::Durations;
pub use empty::EmptyCall;
pub use loops::{LoopData, LoopTable, loops};
pub use metrics::{Hidden, MOSTLY_EMPTY, MetricValue};
pub use ops::{OpFilter, OpTable, OpTrees};
pub use probe::ProbeCost;
pub use stats::{Stats, stats};
pub use summary::{Options, Summary, summarize};
pub use table::{Apart, By, CounterTotal, FirstCalls, Key, PassTotal, Row};
pub use threads::ThreadTime;
pub use tracks::{SeriesSummary, TracksSummary, tracks};
