//! Runs readers and writers on random bytes and events, for fuzzers and for tests. The public
//! functions panic if a reader or writer does not behave as it should.

#![allow(dead_code, reason = "each fuzzer uses one of them")]

use std::borrow::Cow;

use model::activity::{FlowKind, Value as Word};
use serde_json::{Map, Value, json};
use trace::chrome::event::{Event, Raw, Scalar};
use trace::chrome::read::{EventSink, ReadSummary, read};
use trace::chrome::write::{ChromeHead, RawEvent, Writer};
use trace::perfetto;
use trace::timeline::{
    Arg, ArgValue, Flow, FlowEnd, Id, Instant, ProcessRow, Row, SeriesPoint, Slice, ThreadRow,
    TimelineSink,
};

/// Random bytes, from which this module decides what to make.
pub struct Choices<'a>(pub &'a [u8]);

impl<'a> Choices<'a> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    fn below(&mut self, end: usize) -> usize {
        usize::from(self.byte()) % end.max(1)
    }

    fn number(&mut self) -> u64 {
        let kind = self.below(6);
        let small = u64::from(self.byte());
        match kind {
            0..=2 => small,
            3 => u64::MAX - small,
            4 => 1 << (small % 64),
            _ => (0..8).fold(0, |n, _| n << 8 | u64::from(self.byte())),
        }
    }

    /// Returns a text. Bytes that are not UTF-8 are replaced, as readers do in the names of
    /// programs.
    fn text(&mut self) -> Cow<'a, str> {
        let length = self.below(24).min(self.0.len());
        let (text, rest) = self.0.split_at(length);
        self.0 = rest;
        String::from_utf8_lossy(text)
    }
}

#[derive(Default)]
struct Again {
    document: Map<String, Value>,
    events: Vec<Vec<u8>>,
}

fn scalar(scalar: Option<&Scalar<'_>>) -> Option<String> {
    Some(match scalar? {
        Scalar::Int(n) => n.to_string(),
        Scalar::Big(n) => n.to_string(),
        Scalar::Float(x) => x.to_string(),
        Scalar::Text(text) => Value::from(&**text).to_string(),
    })
}

impl EventSink for Again {
    fn event(&mut self, _: u64, event: &Event<'_>) -> Result<(), String> {
        let quoted = |text: &Cow<'_, str>| Value::from(&**text).to_string();
        let mut more: Vec<(&str, String)> = Vec::new();
        more.extend(event.binding.as_ref().map(|b| ("bp", quoted(b))));
        more.extend(event.scope.as_ref().map(|s| ("s", quoted(s))));
        more.extend(event.other.iter().map(|(key, value)| (&**key, value.get().to_owned())));
        let more: Vec<(&str, &str)> = more.iter().map(|(key, v)| (*key, v.as_str())).collect();
        let [process, thread, id] = [&event.pid, &event.tid, &event.id].map(|s| scalar(s.as_ref()));
        let raw = RawEvent {
            phase: event.phase,
            category: event.category.as_deref(),
            name: event.name.as_deref(),
            process: process.as_deref(),
            thread: thread.as_deref(),
            time_ns: event.time_ns,
            duration_ns: event.duration_ns,
            exact_time: event.exact_time.map(|raw| raw.get()),
            exact_duration: event.exact_duration.map(|raw| raw.get()),
            id: id.as_deref(),
            args: event.args.map(|raw| raw.get()),
            more: &more,
            others: None,
        };
        let mut writer = Writer::again(Vec::new(), &Map::new()).map_err(|e| e.to_string())?;
        writer.raw(&raw).map_err(|e| e.to_string())?;
        self.events.push(writer.finish_again().map_err(|e| e.to_string())?);
        Ok(())
    }

    fn top(&mut self, _: u64, key: &str, value: Raw<'_>) -> Result<(), String> {
        if let Ok(value) = value.parse() {
            self.document.insert(key.to_owned(), value);
        }
        Ok(())
    }
}

impl Again {
    /// Reads a document, and writes each of its events alone as JSON.
    fn of(bytes: &[u8]) -> (Self, Option<ReadSummary>) {
        let mut again = Self::default();
        let summary = read(bytes, &mut again).ok();
        (again, summary)
    }

    fn text(&self) -> Vec<u8> {
        let mut text = b"{\"traceEvents\": [".to_vec();
        for (i, event) in self.events.iter().enumerate() {
            if i > 0 {
                text.push(b',');
            }
            let alone = std::str::from_utf8(event).expect("the writer emits UTF-8");
            let from = alone.find('[').expect("the document has a list of events") + 1;
            let to = alone.rfind(']').expect("the document has a list of events");
            text.extend_from_slice(&alone.as_bytes()[from..to]);
        }
        text.extend_from_slice(b"]");
        for (key, value) in &self.document {
            text.extend(format!(",{}:{value}", Value::from(key.as_str())).into_bytes());
        }
        text.push(b'}');
        text
    }
}

/// Reading must end with a result or an error. What was read must be the same after it is written
/// and read again.
pub fn chrome(bytes: &[u8]) {
    let report = trace::chrome::check::check(bytes);
    let (first, summary) = Again::of(bytes);
    if let (Some(summary), Ok(_)) = (summary, report) {
        assert_eq!(summary.events, first.events.len() as u64);
    }
    if first.document.contains_key("traceEvents") {
        return; // The key has an escape, and its value is not a list.
    }
    let text = first.text();
    let (second, summary) = Again::of(&text);
    let shown = || String::from_utf8_lossy(&text).into_owned();
    let summary = summary.unwrap_or_else(|| panic!("does not read again: {}", shown()));
    assert!(!summary.truncated && summary.mended == 0, "{}", shown());
    assert_eq!(second.document, first.document, "{}", shown());
    assert_eq!(second.events, first.events, "{}", shown());
}

/// Reading must end with a result. If the result is written in Chrome's format and read again, it
/// must be the same.
pub fn packets(bytes: &[u8]) {
    let _ = trace::perfetto::check::check(bytes);
    let _ = trace::kind::open(bytes);
    let mut first = Again::default();
    let summary = perfetto::read::read(bytes, &mut first).expect("the sink refuses nothing");
    assert_eq!(summary.events, first.events.len() as u64);
    first.document.remove("traceEvents");
    let text = first.text();
    let (second, summary) = Again::of(&text);
    let shown = || String::from_utf8_lossy(&text).into_owned();
    let summary = summary.unwrap_or_else(|| panic!("does not read again: {}", shown()));
    assert!(!summary.truncated && summary.mended == 0 && summary.damaged == 0, "{}", shown());
    assert_eq!(second.document, first.document, "{}", shown());
    assert_eq!(second.events, first.events, "{}", shown());
}

/// Writes random arguments as Chrome JSON, which must contain the same values.
pub fn values(bytes: &[u8]) {
    let mut choices = Choices(bytes);
    let mut events: Vec<Value> = Vec::new();
    let mut out = Writer::new(Vec::new(), &ChromeHead::default()).expect("write to memory");
    while !choices.0.is_empty() && events.len() < 50 {
        let mut keys: Vec<String> = (0..choices.below(6)).map(|_| choices.text().into()).collect();
        keys.sort();
        keys.dedup();
        let mut expected = Map::new();
        let texts: Vec<String> = keys.iter().map(|_| choices.text().into()).collect();
        let nests: Vec<String> = keys.iter().map(|_| nest(&mut choices)).collect();
        let mut args = Vec::new();
        for (i, key) in keys.iter().enumerate() {
            let (value, meant) = match choices.below(8) {
                0 => (Word::Null, Value::Null),
                1 => (Word::Bool(true), json!(true)),
                2 => {
                    let n = choices.number() as i64;
                    (Word::Int(n), json!(n))
                }
                3 => {
                    let n = choices.number();
                    (Word::Uint(n), json!(n))
                }
                4 => {
                    let x = f64::from_bits(choices.number());
                    // JSON has neither infinities nor NaN.
                    (Word::Float(x), if x.is_finite() { json!(x) } else { Value::Null })
                }
                5 => (Word::Float(f64::NAN), Value::Null),
                6 => (Word::Text(&texts[i]), json!(texts[i])),
                _ => {
                    let meant =
                        serde_json::from_str(&nests[i]).expect("the generated JSON is valid");
                    (Word::Json(&nests[i]), meant)
                }
            };
            args.push(Arg { key, value: ArgValue::Plain(value) });
            expected.insert(key.clone(), meant);
        }
        let (name, category) = (choices.text(), choices.text());
        let start_ns = (choices.number() >> 12) as i64;
        let instant = Instant {
            row: Row { process: Id::Text(&name), thread: Id::Number(choices.number() as i64) },
            category: &category,
            name: &name,
            at_ns: start_ns,
            args: &args,
            flows: &[],
        };
        out.instant(&instant).expect("write to memory");
        events.push(json!({"name": name, "cat": category, "args": expected}));
    }
    let text = out.finish("last", &json!({}), "t").expect("write to memory");
    let read: Value = serde_json::from_slice(&text).expect("the output is JSON");
    let written = read["traceEvents"].as_array().expect("the document has a list of events");
    assert_eq!(written.len(), events.len());
    for (written, meant) in written.iter().zip(&events) {
        for key in ["name", "cat"] {
            assert_eq!(written[key], meant[key]);
        }
        let (written, meant) = (&written["args"], &meant["args"]);
        let (written, meant) =
            (written.as_object().expect("args"), meant.as_object().expect("args"));
        assert_eq!(written.len(), meant.len());
        for (key, value) in meant {
            let same = match (written[key].as_f64(), value.as_f64()) {
                (Some(a), Some(b)) if value.is_f64() => a.to_bits() == b.to_bits(),
                _ => written[key] == *value,
            };
            assert!(same, "{key:?}: {} was {value}", written[key]);
        }
    }
    let (again, summary) = Again::of(&text);
    assert!(summary.is_some_and(|s| s.mended == 0 && s.events == again.events.len() as u64));
}

fn nest(choices: &mut Choices<'_>) -> String {
    let depth = choices.below(100);
    let list = choices.below(2) == 0;
    let (open, close) = if list { ("[", "]") } else { ("{\"a\":", "}") };
    format!("{}{}{}", open.repeat(depth), choices.number(), close.repeat(depth))
}

/// Packets must be well formed, each slice must begin and end, and the names of slices must be
/// unchanged.
pub fn perfetto(bytes: &[u8]) {
    let mut choices = Choices(bytes);
    let head = perfetto::write::PerfettoHead { clocks: vec![(1_000, 10)], compress: false };
    let mut out = perfetto::write::Writer::new(Vec::new(), &head).expect("write to memory");
    let (mut slices, mut names) = (0usize, Vec::new());
    for _ in 0..60 {
        if choices.0.is_empty() {
            break;
        }
        let (name, text) = (choices.text(), choices.text());
        let process = match choices.below(3) {
            0 => Id::Text(&text),
            _ => Id::Number(choices.number() as i64),
        };
        let row = Row { process, thread: Id::Number(choices.below(3) as i64) };
        let at_ns = (choices.number() >> choices.below(20)) as i64;
        let plain = [
            Word::Null,
            Word::Bool(true),
            Word::Int(choices.number() as i64),
            Word::Uint(choices.number()),
            Word::Float(f64::from_bits(choices.number())),
            Word::Text(&text),
            Word::Json("{\"a\":[1,{}]}"),
        ];
        let mut args = vec![Arg { key: &text, value: ArgValue::Plain(plain[choices.below(7)]) }];
        args.push(Arg::triple("t", [choices.below(2) as u32, 0, 7]));
        let kind = FlowKind::HostToDevice;
        let end = if choices.below(2) == 0 { FlowEnd::Start } else { FlowEnd::Finish };
        let flows = [Flow { kind: &kind, id: choices.number(), end }];
        let result = match choices.below(6) {
            0 => out.process(&ProcessRow {
                id: process,
                name: &name,
                labels: &text,
                sort_index: 1,
                at_ns,
            }),
            1 => out.thread(&ThreadRow { row, name: &name, sort_index: 2, at_ns }),
            2 => {
                let series = [Arg { key: &text, value: args[0].value }];
                let units = [(&*text, "ns")];
                let (category, name, series, units) = ("c", &*name, &series[..], &units[..]);
                out.counter(&SeriesPoint { row, category, name, at_ns, series, label: None, units })
            }
            3 => {
                let (category, name, args) = ("c", &*name, &args[..]);
                out.instant(&Instant { row, category, name, at_ns, args, flows: &flows })
            }
            _ => {
                slices += 1;
                names.push(name.to_string());
                out.slice(&Slice {
                    row,
                    category: "kernel",
                    name: &name,
                    start_ns: at_ns,
                    duration_ns: choices.number() >> choices.below(40),
                    args: &args,
                    shape: None,
                    label: None,
                    flows: &flows[..choices.below(2)],
                    counters: &[],
                })
            }
        };
        result.expect("write to memory");
    }
    let written = out.finish([("counterpoint", &json!({"a": 1}))]).expect("write to memory");
    let (mut begins, mut ends) = (0, 0);
    for (number, packet) in fields(&written).expect("a trace is a list of packets") {
        assert_eq!(number, 1, "packets only");
        let Field::Bytes(packet) = packet else { panic!("a packet is a message") };
        for (number, field) in fields(packet).expect("a packet is well formed") {
            let (11, Field::Bytes(event)) = (number, field) else { continue };
            for (number, field) in fields(event).expect("an event is well formed") {
                if let (9, Field::Number(kind)) = (number, field) {
                    begins += usize::from(kind == 1);
                    ends += usize::from(kind == 2);
                }
            }
        }
    }
    assert_eq!((begins, ends), (slices, slices));
    for name in names.iter().filter(|name| !name.is_empty()) {
        let there = written.windows(name.len()).any(|window| window == name.as_bytes());
        assert!(there, "{name:?}");
    }
    let report = trace::perfetto::check::check(&written[..]).expect("write to memory");
    // The ids of flows are random, so an arrow may have only one end.
    let wrong = report.findings.iter().filter(|f| !f.what.ends_with("has only one end"));
    assert_eq!(wrong.collect::<Vec<_>>(), Vec::<&trace::check::Finding>::new(), "our own reader");
}

/// A field of a protobuf message.
pub enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// Returns the fields of a message, decoded as protobuf's published description says.
pub fn fields(mut bytes: &[u8]) -> Option<Vec<(u64, Field<'_>)>> {
    let mut all = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes)?;
        let field = match key & 7 {
            0 => Field::Number(varint(&mut bytes)?),
            kind => {
                let length = match kind {
                    1 => 8,
                    2 => usize::try_from(varint(&mut bytes)?).ok()?,
                    5 => 4,
                    _ => return None,
                };
                let (field, rest) = bytes.split_at_checked(length)?;
                bytes = rest;
                Field::Bytes(field)
            }
        };
        (key >> 3 > 0).then(|| all.push((key >> 3, field)))?;
    }
    Some(all)
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let (first, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}
