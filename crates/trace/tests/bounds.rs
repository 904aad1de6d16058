//! Tests traces of a few megabytes that are made to cost minutes, or gigabytes of memory and disk.
//! Most of these tests measure neither time nor memory: if the code is wrong, they take minutes.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use model::activity::Value;
use trace::chrome::event::Event;
use trace::chrome::read::{EventSink, ReadSummary};
use trace::perfetto::write::{PerfettoHead, Writer};
use trace::timeline::{Arg, ArgValue, Id, Row, SeriesPoint, TimelineSink};

/// How much an import would store.
#[derive(Default)]
struct Kept {
    events: usize,
    args: usize,
    longest_name: usize,
    categories: usize,
}

impl EventSink for Kept {
    fn event(&mut self, _: u64, event: &Event<'_>) -> Result<(), String> {
        self.events += 1;
        self.args += event.args.map_or(0, |args| args.get().len());
        self.longest_name = self.longest_name.max(event.name.as_deref().map_or(0, str::len));
        self.categories += event.category.as_deref().map_or(0, str::len);
        Ok(())
    }

    fn top(&mut self, _: u64, _: &str, _: trace::chrome::event::Raw<'_>) -> Result<(), String> {
        Ok(())
    }
}

fn varint(mut n: u64) -> Vec<u8> {
    let mut out = Vec::new();
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
    out
}

fn number(field: u32, n: u64) -> Vec<u8> {
    [varint(u64::from(field << 3)), varint(n)].concat()
}

fn bytes(field: u32, bytes: &[u8]) -> Vec<u8> {
    [varint(u64::from(field << 3 | 2)), varint(bytes.len() as u64), bytes.to_vec()].concat()
}

/// A packet of sequence 1.
fn packet(flags: u64, fields: &[Vec<u8>]) -> Vec<u8> {
    let fields = fields.concat();
    bytes(1, &[number(10, 1), number(13, flags), fields].concat())
}

fn event(kind: u64, at: u64, track: u64, fields: &[Vec<u8>]) -> Vec<u8> {
    let event = [number(9, kind), number(11, track), fields.concat()].concat();
    packet(2, &[number(8, at), bytes(11, &event)])
}

fn read(trace: &[u8]) -> (Kept, ReadSummary) {
    let mut kept = Kept::default();
    let summary = trace::perfetto::read::read(trace, &mut kept).unwrap();
    (kept, summary)
}

const INSTANT: u64 = 3;
const BEGIN: u64 = 1;

/// A text with the number 1 for one of the tables of texts.
fn interned(table: u32, text: &[u8]) -> Vec<u8> {
    bytes(12, &bytes(table, &[number(1, 1), bytes(2, text)].concat()))
}

/// Events refer to a text of 256 KiB by its number: as the value of an argument, as the key of an
/// argument, or as a category.
#[test]
fn texts_that_events_name_by_number() {
    let text = vec![b'a'; 1 << 18];
    for (table, field) in [
        (29, bytes(4, &[bytes(10, b"key"), number(17, 1)].concat())),
        (3, bytes(4, &[number(1, 1), number(3, 5)].concat())),
        (3, bytes(4, &bytes(11, &[number(1, 1), number(3, 5)].concat()))),
        (1, number(3, 1)),
    ] {
        let mut trace = packet(1, &[interned(table, &text)]);
        (0..1_000).for_each(|at| trace.extend(event(INSTANT, at, 5, std::slice::from_ref(&field))));
        let (kept, summary) = read(&trace);
        assert_eq!(kept.events, 1_000);
        let made = kept.args + kept.categories;
        assert!(made > text.len(), "table {table}: {made} bytes; the first ones are there");
        assert!(made < (17 << 20) + 128 * trace.len(), "table {table}: {made} bytes");
        assert!(summary.lost > 0, "table {table}: what is missing is counted");
    }
}

/// All events have the same name of 1 MiB, of which the reader must keep only 64 KiB.
#[test]
fn a_long_name_that_events_name_by_number() {
    let mut trace = packet(1, &[interned(2, &vec![b'a'; 1 << 20])]);
    (0..20).for_each(|at| trace.extend(event(INSTANT, at, 5, &[number(10, 1)])));
    assert_eq!(read(&trace).0.longest_name, 1 << 16);
}

/// A process is described with its long name, and then many times without. The reader must not
/// repeat the name.
#[test]
fn a_process_is_named_once() {
    let process =
        |fields: &[Vec<u8>]| packet(0, &[bytes(60, &[number(1, 5), fields.concat()].concat())]);
    let mut trace = process(&[bytes(3, &[number(1, 7), bytes(6, &[b'p'; 10_000])].concat())]);
    (0..1_000).for_each(|_| trace.extend(process(&[])));
    assert!(read(&trace).0.args < 2 * trace.len());
}

/// The trace has more open slices than the reader keeps (`MOST_WAITING`), each in its own row. A
/// reader must not search all rows again for each further slice.
#[test]
fn open_slices_of_many_rows() {
    let mut trace = packet(1, &[]);
    (0..300_000).for_each(|at| trace.extend(event(BEGIN, at, 5 + at, &[])));
    assert_eq!(read(&trace).0.events, 300_000);
}

/// Each slice begins before all other open slices of its track.
#[test]
fn open_slices_in_the_wrong_order() {
    let mut trace = packet(1, &[]);
    (0..200_000).for_each(|i| trace.extend(event(BEGIN, 1_000_000 - i, 5, &[])));
    assert_eq!(read(&trace).0.events, 200_000);
}

/// The writer must not search through all series for each value.
#[test]
fn a_counter_with_many_series() {
    let mut writer = Writer::new(Vec::new(), &PerfettoHead::default()).unwrap();
    for at_ns in 0..100_000 {
        let key = format!("series {at_ns}");
        let series = [Arg { key: &key, value: ArgValue::Plain(Value::Int(at_ns)) }];
        let row = Row { process: Id::Number(1), thread: Id::Number(1) };
        let (category, name) = ("c", "n");
        let point =
            SeriesPoint { row, category, name, at_ns, series: &series, label: None, units: &[] };
        writer.counter(&point).unwrap();
    }
    let written = writer.finish([]).unwrap();
    assert!(written.len() > 100_000 * "series 00000".len());
}
