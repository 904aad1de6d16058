//! Reads tracks.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::Path;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type, UInt32Type, UInt64Type};
use arrow_array::{Array, RecordBatch};
use model::Loss;

use super::{
    Reading, Readings, SAMPLES_NAME, SERIES_NAME, Sample, Scope, Series, TRACKS_NAME, Times,
    samples_schema, series_schema,
};
use crate::error::{Error, ErrorKind, Result};
use crate::ledger::{LossCount, merge_losses};
use crate::profile::ClockMap;
use crate::safe_dir::Dir;
use crate::stream::{Ending, StreamReader, has_columns};

/// One directory of tracks. The descriptions of the series are in memory, and the samples are read
/// when they are needed.
#[derive(Clone, Debug, PartialEq)]
pub struct Tracks {
    /// The directory's name: The directory's name: [`super::SAMPLED_NAME`], or the name of an
    /// imported trace or of plugins' events.
    pub name: String,
    /// The kind of the readings.
    pub readings: Readings,
    pub series: HashMap<u32, Series>,
    /// The damage in the descriptions of the series.
    pub losses: Vec<LossCount>,
    /// Index of the member to which the directory belongs (one of the profiles that were merged); 0
    /// if the profile is not merged.
    pub member: usize,
    /// The conversion of the samples' times to times of the profile; `None` if no conversion is
    /// necessary.
    pub(crate) clock: Option<ClockMap>,
    all: Dir,
}

impl Tracks {
    /// Opens the directories of tracks of the profile in `dir`, sorted by name. Also returns losses
    /// for directories that could not be used. A directory that lacks one of its two files, or has
    /// a file without a complete schema, is left out.
    ///
    /// # Errors
    /// Fails if a directory or file cannot be read.
    pub fn open_all(dir: &Path) -> Result<(Vec<Self>, Vec<LossCount>)> {
        Self::open_in(&Dir::open(dir)?)
    }

    pub(crate) fn open_in(root: &Dir) -> Result<(Vec<Self>, Vec<LossCount>)> {
        let (mut found, mut losses) = (Vec::new(), Vec::new());
        let all = match root.dir(TRACKS_NAME) {
            Ok(all) => all,
            Err(e) if e.is_not_found() => return Ok((found, losses)),
            Err(e) if e.is_refused() => {
                return Ok((found, vec![LossCount::new(Loss::FileRefused, 1)]));
            }
            Err(e) => return Err(e),
        };
        for name in all.names()? {
            match all.dir(&name).and_then(|dir| Self::open(&all, &dir, &name)) {
                Ok(one) => found.extend(one),
                Err(e) if e.is_refused() => losses.push(LossCount::new(Loss::FileRefused, 1)),
                Err(e) if matches!(e.kind(), ErrorKind::NotAStream(_)) => {
                    losses.push(LossCount::new(Loss::TornTrack, 1));
                }
                Err(e) => return Err(e),
            }
        }
        found.sort_by(|a, b| a.name.cmp(&b.name));
        Ok((found, merge_losses(&losses)))
    }

    fn open(all: &Dir, dir: &Dir, name: &OsStr) -> Result<Option<Self>> {
        let Some(samples) = open_if_there(dir, SAMPLES_NAME)? else { return Ok(None) };
        let path = dir.path_of(SERIES_NAME);
        let Some(mut stream) = open_if_there(dir, SERIES_NAME)? else { return Ok(None) };
        let name = name.to_string_lossy().into_owned();
        let known = [Readings::Counts, Readings::Values];
        let fits = |r: &Readings| has_columns(samples.schema(), &samples_schema(*r));
        let readings = known.into_iter().find(fits);
        let (Some(readings), true) = (readings, has_columns(stream.schema(), &series_schema()))
        else {
            return Err(Error::new("read", &path, ErrorKind::NotAStream("other columns")));
        };
        let (series, losses) = (HashMap::new(), Vec::new());
        let mut tracks =
            Self { name, readings, series, losses, member: 0, clock: None, all: all.clone() };
        while let Some(batch) = stream.next_batch()? {
            tracks.take_series(&batch);
        }
        tracks.losses = torn(stream.ending());
        Ok(Some(tracks))
    }

    fn take_series(&mut self, batch: &RecordBatch) {
        let text = |name: &str, row: usize| -> String {
            let column = batch.column_by_name(name).and_then(|c| c.as_string_opt::<i32>());
            column.map_or_else(String::new, |c| c.value(row).to_owned())
        };
        let small = |name: &str, row: usize| -> Option<u32> {
            let column = batch.column_by_name(name)?.as_primitive_opt::<UInt32Type>()?;
            column.is_valid(row).then(|| column.value(row))
        };
        let scale = batch.column_by_name("scale").map(|c| c.as_primitive::<Float64Type>());
        let cumulative = batch.column_by_name("cumulative").map(|c| c.as_boolean());
        let interval = batch.column_by_name("interval_ns").map(|c| c.as_primitive::<UInt64Type>());
        for row in 0..batch.num_rows() {
            let scope = Scope::from_parts(&text("scope", row), small("scope_number", row));
            let times = [Times::Ticks, Times::Monotonic]
                .into_iter()
                .find(|times| times.name() == text("times", row));
            // A later version may have written a scope or clock that this version cannot
            // interpret.
            let (Some(id), Some(scope), Some(times)) = (small("series", row), scope, times) else {
                continue;
            };
            let series = Series {
                track: text("track", row),
                name: text("name", row),
                unit: text("unit", row),
                scale: scale.map_or(1.0, |c| c.value(row)),
                scope,
                times,
                cumulative: cumulative.is_some_and(|c| c.value(row)),
                interval_ns: interval.map_or(0, |c| c.value(row)),
                source: text("source", row),
            };
            self.series.entry(id).or_insert(series);
        }
    }

    /// Reads the samples, in the order of the file.
    ///
    /// # Errors
    /// Fails if the file no longer exists or cannot be read.
    pub fn samples(&self) -> Result<Samples<'_>> {
        let stream = StreamReader::open(&self.all.dir(&self.name)?, SAMPLES_NAME)?;
        Ok(Samples { tracks: self, stream, unknown: 0 })
    }
}

fn open_if_there(dir: &Dir, name: &str) -> Result<Option<StreamReader>> {
    match StreamReader::open(dir, name) {
        Err(e) if e.is_not_found() => Ok(None),
        other => other,
    }
}

fn torn(ending: Ending) -> Vec<LossCount> {
    match ending {
        Ending::Torn { .. } => vec![LossCount::new(Loss::TornTrack, 1)],
        _ => Vec::new(),
    }
}

/// The samples of one directory, batch by batch.
#[derive(Debug)]
pub struct Samples<'a> {
    tracks: &'a Tracks,
    stream: Option<StreamReader>,
    unknown: u64,
}

impl Samples<'_> {
    /// Returns the next batch of samples; `None` at the end of the file, or where it is damaged.
    /// Samples of unknown series are left out. A series is unknown if it was described after this
    /// directory was opened, or if its description is damaged or cannot be interpreted.
    pub fn next_batch(&mut self) -> Result<Option<Vec<Sample>>> {
        let Some(stream) = &mut self.stream else { return Ok(None) };
        let Some(batch) = stream.next_batch()? else { return Ok(None) };
        let ids = batch.column(0).as_primitive::<UInt32Type>();
        let times = batch.column(1).as_primitive::<Int64Type>();
        let word = |column: usize, row: usize| -> Option<u64> {
            let column = batch.column(column).as_primitive::<UInt64Type>();
            column.is_valid(row).then(|| column.value(row))
        };
        let reading = |row: usize| match self.tracks.readings {
            Readings::Counts => Some(Reading::Count {
                raw: word(2, row)?,
                enabled_ns: word(3, row)?,
                running_ns: word(4, row)?,
            }),
            Readings::Values => {
                let column = batch.column(2).as_primitive::<Float64Type>();
                column.is_valid(row).then(|| Reading::Value(column.value(row)))
            }
        };
        let mut samples = Vec::with_capacity(batch.num_rows());
        for row in 0..batch.num_rows() {
            let series = ids.value(row);
            if self.tracks.series.contains_key(&series) {
                let time = match (&self.tracks.clock, self.tracks.series.get(&series)) {
                    (Some(map), Some(of)) => map.time(of.times, times.value(row)),
                    _ => times.value(row),
                };
                samples.push(Sample { series, time, reading: reading(row) });
            } else {
                self.unknown += 1;
            }
        }
        Ok(Some(samples))
    }

    /// Returns the number of samples of unknown series that were left out so far.
    pub fn unknown(&self) -> u64 {
        self.unknown
    }

    /// Returns the damage in the samples that were read so far.
    pub fn losses(&self) -> Vec<LossCount> {
        self.stream.as_ref().map_or_else(Vec::new, |stream| torn(stream.ending()))
    }
}
