//! What makes an export of ours importable as the profile that it was made of.

pub mod document;
pub mod events;
pub mod head;
