//! How one looks inside of the function that takes most of the time, in a sentence for the end of a report.

use analysis::Summary;
use profile::Profile;

use crate::terminal::visible;
use crate::view::units::{percent, shorten};

/// Longer names are shortened.
const NAME: usize = 60;

/// `None` if no function takes most of the time, if nothing is known about how one would look inside of it, or if
/// its loops may be in the profile already. `summary` is one by op without a filter.
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
