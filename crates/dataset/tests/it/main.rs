//! Datasets on disk.

mod common;
mod kills;
mod merged;
