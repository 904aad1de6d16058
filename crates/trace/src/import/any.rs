//! Reads a trace in any known format.

use std::io::Read;

use crate::chrome::read::{EventSink, ReadError, ReadErrorKind, ReadSummary, read};
use crate::kind::{self, FileKind};
use crate::perfetto;

/// Reads a trace, which may be compressed with gzip. This function has no type parameters, so the
/// readers are compiled once, in this crate, where their functions can be inlined.
///
/// # Errors
/// Fails if the file cannot be read, if `sink` fails, or if the file is known to be of another
/// kind, which the error then names.
pub fn read_any(source: &mut dyn Read, sink: &mut dyn EventSink) -> Result<ReadSummary, ReadError> {
    let error = |kind| ReadError { at: 0, kind };
    let (kind, source) = kind::open(source).map_err(|e| error(ReadErrorKind::Io(e)))?;
    match kind {
        FileKind::IreeLines => crate::iree::read(&mut { source }, sink),
        FileKind::Perfetto => perfetto::read::read(source, sink),
        FileKind::Other(what) => Err(error(ReadErrorKind::Other(what))),
        FileKind::Json | FileKind::Unknown | FileKind::Empty => read(source, sink),
    }
}
