//! The fifth layer: one folder for each kind of host.

pub mod iree;
pub mod tvm;
