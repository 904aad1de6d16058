//! The input for the text above and below a table: a profile, the sums over it, and what the user
//! asked for.

use analysis::{By, Summary, TracksSummary};
use model::metric::Bound;
use profile::Profile;

/// The data that views of calls show.
#[derive(Clone, Copy)]
pub struct Overview<'a> {
    pub profile: &'a Profile,
    /// The sums over the profile's calls.
    pub summary: &'a Summary,
    /// The summary of the profile's time series.
    pub tracks: &'a TracksSummary,
    /// The kind of the rows.
    pub by: By,
    /// Only ops whose name matches this pattern are shown.
    pub filter: Option<&'a str>,
    /// Only activities of this kind, on this device and on this stream are shown.
    pub places: [Option<&'a str>; 3],
    /// Calls that began in the first `skip_ms` milliseconds of each thread are left out; 0 for
    /// none.
    pub skip_ms: f64,
    /// Whether values are shown as they were recorded, without subtracting what empty calls read.
    pub raw: bool,
    /// The metrics of each row.
    pub metrics: &'a [Bound],
}

/// Returns the name of what a row stands for, which is also the name of the column with the rows'
/// names.
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
