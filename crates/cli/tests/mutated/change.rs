//! Damages the bytes of a file.
//!
//! In a file with checksums, a reader detects most damage by the checksums, so the code after this
//! check would not be tested. [`seal_frames`] and [`seal_pages`] write correct checksums for
//! damaged bytes.

use record::meta::frame_bytes;
use record::page::HEADER_BYTES;
use record::wire::xxh64;
use testkit::Random;

/// Changes, inserts or removes bytes at a random place.
pub fn change(r: &mut Random, bytes: &mut Vec<u8>) {
    if bytes.is_empty() {
        return;
    }
    let at = r.place(bytes.len());
    match r.place(9) {
        0 => bytes[at] ^= 1 << r.place(8),
        1 => bytes[at] = r.of(&[0, 1, 0x7f, 0x80, 0xff]),
        2 => bytes[at] = r.next() as u8,
        3 | 4 => {
            // Overwrites 4 or 8 bytes at a multiple of 4, where numbers may be.
            let at = at & !3;
            let number = r.of(&[0, 1, 255, 1 << 16, 1 << 20, 1 << 31, u64::MAX, 1 << 62, 1 << 40]);
            let end = (at + r.of(&[4, 8])).min(bytes.len());
            bytes[at..end].copy_from_slice(&number.to_le_bytes()[..end - at]);
        }
        5 => {
            let length = r.place(200).min(bytes.len() - at);
            let source = r.place(bytes.len() - length + 1);
            bytes.copy_within(source..source + length, at);
        }
        6 => {
            let end = (at + r.place(300)).min(bytes.len());
            let again = bytes[at..end].to_vec();
            bytes.splice(at..at, again);
        }
        7 => drop(bytes.drain(at..(at + r.place(40)).min(bytes.len()))),
        _ => bytes.truncate(at),
    }
}

/// Changes a number in a text. Without a number, nothing changes.
pub fn change_number(r: &mut Random, bytes: &mut Vec<u8>) {
    let digits: Vec<usize> = (1..bytes.len())
        .filter(|at| bytes[*at].is_ascii_digit() && !bytes[*at - 1].is_ascii_digit())
        .collect();
    if digits.is_empty() {
        return;
    }
    let at = digits[r.place(digits.len())];
    let end = bytes[at..].iter().position(|b| !b.is_ascii_digit()).map_or(bytes.len(), |n| at + n);
    let with = r.of(&[
        "0",
        "1",
        "32",
        "65535",
        "4294967295",
        "18446744073709551615",
        "-1",
        "1e308",
        "1e999",
        "null",
        "[]",
        "\"\\u0000\"",
    ]);
    bytes.splice(at..end, with.bytes());
}

/// Offset and length in bytes of the parts of a pool that are in use: the header, the run's own
/// row, the owners of 16 pages, two rows of the process table, and the beginnings of the first two
/// pages.
pub const OF_POOL: [(usize, usize); 6] = [
    (0, 192),
    (1024, 1024),
    (4096, 64),
    (12_288, 2_048),
    (1_114_112, 2_400),
    (1_114_112 + 65_536, 2_400),
];

/// Damages one of the parts in [`OF_POOL`], and returns its offset and length.
pub fn change_pool(r: &mut Random, bytes: &mut [u8]) -> (usize, usize) {
    let (from, length) = r.of(&OF_POOL);
    let mut some = bytes[from..from + length].to_vec();
    // Everything in a pool is at a fixed offset, so the length of the part must not change.
    change(r, &mut some);
    some.resize(length, 0);
    bytes[from..from + length].copy_from_slice(&some);
    (from, length)
}

/// Writes into each frame (record) of a metadata file the correct checksum of the frame's present
/// content.
pub fn seal_frames(bytes: &mut [u8]) {
    let mut at = 0;
    while let Some(prefix) = bytes.get(at..at + 16).and_then(|b| <[u8; 16]>::try_from(b).ok()) {
        let end = at.saturating_add(frame_bytes(prefix));
        let Some(payload) = bytes.get(at + 16..end) else { return };
        let sum = xxh64(payload).to_le_bytes();
        bytes[at + 8..at + 16].copy_from_slice(&sum);
        at = end;
    }
}

/// Writes into each page (block of calls) of a file the correct checksum of the page's present
/// content. The offsets are in docs/file-format.md: `committed` (the number of bytes of records) is
/// at 88, and the checksum is at 120.
pub fn seal_pages(bytes: &mut [u8]) {
    let mut at = 0;
    while let Some(word) = bytes.get(at + 88..at + 92).and_then(|b| <[u8; 4]>::try_from(b).ok()) {
        let end = at.saturating_add(HEADER_BYTES).saturating_add(u32::from_le_bytes(word) as usize);
        let Some(page) = bytes.get_mut(at..end) else { return };
        page[120..128].fill(0);
        let (header, records) = page.split_at(HEADER_BYTES);
        let sum = xxh64(records).rotate_left(1) ^ xxh64(header);
        page[120..128].copy_from_slice(&sum.to_le_bytes());
        at = end;
    }
}

#[cfg(test)]
mod tests {
    use record::GroupLayout;
    use record::page::{PageReader, PageStart};
    use testkit::{CallScript, PageMaker};

    use super::*;

    /// Damaged pages are refused for their checksums until [`seal_pages`] writes new ones.
    #[test]
    fn sealed_pages_are_read() {
        let mut page = PageMaker::new(PageStart::default());
        page.call(&CallScript::new(3, 70, 5));
        let whole = page.seal(true);
        let mut twice = [whole.clone(), whole.clone()].concat();
        // This byte is a part of the thread's id.
        twice[36] ^= 1;
        twice[whole.len() + 36] ^= 1;
        let layout = GroupLayout::new(&[], 0);
        for page in twice.chunks(whole.len()) {
            assert!(PageReader::new(page, &layout).is_err(), "the checksum covers it");
        }
        seal_pages(&mut twice);
        for page in twice.chunks(whole.len()) {
            let reader = PageReader::new(page, &layout).expect("sealed");
            assert_eq!(reader.header().start.tid, 1);
        }
        let mut same = whole.clone();
        seal_pages(&mut same);
        assert_eq!(same, whole);
    }
}
