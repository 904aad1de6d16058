//! The calls as Parquet.

use std::io::{self, Write};

use ::parquet::arrow::ArrowWriter;
use ::parquet::basic::Compression;
use ::parquet::errors::ParquetError;
use ::parquet::file::metadata::KeyValue;
use ::parquet::file::properties::WriterProperties;
use profile::Profile;

use super::{EXPORT_SCHEMA, io_error};
use crate::report::ProfileHead;

/// Rows that are compressed and indexed together: what a writer keeps in memory.
const GROUP_ROWS: usize = 262_144;

pub fn write(
    out: &mut (impl Write + Send),
    profile: &Profile,
    metrics: String,
    batches: &mut profile::Batches<'_>,
) -> io::Result<()> {
    let head = serde_json::to_string(&ProfileHead::new(&profile.manifest, profile))?;
    let entry = |key: &str, value: String| KeyValue::new(key.to_owned(), value);
    let properties = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_max_row_group_row_count(Some(GROUP_ROWS))
        .set_created_by(format!("counterpoint {}", env!("CARGO_PKG_VERSION")))
        .set_key_value_metadata(Some(vec![
            entry("counterpoint.schema", EXPORT_SCHEMA.to_owned()),
            entry("counterpoint.profile", head),
            entry("counterpoint.metrics", metrics),
        ]))
        .build();
    let mut writer =
        ArrowWriter::try_new(out, batches.schema(), Some(properties)).map_err(parquet_error)?;
    for batch in batches {
        writer.write(&batch.map_err(io_error)?).map_err(parquet_error)?;
    }
    writer.close().map_err(parquet_error)?;
    Ok(())
}

/// Keeps errors of writing what they are.
fn parquet_error(error: ParquetError) -> io::Error {
    match error {
        ParquetError::External(inner) => match inner.downcast::<io::Error>() {
            Ok(io) => *io,
            Err(other) => io::Error::other(other),
        },
        other => io::Error::other(other),
    }
}
