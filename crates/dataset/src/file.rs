//! Writes files so that a file with its final name is complete.

use std::fs::{self, File};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::basic::{Compression, Encoding};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::schema::types::ColumnPath;
use sha2::{Digest, Sha256};

use crate::error::{Error, Result};
use crate::layout;
use crate::schema::{Column, Kind, Table};
use crate::steps::step;

/// The largest number of rows in a row group of the table `calls`. The rows of a group are
/// compressed and indexed together. A query for one op skips the row groups without this op.
const GROUP_ROWS: usize = 65_536;
/// The largest number of rows in a row group of the other tables, which have fewer rows for each
/// rank.
const GROUP_ROWS_OF_MANY: usize = 1 << 20;

/// The number of hexadecimal digits of a hash in the name of a file.
pub(crate) const HASH_DIGITS: usize = 16;

pub(crate) fn in_digits(hash: &[u8]) -> String {
    hash.iter().take(HASH_DIGITS / 2).map(|byte| format!("{byte:02x}")).collect()
}

/// Returns a name that no other writer uses. Ranks in containers often have equal process ids and
/// write to one directory at the same moment, so the name also has a random number.
fn unfinished_name() -> String {
    static OF_PROCESS: LazyLock<u64> = LazyLock::new(|| RandomState::new().hash_one(0));
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!(".part-{}-{:016x}-{number}.tmp", std::process::id(), *OF_PROCESS)
}

/// A file that has no final name yet. The file is removed if this value is dropped before
/// [`Fresh::finish`].
pub(crate) struct Fresh {
    out: BufWriter<File>,
    path: PathBuf,
    hash: Sha256,
    bytes: u64,
}

impl Fresh {
    pub fn create(directory: &Path) -> Result<Self> {
        fs::create_dir_all(directory).map_err(Error::io("make directory", directory))?;
        let path = directory.join(unfinished_name());
        let file = File::options().write(true).create_new(true).open(&path);
        let file = file.map_err(Error::io("create", &path))?;
        step();
        let hash = Sha256::new();
        Ok(Self { out: BufWriter::with_capacity(1 << 16, file), path, hash, bytes: 0 })
    }

    /// Gives the file its final name: what `name` returns for a hash of the contents.
    pub fn finish(&mut self, name: impl FnOnce(&str) -> String) -> Result<String> {
        let name = name(&in_digits(&self.hash.clone().finalize()));
        let target = self.path.with_file_name(&name);
        let failed = |e| Error::io("write", &target)(e);
        self.out.flush().map_err(failed)?;
        self.out.get_ref().sync_all().map_err(failed)?;
        step();
        fs::rename(&self.path, &target).map_err(failed)?;
        step();
        Ok(name)
    }
}

impl Write for Fresh {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.hash.update(&bytes[..written]);
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

impl Drop for Fresh {
    fn drop(&mut self) {
        // A finished file has another path, and stays.
        let _ = fs::remove_file(&self.path);
    }
}

/// Creates or replaces the file at `path` in one step, so that no reader sees a part of the new
/// contents.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> Result<()> {
    let directory = path.parent().unwrap_or(Path::new("."));
    let mut file = Fresh::create(directory)?;
    file.write_all(bytes).map_err(Error::io("write", path))?;
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    file.finish(|_| name).map(drop)
}

pub(crate) struct TableWriter {
    out: ArrowWriter<Fresh>,
    path: PathBuf,
    rows: u64,
}

impl TableWriter {
    pub fn create(directory: &Path, table: Table, schema: SchemaRef) -> Result<Self> {
        let fresh = Fresh::create(directory)?;
        let path = fresh.path.clone();
        let mut properties = WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
            .set_max_row_group_row_count(Some(match table {
                Table::Calls => GROUP_ROWS,
                _ => GROUP_ROWS_OF_MANY,
            }))
            .set_created_by(format!("counterpoint {}", env!("CARGO_PKG_VERSION")));
        if table != Table::Calls {
            // An index of Parquet's pages would add kilobytes to these small files.
            properties = properties
                .set_statistics_enabled(EnabledStatistics::Chunk)
                .set_offset_index_disabled(true);
        }
        // Numbers in these columns are rarely equal, but mostly close to those of the neighbouring
        // rows. A dictionary would need all bytes (usually 8) of each different number.
        let is_close = |column: &Column| column.kind == Kind::Whole || column.name == "bucket";
        for column in table.columns().filter(is_close) {
            let column = ColumnPath::from(column.name);
            properties = properties
                .set_column_dictionary_enabled(column.clone(), false)
                .set_column_encoding(column, Encoding::DELTA_BINARY_PACKED);
        }
        // Readers need only Parquet's types of the columns. A copy of the Arrow schema would take a
        // kilobyte.
        let options = ArrowWriterOptions::new()
            .with_properties(properties.build())
            .with_skip_arrow_metadata(true);
        let out = ArrowWriter::try_new_with_options(fresh, schema, options)
            .map_err(Error::parquet(&path))?;
        Ok(Self { out, path, rows: 0 })
    }

    pub fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        self.rows += batch.num_rows() as u64;
        self.out.write(batch).map_err(Error::parquet(&self.path))
    }

    /// Ends the file, and gives it a name made of a hash of its contents. Without rows, there is no
    /// file.
    pub fn finish(
        mut self,
        directory: &str,
        name: impl FnOnce(&str) -> String,
    ) -> Result<Option<layout::File>> {
        if self.rows == 0 {
            return Ok(None);
        }
        self.out.finish().map_err(Error::parquet(&self.path))?;
        let fresh = self.out.inner_mut();
        let name = fresh.finish(name)?;
        Ok(Some(layout::File {
            path: format!("{directory}/{name}"),
            bytes: fresh.bytes,
            rows: self.rows,
        }))
    }
}
