//! `--clock`: chooses the clock for the points in time in an export.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use arrow_schema::{ArrowError, Field, Schema, SchemaRef};
use clap::ValueEnum;
use profile::Timeline;

/// `--clock`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ExportClock {
    /// `CLOCK_MONOTONIC` of the recording machine, which nobody sets.
    #[default]
    Monotonic,
    /// UTC, in ns since 1970. The columns are then called `…_unix_ns`.
    Utc,
}

/// The columns that contain points in time, with their names for the monotonic clock and for UTC.
const COLUMNS: [(&str, &str); 2] = [("start_ns", "start_unix_ns"), ("time_ns", "time_unix_ns")];

fn in_utc(name: &str) -> Option<&'static str> {
    COLUMNS.iter().find(|(known, _)| *known == name).map(|(_, utc)| *utc)
}

impl ExportClock {
    /// Returns the schema of rows whose points in time use this clock.
    pub fn schema(self, schema: &SchemaRef) -> SchemaRef {
        if self == Self::Monotonic {
            return Arc::clone(schema);
        }
        let fields = schema.fields().iter().map(|field| match in_utc(field.name()) {
            Some(name) => Arc::new(Field::clone(field).with_name(name)),
            None => Arc::clone(field),
        });
        Arc::new(Schema::new_with_metadata(fields.collect::<Vec<_>>(), schema.metadata().clone()))
    }

    /// Converts the points in time of rows to this clock.
    ///
    /// # Errors
    /// Returns an error if Arrow rejects the converted columns.
    pub fn convert(
        self,
        batch: RecordBatch,
        timeline: &Timeline,
    ) -> Result<RecordBatch, ArrowError> {
        if self == Self::Monotonic {
            return Ok(batch);
        }
        let schema = self.schema(batch.schema_ref());
        let columns = batch.schema_ref().fields().iter().zip(batch.columns());
        let columns = columns.map(|(field, column)| match in_utc(field.name()) {
            Some(_) => {
                let times = column.as_primitive::<Int64Type>();
                let times: Int64Array = times.unary(|ns| timeline.monotonic_to_realtime_ns(ns));
                Arc::new(times) as ArrayRef
            }
            None => Arc::clone(column),
        });
        RecordBatch::try_new(schema, columns.collect())
    }
}
