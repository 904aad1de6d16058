//! Tests of datasets on disk.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;
mod damaged;
mod growing;
mod kills;
mod merged;
