//! Views of scripted profiles of runs with a budget. The numbers of [`paper`] are computed on paper;
//! those of [`drawn`] by numpy, with the program in docs/sampling.md.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use record::meta::{LibraryKind, OpExport, Role};
use serde_json::{Value, json};
use testkit::random::Random;
use testkit::{CallScript, Golden, ProfileScript, Scratch};

use crate::support::python_with;

const PROGRAM: &str = env!("CARGO_BIN_EXE_counterpoint");

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn golden(scratch: &Scratch) -> Golden {
    Golden::new(PROGRAM, root().join("tests/golden/sampled"))
        .scrub(scratch.path().display().to_string(), "DIR")
}

fn json_of(golden: &Golden, args: &[&str]) -> Value {
    let output = golden.run(args);
    assert_eq!((output.code, output.stderr.as_str()), (Some(0), ""));
    serde_json::from_str(&output.stdout).expect("one JSON document")
}

/// One tick is 1 ns. Two threads:
///
/// ```text
///  main    matmul   two calls of period 1: 1,000 and 800 ns; then three of period 4: 10, 14, 12 ns.
///                   12 calls. T = 1,920, V = 100 · 0.7 · 4/3, half of the interval 41.568
///                   faults are read in the first three and in the last one (weights 1, 1, 8 and 8):
///                   5, 1, 2 and 4. T = 6 + 10 · 3 = 36
///          softmax  three calls of period 1: 100, 200, 300 ns: exact
///  worker  softmax  7 calls of period 1 000, none of which was timed
/// ```
pub fn paper() -> ProfileScript {
    let mut script = ProfileScript::monotonic();
    script.budget(0.02);
    script.counter("page-faults", 0);
    let process = script.process(4711);
    process.library("mlp", &["matmul", "softmax"]);
    let main = process.thread("main");
    let call = |export, start, duration, faults: Option<u64>| {
        let call = CallScript::new(export, start, duration).on(1, 0);
        match faults {
            Some(faults) => call.group(duration, &[faults]),
            None => call.unread(),
        }
    };
    main.call(call(0, 1_000, 1_000, Some(5)).drawn(1, 1, 0))
        .call(call(0, 2_000, 800, Some(1)).drawn(1, 1, 0))
        .call(call(1, 3_000, 100, Some(0)).drawn(1, 1, 0))
        .call(call(1, 3_500, 200, Some(0)).drawn(1, 1, 0))
        .call(call(1, 4_000, 300, Some(0)).drawn(1, 1, 0))
        .call(call(0, 5_000, 10, Some(2)).drawn(4, 2, 2))
        .call(call(0, 6_000, 14, None).drawn(4, 2, 3))
        .call(call(0, 7_000, 12, Some(4)).drawn(4, 2, 0))
        .counted(0, 12, 5, 4)
        .counted(1, 3, 3, 3);
    main.spent = record::counts::Spent { cpu_ns: 101_800, price_ns: 1_800, ..Default::default() };
    script
}

/// The same with calls of which nothing is known but their number.
pub fn with_counts_only() -> ProfileScript {
    let mut script = paper();
    let process = &mut script.processes[0];
    process.thread("worker").counted(1, 7, 0, 0);
    script
}

#[test]
fn the_formats() {
    let (scratch, dir) = paper().written();
    let (golden, dir) = (golden(&scratch), dir.to_str().unwrap());
    golden.check("op", 0, &["report", dir]);
    golden.check("wide", 0, &["report", dir, "--width", "250"]);
    golden.check("thread", 0, &["report", dir, "--by", "thread", "--width", "200"]);
    golden.check("cpu", 0, &["report", dir, "--by", "cpu"]);
    golden.check("op-csv", 0, &["report", dir, "--format", "csv"]);
    golden.check("op-json", 0, &["report", dir, "--format", "json"]);
    golden.check("export-csv", 0, &["export", dir, "--format", "csv"]);
    golden.check("export-json", 0, &["export", dir, "--format", "json"]);
    golden.check("stats", 0, &["stats", dir, "--buckets", "2", "--width", "100"]);
    golden.check("stats-csv", 0, &["stats", dir, "--buckets", "2", "--format", "csv"]);
    golden.check("stats-json", 0, &["stats", dir, "--buckets", "2", "--format", "json"]);
    golden.check("counts-csv", 0, &["export", dir, "--format", "csv", "--what", "counts"]);
}

fn close(value: &Value, expected: f64) {
    let value = value.as_f64().expect("a number");
    assert!((value - expected).abs() < 1e-3 * expected.abs().max(1.0), "{value} is not {expected}");
}

#[test]
fn the_numbers_equal_those_on_paper() {
    let (scratch, dir) = paper().written();
    let report = json_of(&golden(&scratch), &["report", dir.to_str().unwrap(), "--format", "json"]);
    let rows = report["rows"].as_array().unwrap();
    assert_eq!((&rows[0]["op"], &rows[0]["calls"]), (&json!("matmul"), &json!(12)));
    let matmul = &rows[0]["sampled"];
    close(&rows[0]["total_ns"], 1_920.0);
    close(&matmul["total_ns"]["value"], 1_920.0);
    close(&matmul["total_ns"]["low"], 1_920.0 - 41.568);
    close(&matmul["total_ns"]["high"], 1_920.0 + 41.568);
    close(&matmul["mean_ns"]["high"], (1_920.0 + 41.568) / 12.0);
    assert_eq!((&matmul["timed_calls"], &matmul["counted_calls"]), (&json!(5), &json!(4)));
    // Weights 1, 1, 4, 4, 4: 14² / (1 + 1 + 3 · 16).
    close(&matmul["effective_calls"], 196.0 / 50.0);
    // Sorted: 10, 12, 14 of weight 4, 800, 1000: from 4/14 to 8/14 it is 12.
    close(&rows[0]["p50_ns"], 12.0);
    close(&rows[0]["p99_ns"], 1_000.0);
    let faults = &rows[0]["counters"][0];
    assert_eq!((&faults["total"], &faults["calls"]), (&json!(36), &json!(12)));
    close(&faults["per_call"], 3.0);
    assert_eq!(faults["sampled"]["counted_calls"], 4);
    // s² = 2 of 2 and 4, N = 10, n = 2: V = 100 · 0.8 · 2/2, t(0.975; 1) = 12.706.
    close(&faults["sampled"]["total"]["high"], 36.0 + 12.706 * 80f64.sqrt());
    // Nothing is below what was seen.
    close(&faults["sampled"]["total"]["low"], 12.0);
    // All three calls were timed.
    let softmax = &rows[1];
    assert_eq!((&softmax["total_ns"], &softmax["dispatches"]), (&json!(600.0), &json!(3)));
    assert_eq!(
        softmax["sampled"]["total_ns"],
        json!({"value": 600.0, "low": 600.0, "high": 600.0})
    );
    // a/(a + b): the derivative is b/(a + b)².
    close(&softmax["share"], 600.0 / 2_520.0);
    let half = 41.568 * 600.0 / (2_520.0 * 2_520.0);
    close(&softmax["sampled"]["share"]["high"], 600.0 / 2_520.0 + half);
    let run = &report["sampled"];
    assert_eq!((&run["budget"], &run["calls"]), (&json!(0.02), &json!(15)));
    close(&run["price"], 0.018);
    close(&run["total_ns"]["high"], 2_520.0 + 41.568);
    assert_eq!(report["total"]["calls"], 15);
    assert_eq!(report["total"]["dispatches"], Value::Null);
    assert_eq!(report["profile"]["budget"], 0.02);
}

/// What was only counted is missing, and never 0.
#[test]
fn a_thread_without_timed_calls() {
    let (scratch, dir) = with_counts_only().written();
    let (golden, dir) = (golden(&scratch), dir.to_str().unwrap());
    let report = json_of(&golden, &["report", dir, "--format", "json"]);
    let softmax = &report["rows"][1];
    assert_eq!((&softmax["op"], &softmax["calls"]), (&json!("softmax"), &json!(10)));
    assert_eq!((&softmax["total_ns"], &softmax["mean_ns"]), (&Value::Null, &Value::Null));
    assert_eq!(softmax["sampled"]["timed_calls"], 3);
    // The counter stands for the three calls of the thread in which it was read.
    assert_eq!(softmax["counters"][0]["calls"], 3);
    assert_eq!(report["total"]["duration_ns"], Value::Null);
    assert_eq!((&report["total"]["calls"], &report["total"]["threads"]), (&json!(22), &json!(2)));
    let threads = json_of(&golden, &["report", dir, "--by", "thread", "--format", "json"]);
    let worker = &threads["rows"].as_array().unwrap()[1];
    assert_eq!((&worker["calls"], &worker["total_ns"]), (&json!(7), &Value::Null));
    assert_eq!((&worker["min_ns"], &worker["p99_ns"]), (&Value::Null, &Value::Null));
}

/// Statistics of an op with the weights 1, 1, 4, 4, 4, as if it had 14 calls.
#[test]
fn weighted_statistics_on_paper() {
    let (scratch, dir) = paper().written();
    let args = ["stats", dir.to_str().unwrap(), "--buckets", "2", "--format", "json"];
    let stats = json_of(&golden(&scratch), &args);
    let matmul = &stats["ops"][0];
    assert_eq!((&matmul["op"], &matmul["total_ns"]), (&json!("matmul"), &json!(1_920.0)));
    let all = &matmul["all"];
    assert_eq!((&all["calls"], &all["timed_calls"]), (&json!(12), &json!(5)));
    let duration = &all["variables"][0];
    close(&duration["effective_calls"], 196.0 / 50.0);
    // 4 · 10, 4 · 12, 4 · 14, 800, 1000.
    close(&duration["mean"], 1_944.0 / 14.0);
    // The first seven: 10 four times, 12 three times. The rest: 12, 14 four times, 800, 1000.
    close(&duration["bucket_means"][0], 76.0 / 7.0);
    close(&duration["bucket_means"][1], 1_868.0 / 7.0);
    // Faults 5, 1 with weight 1, 2 and 4 with weight 8.
    let faults = &all["variables"][1];
    assert_eq!(faults["calls"], 4);
    close(&faults["mean"], 54.0 / 18.0);
    close(&all["pairs"][0]["effective_calls"], 18.0 * 18.0 / 130.0);
    // Half of the eight calls whose faults are in the lower half have durations in the lower half:
    // those of 10 ns all are, and the call with 1 fault is not.
    close(&all["pairs"][0]["probability"][0][0], 8.0 / 9.0);
}

/// Numbers that no run has are shown, and none of them ends a view.
#[test]
fn forged_numbers() {
    let mut script = ProfileScript::monotonic();
    script.budget(1.0);
    script.counter("page-faults", 0);
    let process = script.process(4711);
    process.library("mlp", &["a", "b"]);
    let thread = process.thread("main");
    let most = u64::MAX;
    thread
        .call(CallScript::new(0, 1_000, 50).group(50, &[most]).drawn(u32::MAX, u32::MAX, most))
        .call(CallScript::new(0, 2_000, most >> 1).group(50, &[0]).drawn(u32::MAX, 1, most))
        .call(CallScript::new(0, 3_000, 0).unread().drawn(1, u32::MAX, most))
        .call(CallScript::new(0, 4_000, 7).group(7, &[1]).drawn(2, 2, 0))
        .counted(0, 1, 0, 9)
        .counted(1, most, most, most)
        .counted(77, most, 0, 0);
    process.thread("other").counted(0, most, 3, 3);
    let (scratch, dir) = script.written();
    let (golden, dir) = (golden(&scratch), dir.to_str().unwrap());
    let trace = scratch.join("x.json");
    let views: [&[&str]; 9] = [
        &["report", dir],
        &["report", dir, "--format", "json"],
        &["report", dir, "--by", "thread", "--format", "csv"],
        &["stats", dir, "--skip-ms", "0.0015"],
        &["stats", dir],
        &["stats", dir, "--format", "json"],
        &["ops", dir],
        &["export", dir, "--format", "csv"],
        &["trace", "export", dir, "-o", trace.to_str().unwrap()],
    ];
    for view in views {
        let output = golden.run(view);
        assert_eq!(output.code, Some(0), "{view:?}: {}", output.stderr);
        for word in ["NaN", "nan", "inf"] {
            assert!(!output.stdout.contains(word), "{view:?}: {}", output.stdout);
        }
    }
}

/// How many of the calls that were only counted began in the first milliseconds is not known.
#[test]
fn first_milliseconds_cannot_be_left_out() {
    let mut script = ProfileScript::monotonic();
    script.budget(0.02);
    let process = script.process(4711);
    process.library("mlp", &["matmul"]);
    let thread = process.thread("main");
    thread.call(CallScript::new(0, 1_000, 50).drawn(1, 1, 0)).counted(0, 9, 1, 0);
    let (scratch, dir) = script.written();
    let output = golden(&scratch).run(&["report", dir.to_str().unwrap(), "--skip-ms", "1"]);
    assert_eq!((output.code, output.stdout.as_str()), (Some(2), ""), "{}", output.stderr);
    assert!(output.stderr.contains("do not say when they began"), "{}", output.stderr);
}

/// A run that only counted.
#[test]
fn budget_0() {
    let mut script = ProfileScript::monotonic();
    script.budget(0.0);
    script.counter("page-faults", 0);
    let process = script.process(4711);
    process.library("mlp", &["matmul", "softmax"]);
    process.thread("main").counted(0, 1_000_000, 0, 0).counted(1, 3, 0, 0);
    let (scratch, dir) = script.written();
    let (golden, dir) = (golden(&scratch), dir.to_str().unwrap());
    golden.check("zero", 0, &["report", dir]);
    golden.check("zero-csv", 0, &["report", dir, "--format", "csv"]);
    golden.check("zero-json", 0, &["report", dir, "--format", "json"]);
    golden.check("zero-stats", 0, &["stats", dir]);
    golden.check("zero-export", 0, &["export", dir, "--format", "csv"]);
    let by_cpu = golden.run(&["report", dir, "--by", "cpu"]);
    assert_eq!(by_cpu.code, Some(0));
    assert!(by_cpu.stderr.contains("no call was timed"), "{}", by_cpu.stderr);
    for by in ["thread", "process", "kind", "device", "stream"] {
        let report = json_of(&golden, &["report", dir, "--by", by, "--format", "json"]);
        for row in report["rows"].as_array().unwrap() {
            assert_eq!(row["total_ns"], Value::Null, "{by}");
            assert_eq!(row["min_ns"], Value::Null, "{by}");
        }
    }
}

/// Runs and ops of a virtual machine: a run of period 1 with two ops, and a run of which one op was
/// timed.
#[test]
fn ops_of_machines() {
    let mut script = ProfileScript::monotonic();
    script.budget(0.02);
    script.counter("page-faults", 0);
    let process = script.process(4711);
    let entry = |id, role, name: &str, arguments: &str| OpExport {
        id,
        library: 0,
        role,
        name: name.into(),
        arguments: arguments.into(),
        device: "cpu0".into(),
        ..OpExport::default()
    };
    let machine = process.library("main", &[]);
    machine.kind = LibraryKind::RelaxVm;
    process.op_exports =
        vec![entry(0, Role::Run, "forward", ""), entry(1, Role::Op, "matmul", "float32[4, 4]")];
    let thread = process.thread("main");
    thread
        .call(CallScript::op(1, 1_100, 300).group(300, &[2]).drawn(1, 1, 0))
        .call(CallScript::op(1, 1_500, 400).group(400, &[4]).drawn(1, 1, 0))
        .call(CallScript::op(0, 1_000, 1_000).group(1_000, &[9]).drawn(1, 1, 0))
        .call(CallScript::op(1, 3_100, 500).unread().drawn(2, 2, 1))
        .call(CallScript::op(0, 3_000, 1_200).unread().drawn(1, 1, 0))
        .counted(0, 2, 2, 1)
        .counted(1, 4, 3, 2);
    let (scratch, dir) = script.written();
    let (golden, dir) = (golden(&scratch), dir.to_str().unwrap());
    golden.check("machine-ops", 0, &["ops", dir, "--width", "120"]);
    golden.check("machine-ops-csv", 0, &["ops", dir, "--format", "csv"]);
    golden.check("machine-ops-json", 0, &["ops", dir, "--format", "json"]);
    let report = json_of(&golden, &["report", dir, "--format", "json"]);
    let rows = report["rows"].as_array().unwrap();
    // Two of period 1, and one of period 2 that stands for two: 300 + 400 + 2 · 500.
    let matmul = rows.iter().find(|row| row["op"] == "matmul").unwrap();
    assert_eq!((&matmul["calls"], &matmul["total_ns"]), (&json!(4), &json!(1_700.0)));
    // It has no calls inside, so its self time is known; that of the run is not, and no share is.
    assert_eq!((&matmul["self_ns"], &matmul["share"]), (&json!(1_700.0), &Value::Null));
    let run = rows.iter().find(|row| row["op"] == "forward").unwrap();
    assert_eq!((&run["calls"], &run["total_ns"]), (&json!(2), &json!(2_200.0)));
    assert_eq!(report["total"]["self_ns"], Value::Null);
    assert_eq!(report["threads"][0]["dispatch_ns"], Value::Null);
}

/// Two processes with two threads; ops whose calls are constant, alternating, heavy-tailed, slow at
/// first, and few. Drawn with a period that depends on the op and changes.
pub fn drawn() -> ProfileScript {
    let mut script = ProfileScript::monotonic();
    script.budget(0.05);
    script.counter("page-faults", 0);
    script.counter("instructions", 1);
    let mut random = Random(19);
    for pid in [100, 200] {
        let process = script.process(pid);
        process.library("mlp", &["constant", "alternating", "heavy", "slow_first", "few"]);
        for name in ["main", "worker"] {
            let thread = process.thread(name);
            let mut clock = 1_000u64;
            for (export, calls) in [(0, 2_000), (1, 3_000), (2, 3_000), (3, 500), (4, 3)] {
                let (mut skipped, mut timed, mut counted) = (0, 0, 0);
                for call in 0..calls {
                    let spread = random.below(1 << 20) + 1;
                    let duration = match export {
                        0 => 700,
                        1 => [100, 1_000][call as usize % 2],
                        2 => 100_000_000 / spread,
                        3 if call == 0 => 5_000_000,
                        _ => 300 + spread / 10_000,
                    };
                    clock += duration + 100;
                    // From the 17th call on: periods from 3 to 40, two stages for counters.
                    let period = if call < 16 { 1 } else { 3 + (export + 1) * (call / 200 % 7) };
                    if !random.odd(period) {
                        skipped += 1;
                        continue;
                    }
                    // Calls of a thread that are not inside of each other do not overlap.
                    let one = CallScript::new(export as u32, clock - duration, duration);
                    let read = random.odd(2);
                    let one = match read {
                        true => one.group(duration, &[call % 3]).group(duration, &[duration * 3]),
                        false => one.unread().unread(),
                    };
                    thread.call(one.drawn(period as u32, 2, skipped));
                    (timed, counted, skipped) = (timed + 1, counted + u64::from(read), 0);
                }
                thread.counted(export as u32, calls, timed, counted);
            }
        }
    }
    script
}

/// What the program in docs/sampling.md prints for each op: total, low and high.
fn by_hand(python: &Path, scratch: &Scratch, arguments: &[&str]) -> BTreeMap<String, [f64; 3]> {
    let page = std::fs::read_to_string(root().join("docs/sampling.md")).unwrap();
    let code = page.split("```python\n").nth(1).unwrap().split("```").next().unwrap();
    let output = Command::new(python)
        .args(["-c", code])
        .args(arguments)
        .current_dir(scratch.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines = String::from_utf8(output.stdout).unwrap();
    let line = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        (words[0].to_owned(), [1, 2, 3].map(|i: usize| words[i].parse().unwrap()))
    };
    lines.lines().map(line).collect()
}

#[test]
fn numpy_computes_the_report_from_an_export() {
    let Some(python) = python_with("sampled", "numpy, scipy.stats") else { return };
    for script in [paper(), drawn()] {
        let (scratch, dir) = script.written();
        let (golden, dir) = (golden(&scratch), dir.to_str().unwrap());
        for (what, file) in [("calls", "calls.csv"), ("counts", "counts.csv")] {
            let file = scratch.join(file);
            let file = file.to_str().unwrap();
            golden.run(&["export", dir, "--what", what, "--format", "csv", "-o", file]);
        }
        let report = json_of(&golden, &["report", dir, "--format", "json"]);
        let names = report["profile"]["counters"].as_array().unwrap();
        let names = names.iter().map(|counter| counter["name"].as_str().unwrap());
        let variables = std::iter::once(None).chain(names.enumerate().map(Some));
        for variable in variables {
            let found = match variable {
                None => by_hand(&python, &scratch, &[]),
                Some((_, name)) => by_hand(&python, &scratch, &[name, "counter_weight"]),
            };
            let rows = report["rows"].as_array().unwrap();
            assert_eq!(found.len(), rows.len());
            for row in rows {
                let expected = found[row["op"].as_str().unwrap()];
                let estimate = match variable {
                    None => &row["sampled"]["total_ns"],
                    Some((i, _)) => &row["counters"][i]["sampled"]["total"],
                };
                for (key, expected) in ["value", "low", "high"].into_iter().zip(expected) {
                    // numpy's NaN is what is not known.
                    let value = estimate[key].as_f64().unwrap_or(f64::NAN);
                    let same = (value - expected).abs() <= 1e-9 * expected.abs()
                        || value.is_nan() && expected.is_nan();
                    assert!(same, "{variable:?} {} {key}: {value}, numpy {expected}", row["op"]);
                }
            }
        }
        // Quantiles, too: numpy's `inverted_cdf`.
        let code = "import csv, numpy\nall = {}\n\
                    for row in csv.DictReader(open('calls.csv', newline='')):\n    \
                    all.setdefault(row['op'], []).append((float(row['duration_ns']), int(row['weight'])))\n\
                    for op, calls in all.items():\n    value, weight = zip(*calls)\n    \
                    print(op, *numpy.quantile(value, [0.5, 0.99], weights=weight, method='inverted_cdf'))";
        let output = Command::new(&python).args(["-c", code]).current_dir(scratch.path()).output();
        let lines = String::from_utf8(output.unwrap().stdout).unwrap();
        assert_eq!(lines.lines().count(), report["rows"].as_array().unwrap().len());
        for line in lines.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let rows = report["rows"].as_array().unwrap();
            let row = rows.iter().find(|row| row["op"] == words[0]).unwrap();
            if row["sampled"]["timed_calls"] == row["calls"] {
                continue; // Those of all calls are linear between ranks.
            }
            for (key, word) in ["p50_ns", "p99_ns"].into_iter().zip(&words[1..]) {
                assert_eq!(row[key], json!(word.parse::<f64>().unwrap()), "{line} {key}");
            }
        }
    }
}
