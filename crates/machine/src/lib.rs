//! What this machine lets us count and record. Outside of the target only.
//!
//! | module | what |
//! |---|---|
//! | [`files`] | [`Machine`]: what the kernel says about the machine in files |
//! | [`killer`] | whether a seccomp filter kills whoever opens a counter; ask before opening any |
//! | [`check`] | whether counters work here, tried as the agent will open them, and why not |
//! | [`doctor`] | everything about this machine that matters to counting and recording |
//! | [`switches`] | what counters add to a thread's context switches |

pub mod check;
pub mod doctor;
pub mod files;
pub mod killer;
pub mod switches;

pub use files::Machine;
