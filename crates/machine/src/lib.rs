//! Finds out what can be counted and recorded on this machine. The recorder inside a profiled
//! program does not use this crate.
//!
//! | module | what |
//! |---|---|
//! | [`files`] | [`Machine`]: the kernel's files about the machine |
//! | [`killer`] | finds out whether a seccomp filter kills a process that opens a counter |
//! | [`check`] | whether counters work here, and why not; they are opened as the agent opens them |
//! | [`doctor`] | everything about this machine that matters to counting and recording |
//! | [`roofs`] | measures how fast this machine can compute and move bytes at most |
//! | [`switches`] | what counters add to a thread's context switches |

pub mod check;
pub mod doctor;
pub mod files;
pub mod killer;
pub mod roofs;
pub mod switches;

pub use files::Machine;
