//! Perfetto's protobuf trace format.

pub mod check;
mod extras;
pub(crate) mod fields;
mod intern;
mod json;
mod nest;
mod proto;
pub mod read;
mod row;
pub(crate) mod wire;
pub mod write;
