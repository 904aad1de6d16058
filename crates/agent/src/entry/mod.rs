//! The highest layer: where the host enters the agent, and the list of adapters.
//!
//! | module | what |
//! |---|---|
//! | [`constructor`] | start and end of the process |
//! | [`adapters`] | the list of adapters |
//! | [`session`] | recording that begins and ends within the process |
//! | [`c_interface`] | the exported table of functions |
//! | [`one_agent`] | whether this is the one agent of the process |
//! | [`exec`] | programs that the host starts: which of them can carry the library |
//! | [`sanitizer`] | what AddressSanitizer asks of the program that it is in |

pub mod adapters;
pub mod c_interface;
pub mod constructor;
pub mod exec;
pub mod one_agent;
pub mod sanitizer;
pub mod session;
