//! Tests `critical-path` with examples that were computed on paper. For random profiles, and for a
//! model that IREE runs on two workers, an independent program (`critical_oracle.py`) must compute
//! the same times.

use std::path::Path;
use std::process::Command;

use profile::Role;
use record::page::KEY_CORRELATION;
use serde_json::{Value, json};
use testkit::{CallScript, Golden, ProfileScript, Random, Scratch, python};

use crate::support::{Expected, Iree, Recorded, counterpoint};

const PROGRAM: &str = env!("CARGO_BIN_EXE_counterpoint");

fn golden(scratch: &Scratch) -> Golden {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/critical-path");
    Golden::new(PROGRAM, root).scrub(scratch.path().display().to_string(), "DIR")
}

fn written(script: &ProfileScript) -> (Scratch, String) {
    let (scratch, dir) = script.written();
    let dir = dir.display().to_string();
    (scratch, dir)
}

fn output(words: &[&str]) -> String {
    let output = Command::new(PROGRAM).args(words).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// ```text
///  main    ├ mm ┤ ├ conv: ├ region ────────────────────┤ ┤├ add ┤
///          0   100 120     130  ├ task 0 ┤            400 410   450
///                               140    200
///  worker                         ├──── task 1 ───────┤
///                                 150               390
///  aside   ├────────────── copy ──────────────┤
///          10                                330
/// ```
///
/// The critical path consists of mm (100), a gap (20), conv before the region (10), a gap (20),
/// task 1 (240), the end of the region (10), the end of conv (10), and add (40). The region and its
/// tasks belong to conv, so conv has 270 on the path. Without conv, the other parts of this path
/// would take only 100 + 20 + 20 + 40, and copy would end last, at 330 instead of 450.
fn by_hand() -> ProfileScript {
    let mut script = ProfileScript::monotonic();
    let process = script.process(7);
    let vm = process.machine("vm 0");
    let [mm, conv, add, copy] =
        ["mm", "conv", "add", "copy"].map(|name| process.op(vm, Role::Op, name, ""));
    let region = process.op(vm, Role::Region, "parallel", "");
    let task = process.op(vm, Role::Task, "parallel", "");
    let of = |number| move |call: CallScript| call.workgroup(number, 2).value(KEY_CORRELATION, 1);
    let at = |op, begin: u64, end: u64| CallScript::op(op, 1_000 + begin, end - begin);
    process
        .thread("main")
        .call(at(mm, 0, 100))
        .call(of(0)(at(task, 140, 200)))
        .call(at(region, 130, 400).value(KEY_CORRELATION, 1))
        .call(at(conv, 120, 410))
        .call(at(add, 410, 450));
    process.thread("worker").call(of(1)(at(task, 150, 390)));
    process.thread("aside").call(at(copy, 10, 330));
    script
}

#[test]
fn what_the_end_waited_for() {
    let (scratch, dir) = written(&by_hand());
    let golden = golden(&scratch);
    golden.check("table", 0, &["critical-path", &dir, "--width", "80"]);
    golden.check("markdown", 0, &["critical-path", &dir, "--format", "markdown"]);
    golden.check("csv", 0, &["critical-path", &dir, "--format", "csv"]);
    golden.check("no-op", 1, &["critical-path", &dir, "--filter", "mul"]);
    let document: Value =
        serde_json::from_str(&output(&["critical-path", &dir, "--format", "json"])).unwrap();
    assert_eq!(document["length_ns"], 450.0);
    // The path is in calls from 0 to 100, from 120 to 130, and from 150 to 450.
    assert_eq!(document["between_ns"], 40.0);
    let row = |name: &str| {
        let rows = document["rows"].as_array().unwrap();
        let row = rows.iter().find(|row| row["op"] == name).unwrap();
        ["own_ns", "on_path_ns", "gaps_ns", "gain_ns"].map(|key| row[key].as_f64().unwrap())
    };
    assert_eq!(row("mm"), [100.0, 100.0, 0.0, 100.0]);
    // The own time of conv is 10 before the region, 10 for the launch and 60 for task 0 on the main
    // thread, 240 for task 1, 10 for the end of the region, and 10 after it.
    assert_eq!(row("conv"), [340.0, 270.0, 40.0, 120.0]);
    assert_eq!(row("add"), [40.0, 40.0, 0.0, 40.0]);
    assert_eq!(row("copy"), [320.0, 0.0, 0.0, 0.0]);
}

/// ```text
///  main    ├ step  ├ mm ───┤  ├ conv: ├ region ────────┤ ┤ ┤├ add ───────┤
///          0       10     60  70      75              95 98 100         130
///  worker                              ├── task 1 ──┤
///                                      76          94
///  aside     ├ copy ─┤
///            5      20
/// ```
///
/// Without `step` and all calls inside of it, only `add` and the gap before the task remain of the
/// path's 130 ns.
#[test]
fn a_range_gains_what_is_inside_of_it() {
    let mut script = ProfileScript::monotonic();
    let process = script.process(7);
    let vm = process.machine("vm 0");
    let step = process.op(vm, Role::Range, "step", "");
    let [mm, conv, add, copy] =
        ["mm", "conv", "add", "copy"].map(|name| process.op(vm, Role::Op, name, ""));
    let region = process.op(vm, Role::Region, "parallel", "");
    let task = process.op(vm, Role::Task, "parallel", "");
    let at = |op, begin: u64, end: u64| CallScript::op(op, 1_000 + begin, end - begin);
    process
        .thread("main")
        .call(at(mm, 10, 60))
        .call(at(region, 75, 95).value(KEY_CORRELATION, 1))
        .call(at(conv, 70, 98))
        .call(at(step, 0, 100))
        .call(at(add, 100, 130));
    let task = at(task, 76, 94).workgroup(1, 2).value(KEY_CORRELATION, 1);
    process.thread("worker").call(task);
    process.thread("aside").call(at(copy, 5, 20));
    let (_scratch, dir) = written(&script);
    let document: Value =
        serde_json::from_str(&output(&["critical-path", &dir, "--format", "json"])).unwrap();
    let row = |name: &str| {
        let rows = document["rows"].as_array().unwrap();
        let row = rows.iter().find(|row| row["op"] == name).unwrap();
        ["on_path_ns", "gain_ns"].map(|key| row[key].as_f64().unwrap())
    };
    assert_eq!(row("step"), [22.0, 99.0]);
    assert_eq!(row("mm"), [50.0, 50.0]);
    assert_eq!(row("conv"), [27.0, 27.0]);
    assert_eq!(row("add"), [30.0, 30.0]);
    let printed = output(&["critical-path", &dir, "--width", "120"]);
    assert!(printed.contains("of a range, if nothing inside of it took any"), "{printed}");
}

/// ```text
///  main    ├ step  ├ conv: ├ region 1 ──────────────────────────────┤ ┤  ┤├ add ┤
///          0       10      20                                      80 90 100   120
///  worker                    ├ task of 1: ├ region 2 ─────────┤ ┤
///                            30           40                 70 75
///  helper                                    ├ task of 2 ┤
///                                            45         65
/// ```
///
/// The time of all calls between the start and the end of `conv`, on any thread, counts as own time
/// of `conv`. All these calls also count as inside of `step`. The critical path goes through all
/// three threads. The gaps before the two tasks are 10 and 5.
#[test]
fn a_region_inside_of_a_task_belongs_to_the_op_around_the_tasks_region() {
    let mut script = ProfileScript::monotonic();
    let process = script.process(7);
    let vm = process.machine("vm 0");
    let step = process.op(vm, Role::Range, "step", "");
    let [conv, add] = ["conv", "add"].map(|name| process.op(vm, Role::Op, name, ""));
    let region = process.op(vm, Role::Region, "parallel", "");
    let task = process.op(vm, Role::Task, "parallel", "");
    let at = |op, begin: u64, end: u64| CallScript::op(op, 1_000 + begin, end - begin);
    let of = |number, call: CallScript| call.value(KEY_CORRELATION, number);
    // `critical-path` reads region 2 before region 1, although region 2 is inside of a task of
    // region 1.
    process.thread("worker").call(of(2, at(region, 40, 70))).call(of(1, at(task, 30, 75)));
    process
        .thread("main")
        .call(of(1, at(region, 20, 80)))
        .call(at(conv, 10, 90))
        .call(at(step, 0, 100))
        .call(at(add, 100, 120));
    process.thread("helper").call(of(2, at(task, 45, 65)));
    let (_scratch, dir) = written(&script);
    let document: Value =
        serde_json::from_str(&output(&["critical-path", &dir, "--format", "json"])).unwrap();
    let row = |row: &Value| {
        let numbers = ["own_ns", "on_path_ns", "gaps_ns", "gain_ns"];
        (row["op"].as_str().unwrap().to_owned(), numbers.map(|key| row[key].as_f64().unwrap()))
    };
    let rows: Vec<_> = document["rows"].as_array().unwrap().iter().map(row).collect();
    let expected = [
        ("step", [20.0, 20.0, 0.0, 85.0]),
        ("conv", [65.0, 65.0, 15.0, 65.0]),
        ("add", [20.0, 20.0, 0.0, 20.0]),
    ];
    assert_eq!(rows, expected.map(|(name, numbers)| (name.to_owned(), numbers)));
}

/// A trace of PyTorch with a stream:
///
/// ```text
///  host      A ├ launch 1 ┤ ┤ B ├ launch 2 ┤ ┤├ synchronize ─────────────────────────────┤
///            0   2       5 10     12      15 20                                        100
///  stream 7              ├──────────── k1 ────────────┤├──────── k2 ────────┤
///                        8                            60                    95
/// ```
#[test]
fn what_was_launched_waits_and_is_waited_for() {
    let scratch = Scratch::new();
    let event = |name: &str, category: &str, row: [u64; 2], at: [u64; 2], id: Option<u64>| {
        let args = id.map_or(json!({}), |id| json!({ "correlation": id, "stream": row[1] }));
        let (begin, duration) = (1_000 + at[0], at[1] - at[0]);
        json!({"ph": "X", "name": name, "cat": category, "pid": row[0], "tid": row[1],
               "ts": begin, "dur": duration, "args": args})
    };
    let (host, stream) = ([100, 100], [0, 7]);
    let events = [
        event("A", "cpu_op", host, [0, 10], None),
        event("cudaLaunchKernel", "cuda_runtime", host, [2, 5], Some(1)),
        event("B", "cpu_op", host, [10, 20], None),
        event("cudaLaunchKernel", "cuda_runtime", host, [12, 15], Some(2)),
        event("cudaStreamSynchronize", "cuda_runtime", host, [20, 100], Some(3)),
        event("k1", "kernel", stream, [8, 60], Some(1)),
        event("k2", "kernel", stream, [60, 95], Some(2)),
    ];
    let (trace, dir) = (scratch.join("x.json"), scratch.join("x.cpt"));
    std::fs::write(&trace, json!({ "traceEvents": events }).to_string()).unwrap();
    let (trace, dir) = (trace.to_str().unwrap(), dir.to_str().unwrap());
    output(&["trace", "import", trace, "-o", dir]);
    let found: Value =
        serde_json::from_str(&output(&["critical-path", dir, "--format", "json"])).unwrap();
    // From launch 1 to k1, the path is in no call.
    assert_eq!([&found["length_ns"], &found["between_ns"]], [100_000.0, 3_000.0]);
    assert_eq!([&found["links"]["launches"], &found["links"]["waits"]], [2, 1]);
    let row = |name: &str| {
        let rows = found["rows"].as_array().unwrap();
        let row = rows.iter().find(|row| row["op"] == name).unwrap();
        ["own_ns", "on_path_ns", "gain_ns"].map(|key| row[key].as_f64().unwrap() / 1e3)
    };
    assert_eq!(row("A"), [7.0, 2.0, 2.0]);
    assert_eq!(row("B"), [7.0, 0.0, 0.0]);
    // Without the launches, k1 would begin 3 µs earlier.
    assert_eq!(row("cudaLaunchKernel"), [6.0, 3.0, 3.0]);
    // Without k1, k2 could begin at 15 instead of 60.
    assert_eq!(row("k1"), [52.0, 52.0, 45.0]);
    assert_eq!(row("k2"), [35.0, 35.0, 35.0]);
    // `cudaStreamSynchronize` waits for k2 until 95; only the 5 µs after that are its own time.
    assert_eq!(row("cudaStreamSynchronize"), [5.0, 5.0, 5.0]);
}

/// Two threads call ops with regions, some of them in ranges. A third thread runs tasks of these
/// regions. Some of these tasks contain regions, whose tasks run on a fourth thread. Two workers
/// run dispatches.
fn random(r: &mut Random) -> ProfileScript {
    let mut script = ProfileScript::monotonic();
    let process = script.process(7);
    let vm = process.machine("vm 0");
    let run = process.op(vm, Role::Run, "main", "");
    let ranges = ["part", "whole"].map(|name| process.op(vm, Role::Range, name, ""));
    let names = ["f", "g", "h"];
    let ops = names.map(|name| process.op(vm, Role::Op, name, ""));
    let region = process.op(vm, Role::Region, "parallel", "");
    let task = process.op(vm, Role::Task, "parallel", "");
    let (mut number, mut free) = (0, 0);
    let (mut theirs, mut inner) = (Vec::new(), Vec::new());
    for name in ["main", "other"] {
        let mut at = 100 + r.below(50);
        let thread = process.thread(name);
        for _ in 0..6 {
            let start = at;
            let in_run = r.below(3) > 0;
            // If there are two ranges, the second one is around the first one.
            let in_ranges = r.below(3) as usize;
            for _ in 0..1 + r.below(3) {
                let begin = at + r.below(20);
                at = begin + r.below(5);
                if r.below(2) == 0 {
                    number += 1;
                    let of = |which, from: u64, length| {
                        CallScript::new(task, from, length)
                            .workgroup(which, 2)
                            .value(KEY_CORRELATION, number)
                    };
                    let launch = at;
                    at += r.below(3);
                    if r.below(4) > 0 {
                        let own = of(0, at, 1 + r.below(20));
                        at = own.call.end;
                        thread.call(own);
                    }
                    let from = launch.max(free) + r.below(6);
                    free = from + 1 + r.below(20);
                    theirs.push(of(1, from, free - from));
                    // This task contains a region with a task on another thread.
                    if free - from > 6 && r.below(2) == 0 {
                        let number = 1_000 + number;
                        let length = free - from - 2;
                        let nested = CallScript::op(region, from + 1, length);
                        theirs.push(nested.value(KEY_CORRELATION, number));
                        let of_nested = CallScript::new(task, from + 2, 1 + r.below(length - 2));
                        inner.push(of_nested.workgroup(1, 2).value(KEY_CORRELATION, number));
                    }
                    at = at.max(free) + r.below(3);
                    let launch = CallScript::op(region, launch, at - launch);
                    thread.call(launch.value(KEY_CORRELATION, number));
                }
                for _ in 0..r.below(3) {
                    let inner = CallScript::op(ops[r.below(3) as usize], at, 1 + r.below(9));
                    at = inner.call.end + r.below(3);
                    thread.call(inner);
                }
                at += 1 + r.below(10);
                thread.call(CallScript::op(ops[r.below(3) as usize], begin, at - begin));
            }
            for range in &ranges[..in_ranges] {
                at += r.below(3);
                thread.call(CallScript::op(*range, start, at - start));
            }
            if in_run {
                at += r.below(3);
                thread.call(CallScript::op(run, start, at - start));
            }
            at += 1 + r.below(20);
        }
    }
    for (name, mut calls) in [("pool", theirs), ("helper", inner)] {
        let worker = process.thread(name);
        calls.sort_by_key(|call| call.call.end);
        calls.into_iter().for_each(|call| {
            worker.call(call);
        });
    }
    let other = script.process(8);
    other.library("m", &["a", "b"]);
    let mut ends = [50 + r.below(50), 50 + r.below(50)];
    let mut calls = [Vec::new(), Vec::new()];
    for _ in 0..8 {
        let (export, count) = (r.below(2) as u32, 1 + r.below(4) as u32);
        // A dispatch may begin before the previous dispatch has ended.
        let begin =
            if r.below(4) > 0 { ends.iter().copied().max().unwrap() + r.below(9) } else { 0 };
        for id in 0..count {
            let on = r.below(2) as usize;
            let from = begin.max(ends[on]) + r.below(3);
            let call = CallScript::new(export, from, 1 + r.below(15)).workgroup(id, count);
            ends[on] = call.call.end;
            calls[on].push(call);
        }
    }
    for (on, calls) in calls.into_iter().enumerate() {
        let thread = other.thread(&format!("worker-{on}"));
        calls.into_iter().for_each(|call| {
            thread.call(call);
        });
    }
    script
}

fn expected(python: &Path, calls: &str) -> Value {
    let rows = python::run(python, include_str!("critical_oracle.py"), calls);
    serde_json::from_str(&rows).unwrap()
}

/// Compares the critical path with that of `critical_oracle.py`. Times may differ by at most
/// `most_ns`. Returns the length of the path.
fn compare(python: &Path, dir: &str, most_ns: f64) -> f64 {
    let expected = expected(python, &output(&["export", dir, "--format", "csv"]));
    let found: Value =
        serde_json::from_str(&output(&["critical-path", dir, "--format", "json"])).unwrap();
    let number = |value: &Value| value.as_f64().unwrap();
    let near = |a: f64, b: f64, what: &str| {
        assert!((a - b).abs() <= most_ns, "{what}: {a} {b}\n{expected}\n{found}");
    };
    let length = number(&found["length_ns"]);
    near(number(&expected["length"]), length, "length");
    let rows = found["rows"].as_array().unwrap();
    let mut on_path = number(&found["between_ns"]);
    for row in rows {
        let op = row["op"].as_str().unwrap();
        near(number(&expected["own"][op]), number(&row["own_ns"]), op);
        near(number(&expected["gains"][op]), number(&row["gain_ns"]), op);
        let is_own = row["role"] != "range";
        assert!(!is_own || number(&row["gain_ns"]) <= number(&row["on_path_ns"]) + 1e-3, "{row}");
        on_path += number(&row["on_path_ns"]);
    }
    near(on_path, length, "parts");
    assert_eq!(rows.len(), expected["own"].as_object().unwrap().len());
    length
}

#[test]
fn lengths_and_gains_equal_those_of_an_independent_program() {
    let Some(python) = python::with("critical_oracle", "csv") else { return };
    let mut r = Random(0x0bad_cafe_1234_5678);
    for _ in 0..12 {
        let (_scratch, dir) = written(&random(&mut r));
        compare(&python, &dir, 1e-3);
    }
}

/// IREE runs the model on two workers.
#[test]
fn a_real_model_of_iree() {
    let test = "critical_oracle";
    let Some(python) = python::with(test, "csv") else { return };
    let Some((program, iree)) = counterpoint(test).zip(Iree::new(test)) else { return };
    let expected = Expected::of("transformer_block");
    let mut command = Command::new(iree.tool("iree-run-module"));
    command.arg(format!("--module={}", iree.module("transformer_block", false).display()));
    command.args(["--device=local-task", "--task_topology_group_count=2"]);
    let recorded = Recorded::run(&program, "none", command.args(expected.arguments()));
    assert_eq!(recorded.ops(), expected.ops, "{}", recorded.stderr());
    // Times in the export are 64-bit floats. A path is a sum of hundreds of them, so their rounding
    // errors add up.
    let length = compare(&python, recorded.path().to_str().unwrap(), 200.0);
    assert!(length > 0.0);
}
