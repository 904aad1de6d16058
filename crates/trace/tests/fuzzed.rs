//! Readers and writers on what nobody made: deterministic, so that a failure is found again;
//! `fuzz/` holds the same as fuzzers.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;
use support as fuzz;
use testkit::Random;

fn bytes(r: &mut Random, most: usize) -> Vec<u8> {
    (0..r.place(most)).map(|_| r.next() as u8).collect()
}

const WHOLE: &str = r#"{"schemaVersion":1,"baseTimeNanoseconds":1700000000000000000,"n":[1,null],
"traceEvents":[{"ph":"X","cat":"cpu_op","name":"a\"\u0041\ud83d\ude00","pid":1,"tid":"x","ts":1.5,
"dur":0.001,"args":{"a":1e300,"b":[{}],"":null},"tts":7},{"ph":"M","name":"process_name","pid":1,
"args":{"name":"p"}},{"ph":"s","id":18446744073709551615,"bp":"e","s":"t","ts":"-3"},{"ph":"C",
"name":5,"ts":1e3,"args":{"x":-0.0}},{"ph":"E","pid":1.5,"tid":null,"cat":true},{}],"z":{"q":"\n"}}"#;

/// Pieces that readers take apart.
const PIECES: [&str; 18] = [
    "\"",
    "\\",
    "\\u",
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "null",
    "1e999",
    "-",
    "\u{fffd}",
    "\"ph\":\"X\"",
    "\"ts\":",
    "\"args\":{",
    "\\ud800",
    "\"traceEvents\":[",
];

fn damaged(r: &mut Random) -> Vec<u8> {
    let mut bytes = WHOLE.as_bytes().to_vec();
    for _ in 0..=r.place(4) {
        let at = r.place(bytes.len());
        match r.place(7) {
            0 => bytes[at] = r.next() as u8,
            1 => bytes[at] ^= 1 << r.place(8),
            2 => bytes.truncate(at.max(1)),
            3 => {
                let end = (at + r.place(30)).min(bytes.len());
                bytes.drain(at..end);
            }
            4 => {
                let end = (at + r.place(60)).min(bytes.len());
                let copy = bytes[at..end].to_vec();
                let to = r.place(bytes.len());
                bytes.splice(to..to, copy);
            }
            _ => {
                let piece = PIECES[r.place(PIECES.len())].bytes();
                bytes.splice(at..at, piece);
            }
        }
        if bytes.is_empty() {
            break;
        }
    }
    bytes
}

#[test]
fn any_bytes_as_a_trace() {
    fuzz::chrome(WHOLE.as_bytes());
    fuzz::chrome(b"");
    let mut r = Random(0x9e37_79b9_7f4a_7c15);
    for _ in 0..20_000 {
        fuzz::chrome(&damaged(&mut r));
        fuzz::chrome(&bytes(&mut r, 40));
    }
}

#[test]
fn any_values() {
    let mut r = Random(0x1234_5678_9abc_def1);
    for _ in 0..3_000 {
        fuzz::values(&bytes(&mut r, 600));
    }
}

#[test]
fn any_events_in_perfettos_format() {
    let mut r = Random(0xfeed_beef_1234_5678);
    for _ in 0..3_000 {
        fuzz::perfetto(&bytes(&mut r, 900));
    }
}
