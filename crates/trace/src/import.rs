//! Makes profiles from traces.
//!
//! | module | input |
//! |---|---|
//! | `any` | recognises the format of a file |
//! | [`trace`] | a trace of any program: its events become calls, tracks and activities |

mod any;
pub mod trace;

pub use any::read_any;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Imported {
    pub events: u64,
    /// Number of slices that became calls.
    pub calls: u64,
    /// Number of asynchronous spans.
    pub spans: u64,
    /// Number of counter values.
    pub samples: u64,
    /// Number of slices and spans that have only a start or only an end, or that end before they
    /// begin.
    pub unpaired: u64,
}
