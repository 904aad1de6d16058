//! What makes one of our exports importable as the profile from which it was made.

pub mod document;
pub mod events;
pub mod head;
