//! The fourth layer: records calls of a thread, whoever makes them.

pub mod bracket;
pub mod calibrate;
pub mod collectors;
pub mod fork;
pub mod thread;
