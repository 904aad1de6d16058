//! Tests the import of bundles, which are recordings of IREE's own profiler. The bundle in
//! `fixtures/iree` is a real one, and the tests compute the expected result from its lines.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};
use testkit::{CallScript, ProfileScript, Scratch};

use crate::support::{Expected, Iree, Recorded, counterpoint};

const PROGRAM: &str = env!("CARGO_BIN_EXE_counterpoint");

fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/iree/mlp.ireeperf.jsonl")
}

fn run(words: &[&str]) -> Output {
    Command::new(PROGRAM).args(words).output().unwrap()
}

fn output(words: &[&str]) -> String {
    let output = run(words);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn of_type<'a>(lines: &'a [Value], kind: &str) -> impl Iterator<Item = &'a Value> {
    lines.iter().filter(move |line| line["record_type"] == kind)
}

/// The number of calls and the sum of their durations, by name.
type Sums = BTreeMap<String, (u64, u64)>;

fn add(sums: &mut Sums, name: &str, ns: u64) {
    let sum = sums.entry(name.to_owned()).or_default();
    *sum = (sum.0 + 1, sum.1 + ns);
}

fn calls(dir: &str, keep: impl Fn(&str) -> bool) -> Sums {
    let mut sums = Sums::new();
    let document: Value =
        serde_json::from_str(&output(&["export", dir, "--format", "json"])).unwrap();
    for call in document["calls"].as_array().unwrap() {
        if let Some(op) = call["op"].as_str().filter(|op| keep(op)) {
            add(&mut sums, op, call["duration_ns"].as_f64().unwrap() as u64);
        }
    }
    sums
}

#[test]
fn every_event_becomes_a_call_with_its_time() {
    let lines = lines(&fixture());
    let mut expected = Sums::new();
    for event in of_type(&lines, "host_execution_event") {
        let name = event["key"].as_str().unwrap_or_else(|| event["op"].as_str().unwrap());
        add(&mut expected, name, event["duration_ns"].as_u64().unwrap());
    }
    for event in of_type(&lines, "command_region_event") {
        add(&mut expected, "region", event["duration_ns"].as_u64().unwrap());
    }
    for event in of_type(&lines, "queue_event") {
        let at = |key: &str| event[key].as_u64().unwrap();
        let name = format!("{} queued", event["op"].as_str().unwrap());
        add(&mut expected, &name, at("ready_host_time_ns") - at("host_time_ns"));
    }
    assert_eq!(expected.values().map(|(n, _)| n).sum::<u64>(), 14 + 4 + 10);
    let scratch = Scratch::new();
    let dir = scratch.join("x.cpt");
    let dir = dir.to_str().unwrap();
    output(&["trace", "import", fixture().to_str().unwrap(), "-o", dir]);
    assert_eq!(calls(dir, |_| true), expected);
    // The bytes that IREE's memory pool reserves become a time series, with one value for each
    // memory event.
    let tracks = output(&["export", dir, "--what", "tracks", "--format", "json"]);
    let last = of_type(&lines, "memory_event").last().unwrap();
    let reserved = last["pool_bytes_reserved"].as_f64().unwrap();
    let tracks: Value = serde_json::from_str(&tracks).unwrap();
    let samples = tracks["samples"].as_array().unwrap().iter();
    let values: Vec<f64> = samples
        .filter(|sample| sample["name"] == "reserved")
        .map(|sample| sample["value"].as_f64().unwrap())
        .collect();
    assert_eq!(values.last(), Some(&reserved));
    assert_eq!(values.len(), of_type(&lines, "memory_event").count());
}

/// Returns a made-up profile of the same run as the fixture's bundle. The workgroups of each
/// dispatch run on two workers, between the begin and the end of IREE's event about the dispatch.
fn recorded(lines: &[Value]) -> ProfileScript {
    let mut script = ProfileScript::monotonic();
    let process = script.process(4711);
    let dispatches: Vec<&Value> =
        of_type(lines, "host_execution_event").filter(|event| event["op"] == "dispatch").collect();
    let names: Vec<&str> = dispatches.iter().map(|event| event["key"].as_str().unwrap()).collect();
    process.library("mlp_linked", &names);
    for worker in 0..2u32 {
        let thread = process.thread(&format!("iree-worker-{worker}"));
        for (export, event) in (0u32..).zip(&dispatches) {
            let count = event["workgroup_count"][0].as_u64().unwrap() as u32;
            let begin = event["start_host_time_ns"].as_u64().unwrap();
            let each = event["duration_ns"].as_u64().unwrap() / u64::from(count / 2 + 1);
            for id in (worker..count).step_by(2) {
                let at = begin + 10 + u64::from(id / 2) * each;
                thread.call(CallScript::new(export, at, each - 1).workgroup(id, count));
            }
        }
    }
    script
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_bundle_is_joined_with_a_profile_by_dispatch_and_clock() {
    let lines = lines(&fixture());
    let (_scratch, dir) = recorded(&lines).written();
    let dir = dir.to_str().unwrap();
    let before = calls(dir, |_| true);
    let fixture = fixture();
    let into = run(&["trace", "import", fixture.to_str().unwrap(), "--into", dir]);
    assert!(into.status.success(), "{}", said(&into));
    assert!(said(&into).contains("4 of 4 dispatches are those of 4711"), "{}", said(&into));
    // The profile already has the bundle's dispatches, so the import does not add calls of them.
    // The import adds the operations of IREE's queue.
    assert_eq!(calls(dir, |op| op.starts_with("mlp_dispatch")), before);
    assert_eq!(calls(dir, |op| op == "execute")["execute"].0, 1);
    // With times converted to the profile's clock, IREE's event about a dispatch encloses the
    // dispatch's workgroups.
    let trace = output(&["trace", "export", dir, "-o", "-", "--format", "json"]);
    let trace: Value = serde_json::from_str(&trace).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let at = |event: &Value| {
        let [begin, duration] = ["ts", "dur"].map(|key| event[key].as_f64().unwrap());
        [begin, begin + duration]
    };
    let of_iree: Vec<&Value> =
        events.iter().filter(|event| !event["args"]["tile_count"].is_null()).collect();
    assert_eq!(of_iree.len(), 4);
    for event in of_iree {
        let number = &event["args"]["dispatch"];
        let [begin, end] = at(event);
        let inside: Vec<&Value> = events
            .iter()
            .filter(|other| other["args"]["dispatch"] == *number && other["ph"] == "X")
            .filter(|other| other["args"]["workgroup"].is_array())
            .collect();
        assert_eq!(json!(inside.len()), event["args"]["tile_count"]);
        for workgroup in inside {
            assert_eq!(workgroup["name"], event["name"]);
            let [first, last] = at(workgroup);
            assert!(begin - 0.01 <= first && last <= end + 0.01, "{event} {workgroup}");
        }
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let lines = lines(&fixture());
    let mut other = recorded(&lines);
    for call in other.processes[0].threads.iter_mut().flat_map(|thread| &mut thread.items) {
        if let testkit::Item::Call(call) = call {
            (call.call.start, call.call.end) =
                (call.call.start + (1 << 40), call.call.end + (1 << 40));
        }
    }
    let (scratch, dir) = other.written();
    let (fixture, dir) = (fixture(), dir.to_str().unwrap());
    let into = run(&["trace", "import", fixture.to_str().unwrap(), "--into", dir]);
    assert_eq!(into.status.code(), Some(2));
    assert!(said(&into).contains("none of its 4 dispatches ran there"), "{}", said(&into));
    // The error message names the command of IREE that converts IREE's binary format.
    let bundle = scratch.join("x.ireeprof");
    std::fs::write(&bundle, b"IRPF\x01\0\x06\0 and more").unwrap();
    let import = run(&["trace", "import", bundle.to_str().unwrap(), "-o", dir]);
    assert!(said(&import).contains("iree-profile export"), "{}", said(&import));
}

/// The device's time stamps in this test are made up, because IREE's drivers for CPUs record none.
#[test]
fn times_of_a_device_are_moved_to_the_clock_of_the_host() {
    let correlation = |driver: u64, host: u64| {
        json!({"record_type": "clock_correlation", "physical_device_ordinal": 0,
               "host_cpu_timestamp_ns": driver, "host_time_begin_ns": host - 5,
               "host_time_end_ns": host + 5})
    };
    let lines = [
        json!({"schema_version": 15, "record_type": "schema", "format": "ireeperf-jsonl"}),
        correlation(1_000, 51_000),
        // While the driver's clock advances by 1,000 ns, the host's clock advances by 1,100 ns.
        correlation(2_000, 52_100),
        json!({"record_type": "counter", "counter_set_id": 3, "name": "waves",
               "sample_value_offset": 1, "sample_value_count": 2}),
        json!({"record_type": "dispatch_event", "event_id": 9, "physical_device_ordinal": 0,
               "queue_ordinal": 1, "key": "matmul", "workgroup_count": [4, 2, 1], "valid": true,
               "derived_time_available": true, "start_driver_host_cpu_time_ns": 1_200,
               "end_driver_host_cpu_time_ns": 1_700}),
        json!({"record_type": "counter_sample", "counter_set_id": 3, "dispatch_event_id": 9,
               "values": [100, 7, 8]}),
        json!({"record_type": "dispatch_event", "event_id": 10, "physical_device_ordinal": 0,
               "queue_ordinal": 1, "key": "matmul", "valid": false}),
        json!({"record_type": "diagnostic", "dropped_records": 12}),
    ];
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let scratch = Scratch::new();
    let (file, dir) = (scratch.join("x.jsonl"), scratch.join("x.cpt"));
    std::fs::write(&file, text + "{\"record_type\":\"cut").unwrap();
    let dir = dir.to_str().unwrap();
    output(&["trace", "import", file.to_str().unwrap(), "-o", dir]);
    let report: Value =
        serde_json::from_str(&output(&["report", dir, "--format", "json"])).unwrap();
    // A duration of 500 ns on the driver's clock is 550 ns on the host's clock.
    assert_eq!(report["rows"][0]["op"], "matmul");
    assert_eq!(report["rows"][0]["total_ns"], 550.0);
    let losses = report["losses"].to_string();
    assert!(losses.contains("recording_incomplete") && losses.contains("12"), "{losses}");
    let trace = output(&["trace", "export", dir, "-o", "-", "--format", "json"]);
    let trace: Value = serde_json::from_str(&trace).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let event = events.iter().find(|event| event["name"] == "matmul").unwrap();
    assert_eq!(event["args"]["waves"], 15);
    assert_eq!((&event["ts"], &event["dur"]), (&json!(51.22), &json!(0.55)));
}

/// IREE's own profiler and Counterpoint record the same run.
#[test]
fn a_run_that_both_recorded() {
    let test = "iree_bundle";
    let Some((program, iree)) = counterpoint(test).zip(Iree::new(test)) else { return };
    let scratch = Scratch::new();
    let [bundle, lines_file] = ["x.ireeprof", "x.jsonl"].map(|name| scratch.join(name));
    let expected = Expected::of("mlp");
    let mut command = Command::new(iree.tool("iree-run-module"));
    command.arg(format!("--module={}", iree.module("mlp", false).display()));
    command.arg("--device=local-task").args(expected.arguments());
    command.arg(
        "--device_profiling_mode=host-execution,queue-events,memory-events,command-region-events",
    );
    command.arg(format!("--device_profiling_output={}", bundle.display()));
    let recorded = Recorded::run(&program, "none", &mut command);
    assert_eq!(recorded.ops(), expected.ops, "{}", recorded.stderr());
    let mut export = Command::new(iree.tool("iree-profile"));
    export.args(["export", "--format=ireeperf-jsonl"]);
    export.arg(format!("--output={}", lines_file.display())).arg(&bundle);
    assert!(export.output().unwrap().status.success());
    let lines = lines(&lines_file);
    let events = of_type(&lines, "host_execution_event");
    let dispatches = events.filter(|event| event["op"] == "dispatch").count();
    assert_eq!(dispatches as u64, expected.ops.values().map(|(_, n)| n).sum::<u64>());
    let into = run(&[
        "trace",
        "import",
        lines_file.to_str().unwrap(),
        "--into",
        recorded.path().to_str().unwrap(),
    ]);
    assert!(into.status.success(), "{}", said(&into));
    let all = format!("{dispatches} of {dispatches} dispatches are those of");
    assert!(said(&into).contains(&all), "{}", said(&into));
    let executed = calls(recorded.path().to_str().unwrap(), |op| op == "execute");
    assert_eq!(executed["execute"].0, 1);
}
