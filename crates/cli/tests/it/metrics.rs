//! Tests metrics in `report`, `stats` and `export`. For random profiles and expressions, a Python
//! program computes the expected values with exact fractions.

use std::path::Path;
use std::process::Command;

use profile::MetricInfo;
use serde_json::Value;
use testkit::{CallScript, Golden, Item, ProfileScript, Random, Scratch};

const PROGRAM: &str = env!("CARGO_BIN_EXE_counterpoint");

fn golden(scratch: &Scratch) -> Golden {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/metrics");
    Golden::new(PROGRAM, root).scrub(scratch.path().display().to_string(), "DIR")
}

/// Returns a profile with two groups of counters. One tick is 1 ns. The counter `read` is the
/// second group, and the other counters are the first one. In the second call of `f`, the first
/// group was not read. In the last call of `f`, the first group was multiplexed.
///
/// ```text
///         duration   cycles  instructions  cache-misses   read
///  f      1,000 ns    3,000         6,000            30   500
///  f      9,000 ns        –             –             –   700
///  f      2,000 ns    4,000         2,000            10   100
///  f      5,000 ns    (multiplexed)                       100
///  g        500 ns        0             0             0     0
/// ```
fn script() -> ProfileScript {
    let mut script = ProfileScript::monotonic();
    script.counter("cycles", 0).unit = "cycles".into();
    script.counter("instructions", 0);
    script.counter("cache-misses", 0);
    script.counter("read", 1).unit = "bytes".into();
    script.manifest.metrics.push(MetricInfo {
        name: "bandwidth".into(),
        expression: "read / duration in MB/s".into(),
    });
    let process = script.process(4711);
    process.library("m", &["f", "g"]);
    let main = process.thread("main");
    main.call(CallScript::new(0, 0, 1_000).group(1_000, &[3_000, 6_000, 30]).group(1_000, &[500]));
    main.call(CallScript::new(0, 10_000, 9_000).unread().group(9_000, &[700]));
    main.call(
        CallScript::new(0, 20_000, 2_000).group(2_000, &[4_000, 2_000, 10]).group(2_000, &[100]),
    );
    main.call(
        CallScript::new(0, 30_000, 5_000).scaled(5_000, 100, &[9, 9, 9]).group(5_000, &[100]),
    );
    main.call(CallScript::new(1, 40_000, 500).group(500, &[0, 0, 0]).group(500, &[0]));
    script
}

fn json(args: &[&str]) -> Value {
    let output = Command::new(PROGRAM).args(args).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn a_rows_metric_is_computed_from_the_sums() {
    let (scratch, dir) = script().written();
    let dir = dir.to_str().unwrap();
    let per_miss = "per-miss = duration / cache-misses";
    let golden = golden(&scratch);
    golden.check("report", 0, &["report", dir, "--metric", per_miss, "--width", "160"]);
    golden.check("report-csv", 0, &["report", dir, "--metric", per_miss, "--format", "csv"]);
    let report = json(&["report", dir, "--metric", per_miss, "--format", "json"]);
    let row = |op: usize, name: &str| -> (Option<f64>, u64, String) {
        let metrics = report["rows"][op]["metrics"].as_array().unwrap();
        let metric = metrics.iter().find(|metric| metric["name"] == name).unwrap();
        let unit = metric["unit"].as_str().unwrap().to_owned();
        (metric["value"].as_f64(), metric["calls"].as_u64().unwrap(), unit)
    };
    // The metric of a row is a ratio of sums: the mean of the two calls' ratios, 2 and 0.5, would
    // be 1.25.
    assert_eq!(row(0, "ipc"), (Some(8_000.0 / 7_000.0), 2, "ratio".into()));
    // Cycles were counted in two calls of `f`: 7,000 cycles in 3,000 ns.
    assert_eq!(row(0, "frequency"), (Some(7_000.0 / 3_000.0), 2, "GHz".into()));
    assert_eq!(row(0, "cache-mpki"), (Some(5.0), 2, "ratio".into()));
    assert_eq!(row(0, "per-miss"), (Some(75.0), 2, "ns".into()));
    // Bytes were counted in all four calls of `f`: 1,400 bytes in 17,000 ns.
    assert_eq!(row(0, "bandwidth"), (Some(1_400.0 / 17_000.0 * 1e3), 4, "MB/s".into()));
    // All counters of `g` are 0. A metric that divides by 0 has no value, and 0 cycles in 500 ns
    // are 0 GHz.
    assert_eq!(row(1, "ipc"), (None, 1, "ratio".into()));
    assert_eq!(row(1, "frequency"), (Some(0.0), 1, "GHz".into()));
    assert_eq!(row(1, "per-miss").0, None);
}

#[test]
fn a_calls_metric_is_computed_from_that_call() {
    let (scratch, dir) = script().written();
    let dir = dir.to_str().unwrap();
    let golden = golden(&scratch);
    golden.check("export-csv", 0, &["export", dir, "--metric", "ipc", "--format", "csv"]);
    let args = ["stats", dir, "--op", "f", "--metric", "ipc", "--buckets", "2", "--no-table"];
    golden.check("stats", 0, &args);
    let csv: Vec<&str> = args.iter().copied().chain(["--format", "csv"]).collect();
    golden.check("stats-csv", 0, &csv);
    let calls = json(&["export", dir, "--metric", "ipc", "--format", "json"]);
    let ipc: Vec<Option<f64>> =
        calls["calls"].as_array().unwrap().iter().map(|call| call["ipc"].as_f64()).collect();
    assert_eq!(ipc, [Some(2.0), None, Some(0.5), None, None]);
    let stats = json(&["stats", dir, "--op", "f", "--metric", "ipc", "--format", "json"]);
    let variables = stats["ops"][0]["all"]["variables"].as_array().unwrap();
    let ipc = variables.iter().find(|v| v["name"] == "ipc").unwrap();
    assert_eq!((&ipc["calls"], &ipc["min"], &ipc["max"]), (&2.into(), &0.5.into(), &2.0.into()));
    assert_eq!(ipc["mean"], 1.25);
}

#[test]
fn which_metrics_are_computed() {
    let (scratch, dir) = script().written();
    let dir = dir.to_str().unwrap();
    let golden = golden(&scratch);
    let file = scratch.join("mine.txt");
    std::fs::write(
        &file,
        "# Mine.\n\nbandwidth = read / duration in kB/s\n  one = cycles in cycles\n",
    )
    .unwrap();
    let file = file.to_str().unwrap();
    let report = json(&["report", dir, "--metrics-file", file, "--format", "json"]);
    let names: Vec<&str> =
        report["metrics"].as_array().unwrap().iter().map(|m| m["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["bandwidth", "one", "ipc", "cpi", "frequency", "cache-mpki"]);
    assert_eq!(report["metrics"][0]["unit"], "kB/s");
    assert_eq!(report["metrics"][0]["builtin"], false);
    assert_eq!(report["metrics"][2]["builtin"], true);
    let all = json(&["export", dir, "--metric", "builtin", "--format", "json"]);
    assert_eq!(all["metrics"].as_array().unwrap().len(), 5);
    let bad = scratch.join("bad.txt");
    std::fs::write(&bad, "ok = cycles\n\n  x = (cycles\n").unwrap();
    let bad = bad.to_str().unwrap();
    for (name, args) in [
        ("error-syntax", ["--metric", "x = instructions / "]),
        ("error-unknown", ["--metric", "x = instruction / cycles"]),
        ("error-minus", ["--metric", "x = cycles-instructions"]),
        ("error-groups", ["--metric", "x = read / cycles"]),
        ("error-units", ["--metric", "x = read + duration"]),
        ("error-builtin", ["--metric", "icp"]),
        ("error-cannot", ["--metric", "branch-miss-rate"]),
        ("error-counter", ["--metric", "cycles = cycles * 2"]),
        ("error-column", ["--metric", "share = cycles * 2"]),
        ("error-file", ["--metrics-file", bad]),
        ("error-no-file", ["--metrics-file", "no/such/file"]),
    ] {
        golden.check(name, 2, &["report", dir, args[0], args[1]]);
    }
    golden.check("error-twice", 2, &["report", dir, "--metric", "ipc", "--metric", "ipc=cycles"]);
    let run =
        |metric| ["run", "-e", "sim/a,readings=0:5/", "--metric", metric, "-o", dir, "--", "true"];
    golden.check("error-run", 2, &run("x = a / b"));
    golden.check("error-run-builtin", 2, &run("builtin"));
}

/// A metric with the name of a column would hide the column.
#[test]
fn metrics_cannot_have_names_of_columns() {
    let (_scratch, dir) = script().written();
    let dir = dir.to_str().unwrap();
    let header = |args: &[&str]| {
        let output = Command::new(PROGRAM).args(args).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines().next().unwrap().split(',').map(str::to_owned).collect::<Vec<_>>()
    };
    let mut names = header(&["export", dir, "--format", "csv"]);
    for by in ["op", "thread", "cpu", "process"] {
        names.extend(header(&["report", dir, "--by", by, "--format", "csv"]));
    }
    let metrics = ["bandwidth", "ipc", "cpi", "frequency", "cache-mpki"];
    names.retain(|name| !metrics.contains(&name.as_str()));
    assert!(names.len() > 60, "{names:?}");
    for name in names {
        let metric = format!("{name} = cycles / 2");
        let output =
            Command::new(PROGRAM).args(["report", dir, "--metric", &metric]).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{name}");
        assert!(text.contains("give the metric another name"), "{name}: {text}");
    }
}

#[test]
fn a_bad_metric_of_the_profile_is_left_out() {
    let mut script = script();
    for expression in ["cycles /", "nothing / cycles", "cycles + read"] {
        let (name, expression) = ("bad".to_owned(), expression.to_owned());
        script.manifest.metrics.push(MetricInfo { name, expression });
    }
    let (_scratch, dir) = script.written();
    let output =
        Command::new(PROGRAM).arg("report").arg(dir).args(["--format", "json"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(text.lines().filter(|line| line.contains("the profile's metric bad: ")).count(), 3);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["metrics"][0]["name"], "bandwidth");
}

/// Returns a random expression. All `names` stand for counts, so they have the same unit.
fn expression(r: &mut Random, depth: u64, names: &[&str]) -> String {
    let name = |r: &mut Random| names[r.below(names.len() as u64) as usize].to_owned();
    if depth == 0 {
        return if r.below(4) == 0 { format!("{}", r.below(9)) } else { name(r) };
    }
    let a = expression(r, depth - 1, names);
    let b = expression(r, depth - 1, names);
    match r.below(7) {
        0 => format!("{a} + {b}"),
        1 => format!("({a} - {b})"),
        2 => format!("({a}) * {b}"),
        3 | 4 => format!("({a})/({b})"),
        5 => format!("max({a}, {b})"),
        _ => format!("min(-{a},{b})"),
    }
}

#[test]
fn values_equal_those_computed_with_fractions() {
    let test = "values_equal_those_computed_with_fractions";
    let Some(python) = testkit::python::with(test, "fractions") else { return };
    let mut r = Random(0x9E37_79B9_7F4A_7C15);
    let mut script = ProfileScript::monotonic();
    for (name, group) in [("a", 0), ("b", 0), ("c", 1)] {
        script.counter(name, group);
    }
    let process = script.process(9);
    process.library("m", &["f", "g", "h"]);
    for name in ["s", "t"] {
        process.thread(name);
    }
    for i in 0..600u64 {
        let thread = &mut process.threads[(i % 2) as usize];
        let start = 1_000 * i;
        if i % 100 == 99 {
            thread.then(Item::NextPage(start, 0, 0));
        }
        let (a, b, c) = (r.below(1_000), r.below(4), r.below(90));
        let call = CallScript::new(r.below(3) as u32, start, 1 + r.below(900));
        thread.call(match r.below(5) {
            0 => call.unread().group(9, &[c]),
            1 => call.scaled(9, 4, &[a, b]).group(9, &[c]),
            2 => call.group(9, &[a, b]).unread(),
            _ => call.group(9, &[a, b]).group(9, &[c]),
        });
    }
    let (scratch, dir) = script.written();
    let mut text = "# Random.\nalone = duration\nlatency = duration / c\n".to_owned();
    for i in 0..60u64 {
        let names: &[&str] = if i % 3 == 0 { &["c"] } else { &["a", "b"] };
        let depth = 1 + r.below(4);
        let mut one = expression(&mut r, depth, names);
        if !names.iter().any(|name| one.replace("max", "").replace("min", "").contains(name)) {
            one = format!("{one} + {}", names[0]);
        }
        text.push_str(&format!("m{i} = {one}\n"));
    }
    let file = scratch.join("metrics.txt");
    std::fs::write(&file, text).unwrap();
    let oracle = scratch.join("oracle.py");
    std::fs::write(&oracle, include_str!("metrics_oracle.py")).unwrap();
    let output = Command::new(python).arg(oracle).arg(PROGRAM).arg(dir).arg(file).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
