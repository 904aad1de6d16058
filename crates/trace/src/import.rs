//! Profiles from traces.

mod any;
pub mod own;
pub mod trace;

pub use any::read_any;

/// What was imported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Imported {
    /// Events.
    pub events: u64,
    /// Slices that became calls.
    pub calls: u64,
    /// Asynchronous spans.
    pub spans: u64,
    /// Values of counters.
    pub samples: u64,
    /// Slices that begin without an end, end without a begin, or end before they begin.
    pub unpaired: u64,
}
