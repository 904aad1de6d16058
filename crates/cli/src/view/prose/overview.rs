//! The input for the text above and below a table: a profile, its summary, and the user's choices.

use analysis::{By, Summary, TracksSummary};
use model::metric::Bound;
use profile::Profile;

/// The data and the choices of a view of calls.
#[derive(Clone, Copy)]
pub struct Overview<'a> {
    pub profile: &'a Profile,
    /// The summary of the profile's calls.
    pub summary: &'a Summary,
    /// The summary of the profile's time series.
    pub tracks: &'a TracksSummary,
    /// What a row stands for, such as an op or a thread.
    pub by: By,
    /// Only ops whose names match this pattern are shown.
    pub filter: Option<&'a str>,
    /// A kind, a device and a stream. Only activities that match the given ones are shown.
    pub places: [Option<&'a str>; 3],
    /// Calls in the first `skip_ms` milliseconds of each thread are left out; 0 for none.
    pub skip_ms: f64,
    /// Whether values are shown as recorded, without subtracting the values of empty calls.
    pub raw: bool,
    /// The metrics of each row.
    pub metrics: &'a [Bound],
}

/// Returns the word for what a row stands for. The column of names has the same word.
pub fn name_of(by: By) -> &'static str {
    match by {
        By::Op | By::OpInProcess => "op",
        By::Thread => "thread",
        By::Cpu => "cpu",
        By::Process => "process",
        By::Rank => "rank",
        By::Kind => "kind",
        By::Device => "device",
        By::Stream => "stream",
    }
}
