//! The lowest layer: access to the operating system. It does not know what a profile is.
//!
//! | module | purpose |
//! |---|---|
//! | [`sys`] | makes system calls that leave `errno` alone, and reads memory without faulting |
//! | [`hidden_child`] | runs a program without the host being able to notice |
//! | [`kept`] | keeps memory until the process ends, where LeakSanitizer finds it |
//! | `inject` | panics or raises signals at named points, in a library built for tests |

pub mod hidden_child;
#[cfg(feature = "inject-panics")]
pub mod inject;
pub mod kept;
pub mod sys;
