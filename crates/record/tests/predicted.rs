//! Tests that records leave out the fields that are predicted.

use record::page::{
    HEADER_BYTES, PAGE_BYTES, PageError, PageHeader, PageReader, PageStart, PageWriter,
};
use record::{Call, GroupLayout, Record};

/// Memory for one page, aligned to 8 bytes.
struct Memory(Vec<u64>);

impl Memory {
    fn new() -> Self {
        Self(vec![0; PAGE_BYTES / 8])
    }
    fn at(&mut self) -> *mut u8 {
        self.0.as_mut_ptr().cast()
    }
    fn bytes(&self) -> &[u8] {
        // SAFETY: the memory is a page of u64s, all of whose bytes are initialised.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr().cast(), PAGE_BYTES) }
    }
}

/// Returns the header fields with which a page without counters starts; the page's times are
/// relative to tick 1,000.
fn start() -> PageStart {
    PageStart { base_ticks: 1_000, ..PageStart::default() }
}

/// Writes calls without counters to a new page in `memory`, and returns the bytes of the page's
/// records.
fn bytes_of(memory: &mut Memory, calls: &[Call]) -> Vec<u8> {
    let mut writer = PageWriter::detached();
    // SAFETY: `memory` is a page, which has room for each call.
    unsafe {
        writer.attach(memory.at(), &start());
        for call in calls {
            assert!(writer.has_room());
            let cursor = writer.call(call, false);
            writer.commit_call(cursor);
        }
    }
    let header = PageHeader::parse(memory.bytes()).expect("a page that was just written");
    memory.bytes()[HEADER_BYTES..header.file_bytes()].to_vec()
}

/// Returns the calls of a page without counters, and whether the page was valid to its end.
fn timed(bytes: &[u8]) -> (Vec<Call>, bool) {
    let layout = GroupLayout::new(&[], 0);
    let mut reader = PageReader::new(bytes, &layout).expect("a page that was just written");
    let mut calls = Vec::new();
    while let Some(record) = reader.next_record() {
        match record {
            Ok(Record::Call(call)) => calls.push(call),
            Ok(_) => {}
            Err(_) => return (calls, false),
        }
    }
    (calls, true)
}

/// The bytes were derived by hand from the layout in `record::page`. Two ops alternate: one has one
/// workgroup, and the other has two (three in the last call). Once the writer knows their order, a
/// call takes three bytes.
#[test]
fn calls_that_are_predicted_contain_only_times() {
    let mut at = 1_000;
    let mut call = |export: u32, count: u32, x: u32, location: u32, gap: u64| {
        let start = at + gap;
        at = start + 5;
        let (count, workgroup) = ([count, 1, 1], [x, 0, 0]);
        Call { export, count, workgroup, location, worker: 0, start, end: at }
    };
    let calls = [
        call(3, 1, 0, 5, 10),
        call(3, 1, 0, 5, 100),
        call(4, 2, 0, 5, 10),
        call(4, 2, 1, 5, 10),
        call(3, 1, 0, 5, 10),
        call(4, 2, 0, 5, 10),
        call(4, 2, 1, 5, 10),
        call(3, 1, 0, 5, 10),
        call(4, 2, 1, 6, 10),
        call(4, 3, 0, 6, 10),
    ];
    let (gap, length) = (20 << 1 | 1, 5 << 1 | 1);
    let expected: &[&[u8]] = &[
        // The first record has the export, its number of workgroups, the location and the worker.
        &[1 | 2 | 64, 3 << 1 | 1, 3, 3, 3, 5 << 1 | 1, 1, gap, length],
        // The same call again. The gap of 100 (zigzag 200) takes two bytes.
        &[1, 0x22, 3, length],
        // A new op. From now on, the op's next workgroup is predicted.
        &[1 | 2, 4 << 1 | 1, 5, 3, 3, gap, length],
        &[1, gap, length],
        // The op of this call was not predicted: after the first dispatch of a new op, another
        // dispatch of the same op is expected.
        &[1 | 32, 3 << 1 | 1, gap, length],
        // From here on, the order of the ops is predicted.
        &[1, gap, length],
        &[1, gap, length],
        &[1, gap, length],
        // The workgroup is not the predicted 0,0,0, and the call is on another CPU.
        &[1 | 4 | 64, 6 << 1 | 1, 1, 3, 1, 1, gap, length],
        // Another number of workgroups.
        &[1 | 2, 4 << 1 | 1, 7, 3, 3, gap, length],
    ];
    let mut memory = Memory::new();
    assert_eq!(bytes_of(&mut memory, &calls), expected.concat());
    assert_eq!(timed(memory.bytes()), (calls.to_vec(), true));
}

/// Calls with repeated and with new fields are mixed. In three of five rounds, the exports
/// (functions) are drawn from more than the 64 that the writer and the reader remember.
#[test]
fn any_order_of_calls_reads_back() {
    let mut random = 0x9E37_79B9_7F4A_7C15u64;
    let mut draw = |below: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random >> 33) % below
    };
    for round in 0..300 {
        let (mut calls, mut at) = (Vec::new(), 1_000u64);
        let mut call = Call { count: [2, 2, 2], ..Call::default() };
        while calls.len() < 900 {
            if draw(3) == 0 {
                let exports = [3, 64, 65, 200, u64::from(u32::MAX) + 1];
                call.export = draw(exports[round % 5]) as u32;
            }
            match draw(12) {
                0 => call.count = [0, 1, 2].map(|_| draw(4) as u32),
                1 => call.workgroup = [0, 1, 2].map(|_| draw(3) as u32),
                2 => call.workgroup = [u32::MAX, draw(2) as u32, u32::MAX],
                3 => call.location = draw(5) as u32,
                4 => call.worker = draw(5) as u32,
                5 => call.count = [u32::MAX; 3],
                _ => {
                    let [x, y, z] = call.workgroup;
                    call.workgroup = if draw(2) == 0 { [0; 3] } else { [x.wrapping_add(1), y, z] };
                }
            }
            let (gap, length) = (2 << draw(30), 2 << draw(30));
            call.start = at.wrapping_add(draw(gap)).wrapping_sub(draw(1 << 10));
            call.end = call.start.wrapping_add(draw(length));
            at = call.end;
            calls.push(call);
        }
        let mut memory = Memory::new();
        bytes_of(&mut memory, &calls);
        assert_eq!(timed(memory.bytes()), (calls, true), "round {round}");
    }
}

/// Returns a page without counters that contains these records.
fn page_with(version: u16, records: &[u8]) -> Vec<u8> {
    let mut memory = Memory::new();
    bytes_of(&mut memory, &[]);
    let mut page = memory.bytes()[..HEADER_BYTES].to_vec();
    page[8..10].copy_from_slice(&version.to_le_bytes());
    page[88..92].copy_from_slice(&(records.len() as u32).to_le_bytes());
    page.extend_from_slice(records);
    page
}

#[test]
fn pages_of_other_versions_are_refused_by_their_version() {
    for version in [0, 1, 4, u16::MAX] {
        let layout = GroupLayout::new(&[], 0);
        let error = PageReader::new(&page_with(version, &[]), &layout).unwrap_err();
        assert_eq!(error, PageError::Version(version));
    }
}

#[test]
fn a_record_that_refers_to_an_unknown_export_is_torn() {
    // Three records are torn. The first torn record has no number of workgroups for an export that
    // was not called before. The tag of the second announces both an export with its number of
    // workgroups and an export alone. The tag of the third has an unknown bit.
    let first: &[u8] = &[1 | 2, 7, 3, 3, 3, 41, 11];
    for torn in [&[1 | 32, 9, 41, 11][..], &[1 | 2 | 32, 9, 3, 3, 3, 41, 11], &[1 | 128, 41, 11]] {
        assert_eq!(timed(&page_with(2, torn)), (vec![], false), "{torn:?}");
        let (calls, whole) = timed(&page_with(2, &[first, torn].concat()));
        assert_eq!((calls.len(), whole), (1, false), "{torn:?}");
    }
    // Exports 3 and 67 share a slot (their numbers modulo 64 are equal), so export 3 is not
    // remembered after export 67.
    let other = &[1 | 2, 67 << 1 | 1, 3, 3, 3, 41, 11][..];
    let (calls, whole) = timed(&page_with(2, &[first, other, &[1 | 32, 7, 41, 11]].concat()));
    assert_eq!((calls.len(), whole), (2, false));
}
