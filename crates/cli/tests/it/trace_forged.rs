//! Traces that claim to be our exports but contain wrong values: an import either makes a profile
//! that every view can read, or says what is wrong and leaves nothing.

use std::path::Path;
use std::process::{Command, Output};

use profile::Role;
use serde_json::{Value, json};
use testkit::{CallScript, Item, ProfileScript, Scratch};

const PROGRAM: &str = env!("CARGO_BIN_EXE_counterpoint");

fn run(args: &[&str], paths: &[&Path]) -> Output {
    Command::new(PROGRAM).args(args).args(paths).output().unwrap()
}

/// An export with all the numbers that an import reads.
fn exported(scratch: &Scratch) -> Value {
    let mut script = ProfileScript::monotonic();
    script.counter("page-faults", 0);
    let process = script.process(7);
    process.library("mlp", &["matmul", "softmax"]);
    let machine = process.machine("vm");
    let op = process.op(machine, Role::Op, "add", "float32[1]");
    for name in ["main", "worker"] {
        let thread = process.thread(name);
        for i in 0..4 {
            let call = CallScript::new(i % 2, 1_000 * u64::from(i), 500).workgroup(i, 4);
            thread.call(call.group(500, &[3]));
            thread.call(CallScript::op(op, 1_000 * u64::from(i) + 600, 100).group(100, &[1]));
            thread.then(Item::Clock(1_000 * u64::from(i) + 800, 5, 1_000 * u64::from(i) + 800));
        }
        thread.then(Item::NextPage(5_000, 50, 5_000));
        thread.call(CallScript::new(0, 6_000, 10).workgroup(0, 1).group(10, &[7]));
    }
    let (dir, trace) = (scratch.join("p.cpt"), scratch.join("p.json"));
    script.write(&dir);
    assert!(run(&["trace", "export", "-o"], &[&trace, &dir]).status.success());
    serde_json::from_slice(&std::fs::read(&trace).unwrap()).unwrap()
}

/// The values inside a value, each by its path.
fn paths(value: &Value, at: &str, all: &mut Vec<String>) {
    all.push(at.to_owned());
    match value {
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(i, v)| paths(v, &format!("{at}/{i}"), all));
        }
        Value::Object(map) => {
            map.iter().for_each(|(key, v)| paths(v, &format!("{at}/{key}"), all));
        }
        _ => {}
    }
}

/// Wrong replacements for a value. They have its type, so that they are examined.
fn lies(value: &Value) -> Vec<Value> {
    let numbers = [0, 1, 31, 32, 0xffff, u32::MAX.into(), 1 << 53, i64::MAX as u64, u64::MAX];
    match value {
        Value::Number(_) => {
            let of = [json!(-1), json!(i64::MIN), json!(1e308), json!(-0.0), json!(0.5)];
            numbers.iter().map(|n| json!(n)).chain(of).collect()
        }
        Value::String(_) => ["", "..", "a/b", "\0", "x"].iter().map(|s| json!(s)).collect(),
        Value::Bool(is) => vec![json!(!is)],
        Value::Array(items) => {
            let first = items.first().cloned().unwrap_or_default();
            vec![json!([]), json!(vec![first.clone(); 40]), json!([first, null, []])]
        }
        Value::Object(_) | Value::Null => vec![json!({}), json!([1]), json!(7)],
    }
}

/// Imports a trace and runs views on the result.
///
/// `turn` selects which of the other views to run.
fn holds(trace: &Value, scratch: &Scratch, turn: usize, what: &str) -> bool {
    let [file, dir] = ["x.json", "x.cpt"].map(|name| scratch.join(name));
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::write(&file, trace.to_string()).unwrap();
    let output = run(&["trace", "import", "-o"], &[&dir, &file]);
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(2) {
        assert!(said.starts_with("counterpoint: read ") && !dir.exists(), "{what}: {said}");
        return false;
    }
    assert_eq!(output.status.code(), Some(0), "{what}: {said}");
    let [json, perfetto] = ["y.json", "y.pftrace"].map(|name| scratch.join(name));
    let others: [(&[&str], &[&Path]); 4] = [
        (&["ops"], &[&dir]),
        (&["stats"], &[&dir]),
        (&["trace", "export", "-o"], &[&json, &dir]),
        (&["trace", "export", "-o"], &[&perfetto, &dir]),
    ];
    let report: (&[&str], &[&Path]) = (&["report"], &[&dir]);
    for (args, paths) in [report, others[turn % others.len()]] {
        let output = run(args, paths);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{what}: {args:?}: {said}");
    }
    said.contains("the profile that was exported")
}

#[test]
fn one_wrong_value() {
    let scratch = Scratch::new();
    let honest = exported(&scratch);
    assert!(holds(&honest, &scratch, 3, "honest"));
    let events = honest["traceEvents"].as_array().unwrap();
    let page = events.iter().position(|e| e["name"] == "counterpoint_page").unwrap();
    let call = events.iter().position(|e| e["ph"] == "X").unwrap();
    let mut all = Vec::new();
    for at in ["/counterpoint", "/counterpoint_end", "/baseTimeNanoseconds"] {
        paths(honest.pointer(at).unwrap(), at, &mut all);
    }
    for event in [page, call] {
        paths(&events[event], &format!("/traceEvents/{event}"), &mut all);
    }
    let mut restored = 0;
    let mut turn = 0;
    for at in &all {
        // Every value is replaced once, each time by another wrong value.
        let lies = lies(honest.pointer(at).unwrap());
        turn += 1;
        let lie = &lies[turn % lies.len()];
        let mut trace = honest.clone();
        *trace.pointer_mut(at).unwrap() = lie.clone();
        restored += u32::from(holds(&trace, &scratch, turn, &format!("{at} = {lie}")));
    }
    assert!(restored > 100, "{restored} of {}", all.len());
}

#[test]
fn pages_that_claim_more_calls_than_exist() {
    let scratch = Scratch::new();
    let mut trace = exported(&scratch);
    for event in trace["traceEvents"].as_array_mut().unwrap() {
        if event["name"] == "counterpoint_page" {
            event["args"]["calls"] = json!(u64::MAX);
        }
    }
    assert!(holds(&trace, &scratch, 2, "calls"));
    let said = run(&["report"], &[&scratch.join("x.cpt")]);
    let said = String::from_utf8_lossy(&said.stdout);
    let note = format!("{} of its calls are missing", u64::MAX - 18);
    assert!(said.contains(&note), "{said}");
}

#[test]
fn pages_with_counters_that_do_not_exist() {
    let scratch = Scratch::new();
    let mut trace = exported(&scratch);
    for event in trace["traceEvents"].as_array_mut().unwrap() {
        if event["name"] == "counterpoint_page" {
            event["args"]["counters"] = json!(255);
        }
    }
    assert!(holds(&trace, &scratch, 2, "counters"));
    let said = run(&["report", "--format", "json"], &[&scratch.join("x.cpt")]);
    let report: Value = serde_json::from_slice(&said.stdout).unwrap();
    assert_eq!(report["total"]["calls"], 18, "{report}");
    let notes = report["notes"].to_string();
    assert!(notes.contains("4 pages or samples cannot be read"), "{notes}");
}
