//! The tests write tables by hand, in the layout that docs/file-format.md describes.

use super::*;

/// Makes a table of one page. It belongs to thread 3 (the kernel's id is 11) in process 10, which
/// has the start time 99 and the generation 1.
fn table(entries: u32, rows: &[(usize, [u64; 8])]) -> Vec<u8> {
    let mut bytes = vec![0u8; PAGE_BYTES];
    let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
    put(0, b"CPTCNTS1");
    for (at, value) in [(8, 2), (12, 1), (16, 10), (20, 1), (32, 3), (36, 11), (40, entries)] {
        put(at, &u32::to_le_bytes(value));
    }
    for (at, value) in [(24, 99), (48, 5_000_000), (56, 40_000), (64, 12), (72, 900)] {
        put(at, &u64::to_le_bytes(value));
    }
    for (export, words) in rows {
        for (i, word) in words.iter().enumerate() {
            put(256 + 128 * export + 8 * i, &word.to_le_bytes());
        }
    }
    bytes
}

#[test]
fn a_table_says_what_was_called() {
    let bytes = table(3, &[(0, [7, 9, 5, 0, 4, 2, 900, 0]), (2, [1, 0, 0, 0, 0, 0, 0, 0])]);
    let table = Table::parse(&bytes).unwrap();
    assert_eq!(table.process(), (10, 99, 1));
    assert_eq!(table.part(), "10-99-1");
    let expected = CountsFrame {
        thread_uid: 3,
        tid: 11,
        spent: Spent { cpu_ns: 5_000_000, price_ns: 40_000, told_calls: 12, told_ns: 900 },
        rows: vec![
            CountsRow { export: 0, calls: 7, timed: 4, counted: 2 },
            CountsRow { export: 2, calls: 1, timed: 0, counted: 0 },
        ],
        steps: None,
    };
    assert_eq!(table.frame(), expected);
}

/// Export 2 had 6 calls in each of 5 steps of weight 1. For the 11 steps that were away, 66 calls
/// are estimated.
#[test]
fn a_table_says_what_is_known_by_steps() {
    let mut bytes = table(3, &[(2, [96, 0, 0, 0, 0, 0, 0, 0])]);
    let mut put = |at: usize, value: u64| bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
    // The words for steps: sampled, weight, squared weight, away before, away.
    [5, 5, 5, 0, 11].iter().enumerate().for_each(|(i, word)| put(80 + 8 * i, *word));
    // The words of the entry: calls before the step, sum, squares, unseen, always, in cut.
    [90, 30, 180, 66, 0, 4]
        .iter()
        .enumerate()
        .for_each(|(i, word)| put(256 + 256 + 64 + 8 * i, *word));
    let frame = Table::parse(&bytes).unwrap().frame();
    let found = frame.steps.expect("steps");
    let expected = Steps { sampled: 5, weight: 5, squared_weight: 5, away: 11, ..Steps::default() };
    assert_eq!(found.steps, expected);
    assert_eq!(
        found.rows,
        [SampledCalls { export: 2, sum: 30, squares: 180, unseen: 66, in_cut: 4 }]
    );
    assert_eq!(Steps::from_words(found.steps.to_words()), found.steps);
}

#[test]
fn what_is_not_a_table_is_refused() {
    let whole = table(3, &[]);
    assert_eq!(Table::parse(&whole[..255]).unwrap_err(), TableError::NoMagic);
    assert_eq!(Table::parse(&vec![0; PAGE_BYTES]).unwrap_err(), TableError::NoMagic);
    let mut later = whole.clone();
    later[8] = 3;
    assert_eq!(Table::parse(&later).unwrap_err(), TableError::Version(3));
    let mut empty = whole.clone();
    empty[12] = 0;
    assert_eq!(Table::parse(&empty).unwrap_err(), TableError::Inconsistent);
    // (65536 - 256) / 128 = 510 entries fit into a page.
    assert!(Table::parse(&table(510, &[])).is_ok());
    assert_eq!(Table::parse(&table(511, &[])).unwrap_err(), TableError::Inconsistent);
    assert_eq!(Table::parse(&whole[..PAGE_BYTES - 1]).unwrap_err(), TableError::Inconsistent);
    assert_eq!((entries_in(1), pages_for(510), pages_for(511)), (510, 1, 2));
}

fn frames() -> [CountsFrame; 2] {
    let row = |export, calls| CountsRow { export, calls, timed: 3, counted: 1 };
    let spent = Spent { cpu_ns: 1 << 40, price_ns: 77, told_calls: 6, told_ns: 5 };
    let rows = vec![row(1, 1 << 50), row(u32::MAX, 4)];
    let some = Steps { sampled: 5, weight: 9, away: 70, ..Steps::default() };
    let steps = Steps { away_spread: 3, of_thread: 1_900, ..some };
    let sampled = vec![SampledCalls { export: 1, sum: 18, squares: 40, unseen: 140, in_cut: 2 }];
    let steps = ThreadSteps { steps, rows: sampled };
    [
        CountsFrame { thread_uid: 0, tid: 100, spent, rows, steps: Some(steps) },
        CountsFrame { thread_uid: 1, tid: 101, ..CountsFrame::default() },
    ]
}

/// In earlier versions, a frame ended before the last field of the steps.
#[test]
fn a_frame_of_an_earlier_version_has_no_last_field_of_steps() {
    let [CountsFrame { steps: Some(mut of), .. }, _] = frames() else { panic!("no steps") };
    let mut e = Encoder::new();
    of.put(&mut e);
    let bytes = e.finish();
    assert_eq!(ThreadSteps::get(&mut Decoder::new(&bytes)), Ok(of.clone()));
    of.steps.of_thread = 0;
    assert_eq!(ThreadSteps::get(&mut Decoder::new(&bytes[..bytes.len() - 8])), Ok(of));
}

#[test]
fn frames_are_read_as_they_were_written() {
    let bytes: Vec<u8> = frames().iter().flat_map(CountsFrame::to_bytes).collect();
    let expected = CountsFrames { frames: frames().to_vec(), torn: 0 };
    assert_eq!(read_frames(&bytes), expected);
    // A frame of a kind that only a later version knows is skipped.
    let mut later = frame(9, b"what");
    later.extend(&bytes);
    assert_eq!(read_frames(&later), expected);
}

#[test]
fn damage_costs_only_the_frame_that_it_hits() {
    let [first, second] = frames();
    let bytes = first.to_bytes();
    for cut in 1..bytes.len() {
        let mut damaged = bytes[..cut].to_vec();
        damaged.extend(second.to_bytes());
        let read = read_frames(&damaged);
        assert_eq!((read.frames, read.torn), (vec![second.clone()], 1), "cut at {cut}");
    }
    // The payload states more rows than it can contain, and its checksum is right.
    let mut payload = first.to_bytes()[crate::meta::FRAME_PREFIX_BYTES..].to_vec();
    payload[24..28].copy_from_slice(&u32::MAX.to_le_bytes());
    assert_eq!(read_frames(&frame(KIND_COUNTS, &payload)).torn, 1);
}
