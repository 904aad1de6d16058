//! Chrome's JSON trace format.

pub mod event;
pub mod read;
pub mod time;
