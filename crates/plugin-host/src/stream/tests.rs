//! Tests that the reader returns what the writer has written, and that it survives damaged streams.

use super::*;
use crate::entry::{Argument, Id, Value};

#[derive(Default)]
struct Lines(Vec<String>);

impl Sink for Lines {
    fn kind(&mut self, number: u32, name: &str, base: u32) {
        self.0.push(format!("{number} {name} {base}"));
    }
    fn plugin(&mut self, name: &[u8]) {
        self.0.push(format!("plugin {name:?}"));
    }
    fn doing(&mut self, what: &[u8]) {
        self.0.push(format!("doing {what:?}"));
    }
    fn message(&mut self, message: &Message<'_>) {
        self.0.push(format!("{message:?}"));
    }
    fn field(&mut self, key: &[u8], json: &[u8]) {
        self.0.push(format!("{key:?} {json:?}"));
    }
    fn entry(&mut self, entry: &Entry<'_>) {
        self.0.push(format!("{entry:?}"));
    }
    fn event(&mut self, event: &Event, name: &[u8], metadata: &Metadata) {
        let pairs: Vec<_> = metadata.iter().collect();
        self.0.push(format!("{event:?} {name:?} {pairs:?}"));
    }
    fn device(&mut self, device: i64, sort_index: i64, name: Option<&[u8]>, label: &[u8]) {
        self.0.push(format!("{device} {sort_index} {name:?} {label:?}"));
    }
    fn resource(&mut self, device: i32, resource: i32, order: i32, name: Option<&[u8]>) {
        self.0.push(format!("{device} {resource} {order} {name:?}"));
    }
    fn thread_name(&mut self, process: i32, thread: i32, name: &[u8]) {
        self.0.push(format!("{process} {thread} {name:?}"));
    }
    fn counter(&mut self, counter: &Counter<'_>) {
        self.0.push(format!("{counter:?}"));
    }
}

fn feed(sink: &mut dyn Sink) {
    sink.kind(1024, "tile", 6);
    let mut metadata = Metadata::default();
    metadata.push(b"key", b"{\"a\":1}");
    metadata.push(b"", b"");
    let event = Event {
        event_type: 6,
        start_ns: i64::MAX,
        end_ns: i64::MAX,
        id: i64::MIN,
        device: -1,
        resource: i32::MAX,
        flow: Some(Flow { flow_type: 2, id: u32::MAX, is_start: true }),
    };
    sink.event(&event, b"name", &metadata);
    let early = Event { start_ns: i64::MIN, end_ns: i64::MAX, flow: None, ..event };
    sink.event(&early, b"\xff", &Metadata::default());
    sink.event(&event, b"name", &metadata);
    sink.device(i64::MIN, -7, None, b"label");
    sink.resource(3, 7, -1, Some(b"stream"));
    sink.thread_name(1, 2, b"thread");
    let (track, series, unit) = (&b"track"[..], &b"series"[..], &b"W"[..]);
    sink.counter(&Counter { time_ns: 5, device: 3, track, series, unit, value: -0.5 });
    sink.plugin(b"/opt/plugin.so");
    sink.doing(b"in profilerStop");
    sink.message(&Message { level: 4, loses: true, count: u64::MAX, text: b"failed" });
    sink.field(b"baseTimeNanoseconds", b"1790857026000000000");
    let long = vec![b'x'; 1025];
    let arguments = [
        Argument { key: b"a", value: Value::Integer(i64::MIN) },
        Argument { key: b"b", value: Value::Unsigned(u64::MAX) },
        Argument { key: b"c", value: Value::Text(b"\"\xff") },
        Argument { key: b"c", value: Value::Json(b"[1]") },
        Argument { key: b"", value: Value::Json(&long) },
    ];
    let slice = Entry {
        phase: b'X',
        name: b"aten::relu",
        category: Some(b"cpu_op"),
        process: Id::Number(i64::MIN),
        thread: Id::Text(b"row"),
        time_ns: i64::MIN,
        duration_ns: Some(u64::MAX),
        id: None,
        scope: None,
        arguments: &arguments,
    };
    sink.entry(&slice);
    let (process, thread) = (Id::Text(b""), Id::Number(7));
    sink.entry(&Entry {
        process,
        thread,
        category: None,
        id: Some(-1),
        scope: Some(b'g'),
        ..slice
    });
    sink.entry(&Entry { time_ns: i64::MAX, duration_ns: None, arguments: &[], ..slice });
}

#[test]
fn values_that_are_too_long_are_counted() {
    let long = vec![b'1'; (16 << 20) + 1];
    let arguments = [
        Argument { key: b"long", value: Value::Json(&long) },
        Argument { key: b"short", value: Value::Integer(1) },
    ];
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes, None);
    writer.field(b"long", &long);
    writer.entry(&Entry {
        phase: b'i',
        name: b"moment",
        category: None,
        process: Id::Number(1),
        thread: Id::Number(2),
        time_ns: 3,
        duration_ns: None,
        id: None,
        scope: Some(b't'),
        arguments: &arguments,
    });
    assert_eq!(writer.finish().expect("a Vec takes all"), 2);
    let mut lines = Lines::default();
    let ending = Reader::new(&bytes[..]).replay(&mut lines);
    assert_eq!(ending.expect("reads"), Ending::Whole { dropped: 2 });
    assert!(lines.0.len() == 1 && lines.0[0].contains("Integer(1)"), "{lines:?}", lines = lines.0);
}

fn written(limit: Option<u64>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes, limit);
    feed(&mut writer);
    writer.finish().expect("a Vec takes all");
    bytes
}

#[test]
fn what_goes_in_comes_out() {
    let mut expected = Lines::default();
    feed(&mut expected);
    let mut lines = Lines::default();
    let bytes = written(None);
    let ending = Reader::new(&bytes[..]).replay(&mut lines);
    assert_eq!(ending.expect("reads"), Ending::Whole { dropped: 0 });
    assert_eq!(lines.0, expected.0);
    assert_eq!(bytes.windows(4).filter(|window| window == b"name").count(), 1, "interned");
}

#[test]
fn a_stream_may_end_anywhere() {
    let bytes = written(None);
    let mut whole = Lines::default();
    feed(&mut whole);
    for length in 0..bytes.len() {
        let mut lines = Lines::default();
        let ending = Reader::new(&bytes[..length]).replay(&mut lines);
        assert_eq!(ending.expect("reads"), Ending::Cut);
        assert_eq!(lines.0, whole.0[..lines.0.len()]);
    }
}

#[test]
fn beyond_the_limit_events_are_counted() {
    let (mut lines, bytes) = (Lines::default(), written(Some(40)));
    let ending = Reader::new(&bytes[..]).replay(&mut lines).expect("reads");
    let Ending::Whole { dropped } = ending else { panic!("{ending:?}") };
    assert_eq!(dropped as usize + lines.0.len(), 15);
    assert!(dropped > 0 && !lines.0.is_empty());
}

#[test]
fn damaged_bytes_are_said_and_cost_no_memory() {
    let bytes = written(None);
    // Reading must end without a panic, whichever byte is damaged.
    for at in 0..bytes.len() {
        for value in [0, 1, 2, 8, 0x7f, 0x80, 0xff] {
            let mut bytes = bytes.clone();
            bytes[at] = value;
            let mut lines = Lines::default();
            Reader::new(&bytes[..]).replay(&mut lines).expect("reads");
            assert!(lines.0.len() <= bytes.len());
        }
    }
    let mut wrong = bytes;
    wrong[0] = b'X';
    let ending = Reader::new(&wrong[..]).replay(&mut Lines::default());
    assert_eq!(ending.expect("reads"), Ending::Damaged { at: 8 });
}

struct Bytes(u64);

impl Sink for Bytes {
    fn event(&mut self, _: &Event, _: &[u8], metadata: &Metadata) {
        self.0 += metadata.iter().map(|(key, value)| (key.len() + value.len()) as u64).sum::<u64>();
    }
    fn device(&mut self, _: i64, _: i64, _: Option<&[u8]>, _: &[u8]) {}
    fn resource(&mut self, _: i32, _: i32, _: i32, _: Option<&[u8]>) {}
    fn thread_name(&mut self, _: i32, _: i32, _: &[u8]) {}
    fn counter(&mut self, _: &Counter<'_>) {}
}

/// Tests a stream of many short events with the same long key, which a profile would contain many
/// times.
#[test]
fn few_bytes_do_not_become_many() {
    let repeat = |length: usize, events: u64| {
        let mut writer = Writer::new(Vec::new(), None);
        let mut metadata = Metadata::default();
        assert!(metadata.push(&vec![b'k'; length], b"1"));
        for _ in 0..events {
            writer.event(&Event::default(), b"x", &metadata);
        }
        writer.flush().expect("memory");
        let bytes = writer.out.clone();
        let mut sink = Bytes(0);
        let ending = Reader::new(&bytes[..]).replay(&mut sink).expect("reads");
        (ending, sink.0, bytes.len() as u64)
    };
    let (ending, got, had) = repeat(60_000, 20_000);
    assert!(matches!(ending, Ending::Damaged { .. }), "{ending:?}");
    assert!(got <= REPEATED_ANYWAY + (MOST_REPEATS + 1) * had, "{had} bytes became {got}");
    // Events with a key of 100 bytes are all read; only the end record is missing, because the
    // writer was not finished.
    let (ending, got, _) = repeat(100, 200_000);
    assert_eq!((ending, got), (Ending::Cut, 200_000 * 101));
}
