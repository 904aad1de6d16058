//! Converts a packet's time to the clock of the timeline.
//!
//! A snapshot contains the readings of several clocks at one moment. A time is converted from one
//! clock to another with the last snapshot before this time, or else with the first one. If no
//! snapshot contains both clocks, the time is converted by way of other clocks, with as few
//! conversions as possible.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

use crate::perfetto::decode::Fields;
use crate::perfetto::fields::clocks;

/// A sequence (0 if the clock belongs to none) and a clock's number.
pub(super) type ClockId = (u64, u64);

/// The clock of packets if neither they nor the defaults of their sequence name one.
pub(super) const BOOTTIME: u64 = 6;
/// How many snapshots are kept for each pair of clocks. Later snapshots are ignored.
const MOST_SNAPSHOTS: usize = 1 << 16;

#[derive(Debug, Default)]
pub(super) struct Clocks {
    /// For each pair of clocks: readings of the first clock, with those of the second at the same
    /// moment.
    pairs: HashMap<ClockId, HashMap<ClockId, BTreeMap<i64, i64>>>,
    /// For clocks whose times are relative to the previous packet: the last time. `units` has the
    /// nanoseconds per unit.
    incremental: HashMap<ClockId, i64>,
    units: HashMap<ClockId, i64>,
    /// The clock of the timeline, which is chosen with the first event.
    target: Option<ClockId>,
}

/// Returns the id of a clock from its number in packets.
pub(super) fn id(sequence: u64, clock: u64) -> ClockId {
    if (clocks::OF_SEQUENCE..128).contains(&clock) { (sequence, clock) } else { (0, clock) }
}

impl Clocks {
    pub(super) fn snapshot(&mut self, sequence: u64, bytes: &[u8]) {
        let mut all: Vec<(ClockId, i64)> = Vec::new();
        for (number, value, _) in Fields::new(bytes).flatten() {
            let (clocks::CLOCKS, Some(clock)) = (number, value.bytes()) else { continue };
            let (mut which, mut at, mut incremental, mut unit) = (0, 0u64, false, 1);
            for (number, value, _) in Fields::new(clock).flatten() {
                let value = value.uint().unwrap_or(0);
                match number {
                    clocks::ID => which = value,
                    clocks::TIMESTAMP => at = value,
                    clocks::IS_INCREMENTAL => incremental = value != 0,
                    clocks::UNIT_NS => unit = i64::try_from(value).unwrap_or(1).max(1),
                    _ => {}
                }
            }
            let which = id(sequence, which);
            let at = i64::try_from(at).unwrap_or(i64::MAX).saturating_mul(unit);
            self.units.insert(which, unit);
            match incremental {
                true => drop(self.incremental.insert(which, at)),
                false => drop(self.incremental.remove(&which)),
            }
            all.push((which, at));
        }
        for (from, at) in &all {
            for (to, then) in all.iter().filter(|(to, _)| to != from) {
                let known = self.pairs.entry(*from).or_default().entry(*to).or_default();
                if known.len() < MOST_SNAPSHOTS {
                    known.insert(*at, *then);
                }
            }
        }
    }

    /// Converts a time stamp of a clock to nanoseconds on the timeline's clock, if snapshots relate
    /// the two clocks or the trace has no snapshots.
    pub(super) fn time(&mut self, clock: ClockId, timestamp: u64) -> Option<i64> {
        let unit = self.units.get(&clock).copied().unwrap_or(1);
        let mut at = i64::try_from(timestamp).ok()?.checked_mul(unit)?;
        if let Some(now) = self.incremental.get_mut(&clock) {
            *now = now.checked_add(at)?;
            at = *now;
        }
        self.on_timeline(clock, at)
    }

    /// Converts a time in nanoseconds to the timeline's clock.
    pub(super) fn on_timeline(&mut self, clock: ClockId, at: i64) -> Option<i64> {
        let target = match self.target {
            Some(target) => target,
            None => {
                // Real time is preferred, because it can be compared with the times of other
                // traces.
                let real = (0, clocks::REALTIME);
                let known = self.moved(clock, at, real).is_some();
                *self.target.insert(if known { real } else { (0, BOOTTIME) })
            }
        };
        match self.moved(clock, at, target) {
            // Without snapshots, the trace is assumed to have only one clock.
            None if self.pairs.is_empty() => Some(at),
            moved => moved,
        }
    }

    pub(super) fn is_real(&self) -> bool {
        self.target == Some((0, clocks::REALTIME))
    }

    fn moved(&self, from: ClockId, at: i64, to: ClockId) -> Option<i64> {
        let mut seen = HashSet::from([from]);
        let mut next = VecDeque::from([(from, at)]);
        while let Some((clock, at)) = next.pop_front() {
            if clock == to {
                return Some(at);
            }
            for (other, snapshots) in self.pairs.get(&clock).into_iter().flatten() {
                if !seen.insert(*other) {
                    continue;
                }
                let before = snapshots.range(..=at).next_back();
                let Some((then, shown)) = before.or_else(|| snapshots.iter().next()) else {
                    continue;
                };
                next.push_back((*other, at.checked_sub(*then)?.checked_add(*shown)?));
            }
        }
        None
    }
}
