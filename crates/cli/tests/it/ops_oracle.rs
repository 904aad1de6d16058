//! Compares `ops` with a program that computes the rows from single calls by brute force.

use std::path::Path;
use std::process::Command;

use record::meta::Role;
use record::page::{KEY_CORRELATION, KEY_STORAGE_BYTES};
use serde_json::Value;
use testkit::{CallScript, ProfileScript, Random, python};

const PROGRAM: &str = env!("CARGO_BIN_EXE_counterpoint");

/// Returns a random profile: two threads call ops inside and outside of runs. Each parallel region
/// of these threads has two tasks: the calling thread runs the first task, and a third thread runs
/// the second one, which the profile lacks for some regions.
fn script(r: &mut Random) -> ProfileScript {
    let mut script = ProfileScript::monotonic();
    script.counter("page-faults", 0);
    let process = script.process(7);
    let vm = process.machine("vm 0");
    let run = process.op(vm, Role::Run, "main", "");
    let ops: Vec<u32> = (0..3)
        .map(|i| process.op(vm, Role::Op, "f", ["float32[1]", "float32[n, 2]", ""][i]))
        .collect();
    let region = process.op(vm, Role::Region, "f", "");
    let task = process.op(vm, Role::Task, "f", "");
    let read = |r: &mut Random, call: CallScript| match r.below(10) {
        0 => call.unread(),
        _ => {
            let faults = call.call.end - call.call.start;
            call.group(1, &[faults])
        }
    };
    let (mut correlation, mut workers) = (0, Vec::new());
    for name in ["main", "other"] {
        let mut at = 100 + r.below(50);
        let mut calls = Vec::new();
        for _ in 0..12 {
            let in_run = r.below(3) > 0;
            let start = at;
            for _ in 0..r.below(5) {
                let op = ops[r.below(3) as usize];
                let begin = at + r.below(20);
                at = begin + 5;
                if r.below(2) == 0 {
                    correlation += 1;
                    let whole = r.below(4) > 0;
                    let of_task = |number, from: u64, length| {
                        CallScript::new(task, from, length)
                            .workgroup(number, 2)
                            .value(KEY_CORRELATION, correlation)
                    };
                    let own = of_task(0, at + 1, 1 + r.below(30));
                    calls.push(read(r, own.clone()));
                    if whole {
                        let theirs = of_task(1, at, 1 + r.below(30));
                        workers.push(read(r, theirs));
                    }
                    at = own.call.end + 3;
                    let launch = CallScript::op(region, begin + 2, at - begin - 2);
                    calls.push(read(r, launch.value(KEY_CORRELATION, correlation)));
                }
                for _ in 0..r.below(3) {
                    let inner = CallScript::op(ops[r.below(3) as usize], at, 1 + r.below(9));
                    at = inner.call.end + r.below(3);
                    calls.push(read(r, inner));
                }
                at += r.below(10);
                let call = CallScript::op(op, begin, at - begin);
                calls.push(match r.below(2) {
                    0 => read(r, call).value(KEY_STORAGE_BYTES, 64),
                    _ => read(r, call),
                });
            }
            at += 1 + r.below(10);
            if in_run {
                calls.push(read(r, CallScript::op(run, start, at - start)));
            }
            at += r.below(10);
        }
        let thread = process.thread(name);
        calls.into_iter().for_each(|call| {
            thread.call(call);
        });
    }
    workers.sort_by_key(|call| call.call.end);
    // A thread runs one task at a time, so tasks that would overlap an earlier one are left out.
    let mut free = 0;
    workers.retain(|call| {
        let fits = call.call.start >= free;
        free = if fits { call.call.end } else { free };
        fits
    });
    let thread = process.thread("worker");
    workers.into_iter().for_each(|call| {
        thread.call(call);
    });
    script
}

fn output(words: &[&str]) -> String {
    let output = Command::new(PROGRAM).args(words).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn expected(python: &Path, calls: &str) -> Value {
    let rows = python::run(python, include_str!("ops_oracle.py"), calls);
    serde_json::from_str(&rows).unwrap()
}

#[test]
fn rows_equal_those_of_an_independent_program() {
    let Some(python) = python::with("ops_oracle", "csv") else { return };
    let mut r = Random(0x1234_5678_9abc_def1);
    for _ in 0..6 {
        let (_scratch, dir) = script(&mut r).written();
        let dir = dir.to_str().unwrap();
        let expected = expected(&python, &output(&["export", dir, "--format", "csv"]));
        let all: Value =
            serde_json::from_str(&output(&["ops", dir, "--format", "json", "--all"])).unwrap();
        let mut rows = std::collections::BTreeMap::<String, [u64; 5]>::new();
        for op in all["ops"].as_array().unwrap() {
            let text = |key: &str| op[key].as_str().unwrap();
            let in_run = if op["run"].is_null() { "no" } else { "yes" };
            let key = [text("name"), text("arguments"), text("device"), in_run].join(" | ");
            let row = rows.entry(key).or_default();
            row[0] += 1;
            row[1] += op["self_ns"].as_f64().unwrap() as u64;
            row[2] += op["self_counters"]["page-faults"].as_u64().unwrap_or(0);
            row[3] += op["workers"]["page-faults"].as_u64().unwrap_or(0);
            row[4] += op["storage_bytes"].as_u64().unwrap_or(0);
        }
        let runs = all["runs"].as_array().unwrap();
        let own = |run: &Value| {
            (run["own_ns"].as_f64().unwrap() + run["between_ops_ns"].as_f64().unwrap()) as u64
        };
        let faults = |run: &Value| run["own_counters"]["page-faults"].as_u64().unwrap_or(0);
        let of_runs =
            [runs.len() as u64, runs.iter().map(own).sum(), runs.iter().map(faults).sum(), 0, 0];
        rows.insert("run".into(), of_runs);
        let wanted = expected.as_object().unwrap();
        assert_eq!(rows.len() + 1, wanted.len());
        for (key, row) in &rows {
            assert_eq!(serde_json::to_value(row).unwrap(), wanted[key], "{key}");
        }

        let csv = output(&["ops", dir, "--format", "csv"]);
        let mut lines = csv.lines();
        let head: Vec<&str> = lines.next().unwrap().split(',').collect();
        let at = |name: &str| head.iter().position(|h| *h == name).unwrap();
        let (in_run, own) = (at("in_run"), at("self_ns"));
        let cells = lines.map(|line| line.replace("\"float32[n, 2]\"", "-"));
        let sum: f64 = cells
            .map(|line| line.split(',').map(str::to_owned).collect::<Vec<_>>())
            .filter(|cells| cells[in_run] == "yes")
            .map(|cells| cells[own].parse::<f64>().unwrap())
            .sum();
        assert_eq!(sum, wanted["wall"].as_f64().unwrap());
    }
}
