//! The input for the text above and below a table: a profile, its summary, and the user's choices.

use analysis::{By, Summary, TracksSummary};
use model::metric::Bound;
use profile::Profile;

#[derive(Clone, Copy)]
pub struct Overview<'a> {
    pub profile: &'a Profile,
    pub summary: &'a Summary,
    pub tracks: &'a TracksSummary,
    /// What each row of the table stands for, such as an op or a thread.
    pub by: By,
    /// The pattern of `--filter`: only ops whose names match it are shown.
    pub filter: Option<&'a str>,
    /// The patterns of `--kind`, `--device` and `--stream`, which select the activities (such as
    /// work on a GPU) that are shown.
    pub places: [Option<&'a str>; 3],
    /// Calls that began within this many milliseconds after their thread's first call are left out.
    pub skip_ms: f64,
    /// Whether values are shown as they were recorded. Otherwise, what the recorder measures for an
    /// empty call is subtracted.
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
