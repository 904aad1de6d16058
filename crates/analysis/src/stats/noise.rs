//! Computes the amount that the recorder added to the values of a set of calls, and the standard
//! deviation of this amount.

use profile::Profile;

use super::Scope;
use super::collect::Recorder;
use crate::amounts::{Brackets, Inside, ticks};
use crate::empty::Bracket;
use crate::estimate::Estimate;

/// Sets `scope.inner` and `scope.brackets`.
pub(super) fn note(profile: &Profile, brackets: &Brackets, scope: &mut Scope, recorder: &Recorder) {
    scope.inner = recorder.inner;
    let counters = profile.groups.counters();
    let taken = ticks(recorder.taken);
    let inside = Inside { taken, calls: scope.calls };
    let mut deviations = recorder.brackets.deviations(counters, brackets);
    // The clock advances in steps, so a reading is wrong by up to one step. The error of a reading
    // has the variance step²/12. A duration is the difference of two readings, so its error has the
    // variance step²/6.
    let steps = profile.processes.iter().filter_map(|process| process.clock_steps);
    let step = steps.map(|steps| steps.typical_ticks).max().unwrap_or(0) as f64;
    deviations[0] = deviations[0].max(step / 6f64.sqrt());
    let each = |sum: Option<Estimate>, calls: u64| Some(sum?.times(1.0 / calls.max(1) as f64));
    let duration = recorder.brackets.taken(scope.calls, taken, brackets);
    let mut means = vec![each(duration, scope.calls)];
    for counter in 0..counters {
        let calls = scope.variables.get(1 + counter).map_or(0, |variable| variable.calls);
        let sum = recorder.brackets.counter(profile, counter, calls, inside, brackets);
        means.push(each(sum.filter(|_| calls > 0), calls));
    }
    let bracket =
        |(mean, deviation): (Option<Estimate>, f64)| Some(Bracket { mean: mean?, deviation });
    scope.brackets = means.into_iter().zip(deviations).map(bracket).collect();
}
