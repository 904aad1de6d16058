//! What empty calls read, for the variables of statistics: the part of each value, and of the scatter
//! of the values, that is the recorder's own.

use profile::Profile;

use super::Scope;
use crate::call_sets::{CallSet, call_sets};
use crate::empty::{Bracket, together as sum};
use crate::estimate::Estimate;

/// The brackets of a profile.
pub(super) struct Brackets {
    sets: Vec<CallSet>,
}

impl Brackets {
    pub fn new(profile: &Profile) -> Self {
        Self { sets: call_sets(profile) }
    }

    /// The brackets of a thread: of the duration in ticks, then of each counter.
    pub fn of(&self, profile: &Profile, process: usize, thread: usize) -> Vec<Option<Bracket>> {
        let counters = profile.groups.counters();
        let of = &profile.processes[process];
        let mask = of.threads[thread].headers().next().map_or(0, |header| header.start.counters);
        let same = |set: &&CallSet| (set.process, set.counters) == (process, mask);
        let Some(set) = self.sets.iter().find(same) else { return vec![None; 1 + counters] };
        let mut duration = set.empty.duration;
        // Each of the two readings is late by up to one step of the clock. The difference of two such
        // errors has a variance of a sixth of the square of the step.
        let step = of.clock_steps.map_or(0.0, |steps| steps.typical_ticks as f64);
        duration.deviation = duration.deviation.max(step / 6f64.sqrt());
        std::iter::once(Some(duration)).chain(set.empty.counters.iter().copied()).collect()
    }
}

/// The brackets of several threads together, weighted by their calls. `None` for a variable that was
/// not calibrated in some of them.
pub(super) fn together<'a>(scopes: impl Iterator<Item = &'a Scope>) -> Vec<Option<Bracket>> {
    let mut all: Vec<Option<(Bracket, u64)>> = Vec::new();
    for (n, scope) in scopes.enumerate() {
        if n == 0 {
            all = vec![Some((Bracket::default(), 0)); scope.brackets.len()];
        }
        for (i, (known, bracket)) in all.iter_mut().zip(&scope.brackets).enumerate() {
            let calls = scope.variables.get(i).map_or(0, |variable| variable.calls);
            if calls == 0 {
                continue; // None of these calls has a value, so their bracket does not matter.
            }
            *known = known.zip(*bracket).map(|((joined, before), bracket)| {
                let (a, b) = (before as f64, calls as f64);
                let part = |x: f64, y: f64| (a * x + b * y) / (a + b);
                let mean = sum(joined.mean.times(a), bracket.mean.times(b)).times(1.0 / (a + b));
                let squares = part(joined.deviation.powi(2), bracket.deviation.powi(2));
                (Bracket { mean: Estimate { ..mean }, deviation: squares.sqrt() }, before + calls)
            });
        }
    }
    all.into_iter().map(|one| one.filter(|(_, calls)| *calls > 0).map(|(b, _)| b)).collect()
}
