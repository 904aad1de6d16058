//! The lowest layer: access to the operating system. It does not know what a profile is.
//!
//! | module | purpose |
//! |---|---|
//! | [`sys`] | makes system calls without cancellation points; reads memory without faulting |
//! | [`elf`] | reads headers and symbols of an ELF in memory |
//! | [`exit_key`] | calls a function when a thread exits |
//! | [`hidden_child`] | runs a program without the host being able to notice |
//! | [`kept`] | allocates memory that is kept until the process ends and that LeakSanitizer finds |
//! | [`own_image`] | brings this library's code and data into memory, so that they cause no page faults later |
//! | [`own_stack`] | runs work on a stack of our own, because the program's may be small |
//! | [`scratch`] | provides memory for data that is too large for the program's stack |
//! | `inject` | panics or raises signals at named points, in a library built for tests |

pub mod elf;
pub mod exit_key;
pub mod hidden_child;
#[cfg(feature = "inject-panics")]
pub mod inject;
pub mod kept;
pub mod own_image;
pub mod own_stack;
pub mod scratch;
pub mod sys;
