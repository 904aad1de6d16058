//! Summarises the series of tracks (values that were sampled over time): totals, rates, and how
//! evenly they were sampled. The samples are read in one pass, with a small state for each series.
//!
//! The readings of a cumulative series (a sampled counter) divide the time into intervals. The
//! count of an interval is the difference of the raw values at its two ends, modulo 2⁶⁴. If the
//! operating system ran the counter during only a part of the interval, the difference is
//! multiplied by the time for which the counter was enabled, divided by the time in which it ran.
//! The *coverage* is the part of the enabled time in which the counter really counted, over all
//! intervals that have a value. The intervals are far longer than the time slices in which the
//! operating system multiplexes counters, so the scaled difference is a good estimate. If the
//! counter was enabled but did not run at all, the interval has no value. A failed reading does not
//! end an interval: the next interval begins at the last successful reading.

use std::collections::BTreeMap;

use model::Loss;
use profile::tracks::{Reading, Sample, Series, Tracks};
use profile::{LossCount, Profile, merge_losses};

#[derive(Clone, Debug, PartialEq)]
pub struct SeriesSummary {
    /// Index in [`Profile::tracks`].
    pub tracks: usize,
    pub series: u32,
    /// Number of samples, including those without a reading.
    pub samples: u64,
    /// Number of samples whose reading failed.
    pub failed: u64,
    /// Number of samples that are missing between the recorded ones.
    pub overruns: u64,
    /// Time of the first sample, in ns on `CLOCK_MONOTONIC`.
    pub first_ns: i64,
    /// Time of the last sample, in ns on `CLOCK_MONOTONIC`.
    pub last_ns: i64,
    /// Shortest and longest time between two consecutive samples, in ns. `None` with fewer than two
    /// samples. The end of the program can cut the last interval short, so it is left out if there
    /// are other intervals.
    pub steps_ns: Option<(f64, f64)>,
    /// The values of the series' readings. `None` if there are no readings or, in a cumulative
    /// series, if no interval longer than 0 has a value.
    pub values: Option<Values>,
}

/// The values of a series, converted to its unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Values {
    /// Values of a cumulative series.
    Counted {
        /// The total over all intervals that have a value.
        total: f64,
        /// The sum of the lengths of all intervals that have a value, in ns.
        over_ns: f64,
        /// `total` per second of `over_ns`.
        rate: f64,
        /// The smallest rate of an interval, per second.
        min_rate: f64,
        /// The largest rate of an interval, per second.
        max_rate: f64,
        /// The part of the enabled time in which the counter was really counting, over all
        /// intervals that have a value. If it is below 1, `total` was scaled up.
        coverage: f64,
    },
    /// Values of a series of levels: each reading is the value at that moment, not a count.
    Level {
        /// The mean over the time, where each reading is valid until the next one. If there is no
        /// time between readings, or if they are not sorted by time, this is the mean over the
        /// readings.
        mean: f64,
        /// The smallest reading.
        min: f64,
        /// The largest reading.
        max: f64,
        /// The last reading.
        last: f64,
    },
}

/// The summaries of all tracks of a profile.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TracksSummary {
    /// The series, sorted by the index of their tracks in the profile, and then by their number.
    pub series: Vec<SeriesSummary>,
    /// Losses: damaged data, failed readings, and missing samples.
    pub losses: Vec<LossCount>,
}

/// Summarises all tracks of `profile`. Reads every sample once.
///
/// # Errors
/// Fails if a file of samples cannot be read.
pub fn tracks(profile: &Profile) -> profile::Result<TracksSummary> {
    let mut summary = TracksSummary::default();
    let mut losses = Vec::new();
    for (index, tracks) in profile.tracks.iter().enumerate() {
        let mut states: BTreeMap<u32, State> =
            tracks.series.keys().map(|id| (*id, State::default())).collect();
        let mut samples = tracks.samples()?;
        while let Some(batch) = samples.next_batch()? {
            for sample in batch {
                let Some(series) = tracks.series.get(&sample.series) else { continue };
                let ns = series.time_ns(&profile.timeline, sample.time);
                if let Some(state) = states.get_mut(&sample.series) {
                    state.take(series, &sample, ns);
                }
            }
        }
        losses.extend(samples.losses());
        for (id, state) in states {
            let series = &tracks.series[&id];
            let one = state.finish(index, id, series);
            losses.push(LossCount::new(Loss::TrackOverrun, one.overruns));
            losses.push(LossCount::new(Loss::TrackReadFailed, one.failed));
            summary.series.push(one);
        }
    }
    summary.losses = merge_losses(&losses);
    Ok(summary)
}

/// Returns the series that `summary` describes, and the directory of tracks that contains it.
pub fn series_of<'a>(
    profile: &'a Profile,
    summary: &SeriesSummary,
) -> Option<(&'a Tracks, &'a Series)> {
    let tracks = profile.tracks.get(summary.tracks)?;
    Some((tracks, tracks.series.get(&summary.series)?))
}

/// How late the first sample of a series may be, as a fraction of its sampling interval.
const LATE: f64 = 0.1;

#[derive(Clone, Debug, Default)]
struct State {
    samples: u64,
    failed: u64,
    overruns: u64,
    /// The number of the sampling interval in which the latest sample falls. Interval 0 begins at
    /// the first sample.
    turn: u64,
    times: Option<(i64, i64)>,
    /// The shortest and the longest time between two consecutive samples. The time between the last
    /// two samples is only in `last_step`.
    steps: Option<(f64, f64)>,
    last_step: Option<f64>,
    counted: Counted,
    level: Level,
}

#[derive(Clone, Debug, Default)]
struct Counted {
    before: Option<(i64, u64, u64, u64)>,
    total: f64,
    over_ns: f64,
    rates: Option<(f64, f64)>,
    enabled: u128,
    running: u128,
}

#[derive(Clone, Debug, Default)]
struct Level {
    before: Option<(i64, f64)>,
    range: Option<(f64, f64)>,
    weighted: f64,
    weight: f64,
    sum: f64,
    readings: u64,
    /// Whether some reading is earlier than the one before it.
    unordered: bool,
}

fn widen(range: Option<(f64, f64)>, value: f64) -> Option<(f64, f64)> {
    Some(range.map_or((value, value), |(low, high)| (low.min(value), high.max(value))))
}

impl State {
    fn take(&mut self, series: &Series, sample: &Sample, ns: i64) {
        self.samples += 1;
        if let Some((_, before)) = self.times {
            let step = ns.saturating_sub(before) as f64;
            if let Some(last) = self.last_step.replace(step) {
                self.steps = widen(self.steps, last);
            }
        }
        self.times =
            Some(self.times.map_or((ns, ns), |(first, last)| (first.min(ns), last.max(ns))));
        if series.interval_ns > 0 {
            // The interval's number is rounded down, because a sample may be late. If the first
            // sample was late, later samples seem to be early, because intervals are counted from
            // the first sample. So `LATE` is added.
            let since = ns.saturating_sub(self.times.map_or(ns, |(first, _)| first)) as f64;
            let turn = (since / series.interval_ns as f64 + LATE).floor() as u64;
            self.overruns += turn.saturating_sub(self.turn + 1);
            self.turn = turn;
        }
        match sample.reading {
            None => self.failed += 1,
            Some(Reading::Count { raw, enabled_ns, running_ns }) => {
                self.counted.take(series, ns, raw, enabled_ns, running_ns);
            }
            Some(Reading::Value(value)) => self.level.take(value * series.scale, ns),
        }
    }

    fn finish(self, tracks: usize, id: u32, series: &Series) -> SeriesSummary {
        let (first_ns, last_ns) = self.times.unwrap_or_default();
        let values = if series.cumulative { self.counted.values() } else { self.level.values() };
        let only = self.last_step.map(|step| (step, step));
        SeriesSummary {
            tracks,
            series: id,
            samples: self.samples,
            failed: self.failed,
            overruns: self.overruns,
            first_ns,
            last_ns,
            steps_ns: self.steps.or(only),
            values,
        }
    }
}

impl Counted {
    fn take(&mut self, series: &Series, ns: i64, raw: u64, enabled: u64, running: u64) {
        let Some((was, old, e, r)) = self.before.replace((ns, raw, enabled, running)) else {
            return;
        };
        let (step, count) = (ns.saturating_sub(was) as f64, raw.wrapping_sub(old) as f64);
        let (enabled, running) = (enabled.wrapping_sub(e), running.wrapping_sub(r));
        let part = match (enabled, running) {
            (0, _) => 1.0,
            (_, 0) => return,
            _ => running as f64 / enabled as f64,
        };
        self.enabled += u128::from(enabled);
        self.running += u128::from(running);
        let count = count * series.scale / part;
        self.total += count;
        if step > 0.0 {
            self.over_ns += step;
            self.rates = widen(self.rates, count / step * 1e9);
        }
    }

    fn values(self) -> Option<Values> {
        let (min_rate, max_rate) = self.rates?;
        let coverage =
            if self.enabled == 0 { 1.0 } else { self.running as f64 / self.enabled as f64 };
        let (total, over_ns) = (self.total, self.over_ns);
        let rate = total / over_ns * 1e9;
        Some(Values::Counted { total, over_ns, rate, min_rate, max_rate, coverage })
    }
}

impl Level {
    fn take(&mut self, value: f64, ns: i64) {
        if let Some((was, old)) = self.before.replace((ns, value)) {
            self.unordered |= ns < was;
            let step = (ns.saturating_sub(was) as f64).max(0.0);
            self.weighted += old * step;
            self.weight += step;
        }
        self.range = widen(self.range, value);
        self.sum += value;
        self.readings += 1;
    }

    fn values(self) -> Option<Values> {
        let ((min, max), (_, last)) = (self.range?, self.before?);
        let mean = if self.weight > 0.0 && !self.unordered {
            self.weighted / self.weight
        } else {
            self.sum / self.readings as f64
        };
        Some(Values::Level { mean, min, max, last })
    }
}
