//! `counterpoint trace export -o x.pftrace`, read by a decoder made of Perfetto's published
//! definitions, against Chrome JSON of the same profile.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Map, Value, json};
use testkit::{CallScript, ProfileScript, Scratch};

const PROGRAM: &str = env!("CARGO_BIN_EXE_counterpoint");
const REALTIME: i64 = 1_700_000_000_000_000_000;

fn python(test: &str) -> Option<PathBuf> {
    support::python_with(test, "perfetto.protos.perfetto.trace.perfetto_trace_pb2")
}

fn export(dir: &Path, output: &Path, more: &[&str]) {
    let mut command = Command::new(PROGRAM);
    command.args(["trace", "export"]).arg(dir).arg("-o").arg(output).args(more);
    assert!(command.status().unwrap().success());
}

/// What the decoder says.
fn decode(python: &Path, trace: &Path) -> Value {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/decode_pftrace.py");
    let output = Command::new(python).arg(script).arg(trace).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Start, duration, name, category, arguments, as text, sorted.
fn sorted(mut all: Vec<Value>) -> Vec<String> {
    all.sort_by_key(|one| (one[0].as_i64(), one[1].as_i64(), one.to_string()));
    all.iter().map(Value::to_string).collect()
}

fn of_perfetto(trace: &Value) -> Vec<String> {
    let slices = trace["slices"].as_array().unwrap().iter().map(|s| {
        let category = &s["category"][0];
        json!([s["start"], s["duration"], s["name"], category, sort(&s["args"])])
    });
    sorted(slices.collect())
}

/// Keys in one order.
fn sort(args: &Value) -> Value {
    let mut pairs: Vec<_> = args.as_object().unwrap().iter().collect();
    pairs.sort_by_key(|(key, _)| *key);
    json!(pairs)
}

/// The same from Chrome JSON: lists of three become x, y, z without zeros, nulls go.
fn of_chrome(trace: &Value) -> Vec<String> {
    let base = trace["baseTimeNanoseconds"].as_i64().unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let slices = events.iter().filter(|e| e["ph"] == "X").map(|e| {
        let ns = |key: &str| (e[key].as_f64().unwrap() * 1_000.0).round() as i64;
        let mut args = Map::new();
        for (key, value) in e["args"].as_object().unwrap() {
            match value {
                Value::Null => {}
                Value::Array(three) => {
                    for (axis, n) in ["x", "y", "z"].iter().zip(three).filter(|(_, n)| **n != 0) {
                        args.insert(format!("{key}.{axis}"), n.clone());
                    }
                }
                other => {
                    args.insert(key.clone(), other.clone());
                }
            }
        }
        json!([base + ns("ts"), ns("dur"), e["name"], e["cat"], sort(&args.into())])
    });
    sorted(slices.collect())
}

/// Time, name and value of each point of a time series.
fn points_of_perfetto(trace: &Value) -> Vec<String> {
    let points = trace["counters"].as_array().unwrap().iter();
    sorted(points.map(|p| json!([p["at"], 0, p["name"], p["value"]])).collect())
}

fn points_of_chrome(trace: &Value) -> Vec<String> {
    let base = trace["baseTimeNanoseconds"].as_i64().unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let points = events.iter().filter(|e| e["ph"] == "C").flat_map(|e| {
        let at = base + (e["ts"].as_f64().unwrap() * 1_000.0).round() as i64;
        let name = e["name"].as_str().unwrap();
        let series = e["args"].as_object().unwrap().iter();
        series.map(move |(key, value)| json!([at, 0, format!("{name} {key}"), value]))
    });
    sorted(points.collect())
}

/// Time and id of each end of an arrow: the ones that begin, the ones that end.
fn arrows_of_perfetto(trace: &Value) -> [Vec<String>; 2] {
    ["from", "to"].map(|end| {
        let slices = trace["slices"].as_array().unwrap().iter();
        let ends = slices.flat_map(|s| {
            s[end].as_array().unwrap().iter().map(|id| json!([s["start"], id, s["name"]]))
        });
        sorted(ends.collect())
    })
}

fn arrows_of_chrome(trace: &Value) -> [Vec<String>; 2] {
    let base = trace["baseTimeNanoseconds"].as_i64().unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    ["s", "f"].map(|end| {
        // An end of an arrow stands behind its slice.
        let ends = events.windows(2).filter(|two| two[1]["ph"] == end).map(|two| {
            let at = base + (two[1]["ts"].as_f64().unwrap() * 1_000.0).round() as i64;
            json!([at, two[1]["id"], two[0]["name"]])
        });
        sorted(ends.collect())
    })
}

/// Both formats of a profile, uncompressed and compressed.
fn compare(python: &Path, script: &ProfileScript) -> Value {
    let scratch = Scratch::new();
    let dir = scratch.join("x.cpt");
    script.write(&dir);
    let (json, plain) = (scratch.join("x.json"), scratch.join("x.pftrace"));
    let small = scratch.join("y.pftrace");
    export(&dir, &json, &[]);
    export(&dir, &plain, &[]);
    export(&dir, &small, &["--compress"]);
    let chrome: Value = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
    let perfetto = decode(python, &plain);
    assert_eq!(of_perfetto(&perfetto), of_chrome(&chrome));
    assert_eq!(points_of_perfetto(&perfetto), points_of_chrome(&chrome));
    assert_eq!(arrows_of_perfetto(&perfetto), arrows_of_chrome(&chrome));
    assert_eq!(decode(python, &small), perfetto);
    assert_eq!(perfetto["metadata"]["counterpoint"], chrome["counterpoint"]);
    perfetto
}

#[test]
fn rows_counters_and_arrows_are_where_paper_says() {
    let Some(python) = python("perfetto") else { return };
    let mut script = ProfileScript::monotonic();
    script.counter("page-faults", 0);
    script.counter("traffic", 1).unit = "bytes".to_owned();
    script.counter("work", 2).unit = "cycles".to_owned();
    let process = script.process(100);
    process.library("mlp", &["é \"x\"\n", "inner"]);
    let main = process.thread("main");
    // A call inside a call, recorded first; then one of which only the first group was read.
    let call = |call: CallScript| call.group(5, &[3]).group(5, &[u64::MAX]).group(5, &[9]);
    main.call(call(CallScript::new(1, 1_100, 300)));
    main.call(call(CallScript::new(0, 1_000, 500)));
    main.call(CallScript::new(0, 2_000, 0).group(5, &[0]).unread().unread());
    let trace = compare(&python, &script);
    let slices = trace["slices"].as_array().unwrap();
    let find = |name: &str, category: &str, start: i64| {
        let found = slices.iter().filter(|s| {
            s["name"] == name && s["category"] == json!([category]) && s["start"] == start
        });
        found.collect::<Vec<_>>()
    };
    let outer = find("é \"x\"\n", "cpu_op", REALTIME + 1_000)[0];
    assert_eq!(outer["row"], json!(["model", "thread 100 (main)", 0, 100]));
    assert_eq!((&outer["duration"], &outer["from"]), (&json!(500), &json!([1])));
    assert_eq!(outer["args"]["traffic"], u64::MAX);
    let dispatch = find("inner", "kernel", REALTIME + 1_100)[0];
    assert_eq!(dispatch["to"], json!([2]));
    assert_eq!(dispatch["row"], json!(["dispatches of model 100", "stream 1", 0, 0]));
    assert_eq!(find("é \"x\"\n", "cpu_op", REALTIME + 2_000)[0]["duration"], 0);
    let points: Vec<_> = trace["counters"].as_array().unwrap().iter().collect();
    assert_eq!(points.len(), 3 + 2 + 2, "no point where nothing was read");
    let of = |name: &str| points.iter().find(|p| p["name"] == name).unwrap();
    assert_eq!(of("main 100 counters of group 0 page-faults")["unit"], "UNIT_COUNT");
    assert_eq!(of("main 100 counters of group 1 traffic")["unit"], "UNIT_SIZE_BYTES");
    let work = of("main 100 counters of group 2 work");
    assert_eq!((&work["unit"], &work["value"]), (&json!("cycles"), &json!(9)));
    assert_eq!(
        trace["clocks"],
        json!([{"1": REALTIME, "3": 0}, {"1": REALTIME + 1_000_000_000, "3": 1_000_000_000}])
    );
}

/// More series than a slice's packet may carry, and values that it has no field for.
#[test]
fn many_series_and_large_values_arrive() {
    let Some(python) = python("perfetto_series") else { return };
    let mut script = ProfileScript::monotonic();
    for i in 0..11 {
        script.counter(&format!("c{i}"), i / 6);
    }
    let process = script.process(100);
    process.library("m", &["f"]);
    let thread = process.thread("t");
    for i in 0..40u64 {
        let value = |series: u64| if i == series { u64::MAX / 2 + 1 + i } else { 100 * series + i };
        let [a, b] = [(0..6).map(value), (6..11).map(value)].map(Iterator::collect::<Vec<_>>);
        let call = CallScript::new(0, 1_000 + 100 * i, 50);
        // The first call knows less than the others; some know one group only.
        thread.call(match i % 5 {
            0 => call.group(5, &a).unread(),
            1 => call.unread().group(5, &b),
            _ => call.group(5, &a).group(5, &b),
        });
    }
    let trace = compare(&python, &script);
    let points = trace["counters"].as_array().unwrap();
    assert_eq!(points.len(), 8 * 6 + 8 * 5 + 24 * 11);
    let large = points.iter().filter(|p| p["value"].as_f64().unwrap() > 9.2e18);
    assert_eq!(
        large.count(),
        (0..11)
            .filter(|i| match i % 5 {
                0 => *i < 6,
                1 => *i >= 6,
                _ => true,
            })
            .count()
    );
}

/// Calls that overlap in every way, also in ways that no thread could make them.
#[test]
fn whatever_calls_do_both_formats_say_the_same() {
    let Some(python) = python("perfetto_random") else { return };
    let mut random = 0x9E37_79B9_7F4A_7C15u64;
    let mut next = move |below: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % below
    };
    for width in [3, 40, 5_000] {
        let mut script = ProfileScript::monotonic();
        script.counter("a", 0);
        let process = script.process(100);
        process.library("m", &["f", "g", "h"]);
        for thread in 0..3 {
            let thread = process.thread(&format!("worker {thread}"));
            for i in 0..400u64 {
                let start = 1_000 + i * 20 + next(20);
                let tile = next(4) as u32;
                let call = CallScript::new(next(3) as u32, start, next(width)).workgroup(tile, 4);
                let call = call.on(next(4) as u32, next(2) as u32);
                thread.call(if next(8) == 0 {
                    call.unread()
                } else {
                    call.group(9, &[next(1000)])
                });
            }
        }
        let trace = compare(&python, &script);
        assert!(trace["slices"].as_array().unwrap().len() > 1_200);
    }
}
