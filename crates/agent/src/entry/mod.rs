//! The highest layer: the host's entry points to the agent, and the list of adapters.
//!
//! | module | purpose |
//! |---|---|
//! | [`constructor`] | handles the start and the end of the process |
//! | [`adapters`] | lists the adapters |
//! | [`session`] | lets recording start and end within the process |
//! | [`c_interface`] | exports the table of functions of the C interface |
//! | [`one_agent`] | decides whether this is the one agent of the process |
//! | [`exec`] | handles programs that the host starts |
//! | [`namespaces`] | lets a program with plugins call `unshare` and `setns` |
//! | [`sanitizer`] | makes the library acceptable to AddressSanitizer, and detects valgrind's race checkers |

pub mod adapters;
pub mod c_interface;
pub mod constructor;
pub mod exec;
pub mod namespaces;
pub mod one_agent;
pub mod sanitizer;
pub mod session;
