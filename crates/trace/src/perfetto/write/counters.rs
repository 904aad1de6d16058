//! Writes the values of counters. In a process, each series of a counter gets one track, when its
//! first number comes.

use std::collections::HashMap;

use model::activity::Value;

use super::{NO_TRACK, Packets};
use crate::perfetto::fields::track;
use crate::perfetto::row::Number;
use crate::text::same;
use crate::timeline::{ArgValue, SeriesPoint, TextId};

/// A process and its counters, which its threads share.
#[derive(Debug)]
pub(super) struct ProcessState {
    /// The id of the process's track, to which the tracks of its rows and counters belong.
    pub(super) track: u64,
    counters: Vec<CounterTracks>,
    /// Indices into `counters`.
    by_name: HashMap<String, usize>,
    /// The index in `counters` of the counter that was looked up last.
    last_counter: usize,
}

#[derive(Debug, Default)]
struct CounterTracks {
    name: String,
    series: Vec<(String, u64)>,
    /// Indices into `series`.
    by_name: HashMap<String, usize>,
}

impl Packets {
    /// Collects a counter's values for the caller. `i64` values go to `extras`, which a slice's
    /// packet can contain; values without room there, and all other numbers, go to `others`.
    pub(super) fn points(&mut self, row: usize, counter: &SeriesPoint<'_>) {
        if counter.series.is_empty() {
            return;
        }
        let label = counter.label.and_then(TextId::index);
        let labelled = label.and_then(|label| self.rows[row].by_label.get_mut(label));
        let mut tracks = std::mem::take(labelled.unwrap_or(&mut self.found));
        if tracks.len() != counter.series.len() {
            self.find_tracks(row, counter, &mut tracks);
        }
        for (series, track) in counter.series.iter().zip(&tracks) {
            match number(series.value) {
                Some(Number::Int(value)) if self.extras.add(*track, value) => {}
                Some(value) => self.others.push((*track, value)),
                None => {}
            }
        }
        match label {
            Some(label) if !tracks.contains(&NO_TRACK) => {
                let by_label = &mut self.rows[row].by_label;
                if by_label.len() <= label {
                    by_label.resize(label + 1, Vec::new());
                }
                by_label[label] = tracks;
            }
            _ => {
                tracks.clear();
                self.found = tracks;
            }
        }
    }

    /// Stores the track of each series in `tracks`. A series whose value is not a number gets
    /// [`NO_TRACK`].
    fn find_tracks(&mut self, row: usize, counter: &SeriesPoint<'_>, tracks: &mut Vec<u64>) {
        tracks.clear();
        let process = self.rows[row].process;
        let at = self.processes[process].counter(counter.name);
        for (i, series) in counter.series.iter().enumerate() {
            tracks.push(match self.processes[process].counters[at].track(i, series.key) {
                _ if number(series.value).is_none() => NO_TRACK,
                Some(track) => track,
                None => self.add_counter_track((process, at), counter, series.key),
            });
        }
    }

    fn add_counter_track(
        &mut self,
        (process, at): (usize, usize),
        counter: &SeriesPoint<'_>,
        series: &str,
    ) -> u64 {
        let parent = self.processes[process].track;
        let name = [counter.name, " ", series].concat();
        let unit = counter.units.iter().find(|(of, _)| *of == series).map_or("", |(_, u)| *u);
        let uuid = self.track(Some(parent), |t| {
            t.bytes(track::NAME, name.trim_end().as_bytes());
            t.message(track::COUNTER, |c| match unit_number(unit) {
                Some(number) => c.uint(track::COUNTER_UNIT, number),
                None if unit.is_empty() => {}
                None => c.bytes(track::COUNTER_UNIT_NAME, unit.as_bytes()),
            });
        });
        let tracks = &mut self.processes[process].counters[at];
        tracks.by_name.insert(series.to_owned(), tracks.series.len());
        tracks.series.push((series.to_owned(), uuid));
        uuid
    }
}

fn number(value: ArgValue<'_>) -> Option<Number> {
    match value {
        ArgValue::Plain(Value::Uint(n)) => {
            Some(i64::try_from(n).map_or(Number::Double(n as f64), Number::Int))
        }
        ArgValue::Plain(Value::Int(n)) => Some(Number::Int(n)),
        ArgValue::Plain(Value::Float(n)) if n.is_finite() => Some(Number::Double(n)),
        // Perfetto's importer of Chrome's format also reads texts such as `"1.5"` as numbers.
        ArgValue::Plain(Value::Text(text)) => {
            text.parse().ok().filter(|n: &f64| n.is_finite()).map(Number::Double)
        }
        _ => None,
    }
}

/// Returns Perfetto's number for a unit (`CounterDescriptor.Unit`).
fn unit_number(unit: &str) -> Option<u64> {
    match unit {
        "ns" => Some(1),
        "count" => Some(2),
        "bytes" => Some(3),
        _ => None,
    }
}

impl ProcessState {
    pub(super) fn new(track: u64) -> Self {
        Self { track, counters: Vec::new(), by_name: HashMap::new(), last_counter: 0 }
    }

    /// Returns the index of a counter, which is added if it is new.
    fn counter(&mut self, name: &str) -> usize {
        let is = |known: &CounterTracks| same(known.name.as_bytes(), name.as_bytes());
        if !self.counters.get(self.last_counter).is_some_and(is) {
            self.last_counter = match self.by_name.get(name) {
                Some(place) => *place,
                None => {
                    let name_of = name.to_owned();
                    self.counters.push(CounterTracks { name: name_of, ..Default::default() });
                    self.by_name.insert(name.to_owned(), self.counters.len() - 1);
                    self.counters.len() - 1
                }
            };
        }
        self.last_counter
    }
}

impl CounterTracks {
    /// Returns the track of a series, whose index is probably `place`.
    fn track(&self, place: usize, series: &str) -> Option<u64> {
        let is = |(name, _): &&(String, u64)| same(name.as_bytes(), series.as_bytes());
        let by_name = || self.series.get(*self.by_name.get(series)?);
        self.series.get(place).filter(is).or_else(by_name).map(|(_, track)| *track)
    }
}
