//! Imports the counter events (`C`) of a trace as tracks. As in viewers, process, name and id
//! identify a counter, and each key of its arguments is a series.

use std::collections::HashMap;

use profile::activities::NameId;
use profile::tracks::{Reading, Readings, Sample, Scope, Series, Times};
use profile::writer::ProcessKey;
use profile::{Result, TracksWriter};

use super::{Id, OneTrace};
use crate::chrome::event::{Event, Raw, args};

/// The time series of one trace.
#[derive(Debug)]
pub(super) struct Counters {
    /// The name of the directory of the tracks.
    name: String,
    /// The writer of the tracks, which is created with the first counter.
    writer: Option<TracksWriter>,
    /// For each counter, and each key of its arguments: the number of the series.
    series: HashMap<Key, HashMap<Box<str>, u32>>,
    /// The numbers of the series that [`OneTrace::counter_value`] added, by scope, source, track
    /// and name of the series.
    with_unit: HashMap<(Scope, [NameId; 3]), u32>,
}

/// Identifies a counter by its process, name and id.
type Key = (ProcessKey, Option<NameId>, Option<Box<str>>);

impl Counters {
    pub(super) fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            writer: None,
            series: HashMap::new(),
            with_unit: HashMap::new(),
        }
    }

    pub(super) fn finish(self) -> Result<()> {
        self.writer.map_or(Ok(()), TracksWriter::finish)
    }
}

/// Reads the value of a series; `Ok(None)` if the value is `null`. A value that is not a finite
/// number, with or without quotes, is an error.
fn number(value: Raw<'_>) -> std::result::Result<Option<f64>, ()> {
    let text = value.get();
    if text == "null" {
        return Ok(None);
    }
    let number = text.trim_matches('"').parse::<f64>().ok();
    number.filter(|n| n.is_finite()).map(Some).ok_or(())
}

/// A value of a counter, with the unit and scope that an event of Chrome's format cannot express.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CounterValue<'a> {
    /// What the counter counts.
    pub scope: Scope,
    /// The source that numbers the devices, such as a plugin. Two sources may use the same number
    /// for different devices.
    pub source: &'a str,
    /// The name of the track (of the counter).
    pub track: &'a str,
    /// The name of the series in the track.
    pub series: &'a str,
    /// Empty if there is none.
    pub unit: &'a str,
    pub value: f64,
}

impl OneTrace<'_> {
    /// Adds a value of a counter. `event`, which is also stored, should be an event `C` with a time
    /// and the value.
    ///
    /// # Errors
    /// Fails if the disk is full.
    pub fn counter_value(
        &mut self,
        event: &Event<'_>,
        value: &CounterValue<'_>,
    ) -> std::result::Result<(), String> {
        self.keep(event)?;
        let Some(time_ns) = event.time_ns else { return Ok(()) };
        let time_ns = time_ns.saturating_add(self.shift_ns);
        self.all.saw_counter(time_ns);
        let names = [value.source, value.track, value.series];
        let names = names.map(|name| self.activities.name(name));
        let Self { counters, all, .. } = self;
        let Counters { name: directory, writer, with_unit, .. } = counters;
        let writer = match writer {
            Some(writer) => writer,
            None => {
                let made = TracksWriter::create(&all.dir, directory, Readings::Values);
                writer.insert(made.map_err(|e| e.to_string())?)
            }
        };
        let series = *with_unit.entry((value.scope, names)).or_insert_with(|| {
            writer.describe(Series {
                track: value.track.to_owned(),
                name: value.series.to_owned(),
                unit: value.unit.to_owned(),
                scale: 1.0,
                scope: value.scope,
                times: Times::Monotonic,
                cumulative: false,
                interval_ns: 0,
                source: value.source.to_owned(),
            })
        });
        all.counts.samples += 1;
        let reading = Some(Reading::Value(value.value));
        let sample = Sample { series, time: all.monotonic(time_ns), reading };
        writer.push(sample).map_err(|e| e.to_string())
    }

    /// Adds the values of a counter, which are the arguments of an event `C`.
    ///
    /// # Errors
    /// Fails if the disk is full.
    pub fn counter_values(
        &mut self,
        event: &Event<'_>,
        scope: Scope,
        source: &str,
    ) -> std::result::Result<(), String> {
        let (_, _, name) = self.keep(event)?;
        self.counter(event, name, Some((scope, source)))
    }

    /// Adds the values of a counter to series with the scope and source `of`. Without `of`, the
    /// scope is the process of the event, and the source is `trace`.
    pub(super) fn counter(
        &mut self,
        event: &Event<'_>,
        name: Option<NameId>,
        of: Option<(Scope, &str)>,
    ) -> std::result::Result<(), String> {
        let (Some(time_ns), Some(values)) = (event.time_ns, event.args) else { return Ok(()) };
        let time_ns = time_ns.saturating_add(self.shift_ns);
        self.all.saw_counter(time_ns);
        let time = self.all.monotonic(time_ns);
        let id = event.pid.as_ref().map(Id::of);
        let process = self.process(id.as_ref())?;
        let counter_id = event.id.as_ref().map(|id| id.to_string().into_boxed_str());
        let Self { counters, all, activities, no_numbers, .. } = self;
        let Counters { name: directory, writer, series, .. } = counters;
        let writer = match writer {
            Some(writer) => writer,
            None => {
                let made = TracksWriter::create(&all.dir, directory, Readings::Values);
                writer.insert(made.map_err(|e| e.to_string())?)
            }
        };
        let (scope, source) = of.unwrap_or((Scope::Process(all.calls.pid(process)), "trace"));
        let known = series.entry((process, name, counter_id.clone())).or_default();
        let mut failed = None;
        args(values, |key, value| {
            let value = match number(value) {
                Ok(Some(value)) => value,
                Ok(None) => return,
                Err(()) => {
                    *no_numbers += 1;
                    return;
                }
            };
            let found = known.get(key).copied();
            let series = found.unwrap_or_else(|| {
                let name = name.map_or("", |name| activities.text(name));
                let track = match &counter_id {
                    Some(id) => format!("{name}[{id}]"),
                    None => name.to_owned(),
                };
                let number = writer.describe(Series {
                    track,
                    name: key.to_owned(),
                    unit: String::new(),
                    scale: 1.0,
                    scope,
                    times: Times::Monotonic,
                    cumulative: false,
                    interval_ns: 0,
                    source: source.to_owned(),
                });
                known.insert(key.into(), number);
                number
            });
            all.counts.samples += 1;
            let reading = Some(Reading::Value(value));
            if let Err(error) = writer.push(Sample { series, time, reading }) {
                failed.get_or_insert(error.to_string());
            }
        });
        failed.map_or(Ok(()), Err)
    }
}
