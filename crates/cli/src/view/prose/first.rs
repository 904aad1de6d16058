//! Describes first calls that are slower than later ones. Possible reasons are cold caches, pages
//! that are touched for the first time, and threads that have just started. Such calls are part of
//! the program's work, but not typical of its steady state.
//!
//! [`analysis::SlowFirst`] has the rule.

use analysis::{By, Row, SlowFirst};

use super::overview::Overview;
use crate::view::labels::labels;
use crate::view::units::{percent, plural, time};

/// At most this many ops are named.
const NAMED: usize = 3;

/// For a report by op, returns a sentence about slow first calls, if there are any.
pub fn slow(overview: &Overview<'_>) -> Option<String> {
    if overview.by != By::Op {
        return None;
    }
    let slow = |row| Some((row, overview.summary.slow_first(row)?));
    let mut rows: Vec<(&Row, SlowFirst)> = overview.summary.rows.iter().filter_map(slow).collect();
    if rows.is_empty() {
        return None;
    }
    rows.sort_by(|(a, _), (b, _)| {
        b.first.total.total_cmp(&a.first.total).then_with(|| a.key.cmp(&b.key))
    });
    let all = rows.len();
    rows.truncate(NAMED);
    let ns = |ticks: f64| time(ticks * overview.profile.timeline.ns_per_tick());
    let names = labels(overview.profile, &rows.iter().map(|(row, _)| row.key).collect::<Vec<_>>());
    let ops = rows.iter().zip(names).map(|((row, first), name)| {
        let first_calls = match row.first.calls {
            1 => "first call".to_owned(),
            n => format!("{}, up to", plural(n.into(), "first call")),
        };
        format!(
            "{name} ({first_calls} {}, {} of its total; median {})",
            ns(row.first.max),
            percent(first.share),
            ns(row.p50),
        )
    });
    let ops = ops.collect::<Vec<_>>().join(", ");
    let more = match all - rows.len() {
        0 => String::new(),
        n => format!(" and {}", plural(n as u128, "further op")),
    };
    // With a budget, `--skip-ms` is not offered, because the times of calls that were only counted
    // are not known.
    let way_out = match overview.profile.is_sampled() {
        true => "",
        false => " (--skip-ms MS leaves out the calls of each thread's first milliseconds)",
    };
    Some(format!(
        "the first call of a thread took much longer than the others{way_out}: {ops}{more}"
    ))
}
