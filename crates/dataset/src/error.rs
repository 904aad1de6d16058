//! Defines the errors of datasets.

use std::io;
use std::path::PathBuf;

use crate::schema::Table;

/// The result of an operation on a dataset.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of an operation on a dataset, in most cases with the file that it is about.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file or directory cannot be read or written.
    #[error("{what} {}: {source}", path.display())]
    Io {
        /// The operation that was tried.
        what: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// A Parquet file cannot be read or written.
    #[cfg(feature = "write")]
    #[error("{}: {source}", path.display())]
    Parquet {
        /// The file.
        path: PathBuf,
        /// The error of the Parquet library.
        source: Box<parquet::errors::ParquetError>,
    },
    /// The directory is not a dataset.
    #[error("{} is not a dataset: it has no dataset.json", path.display())]
    NotADataset {
        /// The directory.
        path: PathBuf,
    },
    /// The directory is not a dataset, and contains other files.
    #[error("{} is not a dataset, and not empty: it has {}", dir.display(), found.display())]
    Foreign {
        /// The directory.
        dir: PathBuf,
        /// An entry that does not belong to a dataset, relative to `dir`.
        found: PathBuf,
    },
    /// The file contains something that is not valid, or that this version does not know.
    #[error("{}: {why}", path.display())]
    Unknown {
        /// The file.
        path: PathBuf,
        /// What is not valid or not known.
        why: String,
    },
    /// The dataset has another version of the recording in a merged part. That version lacks
    /// something that the new one has, or only one of the two is redacted. An export never changes
    /// files that contain several ranks.
    #[error("rank {rank} is already in {}, merged and with other contents: {advice}", path.display())]
    Merged {
        /// The JSON file of the merged part.
        path: PathBuf,
        rank: u32,
        advice: &'static str,
    },
    /// A sum is too large for its column.
    #[error("{op}: the sum of {of} has more than 38 digits")]
    TooLarge {
        /// The op.
        op: String,
        /// What was added up: durations, the values of a counter, or products of these.
        of: String,
    },
    /// A column of a table has an unexpected type in this file.
    #[error("{}: column {column} of table {table} is {found}, not {expected}", path.display())]
    OtherType {
        /// The file.
        path: PathBuf,
        /// The table.
        table: Table,
        /// The column.
        column: String,
        /// The type in the file.
        found: String,
        /// The type that the column should have.
        expected: String,
    },
    /// The profile cannot be put into a dataset, because of its kind or because of the export's
    /// options.
    #[error("the profile cannot be exported: {0}")]
    Profile(String),
}

impl Error {
    pub(crate) fn io(
        what: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { what, path, source }
    }

    #[cfg(feature = "write")]
    pub(crate) fn parquet(
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(parquet::errors::ParquetError) -> Self {
        let path = path.into();
        move |source| Self::Parquet { path, source: Box::new(source) }
    }
}
