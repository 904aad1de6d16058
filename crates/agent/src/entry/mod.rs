//! The highest layer: where the host enters the agent.

pub mod c_interface;
pub mod exec;
pub mod sanitizer;
pub mod session;
