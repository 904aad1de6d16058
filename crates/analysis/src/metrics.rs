//! What metrics are computed from: for each set of counters that some metric is made of, the sums
//! over just those calls in which all of them were read and counting all the time.

use model::metric::Bound;
use profile::{Columns, Profile, Status};

use crate::probe::EmptyCall;

/// A metric of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MetricValue {
    /// In the metric's unit, from the sums over these calls. `None`: no such call, or not defined
    /// (a division by zero).
    pub value: Option<f64>,
    /// Calls that have all its counters.
    pub calls: u64,
}

/// The sets of counters that metrics are made of, each once.
#[derive(Debug, Default)]
pub(crate) struct Sets {
    sets: Vec<Set>,
    /// For each metric its set.
    of_metric: Vec<usize>,
}

#[derive(Debug)]
struct Set {
    /// As places in the run's list.
    counters: Vec<usize>,
    /// Their group; `None` for the duration alone, which every call has.
    group: Option<usize>,
}

/// Sums over the calls that have a set of counters.
#[derive(Clone, Debug, Default)]
pub(crate) struct SetSum {
    calls: u64,
    ticks: u128,
    counters: Vec<u128>,
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

    /// Sums of nothing.
    pub fn sums(&self) -> Vec<SetSum> {
        let empty =
            |set: &Set| SetSum { counters: vec![0; set.counters.len()], ..SetSum::default() };
        self.sets.iter().map(empty).collect()
    }

    /// Adds the calls of a page to `sums`, of which `rows` has the place for each call; one that
    /// is outside is skipped. `empty` is what to take off each call.
    pub fn add(
        &self,
        columns: &Columns,
        rows: &[u32],
        empty: Option<&EmptyCall>,
        sums: &mut [impl AsMut<[SetSum]>],
    ) {
        let inside = empty.map_or(0, |e| e.ticks);
        for (s, set) in self.sets.iter().enumerate() {
            let status = set.group.and_then(|group| columns.groups.get(group)).map(|g| &g.status);
            let there = |counter: &usize| columns.values[*counter].len() == rows.len();
            if set.group.is_some()
                && (status.is_none_or(|s| s.len() != rows.len()) || !set.counters.iter().all(there))
            {
                continue;
            }
            let off: Vec<u64> = set
                .counters
                .iter()
                .map(|c| empty.and_then(|e| e.values.get(*c).copied().flatten()).unwrap_or(0))
                .collect();
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
                sum.calls += 1;
                sum.ticks += u128::from(columns.duration(i).saturating_sub(inside));
                for ((total, value), off) in sum.counters.iter_mut().zip(values()).zip(&off) {
                    *total += u128::from(value.unwrap_or(0).saturating_sub(*off));
                }
            }
        }
    }

    /// Each metric over these sums.
    pub fn values(&self, metrics: &[Bound], sums: &[SetSum], ns_per_tick: f64) -> Vec<MetricValue> {
        let value = |(metric, set): (&Bound, &usize)| {
            let sum = &sums[*set];
            let totals: Vec<f64> = sum.counters.iter().map(|total| *total as f64).collect();
            let defined = || metric.value(sum.ticks as f64 * ns_per_tick, &totals);
            MetricValue { value: (sum.calls > 0).then(defined).flatten(), calls: sum.calls }
        };
        metrics.iter().zip(&self.of_metric).map(value).collect()
    }
}

/// Adds what another worker found.
pub(crate) fn merge(sums: &mut [SetSum], others: Vec<SetSum>) {
    for (sum, other) in sums.iter_mut().zip(others) {
        sum.calls += other.calls;
        sum.ticks += other.ticks;
        sum.counters.iter_mut().zip(other.counters).for_each(|(total, more)| *total += more);
    }
}
