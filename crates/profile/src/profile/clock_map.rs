//! Converts times from the clock of a recording to the clock of the profile into which it was
//! merged.

use record::brackets::{Brackets, Histogram, bucket_of, middle_of};
use record::meta::{Calibration, Moments};
use record::{PageHeader, Timeline, Usage};

use super::Process;
use crate::columns::Columns;
use crate::manifest::Moment;
use crate::tracks::Times;

/// Converts moments and durations of a recording, rounded to whole ticks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ClockMap {
    /// The common moment (known on both clocks), in ticks of the recording.
    from_ticks: u64,
    /// The common moment in ticks of the profile. It may be before the beginning of the profile's
    /// clock.
    to_ticks: i64,
    /// Number of ticks of the profile in one tick of the recording.
    ratio: f64,
    /// How many ns `CLOCK_MONOTONIC` of the profile is ahead of that of the recording.
    ahead_ns: i64,
}

impl ClockMap {
    /// Creates the conversion from the clock `from` to `to`: by `CLOCK_MONOTONIC` if it is the same
    /// for both, otherwise by `CLOCK_REALTIME`.
    pub fn new(from: &Timeline, to: &Timeline, same_monotonic: bool) -> Self {
        let ahead_ns = match same_monotonic {
            true => 0,
            false => to.realtime_to_monotonic_ns(from.monotonic_to_realtime_ns(0)),
        };
        let from_ticks = from.origin_ticks();
        let at_ns = from.monotonic_ns(from_ticks).saturating_add(ahead_ns);
        let since_ns = at_ns.saturating_sub(to.monotonic_ns(to.origin_ticks()));
        let since = match to.ns_per_tick() {
            1.0 => since_ns,
            ns_per_tick => (since_ns as f64 / ns_per_tick).round() as i64,
        };
        let to_ticks = (to.origin_ticks() as i64).saturating_add(since);
        let ratio = from.ns_per_tick() / to.ns_per_tick();
        Self { from_ticks, to_ticks, ratio, ahead_ns }
    }

    /// Converts a moment from ticks of the recording to ticks of the profile.
    pub fn ticks(&self, ticks: u64) -> u64 {
        self.at(self.since(ticks)).max(0) as u64
    }

    /// Returns the ticks of the recording from the common moment to `ticks`.
    fn since(&self, ticks: u64) -> i64 {
        ticks.wrapping_sub(self.from_ticks) as i64
    }

    /// Returns, in ticks of the profile, the moment that is `since` ticks of the recording after
    /// the common moment. It may be before the beginning of the profile's clock.
    fn at(&self, since: i64) -> i64 {
        let since = if self.ratio == 1.0 { since } else { self.scaled(since as f64) as i64 };
        self.to_ticks.saturating_add(since)
    }

    /// Converts the start and the duration of a call. Start and end are rounded separately. So a
    /// call that ends inside of another call also does so after the conversion.
    fn call(&self, start: &mut u64, duration: &mut u64) {
        let begin = self.since(*start);
        let end = begin.saturating_add(*duration as i64);
        *duration = self.at(end).saturating_sub(self.at(begin)) as u64;
        *start = self.ticks(*start);
    }

    /// Converts a duration in ticks.
    pub fn duration(&self, ticks: u64) -> u64 {
        if self.ratio == 1.0 { ticks } else { self.scaled(ticks as f64) as u64 }
    }

    fn scaled(&self, ticks: f64) -> f64 {
        (ticks * self.ratio).round()
    }

    /// Converts a moment on `CLOCK_MONOTONIC`, in ns.
    pub fn monotonic_ns(&self, ns: u64) -> u64 {
        ns.saturating_add_signed(self.ahead_ns)
    }

    /// Converts the time of a sample of a time series.
    pub fn time(&self, times: Times, time: i64) -> i64 {
        match times {
            Times::Ticks => self.ticks(time as u64) as i64,
            Times::Monotonic => time.saturating_add(self.ahead_ns),
        }
    }

    /// Converts a clock snapshot; `to` is the timeline of the profile.
    pub fn moment(&self, moment: &Moment, to: &Timeline) -> Moment {
        let ticks = self.ticks(moment.ticks);
        Moment {
            ticks,
            monotonic_ns: self.monotonic_ns(moment.monotonic_ns),
            realtime_ns: to.realtime_ns(ticks).max(0) as u64,
            uncertainty_ticks: self.duration(moment.uncertainty_ticks),
        }
    }

    fn usage(&self, usage: &mut Option<Usage>) {
        if let Some(usage) = usage {
            usage.ticks = self.ticks(usage.ticks);
        }
    }

    fn header(&self, header: &mut PageHeader) {
        let start = &mut header.start;
        start.base_ticks = self.ticks(start.base_ticks);
        start.base_monotonic_ns = self.monotonic_ns(start.base_monotonic_ns);
        start.flush_ticks = self.duration(start.flush_ticks);
        self.usage(&mut start.usage);
        self.usage(&mut header.usage_end);
    }

    /// Converts the times that were decoded from a page.
    pub fn columns(&self, columns: &mut Columns) {
        for (start, duration) in columns.start_ticks.iter_mut().zip(&mut columns.duration_ticks) {
            self.call(start, duration);
        }
        for clock in &mut columns.clocks {
            clock.ticks = self.ticks(clock.ticks);
            clock.monotonic_ns = self.monotonic_ns(clock.monotonic_ns);
        }
        if let Some(header) = columns.header_mut() {
            self.header(header);
        }
    }

    /// Converts the times that were read when the process was opened.
    pub fn process(&self, process: &mut Process) {
        for page in process.threads.iter_mut().flat_map(|thread| &mut thread.pages) {
            self.header(&mut page.header);
        }
        for library in &mut process.libraries {
            library.ticks = self.ticks(library.ticks);
        }
        process.calibrations.iter_mut().for_each(|one| self.calibration(one));
        let brackets = process.brackets.iter_mut().chain(&mut process.announced);
        brackets.for_each(|one| self.brackets(one));
        if let Some(steps) = &mut process.clock_steps {
            steps.smallest_ticks = self.duration(steps.smallest_ticks);
            steps.typical_ticks = self.duration(steps.typical_ticks);
        }
        if let Some(cost) = &mut process.cost {
            cost.after_reading_ticks = self.duration(cost.after_reading_ticks);
        }
    }

    fn calibration(&self, calibration: &mut Calibration) {
        calibration.inside_ticks = self.duration(calibration.inside_ticks);
        calibration.total_ticks = self.duration(calibration.total_ticks);
        if let Some(spread) = &mut calibration.spread {
            for ticks in spread.inside_ticks.iter_mut().chain(&mut spread.total_ticks) {
                *ticks = self.duration(*ticks);
            }
        }
        if let Some(sums) = &mut calibration.sums {
            for Moments { sum, squares } in [&mut sums.inside_ticks, &mut sums.total_ticks] {
                *sum = self.duration(*sum);
                *squares = (*squares as f64 * self.ratio * self.ratio).round() as u64;
            }
        }
    }

    fn brackets(&self, brackets: &mut Brackets) {
        for Histogram(buckets) in [&mut brackets.before, &mut brackets.after] {
            for (bucket, _) in &mut *buckets {
                let ticks = middle_of((*bucket).into()) * self.ratio;
                *bucket = bucket_of(ticks.round() as u64) as u16;
            }
            buckets.dedup_by(|next, known| {
                let is_same = next.0 == known.0;
                if is_same {
                    known.1 = known.1.saturating_add(next.1);
                }
                is_same
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use record::{ClockKind, Snapshot};

    use super::*;

    fn line(points: &[(u64, u64, u64)]) -> Timeline {
        let snapshot = |&(ticks, monotonic_ns, realtime_ns): &(u64, u64, u64)| Snapshot {
            ticks,
            monotonic_ns,
            realtime_ns,
            uncertainty_ticks: 0,
        };
        Timeline::fit(ClockKind::Tsc, &points.iter().map(snapshot).collect::<Vec<_>>())
    }

    /// The clocks of two machines have 2 and 4 ticks per ns, and begin at different moments.
    #[test]
    fn ticks_of_another_machine() {
        let here = line(&[(0, 1_000_000, 5_000_000), (20_000_000, 11_000_000, 15_000_000)]);
        let there = line(&[(400, 500, 4_500_500), (40_000_400, 10_000_500, 14_500_500)]);
        let map = ClockMap::new(&there, &here, false);
        // 4,500,500 ns since 1970 is 499,500 ns before this machine's clock began. 4 ms later,
        // 3,500,500 ns have passed since that beginning, at 2 ticks per ns.
        assert_eq!(map.ticks(400), 0);
        assert_eq!(map.ticks(400 + 16_000_000), 2 * 3_500_500);
        assert_eq!(map.duration(1_000), 500);
        assert_eq!(map.monotonic_ns(4_000_500), 4_500_500, "8,500,500 ns since 1970");
        let moment = here.realtime_ns(map.ticks(400 + 16_000_000));
        assert_eq!(moment, there.realtime_ns(400 + 16_000_000));
    }

    /// Three ticks of the recording are two ticks of the profile.
    #[test]
    fn calls_that_end_inside_of_another_still_do() {
        let here = line(&[(0, 0, 0), (20_000_000, 10_000_000, 10_000_000)]);
        let there = line(&[(0, 0, 0), (30_000_000, 10_000_000, 10_000_000)]);
        let map = ClockMap::new(&there, &here, true);
        let mapped = |start: u64, end: u64| {
            let (mut start, mut duration) = (start, end.wrapping_sub(start));
            map.call(&mut start, &mut duration);
            (start, start.wrapping_add(duration))
        };
        for start in 3_000..3_012 {
            for end in start..start + 12 {
                assert_eq!(mapped(start, end), (map.ticks(start), map.ticks(end)));
            }
        }
        // If the end of a call is before its start, this is also so after the conversion.
        assert_eq!(mapped(3_030, 3_000), (2_020, 2_000));
        let (mut start, mut longest) = (1 << 60, i64::MAX as u64);
        map.call(&mut start, &mut longest);
        assert!(longest as i64 > 0, "a duration that cannot be stays above 0");
    }

    /// Each histogram contains times of 1,000 ticks of the recording, which become 500 ticks of
    /// the profile.
    #[test]
    fn all_histograms_of_a_process_are_mapped() {
        let here = line(&[(0, 0, 0), (20_000_000, 10_000_000, 10_000_000)]);
        let there = line(&[(0, 0, 0), (40_000_000, 10_000_000, 10_000_000)]);
        let of = |ticks: u64| Brackets {
            before: Histogram(vec![(bucket_of(ticks) as u16, 3)]),
            after: Histogram(vec![(bucket_of(ticks) as u16, 4)]),
            ..Brackets::default()
        };
        let id = crate::PartId { start_time: 1, pid: 2, generation: 0 };
        let mut process = Process::new(None, id, false);
        (process.brackets, process.announced) = (vec![of(1_000)], vec![of(1_000)]);
        ClockMap::new(&there, &here, true).process(&mut process);
        assert_eq!(process.brackets, [of(500)]);
        assert_eq!(process.announced, [of(500)]);
    }

    #[test]
    fn a_clock_in_common_changes_nothing() {
        let one = line(&[(0, 10, 20), (20_000_000, 10_000_010, 10_000_020)]);
        let map = ClockMap::new(&one, &one, true);
        for ticks in [0, 7, 123_456_789, 1 << 60] {
            assert_eq!((map.ticks(ticks), map.duration(ticks)), (ticks, ticks));
        }
        assert_eq!(map.monotonic_ns(77), 77);
    }
}
