//! Samples as Arrow record batches, with the descriptions of their series. `docs/schema.md`
//! describes the columns.

use std::sync::Arc;

use arrow_array::builder::{
    ArrayBuilder, Float64Builder, Int64Builder, StringDictionaryBuilder, UInt32Builder,
    UInt64Builder,
};
use arrow_array::types::Int32Type;
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};

use super::{Reading, Sample, Samples, Series, Times};
use crate::ledger::{LossCount, merge_losses};
use crate::profile::Profile;

/// Returns the columns of [`TrackBatches`].
pub fn schema() -> SchemaRef {
    let text = |name| {
        let kind = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
        Field::new(name, kind, false)
    };
    let number = |name, kind, nullable| Field::new(name, kind, nullable);
    Arc::new(Schema::new(vec![
        text("tracks"),
        number("series", DataType::UInt32, false),
        text("track"),
        text("name"),
        text("scope"),
        number("scope_number", DataType::UInt32, true),
        text("unit"),
        text("source"),
        number("time_ns", DataType::Int64, false),
        number("time_ticks", DataType::UInt64, true),
        number("raw", DataType::UInt64, true),
        number("enabled_ns", DataType::UInt64, true),
        number("running_ns", DataType::UInt64, true),
        number("value", DataType::Float64, true),
    ]))
}

/// Selects series.
pub type SeriesChooser<'a> = Box<dyn Fn(&Series) -> bool + 'a>;

/// The samples of a profile, in batches: one directory of tracks after the other, and the samples
/// of each directory in the order of its file.
pub struct TrackBatches<'a> {
    profile: &'a Profile,
    choose: Option<SeriesChooser<'a>>,
    next: usize,
    current: Option<Samples<'a>>,
    losses: Vec<LossCount>,
}

impl Profile {
    /// Returns the samples of this profile, or those of the series that `choose` selects, in
    /// batches.
    pub fn track_batches<'a>(&'a self, choose: Option<SeriesChooser<'a>>) -> TrackBatches<'a> {
        TrackBatches { profile: self, choose, next: 0, current: None, losses: Vec::new() }
    }
}

impl TrackBatches<'_> {
    /// Returns the losses in the samples that were read so far.
    pub fn losses(&self) -> &[LossCount] {
        &self.losses
    }

    fn advance(&mut self) -> Result<Option<RecordBatch>, ArrowError> {
        let external = |e| ArrowError::ExternalError(Box::new(e));
        loop {
            if let Some(samples) = &mut self.current {
                if let Some(batch) = samples.next_batch().map_err(external)? {
                    let index = self.next - 1;
                    return rows(self.profile, index, self.choose.as_ref(), &batch).map(Some);
                }
                self.losses = merge_losses(self.losses.iter().chain(&samples.losses()));
                self.current = None;
            }
            let Some(tracks) = self.profile.tracks.get(self.next) else { return Ok(None) };
            self.next += 1;
            self.current = Some(tracks.samples().map_err(external)?);
        }
    }
}

impl Iterator for TrackBatches<'_> {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.advance().transpose()
    }
}

fn rows(
    profile: &Profile,
    index: usize,
    choose: Option<&SeriesChooser<'_>>,
    samples: &[Sample],
) -> Result<RecordBatch, ArrowError> {
    let tracks = &profile.tracks[index];
    let mut texts: [StringDictionaryBuilder<Int32Type>; 6] = Default::default();
    let (mut ids, mut scopes) = (UInt32Builder::new(), UInt32Builder::new());
    let mut time_ns = Int64Builder::new();
    let mut words: [UInt64Builder; 4] = Default::default();
    let mut values = Float64Builder::new();
    for sample in samples {
        let Some(series) = tracks.series.get(&sample.series) else { continue };
        if choose.is_some_and(|choose| !choose(series)) {
            continue;
        }
        let all = [
            tracks.name.as_str(),
            &series.track,
            &series.name,
            series.scope.kind(),
            &series.unit,
            &series.source,
        ];
        for (builder, text) in texts.iter_mut().zip(all) {
            builder.append(text)?;
        }
        ids.append_value(sample.series);
        scopes.append_option(series.scope.number());
        time_ns.append_value(series.time_ns(&profile.timeline, sample.time));
        let ticks = (series.times == Times::Ticks).then_some(sample.time as u64);
        let (raw, enabled, running, value) = match sample.reading {
            Some(Reading::Count { raw, enabled_ns, running_ns }) => {
                (Some(raw), Some(enabled_ns), Some(running_ns), Some(raw as f64))
            }
            Some(Reading::Value(value)) => (None, None, None, Some(value)),
            None => (None, None, None, None),
        };
        for (builder, word) in words.iter_mut().zip([ticks, raw, enabled, running]) {
            builder.append_option(word);
        }
        values.append_option(value.map(|value| value * series.scale));
    }
    let [tracks, track, name, scope, unit, source] =
        texts.each_mut().map(|b| -> ArrayRef { ArrayBuilder::finish(b) });
    let [ticks, raw, enabled, running] =
        words.each_mut().map(|b| -> ArrayRef { ArrayBuilder::finish(b) });
    let arrays = vec![
        tracks,
        ArrayBuilder::finish(&mut ids),
        track,
        name,
        scope,
        ArrayBuilder::finish(&mut scopes),
        unit,
        source,
        ArrayBuilder::finish(&mut time_ns),
        ticks,
        raw,
        enabled,
        running,
        ArrayBuilder::finish(&mut values),
    ];
    RecordBatch::try_new(schema(), arrays)
}
