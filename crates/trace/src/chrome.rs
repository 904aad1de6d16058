//! Reads, writes and checks Chrome's JSON trace format, as torch, Kineto, TensorFlow and
//! Counterpoint write it.

pub mod check;
pub mod event;
pub mod read;
pub mod time;
pub mod write;
