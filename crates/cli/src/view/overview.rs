//! A profile, what was found in it, and what was asked: what the text above and below a table is
//! written from.

use analysis::{By, Summary, TracksSummary};
use model::metric::Bound;
use profile::Profile;

/// What a view of calls knows.
#[derive(Clone, Copy)]
pub struct Overview<'a> {
    /// The profile.
    pub profile: &'a Profile,
    /// Its calls, added up.
    pub summary: &'a Summary,
    /// Its time series.
    pub tracks: &'a TracksSummary,
    /// What a row stands for.
    pub by: By,
    /// Only ops whose name matches this are shown.
    pub filter: Option<&'a str>,
    /// The calls of so many milliseconds of each thread are left out; 0 for none.
    pub skip_ms: f64,
    /// Whether what an empty call reads was taken off each call.
    pub subtract_probe: bool,
    /// The metrics of each row.
    pub metrics: &'a [Bound],
}

/// The name of what a row stands for: also that of the column with the rows' names.
pub fn name_of(by: By) -> &'static str {
    match by {
        By::Op => "op",
        By::Thread => "thread",
        By::Cpu => "cpu",
        By::Process => "process",
    }
}
