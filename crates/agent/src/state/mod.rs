//! The second layer: whether something is being recorded, and what was asked for.

pub mod run;
