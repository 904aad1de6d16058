//! Computes what an empty call adds to times and counters. The computation uses the calibrations of
//! a process for one set of counters, and the time that readings of counters took in the recorded
//! calls.
//!
//! ```text
//!  calibrations of all threads ─► mean, scatter ─┐
//!                                                ├─► Bracket: mean with its interval
//!  how long readings took in the program ────────┘            │
//!                    duration: subtracted from each call ◄────┴────► counters: × number of calls,
//!                                                                    subtracted from sums
//! ```
//!
//! The calibration makes empty calls (calls of a function that does nothing) in a loop with warm
//! caches, so they differ from calls of the program. Three causes widen the interval of the result:
//!
//! - **Calibrations differ** from thread to thread. The interval contains the 95 % intervals of all
//!   calibrations' means.
//! - **Colder caches.** Between two calls, the program replaces the recorder's data in the caches.
//!   For counters of the operating system (perf events), it is usually known how much longer a
//!   reading takes in the program ([`Place`]). A clock that runs during the reading (`task-clock`)
//!   counts this time, so for such a clock, the time found in the program replaces the calibrated
//!   value. Any other counter whose values scatter in the calibration may count more in the
//!   program, in the same proportion as readings take longer. A counter that has the same value in
//!   every empty call (instructions, page faults) is assumed to have it in the program, too.
//! - **The processor overlaps** the clock reads with the code between and around them. The effect
//!   of this overlap was measured with functions of known length (`cargo xtask bench resolution`).
//!   A call's recorded duration was too long by anything between 0 and the whole duration of an
//!   empty call, depending on the code before the call. So half of that duration is subtracted, and
//!   the interval reaches from 0 to the whole duration. Half a step of the clock is added on both
//!   sides: if a loop of calls runs in phase with the clock's steps, its durations can be off by up
//!   to half a step.

use profile::{Calibration, Profile};

use crate::estimate::Estimate;

/// The part of an empty call's duration that is subtracted from the duration of a recorded call.
const PART_OF_DURATION: f64 = 0.5;
/// A miss in a cache takes at least this long: the latency of the second level is 12 to 15 cycles.
const MISS_NS: f64 = 3.0;
/// If the time of readings in the program is not known, they are assumed to take up to this many
/// times as long as in the calibration.
const UNKNOWN_RATIO: f64 = 2.0;
/// The quantile of the normal distribution for a two-sided 95 % interval.
const Z: f64 = 1.96;

/// What the readings before and after a call (its *bracket*) add to the recorded duration of the
/// call, in ticks, or to a counter.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Bracket {
    /// The mean over the brackets of the program.
    pub mean: Estimate,
    /// The standard deviation of single brackets.
    pub deviation: f64,
}

impl Bracket {
    /// Returns the sum over the brackets of this many calls.
    pub fn of_calls(&self, calls: u64) -> Estimate {
        let scatter = Z * self.deviation * (calls as f64).sqrt();
        self.mean.times(calls as f64).plus(Estimate::within(0.0, scatter))
    }
}

/// What the recorder measures for an empty call, from the calibrations of a process.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EmptyCall {
    /// Median duration in ticks.
    pub ticks: u64,
    /// 10th and 90th percentile of the duration. This field and the elements of `ranges` are `None`
    /// in profiles of earlier versions.
    pub ticks_range: Option<[u64; 2]>,
    /// The median count of each counter of the run; `None` if it was not calibrated.
    pub values: Vec<Option<u64>>,
    /// 10th and 90th percentile of the counts of each counter.
    pub ranges: Vec<Option<[u64; 2]>>,
    /// The time that the recorder adds to a call's recorded duration, in ticks.
    pub duration: Bracket,
    /// The whole time by which recording a call makes the calls around it longer, in ticks.
    pub whole: Bracket,
    /// What an empty call adds to each counter of the run; `None` for a counter that was not
    /// calibrated.
    pub counters: Vec<Option<Bracket>>,
}

/// How long readings of counters took in the program and in the calibration.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Place {
    /// The mean time of a reading in the program, in ns.
    pub reading_ns: f64,
    /// The standard deviation of the times of readings in the program, in ns.
    pub deviation_ns: f64,
    /// The mean time of a reading in the calibration, in ns.
    pub calibrated_ns: f64,
}

impl EmptyCall {
    /// Corrects `counters` for the time that readings of counters took in the program. `place` is
    /// `None` if that time is not known.
    pub(crate) fn placed(mut self, profile: &Profile, place: Option<Place>) -> Self {
        let line = &profile.timeline;
        let inside = self.duration.mean.times(line.ns_per_tick());
        let ratio = place.map_or(UNKNOWN_RATIO, |place| {
            (place.reading_ns / place.calibrated_ns.max(1.0)).max(1.0)
        });
        let longer_ns = place.map_or(0.0, |p| (p.reading_ns - p.calibrated_ns).max(0.0));
        for (counter, info) in self.counters.iter_mut().zip(&profile.manifest.counters) {
            let Some(bracket) = counter.as_mut().filter(|_| !info.simulated) else { continue };
            let mean = &mut bracket.mean;
            if is_clock(&info.name) {
                // In an empty call, the clock counts the time between its two readings.
                let found = place.map(|place| Estimate {
                    value: place.reading_ns + inside.value,
                    low: place.reading_ns + inside.low,
                    high: place.reading_ns + inside.high,
                });
                let high = mean.high.max(found.map_or(ratio * mean.high, |found| found.high));
                let low = mean.low.min(found.map_or(mean.low, |found| found.low));
                *mean = Estimate { value: found.map_or(mean.value, |f| f.value), low, high };
                let scatter = place.map_or(0.0, |place| place.deviation_ns);
                bracket.deviation = bracket.deviation.max(scatter);
            } else if bracket.deviation > 0.0 {
                mean.high *= ratio;
            }
            if info.name.contains("miss") {
                bracket.mean.high += longer_ns / MISS_NS;
            }
        }
        self
    }
}

impl EmptyCall {
    /// Returns what recording an inner call adds to a counter of the outer call, beyond what it
    /// adds to the counter of the inner call itself.
    ///
    /// For a clock of the thread, this is the time that recording the inner call takes, minus what
    /// the clock counts in an empty call. Any other counter is read before and after the inner
    /// call, and the value of an empty call includes the cost of one reading. The other reading is
    /// assumed to cost the same, but the interval starts at 0.
    pub(crate) fn outside(&self, profile: &Profile, counter: usize) -> Option<Estimate> {
        let own = self.counters.get(counter).copied().flatten()?.mean;
        let info = profile.manifest.counters.get(counter).filter(|info| !info.simulated);
        Some(match info {
            None => Estimate::exact(0.0),
            Some(info) if is_clock(&info.name) => {
                let whole = self.whole.mean.times(profile.timeline.ns_per_tick());
                let value = (whole.value - own.value).max(0.0);
                Estimate {
                    value,
                    low: (whole.low - own.high).clamp(0.0, value),
                    high: (whole.high - own.low).max(value),
                }
            }
            Some(_) => Estimate { low: 0.0, ..own },
        })
    }
}

/// Whether a counter is a clock of the operating system that stops while the thread does not run.
pub(crate) fn is_clock(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name.contains("task-clock") || name.contains("cpu-clock")
}

/// Returns the first calibration of a process for the set of counters `mask`.
pub(crate) fn calibration(profile: &Profile, process: usize, mask: u32) -> Option<&Calibration> {
    calibrations(profile, process, mask).next()
}

fn calibrations(
    profile: &Profile,
    process: usize,
    mask: u32,
) -> impl Iterator<Item = &Calibration> {
    let of = profile.processes.get(process).map_or(&[][..], |p| &p.calibrations);
    of.iter().filter(move |c| c.counters == mask)
}

/// Returns what the recorder measures for an empty call with the set of counters `mask`. `None` if
/// the set was not calibrated.
pub(crate) fn empty_call(profile: &Profile, process: usize, mask: u32) -> Option<EmptyCall> {
    let calibration = calibration(profile, process, mask)?;
    let spread = calibration.spread.as_ref();
    let counters = || 0..profile.groups.counters();
    let read = |i: &usize| calibration.counters.checked_shr(*i as u32).unwrap_or(0) & 1 == 1;
    let value = |i: usize| calibration.inside_values.get(i).copied().filter(|_| read(&i));
    let range = |i: usize| spread?.inside_values.get(i).copied().filter(|_| read(&i));
    let all = || calibrations(profile, process, mask);
    let simulated = |i: &usize| profile.manifest.counters.get(*i).is_some_and(|c| c.simulated);
    let counter = |i: usize| {
        value(i)?;
        // The recorder adds nothing to a simulated counter.
        if simulated(&i) {
            return Some(Bracket::default());
        }
        joined(all().filter_map(|c| {
            let moments = c.sums.as_ref().and_then(|sums| {
                sums.inside_values.get(i)?.mean_and_deviation(sums.calls).map(|m| (m, sums.calls))
            });
            let range = c.spread.as_ref().and_then(|s| s.inside_values.get(i).copied());
            Some(one(moments, *c.inside_values.get(i)?, range, c.calls))
        }))
    };
    let mut duration = joined(all().map(|c| {
        let moments = c
            .sums
            .as_ref()
            .and_then(|sums| Some((sums.inside_ticks.mean_and_deviation(sums.calls)?, sums.calls)));
        one(moments, c.inside_ticks, c.spread.as_ref().map(|s| s.inside_ticks), c.calls)
    }))?;
    let steps = profile.processes.get(process).and_then(|process| process.clock_steps);
    let half_step = steps.map_or(0.0, |steps| steps.typical_ticks as f64 / 2.0);
    duration.mean = Estimate {
        value: PART_OF_DURATION * duration.mean.value,
        low: 0.0 - half_step,
        high: duration.mean.high + half_step,
    };
    let whole = joined(all().map(|c| {
        let moments = c
            .sums
            .as_ref()
            .and_then(|sums| Some((sums.total_ticks.mean_and_deviation(sums.calls)?, sums.calls)));
        one(moments, c.total_ticks, c.spread.as_ref().map(|s| s.total_ticks), c.calls)
    }))?;
    Some(EmptyCall {
        ticks: calibration.inside_ticks,
        ticks_range: spread.map(|spread| spread.inside_ticks),
        values: counters().map(value).collect(),
        ranges: counters().map(range).collect(),
        duration,
        whole,
        counters: counters().map(counter).collect(),
    })
}

/// Returns the mean and the standard deviation of the values of one calibration's empty calls, and
/// the number of these calls. Profiles of earlier versions have no sums. For them, the median is
/// used as the mean. Then the interval of the mean reaches from the 10th to the 90th percentile or,
/// without percentiles, from 0 to twice the median.
fn one(
    moments: Option<((f64, f64), u32)>,
    median: u64,
    range: Option<[u64; 2]>,
    calls: u32,
) -> (Bracket, f64) {
    if let Some(((mean, deviation), calls)) = moments {
        let half = Z * deviation / f64::from(calls).sqrt();
        return (Bracket { mean: Estimate::within(mean, half), deviation }, calls.into());
    }
    let median = median as f64;
    let (low, high) = match range {
        Some([low, high]) => (low as f64, high as f64),
        None => (0.0, 2.0 * median),
    };
    // In a normal distribution, the 10th and the 90th percentile are 2.56 standard deviations
    // apart.
    let deviation = (high - low).max(0.0) / 2.56;
    let mean = Estimate { value: median, low: low.min(median), high: high.max(median) };
    (Bracket { mean, deviation }, f64::from(calls.max(1)))
}

/// Joins several calibrations: the mean over all of their calls, with an interval that contains the
/// intervals of all.
fn joined(all: impl Iterator<Item = (Bracket, f64)>) -> Option<Bracket> {
    let (mut calls, mut value, mut variance) = (0.0, 0.0, 0.0);
    let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
    for (one, of) in all {
        calls += of;
        value += of * one.mean.value;
        variance += of * one.deviation * one.deviation;
        low = low.min(one.mean.low);
        high = high.max(one.mean.high);
    }
    (calls > 0.0).then(|| Bracket {
        mean: Estimate { value: value / calls, low, high },
        deviation: (variance / calls).sqrt(),
    })
}

/// Returns the sum of two values whose errors may have the same cause, so the ends of the intervals
/// are added.
pub(crate) fn together(a: Estimate, b: Estimate) -> Estimate {
    Estimate { value: a.value + b.value, low: a.low + b.low, high: a.high + b.high }
}
