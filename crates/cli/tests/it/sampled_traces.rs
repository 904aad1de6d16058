//! Tests the timelines of runs with a budget, in which only some calls were timed. The slice of
//! each timed call shows the call's weight.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use testkit::Scratch;

use crate::sampled::paper;
use crate::support::trace_processor::TraceProcessor;

const PROGRAM: &str = env!("CARGO_BIN_EXE_counterpoint");

fn run(args: &[&str]) -> String {
    let output = Command::new(PROGRAM).args(args).output().unwrap();
    assert!(output.status.success(), "{args:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn export(profile: &Path, scratch: &Scratch, name: &str) -> std::path::PathBuf {
    let trace = scratch.join(name);
    run(&["trace", "export", "-o", trace.to_str().unwrap(), profile.to_str().unwrap()]);
    trace
}

#[test]
fn slices_have_weights_and_the_process_says_that_it_is_a_sample() {
    let (scratch, profile) = paper().written();
    let trace = export(&profile, &scratch, "a.json");
    let trace: Value = serde_json::from_slice(&std::fs::read(trace).unwrap()).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let slices: Vec<&Value> = events.iter().filter(|event| event["ph"] == "X").collect();
    // A sample does not contain all workgroups of a dispatch, so the timeline has no slices of
    // dispatches.
    assert_eq!(slices.len(), 8);
    let of = |key: &str| -> Vec<Value> {
        let matmul = slices.iter().filter(|slice| slice["name"] == "matmul");
        matmul.map(|slice| slice["args"][key].clone()).collect()
    };
    assert_eq!(of("weight"), [1, 1, 4, 4, 4]);
    assert_eq!(of("skipped"), [0, 0, 2, 3, 0]);
    assert_eq!(of("counter_weight"), [json!(1), json!(1), json!(8), Value::Null, json!(8)]);
    assert!(slices.iter().all(|slice| slice["args"].get("dispatch").is_none()));
    let labels: Vec<&Value> =
        events.iter().filter(|event| event["name"] == "process_labels").collect();
    assert_eq!(labels.len(), 1);
    let label = labels[0]["args"]["labels"].as_str().unwrap();
    assert_eq!(
        label,
        "CPU; a sample: slices are the timed calls, 8 of 15; the others were only counted"
    );
    assert_eq!(trace["counterpoint"]["manifest"]["budget"], 0.02);
}

#[test]
fn perfetto_reads_the_weights() {
    let Some(mut processor) = TraceProcessor::start("sampled_traces") else { return };
    let (scratch, profile) = paper().written();
    for ending in ["json", "pftrace"] {
        let trace = export(&profile, &scratch, &format!("a.{ending}"));
        processor.load(&trace);
        let rows = processor.query(
            "select slice.dur, weight.int_value, skipped.int_value, counters.int_value from slice \
             join args weight on weight.arg_set_id = slice.arg_set_id and weight.key glob '*.weight' \
             join args skipped on skipped.arg_set_id = slice.arg_set_id \
             and skipped.key glob '*.skipped' \
             left join args counters on counters.arg_set_id = slice.arg_set_id \
             and counters.key glob '*.counter_weight' \
             where slice.name = 'matmul' order by slice.ts",
        );
        let expected = [
            json!([1_000, 1, 0, 1]),
            json!([800, 1, 0, 1]),
            json!([10, 4, 2, 8]),
            json!([14, 4, 3, null]),
            json!([12, 4, 0, 8]),
        ];
        assert_eq!(rows.into_iter().map(Value::from).collect::<Vec<_>>(), expected, "{ending}");
        let sum = processor.query("select count(*) from slice");
        assert_eq!(sum, [[json!(8)]], "{ending}");
    }
}
