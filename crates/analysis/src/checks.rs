//! What must be true of a table, checked once before it is shown. A violation is a defect of ours,
//! or a sign that what is subtracted for the recorder is not what it took in this program.

use crate::estimate::Estimate;
use crate::table::{Key, Row};

/// Differences below this part of a value come from rounding.
const ROUNDING: f64 = 1e-6;
/// With fewer calls, it is chance whether a bracket took less than its mean.
const FEWEST: u64 = 30;

/// Something that does not hold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Violation {
    /// The row; `None`: the table as a whole.
    pub row: Option<Key>,
    /// What does not hold.
    pub what: Contradiction,
}

/// What does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contradiction {
    /// In most calls, what was to be subtracted is more than there was.
    NothingLeft,
    /// A value is negative, or its interval does not contain it.
    Value,
    /// Minimum, quantiles, mean and maximum are not in this order.
    Order,
    /// The self time is longer than the total.
    OwnAboveTotal,
    /// Self times of the rows do not add up to the time in calls.
    Sum,
}

fn is_at_most(a: f64, b: f64) -> bool {
    a <= b + ROUNDING * b.abs().max(1.0)
}

fn is_sound(value: Estimate) -> bool {
    let Estimate { value, low, high } = value;
    value >= 0.0 && is_at_most(low, value) && is_at_most(value, high) && high.is_finite()
}

/// Whether the correction took all of the own time of most calls of an op.
pub(crate) fn nothing_is_left(calls: u64, exhausted: u64) -> bool {
    calls >= FEWEST && 2 * exhausted > calls
}

/// What does not hold in a row.
fn of_row(row: &Row, nested: bool) -> Option<Contradiction> {
    let sampled = row.sampled.as_deref();
    let calls = row.calls + row.inner;
    if nothing_is_left(calls, row.exhausted) {
        return Some(Contradiction::NothingLeft);
    }
    // Of calls that were only counted, nothing else is known.
    if calls == 0 || sampled.is_some_and(|sampled| sampled.timed == 0) {
        return None;
    }
    let counters = row.counters.iter().flatten().map(|counter| counter.value);
    let total_known = sampled.is_none_or(|sampled| sampled.total.is_some());
    let own_known = total_known && sampled.is_none_or(|sampled| sampled.self_known);
    let times = [(row.total, total_known), (row.own, own_known)];
    let times = times.into_iter().filter(|(_, known)| *known).map(|(time, _)| time);
    if !times.chain(counters).all(is_sound) || row.min < 0.0 {
        return Some(Contradiction::Value);
    }
    let ordered = |values: &[f64]| values.windows(2).all(|pair| is_at_most(pair[0], pair[1]));
    let mean = row.mean().value;
    if !ordered(&[row.min, row.p50, row.p99, row.max])
        || total_known && !ordered(&[row.min, mean, row.max])
    {
        return Some(Contradiction::Order);
    }
    // Calls that overlap without being nested may own more than the outermost ones take.
    let checked = own_known && nested && !is_at_most(row.own.value, row.total.value);
    checked.then_some(Contradiction::OwnAboveTotal)
}

/// Everything that does not hold. `nested`: all calls are properly nested or disjoint. `total`: the
/// time in calls, if the rows are of all calls and it is no estimate.
pub(crate) fn violations(rows: &[Row], nested: bool, total: Option<Estimate>) -> Vec<Violation> {
    let mut found: Vec<Violation> = rows
        .iter()
        .filter_map(|row| Some(Violation { row: Some(row.key), what: of_row(row, nested)? }))
        .collect();
    found.sort_by_key(|violation| violation.row);
    let own: f64 = rows.iter().map(|row| row.own.value).sum();
    if total.is_some_and(|total| (own - total.value).abs() > ROUNDING * total.value.max(1.0)) {
        found.push(Violation { row: None, what: Contradiction::Sum });
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row() -> Row {
        let mut row = Row::of_counts(Key::Op(0), 0);
        (row.calls, row.total, row.own) = (2, Estimate::exact(30.0), Estimate::exact(25.0));
        (row.min, row.p50, row.p99, row.max) = (10.0, 15.0, 19.9, 20.0);
        row
    }

    #[test]
    fn each_contradiction_is_found() {
        assert_eq!(of_row(&row(), true), None);
        let with = |change: fn(&mut Row)| {
            let mut row = row();
            change(&mut row);
            of_row(&row, true)
        };
        assert_eq!(with(|row| row.own = Estimate::exact(-1.0)), Some(Contradiction::Value));
        assert_eq!(with(|row| row.total.high = 29.0), Some(Contradiction::Value));
        assert_eq!(with(|row| row.total = Estimate::exact(f64::NAN)), Some(Contradiction::Value));
        assert_eq!(with(|row| row.min = 15.5), Some(Contradiction::Order));
        assert_eq!(with(|row| row.max = 14.0), Some(Contradiction::Order));
        assert_eq!(with(|row| row.p50 = 9.0), Some(Contradiction::Order));
        assert_eq!(with(|row| row.own = Estimate::exact(31.0)), Some(Contradiction::OwnAboveTotal));
        let none_left = |row: &mut Row| (row.calls, row.exhausted) = (40, 21);
        let mut left = row();
        none_left(&mut left);
        assert_eq!(of_row(&left, true), Some(Contradiction::NothingLeft));
        // Few calls say nothing.
        assert_eq!(with(|row| row.exhausted = 2), None);
    }
}
