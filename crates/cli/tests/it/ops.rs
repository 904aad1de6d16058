//! Tests what `ops` and other commands show of scripted profiles that contain ops. The expected
//! numbers were computed on paper.

use std::path::Path;
use std::process::Command;

use record::meta::{Calibration, Role, Text, ValueKey, ValueKind};
use record::page::{
    FIRST_USER_KEY, KEY_CORRELATION, KEY_FAILED, KEY_FAILED_OP, KEY_STORAGE_BYTES,
    KEY_WORKSPACE_BYTES,
};
use serde_json::{Value, json};
use testkit::{CallScript, Golden, ProfileScript, Scratch};

const PROGRAM: &str = env!("CARGO_BIN_EXE_counterpoint");
const MATMUL: &str = "float32[32, 1024], float32[1024, 256], float32[32, 256]";

fn golden(scratch: &Scratch) -> Golden {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/ops");
    Golden::new(PROGRAM, root).scrub(scratch.path().display().to_string(), "DIR")
}

/// Returns the call of a task: the one with this number among the `of` tasks of the parallel region
/// `region`.
fn task(export: u32, (number, of): (u32, u32), region: u64, start: u64, end: u64) -> CallScript {
    CallScript::new(export, start, end - start).workgroup(number, of).value(KEY_CORRELATION, region)
}

fn op(export: u32, start: u64, end: u64) -> CallScript {
    CallScript::op(export, start, end - start)
}

/// Returns a profile of two virtual machines and three threads. One tick is 1 ns. Page faults are
/// in brackets, and `c0` is CPU 0.
///
/// ```text
///  main    run main 1,000 – 11,000 [100]
///            alloc     1,500 –  1,600 [4]  4096 B of storage
///            matmul    2,000 –  6,000 [40]  512 B of workspace
///              region 1  2,100 – 5,100 [33]:  task 0  2,150 – 5,050 c0 [30]
///            sub       7,000 – 10,000 [50]
///              add       7,100 –  7,600 [5]
///              sub       8,000 –  9,500 [20]
///                add       8,100 –  8,500 [8]
///          run main 20,000 – 23,000 [not read], failed
///            add      20,500 – 21,500 [2]
///            alloc    22,000 – 22,100 [1]   in an op that was abandoned
///  worker    region 1, task 1   2,200 – 4,200 c1 [25]
///            region 2, task 1   4,300 – 4,800 c2 [not read]
///  other   outside of runs, of the second machine:
///            matmul    2,900 –  5,000 [7]
///              region 2  3,000 – 4,900 [6]:  task 0  3,050 – 4,050 c2 [5]
/// ```
///
/// In the first run, the run's own times (before the first op and after the last one) are 500 +
/// 1,000, the times between ops are 400 + 1,000, and the self times of ops are 100, 4,000, 1,000,
/// 500, 1,100 and 400. All these times add up to 10,000, the duration of the run. In the second
/// run, the own times are 500 + 900, the time between ops is 500, and the self times are 1,000 +
/// 100. All these times add up to 3,000.
pub fn nested() -> ProfileScript {
    let mut script = ProfileScript::monotonic();
    script.counter("page-faults", 0);
    let process = script.process(4711);
    process.empty_calls(256, 5, 20, &[0]);
    let vm = process.machine("vm 0");
    let second = process.machine("second");
    let main = process.op(vm, Role::Run, "main", "");
    let matmul = process.op(vm, Role::Op, "matmul", MATMUL);
    let add = process.op(vm, Role::Op, "add", "float32[32, 256]");
    let sub = process.op(vm, Role::Op, "sub", "float32[32, 256]");
    let alloc = process.op(vm, Role::Op, "vm.builtin.alloc_storage", "");
    let region = process.op(vm, Role::Region, "matmul", MATMUL);
    let tasks = process.op(vm, Role::Task, "matmul", MATMUL);
    let matmul2 = process.op(second, Role::Op, "matmul", MATMUL);
    let region2 = process.op(second, Role::Region, "matmul", MATMUL);
    let tasks2 = process.op(second, Role::Task, "matmul", MATMUL);

    let thread = process.thread("main");
    let read = |call: CallScript, faults: u64| {
        let time = call.call.end - call.call.start;
        call.group(time, &[faults])
    };
    for call in [
        read(op(alloc, 1_500, 1_600), 4).value(KEY_STORAGE_BYTES, 4_096),
        read(task(tasks, (0, 2), 1, 2_150, 5_050), 30),
        read(op(region, 2_100, 5_100), 33).value(KEY_CORRELATION, 1),
        read(op(matmul, 2_000, 6_000), 40).value(KEY_WORKSPACE_BYTES, 512),
        read(op(add, 7_100, 7_600), 5),
        read(op(add, 8_100, 8_500), 8),
        read(op(sub, 8_000, 9_500), 20),
        read(op(sub, 7_000, 10_000), 50),
        read(op(main, 1_000, 11_000), 100),
        read(op(add, 20_500, 21_500), 2),
        read(op(alloc, 22_000, 22_100), 1),
        op(main, 20_000, 23_000).unread().value(KEY_FAILED, 1),
    ] {
        thread.call(call);
    }
    process
        .thread("worker")
        .call(read(task(tasks, (1, 2), 1, 2_200, 4_200), 25).on(1, 0))
        .call(task(tasks2, (1, 2), 2, 4_300, 4_800).on(2, 0).unread());
    process
        .thread("other")
        .call(read(task(tasks2, (0, 2), 2, 3_050, 4_050), 5).on(2, 0))
        .call(read(op(region2, 3_000, 4_900), 6).on(2, 0).value(KEY_CORRELATION, 2))
        .call(read(op(matmul2, 2_900, 5_000), 7).on(2, 0));
    script
}

/// Returns a profile of a run in which the calls of two book-keeping functions (`vm.builtin.…`)
/// were only timed, and no counter was read for them. One tick is 1 ns.
///
/// ```text
///  run main 1,000 – 2,000 [100], failed: matmul threw
///    vm.builtin.alloc_storage 1,100 – 1,150 [not read]
///    vm.builtin.call          1,200 – 1,500 [not read]
///      add                      1,250 – 1,300 [5]
///    matmul                   1,600 – 1,900 [40]
/// ```
///
/// The run's own page faults are those that no op with a reading has: 100 − 5 − 40 = 55. Recording
/// took 68 ns: 20 ns for each of the three calls with a reading, and 4 ns for each of the other
/// two.
fn timed_only(calibrated: bool) -> ProfileScript {
    let mut script = ProfileScript::monotonic();
    script.counter("page-faults", 0);
    let process = script.process(4711);
    let ticks: &[(u32, u64)] = if calibrated { &[(1, 20), (0, 4)] } else { &[(1, 20)] };
    for (counters, total_ticks) in ticks {
        process.calibrations.push(Calibration {
            calls: 256,
            counters: *counters,
            inside_ticks: 2,
            total_ticks: *total_ticks,
            inside_values: vec![0],
            spread: None,
            sums: None,
        });
    }
    let vm = process.machine("vm 0");
    let main = process.op(vm, Role::Run, "main", "");
    let [matmul, add, alloc, call] =
        ["matmul", "add", "vm.builtin.alloc_storage", "vm.builtin.call"]
            .map(|name| process.op(vm, Role::Op, name, ""));
    let read = |call: CallScript, faults: u64| {
        let time = call.call.end - call.call.start;
        call.group(time, &[faults])
    };
    process
        .thread("main")
        .call(op(alloc, 1_100, 1_150).unread())
        .call(read(op(add, 1_250, 1_300), 5))
        .call(op(call, 1_200, 1_500).unread())
        .call(read(op(matmul, 1_600, 1_900), 40))
        .call(
            read(op(main, 1_000, 2_000), 100)
                .value(KEY_FAILED, 1)
                .value(KEY_FAILED_OP, matmul.into()),
        );
    script
}

#[test]
fn counts_of_timed_only_book_keeping_belong_to_its_caller() {
    let (_scratch, dir) = timed_only(true).written();
    let document = json_of(&dir, &[]);
    let run = &document["runs"][0];
    assert_eq!(run["own_counters"], json!({"page-faults": 55}));
    assert_eq!(run["failed_op"], "matmul");
    let faults = |at: usize| document["ops"][at]["self_counters"]["page-faults"].clone();
    assert_eq!([0, 1, 2, 3].map(faults), [json!(null), json!(null), json!(5), json!(40)]);
    assert_eq!(
        document["probe"],
        json!({"calls": 5, "per_call_ns": 13.6, "way_ns": null, "estimated_ns": 68.0})
    );
    let text = Command::new(PROGRAM).arg("ops").arg(&dir).output().unwrap().stdout;
    let text = String::from_utf8(text).unwrap();
    assert!(text.contains("1 failed (matmul threw)"), "{text}");
    assert!(
        text.split_whitespace().collect::<Vec<_>>().join(" ").contains("were only timed"),
        "{text}"
    );
    // Without a calibration of calls whose counters are not read, the cost of recording is unknown.
    let (_scratch, dir) = timed_only(false).written();
    assert_eq!(json_of(&dir, &[])["probe"]["estimated_ns"], json!(null));
}

fn json_of(dir: &Path, more: &[&str]) -> Value {
    let mut command = Command::new(PROGRAM);
    let output =
        command.arg("ops").arg(dir).args(["--format", "json"]).args(more).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn every_format() {
    let (scratch, dir) = nested().written();
    let golden = golden(&scratch);
    let dir = dir.to_str().unwrap();
    golden.check("table", 0, &["ops", dir]);
    golden.check("all", 0, &["ops", dir, "--all"]);
    golden.check("narrow", 0, &["ops", dir, "--width", "72"]);
    golden.check("csv", 0, &["ops", dir, "--format", "csv"]);
    golden.check("json", 0, &["ops", dir, "--format", "json"]);
    golden.check("vm", 0, &["ops", dir, "--vm", "second"]);
    golden.check("no-vm", 2, &["ops", dir, "--vm", "third"]);
}

#[test]
fn the_other_views_of_the_same_profile() {
    let (scratch, dir) = nested().written();
    let golden = golden(&scratch);
    let dir = dir.to_str().unwrap();
    golden.check("report", 0, &["report", dir]);
    golden.check("report-filter", 0, &["report", dir, "--filter", "add"]);
    golden.check("report-csv", 0, &["report", dir, "--format", "csv"]);
    golden.check("report-thread", 0, &["report", dir, "--by", "thread", "--format", "csv"]);
    golden.check("export-csv", 0, &["export", dir, "--format", "csv"]);
    golden.check("stats-csv", 0, &["stats", dir, "--format", "csv"]);
}

#[test]
fn runs_and_ops_equal_those_on_paper() {
    let (_scratch, dir) = nested().written();
    let all = json_of(&dir, &[]);
    assert_eq!(all["schema"], "counterpoint.ops/2");
    assert_eq!(all["vms"][1], json!({"vm": 1, "name": "second", "process": 4711}));
    let first = json!({
        "run": 0, "vm": 0, "process": 4711, "thread": 4711, "function": "main", "parent": null,
        "failed": false, "failed_op": null, "start_ns": 0.0, "duration_ns": 10_000.0, "first_op_ns": 500.0,
        "between_ops_ns": 1_400.0, "own_ns": 1_500.0, "counters": {"page-faults": 100},
        "own_counters": {"page-faults": 6},
    });
    assert_eq!(all["runs"][0], first);
    let failed = json!({
        "run": 1, "vm": 0, "process": 4711, "thread": 4711, "function": "main", "parent": null,
        "failed": true, "failed_op": null, "start_ns": 19_000.0, "duration_ns": 3_000.0, "first_op_ns": 500.0,
        "between_ops_ns": 500.0, "own_ns": 1_400.0, "counters": {"page-faults": null},
        "own_counters": {"page-faults": null},
    });
    assert_eq!(all["runs"][1], failed);
    let ops: Vec<Value> = all["ops"].as_array().unwrap().clone();
    let brief = |op: &Value| {
        let (name, self_ns) = (op["name"].as_str().unwrap().to_owned(), &op["self_ns"]);
        let faults = &op["self_counters"]["page-faults"];
        json!([name, op["run"], op["parent"], op["depth"], self_ns, faults])
    };
    let brief: Vec<Value> = ops.iter().map(brief).collect();
    let expected = [
        json!(["vm.builtin.alloc_storage", 0, null, 0, 100.0, 4]),
        json!(["matmul", 0, null, 0, 4_000.0, 40]),
        json!(["sub", 0, null, 0, 1_000.0, 25]),
        json!(["add", 0, 2, 1, 500.0, 5]),
        json!(["sub", 0, 2, 1, 1_100.0, 12]),
        json!(["add", 0, 4, 2, 400.0, 8]),
        json!(["add", 1, null, 0, 1_000.0, 2]),
        json!(["vm.builtin.alloc_storage", 1, null, 0, 100.0, 1]),
        json!(["matmul", null, null, 0, 2_100.0, 7]),
    ];
    assert_eq!(brief, expected);
    let matmul = json!({
        "op": 1, "run": 0, "parent": null, "depth": 0, "vm": 0, "process": 4711, "thread": 4711,
        "name": "matmul", "bookkeeping": false, "arguments": MATMUL, "device": "cpu0",
        "asynchronous": false, "start_ns": 1_000.0, "duration_ns": 4_000.0, "self_ns": 4_000.0,
        "storage_bytes": null, "workspace_bytes": 512, "counters": {"page-faults": 40},
        "self_counters": {"page-faults": 40}, "workers": {"page-faults": 25}, "values": {},
        "regions": [{
            "start_ns": 1_100.0, "duration_ns": 3_000.0, "task_count": 2, "tasks": [
                {"task": 0, "thread": 4711, "cpu": 0, "start_ns": 1_150.0, "duration_ns": 2_900.0,
                 "counters": {"page-faults": 30}},
                {"task": 1, "thread": 4712, "cpu": 1, "start_ns": 1_200.0, "duration_ns": 2_000.0,
                 "counters": {"page-faults": 25}},
            ],
            "imbalance": 2_900.0 / 2_450.0, "shared_cpu": false, "serial": null,
        }],
    });
    assert_eq!(ops[1], matmul);
    assert_eq!(ops[0]["bookkeeping"], true);
    assert_eq!(ops[0]["workers"], json!({}), "there is no region");
    assert_eq!(ops[8]["vm"], 1);
    assert_eq!(ops[8]["workers"], json!({"page-faults": null}), "a part of the sum is missing");
    let region = &ops[8]["regions"][0];
    assert_eq!(region["imbalance"], 1_000.0 / 750.0);
    assert_eq!((&region["shared_cpu"], &region["serial"]), (&json!(true), &json!("cpu")));
    // The 17 calls are those of 2 runs, 9 ops, 2 regions and 4 tasks.
    let probe = json!({"calls": 17, "per_call_ns": 20.0, "way_ns": null, "estimated_ns": 340.0});
    assert_eq!(all["probe"], probe);
}

#[test]
fn a_part_of_the_time_and_one_machine() {
    let (_scratch, dir) = nested().written();
    let count =
        |all: &Value| (all["runs"].as_array().unwrap().len(), all["ops"].as_array().unwrap().len());
    assert_eq!(count(&json_of(&dir, &[])), (2, 9));
    assert_eq!(count(&json_of(&dir, &["--vm", "second"])), (0, 1));
    assert_eq!(count(&json_of(&dir, &["--vm", "vm 0"])), (2, 8));
    assert_eq!(count(&json_of(&dir, &["--since", "1000", "--until", "1001"])), (1, 6));
    assert_eq!(count(&json_of(&dir, &["--since", "1001"])), (1, 3));
    assert_eq!(count(&json_of(&dir, &["--until", "20000"])), (1, 7));
    let second = json_of(&dir, &["--since", "20000"]);
    assert_eq!((&second["runs"][0]["run"], &second["ops"][0]["run"]), (&json!(0), &json!(0)));
}

/// One call has 24 values that collectors (a program's functions around ops) added, and these are
/// of all kinds. In another process, the key `hits` has another id.
#[test]
fn values_of_collectors() {
    let mut script = ProfileScript::monotonic();
    let key = |id, name: &str, kind| ValueKey { id, name: name.into(), kind };
    let first = FIRST_USER_KEY;
    let process = script.process(7);
    process.value_keys = vec![
        key(first, "hits", ValueKind::Count),
        key(first + 1, "gpu time", ValueKind::Duration),
        key(first + 2, "busy", ValueKind::Percent),
        key(first + 3, "per clock", ValueKind::Ratio),
        key(first + 4, "clock", ValueKind::Text),
    ];
    process.value_keys.extend((5..24).map(|i| key(first + i, &format!("n{i}"), ValueKind::Count)));
    process.texts.push(Text { id: 3, text: "low \"power\"".into() });
    let vm = process.machine("vm 0");
    let f = process.op(vm, Role::Op, "f", "float32[n, 4]");
    let mut full = op(f, 100, 200);
    for (i, bits) in [-5i64 as u64, 12.5f64.to_bits(), 50f64.to_bits(), 0.25f64.to_bits(), 3]
        .into_iter()
        .chain(5..24)
        .enumerate()
    {
        full = full.value(first + i as u32, bits);
    }
    let thread = process.thread("main");
    thread.call(full);
    thread.call(
        op(f, 300, 400)
            .value(first, 7)
            .value(first + 1, 0.5f64.to_bits())
            .value(first + 2, 100f64.to_bits())
            .value(first + 4, 3),
    );
    let (none, infinite) = (f64::NAN.to_bits(), f64::INFINITY.to_bits());
    thread.call(op(f, 500, 600).value(first + 1, none).value(first + 2, infinite));
    let other = script.process(8);
    other.value_keys = vec![key(first + 9, "hits", ValueKind::Count)];
    let vm = other.machine("vm 0");
    let f = other.op(vm, Role::Op, "f", "float32[n, 4]");
    other.thread("main").call(op(f, 700, 800).value(first + 9, 10));
    let (_scratch, dir) = script.written();

    let all = json_of(&dir, &[]);
    assert_eq!(all["values"].as_array().unwrap().len(), 25);
    assert_eq!(all["values"][1], json!({"key": 17, "name": "gpu time", "kind": "duration"}));
    let values = all["ops"][0]["values"].as_object().unwrap();
    assert_eq!(values.len(), 24);
    assert_eq!(values["hits"], -5);
    assert_eq!(values["gpu time"], 12.5);
    assert_eq!(values["busy"], 50.0);
    assert_eq!(values["per clock"], 0.25);
    assert_eq!(values["clock"], "low \"power\"");
    assert_eq!(values["n23"], 23);
    assert_eq!(all["ops"][2]["values"], json!({"gpu time": null, "busy": null}));
    assert_eq!(all["ops"][3]["values"], json!({"hits": 10}));
    assert_eq!(all["probe"]["estimated_ns"], Value::Null, "the cost was not calibrated");

    let output = Command::new(PROGRAM).arg("ops").arg(&dir).args(["--format", "csv"]).output();
    let text = String::from_utf8(output.unwrap().stdout).unwrap();
    let (head, row) = text.trim_end().split_once("\r\n").unwrap();
    let head: Vec<&str> = head.split(',').collect();
    let row = row.replace("\"float32[n, 4]\"", "ARGS").replace("\"low \"\"power\"\"\"", "TEXT");
    let row: Vec<&str> = row.split(',').collect();
    let of = |name: &str| row[head.iter().position(|h| *h == name).unwrap()];
    assert_eq!(of("hits"), "12", "−5 + 7 + 10");
    assert_eq!(of("gpu time"), "13000", "13 µs in ns");
    assert_eq!(of("busy"), "0.75");
    assert_eq!(of("per clock"), "0.25");
    assert_eq!(of("clock"), "TEXT");
    assert_eq!((of("calls"), of("arguments"), of("share")), ("4", "ARGS", "1"));
}

/// One thread runs both tasks of the first region. The second region lacks a task, and the third
/// one has none.
#[test]
fn regions_outside_of_ops() {
    let mut script = ProfileScript::monotonic();
    let process = script.process(7);
    let vm = process.machine("vm 0");
    let main = process.op(vm, Role::Run, "main", "");
    let region = process.op(vm, Role::Region, "(outside of ops)", "");
    let tasks = process.op(vm, Role::Task, "(outside of ops)", "");
    process
        .thread("main")
        .call(task(tasks, (0, 2), 1, 110, 150))
        .call(task(tasks, (1, 2), 1, 150, 180))
        .call(op(region, 100, 200).value(KEY_CORRELATION, 1))
        .call(op(main, 50, 300))
        .call(task(tasks, (0, 2), 2, 410, 450))
        .call(op(region, 400, 500).value(KEY_CORRELATION, 2))
        .call(op(region, 600, 700));
    let (scratch, dir) = script.written();
    let all = json_of(&dir, &[]);
    assert_eq!(all["runs"][0]["own_ns"], 250.0);
    let of_run = &all["runs"][0]["regions"][0];
    assert_eq!((&of_run["serial"], &of_run["imbalance"]), (&json!("thread"), &json!(40.0 / 35.0)));
    golden(&scratch).check("no-op", 0, &["ops", dir.to_str().unwrap()]);
}

/// A library that a task calls may launch a region itself, which runs on the thread of the task. Its
/// time is in that of the region around it, so the regions do not take longer than their op.
#[test]
fn time_of_nested_regions_counts_once() {
    let mut script = ProfileScript::monotonic();
    let process = script.process(7);
    let vm = process.machine("vm 0");
    let f = process.op(vm, Role::Op, "f", "");
    let region = process.op(vm, Role::Region, "f", "");
    let tasks = process.op(vm, Role::Task, "f", "");
    process
        .thread("main")
        .call(task(tasks, (0, 1), 2, 121, 149))
        .call(op(region, 120, 150).value(KEY_CORRELATION, 2))
        .call(task(tasks, (0, 1), 1, 111, 189))
        .call(op(region, 110, 190).value(KEY_CORRELATION, 1))
        .call(task(tasks, (0, 1), 3, 191, 194))
        .call(op(region, 190, 195).value(KEY_CORRELATION, 3))
        .call(op(f, 100, 200));
    let (_scratch, dir) = script.written();
    let row = &json_of(&dir, &["--raw"])["rows"][0];
    assert_eq!((&row["regions"], &row["region_ns"]), (&json!(3), &json!(85.0)), "{row}");
}

#[test]
fn launches_on_an_asynchronous_device() {
    let mut script = ProfileScript::monotonic();
    let process = script.process(7);
    let vm = process.machine("vm 0");
    let f = process.op(vm, Role::Op, "matmul", "float32[2, 2]");
    process.op_exports[0].device = "cuda0".into();
    process.op_exports[0].asynchronous = true;
    process.thread("main").call(op(f, 100, 200));
    let (scratch, dir) = script.written();
    golden(&scratch).check("asynchronous", 0, &["ops", dir.to_str().unwrap()]);
    assert_eq!(json_of(&dir, &[])["ops"][0]["asynchronous"], true);
}

#[test]
fn nothing_recorded() {
    let mut script = ProfileScript::monotonic();
    let process = script.process(7);
    process.library("m", &["dispatch"]);
    process.thread("main").call(CallScript::new(0, 100, 50));
    let (scratch, dir) = script.written();
    golden(&scratch).check("no-machine", 0, &["ops", dir.to_str().unwrap()]);
    let all = json_of(&dir, &[]);
    assert_eq!((&all["runs"], &all["ops"]), (&json!([]), &json!([])));

    // As in TVM's compiled mode, this profile has a virtual machine, but no calls.
    let mut script = ProfileScript::monotonic();
    script.process(7).machine("vm 0");
    let (scratch, dir) = script.written();
    let golden = golden(&scratch);
    golden.check("compiled", 0, &["ops", dir.to_str().unwrap()]);
    golden.check("compiled-report", 0, &["report", dir.to_str().unwrap()]);
}

#[test]
fn timelines() {
    let mut script = nested();
    let mixed = script.process(4800);
    mixed.library("mlp", &["dispatch"]);
    let vm = mixed.machine("vm 0");
    let f = mixed.op(vm, Role::Op, "f", "int64[2], float16[]");
    mixed
        .thread("both")
        .call(CallScript::new(0, 5_000, 50).group(50, &[1]))
        .call(op(f, 5_100, 5_200).group(50, &[2]));
    let (scratch, dir) = script.written();
    let golden = golden(&scratch);
    for name in ["x.json", "x.pftrace"] {
        let file = scratch.join(name);
        let file = file.to_str().unwrap();
        golden.check("trace-export", 0, &["trace", "export", dir.to_str().unwrap(), "-o", file]);
        golden.check(&format!("trace-check-{name}"), 0, &["trace", "check", file]);
    }
    let trace: Value =
        serde_json::from_slice(&std::fs::read(scratch.join("x.json")).unwrap()).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let slices = |pid: u32, name: &str| -> Vec<&Value> {
        let wanted = |e: &&Value| e["ph"] == "X" && e["pid"] == pid && e["name"] == name;
        events.iter().filter(wanted).collect()
    };
    let run = slices(4711, "main")[0];
    assert_eq!((&run["cat"], &run["dur"]), (&json!("user_annotation"), &json!(10.0)));
    assert_eq!(slices(4711, "main")[1]["args"]["failed"], true);
    let matmul = slices(4711, "matmul");
    let kinds: Vec<&str> = matmul.iter().map(|e| e["cat"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["cpu_op"; 8], "2 ops, 2 regions, 4 tasks");
    // An outer call comes before the calls inside of it, so the op is first.
    assert_eq!(matmul[0]["args"]["Input Dims"], json!([[32, 1024], [1024, 256], [32, 256]]));
    assert_eq!(matmul[0]["args"]["Input type"], json!(["float", "float", "float"]));
    assert_eq!(matmul[0]["args"]["workspace_bytes"], 512);
    assert_eq!(slices(4800, "f")[0]["args"]["Input type"], json!(["long int", "c10::Half"]));
    let ends = |phase: &str| -> Vec<(String, u64, u64, u64)> {
        let all = events.iter().filter(|e| e["ph"] == phase && e["cat"] == "region");
        let of = |e: &Value, key: &str| e[key].as_u64().unwrap();
        all.map(|e| (e["name"].as_str().unwrap().into(), of(e, "id"), of(e, "tid"), of(e, "pid")))
            .collect()
    };
    let of_tid = |tid: u64, ends: &[(String, u64, u64, u64)]| {
        ends.iter().filter(|end| end.2 == tid).map(|end| end.1 & 0xff).collect::<Vec<_>>()
    };
    let (starts, finishes) = (ends("s"), ends("f"));
    assert_eq!((of_tid(4711, &starts), of_tid(4713, &starts)), (vec![0, 1], vec![2, 3]));
    assert_eq!(of_tid(4711, &finishes), [0]);
    assert_eq!(of_tid(4712, &finishes), [1, 3]);
    assert_eq!(of_tid(4713, &finishes), [2]);
    // Runs, regions and tasks add no points to a counter's time series.
    let points = |pid: u32| events.iter().filter(|e| e["ph"] == "C" && e["pid"] == pid).count();
    assert_eq!((points(4711), points(4800)), (9, 2));
    let device = |name: &str| {
        events.iter().any(|e| {
            e["name"] == "process_name" && e["args"]["name"].as_str().unwrap().contains(name)
        })
    };
    assert!(device("dispatches of model 4800") && !device("dispatches of model 4711"));
}
