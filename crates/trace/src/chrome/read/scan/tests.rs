//! Compares the scanner with serde_json. The scanner works either alone, or with a shape that it
//! learnt from an earlier, similar event ([`super::super::shape`]). The scanner must either read
//! the same event, and stop at the same byte of the text, or decline the event.

use proptest::prelude::*;
use serde_json::json;

use super::super::parse;
use super::super::shape::Shapes;
use super::*;

/// Compares the event that the scanner reads from `text` with the one that serde_json reads.
/// Returns whether the scanner accepted the event.
fn compare(shapes: &mut Shapes, text: &str) -> Result<bool, TestCaseError> {
    let mut event = Event::default();
    let found = shapes.event(Scan::new(text), 0, &mut event);
    let expected = parse::<Event<'_>>(text.as_bytes());
    let Some(end) = found else { return Ok(false) };
    match expected {
        Ok((expected, used)) => {
            prop_assert_eq!(&event, &expected, "{}", text);
            prop_assert_eq!(end, used, "{}", text);
        }
        Err(error) => prop_assert!(false, "{}: taken, but {}", text, error),
    }
    Ok(true)
}

/// Like [`compare`], but the scanner must accept the event.
fn taken(shapes: &mut Shapes, text: &str) {
    assert!(compare(shapes, text).unwrap(), "{text}");
}

const KEYS: [&str; 14] =
    ["ph", "name", "cat", "pid", "tid", "ts", "dur", "id", "bp", "s", "args", "other", "", "tsx"];

/// Returns correct, odd and wrong values for the keys of an event.
fn values() -> Vec<String> {
    let lines = include_str!("values.txt").lines().filter(|line| !line.starts_with("# "));
    lines.map(|line| line.replace('␊', "\n").replace('␉', "\t").replace('␀', "\0")).collect()
}

#[test]
fn every_key_with_every_value() {
    for key in KEYS {
        for value in &values() {
            for (space, more) in [("", ""), (" ", r#" , "ph" : "B""#), ("\n \t\r  ", ",\"q\":[0]")]
            {
                let text = format!("{{{space}\"{key}\"{space}:{space}{value}{more}{space}}}");
                // The first call scans the event. The second call may use the shape that the first
                // call learnt.
                let mut shapes = Shapes::default();
                let first = compare(&mut shapes, &text).unwrap();
                assert_eq!(compare(&mut shapes, &text).unwrap(), first, "{text}");
            }
        }
    }
}

#[test]
fn every_value_after_every_other() {
    for key in ["name", "pid", "ts", "id", "args", "other"] {
        for learnt in &values() {
            let mut shapes = Shapes::default();
            for value in &values() {
                for value in [learnt, value] {
                    compare(&mut shapes, &format!("{{\"{key}\":{value},\"z\":1}}")).unwrap();
                }
            }
        }
    }
}

/// If the scanner declined these usual events, serde_json would read them correctly, but slowly, so
/// the other tests would not show it.
#[test]
fn usual_events_are_taken() {
    let mut shapes = Shapes::default();
    for number in 0..3 {
        for text in [
            format!(
                "{{\n    \"ph\": \"X\",\n    \"cat\": \"cpu_op\",\n    \"name\": \"aten::mm{number}\",\n    \
                 \"pid\": 28291,\n    \"tid\": 28291,\n    \"ts\": 4317081764371.33{number},\n    \
                 \"dur\": 1.25{number}\n    ,\n    \"args\": {{\n      \"External id\": {number},\
                 \"Record function id\": 0, \"Concrete Inputs\": [\"\", \"[{number}]\"], \
                 \"Input Dims\": [[32, 128], []], \"Ev Idx\": 1\n    }}\n  }}"
            ),
            format!(
                r#"{{"ph":"s","id":{number},"pid":"GPU 1","tid":"stream 7","ts":1.5,"bp":"e"}}"#
            ),
            format!(
                r#"{{"ph":"C","name":"\"q\"","ts":{number},"pid":-1,"args":{{"a":1e9,"b":null}}}}"#
            ),
            format!(r#"{{"ph":"i","s":"g","name":"\u00e9","other":[{number}],"x":"y","z":true}}"#),
            format!(r#"{{"ts":"{number}.5","name":null,"pid":null,"args":{{}}}}"#),
            "{}".to_owned(),
            "{ }".to_owned(),
        ] {
            taken(&mut shapes, &text);
            for end in 0..text.len() {
                let Some(part) = text.get(..end) else { continue };
                assert!(!compare(&mut shapes, part).unwrap(), "{part}");
            }
            taken(&mut shapes, &text);
        }
    }
}

#[test]
fn keys_that_come_twice() {
    let mut shapes = Shapes::default();
    for text in [
        r#"{"name":"a","name":"b","ts":1,"ts":2,"args":{"a":1},"args":[2],"x":1,"x":2}"#,
        r#"{"name":"a","name":null,"ts":1,"ts":null,"pid":1,"pid":null,"args":1,"args":null}"#,
        r#"{"name":null,"name":"a","ts":null,"ts":1,"pid":null,"pid":"x","ph":"X","ph":null}"#,
    ] {
        for _ in 0..3 {
            taken(&mut shapes, text);
        }
    }
}

#[test]
fn depth() {
    for (depth, usual) in [(1, true), (64, true), (65, false), (1_000, false)] {
        let (open, close) = ("[".repeat(depth), "]".repeat(depth));
        let text = format!("{{\"args\":{open}1{close}}}");
        let mut shapes = Shapes::default();
        assert_eq!(compare(&mut shapes, &text).unwrap(), usual, "{depth}");
        assert!(!compare(&mut shapes, &format!("{{\"args\":{open}1}}")).unwrap());
        let (open, close) = ("{\"a\":".repeat(depth), "}".repeat(depth));
        let text = format!("{{\"args\":{open}1{close}}}");
        assert_eq!(compare(&mut shapes, &text).unwrap(), usual, "{depth}");
    }
}

/// Reads events of more shapes than [`Shapes`] can keep.
#[test]
fn many_shapes() {
    let mut shapes = Shapes::default();
    for round in 0..2 {
        for number in 0..2_100 {
            let spaces = " ".repeat(number);
            taken(
                &mut shapes,
                &format!("{{\"args\":{{{spaces}\"a\":{round}}},\"ts\":{number}.5}}"),
            );
        }
    }
}

fn event() -> impl Strategy<Value = String> {
    let value = || prop::sample::select(values());
    let keys = prop::sample::select(&KEYS[..]);
    let other = prop_oneof![
        any::<String>().prop_map(|s| json!(s).to_string()),
        any::<i64>().prop_map(|n| n.to_string())
    ];
    let values = prop_oneof![3 => value(), 1 => other];
    (prop::collection::vec((keys, values), 0..6), prop::sample::select(vec!["", " ", "\n    "]))
        .prop_map(|(entries, space)| {
            let entries: Vec<String> = entries
                .into_iter()
                .map(|(key, value)| format!("{space}\"{key}\":{space}{value}"))
                .collect();
            format!("{{{}}}", entries.join(","))
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// Reads a few events several times in random order, and often damages the text first.
    #[test]
    fn reads_like_serde_json(
        events in prop::collection::vec(event(), 1..6),
        order in prop::collection::vec((0usize..6, any::<prop::sample::Index>(), 0usize..12), 1..20),
    ) {
        let mut shapes = Shapes::default();
        for (which, at, how) in order {
            let mut text = events[which % events.len()].clone();
            let places: Vec<usize> = text.char_indices().map(|(at, _)| at).collect();
            let at = *at.get(&places);
            match how {
                0 => text.truncate(at),
                1 => _ = text.remove(at),
                2..=8 => text.insert(at, ['"', '0', '}', ',', '\\', ' ', 'e'][how - 2]),
                _ => {}
            }
            compare(&mut shapes, &text)?;
        }
    }
}
