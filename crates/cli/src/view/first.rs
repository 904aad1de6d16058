//! First calls that are slower than the rest, because of cold caches, pages that are touched for
//! the first time, or threads that have just started. They belong to the program, but not to its
//! steady state.
//!
//! This is the rule, which `docs/schema.md` also states. For each op with at least [`CALLS`] calls,
//! look at the first call of each thread. These calls are pointed out if the longest of them took
//! more than [`TIMES`] times the op's median, and if together they are at least [`PART`] of the
//! op's total and [`OF_ALL`] of the time in all calls.

use analysis::{By, Row};

use super::labels::labels;
use super::overview::Overview;
use super::units::{percent, plural, time};

/// With fewer calls, the median is not meaningful.
const CALLS: u64 = 10;
const TIMES: f64 = 10.0;
const PART: f64 = 0.05;
const OF_ALL: f64 = 0.01;
/// This many ops are named; the others are only counted.
const NAMED: usize = 3;

fn is_slow(row: &Row, all_ticks: f64) -> bool {
    // If each thread made only one call, there is nothing to compare it with.
    row.calls >= CALLS.max(2 * row.first.calls)
        && row.first.max > TIMES * row.p50
        && part(row) >= PART
        && row.first.total >= OF_ALL * all_ticks
}

/// The part of the op's total time that its first calls took.
fn part(row: &Row) -> f64 {
    row.first.total / row.total.value.max(1.0)
}

/// A sentence about slow first calls, if there are any.
pub fn slow(overview: &Overview<'_>) -> Option<String> {
    if overview.by != By::Op {
        return None;
    }
    let all_ticks = overview.summary.total.map_or(0.0, |total| total.value);
    let mut rows: Vec<&Row> =
        overview.summary.rows.iter().filter(|row| is_slow(row, all_ticks)).collect();
    if rows.is_empty() {
        return None;
    }
    rows.sort_by(|a, b| b.first.total.total_cmp(&a.first.total).then_with(|| a.key.cmp(&b.key)));
    let all = rows.len();
    rows.truncate(NAMED);
    let ns = |ticks: f64| time(ticks * overview.profile.timeline.ns_per_tick());
    let names = labels(overview.profile, &rows.iter().map(|row| row.key).collect::<Vec<_>>());
    let ops = rows.iter().zip(names).map(|(row, name)| {
        format!(
            "{name} ({}, up to {}, {} of its total; median {})",
            plural(row.first.calls.into(), "first call"),
            ns(row.first.max),
            percent(part(row)),
            ns(row.p50),
        )
    });
    let ops = ops.collect::<Vec<_>>().join(", ");
    let more = match all - rows.len() {
        0 => String::new(),
        n => format!(" and {}", plural(n as u128, "further op")),
    };
    // With a budget, it is not known which calls that were only counted this would be.
    let way_out = match overview.profile.is_sampled() {
        true => "",
        false => "; --skip-ms MS leaves out the calls of each thread's first milliseconds",
    };
    Some(format!(
        "the first call of a thread took much longer than the others: {ops}{more}{way_out}"
    ))
}
