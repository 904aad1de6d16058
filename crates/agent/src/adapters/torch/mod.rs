//! The adapter for PyTorch. PyTorch has a C++ interface. A shim (a small library that is compiled
//! against the user's PyTorch) uses this interface, and calls the C functions that this adapter
//! exports in tables. `include/counterpoint/torch.h` documents the tables.
//!
//! ```text
//!  at::RecordFunction ─► shim ─► begin · op · end            role op
//!  record_function ────► shim ─► begin_apart … end_apart     role range
//!    libtorch_cpu ─► GOMP_parallel (ours) ─────────────────── role region
//!        OpenMP's thread ─► body ──────────────────────────── role task
//! ```
//!
//! | module | purpose |
//! |---|---|
//! | [`description`] | describes PyTorch for the profile |
//! | [`ops`] | records ops and ranges |
//! | [`forward`] | finds the forward op to which an op of the backward pass belongs |
//! | [`host`] | registers PyTorch as a host (a runtime whose ops are recorded) |
//! | [`known`] | finds the entry of an op by its schema or its name |
//! | [`openmp`] | records parallel regions and their tasks |
//! | [`patch`] | replaces `GOMP_parallel` in the tables of loaded libraries |
//! | [`steps`] | in a run with a budget, decides in which steps of the program PyTorch announces ops |
//! | [`log`] | stores the recordings of PyTorch's own profiler in the profile |
//! | [`plugins`] | runs profiler plugins inside PyTorch's own profiler |

mod description;
mod forward;
mod host;
mod known;
pub mod log;
mod openmp;
pub mod ops;
mod patch;
pub mod plugins;
mod steps;

use crate::process::hosts::Described;
use crate::recorder::adapter::Adapter;

pub static HOST: Described = Described::new(description::HOST);

pub static ADAPTER: Adapter = Adapter {
    rehearse: ops::rehearse,
    // No counters are read for regions, nor for tasks on the thread that launched their region.
    has_uncounted: true,
    ..Adapter::NOTHING
};
