//! The third layer: what one process owns of a profile.

pub mod part;
