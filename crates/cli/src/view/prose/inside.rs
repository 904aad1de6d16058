//! Writes the last line of a report: how to look inside of the function that takes most of the
//! time.

use analysis::Summary;
use profile::Profile;

use crate::terminal::visible;
use crate::view::units::{percent, shorten};

/// Longer names are shortened.
const NAME: usize = 60;

/// Returns the line. `None` if no function takes most of the time, or if `has_loops` says that the
/// profile has loops or may have some. `summary` must have one row per op, and must not be
/// filtered.
pub fn text(profile: &Profile, summary: &Summary, has_loops: bool) -> Option<String> {
    let most = summary.dominant(profile).filter(|_| !has_loops)?;
    let op = profile.ops.get(most.op)?;
    Some(format!(
        "{} takes {} of the time in calls; to see which of its loops do, {}",
        shorten(&visible(&op.name), NAME),
        percent(most.share),
        visible(&profile.ops.host_of(op).inside)
    ))
}
