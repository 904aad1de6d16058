//! Tests what the report subtracts for the cost of recording. The expected numbers were computed on
//! paper. One tick is 1 ns.

use std::process::Command;

use record::Granularity;
use record::meta::{Calibration, Moments, Spread, Sums};
use serde_json::{Value, json};
use testkit::{CallScript, ProfileScript};

use crate::support::{Programs, Recorded, counterpoint};

const PROGRAM: &str = env!("CARGO_BIN_EXE_counterpoint");

fn moments(values: &[u64]) -> Moments {
    let mut moments = Moments::default();
    values.iter().for_each(|value| moments.add(*value));
    moments
}

/// Returns a profile of two functions. A call of `short` takes 25 ns and counts 1,150 ns of
/// `task-clock`. A call of `long` takes 100,020 ns and counts 101,150 ns. An empty call takes 20
/// ns, counts 700 ns of `task-clock`, and counts exactly 3 `instructions`. In the program, the
/// counters are enabled for 1,130 ns longer than a call takes. In the calibration with empty calls,
/// they are enabled for only 680 ns longer.
fn script() -> ProfileScript {
    let mut script = ProfileScript::monotonic();
    script.counter("task-clock", 0).unit = "ns".into();
    script.counter("instructions", 0);
    let process = script.process(4711);
    process.library("m", &["short", "long"]);
    process.clock_steps = Some(Granularity { smallest_ticks: 1, typical_ticks: 10 });
    process.calibrations.push(Calibration {
        calls: 100,
        counters: 3,
        inside_ticks: 20,
        total_ticks: 1_500,
        inside_values: vec![700, 3],
        spread: Some(Spread {
            inside_ticks: [20, 20],
            total_ticks: [1_500, 1_500],
            inside_values: vec![[690, 710], [3, 3]],
            enabled_ns: vec![700],
        }),
        sums: Some(Sums {
            thread_uid: 0,
            calls: 100,
            inside_ticks: moments(&[20; 100]),
            total_ticks: moments(&[1_500; 100]),
            inside_values: vec![moments(&[[690, 710]; 50].concat()), moments(&[3; 100])],
        }),
    });
    let thread = process.thread("main");
    thread.mask = 3;
    for i in 0..400 {
        let begin = 1_000_000 * i;
        thread.call(CallScript::new(0, begin, 25).group(1_155, &[1_150, 3]));
        let long = CallScript::new(1, begin + 10_000, 100_020).group(101_150, &[101_150, 1_003]);
        thread.call(long);
    }
    script
}

fn run(args: &[&str]) -> String {
    let output = Command::new(PROGRAM).args(args).output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn document(args: &[&str]) -> Value {
    serde_json::from_str(&run(args)).unwrap()
}

fn row<'v>(report: &'v Value, op: &str) -> &'v Value {
    let rows = report["rows"].as_array().unwrap();
    rows.iter()
        .find(|row| row["op"]["name"] == op || row["op"] == op)
        .unwrap_or_else(|| panic!("{report}"))
}

/// A dispatch of 25 ns was once shown with a utilisation of 4,600 % (1,150 of 25).
#[test]
fn no_utilisation_is_above_the_whole() {
    let (_scratch, dir) = script().written();
    let dir = dir.to_str().unwrap();
    let report = document(&["report", dir, "--format", "json"]);
    for op in ["short", "long"] {
        let metrics = row(&report, op)["metrics"].as_array().unwrap();
        let busy = metrics.iter().find(|m| m["name"] == "cpu-utilisation").unwrap();
        match (op, busy["value"].as_f64()) {
            ("short", None) => assert!(busy["reason"].is_string(), "{busy}"),
            ("long", Some(value)) => {
                let (low, high) = (busy["low"].as_f64().unwrap(), busy["high"].as_f64().unwrap());
                assert!(low <= 100.0 && low <= value && value <= high, "{busy}");
                assert!((99.0..101.0).contains(&value), "{busy}");
            }
            _ => panic!("{op}: {busy}"),
        }
    }
    let own = "busy = task-clock / duration in %";
    let metric = ["--metric", "cpu-utilisation", "--metric", own];
    for raw in [&[][..], &["--raw"]] {
        let csv = run(&[&["report", dir, "--format", "csv"], raw, &metric[2..]].concat());
        check_columns(&csv, &["cpu-utilisation", "busy"]);
    }
    let csv = run(&[&["export", dir, "--format", "csv"], &metric[..]].concat());
    assert_eq!(check_columns(&csv, &["cpu-utilisation", "busy"]), 2 * 400, "only the long calls");
    let export = document(&[&["export", dir, "--format", "json"], &metric[..]].concat());
    for call in export["calls"].as_array().unwrap() {
        assert!(call["busy"].as_f64().is_none_or(|busy| busy <= 101.0), "{call}");
    }
    let stats = document(&[&["stats", dir, "--format", "json"], &metric[..]].concat());
    for op in stats["ops"].as_array().unwrap() {
        for variable in op["all"]["variables"].as_array().unwrap() {
            if variable["name"] == "busy" || variable["name"] == "cpu-utilisation" {
                assert!(variable["max"].as_f64().is_none_or(|max| max <= 101.0), "{variable}");
            }
        }
    }
}

/// Checks that no value in these columns is above 101. Returns the number of values.
fn check_columns(csv: &str, columns: &[&str]) -> usize {
    let mut lines = csv.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let head = lines.next().unwrap();
    let at: Vec<usize> =
        columns.iter().map(|c| head.iter().position(|name| name == c).unwrap()).collect();
    let mut values = 0;
    for line in lines {
        for cell in at.iter().map(|at| line[*at]).filter(|cell| !cell.is_empty()) {
            assert!(cell.parse::<f64>().unwrap() <= 101.0, "{line:?}");
            values += 1;
        }
    }
    values
}

/// From each duration, the report subtracts 10 ns, half of the duration of an empty call. The true
/// cost is at least nothing and at most a whole empty call. Half a step of the clock is added on
/// both sides, so the range of the cost is from -5 to 25. For `long`, 100,010 remain, with a range
/// from 99,995 to 100,025.
///
/// In the program, the counters are enabled for 1,130 ns longer than a call takes. Therefore, the
/// report subtracts 1,130 + 10 from `task-clock` for the readings around a call. From the 1,150 of
/// a `short` call, 10 remain. From the 101,150 of a `long` call, 100,010 remain. Of `instructions`,
/// exactly 0 and 1,000 remain.
#[test]
fn empty_calls_are_subtracted_once_per_call() {
    let (_scratch, dir) = script().written();
    let dir = dir.to_str().unwrap();
    let report = document(&["report", dir, "--format", "json"]);
    assert_eq!(report["probe_subtracted"], true);
    let (short, long) = (row(&report, "short"), row(&report, "long"));
    assert_eq!(
        (short["mean_ns"].as_f64(), long["mean_ns"].as_f64()),
        (Some(15.0), Some(100_010.0))
    );
    let mean = &long["intervals"]["mean_ns"];
    assert_eq!(mean, &json!({"value": 100_010.0, "low": 99_995.0, "high": 100_025.0}));
    // The total is the sum of the calls' values. Values that the subtraction makes negative are
    // added as they are.
    assert_eq!(long["total_ns"].as_f64(), Some(400.0 * 100_010.0));
    assert_eq!(short["intervals"]["total_ns"]["low"].as_f64(), Some(400.0 * 0.0));
    let counter = |row: &Value, i: usize| row["counters"][i].clone();
    let clock = counter(long, 0)["per_call"].as_f64().unwrap();
    assert!((clock - 100_010.0).abs() < 1e-6, "{clock}");
    let of_short = &counter(short, 0)["intervals"]["per_call"];
    assert!(of_short["low"].as_f64().unwrap() < 0.0 && of_short["high"].as_f64().unwrap() > 10.0);
    for (row, total) in [(short, 0.0), (long, 400_000.0)] {
        let exact = &counter(row, 1)["intervals"]["total"];
        assert_eq!(exact, &json!({"value": total, "low": total, "high": total}));
        assert_eq!(counter(row, 1)["total"], json!(total as i64));
    }
    let raw = document(&["report", dir, "--format", "json", "--raw"]);
    assert_eq!(raw["probe_subtracted"], false);
    assert_eq!(row(&raw, "long")["mean_ns"], 100_020.0);
    assert_eq!(row(&raw, "long")["counters"][1]["total"], 400 * 1_003);
    assert!(row(&raw, "long")["intervals"].is_null());
}

/// The first 400 of 4,000 calls of `short` were timed, and no later call was sampled. Therefore the
/// error of the total is unknown.
#[test]
fn an_unknown_sample_has_no_interval() {
    let mut script = script();
    script.budget(0.02);
    let process = &mut script.processes[0];
    process.threads[0].counted(0, 4_000, 400, 400).counted(1, 400, 400, 400);
    let (_scratch, dir) = script.written();
    let report = document(&["report", dir.to_str().unwrap(), "--format", "json"]);
    let (short, long) = (row(&report, "short"), row(&report, "long"));
    assert_eq!(short["calls"], 4_000);
    assert_eq!(short["sampled"]["total_ns"]["low"], Value::Null);
    for (row, is_known) in [(short, false), (long, true)] {
        let counter = &row["counters"][1];
        for of in [row, counter] {
            assert_eq!(of["intervals"].is_object(), is_known, "{of}");
        }
    }
    assert_eq!(long["intervals"]["total_ns"]["value"], 400.0 * 100_010.0);
}

/// The duration of `short` has only an upper bound, 25 + 5 ns.
#[test]
fn values_below_the_resolution_are_bounds() {
    let (_scratch, dir) = script().written();
    let text = run(&["report", dir.to_str().unwrap(), "--width", "250"]);
    let line = text.lines().find(|line| line.starts_with("short")).unwrap();
    assert!(line.contains("<30.0 ns"), "{text}");
    assert!(line.contains('–'), "{text}");
    assert!(text.contains("< below this value, and cannot be told from"), "{text}");
    let raw = run(&["report", dir.to_str().unwrap(), "--width", "250", "--raw"]);
    assert!(!raw.contains("<30.0 ns") && raw.contains("25.0 ns"), "{raw}");
    assert!(raw.contains("what an empty call reads is not subtracted"), "{raw}");
}

#[test]
fn an_export_says_what_to_subtract() {
    let (_scratch, dir) = script().written();
    let export = document(&["export", dir.to_str().unwrap(), "--format", "json"]);
    assert_eq!(export["calls"][0]["duration_ns"], 25.0);
    let set = &export["compensation"][0];
    assert_eq!(set["pid"], 4711);
    assert_eq!(
        (set["duration_ns"]["value"].as_f64(), set["duration_ns"]["low"].as_f64()),
        (Some(10.0), Some(-5.0))
    );
    assert_eq!(set["duration_ns"]["high"].as_f64(), Some(25.0));
    let names: Vec<&str> =
        set["counters"].as_array().unwrap().iter().map(|c| c["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["task-clock", "instructions"]);
    assert_eq!(set["counters"][1]["value"].as_f64(), Some(3.0));
    assert_eq!(set["counters"][1]["low"], set["counters"][1]["high"]);
}

/// The clock has steps of 10 ns, so the difference of two readings has a standard deviation of 10 /
/// √6 = 4.08 ns. The durations of `short` differ by only 5 ns, so their correlations with counters
/// are mostly noise.
#[test]
fn correlations_with_noise_are_named() {
    let mut script = script();
    let thread = &mut script.processes[0].threads[0];
    thread.items.clear();
    for i in 0..100u64 {
        let (begin, odd) = (1_000_000 * i, i % 2);
        let short = 100 + 5 * odd;
        thread.call(CallScript::new(0, begin, short).group(1_230, &[1_230 + odd, 10 + odd]));
        let long = 100_000 + 1_000 * i;
        let clock = long + 1_130;
        thread.call(CallScript::new(1, begin + 10_000, long).group(clock, &[clock, 1_000 + i]));
    }
    let (_scratch, dir) = script.written();
    let dir = dir.to_str().unwrap();
    let stats = document(&["stats", dir, "--format", "json"]);
    for op in stats["ops"].as_array().unwrap() {
        let pairs = op["all"]["pairs"].as_array().unwrap();
        let noise = |given: &str| {
            let with = |pair: &&Value| pair["of"] == "duration_ns" && pair["given"] == given;
            pairs.iter().find(with).unwrap()["probe_noise"].as_bool().unwrap()
        };
        let expected = op["op"] == "short";
        assert_eq!((noise("task-clock"), noise("instructions")), (expected, expected), "{op}");
    }
    let text = run(&["stats", dir, "--op", "short", "--no-table"]);
    assert!(text.contains("mostly noise of the probe: duration of"), "{text}");
    let text = run(&["stats", dir, "--op", "long", "--no-table"]);
    assert!(!text.contains("noise of the probe"), "{text}");
}

#[test]
fn the_doctor_says_what_can_be_resolved() {
    let found = document(&["doctor", "--format", "json"]);
    let steps = &found["resolution"]["clock_step_ns"];
    let (smallest, typical) = (steps["smallest"].as_f64(), steps["typical"].as_f64());
    assert!(smallest.unwrap() > 0.0 && smallest <= typical, "{steps}");
    let empty = &found["resolution"]["empty_call"];
    let at = |name: &str| empty["duration_ns"][name].as_f64().unwrap();
    assert!(at("p10") <= at("p50") && at("p50") <= at("p90"), "{empty}");
    assert!(at("standard_error") >= 0.0 && empty["counters"].as_array().unwrap().is_empty());
    let output = Command::new(PROGRAM).arg("doctor").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("clock step") && text.contains("empty call"), "{text}");
}

/// Each of 50 calls writes to 100 new pages. The recorder causes no page fault around calls.
#[test]
fn known_page_faults_of_a_real_program() {
    let Some(program) = counterpoint("known page faults") else { return };
    let programs = Programs::get();
    let mut host = Command::new(&programs.host);
    host.arg(&programs.library).args(["touch", "100", "50"]);
    let recorded = Recorded::run(&program, "page-faults:u", &mut host);
    let report = recorded.report(&[]);
    let touch = row(&report, "touch");
    let faults = &touch["counters"][0];
    assert_eq!(
        faults["intervals"]["total"],
        json!({"value": 5_000.0, "low": 5_000.0, "high": 5_000.0})
    );
    assert_eq!(faults["total"], 5_000);
    let mean = &touch["intervals"]["mean_ns"];
    assert!(mean["low"].as_f64() < mean["high"].as_f64(), "{mean}");
    let profile = profile::Profile::open(&recorded.path()).unwrap();
    let process = &profile.processes[0];
    assert!(process.clock_steps.is_some_and(|steps| steps.typical_ticks > 0), "{process:?}");
    for thread in &process.threads {
        let own = |c: &&Calibration| c.sums.as_ref().is_some_and(|s| s.thread_uid == thread.uid);
        let found = process.calibrations.iter().find(own).unwrap_or_else(|| panic!("{thread:?}"));
        let sums = found.sums.as_ref().unwrap();
        assert_eq!(sums.inside_values[0], Moments::default(), "an empty call has no fault");
        assert!(sums.calls >= 2 && sums.calls <= found.calls, "{found:?}");
    }
}
