//! Tests recordings of PyTorch's profiler without PyTorch. `tests/programs/log_host.c` hands
//! recordings over as Counterpoint's shim in PyTorch does. The expected values follow from the
//! function `step` of this program.

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;

use serde_json::{Value, json};

use crate::support::{Programs, Recorded, counterpoint};

/// A step takes 100 µs, of which ops take 20 µs in the forward pass and 5 µs in the backward pass.
const STEP_SELF_NS: u64 = 75_000;

fn record(test: &str, mode: &str) -> Option<Recorded> {
    let program = counterpoint(test)?;
    let mut host = Command::new(Programs::get().other("log_host"));
    Some(Recorded::run(&program, "page-faults:u", host.arg(mode)))
}

impl Recorded {
    /// Returns the events of the exported trace.
    fn exported(&self) -> Vec<Value> {
        let path = self.directory.join("exported.json");
        let mut export = Command::new(counterpoint("exported").expect("it has recorded"));
        let done = export.args(["trace", "export"]).arg(self.path()).arg("-o").arg(&path).output();
        assert!(done.as_ref().is_ok_and(|done| done.status.success()), "{done:?}");
        let trace: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        trace["traceEvents"].as_array().unwrap().clone()
    }

    fn rows(&self, by: &str) -> Vec<Value> {
        self.report(&["--by", by])["rows"].as_array().unwrap().clone()
    }

    fn facts(&self) -> Value {
        let path = self.path().join("activities/plugins/document.json");
        let document: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        document["recordings"].clone()
    }
}

fn named<'a>(events: &'a [Value], phase: &str, name: &str) -> Vec<&'a Value> {
    events.iter().filter(|e| e["ph"] == phase && e["name"] == name).collect()
}

#[test]
fn two_recordings_are_one_timeline() {
    let Some(recorded) = record("torch_log", "whole") else { return };
    assert_eq!(recorded.output.status.code(), Some(17), "{}", recorded.stderr());
    assert_eq!(recorded.stdout(), "done\n");
    assert_eq!(recorded.losses(), BTreeMap::new());
    let said = recorded.stderr();
    let lines: Vec<&str> = said.lines().filter(|line| line.contains("torch.profiler")).collect();
    assert!(lines.len() == 2 && lines[0].contains("as text 2 times: broken = {"), "{said}");

    let ops: BTreeMap<String, u64> = recorded.report(&[])["rows"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| (row["op"].as_str().unwrap().to_owned(), row["calls"].as_u64().unwrap()))
        .collect();
    let names = ["LinearBackward0", "PyTorch Profiler (0)", "aten::linear", "aten::mm"];
    let more = ["nn.Module: Linear_0", "nn.Module: Net_0", "step \"1\"\\é"];
    let expected = names.into_iter().chain(more).map(|name| (name.to_owned(), 2));
    assert_eq!(ops, expected.collect());

    let events = recorded.exported();
    for linear in named(&events, "X", "aten::linear") {
        assert_eq!(
            linear["args"],
            json!({
                "Sequence number": 7,
                "Record function id": u64::MAX,
                "Input Dims": [[2, 3], []],
                "Backend": "a \"b\" \\",
                "not": "json",
            })
        );
        assert_eq!((&linear["dur"], &linear["cat"]), (&json!(20.0), &json!("cpu_op")));
    }
    // Each instant event is 31 µs after the begin of its step.
    let at = |e: &Value| (e["ts"].as_f64().unwrap() * 1e3).round() as i64;
    let [steps, moments] = [("X", "step \"1\"\\é"), ("i", "[memory]")]
        .map(|(phase, name)| named(&events, phase, name).into_iter().map(at).collect::<Vec<_>>());
    // The times in the trace are rounded, so the comparison allows 5 ns.
    let near = |(step, moment): (&i64, &i64)| (moment - step - 31_000).abs() <= 5;
    assert!(moments.len() == 2 && steps.iter().zip(&moments).all(near), "{steps:?} {moments:?}");
    assert_eq!(named(&events, "i", "[memory]")[0]["args"], json!({"Bytes": -64}));
    let counters: Vec<&Value> = events.iter().filter(|e| e["ph"] == "C").collect();
    let is_read = |e: &&Value| {
        e["name"].as_str().unwrap().starts_with("bandwidth ") && e["args"] == json!({"read": 1.5})
    };
    assert_eq!(counters.iter().filter(|e| is_read(e)).count(), 2, "{counters:?}");
    let ends = |phase| {
        named(&events, phase, "fwdbwd").into_iter().map(|e| e["id"].clone()).collect::<Vec<_>>()
    };
    let starts = ends("s");
    assert!(starts.len() == 2 && starts[0] != starts[1] && starts == ends("f"), "{starts:?}");
    let processes: Vec<&Value> =
        named(&events, "M", "process_name").into_iter().map(|e| &e["args"]["name"]).collect();
    let own =
        processes.iter().find(|name| name.as_str().unwrap().starts_with("PyTorch of log_host "));
    assert!(own.is_some() && processes.contains(&&json!("Spans")), "{processes:?}");

    let facts = recorded.facts();
    assert_eq!(facts.as_array().unwrap().len(), 2);
    assert_eq!((&facts[0]["trace_id"], &facts[1]["broken"]), (&json!("ABC"), &json!("{")));
}

#[test]
fn ops_are_added_up_by_module_and_by_shape() {
    let Some(recorded) = record("torch_log_tables", "whole") else { return };
    let row = |module: Value, calls, total, own, [ops, ops_ns, backward, backward_ns]: [u64; 4]| {
        json!({
            "module": module, "calls": calls, "total_ns": total, "self_ns": own, "ops": ops, "ops_ns": ops_ns,
            "backward_ops": backward, "backward_ns": backward_ns,
        })
    };
    assert_eq!(
        recorded.rows("module"),
        [
            row(Value::Null, 0, 0, 0, [2, 2 * STEP_SELF_NS, 0, 0]),
            row(json!("Net_0/Linear_0"), 2, 60_000, 60_000, [4, 40_000, 2, 10_000]),
            row(json!("Net_0"), 2, 100_000, 40_000, [0; 4]),
        ]
    );
    let report = recorded.report(&["--by", "module", "--filter", "*Linear*", "--sort", "calls"]);
    assert_eq!(report["schema"], "counterpoint.modules/1");
    assert_eq!((&report["ops_ns"], report["rows"].as_array().unwrap().len()), (&json!(200_000), 1));

    let row = |op: &str, shapes: Value, duration: u64, own: u64| {
        json!({
            "op": op, "shapes": shapes, "flops": null, "calls": 2, "total_ns": 2 * duration, "self_ns": 2 * own,
            "min_ns": duration, "max_ns": duration,
        })
    };
    assert_eq!(
        recorded.rows("shape"),
        [
            row("step \"1\"\\é", Value::Null, 100_000, STEP_SELF_NS),
            row("aten::linear", json!([[2, 3], []]), 20_000, 12_000),
            row("aten::mm", Value::Null, 8_000, 8_000),
            row("LinearBackward0", Value::Null, 5_000, 5_000),
        ]
    );

    // `rate` has no value, because the number of floating-point operations is not known for these
    // shapes.
    let metrics =
        ["--metric", "rate = flops / duration in G/s", "--metric", "often = calls / duration"];
    let report =
        recorded.report(&[&["--by", "shape", "--filter", "aten::mm"], &metrics[..]].concat());
    let metric = |name: &str, expression: &str, unit: &str| json!({"name": name, "expression": expression, "unit": unit, "builtin": false});
    assert_eq!(
        report["metrics"],
        json!([
            metric("rate", "flops / duration in G/s", "G/s"),
            metric("often", "calls / duration", "/s"),
        ])
    );
    let values = &report["rows"][0]["metrics"];
    assert_eq!(values[0], json!({"name": "rate", "unit": "G/s", "value": null}));
    assert_eq!(
        (&values[1]["name"], values[1]["value"].as_f64()),
        (&json!("often"), Some(125_000.0))
    );
    let refused = |by: &str, metric: &str| {
        let mut report = Command::new(counterpoint("refused").expect("it has recorded"));
        let done = report.arg("report").arg(recorded.path()).args(["--by", by, "--metric", metric]);
        let done = done.output().unwrap();
        (done.status.code(), String::from_utf8_lossy(&done.stderr).into_owned())
    };
    let (code, said) = refused("module", "rate = flops / duration");
    assert_eq!(
        (code, said.contains("--metric cannot be used with --by module")),
        (Some(2), true),
        "{said}"
    );
    let (code, said) = refused("shape", "x = instructions / duration");
    assert_eq!((code, said.contains("counters flops")), (Some(2), true), "{said}");
}

#[test]
fn a_recording_without_an_end_is_counted() {
    for (mode, code, signal) in [("cut", Some(17), None), ("killed", None, Some(9))] {
        let Some(recorded) = record("torch_log_cut", mode) else { return };
        let status = recorded.output.status;
        assert_eq!(
            (status.code(), status.signal()),
            (code, signal),
            "{mode}: {}",
            recorded.stderr()
        );
        // The recording is smaller than the recorder's buffer, so nothing of it was written to a
        // file before the process ended.
        let lost = BTreeMap::from([("recording_incomplete".to_owned(), 1)]);
        assert_eq!(recorded.losses(), lost, "{mode}");
        assert!(recorded.stderr().contains("a part of a recording is missing"), "{mode}");
    }
}

#[test]
fn a_forked_child_makes_its_own_recording() {
    let Some(recorded) = record("torch_log_fork", "forked") else { return };
    assert_eq!(recorded.losses(), BTreeMap::new());
    let facts = recorded.facts();
    let processes: Vec<&Value> =
        facts.as_array().unwrap().iter().map(|one| &one["process"]).collect();
    assert!(processes.len() == 2 && processes[0] != processes[1], "{processes:?}");
    assert_eq!(named(&recorded.exported(), "X", "aten::mm").len(), 2);
}

#[test]
fn trace_files_are_taken_over() {
    for (mode, incomplete) in [("file", false), ("half", true)] {
        let Some(recorded) = record("torch_log_file", mode) else { return };
        assert_eq!(recorded.output.status.code(), Some(17), "{mode}: {}", recorded.stderr());
        let adds = recorded.exported();
        let adds = named(&adds, "X", "aten::add");
        let times: Vec<i64> =
            adds.iter().map(|e| (e["ts"].as_f64().unwrap() * 1e3).round() as i64).collect();
        let near = |(at, time): (usize, &i64)| (time - times[0] - 10_000 * at as i64).abs() <= 5;
        assert!(times.len() == 3 && times.iter().enumerate().all(near), "{times:?}");
        assert_eq!(adds[2]["args"], json!({"Ev Idx": 2}));
        let lost = recorded.losses().get("recording_incomplete").copied();
        assert_eq!(lost, incomplete.then_some(1), "{mode}: {}", recorded.stderr());
        assert_eq!(recorded.facts()[2]["trace_id"], json!("DEF"), "{mode}");
    }
}

#[test]
fn recordings_that_pytorch_left_invalid_are_counted() {
    let Some(recorded) = record("torch_log_invalid", "invalid") else { return };
    assert_eq!(recorded.output.status.code(), Some(17), "{}", recorded.stderr());
    assert_eq!(recorded.losses(), BTreeMap::from([("recording_invalid".to_owned(), 2)]));
    assert_eq!(named(&recorded.exported(), "X", "aten::mm").len(), 1);
}

#[test]
fn tables_of_pytorch_say_why_they_are_empty() {
    let Some(program) = counterpoint("torch_log_none") else { return };
    let recorded = Recorded::run(&program, "page-faults:u", &mut Command::new("true"));
    let tables = [
        ("module", "with_stack=True"),
        ("line", "with_stack=True"),
        ("shape", "record_shapes=True"),
    ];
    for (by, hint) in tables {
        let mut report = Command::new(&program);
        let done = report.arg("report").arg(recorded.path()).args(["--by", by]).output().unwrap();
        let said = String::from_utf8_lossy(&done.stderr);
        assert_eq!(done.status.code(), Some(2), "{said}");
        assert!(
            said.contains("has no recording of PyTorch's profiler") && said.contains(hint),
            "{said}"
        );
    }
}
