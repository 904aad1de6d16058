//! Tests of the reader of Chrome traces.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::chrome::event::{Scalar, args};

/// Stores the events and the other keys of a document as values of serde_json, which the tests
/// compare with the expected values.
#[derive(Debug, Default, PartialEq)]
struct Kept {
    events: Vec<(u64, Value)>,
    top: Vec<(String, Value)>,
}

fn scalar(s: &Scalar<'_>) -> Value {
    match s {
        Scalar::Int(n) => json!(n),
        Scalar::Big(n) => json!(n),
        Scalar::Float(x) => x.parse::<Value>().unwrap(),
        Scalar::Text(t) => json!(t),
    }
}

fn parsed(raw: Raw<'_>) -> Value {
    raw.parse().unwrap()
}

impl EventSink for Kept {
    fn event(&mut self, at: u64, e: &Event<'_>) -> Result<(), String> {
        let mut map = serde_json::Map::new();
        let mut put = |key: &str, value: Option<Value>| {
            value.map(|v| map.insert(key.to_owned(), v));
        };
        put("ph", (e.phase != 0).then(|| json!(char::from(e.phase).to_string())));
        put("name", e.name.as_ref().map(|n| json!(n)));
        put("cat", e.category.as_ref().map(|n| json!(n)));
        put("pid", e.pid.as_ref().map(scalar));
        put("tid", e.tid.as_ref().map(scalar));
        put("id", e.id.as_ref().map(scalar));
        put("bp", e.binding.as_ref().map(|n| json!(n)));
        put("s", e.scope.as_ref().map(|n| json!(n)));
        put("ns", e.time_ns.map(|n| json!(n)));
        put("dur_ns", e.duration_ns.map(|n| json!(n)));
        put("args", e.args.map(parsed));
        for (key, value) in &e.other {
            put(key, Some(parsed(*value)));
        }
        self.events.push((at, Value::Object(map)));
        Ok(())
    }

    fn top(&mut self, _: u64, key: &str, value: Raw<'_>) -> Result<(), String> {
        self.top.push((key.to_owned(), parsed(value)));
        Ok(())
    }
}

fn kept(text: &[u8], window: usize) -> Result<(Kept, ReadSummary), ReadError> {
    let mut sink = Kept::default();
    let summary = document(Window::of_size(text, window), &mut sink)?;
    Ok((sink, summary))
}

fn events(text: &[u8]) -> Vec<Value> {
    kept(text, 16).unwrap().0.events.into_iter().map(|(_, e)| e).collect()
}

fn failure(text: &str) -> String {
    kept(text.as_bytes(), 16).unwrap_err().to_string()
}

#[test]
fn both_forms_and_what_writers_leave_out() {
    let one = json!({"ph": "X", "name": "a"});
    for text in [
        r#"[{"ph":"X","name":"a"}]"#,
        r#"[{"ph":"X","name":"a"}"#,
        "[\n{\"ph\":\"X\",\"name\":\"a\"},\n",
        r#"{"traceEvents":[{"ph":"X","name":"a"},]}"#,
        r#" { "traceEvents" : [ { "ph" : "X" , "name" : "a" } ] , "displayTimeUnit" : "ms" } "#,
        "\u{feff}{\"traceEvents\":[{\"ph\":\"X\",\"name\":\"a\"}]}",
    ] {
        let (sink, summary) = kept(text.as_bytes(), 16).unwrap();
        assert_eq!(sink.events.len(), 1, "{text}");
        assert_eq!(sink.events[0].1, one, "{text}");
        assert!(!summary.truncated, "{text}");
        assert_eq!(summary.bytes, text.len() as u64, "{text}");
        assert_eq!(&text[sink.events[0].0 as usize..][..1], "{");
    }
    assert_eq!(events(b"[]"), Vec::<Value>::new());
    assert_eq!(events(br#"{"traceEvents":[]}"#), Vec::<Value>::new());
}

#[test]
fn fields_of_every_type() {
    let text = r#"[{"ph":"X","ts":"12.5","dur":0.001,"pid":"GPU 1 Counters","tid":-3,"cat":7,
        "name":null,"id":18446744073709551615,"zzz":{"k":[1,2]},"args":{"a\n":1,"b":"x"}}]"#;
    let expected = json!({"ph": "X", "ns": 12_500, "dur_ns": 1, "pid": "GPU 1 Counters",
        "tid": -3, "cat": "7", "id": u64::MAX, "zzz": {"k": [1, 2]},
        "args": {"a\n": 1, "b": "x"}});
    assert_eq!(events(text.as_bytes()), [expected]);
    let raw: Raw<'_> = serde_json::from_str(r#"{"a\n":1,"b":"x"}"#).unwrap();
    let mut entries = Vec::new();
    args(raw, |key, value| entries.push((key.to_owned(), value.get().to_owned())));
    assert_eq!(entries, [("a\n".into(), "1".into()), ("b".into(), "\"x\"".into())]);
}

#[test]
fn the_documents_other_keys() {
    let text = r#"{"schemaVersion":1,"traceEvents":[],"traceName":"x","n":-1.5e3,"o":{"p":[]}}"#;
    let (sink, _) = kept(text.as_bytes(), 16).unwrap();
    let expected = [
        ("schemaVersion".to_owned(), json!(1)),
        ("traceName".to_owned(), json!("x")),
        ("n".to_owned(), json!(-1500.0)),
        ("o".to_owned(), json!({"p": []})),
    ];
    assert_eq!(sink.top, expected);
}

#[test]
fn errors_say_the_byte() {
    for (text, expected) in [
        ("", "byte 0: not JSON: the file is empty"),
        ("x", "byte 0: not JSON: 'x' where { or [ was expected"),
        ("{}", "byte 0: not a trace: an object without a traceEvents array"),
        (r#"{"a":1}"#, "byte 0: not a trace: an object without a traceEvents array"),
        (r#"[{"ph":"X"} {"ph":"X"}]"#, "byte 12: not JSON: '{' between two events"),
        (
            r#"[[1]]"#,
            "byte 1: not a trace: invalid type: sequence, expected an event: an object in braces",
        ),
        (r#"[{"name":"a"b"}]"#, "byte 12: not JSON: expected `,` or `}`"),
    ] {
        assert_eq!(failure(text), expected, "{text}");
    }
}

/// The reader must read each event that it can, and must count what it mends or leaves out.
#[test]
fn only_the_damaged_part_is_lost() {
    let counts = |s: ReadSummary| (s.events, s.lost, s.damaged, s.mended, s.rest);
    for (text, expected) in [
        (r#"[{"ph":"X"}] x"#.to_owned(), (1, 0, 0, 0, Some(13))),
        (r#"[{"ph":tru}]"#.to_owned(), (1, 1, 0, 0, None)),
        ("[\n{\"ph\":\n\"X\",}]".to_owned(), (1, 0, 0, 1, None)),
        (r#"[{"ts":"x"}]"#.to_owned(), (1, 1, 0, 0, None)),
        (format!(r#"[{{"ts":{}}}]"#, "1".repeat(1 << 20)), (1, 1, 0, 0, None)),
        (r#"[{"ph":"X"},{"a" 1},{"ph":"X"}]"#.to_owned(), (2, 0, 1, 0, None)),
        (r#"[{"ph":"X"},{"a":"b"c"},{"ph":"X","n":"}"}]"#.to_owned(), (2, 0, 1, 0, None)),
    ] {
        assert_eq!(counts(kept(text.as_bytes(), 16).unwrap().1), expected, "{text:.60}");
    }
}

#[test]
fn the_sink_may_refuse() {
    struct Never;
    impl EventSink for Never {
        fn event(&mut self, _: u64, _: &Event<'_>) -> Result<(), String> {
            Err("no".into())
        }
        fn top(&mut self, _: u64, _: &str, _: Raw<'_>) -> Result<(), String> {
            Ok(())
        }
    }
    let error = read(&b"[ {}]"[..], &mut Never).unwrap_err();
    assert_eq!(error.to_string(), "byte 2: no");
}

#[test]
fn bytes_that_cannot_stand_in_json_are_mended() {
    let text =
        b"[{\"name\":\"a\xffb\",\"args\":{\"k\xe2\x82\":\"\x01\"}},{\"name\":\"\\ud800x\"},{}]";
    let (sink, summary) = kept(text, 16).unwrap();
    let names: Vec<_> = sink.events.iter().map(|(_, e)| e.clone()).collect();
    let first = json!({"name": "a\u{fffd}b", "args": {"k\u{fffd}": "\u{1}"}});
    assert_eq!(names, [first, json!({"name": "\u{fffd}x"}), json!({})]);
    assert_eq!(summary.mended, 2);
    assert_eq!(summary.events, 3);
}

#[test]
fn compressed_and_cut_off() {
    use std::io::Write;
    let text = format!("{{\"traceEvents\":[{}{{}}]}}", "{\"name\":\"abc\"},".repeat(10_000));
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gz.write_all(text.as_bytes()).unwrap();
    let gz = gz.finish().unwrap();
    let mut sink = Kept::default();
    let whole = read(gz.as_slice(), &mut sink).unwrap();
    assert_eq!((whole.events, whole.truncated, whole.bytes), (10_001, false, text.len() as u64));
    let cut = read(&gz[..gz.len() / 2], &mut Kept::default()).unwrap();
    assert!(cut.truncated && cut.events < 10_001, "{cut:?}");
    let mut damaged = gz;
    damaged[40] ^= 0x10;
    // Any result is accepted here: the test only checks that the reader does not panic.
    let _ = read(damaged.as_slice(), &mut Kept::default());
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(any::<String>(), inner, 0..4)
                .prop_map(|m| Value::Object(m.into_iter().collect())),
        ]
    })
}

fn any_event() -> impl Strategy<Value = Value> {
    let id =
        || prop_oneof![any::<i64>().prop_map(Value::from), any::<String>().prop_map(Value::from)];
    let fields = (
        prop::option::of(any::<String>()),
        prop::option::of(id()),
        prop::option::of(id()),
        prop::option::of(prop::collection::btree_map("[a-z]{1,9}", any_json(), 0..4)),
        prop::option::of(any_json()),
    );
    fields.prop_map(|(name, pid, tid, args, unknown)| {
        let mut map = serde_json::Map::new();
        map.insert("ph".into(), json!("X"));
        name.map(|v| map.insert("name".into(), json!(v)));
        pid.map(|v| map.insert("pid".into(), v));
        tid.map(|v| map.insert("tid".into(), v));
        args.map(|v| map.insert("args".into(), Value::Object(v.into_iter().collect())));
        unknown.map(|v| map.insert("unknown".into(), v));
        Value::Object(map)
    })
}

proptest! {
    /// The result does not depend on the size of the window.
    #[test]
    fn any_document(list in prop::collection::vec(any_event(), 0..8), size in 16usize..4000,
                    pretty: bool, name: String) {
        let document = json!({"traceEvents": list, "name": name});
        let text = match pretty {
            true => serde_json::to_vec_pretty(&document).unwrap(),
            false => serde_json::to_vec(&document).unwrap(),
        };
        let (sink, summary) = kept(&text, size).unwrap();
        let found: Vec<Value> = sink.events.into_iter().map(|(_, e)| e).collect();
        prop_assert_eq!(found, list);
        prop_assert_eq!(sink.top, [("name".to_owned(), json!(name))]);
        prop_assert_eq!(summary.mended, 0);
    }

    /// If a document is cut, its first events are read, and the document is reported as truncated.
    #[test]
    fn cut_anywhere(list in prop::collection::vec(any_event(), 1..4)) {
        let text = serde_json::to_vec(&json!({"traceEvents": list})).unwrap();
        let whole = kept(&text, 64).unwrap().0;
        for end in 1..text.len() {
            let (part, summary) = kept(&text[..end], 64).unwrap();
            prop_assert!(whole.events.starts_with(&part.events));
            prop_assert!(summary.truncated);
        }
    }

    #[test]
    fn any_bytes(mut bytes in prop::collection::vec(any::<u8>(), 0..200), open in 0usize..3) {
        let start: &[u8] = [&b""[..], b"[{\"name\":\"", b"{\"traceEvents\":[{"][open];
        bytes.splice(0..0, start.iter().copied());
        let _ = kept(&bytes, 16);
        let _ = read(bytes.as_slice(), &mut Kept::default());
    }
}
