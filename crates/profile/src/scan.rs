//! Finds the complete pages in a file of pages, which may contain other bytes.
//!
//! ```text
//!  ├─ page ─┼─ page ─┼─ half a page ┼─ page ─┤        several threads append; a kill or a full
//!                    └ fragment               disk leaves half a page in the middle
//! ```
//!
//! A page is used only if its header is of a known version, the page is complete and its checksum
//! is valid. Other bytes are fragments. After the start of a fragment (an incomplete page), the
//! search continues at the next magic number. The file is read once, in chunks.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io;

use record::page::{HEADER_BYTES, PAGE_BYTES, PAGE_MAGIC, PageError, PageReader};
use record::{GroupLayout, PageHeader};
use rustix::fs::SeekFrom;
use rustix::io::Errno;

/// Number of bytes that are read at a time: at least a page.
const CHUNK_BYTES: usize = 1 << 20;
const MAGIC: [u8; 8] = PAGE_MAGIC.to_le_bytes();
/// Number of bytes of a header up to the end of its sequence number. These bytes tell which page a
/// fragment was part of.
const IDENTITY_BYTES: usize = 60;

/// Maximum number of fragments that are remembered. Without this limit, a file that consists of
/// fragments would need many times its size in memory.
const MOST_FRAGMENTS: usize = 1 << 20;

#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub offset: u64,
    pub header: PageHeader,
}

#[derive(Clone, Debug)]
pub(crate) struct Fragment {
    pub offset: u64,
    /// The first bytes of the fragment, to identify its page.
    head: [u8; IDENTITY_BYTES],
    length: u8,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Scan {
    pub pages: Vec<Found>,
    pub fragments: Vec<Fragment>,
    /// Number of fragments after the first [`MOST_FRAGMENTS`] ones.
    pub more_fragments: u64,
    pub length: u64,
}

/// Returns the bytes of a header that identify the page. Flags and the thread's name are zeros,
/// because they may differ between two attempts to write the same page.
fn identity(header: &PageHeader) -> [u8; IDENTITY_BYTES] {
    let s = &header.start;
    let mut identity = [0u8; IDENTITY_BYTES];
    identity[..8].copy_from_slice(&MAGIC);
    identity[8..10].copy_from_slice(&header.version.to_le_bytes());
    identity[10..12].copy_from_slice(&(HEADER_BYTES as u16).to_le_bytes());
    identity[16..20].copy_from_slice(&s.pid.to_le_bytes());
    identity[20..24].copy_from_slice(&s.generation.to_le_bytes());
    identity[24..32].copy_from_slice(&s.start_time.to_le_bytes());
    identity[32..36].copy_from_slice(&s.thread_uid.to_le_bytes());
    identity[36..40].copy_from_slice(&s.tid.to_le_bytes());
    identity[56..60].copy_from_slice(&s.sequence.to_le_bytes());
    identity
}

impl Fragment {
    fn new(offset: u64, bytes: &[u8]) -> Self {
        let length = bytes.len().min(IDENTITY_BYTES);
        let mut head = [0u8; IDENTITY_BYTES];
        head[..length].copy_from_slice(&bytes[..length]);
        head[12..16].fill(0);
        head[40..56].fill(0);
        Self { offset, head, length: length as u8 }
    }

    fn head(&self) -> &[u8] {
        &self.head[..usize::from(self.length)]
    }
}

/// The identities of complete pages, to find the page of a fragment.
#[derive(Debug)]
pub(crate) struct Rewritten {
    pages: Vec<(u64, [u8; IDENTITY_BYTES])>,
    /// The outer key is the length of a fragment's `head`. The inner map has the first bytes of
    /// identities, cut to this length, as keys. Its values are the offsets of the last pages that
    /// begin with these bytes. An inner map is made when a fragment of its length is first looked
    /// up. There are at most sixty lengths, so the time is not quadratic in the size of the file.
    last: BTreeMap<u8, HashMap<Vec<u8>, u64>>,
}

impl Rewritten {
    pub fn new<'a>(pages: impl Iterator<Item = (u64, &'a PageHeader)>) -> Self {
        let pages = pages.map(|(offset, header)| (offset, identity(header))).collect();
        Self { pages, last: BTreeMap::new() }
    }

    /// Returns whether the fragment is the beginning of a page that is complete at a later offset.
    pub fn is_after(&mut self, fragment: &Fragment) -> bool {
        let pages = &self.pages;
        let last = self.last.entry(fragment.length).or_insert_with(|| {
            let mut last: HashMap<Vec<u8>, u64> = HashMap::new();
            for (offset, identity) in pages {
                let at = last.entry(identity[..usize::from(fragment.length)].to_vec());
                let at = at.or_insert(*offset);
                *at = (*at).max(*offset);
            }
            last
        });
        last.get(fragment.head()).is_some_and(|offset| *offset > fragment.offset)
    }
}

/// Reads `file` to its end. Holes are skipped, because a sparse file may be too long to read.
pub(crate) fn scan(file: &File) -> io::Result<Scan> {
    let mut result = Scan::default();
    let mut buffer: Vec<u8> = Vec::new();
    let mut at = 0;
    let mut base = 0u64;
    let mut ended = false;
    // Whether the bytes at `at` belong to a known fragment.
    let mut inside_fragment = false;
    loop {
        if !ended && buffer.len() - at < PAGE_BYTES {
            buffer.drain(..at);
            base += at as u64;
            at = 0;
            let next = base + buffer.len() as u64;
            if buffer.iter().all(|byte| *byte == 0)
                && let Some(data) = after_hole(file, next)?
            {
                if !inside_fragment {
                    result.add(Fragment::new(base, &[0; IDENTITY_BYTES]));
                    inside_fragment = true;
                }
                buffer.clear();
                base = data;
            }
            let start = base + buffer.len() as u64;
            ended = read_chunk(file, &mut buffer, start)? == 0;
            continue;
        }
        let rest = &buffer[at..];
        if rest.is_empty() {
            result.length = base + at as u64;
            return Ok(result);
        }
        let offset = base + at as u64;
        if let Ok(header) = whole_page(rest) {
            at += header.file_bytes();
            result.pages.push(Found { offset, header });
            inside_fragment = false;
            continue;
        }
        let next = find_magic(&rest[1..]).map(|next| 1 + next);
        if !inside_fragment || rest.starts_with(&MAGIC) {
            result.add(Fragment::new(offset, &rest[..next.unwrap_or(rest.len())]));
            inside_fragment = true;
        }
        at += match next {
            Some(next) => next,
            // The last bytes may be the beginning of a magic number that continues in the next
            // chunk.
            None if !ended && rest.len() >= MAGIC.len() => rest.len() - (MAGIC.len() - 1),
            None => rest.len(),
        };
    }
}

impl Scan {
    fn add(&mut self, fragment: Fragment) {
        match self.fragments.len() < MOST_FRAGMENTS {
            true => self.fragments.push(fragment),
            false => self.more_fragments += 1,
        }
    }
}

/// Reads some bytes of the file, from `start` on, and appends them to `buffer`. Returns their
/// number, which is 0 at the end of the file.
fn read_chunk(file: &File, buffer: &mut Vec<u8>, start: u64) -> io::Result<usize> {
    buffer.reserve(CHUNK_BYTES);
    loop {
        // A file is often much shorter than a chunk, so filling the whole buffer with zeros first
        // would waste time.
        match rustix::io::pread(file, rustix::buffer::spare_capacity(buffer), start) {
            Err(Errno::INTR) => {}
            other => return other.map_err(io::Error::from),
        }
    }
}

/// If a hole of more than a chunk begins at `from`, returns where it ends.
fn after_hole(mut file: &File, from: u64) -> io::Result<Option<u64>> {
    let end = file.metadata()?.len();
    if end <= from {
        return Ok(None);
    }
    let data = match rustix::fs::seek(file, SeekFrom::Data(from)) {
        Ok(data) => data,
        // Only a hole follows.
        Err(Errno::NXIO) => end,
        // The file system does not report holes.
        Err(_) => return Ok(None),
    };
    io::Seek::rewind(&mut file)?;
    Ok((data > from.saturating_add(CHUNK_BYTES as u64)).then_some(data))
}

/// Parses and verifies the page at the start of `bytes`. The page must be flushed, because only
/// flushed pages have a checksum.
fn whole_page(bytes: &[u8]) -> Result<PageHeader, PageError> {
    if !bytes.starts_with(&MAGIC) {
        return Err(PageError::NoMagic);
    }
    let layout = GroupLayout::default();
    let reader = PageReader::new(bytes, &layout)?;
    if !reader.header().flushed {
        return Err(PageError::Inconsistent);
    }
    Ok(reader.header().clone())
}

fn find_magic(bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    while let Some(step) = bytes.get(at..)?.iter().position(|b| *b == MAGIC[0]) {
        at += step;
        if bytes[at..].starts_with(&MAGIC) {
            return Some(at);
        }
        at += 1;
    }
    None
}
