//! Finds out what this machine lets us count and record. The command line and the crate `measure`
//! use this crate. The recorder inside a profiled program does not.
//!
//! | module | what |
//! |---|---|
//! | [`files`] | [`Machine`]: the kernel's files about the machine |
//! | [`killer`] | whether a seccomp filter kills a process that opens a counter; ask before opening one |
//! | [`check`] | whether counters work here, and why not; they are opened as the agent opens them |
//! | [`doctor`] | everything about this machine that matters to counting and recording |
//! | [`roofs`] | how fast this machine computes and moves bytes at most; measures it |
//! | [`switches`] | what counters add to a thread's context switches |

pub mod check;
pub mod doctor;
pub mod files;
pub mod killer;
pub mod roofs;
pub mod switches;

pub use files::Machine;
