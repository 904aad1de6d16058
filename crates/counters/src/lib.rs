//! From a resolved counter to an open group and a reading; with the feature `names`, from what a
//! person types.
//!
//! ```text
//!  offline (feature names)                        in the target (always built)
//!
//!  "page-faults:u" ── names ──► model::Counter ── plan ──► Plan       (groups, checked once)
//!                       │                                    │
//!                   catalogue                            thread        (opens one thread's groups
//!                   check, doctor                            │          through perf, or sim)
//!                                                            ▼
//!                                                       Readings       (raw kernel words, one
//!                                                                       read(2) per perf group)
//! ```
//!
//! | module | what |
//! |---|---|
//! | [`plan`] | [`Plan`]: counters in groups, validated before anything is opened |
//! | [`thread`] | [`ThreadCounters`]: one thread's open groups; open, read, close |
//! | [`readings`] | [`Readings`]: the fixed buffer that the kernel writes into, and [`Coverage`] |
//! | [`perf`] | `perf_event_attr` and `perf_event_open`, [`OpenError`] |
#![cfg_attr(
    feature = "names",
    doc = "| [`measure`] | [`Counters`]: counting a piece of one's own program |"
)]
#![cfg_attr(
    feature = "names",
    doc = "| [`collector`] | [`Collector`](collector::Collector): values of one's own behind each op of a model |"
)]
#![cfg_attr(feature = "names", doc = "| [`own`] | what of the recorder itself a counter counts |")]
#![cfg_attr(feature = "names", doc = "| [`names`] | what people type, parsed and resolved |")]
#![cfg_attr(
    feature = "names",
    doc = "| [`check`] | whether counters work here, and the remedy if not |"
)]
#![cfg_attr(feature = "names", doc = "| [`defaults`] | what is counted when nobody typed a list |")]
#![cfg_attr(
    feature = "names",
    doc = "| [`devices`] | kinds of devices, and the seam for accelerators' counters |"
)]
#![cfg_attr(
    feature = "names",
    doc = "| [`doctor`] | what about this machine matters to counting |"
)]
#![cfg_attr(
    feature = "names",
    doc = "| [`switches`] | what counters add to a thread's context switches |"
)]
#![cfg_attr(feature = "names", doc = "| [`machine`] | the files that all of this is read from |")]
//!
//! # Rules of the in-target half
//!
//! Where the processor allows it (module `user`), a group of hardware counters is read without the
//! kernel, into the same words.
//!
//! No allocation, lock, standard I/O or panic on the read path. Every system call is made
//! directly (module `sys`), so errno is never touched. Nothing here closes a descriptor number
//! without first making sure that it still names the counter that was opened.

pub mod perf;
pub mod plan;
pub mod readings;
pub mod thread;

#[cfg(feature = "names")]
pub mod check;
#[cfg(feature = "names")]
pub mod collector;
#[cfg(feature = "names")]
pub mod defaults;
#[cfg(feature = "names")]
pub mod devices;
#[cfg(feature = "names")]
pub mod doctor;
#[cfg(feature = "names")]
pub mod machine;
#[cfg(feature = "names")]
pub mod measure;
#[cfg(feature = "names")]
pub mod names;
#[cfg(feature = "names")]
pub mod own;
#[cfg(feature = "names")]
pub mod switches;

#[cfg(feature = "names")]
pub mod killer;
mod sim;
mod sys;
mod user;

#[cfg(feature = "names")]
pub use measure::{Counters, Measurement};
pub use perf::{OpenError, OpenErrorKind, Target};
pub use plan::{Plan, PlanError};
pub use readings::{Coverage, Readings};
pub use thread::{OpenFailure, ReadStatus, ThreadCounters};
