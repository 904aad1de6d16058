//! From a resolved counter to an open group and a reading. Built into the target.
//!
//! ```text
//!  model::Counter ── plan ──► Plan ── thread ──► ThreadCounters ── read ──► Readings
//!                             groups,            one thread's groups        raw kernel words, one
//!                             checked once       through perf, or sim       read(2) per perf group
//! ```
//!
//! | module | what |
//! |---|---|
//! | [`plan`] | [`Plan`]: counters in groups, validated before anything is opened |
//! | [`thread`] | [`ThreadCounters`]: one thread's open groups; open, read, close |
//! | [`readings`] | [`Readings`]: the fixed buffer that the kernel writes into, and [`Coverage`] |
//! | [`perf`] | `perf_event_attr` and `perf_event_open`, [`OpenError`] |
//!
//! The names that people type are in the crate `names`, whether a counter works on this machine in
//! `machine`, and counting a piece of one's own program in `measure`.
//!
//! # Rules
//!
//! No allocation, lock, standard I/O or panic on the read path. Every system call is made
//! directly (module `sys`), so errno is never touched. Nothing here closes a descriptor number
//! without first making sure that it still names the counter that was opened. Where the processor
//! allows it (module `user`), a group of hardware counters is read without the kernel, into the same
//! words.

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
