//! Tests of the tables of instrumented loops.

use super::*;
use crate::page::PAGE_BYTES;

fn put(bytes: &mut [u8], at: usize, word: u64) {
    bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
}

fn put32(bytes: &mut [u8], at: usize, word: u32) {
    bytes[at..at + 4].copy_from_slice(&word.to_le_bytes());
}

/// Makes the bytes of a run (contiguous pages of the pool), in the layout that `loops.rs`
/// describes. The block of module 1 has two ids, one counter and room for two events. One event was
/// written. The block of module 2 has one id without hits.
fn example() -> Vec<u8> {
    let mut run = vec![0u8; PAGE_BYTES];
    run[..8].copy_from_slice(b"CPTLOOP1");
    for (at, word) in [(8, RUN_VERSION), (12, 1), (16, 77), (20, 2), (32, 78), (36, 5)] {
        put32(&mut run, at, word);
    }
    put(&mut run, 24, 1234);
    run[40..44].copy_from_slice(b"main");
    put(&mut run, 64, 9);
    put(&mut run, 72, 8);
    let first = 256;
    // Module 1's block takes 128 + 2 · 128 + 2 · (1 + 1) · 8 + 2 · 24 = 464 bytes. Its size is
    // rounded up to a multiple of 64.
    for (at, word) in [(0usize, 1), (4, 2), (8, 1), (12, 2)] {
        put32(&mut run, first + at, word);
    }
    put(&mut run, first + 16, 512);
    run[first + 56..first + 72].copy_from_slice(&[9; 16]);
    for (at, word) in [(72, 3), (76, 127), (80, 1000), (88, 100)] {
        put32(&mut run, first + at, word);
    }
    put(&mut run, first + 24, 1);
    let entries = first + 128;
    for (word, value) in [(0, 10), (1, 11), (2, 99), (3, 3), (4, 2), (5, 1000), (15, 7)] {
        put(&mut run, entries + 128 + 8 * word, value);
    }
    // The entry of id 0 has its initial values.
    put(&mut run, entries + 8, 1);
    put(&mut run, entries + 16, 55);
    let sums = entries + 256;
    put(&mut run, sums + 16, 2);
    put(&mut run, sums + 24, 4096);
    let events = sums + 32;
    put(&mut run, events, 1 << 63 | 1);
    put(&mut run, events + 8, 500);
    put(&mut run, events + 16, 0x1234);
    let second = first + 512;
    for (at, word) in [(0usize, 2), (4, 1)] {
        put32(&mut run, second + at, word);
    }
    put(&mut run, second + 16, 256);
    put(&mut run, 56, (second + 256) as u64);
    run
}

fn frames_of(run: &[u8]) -> LoopFrames {
    let mut file = Vec::new();
    for block in Run::parse(run).unwrap().blocks() {
        block
            .unwrap()
            .write(|bytes| {
                file.extend_from_slice(bytes);
                Ok::<(), ()>(())
            })
            .unwrap();
    }
    read_frames(&file)
}

#[test]
fn a_run_becomes_frames() {
    let run = example();
    let parsed = Run::parse(&run).unwrap();
    assert_eq!(parsed.process(), (77, 1234, 2));
    assert_eq!((parsed.tid(), parsed.serial(), parsed.moment()), (78, 5, (9, 8)));
    let mut words = [0; ENTRY_WORDS];
    (words[word::HITS], words[word::BEGUN], words[word::ENDED], words[word::TICKS]) =
        (10, 3, 2, 1000);
    let mut thread_name = [0; 16];
    thread_name[..4].copy_from_slice(b"main");
    let rows = RowsFrame {
        serial: 5,
        block: 0,
        module: 1,
        tid: 78,
        thread_name,
        counters: 1,
        rows: vec![Row { id: 1, words, sums: vec![2, 4096] }],
    };
    let event = Event { id: 1, end: true, ticks: 500, address: 0x1234 };
    assert_eq!(event.to_words(), [1 << 63 | 1, 500, 0x1234]);
    let events =
        EventsFrame { serial: 5, block: 0, module: 1, tid: 78, first: 0, events: vec![event] };
    let module = ModuleFrame {
        number: 1,
        id: [9; 16],
        mode: 3,
        ids: 2,
        ticks_per_second: 1000,
        first: 100,
        gap_mask: 127,
        ..ModuleFrame::default()
    };
    assert_eq!(parsed.blocks().next().unwrap().unwrap().module_frame(), module);
    let expected = vec![LoopFrame::Rows(rows), LoopFrame::Events(events)];
    assert_eq!(frames_of(&run), LoopFrames { frames: expected, torn: 0 });
}

#[test]
fn no_byte_of_a_run_is_trusted() {
    let run = example();
    for length in 0..run.len().min(1200) {
        if let Ok(run) = Run::parse(&run[..length]) {
            run.blocks().flatten().for_each(|block| {
                block.rows().count();
            });
        }
    }
    assert_eq!(Run::parse(&run[..255]).err(), Some(RunError::Inconsistent));
    for at in 0..1000 {
        for value in [0, 1, 0x7f, 0x80, 0xff] {
            let mut damaged = run.clone();
            damaged[at] = value;
            let Ok(run) = Run::parse(&damaged) else { continue };
            for block in run.blocks().flatten() {
                block.rows().count();
                block.events().count();
            }
        }
    }
    let mut later = run.clone();
    later[8] = 3;
    assert_eq!(Run::parse(&later).err(), Some(RunError::Version(3)));
    assert_eq!(Run::parse(&[0; 256]).err(), Some(RunError::NoMagic));
    let mut damaged = run;
    damaged[256 + 4] = 200;
    let blocks: Vec<_> = Run::parse(&damaged).unwrap().blocks().collect();
    assert_eq!(blocks.len(), 1);
    assert!(blocks[0].is_err());
}

#[test]
fn frames_round_trip_and_every_truncation() {
    let costs = Costs { inside: Some([1.0, 2.0, 3.0]), timed: None, counted: Some([0.5; 3]) };
    let module = ModuleFrame {
        number: 3,
        id: [7; 16],
        mode: 1,
        ids: 2,
        ticks_per_second: 62_500_000,
        first: 100,
        gap_mask: 127,
        object: "/lib/x.so".to_owned(),
        table: b"{}".to_vec(),
        costs: Some(costs),
        export: None,
    };
    let frames = vec![
        LoopFrame::Module(ModuleFrame { costs: None, ..module.clone() }),
        LoopFrame::Module(ModuleFrame { export: Some(0), ..module.clone() }),
        LoopFrame::Module(module),
        LoopFrame::Moment(1, u64::MAX),
        LoopFrame::Reading([1.5, 2.0, 900.0]),
        LoopFrame::Code(CodeFrame {
            module: 3,
            descriptor: 0x4040,
            machine: 62,
            build_id: vec![1, 2, 3],
            file_bytes: 1 << 40,
            modified_ns: u64::MAX,
            kept: Some(0),
            pieces: vec![(0, 4096), (u64::MAX, 1)],
            callees: vec![
                Callee { slot: 0x5000, function: 0x7000, name: "expf".into() },
                Callee { slot: 0, function: u64::MAX, name: String::new() },
            ],
        }),
        LoopFrame::Code(CodeFrame { pieces: vec![(1, 2)], ..CodeFrame::default() }),
        LoopFrame::Code(CodeFrame::default()),
        LoopFrame::Trips(TripsFrame {
            serial: 5,
            block: 1,
            rows: vec![
                (3, Trips { least: 1, most: u64::MAX, first: 9, buckets: vec![0, 7, 1] }),
                (4, Trips { least: 2, most: 2, first: 0, buckets: vec![] }),
            ],
        }),
        frames_of(&example()).frames.remove(0),
    ];
    let bytes: Vec<u8> = frames.iter().flat_map(LoopFrame::to_bytes).collect();
    assert_eq!(read_frames(&bytes), LoopFrames { frames: frames.clone(), torn: 0 });
    let ends: Vec<usize> = frames
        .iter()
        .scan(0, |at, frame| {
            *at += frame.to_bytes().len();
            Some(*at)
        })
        .collect();
    for cut in 0..bytes.len() {
        let read = read_frames(&bytes[..cut]);
        let whole = ends.iter().filter(|end| **end <= cut).count();
        assert_eq!(read.frames, frames[..whole], "cut at {cut}");
        let torn = u64::from(cut != 0 && !ends.contains(&cut));
        assert_eq!(read.torn, torn, "cut at {cut}");
    }
    // One frame is truncated, and complete frames follow it.
    for cut in 1..ends[1] - ends[0] {
        let mut damaged = bytes[..ends[0] + cut].to_vec();
        damaged.extend_from_slice(&bytes[ends[1]..]);
        let read = read_frames(&damaged);
        let expected = [&frames[..1], &frames[2..]].concat();
        assert_eq!((read.frames, read.torn), (expected, 1), "cut at {cut}");
    }
}

/// The first block of the run has two ids with four buckets each. The first id has no hits, so its
/// `least` has the initial value `u64::MAX`.
#[test]
fn iterations_of_single_hits_become_frames() {
    let mut run = example();
    let shape = Shape { ids: 2, counters: 1, events: 2, buckets: 4 };
    // The iterations of single hits take 2 · (4 + 4) · 8 bytes.
    assert_eq!((shape.events_offset(), shape.trips_offset(), shape.bytes()), (416, 464, 640));
    let first = 256;
    // The first block becomes longer, and overwrites the second block of the example.
    put(&mut run, 56, (first + 640) as u64);
    put(&mut run, first + 16, 640);
    put32(&mut run, first + 92, 4);
    run[first + 464..first + 640].fill(0);
    put(&mut run, first + 464, u64::MAX);
    for (word, value) in [(0, 2), (1, 3), (2, 5), (3, 3), (6, 9)] {
        put(&mut run, first + 464 + 64 + 8 * word, value);
    }
    let trips = Trips { least: 2, most: 3, first: 5, buckets: vec![0, 0, 9] };
    let expected = LoopFrame::Trips(TripsFrame { serial: 5, block: 0, rows: vec![(1, trips)] });
    let read = frames_of(&run);
    assert_eq!((read.frames.len(), read.torn), (3, 0));
    assert_eq!(read.frames[1], expected);
    put32(&mut run, 8, 1);
    assert_eq!(Run::parse(&run).err(), Some(RunError::Version(1)));
    put32(&mut run, 8, RUN_VERSION);
    // The maximum is 64 buckets.
    put32(&mut run, first + 92, 65);
    assert!(Run::parse(&run).unwrap().blocks().next().unwrap().is_err());
}
