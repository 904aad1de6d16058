//! The variables of statistics: the duration, counters, and metrics.

use analysis::Estimate;
use analysis::stats::{Scope, Stats};
use model::Unit;
use model::metric::Bound;
use profile::{CounterInfo, Profile};

/// Name and unit of a variable in JSON and CSV.
pub fn name_and_unit<'a>(
    profile: &'a Profile,
    stats: &'a Stats,
    variable: usize,
) -> (&'a str, &'a str) {
    match kind(profile, stats, variable) {
        VariableKind::Duration => ("duration_ns", Unit::Nanoseconds.name()),
        VariableKind::Counter(info) => (&info.name, info.unit().name()),
        VariableKind::Metric(metric) => (&metric.name, &metric.unit.name),
    }
}

/// The kind of a variable.
pub enum VariableKind<'a> {
    Duration,
    Counter(&'a CounterInfo),
    Metric(&'a Bound),
}

pub fn kind<'a>(profile: &'a Profile, stats: &'a Stats, variable: usize) -> VariableKind<'a> {
    let Some(i) = variable.checked_sub(1) else { return VariableKind::Duration };
    let counters = &profile.manifest.counters;
    match (counters.get(i), i.checked_sub(counters.len()).and_then(|i| stats.metrics.get(i))) {
        (Some(info), _) => VariableKind::Counter(info),
        (None, Some(metric)) => VariableKind::Metric(metric),
        // There are no other variables.
        (None, None) => VariableKind::Duration,
    }
}

/// The factor from a recorded value of a variable to its unit. Durations are recorded in ticks.
pub fn scale(profile: &Profile, variable: usize) -> f64 {
    if variable == 0 { profile.timeline.ns_per_tick() } else { 1.0 }
}

/// What is subtracted from the values of a variable before they are scaled: what the recorder added.
#[derive(Clone, Copy, Debug)]
pub struct Subtracted {
    added: Option<Estimate>,
    /// It was taken from each duration before.
    taken: bool,
}

impl Subtracted {
    /// Nothing is subtracted if values are as they were recorded, if it was not calibrated, and from
    /// metrics, which are computed from single calls.
    pub fn new(stats: &Stats, scope: &Scope, variable: usize) -> Self {
        let bracket = scope.brackets.get(variable).copied().flatten();
        let added = bracket.filter(|_| !stats.raw).map(|bracket| bracket.mean);
        Self { added, taken: variable == 0 }
    }

    pub fn is_nothing(self) -> bool {
        self.added.is_none_or(|of| of == Estimate::exact(0.0))
    }

    /// A mean, or another value of the variable, without it. It has not added more than there is.
    pub fn from(self, value: f64) -> Estimate {
        let added = self.added.map(|of| if self.taken { of.less(of.value) } else { of });
        let rest = analysis::compensate(Estimate::exact(value), added);
        let cut = |end: f64| if self.added.is_some() { end.max(0.0) } else { end };
        Estimate { value: cut(rest.value), high: cut(rest.high), ..rest }
    }
}
