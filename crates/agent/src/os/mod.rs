//! The lowest layer: what the agent asks of the operating system. Knows nothing of profiles.
//!
//! | module | what |
//! |---|---|
//! | [`sys`] | system calls that leave `errno` alone, and memory reads that cannot fault |
//! | [`hidden_child`] | runs a program in a way that the host cannot notice |
//! | [`kept`] | memory that is kept until the process ends, where LeakSanitizer finds it |
//! | `inject` | panics and signals at named points, in a library built for tests |

pub mod hidden_child;
#[cfg(feature = "inject-panics")]
pub mod inject;
pub mod kept;
pub mod sys;
