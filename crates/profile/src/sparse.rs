//! Reads files that may consist mostly of holes.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use rustix::fs::SeekFrom;
use rustix::io::Errno;

/// A file that is longer than this is not read to its end.
const MOST_BYTES: u64 = 1 << 40;
/// Read at a time; holes that are longer are not read.
const CHUNK_BYTES: u64 = 1 << 20;

/// Reads a file of frames. A long hole becomes one byte with which no frame begins, because a file may
/// state that it is longer than anybody has memory for.
pub(crate) fn read_data(file: &File) -> io::Result<Vec<u8>> {
    let end = file.metadata()?.len().min(MOST_BYTES);
    let (mut bytes, mut at) = (Vec::new(), 0);
    while at < end {
        let data = match rustix::fs::seek(file, SeekFrom::Data(at)) {
            Ok(data) => data,
            // Nothing but a hole.
            Err(Errno::NXIO) => end,
            // The file system does not say.
            Err(_) => at,
        };
        if data > at + CHUNK_BYTES {
            bytes.push(0xff);
            at = data;
            continue;
        }
        let before = bytes.len();
        bytes.resize(before + CHUNK_BYTES.min(end - at) as usize, 0);
        let read = match file.read_at(&mut bytes[before..], at) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => Ok(None),
            other => other.map(Some),
        }?;
        bytes.truncate(before + read.unwrap_or(0));
        at += read.unwrap_or(0) as u64;
        if read == Some(0) {
            break;
        }
    }
    Ok(bytes)
}
