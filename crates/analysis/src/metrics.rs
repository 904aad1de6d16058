//! Computes metrics. The sums for a metric include the calls in which all counters of the metric
//! were read. In these calls, the counters must have counted during the whole call or, if the
//! profile contains estimates, during part of it. What the recorder itself adds, as calibrated with
//! empty calls, is subtracted from the sums. A metric has no value if it would mostly describe the
//! brackets (the recorder's work before and after calls) and not the code inside. A metric also has
//! no value if one of its operands cannot be distinguished from zero after the subtraction.

use std::sync::Arc;

use model::metric::Bound;
use profile::{Columns, Profile, Status};

use crate::amounts::{BracketCounts, Brackets, Inside, PageBrackets, parts, ticks};
use crate::empty::{EmptyCall, is_clock};
use crate::estimate::Estimate;
use crate::probe::InPlace;
use crate::sampled::{SCALE, Weights};

/// The value of a metric in a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MetricValue {
    /// The value in the metric's unit, from the calls in `calls`. `None` if there is no such call,
    /// if the value is not defined (division by zero), or if it is hidden.
    pub value: Option<f64>,
    /// The 95 % interval of the value, computed from the uncertainty of what the brackets add.
    /// `None` without a value, or if the brackets were not calibrated.
    pub interval: Option<[f64; 2]>,
    /// Number of calls that have values of all counters that the metric uses.
    pub calls: u64,
    /// The reason why there is no value although the metric could be computed.
    pub hidden: Option<Hidden>,
}

impl MetricValue {
    /// The value of a metric if no call has all counters that the metric uses. In a run with a
    /// budget, also if the metric's counters cannot be estimated.
    pub const NONE: Self = Self { value: None, interval: None, calls: 0, hidden: None };
}

/// The metrics of a row. Metrics for which no call has all counters take no memory, because a
/// profile can have many metrics and many rows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MetricValues {
    /// The metrics for which some call has all counters, each as its index and its value. The
    /// indices are in ascending order.
    known: Arc<[(u32, MetricValue)]>,
}

impl MetricValues {
    /// Returns the value of the metric with this index in the list of requested metrics.
    pub fn get(&self, index: usize) -> MetricValue {
        let at = self.known.binary_search_by_key(&index, |(of, _)| *of as usize);
        at.map_or(MetricValue::NONE, |at| self.known[at].1)
    }

    /// Returns the number of metrics for which at least one call has all counters.
    pub fn known(&self) -> usize {
        self.known.len()
    }
}

/// The iterator yields one value for each metric, in the order of the requested metrics.
impl FromIterator<MetricValue> for MetricValues {
    fn from_iter<I: IntoIterator<Item = MetricValue>>(values: I) -> Self {
        let known = (0..).zip(values).filter(|(_, value)| *value != MetricValue::NONE);
        Self { known: known.collect() }
    }
}

/// The reason why a metric has no value although it could be computed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Hidden {
    /// More than half of a counter's value comes from brackets, or the rest cannot be distinguished
    /// from zero.
    Counter {
        /// The counter's index in the run's list of counters.
        counter: usize,
        /// The part of the value that comes from brackets, from 0 to 1.
        empty_share: f64,
    },
    /// More than half of the durations comes from brackets, or the rest cannot be distinguished
    /// from zero.
    Duration {
        /// The part of the durations that comes from brackets, from 0 to 1.
        empty_share: f64,
    },
    /// The metric is a part of the time, but exceeds 100 % by more than the uncertainties can
    /// explain.
    MoreThanAll {
        /// The metric as a part of the time; 1 is 100 %.
        part: f64,
    },
}

/// If brackets (the recorder's work before and after calls) make up more than this part of a value,
/// the value mostly describes the recorder.
pub const MOSTLY_EMPTY: f64 = 0.5;

/// Returns the part of a sum that comes from brackets, from 0 to 1. `None` if the brackets were not
/// calibrated.
pub(crate) fn empty_share(sum: f64, brackets: Option<Estimate>) -> Option<f64> {
    let empty = brackets?.value.max(0.0);
    Some(if sum > 0.0 { (empty / sum).min(1.0) } else { f64::from(u8::from(empty > 0.0)) })
}

/// The sets of counters from which metrics are computed: one per group (counters that are read
/// together), with all counters of the group that any metric uses. So, however many metrics there
/// are, a row needs only one sum per group, and one for metrics that use only the duration.
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
    /// The group of the counters. `None` if the metrics use only the duration.
    group: Option<usize>,
}

/// Sums over the calls that have a set of counters. In a run with a budget, each value is
/// multiplied by the weight of its call, in units of 1/[`SCALE`].
#[derive(Clone, Debug, Default)]
pub(crate) struct SetSum {
    calls: u64,
    weight: u64,
    /// `time` is the sum of the durations without the time that the recorder added, and `taken` is
    /// the sum of this added time. Both are in units of 1/[`crate::amounts::PARTS`] tick.
    time: u128,
    taken: u128,
    counters: Vec<u128>,
    brackets: BracketCounts,
}

impl SetSum {
    /// Returns the sums divided by `scale`, the number that stands for a weight of 1.
    fn of_calls(&self, scale: u64) -> Self {
        if scale == 1 {
            return self.clone();
        }
        let (wide, half) = (u128::from(scale), u128::from(scale / 2));
        let all = |sum: u128| sum.saturating_add(half) / wide;
        let brackets = self.brackets.divided(scale);
        // If the brackets of all calls are known, the rounded weight stays equal to the rounded
        // number of brackets. Otherwise, the weight stays larger than the number of brackets.
        let weight = match self.brackets.calls() == self.weight {
            true => brackets.calls(),
            false => (self.weight / scale).max(brackets.calls() + 1),
        };
        Self {
            calls: self.calls,
            weight,
            time: all(self.time),
            taken: all(self.taken),
            counters: self.counters.iter().map(|sum| all(*sum)).collect(),
            brackets,
        }
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Page<'a> {
    pub columns: &'a Columns,
    /// For each call, the index of the sum to which it is added. Calls with an index out of range
    /// are skipped.
    pub rows: &'a [u32],
    /// The duration of each call without the time that the recorder added.
    pub times: &'a [u64],
    pub brackets: &'a PageBrackets,
    /// The number of calls that each timed call represents, in a run with a budget.
    pub weights: Option<&'a Weights>,
}

impl Sets {
    pub fn new(profile: &Profile, metrics: &[Bound]) -> Self {
        let mut all = Self::default();
        for metric in metrics {
            let group = metric.counters.first().and_then(|first| {
                profile.groups.all().iter().position(|group| group.counters.contains(first))
            });
            let known = all.sets.iter().position(|set| set.group == group);
            let at = known.unwrap_or(all.sets.len());
            all.of_metric.push(at);
            if known.is_none() {
                all.sets.push(Set { counters: Vec::new(), group });
            }
            let counters = &mut all.sets[at].counters;
            let new = metric.counters.iter().filter(|counter| !counters.contains(*counter));
            counters.extend(new.copied().collect::<Vec<_>>());
        }
        all
    }

    pub fn sums(&self) -> Vec<SetSum> {
        let empty =
            |set: &Set| SetSum { counters: vec![0; set.counters.len()], ..SetSum::default() };
        self.sets.iter().map(empty).collect()
    }

    pub fn add(&self, page: &Page<'_>, sums: &mut [impl AsMut<[SetSum]>]) {
        let Page { columns, rows, times, brackets, weights } = *page;
        for (s, set) in self.sets.iter().enumerate() {
            let status = set.group.and_then(|group| columns.groups.get(group)).map(|g| &g.status);
            let there = |counter: &usize| columns.values[*counter].len() == rows.len();
            if set.group.is_some()
                && (status.is_none_or(|s| s.len() != rows.len()) || !set.counters.iter().all(there))
            {
                continue;
            }
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
                // In a run with a budget, a timed call represents a number of calls, its weight.
                let weight = weights.map_or(1, |weights| match set.group {
                    Some(_) => weights.counted(columns, i),
                    None => weights.timed(columns, i),
                });
                let add = |sum: &mut u128, value: u64| {
                    *sum = sum.saturating_add(u128::from(value).saturating_mul(weight.into()));
                };
                sum.calls += 1;
                sum.weight = sum.weight.saturating_add(weight);
                add(&mut sum.time, times[i]);
                add(&mut sum.taken, parts(columns.duration(i)) - times[i]);
                for (total, value) in sum.counters.iter_mut().zip(values()) {
                    add(total, value.unwrap_or(0));
                }
                if let Some(class) = brackets.of(columns, i) {
                    let kind = sum.brackets.of(class, columns.values.len());
                    kind.calls = kind.calls.saturating_add(weight);
                    set.counters.iter().for_each(|counter| kind.counted[*counter] = kind.calls);
                }
            }
        }
    }

    /// Computes each metric from `sums`. Each element of `dispatches` consists of a number of calls
    /// of the row (in all runs of the program, or in one) and the number of dispatches of these
    /// calls.
    pub fn values(
        &self,
        profile: &Profile,
        metrics: &[Bound],
        sums: &[SetSum],
        dispatches: &[(u64, u64)],
        brackets: &Brackets,
    ) -> MetricValues {
        let value = |(metric, set): (&Bound, &usize)| {
            let (set, sum) = (&self.sets[*set], &sums[*set]);
            let of_all = dispatches.iter().find(|(calls, _)| *calls == sum.calls);
            let of_all = of_all.filter(|_| !profile.is_sampled()).map(|(_, n)| *n as f64);
            value(profile, metric, set, sum, of_all, brackets)
        };
        metrics.iter().zip(&self.of_metric).map(value).collect()
    }
}

/// Computes a metric. The values of empty calls are subtracted from the sums, and not from each
/// call. In some calls, the recorder adds less than in the mean empty call, and in others it adds
/// more.
fn value(
    profile: &Profile,
    metric: &Bound,
    set: &Set,
    sum: &SetSum,
    dispatches: Option<f64>,
    brackets: &Brackets,
) -> MetricValue {
    let result =
        |value, interval, hidden| MetricValue { value, interval, calls: sum.calls, hidden };
    if sum.calls == 0 {
        return result(None, None, None);
    }
    let SetSum { weight, time, taken, counters, brackets: classes, .. } =
        &sum.of_calls(if profile.is_sampled() { SCALE } else { 1 });
    let (weight, time, taken) = (*weight, *time, *taken);
    let less = |total: f64, empty: Option<Estimate>| {
        let rest = Estimate::exact(total).minus(empty.unwrap_or_default());
        // A sum cannot be negative. If the lower end of its interval is negative, the sum cannot be
        // distinguished from zero.
        Estimate { value: rest.value.max(0.0), ..rest }
    };
    let hides = |total: f64, empty: Option<Estimate>| {
        let share = empty_share(total, empty)?;
        (share > MOSTLY_EMPTY || !less(total, empty).is_resolved()).then_some(share)
    };
    let mut totals = Vec::with_capacity(metric.counters.len());
    for counter in &metric.counters {
        let at = set.counters.iter().position(|of_set| of_set == counter);
        let total = at.and_then(|at| counters.get(at)).copied().unwrap_or(0);
        let inside = Inside { taken: ticks(taken), calls: weight };
        let empty = classes.counter(profile, *counter, weight, inside, brackets);
        let total = total as f64;
        if let Some(empty_share) = hides(total, empty) {
            let hidden = Hidden::Counter { counter: *counter, empty_share };
            return result(None, None, Some(hidden));
        }
        totals.push(less(total, empty));
    }
    let recorded = ticks(time.saturating_add(taken));
    let empty = match brackets.is_raw() {
        true => classes.durations(weight, brackets),
        false => classes.taken(weight, ticks(taken), brackets),
    };
    if metric.uses_duration()
        && let Some(empty_share) = hides(recorded, empty)
    {
        return result(None, None, Some(Hidden::Duration { empty_share }));
    }
    let ns = less(recorded, empty).times(profile.timeline.ns_per_tick());
    // A thread runs on one processor at a time, so its processor time cannot exceed the duration.
    if is_part_of_time(profile, metric) && ns.value > 0.0 {
        let clock = totals.first().copied().unwrap_or_default();
        if clock.low > ns.high.max(ns.value) * (1.0 + ROUNDING) {
            let part = clock.value / ns.value;
            return result(None, None, Some(Hidden::MoreThanAll { part }));
        }
        totals.iter_mut().for_each(|clock| *clock = clock.at_most(ns));
    }
    let values: Vec<f64> = totals.iter().map(|total| total.value).collect();
    let calls = sum.weight as f64;
    let of = |ns: f64, values: &[f64]| metric.value_of(calls, dispatches, ns, values);
    let value = of(ns.value, &values);
    let known = empty.is_some();
    let interval = value.filter(|_| known).map(|value| interval(of, value, ns, &totals));
    result(value, interval, None)
}

/// Returns the interval of a metric. The errors of its operands are independent, so the errors that
/// they cause in the metric are added as squares.
fn interval(
    of: impl Fn(f64, &[f64]) -> Option<f64>,
    value: f64,
    ns: Estimate,
    totals: &[Estimate],
) -> [f64; 2] {
    let values: Vec<f64> = totals.iter().map(|total| total.value).collect();
    let (mut below, mut above) = (0.0, 0.0);
    let mut with = |ns: [f64; 2], at: usize, ends: [f64; 2]| {
        let found = ns.iter().zip(ends).filter_map(|(ns, end)| {
            let mut moved = values.clone();
            if let Some(place) = moved.get_mut(at) {
                *place = end;
            }
            of(*ns, &moved)
        });
        let (least, most) = found.fold((value, value), |(l, m), v| (v.min(l), v.max(m)));
        below += (value - least).powi(2);
        above += (most - value).powi(2);
    };
    with([ns.low.max(0.0), ns.high], usize::MAX, [0.0; 2]);
    for (at, total) in totals.iter().enumerate() {
        with([ns.value; 2], at, [total.low.max(0.0), total.high]);
    }
    [value - below.sqrt(), value + above.sqrt()]
}

/// Two clocks may run at rates that differ by this part.
const ROUNDING: f64 = 0.01;

/// The values of an empty call that are subtracted to compute a metric that is a part of the time.
/// The process of a single call is not known where these values are used. So the calibration in
/// which the clock has the largest value for an empty call is used.
#[derive(Clone, Copy, Debug)]
pub struct PartOfTime {
    clock_ns: f64,
    duration_ns: f64,
    doubt_ns: f64,
}

impl PartOfTime {
    /// Returns the corrections for these metrics; `None` for a metric that is not a part of the
    /// time. May read all calls of the profile.
    pub fn of_all(profile: &Profile, metrics: &[Bound], workers: usize) -> Vec<Option<Self>> {
        if !metrics.iter().any(|metric| is_part_of_time(profile, metric)) {
            return vec![None; metrics.len()];
        }
        Self::of_each(profile, metrics, &crate::probe::in_place(profile, workers))
    }

    /// Does the same as [`Self::of_all`], without reading calls.
    pub(crate) fn of_each(
        profile: &Profile,
        metrics: &[Bound],
        found: &InPlace,
    ) -> Vec<Option<Self>> {
        metrics.iter().map(|metric| Self::of(profile, metric, found)).collect()
    }

    fn of(profile: &Profile, metric: &Bound, found: &InPlace) -> Option<Self> {
        let counter = *metric.counters.first().filter(|_| is_part_of_time(profile, metric))?;
        let brackets = found.brackets(profile);
        let ns = |ticks: f64| ticks * profile.timeline.ns_per_tick();
        let of = |empty: &EmptyCall| {
            let clock = empty.counters.get(counter).copied().flatten()?;
            let doubt = clock.mean.half().max(clock.deviation);
            Some(Self {
                clock_ns: clock.mean.value,
                duration_ns: ns(empty.duration.mean.value),
                doubt_ns: doubt + ns(empty.duration.mean.half()),
            })
        };
        let most = brackets.all().iter().filter_map(of);
        let nothing = Self { clock_ns: 0.0, duration_ns: 0.0, doubt_ns: 0.0 };
        Some(most.max_by(|a, b| a.clock_ns.total_cmp(&b.clock_ns)).unwrap_or(nothing))
    }

    /// Returns the metric of one call, after subtracting an empty call. `None` if the empty call
    /// makes up more than half of the call, if too little remains after the subtraction, or if the
    /// result is impossible.
    pub fn value(&self, metric: &Bound, duration_ns: f64, clock_ns: f64) -> Option<f64> {
        if self.clock_ns > MOSTLY_EMPTY * clock_ns || self.duration_ns > MOSTLY_EMPTY * duration_ns
        {
            return None;
        }
        let (clock, duration) = (clock_ns - self.clock_ns, duration_ns - self.duration_ns);
        if clock < self.doubt_ns || duration < self.doubt_ns.min(self.duration_ns) {
            return None;
        }
        let can_be =
            clock <= duration * (1.0 + ROUNDING) + self.doubt_ns.min(duration * MOST_DOUBT);
        can_be.then(|| metric.value(duration, &[clock])).flatten()
    }
}

/// A single call has no value if its part of the time exceeds 100 % by more than this and
/// [`ROUNDING`] together. The scatter of the recorder's own time could explain a larger excess. But
/// views show no interval next to the value of a single call, so a larger excess would look like an
/// error.
const MOST_DOUBT: f64 = 0.1;

/// Whether a metric is the time of a clock that stops while the thread waits, divided by the
/// duration.
fn is_part_of_time(profile: &Profile, metric: &Bound) -> bool {
    let [counter] = metric.counters.as_slice() else { return false };
    is_clock_of_threads(profile, *counter) && metric.is_plain_part_of_duration()
}

/// Whether a counter is a clock that stops while its thread waits.
pub fn is_clock_of_threads(profile: &Profile, counter: usize) -> bool {
    let info = profile.manifest.counters.get(counter);
    info.is_some_and(|info| !info.simulated && is_clock(&info.name))
}

pub(crate) fn merge(sums: &mut [SetSum], others: Vec<SetSum>) {
    for (sum, other) in sums.iter_mut().zip(others) {
        sum.calls += other.calls;
        sum.weight = sum.weight.saturating_add(other.weight);
        sum.time = sum.time.saturating_add(other.time);
        sum.taken = sum.taken.saturating_add(other.taken);
        let counters = sum.counters.iter_mut().zip(other.counters);
        counters.for_each(|(total, more)| *total = total.saturating_add(more));
        sum.brackets.add(other.brackets);
    }
}
