//! Reads and copies files that may consist mostly of holes.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, MetadataExt};

use rustix::fs::SeekFrom;
use rustix::io::Errno;

/// `read_data` reads a file up to this offset at most.
const MOST_BYTES: u64 = 1 << 40;
/// Number of bytes that `read_data` reads at a time; it reads holes up to this length as zeros.
/// Longer holes are skipped.
const CHUNK_BYTES: u64 = 1 << 20;

/// A file is mostly holes only if it is longer than this many times its bytes on the disk.
const MOST_PER_BYTE: u64 = 64;

/// Returns whether a file takes so little space on the disk that it was probably made only to look
/// large. Returns false for small files, and on file systems that do not report holes.
pub(crate) fn is_mostly_holes(file: &File) -> io::Result<bool> {
    let found = file.metadata()?;
    let taken = found.blocks().saturating_mul(512);
    let may_have = taken.saturating_mul(MOST_PER_BYTE).saturating_add(CHUNK_BYTES);
    let has_hole = || rustix::fs::seek(file, SeekFrom::Hole(0)).is_ok_and(|at| at < found.len());
    let is_one = found.len() > may_have && has_hole();
    rustix::fs::seek(file, SeekFrom::Start(0))?;
    Ok(is_one)
}

/// Reads a file that consists of frames (entries that begin with their kind and length). A long
/// hole becomes one byte with which no frame begins, because a sparse file may be longer than all
/// memory.
pub(crate) fn read_data(file: &File) -> io::Result<Vec<u8>> {
    let end = file.metadata()?.len().min(MOST_BYTES);
    let (mut bytes, mut at) = (Vec::new(), 0);
    while at < end {
        let data = match rustix::fs::seek(file, SeekFrom::Data(at)) {
            Ok(data) => data,
            // Only a hole follows.
            Err(Errno::NXIO) => end,
            // The file system does not report holes.
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

/// Copies a file to an empty file that is open for appending. Holes stay holes, if the file system
/// reports them.
pub(crate) fn copy(from: &File, to: &mut File) -> io::Result<()> {
    let (end, mut at) = (from.metadata()?.len(), 0);
    while at < end {
        let data = match rustix::fs::seek(from, SeekFrom::Data(at)) {
            Ok(data) => data,
            // Only a hole follows.
            Err(Errno::NXIO) => end,
            // The file system does not report holes.
            Err(_) => at,
        };
        let hole = rustix::fs::seek(from, SeekFrom::Hole(data)).unwrap_or(end);
        to.set_len(data)?;
        rustix::fs::seek(from, SeekFrom::Start(data))?;
        let bytes = hole.saturating_sub(data);
        if io::copy(&mut from.take(bytes), to)? < bytes {
            let why = "it became shorter while it was copied";
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, why));
        }
        at = hole;
    }
    to.set_len(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_has_the_holes_of_the_file() {
        let scratch = testkit::Scratch::new();
        let create = |name: &str| {
            let path = scratch.join(name);
            File::options().read(true).append(true).create_new(true).open(&path).unwrap()
        };
        // The four files have data, hole, data, hole; hole, data; only a hole; and nothing.
        let cases: [&[(usize, u64)]; 4] =
            [&[(5, 64 << 20), (70_000, 8 << 20)], &[(0, 8 << 20), (3, 0)], &[(0, 8 << 20)], &[]];
        for (number, parts) in cases.iter().enumerate() {
            let mut from = create(&format!("{number} from"));
            for (data, hole) in *parts {
                io::Write::write_all(&mut from, &vec![7; *data]).unwrap();
                from.set_len(from.metadata().unwrap().len() + hole).unwrap();
            }
            let mut to = create(&format!("{number} to"));
            copy(&from, &mut to).unwrap();
            let bytes = |name: &str| std::fs::read(scratch.join(name)).unwrap();
            let same = bytes(&format!("{number} from")) == bytes(&format!("{number} to"));
            assert!(same, "{parts:?}");
            let taken = |file: &File| file.metadata().unwrap().blocks();
            assert!(taken(&to) <= taken(&from) + 256, "{parts:?}: {}", taken(&to));
        }
    }

    #[test]
    fn a_file_that_only_says_that_it_is_large() {
        let scratch = testkit::Scratch::new();
        let make = |name: &str, holes: u64, data: usize| {
            let path = scratch.join(name);
            let file = File::options().read(true).write(true).create_new(true).open(&path);
            let file = file.unwrap();
            file.set_len(holes).unwrap();
            file.write_all_at(&vec![1; data], holes).unwrap();
            is_mostly_holes(&file).unwrap()
        };
        assert!(make("hole", 1 << 29, 4096));
        assert!(!make("half", 1 << 20, 1 << 20));
        assert!(!make("small", 4096, 0));
        assert!(!make("data", 0, 3 << 20));
    }
}
