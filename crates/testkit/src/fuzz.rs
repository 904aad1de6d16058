//! Lets the readers of profiles read arbitrary bytes, for the fuzzers and the deterministic
//! mutation test. If a reader breaks a guarantee, these functions panic.

use std::convert::Infallible;
use std::fs;
use std::path::Path;
use std::sync::OnceLock;

use profile::{PageDecoder, Profile};
use record::loops::{EVENT_BYTES, LoopFrame, Run, read_frames};
use record::page::{HEADER_BYTES, PAGE_BYTES, PageReader, PageStart};
use record::{Call, GroupLayout, Record};

use crate::make::PageMaker;

/// Returns layouts with 0, 1, 3 and the largest number of counters.
pub fn layouts() -> [GroupLayout; 4] {
    let most: Vec<u16> = (0..model::MAX_COUNTERS as u16).collect();
    [&[][..], &[0], &[0, 0, 1], &most].map(|groups| GroupLayout::new(groups, u32::MAX))
}

/// Returns the calls of a page, and whether its last record was torn (could not be decoded).
/// Returns `None` if the bytes are not a page.
///
/// # Panics
/// Panics if the reader accepts a page that is longer than `bytes`, returns more records than their
/// bytes can contain, reports a torn record outside of those bytes, or continues after a torn
/// record.
pub fn read_page(bytes: &[u8], layout: &GroupLayout) -> Option<(Vec<Call>, bool)> {
    let mut reader = PageReader::new(bytes, layout).ok()?;
    let committed = reader.header().committed as usize;
    assert!(bytes.len() >= HEADER_BYTES + committed, "the page is longer than its bytes");
    let (mut calls, mut records, mut torn) = (Vec::new(), 0, false);
    while let Some(record) = reader.next_record() {
        assert!(!torn, "a record after a torn one");
        match record {
            Ok(Record::Call(call)) => calls.push(call),
            Ok(_) => {}
            Err(error) => {
                torn = true;
                let end = HEADER_BYTES + committed;
                assert!((HEADER_BYTES..end).contains(&error.at), "torn at {}", error.at);
            }
        }
        records += 1;
        assert!(records <= committed, "{records} records in {committed} bytes");
    }
    Some((calls, torn))
}

/// Returns a page with a valid header. The bytes of its records are `records`, cut off where the
/// page would be full.
pub fn page_of(records: &[u8]) -> Vec<u8> {
    static HEADER: OnceLock<Vec<u8>> = OnceLock::new();
    let header = HEADER.get_or_init(|| {
        let start = PageStart { base_ticks: 1_000, ..PageStart::default() };
        PageMaker::new(start).bytes()[..HEADER_BYTES].to_vec()
    });
    let kept = &records[..records.len().min(PAGE_BYTES - HEADER_BYTES)];
    let mut page = [header.as_slice(), kept].concat();
    // Bytes 88 to 91 are the lower half of `committed`: the number of valid bytes of records (see
    // docs/file-format.md).
    page[88..92].copy_from_slice(&(kept.len() as u32).to_le_bytes());
    page
}

/// Reads the bytes after the first one as a page or as the records of a page. The first byte
/// selects one of the two, and the layout of counters.
///
/// # Panics
/// Panics if the reader breaks a guarantee that [`read_page`] checks.
pub fn page(data: &[u8]) {
    let Some((choice, rest)) = data.split_first() else { return };
    let layout = &layouts()[usize::from(choice & 3)];
    if choice & 4 == 0 {
        read_page(&page_of(rest), layout);
    } else {
        read_page(rest, layout);
    }
}

/// Replaces the file of pages of one process in the profile `dir`. Then reads all calls of the
/// profile twice: page by page, and in batches.
///
/// # Panics
/// Panics if a reader breaks a guarantee, or if the files cannot be read or written. The
/// guarantees: damaged pages do not prevent opening the profile, and both ways return equally many
/// calls, at most one per byte of `pages`.
pub fn profile(dir: &Path, pages: &[u8]) {
    let parts = fs::read_dir(dir.join(record::meta::PARTS_NAME)).expect("the profile has parts");
    let part = parts.flatten().next().expect("a part").path();
    fs::write(part.join(record::meta::PAGES_NAME), pages).expect("write the pages");
    let profile = Profile::open(dir).expect("damaged pages are not an error");
    let mut decoder = PageDecoder::new(&profile);
    let calls: usize = profile.pages().into_iter().map(|key| decoder.decode(key).len()).sum();
    assert!(calls <= pages.len(), "{calls} calls in {} bytes", pages.len());
    let rows: usize =
        profile.batches(None).map(|batch| batch.expect("batches are consistent").num_rows()).sum();
    assert_eq!(rows, calls, "batches and pages");
}

/// Reads the bytes twice: as a process's file of loop counts, and as pages of the pool in which a
/// thread counts loops.
///
/// # Panics
/// Panics if a reader returns more data than the bytes can contain (except for names of modules),
/// or if frames written from the pool's pages cannot be read again.
pub fn loops(bytes: &[u8]) {
    let read = read_frames(bytes);
    // Frames of modules are not in the sum: if a module's name is not UTF-8, the reader replaces
    // its invalid bytes, and the name becomes longer.
    let frames = read.frames.iter().filter(|frame| !matches!(frame, LoopFrame::Module(_)));
    let written: usize = frames.map(|frame| frame.to_bytes().len()).sum();
    assert!(written <= bytes.len(), "{written} bytes of frames in {}", bytes.len());
    assert!(read.torn <= bytes.len() as u64);
    let Ok(run) = Run::parse(bytes) else { return };
    let mut count = 0;
    for block in run.blocks().flatten() {
        let mut file = Vec::new();
        let write = |frame: &[u8]| {
            file.extend_from_slice(frame);
            Ok::<(), Infallible>(())
        };
        let Ok(()) = block.write(write);
        let back = read_frames(&file);
        assert_eq!(back.torn, 0, "frames of a run that are not frames");
        for frame in back.frames {
            count += match frame {
                LoopFrame::Rows(rows) => rows.rows.len(),
                LoopFrame::Events(events) => events.events.len(),
                _ => 0,
            };
        }
    }
    assert!(count <= bytes.len() / EVENT_BYTES, "{count} rows and events");
}
