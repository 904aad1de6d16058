//! Reads a million damaged pages. Tests that the readers do not panic, and that they refuse a
//! flushed page that was changed.
//!
//! The test is deterministic, so that failures can be reproduced. `fuzz/` contains fuzzers for the
//! same readers.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::atomic::{AtomicU64, Ordering};

use record::page::{HEADER_BYTES, PAGE_BYTES, PageHeader, PageStart, seal};
use record::{Call, GroupLayout};
use testkit::fuzz::{layouts, loops, page_of, profile, read_page};
use testkit::{CallScript, Item, PageMaker, ProfileScript, Random};

const DECODES: u64 = 1_000_000;

/// Damages a few places in `bytes` after `from`.
fn damage(r: &mut Random, bytes: &mut Vec<u8>, from: usize) {
    for _ in 0..=r.place(3) {
        let room = bytes.len().saturating_sub(from);
        if room == 0 {
            return;
        }
        let at = from + r.place(room);
        match r.place(8) {
            0 => bytes[at] ^= 1 << r.place(8),
            1 => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][r.place(5)],
            2 | 3 => bytes[at] = r.next() as u8,
            4 => {
                let end = (at + r.place(9)).min(bytes.len());
                let with = r.next() as u8;
                bytes[at..end].fill(with);
            }
            5 => {
                let length = r.place(12).min(bytes.len() - at);
                let source = r.place(bytes.len() - length + 1);
                bytes.copy_within(source..source + length, at);
            }
            6 => {
                bytes.remove(at);
            }
            _ => bytes.truncate(at),
        }
    }
}

/// For each layout, returns a page with a few calls, as in the pool, but without the bytes after
/// the records.
fn written() -> Vec<(GroupLayout, Vec<u8>, Vec<Call>)> {
    let groups: [&[usize]; 4] = [&[], &[1], &[2, 1], &[1; 32]];
    let pages = groups.iter().zip(layouts()).map(|(groups, layout)| {
        let start = PageStart { base_ticks: 1_000, counters: u32::MAX, ..PageStart::default() };
        let mut page = PageMaker::new(start);
        let mut calls = Vec::new();
        for i in 0..6u64 {
            let mut call = CallScript::new(i as u32 / 2, 1_000 + 90 * i, 40 << (8 * i))
                .workgroup(i as u32 % 3, 3)
                .on(i as u32 / 4, 1);
            for (g, size) in groups.iter().enumerate() {
                let values: Vec<u64> = (0..*size as u64).map(|v| (i + v) << (7 * i)).collect();
                call = match (i + g as u64) % 4 {
                    0 => call.unread(),
                    1 => call.scaled(90, 30, &values),
                    _ => call.group(90, &values),
                };
            }
            page.call(&call);
            calls.push(call.call);
            if i == 3 {
                page.clock(2_000, 70, 80);
            }
        }
        let mut bytes = page.bytes();
        bytes.truncate(PageHeader::parse(&bytes).unwrap().file_bytes());
        (layout, bytes, calls)
    });
    pages.collect()
}

#[test]
fn a_million_damaged_pages() {
    let written = written();
    for (layout, bytes, calls) in &written {
        assert_eq!(read_page(bytes, layout), Some((calls.clone(), false)));
    }
    let workers = std::thread::available_parallelism().map_or(1, usize::from).min(8) as u64;
    let decodes = AtomicU64::new(0);
    let refused = AtomicU64::new(0);
    let whole = AtomicU64::new(0);
    let work = |worker: u64| {
        let mut random = Random(0x9E37_79B9_7F4A_7C15 ^ (worker << 40));
        let mut mine = [0u64; 3];
        while mine[0] < DECODES.div_ceil(workers) {
            let (layout, bytes, calls) = &written[random.place(written.len())];
            let mut page = bytes.clone();
            match random.place(8) {
                // A flushed page that was damaged must be refused as a whole.
                0 => {
                    let header = PageHeader::parse(&page).unwrap();
                    page = seal(&header, page);
                    let sealed = page.clone();
                    damage(&mut random, &mut page, 0);
                    let flushed = PageHeader::parse(&page).is_ok_and(|header| header.flushed);
                    let read = read_page(&page, layout);
                    if flushed && page != sealed {
                        assert_eq!(read, None, "{page:?}");
                    }
                    mine[1] += u64::from(read.is_none());
                }
                // The page is read with a randomly chosen layout, as if it came from another
                // recording.
                1 => {
                    damage(&mut random, &mut page, HEADER_BYTES);
                    let other = &written[random.place(written.len())].0;
                    mine[1] += u64::from(read_page(&page, other).is_none());
                }
                2 => {
                    damage(&mut random, &mut page, 0);
                    mine[1] += u64::from(read_page(&page, layout).is_none());
                }
                // Only the records are damaged. The header states the right number of bytes.
                _ => {
                    let mut records = page.split_off(HEADER_BYTES);
                    damage(&mut random, &mut records, 0);
                    let read = read_page(&page_of(&records), layout);
                    mine[2] += u64::from(read == Some((calls.clone(), false)));
                }
            }
            mine[0] += 1;
        }
        for (all, mine) in [&decodes, &refused, &whole].iter().zip(mine) {
            all.fetch_add(mine, Ordering::Relaxed);
        }
    };
    std::thread::scope(|scope| {
        (0..workers).for_each(|worker| drop(scope.spawn(move || work(worker))));
    });
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    assert!(count(&decodes) >= DECODES);
    assert!(count(&refused) > 50_000, "{} pages were refused", count(&refused));
    assert!(count(&whole) < DECODES / 10, "{} pages are undamaged", count(&whole));
}

/// The header of each page is changed to match the cut.
#[test]
fn a_page_cut_anywhere_contains_the_first_calls() {
    for (layout, bytes, calls) in &written() {
        let mut longest = 0;
        for kept in 0..=bytes.len() - HEADER_BYTES {
            let mut page = bytes.clone();
            page[88..92].copy_from_slice(&(kept as u32).to_le_bytes());
            let (found, _) = read_page(&page, layout).unwrap();
            assert_eq!(found, calls[..found.len()], "{kept} bytes");
            assert!(found.len() >= longest, "a longer page has fewer calls");
            longest = found.len();
            page.truncate(HEADER_BYTES + kept.saturating_sub(1));
            assert!(kept == 0 || read_page(&page, layout).is_none(), "the end is missing");
        }
        assert_eq!(longest, calls.len());
    }
}

#[test]
fn damaged_files_of_pages() {
    let mut script = ProfileScript::monotonic();
    script.counter("a", 0);
    let process = script.process(7);
    process.library("m", &["f"]);
    for name in ["s", "t"] {
        let thread = process.thread(name);
        for page in 0..3u64 {
            (0..4).for_each(|i| {
                thread.call(CallScript::new(0, 1_000 * page + 9 * i, 5).group(5, &[i << 9]));
            });
            thread.then(Item::NextPage(1_000 * (page + 1), 0, 0));
        }
    }
    let (_scratch, dir) = script.written();
    let pages = std::fs::read(dir.join("processes/7-1000-0/pages.cps")).unwrap();
    let mut random = Random(0x0123_4567_89AB_CDEF);
    for _ in 0..400 {
        let mut damaged = pages.clone();
        damage(&mut random, &mut damaged, 0);
        profile(&dir, &damaged);
    }
}

/// Damages a run (contiguous pages of the pool with the tables of loops), and the frames that are
/// made from it. The run has one block, with two ids, one counter and room for two events.
#[test]
fn damaged_loops() {
    let mut run = vec![0u8; PAGE_BYTES];
    let mut put = |at: usize, bytes: &[u8]| run[at..at + bytes.len()].copy_from_slice(bytes);
    // The layout is that of docs/file-format.md.
    put(0, b"CPTLOOP1");
    put(8, &[2]);
    put(12, &[1]);
    put(56, &768u64.to_le_bytes());
    let block = 256;
    for field in [(0, 1), (4, 2), (8, 1), (12, 2), (24, 2)] {
        put(block + field.0, &[field.1]);
    }
    put(block + 16, &512u64.to_le_bytes());
    for word in 0..16 {
        put(block + 128 + 8 * word, &[1 + word as u8]);
        put(block + 256 + 8 * word, &[1 + word as u8]);
    }
    put(block + 384, &[3]);
    let mut file = Vec::new();
    for block in record::loops::Run::parse(&run).unwrap().blocks() {
        let write = |frame: &[u8]| {
            file.extend_from_slice(frame);
            Ok::<(), ()>(())
        };
        block.unwrap().write(write).unwrap();
    }
    assert_eq!(record::loops::read_frames(&file).frames.len(), 2, "rows and events");
    run.truncate(768);
    let mut r = Random(0x2026_1122);
    for whole in [run, file] {
        for _ in 0..100_000 {
            let mut bytes = whole.clone();
            damage(&mut r, &mut bytes, 8);
            loops(&bytes);
        }
    }
}
