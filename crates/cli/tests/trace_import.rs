//! `counterpoint trace import` as a user types it.

use std::process::Command;

use serde_json::{Value, json};

fn cli() -> Command {
    Command::new(env!("CARGO_BIN_EXE_counterpoint"))
}

#[test]
fn a_trace_becomes_a_profile() {
    let scratch = testkit::Scratch::new();
    let at = |name: &str| scratch.path().join(name);
    let event = |name: &str, ts: f64| json!({"ph": "X", "cat": "cpu_op", "name": name, "pid": 5, "tid": 6, "ts": ts, "dur": 1.5});
    let trace = json!({"traceEvents": [event("a", 1.0), event("b", 3.0), event("a", 5.0)]});
    std::fs::write(at("t.json"), trace.to_string()).unwrap();
    let output = at("p.cpt");
    let import = |file: &str| {
        cli().args(["trace", "import"]).arg(at(file)).arg("-o").arg(&output).output().unwrap()
    };
    let done = import("t.json");
    assert!(done.status.success(), "{done:?}");
    assert!(
        String::from_utf8_lossy(&done.stderr).contains("3 events, 3 of them calls"),
        "{done:?}"
    );

    let report = cli().arg("report").arg(&output).args(["--format", "json"]).output().unwrap();
    let report: Value = serde_json::from_slice(&report.stdout).unwrap();
    let rows: Vec<_> = report["rows"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| (row["op"].clone(), row["calls"].clone(), row["total_ns"].clone()))
        .collect();
    assert_eq!(
        rows,
        [(json!("a"), json!(2), json!(3000.0)), (json!("b"), json!(1), json!(1500.0))]
    );

    // A file that is no trace says where, and leaves the profile that was there as DIR.old.
    std::fs::write(at("bad.json"), r#"{"traceEvents":[{"name":"a"b"}]}"#).unwrap();
    let bad = import("bad.json");
    assert_eq!(bad.status.code(), Some(2));
    let said = String::from_utf8_lossy(&bad.stderr).into_owned();
    assert!(said.contains("bad.json: byte 27: not JSON"), "{said}");
    assert!(!output.exists() && at("p.cpt.old").exists());

    // A file that is not there costs nothing at all.
    std::fs::rename(at("p.cpt.old"), &output).unwrap();
    let none = import("none.json");
    assert_eq!(none.status.code(), Some(2));
    assert!(output.exists());
}
