//! Tests the import of a trace that `torch.profiler` recorded of one training step on a GPU
//! (`fixtures/traces/README.md`). The expected numbers are sums over the events of that trace.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use testkit::Scratch;

const PROGRAM: &str = env!("CARGO_BIN_EXE_counterpoint");
const WORK: [&str; 2] = ["kernel", "gpu_memcpy"];

fn run(args: &[&str], paths: &[&Path]) -> Vec<u8> {
    let output = Command::new(PROGRAM).args(args).args(paths).output().expect("starts");
    assert!(output.status.success(), "{args:?}: {output:?}");
    output.stdout
}

fn rows(profile: &Path, by: &str) -> Vec<Value> {
    let args = ["report", "--format", "json", "--top", "0", "--by", by];
    let report: Value = serde_json::from_slice(&run(&args, &[profile])).expect("JSON");
    report["rows"].as_array().expect("rows").clone()
}

fn ns(event: &Value) -> i64 {
    (event["dur"].as_f64().expect("a duration") * 1e3).round() as i64
}

#[test]
fn a_step_on_a_device_is_what_its_trace_says() {
    let scratch = Scratch::new();
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/traces/torch-cuda.json");
    let text = std::fs::read(&file).expect("the fixture");
    let trace: Value = serde_json::from_slice(&text).expect("JSON");
    let events = trace["traceEvents"].as_array().expect("events");
    let work = || {
        let is_work = |event: &&Value| event["cat"].as_str().is_some_and(|cat| WORK.contains(&cat));
        events.iter().filter(|event| event["ph"] == "X").filter(is_work)
    };
    let profile = scratch.join("t.cpt");
    run(&["trace", "import", "-o"], &[&profile, &file]);

    let mut expected: BTreeMap<&str, (i64, i64)> = BTreeMap::new();
    for event in work() {
        let sum = expected.entry(event["name"].as_str().expect("a name")).or_default();
        *sum = (sum.0 + 1, sum.1 + ns(event));
    }
    assert_eq!(expected.values().map(|(count, _)| count).sum::<i64>(), 30, "as the README says");
    let by_op = rows(&profile, "op");
    for (name, (count, total)) in &expected {
        let row = by_op.iter().find(|row| row["op"] == *name).expect("each name has a row");
        let found = (row["calls"].as_i64(), row["total_ns"].as_f64().map(|ns| ns.round() as i64));
        assert_eq!(found, (Some(*count), Some(*total)), "{name}");
    }

    // Kineto uses the name of the program as the device's name. So the report shows the label that
    // Kineto gives to the device, which contains the device's number.
    let all: i64 = expected.values().map(|(_, total)| total).sum();
    let by_device = rows(&profile, "device");
    let device = by_device.iter().find(|row| row["device"] == 0).expect("a device");
    assert_eq!(device["device_name"], "GPU 0");
    assert_eq!(device["self_ns"].as_f64().map(|ns| ns.round() as i64), Some(all));
    for stream in [7, 13] {
        let of_stream: i64 = work().filter(|event| event["tid"] == stream).map(ns).sum();
        let by_stream = rows(&profile, "stream");
        let row = by_stream.iter().find(|row| row["stream"] == stream).expect("a stream");
        assert_eq!(row["self_ns"].as_f64().map(|ns| ns.round() as i64), Some(of_stream));
    }

    // The profiler's events about itself are not a part of the step.
    let by_kind = rows(&profile, "kind");
    let mut shares = 0.0;
    for row in &by_kind {
        match row["kind"].as_str().expect("a kind") {
            "overhead" | "Trace" => assert_eq!(row["share"], Value::Null, "{row}"),
            _ => shares += row["share"].as_f64().expect("a part of the whole"),
        }
    }
    assert!((shares - 1.0).abs() < 1e-9, "{shares}");
}
