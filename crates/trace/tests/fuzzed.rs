//! Runs readers and writers on random input. The input is deterministic, so that a failure can be
//! repeated. The fuzzers in `fuzz/` call the same functions. `COUNTERPOINT_MUTANTS` is the number
//! of inputs of each test, and `COUNTERPOINT_SEED` determines them:
//! `COUNTERPOINT_MUTANTS=1000000 cargo test --release -p counterpoint-trace --test fuzzed`.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;
use support as fuzz;
use testkit::Random;

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Calls `round` with random numbers until at least `inputs` inputs were made, or as many as
/// `COUNTERPOINT_MUTANTS` says. Each call makes `each` inputs.
fn rounds(seed: u64, inputs: u64, each: u64, round: impl Fn(&mut Random) + Sync) {
    let inputs = variable("COUNTERPOINT_MUTANTS").unwrap_or(inputs);
    let seed = variable("COUNTERPOINT_SEED").unwrap_or(seed);
    let workers = std::thread::available_parallelism().map_or(1, usize::from).min(8) as u64;
    std::thread::scope(|scope| {
        for worker in 0..workers {
            let round = &round;
            scope.spawn(move || {
                let mut random = Random((seed ^ worker << 40).max(1));
                for _ in 0..inputs.div_ceil(each * workers) {
                    let state = random.0;
                    let known = std::panic::AssertUnwindSafe(|| round(&mut random));
                    if let Err(panic) = std::panic::catch_unwind(known) {
                        // With the printed seed, the first call of `round` on the first thread
                        // causes the panic again.
                        eprintln!("COUNTERPOINT_SEED={state} makes this input at once");
                        std::panic::resume_unwind(panic);
                    }
                }
            });
        }
    });
}

fn bytes(r: &mut Random, most: usize) -> Vec<u8> {
    (0..r.place(most)).map(|_| r.next() as u8).collect()
}

const WHOLE: &str = r#"{"schemaVersion":1,"baseTimeNanoseconds":1700000000000000000,"n":[1,null],
"traceEvents":[{"ph":"X","cat":"cpu_op","name":"a\"\u0041\ud83d\ude00","pid":1,"tid":"x","ts":1.5,
"dur":0.001,"args":{"a":1e300,"b":[{}],"":null},"tts":7},{"ph":"M","name":"process_name","pid":1,
"args":{"name":"p"}},{"ph":"s","id":18446744073709551615,"bp":"e","s":"t","ts":"-3"},{"ph":"C",
"name":5,"ts":1e3,"args":{"x":-0.0}},{"ph":"E","pid":1.5,"tid":null,"cat":true},{}],"z":{"q":"\n"}}"#;

/// Texts that are put into documents. Readers must either read or refuse the result.
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
    rounds(0x9e37_79b9_7f4a_7c15, 40_000, 2, |r| {
        fuzz::chrome(&damaged(r));
        fuzz::chrome(&bytes(r, 40));
    });
}

fn field(number: u32, r: &mut Random) -> Vec<u8> {
    let varint = |mut n: u64| {
        let mut bytes = Vec::new();
        while n >= 0x80 {
            bytes.push(n as u8 | 0x80);
            n >>= 7;
        }
        bytes.push(n as u8);
        bytes
    };
    let small = r.next() % 5;
    match r.place(4) {
        0 => [varint(u64::from(number << 3)), varint(r.next() >> r.place(64))].concat(),
        1 => [varint(u64::from(number << 3)), varint(small)].concat(),
        2 => [varint(u64::from(number << 3 | 1)), r.next().to_le_bytes().to_vec()].concat(),
        _ => {
            let inside = bytes(r, 12);
            [varint(u64::from(number << 3 | 2)), varint(inside.len() as u64), inside].concat()
        }
    }
}

/// A message with fields that readers of Perfetto's format know, some of which are messages.
fn message(r: &mut Random, depth: usize) -> Vec<u8> {
    const KNOWN: [u32; 29] = [
        1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 12, 13, 17, 22, 23, 30, 31, 41, 42, 43, 44, 45, 47, 48, 50,
        58, 59, 60, 2041,
    ];
    let mut out = Vec::new();
    for _ in 0..r.place(7) {
        let number = KNOWN[r.place(KNOWN.len())];
        if depth == 0 || r.place(3) == 0 {
            out.extend(field(number, r));
            continue;
        }
        let inside = message(r, depth - 1);
        let tag = number << 3 | 2;
        out.extend(if tag < 0x80 {
            vec![tag as u8]
        } else {
            vec![tag as u8 | 0x80, (tag >> 7) as u8]
        });
        out.extend([inside.len().min(127) as u8]);
        out.extend(&inside[..inside.len().min(127)]);
    }
    out
}

#[test]
fn any_packets() {
    let whole = include_bytes!("foreign.pftrace");
    fuzz::packets(whole);
    fuzz::packets(b"");
    rounds(0x0bad_cafe_dead_beef, 9_000, 3, |r| {
        fuzz::packets(&bytes(r, 60));
        let mut trace = Vec::new();
        for _ in 0..r.place(6) {
            let packet = message(r, 3);
            let length = packet.len() as u16;
            trace.extend([0x0a, length as u8 | 0x80, (length >> 7) as u8 & 0x7f]);
            trace.extend(packet);
        }
        fuzz::packets(&trace);
        let mut damaged = whole.to_vec();
        for _ in 0..=r.place(4) {
            let at = r.place(damaged.len());
            match r.place(5) {
                0 => damaged[at] = r.next() as u8,
                1 => damaged[at] ^= 1 << r.place(8),
                2 => damaged.truncate(at.max(1)),
                3 => drop(damaged.drain(at..(at + r.place(20)).min(damaged.len()))),
                _ => {
                    let copy = damaged[at..(at + r.place(80)).min(damaged.len())].to_vec();
                    let to = r.place(damaged.len());
                    damaged.splice(to..to, copy);
                }
            }
            if damaged.is_empty() {
                break;
            }
        }
        fuzz::packets(&damaged);
    });
}

#[test]
fn any_values() {
    rounds(0x1234_5678_9abc_def1, 3_000, 1, |r| fuzz::values(&bytes(r, 600)));
}

#[test]
fn any_events_in_perfettos_format() {
    rounds(0xfeed_beef_1234_5678, 3_000, 1, |r| fuzz::perfetto(&bytes(r, 900)));
}

fn field_of(number: u32, bytes: &[u8]) -> Vec<u8> {
    let varint = |mut n: u64| {
        let mut out = Vec::new();
        while n >= 0x80 {
            out.push(n as u8 | 0x80);
            n >>= 7;
        }
        out.push(n as u8);
        out
    };
    let (tag, length) = (varint(u64::from(number << 3 | 2)), varint(bytes.len() as u64));
    [&tag[..], &length, bytes].concat()
}

/// A file of less than 1 MiB has compressed packets inside of a compressed packet, which would
/// become 60 GiB. The inner packets must be reported as damaged without being decompressed;
/// otherwise this test would take hours.
#[test]
fn packets_that_are_compressed_twice() {
    use std::io::Write;
    let zlib = |bytes: &[u8]| {
        let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    };
    let compressed = |bytes: &[u8]| field_of(1, &field_of(50, &zlib(bytes)));
    // Each of these packets has only a timestamp.
    let many = [0x0a, 0x02, 0x40, 0x01].repeat(1 << 21);
    let bomb = compressed(&compressed(&many).repeat(8_000));
    assert!(bomb.len() < 1 << 20, "{} bytes", bomb.len());
    let report = trace::perfetto::check::check(&bomb[..]).unwrap();
    let twice = |finding: &trace::check::Finding| finding.what.ends_with("compressed twice");
    assert!(report.findings.iter().any(twice), "{:?}", report.findings);
    fuzz::packets(&bomb);
}

/// In Perfetto's format, an event of Chrome's format has a number as its phase, which must be the
/// code of an ASCII character. With another number, the event has no phase. (`any_packets` found
/// this with the phase 186.)
#[test]
fn phases_that_are_not_ascii_characters() {
    for phase in 0..=255u8 {
        // TrackEvent{legacy_event(6){phase(2): int32}}, with a timestamp and a sequence.
        let number = if phase < 0x80 { vec![phase] } else { vec![phase, 1] };
        let event = field_of(11, &field_of(6, &[&[0x10u8][..], &number].concat()));
        let packet = [&[0x40u8, 0x05, 0x50, 0x01][..], &event].concat();
        fuzz::packets(&field_of(1, &packet));
    }
}

/// Only our own writer uses field 2041 of a packet. Readers must skip a text in it, because white
/// space around the text would be lost when the trace is written as Chrome JSON. (Found by
/// `any_packets`.)
#[test]
fn space_around_arguments_is_not_read() {
    let fact = field_of(2041, &field_of(2, b"\r 1\n"));
    fuzz::packets(&field_of(1, &fact));
}
