//! Reads a trace in any known format.

use std::io::Read;

use crate::chrome::read::{ReadError, ReadErrorKind, Sink, Summary, read};
use crate::kind::{self, Kind};
use crate::perfetto;

/// Reads a trace in any known format: Chrome's JSON or Perfetto's, also compressed with gzip.
/// Returns whether it is Perfetto's.
///
/// # Errors
/// The file cannot be read, or is another kind of file, which the error names.
pub fn read_any(source: impl Read, sink: &mut impl Sink) -> Result<(Summary, bool), ReadError> {
    let error = |kind| ReadError { at: 0, kind };
    let (kind, source) = kind::open(source).map_err(|e| error(ReadErrorKind::Io(e)))?;
    match kind {
        Kind::Perfetto => Ok((perfetto::read::read(source, sink)?, true)),
        Kind::Other(what) => Err(error(ReadErrorKind::Other(what))),
        Kind::Json | Kind::Unknown | Kind::Empty => Ok((read(source, sink)?, false)),
    }
}
