//! Perfetto's protobuf trace format.

pub mod check;
pub(crate) mod fields;
mod intern;
mod nest;
mod proto;
mod row;
mod wire;
pub mod write;
