//! Finds the whole pages in a file of pages, whatever else is in it.
//!
//! ```text
//!  ├─ page ─┼─ page ─┼─ half a page ┼─ page ─┤        several threads append; a kill or a full
//!                    └ fragment               disk leaves half a page in the middle
//! ```
//!
//! A page counts if its header is of a known version, it is all there and its checksum holds.
//! Everything else is a fragment; the search goes on at the next magic number behind its start.
//! The file is read once, in chunks, so memory stays flat.

use std::io::{self, Read};

use record::page::{HEADER_BYTES, PAGE_BYTES, PAGE_MAGIC, PageError, PageReader};
use record::{GroupLayout, PageHeader};

/// Read at a time; must hold a page.
const CHUNK_BYTES: usize = 1 << 20;
const MAGIC: [u8; 8] = PAGE_MAGIC.to_le_bytes();
/// The leading bytes of a header, up to and with its sequence number: enough to say whose page
/// a fragment was.
const IDENTITY_BYTES: usize = 60;

/// A whole page in a file.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    /// Where it starts.
    pub offset: u64,
    pub header: PageHeader,
}

/// Bytes that are no whole page.
#[derive(Clone, Debug)]
pub(crate) struct Fragment {
    /// Where it starts.
    pub offset: u64,
    head: Vec<u8>,
}

/// What a file of pages holds, in the order of the file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scan {
    pub pages: Vec<Found>,
    pub fragments: Vec<Fragment>,
    /// Bytes read.
    pub length: u64,
}

impl Fragment {
    /// Whether it is the beginning of this page, written before and cut short. The flags and
    /// the thread's name may differ between two attempts at writing the same page.
    pub fn is_start_of(&self, header: &PageHeader) -> bool {
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
        let varies = |at: usize| (12..16).contains(&at) || (40..56).contains(&at);
        self.head.iter().enumerate().all(|(at, byte)| varies(at) || identity[at] == *byte)
    }
}

/// Reads `file` to its end.
pub(crate) fn scan(mut file: impl Read) -> io::Result<Scan> {
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
            let mut chunk = file.by_ref().take(CHUNK_BYTES as u64);
            ended = chunk.read_to_end(&mut buffer)? == 0;
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
            let head = rest[..next.unwrap_or(rest.len()).min(IDENTITY_BYTES)].to_vec();
            result.fragments.push(Fragment { offset, head });
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
