//! The error type of this crate, with path and reason.

use std::io;
use std::path::{Path, PathBuf};

/// An error about one file or directory of a profile.
#[derive(Debug, thiserror::Error)]
#[error("{action} {}: {kind}", path.display())]
pub struct Error {
    action: &'static str,
    path: PathBuf,
    #[source]
    kind: ErrorKind,
}

/// The reason of an [`Error`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The system returned an error.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The path exists but is not a valid profile.
    #[error("not a profile ({0})")]
    NotAProfile(&'static str),
    /// The file is not valid JSON or not of the expected form, or a value could not be written as
    /// JSON.
    #[error("{0}")]
    Json(#[from] serde_json::Error),
    /// Arrow could not encode or decode the data.
    #[error("{0}")]
    Arrow(#[from] arrow_schema::ArrowError),
    /// The file is not a stream of Arrow batches or does not have the expected columns, or a sample
    /// does not fit its track.
    #[error("not a stream of this kind ({0})")]
    NotAStream(&'static str),
    /// The file or directory has another type than expected (such as a link), is too long, or may
    /// not be used here.
    #[error("refused: {0}")]
    Refused(&'static str),
    /// The file names a schema that this version of Counterpoint does not read.
    #[error("schema {found:?}, but this version reads {expected:?}")]
    Schema {
        /// The schema that the file names; empty if it names none.
        found: String,
        /// The schema that this version reads.
        expected: &'static str,
    },
}

impl Error {
    pub(crate) fn new(action: &'static str, path: &Path, kind: impl Into<ErrorKind>) -> Self {
        Self { action, path: path.to_path_buf(), kind: kind.into() }
    }

    /// Returns a function for `map_err` that makes an [`Error`].
    pub(crate) fn on<E: Into<ErrorKind>>(
        action: &'static str,
        path: &Path,
    ) -> impl FnOnce(E) -> Self {
        move |error| Self::new(action, path, error)
    }

    /// Returns the reason.
    pub fn kind(&self) -> &ErrorKind {
        &self.kind
    }

    pub(crate) fn into_kind(self) -> ErrorKind {
        self.kind
    }

    /// Whether the error is an [`ErrorKind::Refused`].
    pub fn is_refused(&self) -> bool {
        matches!(&self.kind, ErrorKind::Refused(_))
    }

    /// Returns the path of the file or directory that the error is about.
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn is_there(&self) -> bool {
        matches!(&self.kind, ErrorKind::Io(e) if e.kind() == io::ErrorKind::AlreadyExists)
    }

    /// Whether the reason is that the file or directory does not exist.
    pub fn is_not_found(&self) -> bool {
        matches!(&self.kind, ErrorKind::Io(e) if e.kind() == io::ErrorKind::NotFound)
    }
}

/// The result type of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;
