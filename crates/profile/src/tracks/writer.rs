//! Writes tracks.

use std::path::PathBuf;
use std::sync::Arc;

use arrow_array::builder::{
    ArrayBuilder, Float64Builder, Int64Builder, StringBuilder, UInt32Builder, UInt64Builder,
};
use arrow_array::{ArrayRef, BooleanArray, Float64Array, RecordBatch, UInt32Array, UInt64Array};

use super::{
    BATCH_ROWS, Reading, Readings, SAMPLES_NAME, SERIES_NAME, Sample, Series, TRACKS_NAME,
    samples_schema, series_schema,
};
use crate::error::{Error, ErrorKind, Result};
use crate::safe_dir::Dir;
use crate::stream::StreamWriter;

/// Writes one directory of tracks.
#[derive(Debug)]
pub struct TracksWriter {
    dir: PathBuf,
    readings: Readings,
    series: StreamWriter,
    samples: StreamWriter,
    described: u32,
    fresh: Vec<(u32, Series)>,
    ids: UInt32Builder,
    times: Int64Builder,
    counts: [UInt64Builder; 3],
    values: Float64Builder,
}

impl TracksWriter {
    /// Creates `tracks/NAME` in the profile `dir`.
    ///
    /// # Errors
    /// Fails if the directory exists or if the profile is not writable.
    pub fn create(dir: &Dir, name: &str, readings: Readings) -> Result<Self> {
        let dir = dir.make_dir(TRACKS_NAME)?.create_dir(name)?;
        Ok(Self {
            series: StreamWriter::create(&dir, SERIES_NAME, &series_schema())?,
            samples: StreamWriter::create(&dir, SAMPLES_NAME, &samples_schema(readings))?,
            dir: dir.path().to_owned(),
            readings,
            described: 0,
            fresh: Vec::new(),
            ids: UInt32Builder::new(),
            times: Int64Builder::new(),
            counts: Default::default(),
            values: Float64Builder::new(),
        })
    }

    /// Adds a series and returns its number: 0, 1, 2, …
    pub fn describe(&mut self, series: Series) -> u32 {
        let id = self.described;
        self.described += 1;
        self.fresh.push((id, series));
        id
    }

    /// Adds a sample. The sample is written when the batch is full, or by [`TracksWriter::flush`].
    ///
    /// # Errors
    /// Same as for `flush`. Also fails if the reading is not of this directory's kind, or if the
    /// series was not described.
    pub fn push(&mut self, sample: Sample) -> Result<()> {
        let kind_fits = matches!(
            (self.readings, sample.reading),
            (_, None)
                | (Readings::Counts, Some(Reading::Count { .. }))
                | (Readings::Values, Some(Reading::Value(_)))
        );
        if !kind_fits || sample.series >= self.described {
            return Err(Error::new("write", &self.dir, ErrorKind::NotAStream("another sample")));
        }
        self.ids.append_value(sample.series);
        self.times.append_value(sample.time);
        match self.readings {
            Readings::Counts => {
                let words = match sample.reading {
                    Some(Reading::Count { raw, enabled_ns, running_ns }) => {
                        [raw, enabled_ns, running_ns].map(Some)
                    }
                    _ => [None; 3],
                };
                for (builder, word) in self.counts.iter_mut().zip(words) {
                    builder.append_option(word);
                }
            }
            Readings::Values => self.values.append_option(match sample.reading {
                Some(Reading::Value(value)) => Some(value),
                _ => None,
            }),
        }
        if self.ids.len() >= BATCH_ROWS { self.flush() } else { Ok(()) }
    }

    /// Writes the descriptions and samples that are still in memory to the files.
    ///
    /// # Errors
    /// Fails if the files cannot be written, for example because the disk is full. The samples that
    /// were in memory are then lost, but more samples may be added.
    pub fn flush(&mut self) -> Result<()> {
        let batch = self.take_samples();
        if !self.fresh.is_empty() {
            // Samples have no meaning without the descriptions of their series, so the
            // descriptions stay in memory until they were written.
            self.series.append(&series_batch(&self.fresh).map_err(self.broken())?)?;
            self.fresh.clear();
        }
        self.samples.append(&batch.map_err(self.broken())?)
    }

    /// Writes what is still in memory, and the end marks.
    ///
    /// # Errors
    /// Same as for `flush`.
    pub fn finish(mut self) -> Result<()> {
        self.flush()?;
        self.series.finish()?;
        self.samples.finish()
    }

    fn broken(&self) -> impl Fn(arrow_schema::ArrowError) -> Error + use<> {
        let dir = self.dir.clone();
        move |e| Error::new("write", &dir, e)
    }

    fn take_samples(&mut self) -> Result<RecordBatch, arrow_schema::ArrowError> {
        let mut arrays: Vec<ArrayRef> =
            vec![ArrayBuilder::finish(&mut self.ids), ArrayBuilder::finish(&mut self.times)];
        match self.readings {
            Readings::Counts => {
                arrays.extend(self.counts.iter_mut().map(|b| ArrayBuilder::finish(b)));
            }
            Readings::Values => arrays.push(ArrayBuilder::finish(&mut self.values)),
        }
        RecordBatch::try_new(samples_schema(self.readings), arrays)
    }
}

fn series_batch(all: &[(u32, Series)]) -> Result<RecordBatch, arrow_schema::ArrowError> {
    fn text<'a>(values: impl Iterator<Item = &'a str>) -> ArrayRef {
        let mut builder = StringBuilder::new();
        values.for_each(|value| builder.append_value(value));
        ArrayBuilder::finish(&mut builder)
    }
    let of = || all.iter().map(|(_, series)| series);
    let arrays: Vec<ArrayRef> = vec![
        Arc::new(UInt32Array::from_iter_values(all.iter().map(|(id, _)| *id))),
        text(of().map(|s| s.track.as_str())),
        text(of().map(|s| s.name.as_str())),
        text(of().map(|s| s.unit.as_str())),
        Arc::new(Float64Array::from_iter_values(of().map(|s| s.scale))),
        text(of().map(|s| s.scope.kind())),
        Arc::new(UInt32Array::from_iter(of().map(|s| s.scope.number()))),
        text(of().map(|s| s.times.name())),
        Arc::new(of().map(|s| Some(s.cumulative)).collect::<BooleanArray>()),
        Arc::new(UInt64Array::from_iter_values(of().map(|s| s.interval_ns))),
        text(of().map(|s| s.source.as_str())),
    ];
    RecordBatch::try_new(series_schema(), arrays)
}
