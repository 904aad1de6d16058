//! Tests the import of unusual traces that other programs wrote. An unreadable part of a trace must
//! not affect its other parts.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};
use testkit::Scratch;

const PROGRAM: &str = env!("CARGO_BIN_EXE_counterpoint");

fn run(args: &[&str], paths: &[&Path]) -> Output {
    Command::new(PROGRAM).args(args).args(paths).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Writes `trace` into the file `name`, imports the file, and returns the profile's path and the
/// messages of the import.
fn import(scratch: &Scratch, name: &str, trace: &[u8]) -> (PathBuf, String) {
    let file = scratch.join(name);
    std::fs::write(&file, trace).unwrap();
    let profile = scratch.join(&format!("{name}.cpt"));
    let output = run(&["trace", "import", "-o"], &[&profile, &file]);
    assert!(output.status.success(), "{output:?}");
    (profile, text(&output.stderr))
}

/// Returns the exported trace, which has one event in each line.
fn exported(scratch: &Scratch, profile: &Path) -> String {
    let to = scratch.join("again.json");
    let output = run(&["trace", "export", "-o"], &[&to, profile]);
    assert!(output.status.success(), "{output:?}");
    std::fs::read_to_string(to).unwrap()
}

fn report(profile: &Path) -> Value {
    let output = run(&["report", "--format", "json"], &[profile]);
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn losses(report: &Value) -> Vec<(String, u64)> {
    let all = report["losses"].as_array().unwrap().iter();
    let mut all: Vec<_> = all
        .map(|l| (l["name"].as_str().unwrap().to_owned(), l["count"].as_u64().unwrap()))
        .collect();
    all.sort();
    all
}

fn loss(name: &str, count: u64) -> (String, u64) {
    (name.to_owned(), count)
}

/// The traces of JAX and TensorFlow have times with a resolution of picoseconds.
#[test]
fn digits_beyond_nanoseconds_are_kept() {
    let scratch = Scratch::new();
    let trace = br#"{"traceEvents":[
{"ph":"X","pid":1,"tid":2,"name":"tiny","ts":1.5,"dur":1e-06},
{"ph":"X","pid":1,"tid":2,"name":"long","ts":1763652130123456.7891234,"dur":12.345678},
{"ph":"X","pid":1,"tid":2,"name":"whole","ts":9.007199254740993e12,"dur":1.000000},
{"ph":"X","pid":1,"tid":18446744073709551617,"id":9007199254740993,"name":"ids","ts":23,"dur":1.5E+1}
]}"#;
    let (profile, _) = import(&scratch, "t.json", trace);
    let again = exported(&scratch, &profile);
    for part in [
        r#""ts":1.500,"dur":1e-06"#,
        r#""ts":1763652130123456.7891234,"dur":12.345678"#,
        // The number of ns is 2⁵³ + 1, which an `f64` cannot represent.
        r#""ts":9007199254740.993,"dur":1.000"#,
        r#""tid":18446744073709551617,"ts":23.000,"dur":15.000,"id":9007199254740993"#,
    ] {
        assert!(again.contains(part), "{part}\n{again}");
    }
    let report = report(&profile);
    assert_eq!(losses(&report), [loss("call_below_resolution", 1), loss("trace_time_rounded", 2)]);
    let total = |name: &str| {
        let rows = report["rows"].as_array().unwrap();
        rows.iter().find(|row| row["op"] == name).unwrap()["total_ns"].as_f64().unwrap()
    };
    assert_eq!([total("tiny"), total("long"), total("ids")], [0.0, 12_346.0, 15_000.0]);
    // Merging keeps all digits.
    let other = scratch.join("other.json");
    std::fs::write(&other, r#"{"baseTimeNanoseconds":5000,"traceEvents":[]}"#).unwrap();
    let merged = scratch.join("merged.json");
    let output = run(&["trace", "merge", "-o"], &[&merged, &other, &scratch.join("t.json")]);
    assert!(output.status.success(), "{output:?}");
    let merged = std::fs::read_to_string(merged).unwrap();
    // Merging aligns the first event of t.json (1.5 µs) with the base time of other.json (5 µs).
    assert!(merged.contains("1763652130123460.2891234,\"dur\":12.345678"), "{merged}");
}

/// An earlier version lost the whole trace because of one bad event.
#[test]
fn one_bad_event_only_loses_itself() {
    let good = |n: u32| format!(r#"{{"ph":"X","pid":1,"tid":1,"name":"good","ts":{n},"dur":1}}"#);
    let bad: [(&str, &str, u64); 16] = [
        (r#"{"ph":"X","pid":1,"name":"b","ts":NaN,"dur":1}"#, "trace_value_lost", 1),
        (r#"{"ph":"X","pid":1,"name":"b","ts":1e300,"dur":1}"#, "trace_value_lost", 1),
        (r#"{"ph":"X","pid":1,"name":"b","ts":-1e300,"dur":-Infinity}"#, "trace_value_lost", 2),
        (r#"{"ph":"X","pid":1,"name":"b","ts":"x","dur":1}"#, "trace_value_lost", 1),
        (
            r#"{"ph":"i","pid":1,"ts":1,"args":{"loss":NaN,"l":[1,Infinity,nan]}}"#,
            "trace_value_lost",
            3,
        ),
        (r#"{"ph":"i","pid":{"a":1},"tid":[],"ts":1}"#, "trace_value_lost", 2),
        (r#"{"ph":"i","pid":1,"name":["x"],"ts":1}"#, "trace_value_lost", 1),
        (r#"{"ph":"i","pid":1,"name":"a"b","ts":1}"#, "trace_event_damaged", 1),
        (r#"{"ph":"i" "pid":1}"#, "trace_event_damaged", 1),
        (r#"null"#, "trace_event_damaged", 1),
        (r#"[1,{"ph":2}]"#, "trace_event_damaged", 1),
        (r#"{"ph":"i","pid":1,"ts":1,"args":{"a":1,},}"#, "", 0),
        (r#"{"pid":1,"ts":1}"#, "", 0),
        (r#"{"ph":"i","pid":1,"ts":1,"name":"\ud800"}"#, "", 0),
        (r#"{"ph":"i","pid":1,"ts":1,"args":{"a":1,"a":2}}"#, "", 0),
        ("{\"ph\":\"i\",\"pid\":1,\"ts\":1,\"name\":\"\u{1}\"}", "", 0),
    ];
    for (event, name, count) in bad {
        // The bad event is between two good events, or after them.
        for events in
            [[&good(1), event, &good(9)].join(",\n"), [&good(1), &good(9), event].join(",\n")]
        {
            let scratch = Scratch::new();
            let trace = format!("{{\"traceEvents\":[\n{events}\n]}}");
            let (profile, _) = import(&scratch, "t.json", trace.as_bytes());
            let report = report(&profile);
            let rows = report["rows"].as_array().unwrap();
            let of_good = rows.iter().find(|row| row["op"] == "good").unwrap();
            assert_eq!(of_good["calls"], 2, "{event}");
            let expected = if count > 0 { vec![loss(name, count)] } else { vec![] };
            assert_eq!(losses(&report), expected, "{event}");
            let again: Value = serde_json::from_str(&exported(&scratch, &profile)).unwrap();
            assert!(again["traceEvents"].as_array().unwrap().len() >= 2);
            let check = run(&["trace", "check"], &[&scratch.join("t.json")]);
            assert_eq!(check.status.code(), Some(1), "{event}");
        }
    }
    // Around the events are a byte order mark, members with unreadable values, and a second
    // document.
    let scratch = Scratch::new();
    let trace = format!("\u{feff}{{\"x\":NaN,\"traceEvents\":[{}],\"y\":[1,]}}\n{{}}", good(1));
    let (profile, _) = import(&scratch, "t.json", trace.as_bytes());
    let expected = [loss("trace_rest_unread", 1), loss("trace_value_lost", 1)];
    assert_eq!(losses(&report(&profile)), expected);
}

/// A request takes 9 µs, 1 µs of which is in another span. Spans have no share.
#[test]
fn spans_and_counters_are_in_every_view() {
    let scratch = Scratch::new();
    let spans = r#"{"ph":"b","pid":1,"cat":"req","id":"0x1","name":"request","ts":1},
{"ph":"b","pid":1,"cat":"req","id":"0x1","name":"inner","ts":2},
{"ph":"n","pid":1,"cat":"req","id":"0x1","name":"step","ts":2.5},
{"ph":"e","pid":1,"cat":"req","id":"0x1","name":"inner","ts":3},
{"ph":"e","pid":1,"cat":"req","id":"0x1","ts":10},
{"ph":"b","pid":2,"cat":"req","id2":{"local":"1"},"name":"request","ts":1},
{"ph":"e","pid":3,"cat":"req","id2":{"local":"1"},"name":"request","ts":2},
{"ph":"S","pid":1,"cat":"old","id":7,"name":"legacy","ts":1},
{"ph":"T","pid":1,"cat":"old","id":7,"name":"legacy","ts":2},
{"ph":"F","pid":1,"cat":"old","id":7,"name":"legacy","ts":4}"#;
    let counters = r#"{"ph":"C","pid":1,"name":"mem","ts":1,"args":{"bytes":10,"peak":"20"}},
{"ph":"C","pid":1,"name":"mem","ts":3,"args":{"bytes":30,"peak":null}},
{"ph":"C","pid":1,"name":"mem","id":"b","ts":3,"args":{"bytes":5}}"#;
    let slice = r#"{"ph":"X","pid":1,"tid":1,"name":"slice","ts":1,"dur":4}"#;
    let trace = format!("[{slice},{spans},{counters}]");
    let (profile, said) = import(&scratch, "t.json", trace.as_bytes());
    let counts = "14 events, including 1 call, 3 asynchronous spans, 4 values of counters";
    assert!(said.contains(counts), "{said}");
    let all = report(&profile);
    let mut rows: Vec<Value> = all["rows"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| {
            json!([
                row["op"],
                row["library"],
                row["role"],
                row["calls"],
                row["total_ns"],
                row["share"]
            ])
        })
        .collect();
    rows.sort_by_key(Value::to_string);
    let expected = json!([
        ["inner", "req", "span", 1, 1000.0, null],
        ["legacy", "old", "span", 1, 3000.0, null],
        ["request", "req", "span", 1, 9000.0, null],
        ["slice", "", null, 1, 4000.0, 1.0],
    ]);
    assert_eq!(Value::from(rows), expected);
    assert_eq!([&all["total"]["calls"], &all["total"]["spans"]], [&json!(1), &json!(3)]);
    assert_eq!(all["threads"].as_array().unwrap().len(), 1);
    let notes = all["notes"].to_string();
    // A local id belongs to its process. So the begin in process 2 and the end in process 3 are not
    // one span, although their local ids are equal.
    assert!(notes.contains("2 slices begin without an end or end without a begin"), "{notes}");
    assert!(notes.contains("not on a thread: 3 asynchronous spans"), "{notes}");
    let mut tracks: Vec<Value> = all["tracks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|track| {
            json!([
                track["track"],
                track["name"],
                track["scope_number"],
                track["samples"],
                track["last"]
            ])
        })
        .collect();
    tracks.sort_by_key(Value::to_string);
    let expected = json!([
        ["mem", "bytes", 1, 2, 30.0],
        ["mem", "peak", 1, 1, 20.0],
        ["mem[b]", "bytes", 1, 1, 5.0]
    ]);
    assert_eq!(Value::from(tracks), expected);
    // Spans have no thread, so the report by thread has no rows for them.
    let by_thread = run(&["report", "--by", "thread", "--format", "json"], &[&profile]);
    let by_thread: Value = serde_json::from_slice(&by_thread.stdout).unwrap();
    assert_eq!(by_thread["rows"].as_array().unwrap().len(), 1);
    let stats = run(&["stats", "--format", "json", "--op", "request"], &[&profile]);
    let stats: Value = serde_json::from_slice(&stats.stdout).unwrap();
    assert_eq!(stats["ops"][0]["all"]["variables"][0]["mean"], 9000.0);
    let calls = text(&run(&["export", "--format", "csv"], &[&profile]).stdout);
    assert!(calls.lines().next().unwrap().ends_with(",role"), "{calls}");
    assert_eq!(calls.lines().filter(|line| line.ends_with(",span")).count(), 3, "{calls}");
    let samples =
        text(&run(&["export", "--what", "tracks", "--format", "csv"], &[&profile]).stdout);
    assert_eq!(samples.lines().count(), 1 + 4, "{samples}");

    // For a trace without slices, the report does not suggest that calls of IREE are missing.
    let (profile, _) = import(&scratch, "c.json", format!("[{counters}]").as_bytes());
    let said = text(&run(&["report"], &[&profile]).stdout);
    assert!(said.contains("the trace has no slices: 3 counter events"), "{said}");
    assert!(said.contains("mem bytes") && !said.contains("IREE"), "{said}");
}

#[test]
fn a_profilers_own_rows_have_no_share() {
    let scratch = Scratch::new();
    let trace = br#"{"traceEvents":[
{"ph":"X","cat":"Trace","name":"PyTorch Profiler (0)","pid":"Spans","tid":"PyTorch Profiler","ts":0,"dur":100},
{"ph":"X","cat":"overhead","name":"Activity Buffer Request","pid":-1,"tid":0,"ts":5,"dur":7},
{"ph":"X","cat":"cpu_op","name":"aten::mm","pid":1,"tid":1,"ts":10,"dur":30},
{"ph":"X","cat":"Trace","name":"mine","pid":1,"tid":1,"ts":50,"dur":10},
{"ph":"i","name":"Iteration Start: PyTorch Profiler","pid":"Traces","tid":"Trace PyTorch Profiler","s":"g","ts":0},
{"ph":"i","name":"Record Window End","pid":"","tid":"","s":"g","ts":100}]}"#;
    let (profile, _) = import(&scratch, "t.json", trace);
    let report = report(&profile);
    let share = |name: &str| {
        let rows = report["rows"].as_array().unwrap();
        let row = rows.iter().find(|row| row["op"] == name).unwrap();
        (row["role"].clone(), row["total_ns"].clone(), row["self_ns"].clone(), row["share"].clone())
    };
    let own = |ns: f64| (json!("bookkeeping"), json!(ns), Value::Null, Value::Null);
    assert_eq!(share("PyTorch Profiler (0)"), own(100_000.0));
    assert_eq!(share("Activity Buffer Request"), own(7_000.0));
    assert_eq!(share("aten::mm").3, 0.75);
    // An event of the category `Trace` that is not in the process `Spans` belongs to the program.
    assert_eq!(share("mine").3, 0.25);
    assert_eq!(report["total"]["self_ns"], 40_000.0);
    assert_eq!(report["total"]["bookkeeping_calls"], 2);
}

#[test]
fn files_of_other_kinds() {
    let scratch = Scratch::new();
    // The protobuf encoding of XSpace{planes{id: 1, name: "/host:CPU", lines{}}}, a trace of
    // TensorFlow's profiler.
    let xplane = b"\x0a\x0f\x08\x01\x12\x09/host:CPU\x1a\x00";
    let elf = std::fs::read("/proc/self/exe").unwrap()[..4096].to_vec();
    for (bytes, what) in [
        (&xplane[..], "xplane.pb"),
        (&elf, "ELF"),
        (b"PAR1....", "Parquet"),
        (b"SQLite format 3\0", "SQLite"),
        (b"", "is empty"),
    ] {
        let file = scratch.join("file");
        std::fs::write(&file, bytes).unwrap();
        let check = run(&["trace", "check"], &[&file]);
        assert_eq!(check.status.code(), Some(1), "{check:?}");
        assert!(text(&check.stdout).contains(what), "{check:?}");
        let import = run(&["trace", "import", "-o"], &[&scratch.join("p.cpt"), &file]);
        assert_eq!(import.status.code(), Some(2), "{import:?}");
        assert!(text(&import.stderr).contains(what), "{import:?}");
    }
    let (profile, _) = import(&scratch, "t.json", b"[]");
    let check = run(&["trace", "check"], &[&profile]);
    assert!(text(&check.stdout).contains("a profile of Counterpoint"), "{check:?}");
    let import = run(&["trace", "import", "-o"], &[&scratch.join("p.cpt"), &profile]);
    assert!(text(&import.stderr).contains("a profile of Counterpoint"), "{import:?}");
    // Keys appear twice.
    let twice = scratch.join("twice.json");
    let trace = r#"{"traceEvents":[{"ph":"i","ts":1,"ts":2,"pid":1,"args":{"a":1,"a":2}}],"traceEvents":[]}"#;
    std::fs::write(&twice, trace).unwrap();
    let check = text(&run(&["trace", "check"], &[&twice]).stdout);
    for key in ["\"ts\"", "\"a\"", "\"traceEvents\""] {
        assert!(check.contains(&format!("the key {key}")), "{key}: {check}");
    }
}

/// A script writes the trace with Perfetto's published classes, and prints the expected values.
#[test]
fn perfettos_format_of_other_writers() {
    let modules = "perfetto.protos.perfetto.trace.perfetto_trace_pb2";
    let Some(python) = testkit::python::with("perfetto_foreign", modules) else { return };
    let scratch = Scratch::new();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/support/foreign_pftrace.py");
    let file = scratch.join("t.pftrace");
    let written = Command::new(python).arg(script).arg(&file).output().unwrap();
    assert!(written.status.success(), "{}", text(&written.stderr));
    let expected: Value = serde_json::from_slice(&written.stdout).unwrap();
    let profile = scratch.join("p.cpt");
    let done = run(&["trace", "import", "-o"], &[&profile, &file]);
    assert!(done.status.success(), "{done:?}");
    let said = "18 events, including 6 calls, 1 asynchronous span, 4 values of counters";
    assert!(text(&done.stderr).contains(said), "{done:?}");
    let again: Value = serde_json::from_str(&exported(&scratch, &profile)).unwrap();
    let base = again["baseTimeNanoseconds"].as_i64().unwrap();
    // Times in the export are in microseconds with three decimals.
    let ns = |value: &Value| (value.as_f64().unwrap() * 1e3).round() as i64;
    let events = again["traceEvents"].as_array().unwrap();
    let of = |form: &'static str| events.iter().filter(move |e| e["ph"] == form);
    let sorted = |mut all: Vec<Value>| {
        all.sort_by_key(Value::to_string);
        Value::from(all)
    };
    let slices = of("X")
        .map(|e| json!([e["name"], e["cat"], base + ns(&e["ts"]), ns(&e["dur"]), e["args"]]));
    let expect = |key: &str| sorted(expected[key].as_array().unwrap().clone());
    assert_eq!(sorted(slices.collect()), expect("slices"));
    let counters = of("C").map(|e| {
        let (key, value) = e["args"].as_object().unwrap().iter().next().unwrap();
        json!([e["name"], key, base + ns(&e["ts"]), value.as_f64()])
    });
    assert_eq!(sorted(counters.collect()), expect("counters"));
    let flows = of("s").chain(of("f")).map(|e| json!([e["ph"], e["id"], base + ns(&e["ts"])]));
    assert_eq!(sorted(flows.collect()), expect("flows"));
    let report = report(&profile);
    assert_eq!(losses(&report), [loss("trace_event_damaged", 1)]);
    let notes = report["notes"].to_string();
    assert!(notes.contains("2 packets are not about events"), "{notes}");
    // The file can also be imported if its end is missing, which is tested for many lengths.
    let whole = std::fs::read(&file).unwrap();
    for end in (40..whole.len()).step_by(37) {
        let (_, said) = import(&Scratch::new(), "cut.pftrace", &whole[..end]);
        assert!(said.contains("event"), "{end}: {said}");
    }
}
