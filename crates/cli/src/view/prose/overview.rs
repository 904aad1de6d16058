//! The input for the text above and below a table: a profile, its summary, and the user's choices.

use analysis::{By, Summary, TracksSummary};
use model::metric::Bound;
use profile::Profile;

#[derive(Clone, Copy)]
pub struct Overview<'a> {
    pub profile: &'a Profile,
    pub summary: &'a Summary,
    pub tracks: &'a TracksSummary,
    /// What a row stands for.
    pub by: By,
    /// Only ops whose names match are shown.
    pub filter: Option<&'a str>,
    /// Patterns of a kind, a device and a stream.
    pub places: [Option<&'a str>; 3],
    /// Calls in this many first milliseconds of each thread are left out.
    pub skip_ms: f64,
    /// Values are as recorded: the values of empty calls are not subtracted.
    pub raw: bool,
    pub metrics: &'a [Bound],
}

/// Returns the word for a row, which is also the heading of the column with the rows' names.
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
