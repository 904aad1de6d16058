//! Perfetto's protobuf trace format.

pub mod check;
mod extras;
pub(crate) mod fields;
mod intern;
mod json;
mod nest;
mod proto;
mod row;
mod wire;
pub mod write;
