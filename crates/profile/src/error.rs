//! What can go wrong with a profile, said with the path and the reason.

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
    /// The system refused.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The path exists and is something else.
    #[error("not a profile ({0})")]
    NotAProfile(&'static str),
    /// The file is not the JSON that this version writes.
    #[error("{0}")]
    Json(#[from] serde_json::Error),
    /// Arrow could not encode or decode it.
    #[error("{0}")]
    Arrow(#[from] arrow_schema::ArrowError),
    /// It is a stream of other columns than are expected there, or none at all.
    #[error("not a stream of this kind ({0})")]
    NotAStream(&'static str),
    /// Something else than a plain file or a directory is in the place of one, or it is not one
    /// that may be used there. It was not opened.
    #[error("refused: {0}")]
    Refused(&'static str),
    /// Another version of Counterpoint wrote it.
    #[error("schema {found:?}, but this version reads {expected:?}")]
    Schema {
        /// What the file says.
        found: String,
        /// What this version reads.
        expected: &'static str,
    },
}

impl Error {
    pub(crate) fn new(action: &'static str, path: &Path, kind: impl Into<ErrorKind>) -> Self {
        Self { action, path: path.to_path_buf(), kind: kind.into() }
    }

    /// An adapter for `map_err`.
    pub(crate) fn on<E: Into<ErrorKind>>(
        action: &'static str,
        path: &Path,
    ) -> impl FnOnce(E) -> Self {
        move |error| Self::new(action, path, error)
    }

    /// The reason.
    pub fn kind(&self) -> &ErrorKind {
        &self.kind
    }

    /// The reason, alone.
    pub(crate) fn into_kind(self) -> ErrorKind {
        self.kind
    }

    /// Whether something was not opened because of what it is.
    pub fn is_refused(&self) -> bool {
        matches!(&self.kind, ErrorKind::Refused(_))
    }

    /// The file or directory that it is about.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the file does not exist.
    pub fn is_not_found(&self) -> bool {
        matches!(&self.kind, ErrorKind::Io(e) if e.kind() == io::ErrorKind::NotFound)
    }
}

/// The result of everything here that touches files.
pub type Result<T, E = Error> = std::result::Result<T, E>;
