//! Tests views of scripted runs with a budget, in which only some calls are timed. The expected
//! numbers for [`paper`] and [`often`] were computed on paper. For [`paper`] and [`drawn`], the
//! program in docs/sampling.md computes them with numpy.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use record::meta::{OpExport, Role};
use serde_json::{Value, json};
use testkit::random::Random;
use testkit::{CallScript, Golden, ProfileScript, Scratch, python};

const PROGRAM: &str = env!("CARGO_BIN_EXE_counterpoint");

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn golden(scratch: &Scratch) -> Golden {
    Golden::new(PROGRAM, root().join("tests/golden/sampled"))
        .scrub(scratch.path().display().to_string(), "DIR")
}

/// Returns a profile of one thread. One tick is 1 ns. A period of 4 means that about every fourth
/// call was timed. T is the estimate of a total, and V is the variance of T (docs/sampling.md).
///
/// ```text
///  main    matmul   two calls of period 1: 1,000 and 800 ns; then three of period 4: 10, 14, 12 ns.
///                   12 calls. T = 1,920, V = 100 · 0.7 · 4/3, half of the interval 41.568
///                   faults are read in the first three and in the last one (weights 1, 1, 8 and 8):
///                   5, 1, 2 and 4. T = 6 + 10 · 3 = 36
///          softmax  three calls of period 1: 100, 200, 300 ns: exact
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

/// Returns the profile of [`paper`] with another thread, whose seven calls of `softmax` were only
/// counted and not timed.
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

/// Returns a profile like [`paper`]. But it has enough sampled calls for estimates with intervals:
///
/// ```text
///  matmul   1,000 and 800 ns of period 1; then 1,334 times 10, 14 and 12 ns, of period 4 and with three
///           calls that are only counted before each. 16,010 calls.
///           faults are read in the first two and in every other sampled call: 5, 1; then 2 and 4 in turns
///  softmax  three calls of period 1: 100, 200, 300 ns: exact
/// ```
fn often() -> ProfileScript {
    let mut script = ProfileScript::monotonic();
    script.budget(0.02);
    script.counter("page-faults", 0);
    let process = script.process(4711);
    process.library("mlp", &["matmul", "softmax"]);
    let main = process.thread("main");
    let mut at = 0;
    let mut call = |export, duration, faults: Option<u64>| {
        at += 2_000;
        let call = CallScript::new(export, at, duration).on(1, 0);
        match faults {
            Some(faults) => call.group(duration, &[faults]),
            None => call.unread(),
        }
    };
    main.call(call(0, 1_000, Some(5)).drawn(1, 1, 0)).call(call(0, 800, Some(1)).drawn(1, 1, 0));
    for duration in [100, 200, 300] {
        main.call(call(1, duration, Some(0)).drawn(1, 1, 0));
    }
    for i in 0..4_002 {
        let faults = (i % 2 == 0).then_some([2, 4][i / 2 % 2]);
        main.call(call(0, [10, 14, 12][i % 3], faults).drawn(4, 2, 3));
    }
    main.counted(0, 16_010, 4_004, 2_003).counted(1, 3, 3, 3);
    script
}

#[test]
fn the_numbers_equal_those_on_paper() {
    let (scratch, dir) = often().written();
    let report = golden(&scratch).json(&["report", dir.to_str().unwrap(), "--format", "json"]);
    let rows = report["rows"].as_array().unwrap();
    assert_eq!((&rows[0]["op"], &rows[0]["calls"]), (&json!("matmul"), &json!(16_010)));
    let matmul = &rows[0]["sampled"];
    let total = 1_800.0 + 16_008.0 * 12.0;
    close(&rows[0]["total_ns"], total);
    close(&matmul["total_ns"]["value"], total);
    // The 99th percentile is 14 ns. The first two calls are longer, so the estimate of the error
    // (docs/sampling.md) counts them as rare slow calls.
    let slow = (986f64.powi(2) + 786f64.powi(2)) / (total + 600.0);
    let variance = 8.0 * 1_334.0 / 4_001.0 + 12.0 * slow;
    let half = 1.9605 * 16_008.0 * (0.75 * variance / 4_002.0).sqrt();
    close(&matmul["total_ns"]["low"], total - half);
    close(&matmul["total_ns"]["high"], total + half);
    assert!((matmul["total_ns"]["high"].as_f64().unwrap() - total - half).abs() < 2.0);
    close(&matmul["mean_ns"]["high"], (total + half) / 16_010.0);
    let timed = (&matmul["timed_calls"], &matmul["counted_calls"]);
    assert_eq!(timed, (&json!(4_004), &json!(2_003)));
    // The weights are 1 for the first two calls, and 4 for a sampled call.
    close(&matmul["effective_calls"], 16_010f64.powi(2) / (2.0 + 16.0 * 4_002.0));
    close(&rows[0]["p50_ns"], 12.0);
    close(&rows[0]["p99_ns"], 14.0);
    let faults = &rows[0]["counters"][0];
    let mean = (1_001.0 * 2.0 + 1_000.0 * 4.0) / 2_001.0;
    close(&faults["total"], 6.0 + 16_008.0 * mean);
    assert_eq!(faults["calls"], 16_010);
    assert_eq!(faults["sampled"]["counted_calls"], 2_003);
    // The variance s² of the faults is 1. 2,001 calls represent 16,008 calls.
    let half = 1.961 * 16_008.0 * (0.875 / 2_001f64).sqrt();
    let high = faults["sampled"]["total"]["high"].as_f64().unwrap();
    assert!((high - 6.0 - 16_008.0 * mean - half).abs() < 2.0, "{high}");
    let softmax = &rows[1];
    assert_eq!((&softmax["total_ns"], &softmax["dispatches"]), (&json!(600.0), &json!(3)));
    assert_eq!(
        softmax["sampled"]["total_ns"],
        json!({"value": 600.0, "low": 600.0, "high": 600.0})
    );
    close(&softmax["share"], 600.0 / (total + 600.0));
    let run = &report["sampled"];
    assert_eq!((&run["budget"], &run["calls"]), (&json!(0.02), &json!(16_013)));
    close(&run["total_ns"]["value"], total + 600.0);
    assert_eq!(report["total"]["calls"], 16_013);
    assert_eq!(report["total"]["dispatches"], Value::Null);
    assert_eq!(report["profile"]["budget"], 0.02);
}

/// Three sampled calls are too few to estimate the seven calls that were only counted.
#[test]
fn few_drawn_calls_are_only_counted() {
    let (scratch, dir) = paper().written();
    let (golden, dir) = (golden(&scratch), dir.to_str().unwrap());
    let report = golden.json(&["report", dir, "--format", "json"]);
    let rows = report["rows"].as_array().unwrap();
    let matmul = rows.iter().find(|row| row["op"] == "matmul").unwrap();
    assert_eq!((&matmul["calls"], &matmul["sampled"]["timed_calls"]), (&json!(12), &json!(5)));
    for value in ["total_ns", "mean_ns", "self_ns", "p50_ns", "p99_ns", "share"] {
        assert_eq!(matmul[value], Value::Null, "{value}");
    }
    assert_eq!(matmul["max_ns"], 1_000.0);
    assert_eq!(matmul["counters"][0]["total"], Value::Null);
    assert_eq!(report["total"]["self_ns"], Value::Null);
    close(&report["sampled"]["price"], 0.018);
    let stats = golden.json(&["stats", dir, "--format", "json"]);
    let ops = stats["ops"].as_array().unwrap();
    let matmul = ops.iter().find(|op| op["op"] == "matmul").unwrap();
    assert_eq!(matmul["total_ns"], Value::Null);
    for variable in [0, 1] {
        let variable = &matmul["all"]["variables"][variable];
        assert_eq!((&variable["mean"], &variable["bucket_means"][0]), (&Value::Null, &Value::Null));
    }
    assert_eq!(matmul["all"]["variables"][0]["max"], 1_000.0);
}

/// Values of calls that were only counted are missing and not 0.
#[test]
fn a_thread_without_timed_calls() {
    let (scratch, dir) = with_counts_only().written();
    let (golden, dir) = (golden(&scratch), dir.to_str().unwrap());
    let report = golden.json(&["report", dir, "--format", "json"]);
    let softmax = &report["rows"][1];
    assert_eq!((&softmax["op"], &softmax["calls"]), (&json!("softmax"), &json!(10)));
    assert_eq!((&softmax["total_ns"], &softmax["mean_ns"]), (&Value::Null, &Value::Null));
    assert_eq!(softmax["sampled"]["timed_calls"], 3);
    // The counter was read in three calls. The seven others cannot be estimated from them.
    assert_eq!(softmax["counters"][0]["total"], Value::Null);
    assert_eq!(report["total"]["duration_ns"], Value::Null);
    assert_eq!((&report["total"]["calls"], &report["total"]["threads"]), (&json!(22), &json!(2)));
    let threads = golden.json(&["report", dir, "--by", "thread", "--format", "json"]);
    let worker = &threads["rows"].as_array().unwrap()[1];
    assert_eq!((&worker["calls"], &worker["total_ns"]), (&json!(7), &Value::Null));
    assert_eq!((&worker["min_ns"], &worker["p99_ns"]), (&Value::Null, &Value::Null));
}

/// A call that was sampled with period 4 has the weight of four calls.
#[test]
fn weighted_statistics_on_paper() {
    let (scratch, dir) = often().written();
    let args = ["stats", dir.to_str().unwrap(), "--buckets", "2", "--format", "json"];
    let stats = golden(&scratch).json(&args);
    let matmul = &stats["ops"][0];
    assert_eq!(matmul["op"], "matmul");
    close(&matmul["total_ns"], 193_896.0);
    let all = &matmul["all"];
    assert_eq!((&all["calls"], &all["timed_calls"]), (&json!(16_010), &json!(4_004)));
    let duration = &all["variables"][0];
    close(&duration["effective_calls"], 16_010f64.powi(2) / (2.0 + 16.0 * 4_002.0));
    close(&duration["mean"], 193_896.0 / 16_010.0);
    // Of the 8,005 shortest calls, 5,336 take 10 ns and 2,669 take 12 ns.
    close(&duration["bucket_means"][0], (53_360.0 + 32_028.0) / 8_005.0);
    close(&duration["bucket_means"][1], (32_004.0 + 74_704.0 + 1_800.0) / 8_005.0);
    // The page faults of the first two calls, 5 and 1, have weight 1. The counter was read in every
    // other sampled call, so those values, 2 and 4, have weight 8.
    let faults = &all["variables"][1];
    assert_eq!(faults["calls"], 2_003);
    close(&faults["mean"], (6.0 + 16_008.0 * 6_002.0 / 2_001.0) / 16_010.0);
    let weights = 16_010f64.powi(2) / (2.0 + 64.0 * 2_001.0);
    close(&all["pairs"][0]["effective_calls"], weights);
}

/// No real run can record these numbers. The views must not fail, and must not print NaN or
/// infinity.
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

/// The profile does not say when calls that were only counted began.
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
        let report = golden.json(&["report", dir, "--by", by, "--format", "json"]);
        for row in report["rows"].as_array().unwrap() {
            assert_eq!(row["total_ns"], Value::Null, "{by}");
            assert_eq!(row["min_ns"], Value::Null, "{by}");
        }
    }
}

/// Two runs of a model were timed. In the second run of the model, one call of `matmul` was timed,
/// with period 2, and another one was only counted.
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
    machine.host = testkit::hosts::TVM;
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
    let report = golden.json(&["report", dir, "--format", "json"]);
    let rows = report["rows"].as_array().unwrap();
    // One call with period 2 is not enough to estimate the fourth call, which was only counted.
    let matmul = rows.iter().find(|row| row["op"] == "matmul").unwrap();
    assert_eq!((&matmul["calls"], &matmul["total_ns"]), (&json!(4), &Value::Null));
    assert_eq!((&matmul["self_ns"], &matmul["share"]), (&Value::Null, &Value::Null));
    let run = rows.iter().find(|row| row["op"] == "forward").unwrap();
    assert_eq!((&run["calls"], &run["total_ns"]), (&json!(2), &json!(2_200.0)));
    assert_eq!(report["total"]["self_ns"], Value::Null);
    assert_eq!(report["threads"][0]["dispatch_ns"], Value::Null);
}

/// Returns a profile of two processes with two threads each. Depending on the op, the durations of
/// the calls are constant, alternate, vary a little, have a heavy tail, or are much longer in the
/// first call. Calls are sampled with a period that depends on the op and changes over time.
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
                    // From the 17th call of an op on, the period is between 3 and 21.
                    let period = if call < 16 { 1 } else { 3 + (export + 1) * (call / 200 % 7) };
                    if !random.odd(period) {
                        skipped += 1;
                        continue;
                    }
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

/// Runs the Python program from docs/sampling.md. Returns for each op its total, both ends of the
/// total's confidence interval, the 50th percentile, and the 99th percentile.
fn by_hand(python: &Path, scratch: &Scratch, arguments: &[&str]) -> BTreeMap<String, [f64; 5]> {
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
        (words[0].to_owned(), [1, 2, 3, 4, 5].map(|i: usize| words[i].parse().unwrap()))
    };
    lines.lines().map(line).collect()
}

#[test]
fn numpy_computes_the_report_from_an_export() {
    let Some(python) = python::with("sampled", "numpy, scipy.stats") else { return };
    for script in [paper(), drawn()] {
        let (scratch, dir) = script.written();
        let (golden, dir) = (golden(&scratch), dir.to_str().unwrap());
        for (what, file) in [("calls", "calls.csv"), ("counts", "counts.csv")] {
            let file = scratch.join(file);
            let file = file.to_str().unwrap();
            golden.run(&["export", dir, "--what", what, "--format", "csv", "-o", file]);
        }
        let report = golden.json(&["report", dir, "--format", "json"]);
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
                    // The report says null where the Python program says NaN: the value is unknown.
                    let value = estimate[key].as_f64().unwrap_or(f64::NAN);
                    let same = (value - expected).abs() <= 1e-9 * expected.abs()
                        || value.is_nan() && expected.is_nan();
                    assert!(same, "{variable:?} {} {key}: {value}, numpy {expected}", row["op"]);
                }
                if variable.is_some() || row["sampled"]["timed_calls"] == row["calls"] {
                    continue; // The quantiles of all calls are linear between ranks.
                }
                for (key, expected) in ["p50_ns", "p99_ns"].into_iter().zip(&expected[3..]) {
                    let value = row[key].as_f64().unwrap_or(f64::NAN);
                    let same = value == *expected || value.is_nan() && expected.is_nan();
                    assert!(same, "{} {key}: {value}, numpy {expected}", row["op"]);
                }
            }
        }
    }
}
