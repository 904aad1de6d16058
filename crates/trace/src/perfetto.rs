//! Perfetto's protobuf trace format.

pub(crate) mod fields;
mod intern;
mod proto;
mod row;
pub mod write;
