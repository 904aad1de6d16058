//! Perfetto's protobuf trace format.

pub mod check;
pub(crate) mod fields;
mod intern;
mod nest;
mod proto;
pub mod read;
mod row;
pub(crate) mod wire;
pub mod write;
