//! Converts UTC to the clock of a profile. Some other programs give times only in UTC, and the
//! kernel may adjust UTC while a profile is recorded.

use super::{Snapshot, Timeline};

/// Converts times of `CLOCK_REALTIME` that were taken while a profile was recorded. Between two
/// clock snapshots, UTC is assumed to run at a constant rate relative to `CLOCK_MONOTONIC`, unless
/// UTC was set back. Before the first snapshot, after the last one, and where UTC was set back,
/// both clocks are assumed to run at the same rate.
#[derive(Clone, Debug)]
pub struct UtcClock {
    /// UTC and `CLOCK_MONOTONIC` of the snapshots in ns, sorted by `CLOCK_MONOTONIC`.
    points: Vec<(i64, i64)>,
    timeline: Timeline,
}

impl UtcClock {
    /// Creates the clock of the profile with these snapshots.
    pub fn new(timeline: Timeline, snapshots: &[Snapshot]) -> Self {
        let point = |s: &Snapshot| (s.realtime_ns as i64, s.monotonic_ns as i64);
        let mut points: Vec<(i64, i64)> = snapshots.iter().map(point).collect();
        points.sort_by_key(|(_, monotonic)| *monotonic);
        points.dedup_by_key(|(_, monotonic)| *monotonic);
        Self { points, timeline }
    }

    /// Converts a UTC time to `CLOCK_MONOTONIC`, both in ns.
    pub fn monotonic_ns(&self, utc_ns: i64) -> i64 {
        let within = |pair: &&[(i64, i64)]| pair[0].0 <= utc_ns && utc_ns <= pair[1].0;
        if let Some(pair) = self.points.windows(2).find(within) {
            let [(from_utc, from), (to_utc, to)] = [pair[0], pair[1]];
            let (utc, monotonic) =
                (i128::from(to_utc) - i128::from(from_utc), i128::from(to) - i128::from(from));
            if utc == 0 {
                return from;
            }
            let since = i128::from(utc_ns) - i128::from(from_utc);
            // Half of the divisor is added to round to the nearest integer.
            return from.saturating_add(((since * monotonic + utc / 2) / utc) as i64);
        }
        let by_distance = |(utc, _): &&(i64, i64)| utc.abs_diff(utc_ns);
        let nearest = self.points.iter().min_by_key(by_distance);
        nearest.map_or(utc_ns, |(utc, monotonic)| {
            monotonic.saturating_add(utc_ns.saturating_sub(*utc))
        })
    }

    /// Converts a UTC time to ticks of the profile's clock.
    pub fn ticks(&self, utc_ns: i64) -> u64 {
        self.timeline.ticks(self.monotonic_ns(utc_ns))
    }

    /// Converts a UTC time to the profile's UTC. The profile's UTC is always ahead of
    /// `CLOCK_MONOTONIC` by as much as in the first snapshot.
    pub fn profile_utc_ns(&self, utc_ns: i64) -> i64 {
        self.timeline.monotonic_to_realtime_ns(self.monotonic_ns(utc_ns))
    }

    /// Returns the timeline of the profile.
    pub fn timeline(&self) -> &Timeline {
        &self.timeline
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ClockKind;

    fn at(ticks: u64, monotonic_ns: u64, realtime_ns: u64) -> Snapshot {
        Snapshot { ticks, monotonic_ns, realtime_ns, uncertainty_ticks: 0 }
    }

    #[test]
    fn between_snapshots_utc_drifts_evenly() {
        // 2 ticks are 1 ns. In 10 ms, UTC gains 1000 ns.
        let snapshots =
            [at(2_000_000, 1_000_000, 5_000_000), at(22_000_000, 11_000_000, 15_001_000)];
        let clock = UtcClock::new(Timeline::fit(ClockKind::Tsc, &snapshots), &snapshots);
        assert_eq!(clock.monotonic_ns(5_000_000), 1_000_000);
        assert_eq!(clock.monotonic_ns(15_001_000), 11_000_000);
        // This moment is halfway between the snapshots on both clocks.
        assert_eq!(clock.monotonic_ns(10_000_500), 6_000_000);
        assert_eq!(clock.ticks(10_000_500), 12_000_000);
        // The profile's UTC keeps the offset of the first snapshot.
        assert_eq!(clock.profile_utc_ns(10_000_500), 10_000_000);
        // Before the first snapshot and after the last one, the offset of the nearest snapshot is
        // used.
        assert_eq!(clock.monotonic_ns(4_999_900), 999_900);
        assert_eq!(clock.monotonic_ns(15_001_100), 11_000_100);
    }

    #[test]
    fn utc_may_be_set_back_and_snapshots_may_be_missing() {
        let snapshots = [at(0, 0, 10_000), at(1_000, 1_000, 5_000)];
        let timeline = Timeline::fit(ClockKind::Monotonic, &snapshots);
        let clock = UtcClock::new(timeline, &snapshots);
        assert_eq!(clock.monotonic_ns(10_400), 400);
        assert_eq!(clock.monotonic_ns(5_300), 1_300);
        let empty = UtcClock::new(Timeline::fit(ClockKind::Monotonic, &[]), &[]);
        assert_eq!(empty.monotonic_ns(7), 7);
        assert_eq!(empty.monotonic_ns(i64::MIN), i64::MIN);
    }
}
