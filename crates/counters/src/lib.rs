//! Opens counters in groups and reads them. This crate runs in the profiled process.
//!
//! ```text
//!  model::Counter ── plan ──► Plan ── thread ──► ThreadCounters ── read ──► Readings
//!                             groups,            one thread's groups        raw words, at most one
//!                             checked once       through perf, or sim       read(2) per perf group
//! ```
//!
//! | module | purpose |
//! |---|---|
//! | [`plan`] | [`Plan`]: counters in groups, validated before anything is opened |
//! | [`thread`] | [`ThreadCounters`]: one thread's open groups; opens, reads and closes them |
//! | [`readings`] | [`Readings`]: the fixed buffer that the kernel writes to, and [`Coverage`] |
//! | [`perf`] | `perf_event_attr` and `perf_event_open`, [`OpenError`] |
//!
//! # Rules
//!
//! The read path does not allocate, lock, panic or use standard I/O. Every system call is made
//! directly (module `sys`), so errno is not touched. Before this crate closes a counter's
//! descriptor, it checks that the number still refers to that counter. Where the processor and the
//! kernel allow it, the module `user` reads a group without a system call. It writes the same words
//! to [`Readings`] as read(2) would.

pub mod perf;
pub mod plan;
pub mod readings;
pub mod thread;

mod sim;
mod sys;
mod user;

pub use perf::{OpenError, OpenErrorKind, Target};
pub use plan::{Plan, PlanError};
pub use readings::{Coverage, Readings};
pub use thread::{OpenFailure, ReadStatus, ThreadCounters};
