//! Checks tables for values that cannot be true. A violation is a bug in Counterpoint, or a sign
//! that the recorder took less time than was subtracted for it.

mod trees;

use crate::estimate::Estimate;
use crate::probe::ProbeCost;
use crate::table::{Key, Row};
use crate::threads::ThreadTime;

pub use trees::{LoopViolation, OpViolation};

/// Differences below this part of a value come from rounding.
const ROUNDING: f64 = 1e-6;
/// Rows with fewer calls than this are not checked for [`Contradiction::NothingLeft`]. The
/// recorder's mean time is subtracted from each call. If there are few calls, the recorder may by
/// chance take less than this mean in most of them.
const FEWEST: u64 = 30;

/// A contradiction, and the row in which it is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Violation {
    /// The row; `None` for the table as a whole.
    pub row: Option<Key>,
    pub what: Contradiction,
}

/// A value that cannot be true.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contradiction {
    /// In most calls of the row, the recorder's time, which is subtracted, is at least the whole
    /// self time.
    NothingLeft,
    /// A value is negative or not finite, or is outside of its interval (the range of its error).
    Value,
    /// Minimum, median, 99th percentile and maximum are not in this order, or the mean is not
    /// between minimum and maximum.
    Order,
    /// The self time, or the time of another part of the row, is longer than the row's total time.
    OwnAboveTotal,
    /// The self times of the rows do not add up to the time in calls or, in a table of ops, to the
    /// wall time of the model's runs.
    Sum,
    /// A time of a thread is negative, its time in calls or on a CPU is longer than its wall time,
    /// or its time off the CPU between calls is longer than its time outside of calls.
    Thread,
    /// The estimated cost of recording is higher than the processor time of the process, or a part
    /// of the cost is negative or outside of its interval.
    Price,
}

impl Contradiction {
    /// Whether showing the recorded values instead of the corrected values avoids the
    /// contradiction.
    pub fn is_of_correction(self) -> bool {
        !matches!(self, Self::Thread | Self::Price)
    }
}

fn is_at_most(a: f64, b: f64) -> bool {
    a <= b + ROUNDING * b.abs().max(1.0)
}

fn is_sound(value: Estimate) -> bool {
    let Estimate { value, low, high } = value;
    value >= 0.0 && is_at_most(low, value) && is_at_most(value, high) && high.is_finite()
}

/// Whether an op has at least [`FEWEST`] calls, and more than half of its calls are exhausted:
/// their self time is 0 after the correction.
pub(crate) fn nothing_is_left(calls: u64, exhausted: u64) -> bool {
    calls >= FEWEST && 2 * exhausted > calls
}

/// Whether some op may have [`Contradiction::NothingLeft`], because `exhausted`, the number of
/// exhausted calls of all ops, is more than half of [`FEWEST`]. Exhausted calls have no self time
/// left after the correction.
pub(crate) fn may_contradict(exhausted: u64) -> bool {
    2 * exhausted > FEWEST
}

/// Finds the ops with [`Contradiction::NothingLeft`]. In a run with a budget (a limit for the cost
/// of recording), only the timed calls are considered.
pub(crate) fn exhausted_ops(rows: &[Row]) -> Vec<Violation> {
    let timed = |row: &Row| row.sampled.as_deref().map_or(row.calls + row.inner, |s| s.timed);
    let found = rows.iter().filter(|row| nothing_is_left(timed(row), row.exhausted));
    let what = Contradiction::NothingLeft;
    let mut found: Vec<_> = found.map(|row| Violation { row: Some(row.key), what }).collect();
    found.sort_by_key(|violation| violation.row);
    found
}

fn of_row(row: &Row, nested: bool) -> Option<Contradiction> {
    let sampled = row.sampled.as_deref();
    let calls = row.calls + row.inner;
    // Calls that were only counted have no times.
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
    let quantiles_known = sampled.is_none_or(|sampled| sampled.effective.is_some());
    if !ordered(&[row.min, row.max])
        || quantiles_known && !ordered(&[row.min, row.p50, row.p99, row.max])
        || total_known && !ordered(&[row.min, mean, row.max])
    {
        return Some(Contradiction::Order);
    }
    // If calls overlap without being nested, the sum of their self times may exceed the total of
    // the outermost calls.
    let checked = own_known && nested && !is_at_most(row.own.value, row.total.value);
    checked.then_some(Contradiction::OwnAboveTotal)
}

/// Returns the contradictions in these rows, other than [`Contradiction::NothingLeft`]. `nested`
/// means that all calls are properly nested or disjoint. `total` is the time in calls; it is given
/// if the rows contain all calls and the time is not an estimate.
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

/// The clocks for the wall time and the processor time of a thread may run at rates that differ by
/// at most this part.
const CLOCKS: f64 = 0.01;
/// The most processor time, in ns, that passes between the readings of the two clocks.
const BETWEEN_NS: f64 = 1e6;

fn of_thread(thread: &ThreadTime) -> bool {
    let room = |ns: f64| ns * (1.0 + CLOCKS) + BETWEEN_NS;
    let (wall, outside) = (thread.wall_ns, thread.no_dispatch_ns());
    let known = !thread.dispatch_known || is_at_most(thread.dispatch_ns, wall);
    let on = thread.cpu_ns.is_none_or(|cpu| cpu >= 0.0 && cpu <= room(wall));
    let off = thread.off_cpu.is_none_or(|off| off.ns >= 0.0 && is_at_most(off.ns, outside));
    wall >= 0.0 && thread.dispatch_ns >= 0.0 && known && on && off
}

fn of_price(price: &ProbeCost) -> bool {
    let parts = [Some(price.probes), Some(price.after), Some(price.counting)];
    let parts =
        parts.into_iter().chain([price.way, price.waiting, price.switched, price.start]).flatten();
    let total = price.total();
    let below = price.process_ns.is_none_or(|all| total.low <= all * (1.0 + CLOCKS) + BETWEEN_NS);
    parts.chain([total]).all(is_sound) && below
}

/// Returns the contradictions in the times of threads and in the cost of recording.
pub(crate) fn of_run(threads: &[ThreadTime], prices: &[ProbeCost]) -> Vec<Violation> {
    let threads = threads.iter().filter(|thread| !of_thread(thread)).map(|thread| Violation {
        row: Some(Key::Thread(thread.process, thread.thread)),
        what: Contradiction::Thread,
    });
    let prices = prices.iter().filter(|price| !of_price(price)).map(|price| Violation {
        row: Some(Key::Process(price.process)),
        what: Contradiction::Price,
    });
    threads.chain(prices).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::threads::OffCpu;

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
        let mut left = row();
        (left.calls, left.exhausted) = (40, 21);
        let violation = Violation { row: Some(left.key), what: Contradiction::NothingLeft };
        assert_eq!(exhausted_ops(&[row(), left.clone()]), [violation]);
        // 21 of 42 calls are not more than half, and the second row has too few calls.
        left.calls = 42;
        let mut few = row();
        few.exhausted = 2;
        assert_eq!(exhausted_ops(&[left, few]), []);
        assert!(may_contradict(16) && !may_contradict(15));
    }

    #[test]
    fn threads_that_cannot_be() {
        let fine = ThreadTime {
            process: 0,
            thread: 1,
            calls: 3,
            begin: 0,
            end: 1_000_000_000,
            wall_ns: 1e9,
            dispatch_ns: 4e8,
            recorder_ns: 0.0,
            dispatch_known: true,
            off_cpu_in_calls_ns: None,
            off_cpu: Some(OffCpu { ns: 6e8, of_ns: 6e8, assumed: false }),
            flush_ticks: 0,
            usage: None,
            cpu_ns: Some(4e8),
        };
        let found = |change: fn(&mut ThreadTime)| {
            let mut thread = fine;
            change(&mut thread);
            of_run(&[fine, thread], &[])
        };
        assert_eq!(found(|_| ()), []);
        assert_eq!(found(|thread| thread.cpu_ns = Some(1.01e9)), []);
        let row = Some(Key::Thread(0, 1));
        let violation = Violation { row, what: Contradiction::Thread };
        for change in [
            |thread: &mut ThreadTime| thread.dispatch_ns = 1.1e9,
            |thread: &mut ThreadTime| thread.cpu_ns = Some(1.1e9),
            |thread: &mut ThreadTime| thread.off_cpu.as_mut().expect("known").ns = 7e8,
            |thread: &mut ThreadTime| thread.dispatch_ns = -1.0,
        ] {
            assert_eq!(found(change), [violation]);
        }
    }

    #[test]
    fn prices_that_cannot_be() {
        let fine = ProbeCost {
            process: 0,
            calls: 1_000,
            of_calls: 1_000,
            per_call_ns: 1_000.0,
            calibrated_per_call_ns: 900.0,
            probes: Estimate::within(1e6, 1e5),
            after: Estimate::exact(0.0),
            hits: crate::probe::Hits::default(),
            only_counted: 0,
            counting: Estimate::exact(0.0),
            uncounted: 0,
            uncounted_call_ns: None,
            way: None,
            way_by_steps: false,
            waiting: None,
            waits: false,
            switched: Some(Estimate::exact(0.0)),
            switches: 0,
            flush_ns: 1e4,
            attach_ns: 1e4,
            start: None,
            cpu_ns: Some(4e7),
            process_ns: Some(5e7),
            dispatch_ns: Some(3e7),
            empty_call: Default::default(),
        };
        let found = |change: fn(&mut ProbeCost)| {
            let mut price = fine.clone();
            change(&mut price);
            of_run(&[], &[fine.clone(), price])
        };
        assert_eq!(found(|_| ()), []);
        let violation = Violation { row: Some(Key::Process(0)), what: Contradiction::Price };
        assert_eq!(found(|price| price.probes = Estimate::within(9e7, 1e5)), [violation]);
        assert_eq!(found(|price| price.after = Estimate::exact(-1.0)), [violation]);
        assert_eq!(found(|price| price.counting.high = -1.0), [violation]);
    }
}
