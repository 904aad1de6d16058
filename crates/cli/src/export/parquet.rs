//! Writes rows as Parquet.

use std::io::{self, Write};

use ::parquet::arrow::ArrowWriter;
use ::parquet::basic::Compression;
use ::parquet::errors::ParquetError;
use ::parquet::file::metadata::KeyValue;
use ::parquet::file::properties::WriterProperties;

use super::{Rows, io_error};
use crate::view::head::ProfileHead;

/// The number of rows that are compressed and indexed together. The writer keeps up to this many
/// rows in memory.
const GROUP_ROWS: usize = 262_144;

pub fn write(out: &mut (impl Write + Send), rows: &mut Rows<'_>) -> io::Result<()> {
    let head = serde_json::to_string(&ProfileHead::new(&rows.profile.manifest, rows.profile))?;
    let (schema, _) = rows.what.schema();
    let entry = |key: &str, value: String| KeyValue::new(key.to_owned(), value);
    let mut entries =
        vec![entry("counterpoint.schema", schema.to_owned()), entry("counterpoint.profile", head)];
    entries.extend(rows.metrics.take().map(|metrics| entry("counterpoint.metrics", metrics)));
    entries.extend(rows.compensation.take().map(|empty| entry("counterpoint.compensation", empty)));
    let properties = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_max_row_group_row_count(Some(GROUP_ROWS))
        .set_created_by(format!("counterpoint {}", env!("CARGO_PKG_VERSION")))
        .set_key_value_metadata(Some(entries))
        .build();
    let mut writer =
        ArrowWriter::try_new(out, rows.schema.clone(), Some(properties)).map_err(parquet_error)?;
    for batch in &mut *rows.batches {
        writer.write(&batch.map_err(io_error)?).map_err(parquet_error)?;
    }
    writer.close().map_err(parquet_error)?;
    Ok(())
}

fn parquet_error(error: ParquetError) -> io::Error {
    match error {
        ParquetError::External(inner) => match inner.downcast::<io::Error>() {
            Ok(io) => *io,
            Err(other) => io::Error::other(other),
        },
        other => io::Error::other(other),
    }
}
