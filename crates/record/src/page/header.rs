//! Reads and writes the header of a page, and seals pages (marks them as flushed and stores their
//! checksum).

use std::sync::atomic::{AtomicU64, Ordering, compiler_fence};

use super::{
    FLAG_FLUSHED, FLAG_LAST, HEADER_BYTES, OLDEST_PAGE_VERSION, PAGE_BYTES, PAGE_MAGIC,
    PAGE_VERSION,
};
use crate::usage::{USAGE_WORDS, Usage};
use crate::wire::xxh64;

#[repr(C)]
pub(super) struct RawHeader {
    pub(super) magic: AtomicU64,
    pub(super) version: u16,
    pub(super) header_bytes: u16,
    pub(super) flags: u32,
    pub(super) pid: u32,
    pub(super) generation: u32,
    pub(super) start_time: u64,
    pub(super) thread_uid: u32,
    pub(super) tid: u32,
    pub(super) thread_name: [u8; 16],
    pub(super) sequence: u32,
    pub(super) counters: u32,
    pub(super) base_ticks: u64,
    pub(super) base_cpu_ns: u64,
    pub(super) base_monotonic_ns: u64,
    /// Lower half: bytes of records. Upper half: number of call records.
    pub(super) committed: AtomicU64,
    /// Upper half: number of calls in progress. Lower half: export of the call that began or ended
    /// last.
    pub(super) open: AtomicU64,
    pub(super) flush_ticks: u64,
    pub(super) flushes: u32,
    /// [`USAGE_BEGIN`] and [`USAGE_END`].
    pub(super) usages: u32,
    pub(super) checksum: u64,
    /// See [`PageStart::attach_ns`].
    pub(super) attach_ns: u64,
    pub(super) usage_begin: [u64; USAGE_WORDS],
    pub(super) usage_end: [u64; USAGE_WORDS],
    pub(super) reserved: [u64; 3],
}

const _: () = assert!(size_of::<RawHeader>() == HEADER_BYTES);

/// Bit of [`RawHeader::usages`]: `usage_begin` is present.
pub(super) const USAGE_BEGIN: u32 = 1;
/// Bit of [`RawHeader::usages`]: `usage_end` is present.
pub(super) const USAGE_END: u32 = 2;

/// The data in a page's header about the page's owner, and about the moment when the page started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageStart {
    /// Process id in the process's own namespace.
    pub pid: u32,
    /// See [`crate::pool::Row::generation`].
    pub generation: u32,
    /// See [`crate::pool::Row::start_time`].
    pub start_time: u64,
    /// The thread's number in its process, from 0 in the order of the first recorded calls. Unlike
    /// the kernel's ids, these numbers are not reused.
    pub thread_uid: u32,
    /// The kernel's thread id.
    pub tid: u32,
    /// The thread's name, padded with zeros.
    pub thread_name: [u8; 16],
    /// Number of this page among the thread's pages, from 0.
    pub sequence: u32,
    /// Bit *i* is set if counter *i* of the run is recorded in this page.
    pub counters: u32,
    /// Ticks to which the start of the first record is relative.
    pub base_ticks: u64,
    /// The thread's CPU time at `base_ticks`, ns.
    pub base_cpu_ns: u64,
    /// `CLOCK_MONOTONIC` at `base_ticks`, ns.
    pub base_monotonic_ns: u64,
    /// Ticks that this thread had spent flushing pages when the page started.
    pub flush_ticks: u64,
    pub flushes: u32,
    /// CPU time in ns that the recorder used to attach the thread, including opening counters,
    /// mapping the page and any calibration. 0 means unknown. It is stored only in the thread's
    /// first page.
    pub attach_ns: u64,
    /// What the kernel had counted for the thread when the page began; `None` if unknown.
    pub usage: Option<Usage>,
}

/// The header of a page after validation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageHeader {
    /// The version of the page's layout.
    pub version: u16,
    /// The values that the page started with. The recorder updates the thread's name when the page
    /// ends.
    pub start: PageStart,
    /// Bytes of records.
    pub committed: u32,
    /// Number of call records in the `committed` bytes.
    pub calls: u32,
    /// Number of calls in progress when the page was last written to.
    pub open_calls: u32,
    /// The export of one of the latest calls.
    pub open_export: u32,
    /// Whether this is the thread's last page.
    pub last: bool,
    /// Whether the page was or was about to be appended to a file. Such a page has a checksum.
    pub flushed: bool,
    /// What the kernel had counted for the thread when the page ended; `None` if unknown, or if the
    /// page has not ended.
    pub usage_end: Option<Usage>,
    pub(super) checksum: u64,
}

/// The reason why bytes are not a valid page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageError {
    /// There are fewer bytes than the header and the committed records need.
    Truncated {
        /// Number of bytes that are needed.
        need: usize,
        /// Number of bytes that are there.
        have: usize,
    },
    /// The magic number is missing.
    NoMagic,
    /// The page has a version that this program does not know.
    Version(u16),
    /// The header contains a size that is not possible.
    Inconsistent,
    /// The checksum does not match the content.
    Checksum,
}

impl PageHeader {
    /// Parses a header.
    ///
    /// # Errors
    /// Returns [`PageError`] for anything that is not a complete header of a known version.
    pub fn parse(bytes: &[u8]) -> Result<Self, PageError> {
        let raw: &[u8; HEADER_BYTES] = bytes
            .first_chunk()
            .ok_or(PageError::Truncated { need: HEADER_BYTES, have: bytes.len() })?;
        macro_rules! field {
            ($name:ident, $t:ty) => {{
                let at = std::mem::offset_of!(RawHeader, $name);
                let mut word = [0u8; size_of::<$t>()];
                word.copy_from_slice(&raw[at..at + size_of::<$t>()]);
                <$t>::from_le_bytes(word)
            }};
        }
        if field!(magic, u64) != PAGE_MAGIC {
            return Err(PageError::NoMagic);
        }
        let version = field!(version, u16);
        if !(OLDEST_PAGE_VERSION..=PAGE_VERSION).contains(&version) {
            return Err(PageError::Version(version));
        }
        let committed = field!(committed, u64);
        let (committed, calls) = (committed as u32, (committed >> 32) as u32);
        if field!(header_bytes, u16) as usize != HEADER_BYTES
            || committed as usize > PAGE_BYTES - HEADER_BYTES
        {
            return Err(PageError::Inconsistent);
        }
        let open = field!(open, u64);
        let flags = field!(flags, u32);
        let mut thread_name = [0u8; 16];
        let name_at = std::mem::offset_of!(RawHeader, thread_name);
        thread_name.copy_from_slice(&raw[name_at..name_at + 16]);
        let usages = field!(usages, u32);
        let words = |at: usize| {
            let mut words = [0u64; USAGE_WORDS];
            for (word, bytes) in words.iter_mut().zip(raw[at..].chunks_exact(8)) {
                *word = bytes.first_chunk().map_or(0, |b| u64::from_le_bytes(*b));
            }
            Usage::from_words(words)
        };
        let usage_begin = words(std::mem::offset_of!(RawHeader, usage_begin));
        let usage_end = words(std::mem::offset_of!(RawHeader, usage_end));
        Ok(Self {
            version,
            start: PageStart {
                pid: field!(pid, u32),
                generation: field!(generation, u32),
                start_time: field!(start_time, u64),
                thread_uid: field!(thread_uid, u32),
                tid: field!(tid, u32),
                thread_name,
                sequence: field!(sequence, u32),
                counters: field!(counters, u32),
                base_ticks: field!(base_ticks, u64),
                base_cpu_ns: field!(base_cpu_ns, u64),
                base_monotonic_ns: field!(base_monotonic_ns, u64),
                flush_ticks: field!(flush_ticks, u64),
                flushes: field!(flushes, u32),
                attach_ns: field!(attach_ns, u64),
                usage: (usages & USAGE_BEGIN != 0).then_some(usage_begin),
            },
            committed,
            calls,
            open_calls: (open >> 32) as u32,
            open_export: open as u32,
            last: flags & FLAG_LAST != 0,
            flushed: flags & FLAG_FLUSHED != 0,
            usage_end: (usages & USAGE_END != 0).then_some(usage_end),
            checksum: field!(checksum, u64),
        })
    }

    /// Returns the number of bytes that this page takes in a file.
    pub fn file_bytes(&self) -> usize {
        HEADER_BYTES + self.committed as usize
    }

    pub fn thread_name(&self) -> String {
        let name = &self.start.thread_name;
        let end = name.iter().position(|b| *b == 0).unwrap_or(name.len());
        String::from_utf8_lossy(&name[..end]).into_owned()
    }
}

/// Computes the checksum as if the checksum field were zero.
pub(super) fn checksum(page: &[u8]) -> u64 {
    let raw = page.get(FLAGS_AT..FLAGS_AT + 4).unwrap_or_default();
    let flags = raw.first_chunk().map_or(0, |word| u32::from_le_bytes(*word));
    checksum_with(page, flags)
}

/// Computes the checksum that the page will have once its flags are `flags`.
pub(super) fn checksum_with(page: &[u8], flags: u32) -> u64 {
    let (mut header, records) = ([0u8; HEADER_BYTES], page.get(HEADER_BYTES..).unwrap_or_default());
    if let Some(found) = page.first_chunk::<HEADER_BYTES>() {
        header = *found;
        header[FLAGS_AT..FLAGS_AT + 4].copy_from_slice(&flags.to_le_bytes());
    }
    header[CHECKSUM_AT..CHECKSUM_AT + 8].fill(0);
    xxh64(records).rotate_left(1) ^ xxh64(&header)
}

const CHECKSUM_AT: usize = std::mem::offset_of!(RawHeader, checksum);
const FLAGS_AT: usize = std::mem::offset_of!(RawHeader, flags);

/// Marks a page from the pool as flushed, and returns the bytes to append to a file. `header` must
/// have been read from `page`.
pub fn seal(header: &PageHeader, mut page: Vec<u8>) -> Vec<u8> {
    page.truncate(header.file_bytes());
    if page.len() < HEADER_BYTES {
        return page;
    }
    let flags = FLAG_FLUSHED | if header.last { FLAG_LAST } else { 0 };
    page[FLAGS_AT..FLAGS_AT + 4].copy_from_slice(&flags.to_le_bytes());
    let checksum = checksum(&page);
    page[CHECKSUM_AT..CHECKSUM_AT + 8].copy_from_slice(&checksum.to_le_bytes());
    page
}

/// Does what [`seal`] does, in place. Returns the header and the bytes to append, or `None` if the
/// memory does not contain a page. The flags are stored after the checksum, so if the process is
/// killed meanwhile, a page that is marked as flushed has a valid checksum.
///
/// # Safety
/// `page` must be [`PAGE_BYTES`] of writable memory, aligned to 8, for as long as the result is
/// used, and nobody may write to it meanwhile.
pub unsafe fn seal_in_place<'a>(page: *mut u8) -> Option<(PageHeader, &'a [u8])> {
    let (header, length, flags, sum) = {
        // SAFETY: by contract, `page` is PAGE_BYTES of memory to which no other thread writes
        // meanwhile. This thread writes to it only after the slice was last used.
        let bytes = unsafe { std::slice::from_raw_parts(page, PAGE_BYTES) };
        let header = PageHeader::parse(bytes).ok()?;
        let bytes = bytes.get(..header.file_bytes())?;
        let flags = FLAG_FLUSHED | if header.last { FLAG_LAST } else { 0 };
        (header, bytes.len(), flags, checksum_with(bytes, flags))
    };
    // SAFETY: the header is at the start of the page, which by contract is writable.
    unsafe {
        (&raw mut (*page.cast::<RawHeader>()).checksum).write(sum);
        compiler_fence(Ordering::SeqCst);
        (&raw mut (*page.cast::<RawHeader>()).flags).write(flags);
    }
    // SAFETY: `length` is at most PAGE_BYTES. By contract, nobody writes to the page while the
    // result is used.
    Some((header, unsafe { std::slice::from_raw_parts(page, length) }))
}
