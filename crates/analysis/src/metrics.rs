//! Computes metrics. For each set of counters that a metric needs, this module adds up only those
//! calls in which all of these counters were read and counting all the time, and subtracts what an
//! empty call reads. A metric is absent if its value would mostly describe the bracket and not the
//! code inside it.

use model::metric::Bound;
use profile::{Columns, Profile, Status};

use crate::empty::{EmptyCall, empty_call};

/// A metric of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MetricValue {
    /// In the metric's unit, computed from the sums over these calls. `None` if there is no such
    /// call, if the value is not defined (division by zero), or if it is hidden (see
    /// [`MetricValue::hidden`]).
    pub value: Option<f64>,
    /// Number of calls that have all its counters.
    pub calls: u64,
    /// Why there is no value although it could be computed.
    pub hidden: Option<Hidden>,
}

/// Why a metric is not shown.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Hidden {
    /// More than half of a counter's value comes from the bracket itself.
    Counter {
        /// The counter's index in the run's list.
        counter: usize,
        /// The bracket's part of the value, 0.5 to 1.
        empty_share: f64,
    },
    /// More than half of the durations is the duration of empty calls.
    Duration {
        /// The empty calls' part of the durations, 0.5 to 1.
        empty_share: f64,
    },
    /// The metric is a part of the time, and exceeds 100 % by more than the bracket explains.
    MoreThanAll {
        /// The value it would have; 1 is 100 %.
        part: f64,
    },
}

/// If the bracket's part of a value is larger than this, the value says more about the bracket than
/// about the code inside it.
pub const MOSTLY_EMPTY: f64 = 0.5;

/// The part of `sum` that comes from empty brackets, 0 to 1. `None` if nothing was calibrated.
pub(crate) fn empty_share(sum: u128, empty: u128, calibrated: u64) -> Option<f64> {
    match (calibrated, sum) {
        (0, _) => None,
        (_, 0) => Some(if empty > 0 { 1.0 } else { 0.0 }),
        _ => Some((empty as f64 / sum as f64).min(1.0)),
    }
}

/// The distinct sets of counters that metrics are computed from.
#[derive(Debug, Default)]
pub(crate) struct Sets {
    sets: Vec<Set>,
    /// The index of each metric's set.
    of_metric: Vec<usize>,
}

#[derive(Debug)]
struct Set {
    /// Indices in the run's list of counters.
    counters: Vec<usize>,
    /// The group of the counters. `None` if the metric uses only the duration, which every call
    /// has.
    group: Option<usize>,
}

/// Sums over the calls that have a set of counters. In a run with a budget, each value counts as
/// often as its call stands for others.
#[derive(Clone, Debug, Default)]
pub(crate) struct SetSum {
    calls: u64,
    ticks: u128,
    counters: Vec<u128>,
    /// Number of these calls whose bracket was calibrated.
    calibrated: u64,
    /// What empty calls would have read in those.
    empty_ticks: u128,
    empty: Vec<u128>,
    /// How much more than that empty calls may have read.
    doubt_ticks: u128,
    doubt: Vec<u128>,
}

impl Sets {
    pub fn new(profile: &Profile, metrics: &[Bound]) -> Self {
        let mut all = Self::default();
        for metric in metrics {
            let known = all.sets.iter().position(|set| set.counters == metric.counters);
            all.of_metric.push(known.unwrap_or(all.sets.len()));
            if known.is_none() {
                let group = metric.counters.first().and_then(|first| {
                    profile.groups.all().iter().position(|group| group.counters.contains(first))
                });
                all.sets.push(Set { counters: metric.counters.clone(), group });
            }
        }
        all
    }

    /// Empty sums for each set.
    pub fn sums(&self) -> Vec<SetSum> {
        let empty = |set: &Set| {
            let zeros = vec![0; set.counters.len()];
            let (empty, doubt) = (zeros.clone(), zeros.clone());
            SetSum { counters: zeros, empty, doubt, ..SetSum::default() }
        };
        self.sets.iter().map(empty).collect()
    }

    /// Adds the calls of a page to `sums`. `rows` has the index of each call's sum; a call whose
    /// index is out of range is skipped. `empty` is what an empty call reads; `subtract` says
    /// whether to subtract it from each call.
    pub fn add(
        &self,
        columns: &Columns,
        rows: &[u32],
        empty: Option<&EmptyCall>,
        subtract: bool,
        sums: &mut [impl AsMut<[SetSum]>],
    ) {
        let empty_ticks = empty.map_or(0, |e| e.ticks);
        let inside = if subtract { empty_ticks } else { 0 };
        for (s, set) in self.sets.iter().enumerate() {
            let status = set.group.and_then(|group| columns.groups.get(group)).map(|g| &g.status);
            let there = |counter: &usize| columns.values[*counter].len() == rows.len();
            if set.group.is_some()
                && (status.is_none_or(|s| s.len() != rows.len()) || !set.counters.iter().all(there))
            {
                continue;
            }
            let of_empty = |c: &usize| {
                let value = empty.and_then(|e| e.values.get(*c).copied().flatten());
                (value.unwrap_or(0), empty.map_or(0, |e| e.doubt(*c)))
            };
            let bracket: Vec<(u64, u64)> = set.counters.iter().map(of_empty).collect();
            let off = |of: (u64, u64)| if subtract { of.0 } else { 0 };
            for (i, row) in rows.iter().enumerate() {
                let values = || {
                    set.counters.iter().map(|c| match set.group {
                        Some(group) => columns.value(group, *c, i),
                        None => columns.values[*c].get(i).copied(),
                    })
                };
                if status.is_some_and(|s| s[i] != Status::Whole) && !values().all(|v| v.is_some()) {
                    continue;
                }
                let Some(row) = sums.get_mut(*row as usize) else { continue };
                let sum = &mut row.as_mut()[s];
                // In a run with a budget, a call stands for so many.
                let weight = match set.group {
                    Some(_) => columns.counter_weight(i),
                    None => columns.weight(i),
                };
                let add = |sum: &mut u128, value: u64| {
                    *sum = sum.saturating_add(u128::from(value).saturating_mul(weight.into()));
                };
                sum.calls += 1;
                add(&mut sum.ticks, columns.duration(i).saturating_sub(inside));
                for ((total, value), of) in sum.counters.iter_mut().zip(values()).zip(&bracket) {
                    add(total, value.unwrap_or(0).saturating_sub(off(*of)));
                }
                if empty.is_some() {
                    sum.calibrated += 1;
                    add(&mut sum.empty_ticks, empty_ticks);
                    add(&mut sum.doubt_ticks, empty.map_or(0, EmptyCall::doubt_ticks));
                    for (c, (value, doubt)) in bracket.iter().enumerate() {
                        add(&mut sum.empty[c], *value);
                        add(&mut sum.doubt[c], *doubt);
                    }
                }
            }
        }
    }

    /// Computes each metric from these sums. `subtracted` says whether the reading of an empty call
    /// was already subtracted from each call.
    pub fn values(
        &self,
        profile: &Profile,
        metrics: &[Bound],
        sums: &[SetSum],
        subtracted: bool,
    ) -> Vec<MetricValue> {
        let pairs = metrics.iter().zip(&self.of_metric);
        pairs.map(|(m, set)| value(profile, m, &sums[*set], subtracted)).collect()
    }
}

/// Subtracts the empty calls from the sums and not from each call, so that calls which read less
/// than an empty one balance those which read more.
fn value(profile: &Profile, metric: &Bound, sum: &SetSum, subtracted: bool) -> MetricValue {
    let ns_per_tick = profile.timeline.ns_per_tick();
    let less =
        |total: u128, empty: u128| if subtracted { total } else { total.saturating_sub(empty) };
    let raw = |total: u128, empty: u128| if subtracted { total + empty } else { total };
    let result = |value, hidden| MetricValue { value, calls: sum.calls, hidden };
    if sum.calls == 0 {
        return result(None, None);
    }
    let totals = sum.counters.iter().zip(&sum.empty);
    let totals: Vec<f64> = totals.map(|(total, empty)| less(*total, *empty) as f64).collect();
    let ns = less(sum.ticks, sum.empty_ticks) as f64 * ns_per_tick;
    let mostly = |total, empty| {
        empty_share(raw(total, empty), empty, sum.calibrated).filter(|share| *share > MOSTLY_EMPTY)
    };
    for (at, counter) in metric.counters.iter().enumerate() {
        if let Some(empty_share) = mostly(sum.counters[at], sum.empty[at]) {
            return result(None, Some(Hidden::Counter { counter: *counter, empty_share }));
        }
    }
    if metric.uses_duration()
        && let Some(empty_share) = mostly(sum.ticks, sum.empty_ticks)
    {
        return result(None, Some(Hidden::Duration { empty_share }));
    }
    // A thread runs on one processor at a time, so it cannot use more than all of the time.
    if is_part_of_time(profile, metric) && ns > 0.0 {
        let part = totals.first().copied().unwrap_or(0.0) / ns;
        let doubt = sum.doubt.first().copied().unwrap_or(0) as f64;
        let doubt = doubt + sum.doubt_ticks as f64 * ns_per_tick;
        if part > 1.0 + ROUNDING + doubt / ns {
            return result(None, Some(Hidden::MoreThanAll { part }));
        }
    }
    result(metric.value(ns, &totals), None)
}

/// Two different clocks run at slightly different rates.
const ROUNDING: f64 = 0.01;

/// For metrics that are a part of the time: what empty calls read of that clock. It is the largest
/// value of all calibrations that include the clock. Used for values of single calls, whose process
/// is no longer known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PartOfTime {
    clock_ns: f64,
    duration_ns: f64,
    doubt_ns: f64,
}

impl PartOfTime {
    /// `None` if the metric is something else, or if nothing was calibrated.
    pub fn of(profile: &Profile, metric: &Bound) -> Option<Self> {
        let counter = *metric.counters.first().filter(|_| is_part_of_time(profile, metric))?;
        let processes = 0..profile.processes.len();
        let empty = processes.flat_map(|process| {
            let masks = profile.processes[process].calibrations.iter().map(|c| c.counters);
            masks.filter_map(move |mask| empty_call(profile, process, mask))
        });
        let ns = |ticks: u64| profile.timeline.duration_ns(ticks);
        empty
            .filter_map(|empty| {
                Some(Self {
                    clock_ns: empty.values.get(counter).copied().flatten()? as f64,
                    duration_ns: ns(empty.ticks),
                    doubt_ns: empty.doubt(counter) as f64 + ns(empty.doubt_ticks()),
                })
            })
            .max_by(|a, b| a.clock_ns.total_cmp(&b.clock_ns))
    }

    /// The metric of one call, after subtracting an empty call. `None` if the empty call is more
    /// than half of the call, or if the result is impossible.
    pub fn value(&self, metric: &Bound, duration_ns: f64, clock_ns: f64) -> Option<f64> {
        if self.clock_ns > MOSTLY_EMPTY * clock_ns || self.duration_ns > MOSTLY_EMPTY * duration_ns
        {
            return None;
        }
        let (clock, duration) = (clock_ns - self.clock_ns, duration_ns - self.duration_ns);
        let can_be = clock <= duration * (1.0 + ROUNDING) + self.doubt_ns;
        can_be.then(|| metric.value(duration, &[clock])).flatten()
    }
}

/// Whether a metric is the time of a clock that stops while the thread waits, divided by the
/// duration.
fn is_part_of_time(profile: &Profile, metric: &Bound) -> bool {
    let [counter] = metric.counters.as_slice() else { return false };
    let is_clock = profile.manifest.counters.get(*counter).is_some_and(|info| {
        let name = info.name.to_ascii_lowercase();
        !info.simulated && (name.contains("task-clock") || name.contains("cpu-clock"))
    });
    is_clock && metric.is_plain_part_of_duration()
}

/// Adds the sums of another worker.
pub(crate) fn merge(sums: &mut [SetSum], others: Vec<SetSum>) {
    for (sum, other) in sums.iter_mut().zip(others) {
        sum.calls += other.calls;
        sum.ticks += other.ticks;
        sum.counters.iter_mut().zip(other.counters).for_each(|(total, more)| *total += more);
        sum.calibrated += other.calibrated;
        sum.empty_ticks += other.empty_ticks;
        sum.empty.iter_mut().zip(other.empty).for_each(|(total, more)| *total += more);
        sum.doubt_ticks += other.doubt_ticks;
        sum.doubt.iter_mut().zip(other.doubt).for_each(|(total, more)| *total += more);
    }
}
