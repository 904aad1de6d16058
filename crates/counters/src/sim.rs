//! Simulated groups: a script replaces the kernel and writes words of the same layout to the
//! buffer.
//!
//! A script advances by one step with each reading of its thread. The group's times come from the
//! script of its first counter, because a kernel group also has only one pair of times. If a step
//! fails in any of the counters, the whole group is missing from that reading, but its counters
//! continue to count.

use model::{Counter, MAX_COUNTERS, SimReading, Source};

use crate::plan::Group;

/// The current position in the scripts of one thread.
#[derive(Clone, Copy)]
pub(crate) struct SimState {
    /// Number of readings that this thread has taken.
    pub(crate) readings: u64,
    values: [u64; MAX_COUNTERS],
    enabled: [u64; MAX_COUNTERS],
    running: [u64; MAX_COUNTERS],
}

impl SimState {
    pub(crate) const fn new() -> Self {
        let zero = [0; MAX_COUNTERS];
        Self { readings: 0, values: zero, enabled: zero, running: zero }
    }

    /// Clears the position in place; the scripts start over.
    pub(crate) fn clear(&mut self) {
        self.readings = 0;
        self.values.fill(0);
        self.enabled.fill(0);
        self.running.fill(0);
    }

    /// Adds the next step of each counter's script, and writes the new sums to the group's block.
    /// Returns false if the reading fails.
    pub(crate) fn read(&mut self, counters: &[Counter], group: Group, block: &mut [u64]) -> bool {
        let mut works = true;
        for i in group.range() {
            let step = step(counters.get(i), self.readings);
            works &= !step.fails;
            let leads = i == usize::from(group.first);
            if let (Some(value), Some(enabled), Some(running)) =
                (self.values.get_mut(i), self.enabled.get_mut(i), self.running.get_mut(i))
            {
                *value = value.wrapping_add(step.add);
                *enabled = enabled.wrapping_add(step.enabled);
                *running = running.wrapping_add(step.running);
                if let (true, [nr, e, r, ..]) = (leads, &mut *block) {
                    (*nr, *e, *r) = (group.len.into(), *enabled, *running);
                }
                let at = 3 + 2 * (i - usize::from(group.first));
                if let Some([v, id]) = block.get_mut(at..at + 2) {
                    (*v, *id) = (*value, i as u64);
                }
            }
        }
        works
    }
}

/// Returns the step for this reading. The script starts over after its last step.
fn step(counter: Option<&Counter>, reading: u64) -> SimReading {
    let Some(Counter { source: Source::Sim(script), .. }) = counter else {
        return SimReading { fails: true, ..SimReading::default() };
    };
    let len = script.readings.len() as u64;
    let at = reading.checked_rem(len).unwrap_or(0) as usize;
    script.readings.get(at).copied().unwrap_or_default()
}
