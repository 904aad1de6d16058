//! Shows a profile's tracks (its time series) as counters.
//!
//! ```text
//!  readings    r0 ────── r1 ────── (failed) ────── r3
//!  points      (r1−r0)/s at r0 · (r3−r1)/s at r1
//! ```
//!
//! A cumulative series of raw counts is shown as rates. The rate of an interval between two
//! readings is at the start of the interval. If the operating system ran a hardware counter only
//! during a part of the interval, the difference of the readings is multiplied by (time enabled) /
//! (time running). An interval in which the counter was enabled but did not run has no point. Other
//! readings are shown without such a conversion. A reading that failed, or that is not a finite
//! number, has no point.

use std::collections::HashMap;
use std::io;

use model::activity::{Generic, Registry, Value, Vocabulary};
use profile::tracks::{Reading, Sample, Scope, ScopeNames, Series, Times};
use profile::{LossCount, Profile, merge_losses};

use crate::timeline::{Arg, ArgValue, Id, ProcessRow, Row, SeriesPoint, TimelineSink};

/// Tracks that belong to no process are shown in a made-up process. This constant plus the index of
/// the tracks in the profile is the number of this process.
pub const TRACK_ROWS: i64 = 6_000_000;

/// A series and its last reading.
struct State<'a> {
    series: &'a Series,
    name: String,
    key: String,
    unit: String,
    last: Option<(i64, u64, u64, u64)>,
}

/// Passes the samples of the profile to `sink`. Returns the damage that was found in the files of
/// the samples.
pub fn export_tracks(
    profile: &Profile,
    vocabulary: Vocabulary,
    sink: &mut impl TimelineSink,
) -> io::Result<Vec<LossCount>> {
    let registry = Registry::new();
    let category = registry.name(Generic::Counter.into(), vocabulary);
    // `profile::Timeline` also converts times of calls with the earliest snapshot, so times of
    // samples agree with times of calls.
    let first = profile.snapshots.iter().min_by_key(|s| s.ticks);
    let offset = first.map_or(0, |s| s.realtime_ns.wrapping_sub(s.monotonic_ns) as i64);
    let mut losses = Vec::new();
    for (index, tracks) in profile.tracks.iter().enumerate() {
        let of_machine = Id::Number(TRACK_ROWS + index as i64);
        let (name, labels) = (format!("counters of {}", tracks.name), "counters");
        let at_ns = first.map_or(0, |s| s.realtime_ns as i64);
        let sort_index = TRACK_ROWS + index as i64;
        sink.process(&ProcessRow { id: of_machine, name: &name, labels, sort_index, at_ns })?;
        let scopes = ScopeNames::of(tracks);
        let states = tracks.series.iter().map(|(id, series)| (*id, State::new(series, &scopes)));
        let mut states: HashMap<u32, State<'_>> = states.collect();
        let mut samples = tracks.samples().map_err(io::Error::other)?;
        while let Some(batch) = samples.next_batch().map_err(io::Error::other)? {
            for sample in batch {
                let Some(state) = states.get_mut(&sample.series) else { continue };
                let Some((time, value)) = state.point(&sample, profile) else { continue };
                let at_ns = match state.series.times {
                    Times::Ticks => profile.timeline.realtime_ns(time as u64),
                    Times::Monotonic => time.saturating_add(offset),
                };
                let process = match state.series.scope {
                    Scope::Process(pid) => Id::Number(pid.into()),
                    _ => of_machine,
                };
                let value = ArgValue::Plain(Value::Float(value));
                let series = [Arg { key: &state.key, value }];
                sink.counter(&SeriesPoint {
                    row: Row { process, thread: Id::Number(0) },
                    category,
                    name: &state.name,
                    at_ns,
                    series: &series,
                    label: None,
                    units: &[(&state.key, &state.unit)],
                })?;
            }
        }
        losses = merge_losses(losses.iter().chain(&samples.losses()));
    }
    Ok(losses)
}

impl<'a> State<'a> {
    fn new(series: &'a Series, scopes: &ScopeNames<'_>) -> Self {
        let per = if series.cumulative { "/s" } else { "" };
        let unit = match series.unit.as_str() {
            "" if series.cumulative => "1/s".to_owned(),
            unit => format!("{unit}{per}"),
        };
        let name = match series.scope {
            Scope::Machine if scopes.source(series).is_none() => series.track.clone(),
            _ => format!("{} {}", series.track, scopes.name(series)),
        };
        let key = match (series.name.as_str(), unit.as_str()) {
            ("", "") => "value".to_owned(),
            ("", unit) => unit.to_owned(),
            (name, _) => name.to_owned(),
        };
        Self { series, name, key, unit, last: None }
    }

    /// Returns the time and value of the point that this sample completes, if there is one.
    fn point(&mut self, sample: &Sample, profile: &Profile) -> Option<(i64, f64)> {
        let scale = self.series.scale;
        match sample.reading? {
            // Another program has computed the value, so no rate is computed, even if the series is
            // cumulative.
            Reading::Value(value) => {
                let value = value * scale;
                // JSON has no infinities, and Perfetto rejects the `null` that would be written
                // instead.
                value.is_finite().then_some((sample.time, value))
            }
            Reading::Count { raw, .. } if !self.series.cumulative => {
                Some((sample.time, raw as f64 * scale))
            }
            Reading::Count { raw, enabled_ns, running_ns } => {
                let now = (sample.time, raw, enabled_ns, running_ns);
                let (then, before, enabled, running) = self.last.replace(now)?;
                let length = sample.time.checked_sub(then).filter(|t| *t > 0)?;
                let ns = match self.series.times {
                    Times::Ticks => profile.timeline.duration_ns(length as u64),
                    Times::Monotonic => length as f64,
                };
                let counted = raw.wrapping_sub(before) as f64;
                let (enabled, running) =
                    (enabled_ns.wrapping_sub(enabled), running_ns.wrapping_sub(running));
                let share = match (enabled, running) {
                    (0, 0) => 1.0,
                    (_, 0) => return None,
                    (enabled, running) => enabled as f64 / running as f64,
                };
                Some((then, counted * share * scale / ns * 1e9))
            }
        }
    }
}
