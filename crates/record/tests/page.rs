//! Tests of the writer and the reader of pages.

use record::page::{
    GroupTimes, HEADER_BYTES, KEY_CORRELATION, MOST_VALUES, OLDEST_PAGE_VERSION, PAGE_BYTES,
    PageError, PageHeader, PageReader, PageStart, PageWriter, Task,
};
use record::{Call, Drawn, GroupLayout, Record, Usage};

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

/// Returns a usage whose six fields differ.
fn usage(from: u64) -> Usage {
    Usage {
        ticks: from,
        cpu_ns: from + 1,
        minor_faults: from + 2,
        major_faults: from + 3,
        voluntary_switches: from + 4,
        involuntary_switches: from + 5,
    }
}

fn start() -> PageStart {
    PageStart {
        pid: 10,
        generation: 1,
        start_time: 99,
        thread_uid: 3,
        tid: 11,
        thread_name: *b"iree-worker-0\0\0\0",
        sequence: 7,
        counters: 0b11,
        base_ticks: 1_000,
        base_cpu_ns: 500,
        base_monotonic_ns: 600,
        flush_ticks: 12,
        flushes: 2,
        attach_ns: 77,
        usage: Some(usage(1_000)),
    }
}

/// Returns calls that are encoded in different ways. The context (the export and the number of its
/// workgroups) is repeated or new, and the workgroup is predicted or not. There are also times that
/// go backwards, and the largest numbers.
fn calls() -> Vec<(Call, [GroupTimes; 1], [u64; 2])> {
    let base = Call {
        export: 4,
        count: [3, 2, 1],
        workgroup: [0; 3],
        location: 1 << 12 | 5,
        worker: 2,
        start: 1_010,
        end: 1_050,
    };
    let full = GroupTimes { read: true, enabled: 40, running: 40 };
    vec![
        (base, [full], [1, 2]),
        (Call { workgroup: [1, 0, 0], start: 1_060, end: 1_061, ..base }, [full], [0, 0]),
        (
            Call { workgroup: [2, 1, 0], start: 1_060, end: 9_061, ..base },
            [full],
            [u64::MAX, 1 << 60],
        ),
        (
            Call { location: 0, start: 2_000, end: 1_999, ..base },
            [GroupTimes { read: true, enabled: 40, running: 13 }],
            [5, 6],
        ),
        (
            Call { export: u32::MAX, count: [u32::MAX; 3], workgroup: [u32::MAX; 3], ..base },
            [GroupTimes::default()],
            [0, 0],
        ),
        (
            Call { export: u32::MAX, count: [u32::MAX; 3], workgroup: [0; 3], ..base },
            [full],
            [9, 9],
        ),
    ]
}

fn write(writer: &mut PageWriter, call: &Call, groups: &[GroupTimes; 1], values: &[u64; 2]) {
    let scaled = groups[0].read && groups[0].running != groups[0].enabled;
    // SAFETY: the tests attach a page and stay within it.
    unsafe {
        let mut cursor = writer.call(call, scaled);
        if groups[0].read {
            cursor.put(groups[0].enabled + 1);
            if scaled {
                cursor.put(groups[0].running);
            }
            values.iter().for_each(|v| cursor.put(*v));
        } else {
            cursor.put(0);
        }
        writer.commit_call(cursor);
    }
}

fn filled(memory: &mut Memory) -> PageWriter {
    let mut writer = PageWriter::detached();
    // SAFETY: `memory` is a page, and outlives the writer's use in these tests.
    unsafe { writer.attach(memory.at(), &start()) };
    for (call, groups, values) in calls() {
        write(&mut writer, &call, &groups, &values);
    }
    // SAFETY: the writer has a page, which has room.
    unsafe { writer.thread_clock(20_000, 700, 800) };
    writer
}

fn layout() -> GroupLayout {
    GroupLayout::new(&[0, 0], 0b11)
}

/// A call as it was read: the call itself, the times of its counter groups, and its counters'
/// values.
type Read = (Call, Vec<GroupTimes>, Vec<u64>);

/// Returns the calls that can be read from `bytes`, and whether the page was valid to its end.
fn read(bytes: &[u8]) -> Result<(Vec<Read>, bool), PageError> {
    let layout = layout();
    let mut reader = PageReader::new(bytes, &layout)?;
    let mut found = Vec::new();
    while let Some(record) = reader.next_record() {
        match record {
            Ok(Record::Call(call)) => {
                let groups = reader.groups().to_vec();
                let values = if groups[0].read { reader.values().to_vec() } else { vec![0; 2] };
                found.push((call, groups, values));
            }
            Ok(Record::ThreadClock { ticks, cpu_ns, monotonic_ns }) => {
                assert_eq!((ticks, cpu_ns, monotonic_ns), (20_000, 700, 800));
            }
            Ok(Record::Values | Record::Other { .. }) => {}
            Err(_) => return Ok((found, false)),
        }
    }
    Ok((found, true))
}

fn expected() -> Vec<Read> {
    calls().into_iter().map(|(c, g, v)| (c, g.to_vec(), v.to_vec())).collect()
}

#[test]
fn a_live_page_reads_back() {
    let mut memory = Memory::new();
    filled(&mut memory);
    assert_eq!(read(memory.bytes()), Ok((expected(), true)));
    let layout = layout();
    let reader = PageReader::new(memory.bytes(), &layout).unwrap();
    assert_eq!(reader.header().start, start());
    assert_eq!(reader.header().calls as usize, calls().len());
    assert_eq!(reader.header().thread_name(), "iree-worker-0");
    assert!(!reader.header().flushed);
}

#[test]
fn a_sealed_page_ends_after_its_last_record_and_is_checked() {
    let mut memory = Memory::new();
    let mut writer = filled(&mut memory);
    // SAFETY: `filled` has attached a page.
    let sealed = unsafe { writer.seal(true, *b"renamed\0\0\0\0\0\0\0\0\0") }.to_vec();
    assert_eq!(read(&sealed), Ok((expected(), true)));
    let layout = layout();
    let header = PageReader::new(&sealed, &layout).unwrap().header().clone();
    assert_eq!(
        (header.thread_name().as_str(), header.last, header.flushed),
        ("renamed", true, true)
    );
    assert_eq!(header.file_bytes(), sealed.len());

    for cut in 0..sealed.len() {
        assert!(read(&sealed[..cut]).is_err(), "a page cut at {cut} is not whole");
    }
    // The loop leaves out the first 12 bytes (magic, version and header size), which are checked
    // before the checksum.
    for at in 12..sealed.len() {
        let mut damaged = sealed.clone();
        damaged[at] ^= 1;
        let result = read(&damaged);
        assert!(result.is_err(), "byte {at} flipped: {result:?}");
    }
}

/// A page that was never sealed has no checksum, so only its records show where it is torn.
#[test]
fn a_torn_live_page_gives_every_record_before_the_tear() {
    let mut memory = Memory::new();
    let mut writer = filled(&mut memory);
    // SAFETY: `filled` has attached a page.
    let whole = unsafe { writer.seal(false, [0; 16]) }.to_vec();
    let committed_at = 88;
    let all = expected();
    for cut in 0..whole.len() - HEADER_BYTES {
        let mut torn = whole.clone();
        // The flags say that the page is not flushed, and only `cut` bytes are committed.
        torn[12..16].copy_from_slice(&0u32.to_le_bytes());
        let committed =
            u32::from_le_bytes(torn[committed_at..committed_at + 4].try_into().unwrap());
        assert_eq!(committed as usize, whole.len() - HEADER_BYTES, "the field moved");
        torn[committed_at..committed_at + 4].copy_from_slice(&(cut as u32).to_le_bytes());
        let (found, _) = read(&torn).unwrap();
        assert!(found.len() <= all.len());
        assert_eq!(found, all[..found.len()], "cut at {cut}");
    }
}

#[test]
fn a_page_without_counters_contains_only_times() {
    let mut memory = Memory::new();
    let mut writer = PageWriter::detached();
    let call = Call { export: 1, count: [1; 3], start: 1_005, end: 1_006, ..Call::default() };
    // SAFETY: `memory` is a page, in which a record has room.
    unsafe {
        writer.attach(memory.at(), &PageStart { counters: 0, ..start() });
        let cursor = writer.call(&call, false);
        writer.commit_call(cursor);
    }
    let layout = GroupLayout::new(&[0, 0], 0);
    let mut reader = PageReader::new(memory.bytes(), &layout).unwrap();
    assert_eq!(reader.next_record(), Some(Ok(Record::Call(call))));
    assert!(reader.groups().is_empty() && reader.values().is_empty());
    assert_eq!(reader.next_record(), None);
}

#[test]
fn a_page_fills_up_and_starts_over_with_the_next_sequence() {
    let mut memory = Memory::new();
    let mut writer = filled(&mut memory);
    let mut calls = writer.calls();
    while writer.has_room() {
        let call =
            Call { export: 4, count: [9; 3], start: u64::from(calls) * 1_000, ..Call::default() };
        write(
            &mut writer,
            &call,
            &[GroupTimes { read: true, enabled: u64::MAX - 1, running: 0 }],
            &[u64::MAX; 2],
        );
        calls += 1;
    }
    let (found, whole) = read(memory.bytes()).unwrap();
    assert_eq!((found.len(), whole), (calls as usize, true));
    // SAFETY: the writer has a page.
    unsafe { writer.next_page(&PageStart { sequence: 8, ..start() }) };
    assert_eq!(read(memory.bytes()), Ok((vec![], true)));
    // SAFETY: the writer has a page.
    unsafe { writer.retire() };
    assert_eq!(read(memory.bytes()), Err(PageError::NoMagic));
    assert!(!writer.is_attached());
}

#[test]
fn with_two_counters_a_typical_record_is_short() {
    let mut memory = Memory::new();
    let mut writer = PageWriter::detached();
    // SAFETY: `memory` is a page, and outlives the writer's use.
    unsafe { writer.attach(memory.at(), &start()) };
    let mut at = 1_000u64;
    let mut sizes = Vec::new();
    let mut before = 0;
    for i in 0..1_000u32 {
        // Each call is a workgroup that takes 200 µs at 3 GHz and begins 2 µs after the end of the
        // previous call. The counters are page faults (3) and task-clock (200,000 ns).
        let call = Call {
            export: i / 16 % 4,
            count: [4, 4, 1],
            workgroup: [i % 4, i / 4 % 4, 0],
            location: 1,
            worker: 0,
            start: at + 6_000,
            end: at + 606_000,
        };
        at = call.end;
        let times = GroupTimes { read: true, enabled: 201_000, running: 201_000 };
        write(&mut writer, &call, &[times], &[3, 200_000]);
        let layout = layout();
        let committed = PageReader::new(memory.bytes(), &layout).unwrap().header().committed;
        sizes.push(committed - before);
        before = committed;
    }
    sizes.sort_unstable();
    assert!(sizes[500] <= 40, "median record of {} bytes", sizes[500]);
}

/// The expected bytes were derived by hand from the layout in `record::page`.
#[test]
fn values_follow_their_call() {
    let mut memory = Memory::new();
    let mut writer = filled(&mut memory);
    let (call, groups, values) = calls()[0];
    write(&mut writer, &call, &groups, &values);
    // SAFETY: the writer has a page, which has room.
    unsafe { writer.values(&[(0, 5), (16, u64::MAX)]) };
    let by_hand = [4, 12 << 2 | 2, 0, 1, 5 << 1 | 1, 16 << 1 | 1, 0];
    let by_hand = [&by_hand[..], &[0xff; 8]].concat();
    let layout = layout();
    let mut reader = PageReader::new(memory.bytes(), &layout).unwrap();
    let end = HEADER_BYTES + reader.header().committed as usize;
    assert_eq!(&memory.bytes()[end - by_hand.len()..end], by_hand);
    let records: Vec<Record> = std::iter::from_fn(|| reader.next_record()).flatten().collect();
    assert_eq!(records[records.len() - 2..], [Record::Call(call), Record::Values]);
    assert_eq!(reader.extras(), [(0, 5), (16, u64::MAX)]);
}

/// The call before the task is the first one of [`calls`], which ended at 1,050 on CPU 5 of node 1.
/// The expected bytes were derived by hand from the layout in `record::page`.
#[test]
fn tasks_are_read_as_calls_with_a_correlation_number() {
    let mut memory = Memory::new();
    let mut writer = PageWriter::detached();
    // SAFETY: `memory` is a page, and outlives the writer.
    unsafe { writer.attach(memory.at(), &start()) };
    let place = 1 << 12 | 5;
    assert!(!writer.takes_task(place), "the location of the first call is not known yet");
    let (mut call, groups, values) = calls()[0];
    call.worker = 0;
    write(&mut writer, &call, &groups, &values);
    assert!(writer.takes_task(place) && !writer.takes_task(place + 1));
    let task =
        Task { export: 9, number: 1, count: 2, start: 1_045, end: 1_145, correlation: 1 << 63 | 3 };
    let region = Task { export: 8, number: 0, count: 0, start: 1_140, end: 1_150, ..task };
    // SAFETY: the writer has a page, which has room.
    unsafe {
        let mut cursor = writer.task(&task);
        [101, 7, 8].iter().for_each(|field| cursor.put(*field));
        writer.commit_task(cursor);
        let mut cursor = writer.task(&region);
        cursor.put(0);
        writer.commit_task(cursor);
    }
    let small = |value: u8| value << 1 | 1;
    // −5 is 9 as an unsigned number, and the correlation number is 7 after the rotation. 100 and
    // 101 are less than 2^7.
    let fields = [9, 1, 2, 9, 100, 7, 101, 7, 8].map(small);
    let of_task = [&[6, 9 << 2 | 2, 0], &fields[..]].concat();
    let fields = [8, 0, 0, 9, 10, 7, 0].map(small);
    let by_hand = [&of_task[..], &[6, 7 << 2 | 2, 0], &fields].concat();
    let layout = layout();
    let mut reader = PageReader::new(memory.bytes(), &layout).unwrap();
    assert_eq!(reader.header().calls, 3);
    let end = HEADER_BYTES + reader.header().committed as usize;
    assert_eq!(&memory.bytes()[end - by_hand.len()..end], by_hand);
    assert_eq!(reader.next_record(), Some(Ok(Record::Call(call))));
    let expected = Call {
        export: 9,
        count: [2, 1, 1],
        workgroup: [1, 0, 0],
        location: place,
        worker: 0,
        start: 1_045,
        end: 1_145,
    };
    assert_eq!(reader.next_record(), Some(Ok(Record::Call(expected))));
    assert_eq!(reader.groups(), [GroupTimes { read: true, enabled: 100, running: 100 }]);
    assert_eq!(reader.values(), [7, 8]);
    assert_eq!(reader.next_record(), Some(Ok(Record::Values)));
    assert_eq!(reader.extras(), [(KEY_CORRELATION, 1 << 63 | 3)]);
    let expected = Call { export: 8, location: place, start: 1_140, end: 1_150, ..Call::default() };
    assert_eq!(reader.next_record(), Some(Ok(Record::Call(expected))));
    assert!(!reader.groups()[0].read);
    assert_eq!(reader.next_record(), Some(Ok(Record::Values)));
    assert_eq!(reader.extras(), [(KEY_CORRELATION, 1 << 63 | 3)]);
    assert_eq!(reader.next_record(), None);
}

/// A task's record must end where its length says.
#[test]
fn a_task_with_a_wrong_length_is_torn() {
    let mut memory = Memory::new();
    let mut writer = filled(&mut memory);
    let task = Task { export: 9, number: 0, count: 1, start: 1, end: 2, correlation: 0 };
    let (call, groups, values) = calls()[0];
    write(&mut writer, &call, &groups, &values);
    // SAFETY: the writer has a page, which has room. A field is missing: the group's readings.
    unsafe {
        let cursor = writer.task(&task);
        writer.commit_task(cursor);
    }
    write(&mut writer, &call, &groups, &values);
    let (found, whole) = read(memory.bytes()).unwrap();
    assert_eq!((found.len(), whole), (calls().len() + 1, false));
}

/// Pages of the version before have no records of tasks, and no other differences.
#[test]
fn pages_of_the_oldest_known_version_are_read() {
    let mut memory = Memory::new();
    filled(&mut memory);
    let version = OLDEST_PAGE_VERSION.to_le_bytes();
    // SAFETY: the version is in the bytes 8 and 9 of the header.
    unsafe { memory.at().add(8).cast::<[u8; 2]>().write(version) };
    assert_eq!(read(memory.bytes()).map(|(found, whole)| (found.len(), whole)), Ok((6, true)));
    // SAFETY: see above.
    unsafe { memory.at().add(8).cast::<[u8; 2]>().write((OLDEST_PAGE_VERSION - 1).to_le_bytes()) };
    assert_eq!(read(memory.bytes()).err(), Some(PageError::Version(OLDEST_PAGE_VERSION - 1)));
}

#[test]
fn values_beyond_the_maximum_are_left_out() {
    let mut memory = Memory::new();
    let mut writer = filled(&mut memory);
    let all: Vec<(u32, u64)> =
        (0..MOST_VALUES as u32 + 1).map(|i| (u32::MAX - i, u64::MAX)).collect();
    // SAFETY: the writer has a page, which has room.
    unsafe { writer.values(&all) };
    let layout = layout();
    let mut reader = PageReader::new(memory.bytes(), &layout).unwrap();
    while let Some(record) = reader.next_record() {
        record.expect("the page is complete");
    }
    assert_eq!(reader.extras(), &all[..MOST_VALUES]);
}

/// The offsets come from docs/file-format.md.
#[test]
fn usages_of_a_page() {
    let mut memory = Memory::new();
    let mut writer = PageWriter::detached();
    let bare = PageStart { usage: None, attach_ns: 0, ..start() };
    let word = |memory: &Memory, at: usize| {
        u64::from_le_bytes(memory.bytes()[at..at + 8].try_into().unwrap())
    };
    // SAFETY: `memory` is a page, which is attached before it is written to.
    unsafe {
        writer.attach(memory.at(), &bare);
        let header = PageHeader::parse(memory.bytes()).unwrap();
        assert_eq!((header.start, header.usage_end), (bare, None));
        assert!((128..256).step_by(8).all(|at| word(&memory, at) == 0));
        writer.set_begin(usage(50), 9);
        writer.set_end(usage(100));
        assert!(PageHeader::parse(writer.seal(true, bare.thread_name)).unwrap().flushed);
    }
    let header = PageHeader::parse(memory.bytes()).unwrap();
    let begun = PageStart { usage: Some(usage(50)), attach_ns: 9, ..bare };
    assert_eq!((header.start, header.usage_end), (begun, Some(usage(100))));
    assert_eq!(memory.bytes()[116..120], [3, 0, 0, 0]);
    let words: Vec<u64> = (128..256).step_by(8).map(|at| word(&memory, at)).collect();
    let expected = [9, 50, 51, 52, 53, 54, 55, 100, 101, 102, 103, 104, 105, 0, 0, 0];
    assert_eq!(words, expected);
    // The checksum includes the usages.
    let mut flushed = memory.bytes()[..header.file_bytes()].to_vec();
    let layout = GroupLayout::new(&[0, 0], 0b11);
    assert!(PageReader::new(&flushed, &layout).is_ok());
    flushed[150] ^= 1;
    assert_eq!(PageReader::new(&flushed, &layout).unwrap_err(), PageError::Checksum);
    // The next page begins without a usage for its end. SAFETY: the page was attached above.
    unsafe { writer.next_page(&start()) };
    let header = PageHeader::parse(memory.bytes()).unwrap();
    assert_eq!((header.start, header.usage_end), (start(), None));
}

#[test]
fn differences_of_usages() {
    let (early, late) = (usage(10), usage(30));
    let all = |n| {
        Usage::default().plus(&Usage {
            ticks: n,
            cpu_ns: n,
            minor_faults: n,
            major_faults: n,
            voluntary_switches: n,
            involuntary_switches: n,
        })
    };
    assert_eq!(late.since(&early), Some(all(20)));
    assert_eq!(early.plus(&all(20)), late);
    assert_eq!(early.since(&Usage { major_faults: 14, ..early }), None);
    assert_eq!(early.switches(), 14 + 15);
}

#[test]
fn a_drawn_call_says_how_likely_it_was() {
    let layout = GroupLayout::new(&[0, 0], 0b11);
    let mut memory = Memory::new();
    let mut writer = PageWriter::detached();
    let largest = Drawn { period: u32::MAX, counter_period: u32::MAX, skipped: u64::MAX };
    let drawn =
        [None, Some(Drawn { period: 7, counter_period: 3, skipped: 20 }), None, Some(largest)];
    let all = calls();
    // SAFETY: the memory is a page with room for four records, and outlives the writer's use.
    unsafe {
        writer.attach(memory.at(), &start());
        for (drawn, (call, ..)) in drawn.iter().zip(&all) {
            let mut cursor = match drawn {
                Some(drawn) => writer.drawn_call(call, false, drawn),
                None => writer.call(call, false),
            };
            [41, 5, 6].into_iter().for_each(|field| cursor.put(field));
            writer.commit_call(cursor);
        }
    }
    let mut reader = PageReader::new(memory.bytes(), &layout).unwrap();
    for (drawn, (call, ..)) in drawn.iter().zip(&all) {
        assert_eq!(reader.next_record(), Some(Ok(Record::Call(*call))));
        assert_eq!(
            reader.drawn(),
            drawn.unwrap_or(Drawn { period: 1, counter_period: 1, skipped: 0 })
        );
        assert_eq!(reader.values(), [5, 6]);
    }
    assert_eq!(reader.next_record(), None);
}

/// The expected bytes follow the format in docs/file-format.md. As a prefix varint, a number below
/// 128 is one byte: twice the number plus 1.
#[test]
fn the_bytes_of_a_drawn_call_are_those_of_the_format() {
    let small = |value: u8| value << 1 | 1;
    // The tag's lowest bit marks a call, and its bit d (16) announces a period, a counter period
    // and a number of skipped calls. The start is 10 ticks after the base (as zigzag) and the
    // duration 40 ticks; the period is 7, the counter period 3, and 20 calls were skipped.
    let record = [0b1_0001, small(20), small(40), small(7), small(3), small(20)];
    let page = page_of(&record);
    let layout = GroupLayout::default();
    let mut reader = PageReader::new(&page, &layout).unwrap();
    let Some(Ok(Record::Call(call))) = reader.next_record() else { panic!("no call") };
    assert_eq!((call.start, call.end), (1_010, 1_050));
    assert_eq!(reader.drawn(), Drawn { period: 7, counter_period: 3, skipped: 20 });
    // A period or counter period of 0 is refused.
    for at in [3, 4] {
        let mut record = record;
        record[at] = small(0);
        let page = page_of(&record);
        let mut reader = PageReader::new(&page, &layout).unwrap();
        assert!(matches!(reader.next_record(), Some(Err(_))));
    }
}

/// Returns an unflushed page without counters; `records` are the bytes of its records. Its header
/// states one call.
fn page_of(records: &[u8]) -> Vec<u8> {
    let mut memory = Memory::new();
    let mut writer = PageWriter::detached();
    // SAFETY: `memory` is a page, and outlives the writer's use.
    unsafe { writer.attach(memory.at(), &PageStart { counters: 0, ..start() }) };
    let mut page = memory.bytes().to_vec();
    page[HEADER_BYTES..HEADER_BYTES + records.len()].copy_from_slice(records);
    page[88..96].copy_from_slice(&(records.len() as u64 | 1 << 32).to_le_bytes());
    page
}
