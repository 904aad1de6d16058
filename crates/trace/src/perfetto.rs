//! Reads, writes and checks Perfetto's protobuf trace format.

pub mod check;
pub(crate) mod decode;
pub(crate) mod encode;
mod extras;
pub(crate) mod fields;
mod intern;
mod json;
mod nest;
pub mod read;
mod row;
pub mod write;
