//! Tests `counterpoint trace export` with a profile whose timeline was computed on paper.

use std::io::Read;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use testkit::{CallScript, Golden, ProfileScript, Scratch};

const PROGRAM: &str = env!("CARGO_BIN_EXE_counterpoint");
const BASE: i64 = 1_700_000_000_000_000_000 / 7_889_238_000_000_000 * 7_889_238_000_000_000;
const NAME: &str = "odd \"name\" \\ \n\u{1}é";

/// Makes a profile with three dispatches. Two of them have two workgroups, one on each of two
/// threads; the third has three workgroups on one thread.
fn script() -> ProfileScript {
    let mut script = ProfileScript::monotonic();
    script.counter("page-faults", 0);
    script.counter("bytes", 1).unit = "bytes".to_owned();
    let process = script.process(100);
    process.library("mlp", &["matmul", NAME]);
    let main = process.thread("main");
    main.call(CallScript::new(0, 1_000, 500).workgroup(0, 2).on(1, 0).group(5, &[3]).unread());
    main.call(CallScript::new(0, 3_001, 99).workgroup(1, 2).group(5, &[0]).group(5, &[7]));
    for i in 0..3 {
        let start = 10_000 + 100 * u64::from(i);
        let call = CallScript::new(1, start, 50).workgroup(i, 3).group(5, &[1]);
        main.call(if i == 1 { call.scaled(9, 4, &[2]) } else { call.group(9, &[2]) });
    }
    let worker = process.thread("worker \"0\"");
    worker.call(CallScript::new(0, 1_200, 800).workgroup(1, 2).group(5, &[4]).unread());
    worker.call(CallScript::new(0, 3_000, 200).workgroup(0, 2).on(2, 1).group(5, &[5]).unread());
    script
}

fn export(dir: &Path, output: &Path, more: &[&str]) {
    let mut command = Command::new(PROGRAM);
    command.args(["trace", "export"]).arg(dir).arg("-o").arg(output).args(more);
    assert!(command.status().unwrap().success());
}

fn exported(more: &[&str]) -> (Scratch, Value) {
    let scratch = Scratch::new();
    let (dir, output) = (scratch.join("x.cpt"), scratch.join("x.json"));
    script().write(&dir);
    export(&dir, &output, more);
    let trace = serde_json::from_slice(&std::fs::read(&output).unwrap()).unwrap();
    (scratch, trace)
}

fn events<'a>(trace: &'a Value, phase: &str) -> Vec<&'a Value> {
    trace["traceEvents"].as_array().unwrap().iter().filter(|e| e["ph"] == phase).collect()
}

/// Converts a time of the trace to ns on the profile's clock.
fn ns(trace: &Value, us: &Value) -> i64 {
    let base = trace["baseTimeNanoseconds"].as_i64().unwrap();
    (us.as_f64().unwrap() * 1_000.0).round() as i64 + base - 1_700_000_000_000_000_000
}

#[test]
fn calls_and_dispatches_equal_those_on_paper() {
    let (_scratch, trace) = exported(&[]);
    assert_eq!(trace["schemaVersion"], 1);
    assert_eq!(trace["baseTimeNanoseconds"], BASE);
    assert_eq!(trace["displayTimeUnit"], "ms");
    assert_eq!(trace["host_name"], "paper");
    assert_eq!(trace.get("distributedInfo"), None);
    let slices: Vec<_> = events(&trace, "X")
        .iter()
        .map(|e| {
            let start = ns(&trace, &e["ts"]);
            let duration = (e["dur"].as_f64().unwrap() * 1_000.0).round() as i64;
            let text = |key: &str| e[key].as_str().unwrap().to_owned();
            (text("cat"), text("name"), e["tid"].as_i64().unwrap(), start, duration)
        })
        .collect();
    let call = |name: &str, tid, start, duration| {
        ("cpu_op".to_owned(), name.to_owned(), tid, start, duration)
    };
    let dispatch =
        |name: &str, start, duration| ("kernel".to_owned(), name.to_owned(), 0, start, duration);
    let expected = [
        call("matmul", 100, 1_000, 500),
        call("matmul", 101, 1_200, 800),
        dispatch("matmul", 1_000, 1_000),
        call("matmul", 101, 3_000, 200),
        call("matmul", 100, 3_001, 99),
        dispatch("matmul", 3_000, 200),
        call(NAME, 100, 10_000, 50),
        call(NAME, 100, 10_100, 50),
        call(NAME, 100, 10_200, 50),
        dispatch(NAME, 10_000, 250),
    ];
    assert_eq!(slices, expected);
}

#[test]
fn arguments_say_which_workgroup_and_what_it_counted() {
    let (_scratch, trace) = exported(&["--vocabulary", "generic"]);
    let slices = events(&trace, "X");
    assert_eq!(slices[0]["cat"], "workgroup");
    assert_eq!(
        slices[0]["args"],
        json!({"workgroup": [0, 0, 0], "worker": 0, "cpu": 1, "dispatch": 1, "correlation": 1,
               "page-faults": 3, "bytes": null})
    );
    assert_eq!(
        slices[3]["args"],
        json!({"workgroup": [0, 0, 0], "worker": 0, "cpu": 2, "node": 1, "dispatch": 2,
               "correlation": 2, "page-faults": 5, "bytes": null})
    );
    // The counter was multiplexed.
    assert_eq!(slices[7]["args"]["bytes"], Value::Null);
    assert_eq!(
        slices[9]["args"],
        json!({"device": 0, "stream": 0, "correlation": 3, "workgroups": [3, 1, 1],
               "page-faults": 3, "bytes": null})
    );
    // An arrow leads from the call that began a dispatch to the dispatch.
    let ends = |phase: &str| -> Vec<(i64, i64)> {
        let ends = events(&trace, phase);
        ends.iter().map(|e| (e["id"].as_i64().unwrap(), ns(&trace, &e["ts"]))).collect()
    };
    assert_eq!(ends("s"), [(1, 1_000), (2, 3_000), (3, 10_000)]);
    assert_eq!(ends("f"), ends("s"));
    assert!(events(&trace, "f").iter().all(|e| e["bp"] == "e" && e["cat"] == "ac2g"));
}

#[test]
fn counters_are_series_with_gaps() {
    let (_scratch, trace) = exported(&[]);
    let points: Vec<_> = events(&trace, "C")
        .iter()
        .map(|e| (e["name"].as_str().unwrap(), ns(&trace, &e["ts"]), e["args"].clone()))
        .collect();
    let faults = "main 100 counters of group 0";
    let of_main: Vec<_> = points.iter().filter(|p| p.0 == faults).map(|p| (p.1, &p.2)).collect();
    let expected = [(1_000, 3), (3_001, 0), (10_000, 1), (10_100, 1), (10_200, 1)];
    for (got, (at, value)) in of_main.iter().zip(expected) {
        assert_eq!(*got, (at, &json!({ "page-faults": value })));
    }
    assert_eq!(of_main.len(), expected.len());
    let bytes: Vec<i64> =
        points.iter().filter(|p| p.0 == "main 100 counters of group 1").map(|p| p.1).collect();
    assert_eq!(bytes, [3_001, 10_000, 10_200], "unread and multiplexed calls have no point");
    let (_scratch, without) = exported(&["--no-counter-tracks"]);
    assert!(events(&without, "C").is_empty());
}

#[test]
fn rows_have_names_and_other_facts_are_next_to_the_events() {
    let (_scratch, trace) = exported(&["--rank", "3", "--world-size", "4"]);
    assert_eq!(trace["distributedInfo"], json!({"rank": 3, "world_size": 4}));
    let rows: Vec<_> = events(&trace, "M")
        .iter()
        .filter(|e| e["name"] == "process_name" || e["name"] == "thread_name")
        .map(|e| (e["pid"].as_i64().unwrap(), e["tid"].as_i64().unwrap(), &e["args"]["name"]))
        .collect();
    let expected = [
        (100, 0, "model"),
        (5_000_000, 0, "dispatches of model 100"),
        (100, 100, "thread 100 (main)"),
        (100, 101, "thread 101 (worker \"0\")"),
        (5_000_000, 0, "stream 0"),
    ];
    let expected = expected.map(|(p, t, n)| (p, t, json!(n)));
    assert_eq!(rows, expected.each_ref().map(|(p, t, n)| (*p, *t, n)));
    let facts = &trace["counterpoint"];
    assert_eq!(facts["schema"], "counterpoint.trace/1");
    assert_eq!(facts["manifest"]["host"], "paper");
    assert_eq!(facts["clock"]["snapshots"][1]["ticks"], 1_000_000_000);
    assert_eq!(facts["losses"], json!([]), "no loss is known before the calls are read");
    assert_eq!(
        trace["counterpoint_end"]["losses"],
        json!([
            {"pid": 100, "name": "multiplexed_call", "count": 1, "errno": null}
        ])
    );
}

#[test]
fn gzip_holds_the_same() {
    let scratch = Scratch::new();
    let (dir, plain, gz) =
        (scratch.join("x.cpt"), scratch.join("x.json"), scratch.join("y.json.gz"));
    script().write(&dir);
    export(&dir, &plain, &[]);
    export(&dir, &gz, &[]);
    let mut text = String::new();
    let file = std::fs::File::open(&gz).unwrap();
    flate2::read::GzDecoder::new(file).read_to_string(&mut text).unwrap();
    let plain = std::fs::read_to_string(plain).unwrap();
    assert_eq!(text.replace("y.json.gz", "x.json"), plain);
}

#[test]
fn errors_of_writing_are_reported() {
    let (_scratch, dir) = script().written();
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/trace");
    let golden = Golden::new(PROGRAM, golden);
    let dir = dir.to_str().unwrap();
    golden.check("ending", 2, &["trace", "export", dir, "-o", "x.txt"]);
    golden.check(
        "rank",
        2,
        &["trace", "export", dir, "-o", "x.json", "--rank", "4", "--world-size", "4"],
    );
}

/// HolisticTraceAnalysis rounds to microseconds.
#[test]
fn holistic_trace_analysis_finds_the_kernels() {
    const LOOK: &str = include_str!("holistic_trace_analysis.py");
    let Some(python) = crate::support::hta("hta") else { return };
    let mut script = ProfileScript::monotonic();
    let process = script.process(100);
    process.library("mlp", &["matmul", "softmax"]);
    let main = process.thread("main");
    main.call(CallScript::new(0, 100_000, 10_000).workgroup(0, 2));
    main.call(CallScript::new(0, 110_000, 10_000).workgroup(1, 2));
    main.call(CallScript::new(1, 140_000, 5_000));
    main.call(CallScript::new(0, 170_000, 40_000));
    let scratch = Scratch::new();
    let (dir, output) = (scratch.join("x.cpt"), scratch.join("x.json"));
    script.write(&dir);
    export(&dir, &output, &[]);
    let mut command = Command::new(python);
    assert!(command.args(["-c", LOOK]).arg(output).status().unwrap().success());
}

/// For JSON and for Perfetto's format, `trace check` states at which byte the fault is.
#[test]
fn check_names_the_byte() {
    let (scratch, dir) = script().written();
    let at = |name: &str| scratch.join(name);
    let names = ["x.json", "x.json.gz", "x.pftrace"];
    names.iter().for_each(|name| export(&dir, &at(name), &[]));
    export(&dir, &at("y.pftrace"), &["--compress"]);
    let broken = std::fs::read(at("x.json")).unwrap();
    let place = broken.windows(6).position(|w| w == b"\"dur\":").unwrap();
    std::fs::write(at("broken.json"), [&broken[..place], b"dur\":1}]}"].concat()).unwrap();
    std::fs::write(at("events.json"), r#"[{"ph":"E","pid":1,"tid":1,"ts":1},{"ph":"X"}]"#).unwrap();
    let cut = std::fs::read(at("x.pftrace")).unwrap();
    std::fs::write(at("cut.pftrace"), &cut[..cut.len() - 1]).unwrap();
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/trace");
    let golden = Golden::new(PROGRAM, golden).scrub(scratch.path().display().to_string(), "DIR");
    let check = |name: &str, code: i32, files: &[&str]| {
        let files: Vec<String> = files.iter().map(|f| at(f).display().to_string()).collect();
        let mut args = vec!["trace", "check"];
        args.extend(files.iter().map(String::as_str));
        golden.check(name, code, &args)
    };
    check("check-whole", 0, &["x.json", "x.json.gz", "x.pftrace", "y.pftrace"]);
    let found = check("check-events", 1, &["events.json"]);
    assert!(found.stdout.contains("byte 35: an event of phase X has no ts"));
    let output = golden.run(&["trace", "check", &at("broken.json").display().to_string()]);
    let expected = format!("byte {place}: not JSON");
    assert!(output.code == Some(1) && output.stdout.contains(&expected), "{output:?}");
    let last = cut.len() as u64;
    let output = golden.run(&[
        "trace",
        "check",
        "--format",
        "json",
        &at("cut.pftrace").display().to_string(),
    ]);
    let json: Value = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!(json["schema"], "counterpoint.trace-check/1");
    assert_eq!(json["files"][0]["counts"], json!({"truncated": 1}));
    assert!(json["files"][0]["findings"][0]["byte"].as_u64().unwrap() < last);
    check("check-missing", 2, &["nothing.json"]);
}

/// A sampled counter of a CPU becomes a series of rates. One tick of the profile's clock is 1 ns.
#[test]
fn tracks_are_rates_with_gaps() {
    use profile::TracksWriter;
    use profile::safe_dir::Dir;
    use profile::tracks::{Reading, Readings, Sample, Scope, Series, Times};
    let scratch = Scratch::new();
    let (dir, output) = (scratch.join("x.cpt"), scratch.join("x.json"));
    script().write(&dir);
    let mut tracks =
        TracksWriter::create(&Dir::open(&dir).unwrap(), "run", Readings::Counts).unwrap();
    let series = tracks.describe(Series {
        track: "power/energy-pkg/".into(),
        name: String::new(),
        unit: "Joules".into(),
        scale: 0.5,
        scope: Scope::Cpu(3),
        times: Times::Ticks,
        cumulative: true,
        interval_ns: 1_000,
        source: "sim".into(),
    });
    let count = |raw, enabled_ns, running_ns| Some(Reading::Count { raw, enabled_ns, running_ns });
    for (time, reading) in [
        (0, count(u64::MAX, 0, 0)),
        (1_000, count(3, 1_000, 1_000)),
        (2_000, None),
        (3_000, count(9, 3_000, 2_000)),
        (4_000, count(11, 4_000, 2_000)),
    ] {
        tracks.push(Sample { series, time, reading }).unwrap();
    }
    tracks.finish().unwrap();
    export(&dir, &output, &["--no-counter-tracks"]);
    let trace: Value = serde_json::from_slice(&std::fs::read(&output).unwrap()).unwrap();
    let points: Vec<_> = events(&trace, "C")
        .iter()
        .map(|e| {
            assert_eq!(e["name"], "power/energy-pkg/ cpu 3");
            assert_eq!(e["pid"], 6_000_000);
            (ns(&trace, &e["ts"]), e["args"]["Joules/s"].as_f64().unwrap())
        })
        .collect();
    // In the first µs, the counter wraps around and rises by 4 units of 0.5 J. In the next 2 µs it
    // rises by 6 units while it counts for half of the time, so the rate is doubled.
    assert_eq!(points, [(0, 2_000_000.0), (1_000, 3_000_000.0)]);
}
