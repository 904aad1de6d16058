//! Finds the whole pages in a file of pages, whatever else is in it.
//!
//! ```text
//!  ├─ page ─┼─ page ─┼─ half a page ┼─ page ─┤        several threads append; a kill or a full
//!                    └ fragment               disk leaves half a page in the middle
//! ```
//!
//! A page counts if its header is of a known version, it is all there and its checksum holds.
//! Everything else is a fragment; the search goes on at the next magic number after its start.
//! The file is read once, in chunks, so memory stays flat.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use record::page::{HEADER_BYTES, PAGE_BYTES, PAGE_MAGIC, PageError, PageReader};
use record::{GroupLayout, PageHeader};
use rustix::fs::SeekFrom;
use rustix::io::Errno;

/// Read at a time; must hold a page.
const CHUNK_BYTES: usize = 1 << 20;
const MAGIC: [u8; 8] = PAGE_MAGIC.to_le_bytes();
/// The leading bytes of a header, up to and with its sequence number: enough to say whose page
/// a fragment was.
const IDENTITY_BYTES: usize = 60;

/// Fragments that are remembered: a file of nothing else must not take many times its size.
const MOST_FRAGMENTS: usize = 1 << 20;

/// A whole page in a file.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    /// Where it starts.
    pub offset: u64,
    pub header: PageHeader,
}

/// Bytes that are not a whole page.
#[derive(Clone, Debug)]
pub(crate) struct Fragment {
    /// Where it starts.
    pub offset: u64,
    /// Its first bytes, as far as they say whose page it was.
    head: [u8; IDENTITY_BYTES],
    length: u8,
}

/// What a file of pages holds, in the order of the file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scan {
    pub pages: Vec<Found>,
    pub fragments: Vec<Fragment>,
    /// Fragments after the first [`MOST_FRAGMENTS`].
    pub more_fragments: u64,
    /// Bytes read.
    pub length: u64,
}

/// The bytes of a page's header that say whose page it is. Its flags and the thread's name may
/// differ between two attempts at writing the same page: they are zero here.
fn identity(header: &PageHeader) -> [u8; IDENTITY_BYTES] {
    let s = &header.start;
    let mut identity = [0u8; IDENTITY_BYTES];
    identity[..8].copy_from_slice(&MAGIC);
    identity[8..10].copy_from_slice(&record::page::PAGE_VERSION.to_le_bytes());
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

/// Whole pages by their identities, to find the one of which a fragment is the beginning.
#[derive(Debug)]
pub(crate) struct Rewritten {
    pages: Vec<(u64, [u8; IDENTITY_BYTES])>,
    /// For each length of a fragment's head that was asked for: where the last page with such a
    /// beginning starts. There are at most sixty lengths, so that no file takes quadratic time.
    last: BTreeMap<u8, HashMap<Vec<u8>, u64>>,
}

impl Rewritten {
    /// Of these pages, each with the place where it starts.
    pub fn new<'a>(pages: impl Iterator<Item = (u64, &'a PageHeader)>) -> Self {
        let pages = pages.map(|(offset, header)| (offset, identity(header))).collect();
        Self { pages, last: BTreeMap::new() }
    }

    /// Whether this is the beginning of a page that stands whole somewhere after it.
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

/// Reads `file` to its end. Holes in it are not read: a file may say that it is longer than anybody
/// has time for.
pub(crate) fn scan(file: &File) -> io::Result<Scan> {
    let mut result = Scan::default();
    let mut buffer: Vec<u8> = Vec::new();
    let mut at = 0;
    let mut base = 0u64;
    let mut ended = false;
    // Whether the bytes at `at` go on with a fragment that was already noted.
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
            // The last bytes may be the first ones of a magic number.
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

/// Appends what is in the file from `start` on, at most a chunk. 0: it has ended.
fn read_chunk(file: &File, buffer: &mut Vec<u8>, start: u64) -> io::Result<usize> {
    let before = buffer.len();
    buffer.resize(before + CHUNK_BYTES, 0);
    let read = loop {
        match file.read_at(&mut buffer[before..], start) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            other => break other,
        }
    };
    buffer.truncate(before + read.as_ref().copied().unwrap_or(0));
    read
}

/// Where data goes on, if a hole of more than a chunk begins here; the end of the file if nothing
/// follows.
fn after_hole(mut file: &File, from: u64) -> io::Result<Option<u64>> {
    let end = file.metadata()?.len();
    if end <= from {
        return Ok(None);
    }
    let data = match rustix::fs::seek(file, SeekFrom::Data(from)) {
        Ok(data) => data,
        // Nothing but a hole.
        Err(Errno::NXIO) => end,
        // The file system does not say.
        Err(_) => return Ok(None),
    };
    io::Seek::rewind(&mut file)?;
    Ok((data > from.saturating_add(CHUNK_BYTES as u64)).then_some(data))
}

/// The page at the start of `bytes`, checked. Pages in files always carry a checksum.
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
