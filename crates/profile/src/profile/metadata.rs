//! Reads the file with the metadata of a process.

use std::fs::File;
use std::io::{self, Read};

use record::meta::{self, FRAME_PREFIX_BYTES, Frames};

/// Reads a file of metadata frame by frame. The memory use depends on the complete frames, and not
/// on the length of the file, which may consist mostly of holes.
pub(super) fn read(mut file: File) -> io::Result<Frames> {
    /// At most this many bytes of one frame are read. The names of all functions of a program take
    /// less.
    const MOST: u64 = 1 << 30;
    let mut all = Frames::default();
    let (mut at, mut bytes) = (0, Vec::new());
    loop {
        bytes.clear();
        let prefix = file.by_ref().take(FRAME_PREFIX_BYTES as u64).read_to_end(&mut bytes)?;
        if prefix == 0 {
            return Ok(all);
        }
        if let Ok(prefix) = <[u8; FRAME_PREFIX_BYTES]>::try_from(&bytes[..]) {
            let rest = (meta::frame_bytes(prefix) - FRAME_PREFIX_BYTES) as u64;
            file.by_ref().take(rest.min(MOST)).read_to_end(&mut bytes)?;
        }
        let mut one = meta::read_frames(&bytes);
        all.frames.append(&mut one.frames);
        if let Some(torn) = one.torn_at {
            all.torn_at = Some(at + torn);
            return Ok(all);
        }
        at += bytes.len();
    }
}
