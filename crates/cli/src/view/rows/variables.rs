//! The variables of statistics: the duration, counters, and metrics.

use analysis::stats::Stats;
pub use analysis::stats::Subtracted;
use model::Unit;
use model::metric::Bound;
use profile::{CounterInfo, Profile};

/// Returns the name and unit of a variable in JSON and CSV.
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
        (None, None) => VariableKind::Duration,
    }
}

/// Returns the factor from a recorded value to the variable's unit. Durations are recorded in
/// ticks.
pub fn scale(profile: &Profile, variable: usize) -> f64 {
    if variable == 0 { profile.timeline.ns_per_tick() } else { 1.0 }
}
