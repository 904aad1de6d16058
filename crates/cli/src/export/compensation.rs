//! Computes how much the recorder adds to the duration and to each counter of a call. The exported
//! durations and counters still contain this overhead; docs/account.md describes how to subtract
//! it.

use analysis::{Bracket, Estimate, PartOfTime, call_sets};
use model::metric::Bound;
use profile::Profile;
use profile::batch::Correction;
use serde::Serialize;

use crate::object::object;

#[derive(Serialize)]
struct BracketOut {
    #[serde(flatten)]
    mean: Estimate,
    standard_deviation: f64,
}

impl BracketOut {
    fn new(bracket: &Bracket, scale: f64) -> Self {
        let standard_deviation = bracket.deviation * scale;
        Self { mean: bracket.mean.times(scale), standard_deviation }
    }
}

/// Returns one entry for each combination of a process and a set of counters for which empty calls
/// were measured.
pub fn out(profile: &Profile) -> Vec<impl Serialize> {
    let sets = call_sets(profile).into_iter().map(|set| {
        let counters = profile.manifest.counters.iter().zip(&set.empty.counters);
        let counters = counters.filter_map(|(info, bracket)| {
            Some(object! {
                name: &info.name,
                ..empty: BracketOut::new(bracket.as_ref()?, 1.0),
            })
        });
        object! {
            process: set.process,
            pid: profile.processes[set.process].id.pid,
            duration_ns: BracketOut::new(&set.empty.duration, profile.timeline.ns_per_tick()),
            // A bracket (the code that measures a call) makes the enclosing call longer by this
            // time.
            whole_ns: BracketOut::new(&set.empty.whole, profile.timeline.ns_per_tick()),
            counters: counters.collect::<Vec<_>>(),
        }
    });
    sets.collect()
}

/// Returns a correction for each metric that is the time of a thread's clock, divided by the
/// duration. The entry is `None` for every other metric. The correction subtracts the values of an
/// empty call before it computes the metric. Without the correction, the processor time of a 25 ns
/// call would seem to be 45 times its duration, because the clock also counts the recorder's work.
pub fn corrections<'a>(profile: &Profile, metrics: &[Bound]) -> Vec<Option<Correction<'a>>> {
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let parts = PartOfTime::of_all(profile, metrics, workers);
    let correction = |(metric, part): (&Bound, Option<PartOfTime>)| -> Option<Correction<'a>> {
        let (metric, part) = (metric.clone(), part?);
        Some(Box::new(move |duration, clock| part.value(&metric, duration, clock)))
    };
    metrics.iter().zip(parts).map(correction).collect()
}
