//! Tests `report` and `export` on scripted profiles. The expected numbers were computed on paper.

use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};

use model::Loss;
use profile::{Exit, Origin, State};
use serde_json::{Value, json};
use testkit::{CallScript, Golden, Item, ProfileScript, Scratch};

const PROGRAM: &str = env!("CARGO_BIN_EXE_counterpoint");

fn golden(scratch: &Scratch) -> Golden {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/report");
    Golden::new(PROGRAM, root).scrub(scratch.path().display().to_string(), "DIR")
}

/// Returns a profile with one process, two threads, three ops and two groups of counters. One tick
/// is 1 ns.
///
/// ```text
///  main    matmul  tile 0 of 2   1,000,000 – 1,200,000   cpu 1   faults 10, clock 200,000
///          matmul  tile 1 of 2   1,500,000 – 1,600,000   cpu 1   faults  2, clock 100,000
///          clocks                2,000,000: CPU time 400,000 since 1,000,000
///  worker  softmax               1,100,000 – 1,200,000   cpu 2   faults not read, clock 90,000
///          softmax               1,300,000 – 1,900,000   cpu 2   multiplexed, clock 500,000
///          copy                  2,000,000 – 2,000,500   cpu 3   faults  0, clock 500
/// ```
fn mlp() -> ProfileScript {
    let mut script = ProfileScript::monotonic();
    script.counter("page-faults", 0);
    script.counter("task-clock", 1).unit = "ns".into();
    script.manifest.notes.push("cycles is left out: this machine has no such counter".into());
    let process = script.process(4711);
    process.losses.push((Loss::CounterOpenFailed, 2, 24));
    let library = process.library(
        "mlp_linked",
        &["main_dispatch_0_matmul_2048x512x2048_f32_with_a_name_that_is_long", "softmax", "copy"],
    );
    library.exports[0].source_path = "mlp.mlir".into();
    library.exports[0].source_line = 12;
    process.empty_calls(256, 50, 200, &[0, 40]);
    let main = process.thread("main");
    main.base = (1_000_000, 0, 1_000_000);
    main.call(
        CallScript::new(0, 1_000_000, 200_000)
            .workgroup(0, 2)
            .on(1, 0)
            .group(200_000, &[10])
            .group(200_000, &[200_000]),
    )
    .call(
        CallScript::new(0, 1_500_000, 100_000)
            .workgroup(1, 2)
            .on(1, 0)
            .group(100_000, &[2])
            .group(100_000, &[100_000]),
    )
    .then(Item::Clock(2_000_000, 400_000, 2_000_000));
    let worker = process.thread("worker,\"0\"");
    worker.base = (1_100_000, 0, 1_100_000);
    worker
        .call(CallScript::new(1, 1_100_000, 100_000).on(2, 0).unread().group(90_000, &[90_000]))
        .call(
            CallScript::new(1, 1_300_000, 600_000)
                .on(2, 0)
                .scaled(600_000, 300_000, &[3])
                .group(500_000, &[500_000]),
        )
        .call(CallScript::new(2, 2_000_000, 500).on(3, 0).group(500, &[0]).group(500, &[500]));
    script
}

#[test]
fn the_table_for_people() {
    let (scratch, dir) = mlp().written();
    let (golden, dir) = (golden(&scratch), dir.to_str().unwrap());
    golden.check("op", 0, &["report", dir]);
    golden.check("top", 0, &["report", dir, "--top", "1"]);
    let verbose = golden.check_stdout("verbose", 0, &["report", dir, "--verbose"]);
    let (step, took) = verbose.stderr.trim_end().rsplit_once(": ").unwrap();
    assert!(step.starts_with("counterpoint: reading ") && took.ends_with('s'), "{step}: {took}");
    golden.check("narrow", 0, &["report", dir, "--width", "60"]);
    golden.check("wide", 0, &["report", dir, "--width", "250"]);
    golden.check("thread", 0, &["report", dir, "--by", "thread", "--width", "200"]);
    golden.check("cpu", 0, &["report", dir, "--by", "cpu", "--sort", "page-faults"]);
    golden.check("process", 0, &["report", dir, "--by", "process"]);
    golden.check("filter", 0, &["report", dir, "--filter", "*max"]);
    golden.check("raw", 0, &["report", dir, "--raw"]);
    golden.check("filter-none", 1, &["report", dir, "--filter", "nothing"]);
    golden.check("op-csv", 0, &["report", dir, "--format", "csv"]);
    golden.check("op-json", 0, &["report", dir, "--format", "json"]);
}

#[test]
fn the_numbers_equal_those_on_paper() {
    let (scratch, dir) = mlp().written();
    let golden = golden(&scratch);
    let report = golden.json(&["report", dir.to_str().unwrap(), "--format", "json"]);
    assert_eq!(report["schema"], "counterpoint.report/1");
    let total = &report["total"];
    assert_eq!(total["calls"], 5);
    assert_eq!(total["dispatches"], 4);
    // Half of the 50 ns of an empty call is subtracted from each of five calls.
    assert_eq!(total["duration_ns"], 1_000_375.0);

    let rows = report["rows"].as_array().unwrap();
    let names: Vec<&str> = rows.iter().map(|row| row["op"].as_str().unwrap()).collect();
    assert!(names[0] == "softmax" && names[1].starts_with("main_dispatch_0") && names[2] == "copy");
    let softmax = &rows[0];
    assert_eq!(softmax["total_ns"], 699_950.0);
    assert_eq!(softmax["share"], 699_950.0 / 1_000_375.0);
    assert_eq!(softmax["p50_ns"], 349_975.0);
    // This is 100,000 + 0.99 · 500,000, minus 25 for half of an empty call.
    assert_eq!(softmax["p99_ns"], 594_975.0);
    let faults = json!({"name": "page-faults", "total": null, "per_call": null, "calls": 0,
                        "empty_share": null});
    assert_eq!(
        softmax["counters"][0], faults,
        "a counter that was not read or was multiplexed is missing, not zero"
    );
    // An empty call counts 40 of `task-clock`, and takes 50 ns.
    let clock = json!({"name": "task-clock", "total": 589_920.0, "per_call": 294_960.0, "calls": 2,
                       "empty_share": 80.0 / 590_000.0});
    assert_eq!(softmax["empty_share"], 50.0 / 700_000.0);
    let mut counter = softmax["counters"][1].clone();
    let intervals = counter.as_object_mut().unwrap().remove("intervals").unwrap();
    assert_eq!(counter, clock);
    assert_eq!(intervals["per_call"]["value"], 294_960.0);
    assert_eq!(softmax["cpus"], json!([2]));
    assert_eq!(softmax["source"], Value::Null);
    let matmul = &rows[1];
    assert_eq!(matmul["source"], "mlp.mlir:12");
    assert_eq!(matmul["counters"][0]["total"], 12);
    assert_eq!(rows[2]["counters"][0]["total"], 0, "it was read, and nothing happened");

    // `main` spent 300,000 ns in calls, of which the recorder took 50 ns. It was on a CPU for
    // 400,000 ns: for 300,000 ns in calls, and for 100,000 ns between calls. So of the 700,000 ns
    // between calls, it was off the CPU for 600,000 ns.
    let main = &report["threads"][0];
    assert_eq!(main["wall_ns"], 1_000_000.0);
    assert_eq!(main["dispatch_ns"], 299_950.0);
    assert_eq!(main["recorder_ns"], 50.0);
    assert_eq!(main["no_dispatch_ns"], 700_050.0);
    assert_eq!(main["off_cpu_ns"], 600_000.0);
    // The CPU clock of `worker` was read only once.
    let worker = &report["threads"][1];
    assert_eq!(worker["wall_ns"], 900_500.0);
    assert_eq!(worker["dispatch_ns"], 700_425.0);
    assert_eq!(worker["recorder_ns"], 75.0);
    assert_eq!(worker["off_cpu_ns"], Value::Null);
    // The time between calls is the sum of the wall times minus the times in calls.
    assert_eq!(report["total"]["between_ns"], 1_900_500.0 - 299_950.0 - 700_425.0);
    // Recording cost 200 ns for each of the 5 calls.
    assert_eq!(report["probe"]["total_ns"], 1_000.0);
    assert_eq!(report["probe"]["share_of_dispatch_time"], 1_000.0 / 1_000_500.0);
    let losses: Vec<(&str, u64)> = report["losses"]
        .as_array()
        .unwrap()
        .iter()
        .map(|loss| (loss["name"].as_str().unwrap(), loss["count"].as_u64().unwrap()))
        .collect();
    assert_eq!(losses, [("multiplexed_call", 1), ("counter_open_failed", 2)]);

    let raw = golden.json(&["report", dir.to_str().unwrap(), "--format", "json", "--raw"]);
    assert_eq!(raw["total"]["duration_ns"], 1_000_500.0);
    assert_eq!(raw["rows"][0]["counters"][1]["total"], 590_000);
}

#[test]
fn nothing_recorded() {
    let mut script = ProfileScript::monotonic();
    script.manifest.filters.push("*conv*".into());
    script.manifest.exit = Some(Exit { signal: Some(11), core: true, ..Exit::default() });
    let (scratch, dir) = script.written();
    let (golden, dir) = (golden(&scratch), dir.to_str().unwrap());
    golden.check("empty", 0, &["report", dir]);
    let report = golden.json(&["report", dir, "--format", "json"]);
    assert_eq!(report["rows"], json!([]));
    assert_eq!(report["probe"], Value::Null);
    golden.check("empty-csv", 0, &["report", dir, "--format", "csv"]);
    golden.check("empty-export", 0, &["export", dir, "--format", "csv"]);
}

#[test]
fn one_call_without_counters() {
    let mut script = ProfileScript::monotonic();
    let process = script.process(1);
    process.library("m", &["f\u{7}\u{1b}[31m"]);
    let thread = process.thread("t");
    thread.base = (10, 0, 10);
    thread.call(CallScript::new(0, 10, 1)).then(Item::Clock(1_010, 500, 1_010));
    let (scratch, dir) = script.written();
    golden(&scratch).check("timing-only", 0, &["report", dir.to_str().unwrap()]);
}

#[test]
fn nothing_recorded_for_a_known_reason() {
    let mut script = ProfileScript::monotonic();
    script.manifest.filters.push("*conv*".into());
    let process = script.process(4711);
    process.library("m", &["f", "g"]).exports.iter_mut().for_each(|e| e.recorded = false);
    let (scratch, dir) = script.written();
    golden(&scratch).check("empty-filter", 0, &["report", dir.to_str().unwrap()]);
    script.manifest.filters.clear();
    let process = &mut script.processes[0];
    process.losses.extend([(Loss::NoPage, 7, 0), (Loss::CounterOpenFailed, 1, 24)]);
    let (scratch, dir) = script.written();
    golden(&scratch).check("empty-losses", 0, &["report", dir.to_str().unwrap()]);
}

/// Two of three calls of matmul have a value of `page-faults`. Another thread has no counters.
#[test]
fn partly_counted_and_partly_calibrated() {
    let mut script = mlp();
    let main = &mut script.processes[0].threads[0];
    main.call(CallScript::new(0, 1_700_000, 100_000).on(1, 0).unread().group(90_000, &[90_000]));
    let timing = script.processes[0].thread("timing");
    (timing.mask, timing.base) = (0, (1_000_000, 0, 1_000_000));
    timing.call(CallScript::new(1, 1_000_000, 50_000)).call(CallScript::new(1, 1_500_000, 50_000));
    let (scratch, dir) = script.written();
    let (golden, dir) = (golden(&scratch), dir.to_str().unwrap());
    golden.check("partly", 0, &["report", dir]);
    let report = golden.json(&["report", dir, "--format", "json"]);
    // Two of 8 calls have no counters, so the cost of recording them is not known. Recording each
    // of the other six calls costs 200 ns.
    assert_eq!((&report["probe"]["calls"], &report["probe"]["of_calls"]), (&json!(6), &json!(8)));
    assert_eq!(report["probe"]["total_ns"], 1_200.0);
}

/// If the output is a file or pipe, it has all columns.
#[test]
fn output_fits_the_width() {
    let (_scratch, dir) = mlp().written();
    let output = |width: &[&str]| {
        let mut command = Command::new(PROGRAM);
        command.arg("report").arg(&dir).args(width).env_remove("COLUMNS");
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    };
    let all = output(&[]);
    assert!(!all.contains("not shown"), "{all}");
    assert!(all.contains("main_dispatch_0_matmul_2048x512x2048_f32_with_a_name_that_is_long"));
    for column in ["dispatches", "threads", "cpus", "min", "source"] {
        assert!(all.contains(column), "{column}: {all}");
    }
    for width in [40, 50, 60, 80, 100] {
        let text = output(&["--width", &width.to_string()]);
        for line in text.lines() {
            assert!(line.chars().count() <= width, "--width {width}: {line}");
        }
    }
}

/// The program and `counterpoint run` were killed. Some calls are still only in memory, in the
/// recording's pool.
#[test]
fn after_a_crash() {
    let mut script = mlp();
    script.pool = true;
    script.manifest.state = State::Recording;
    script.manifest.exit = None;
    script.manifest.snapshots.truncate(1);
    script.processes[0].pid = 4_000_711;
    for thread in &mut script.processes[0].threads {
        thread.unflushed = true;
        thread.open = (1, 0);
    }
    let (scratch, dir) = script.written();
    let golden = golden(&scratch);
    golden.check("crash", 0, &["report", dir.to_str().unwrap()]);
    assert!(testkit::make::pool_path(&dir).exists(), "a view deleted the pool");
    assert_eq!(golden.run(&["recover", dir.to_str().unwrap()]).code, Some(0));
    assert!(!testkit::make::pool_path(&dir).exists(), "the pool was collected");
    golden.check("crash", 0, &["report", dir.to_str().unwrap()]);
}

#[test]
fn a_recording_of_env_is_closed_on_request() {
    let mut script = mlp();
    script.pool = true;
    script.manifest.state = State::Recording;
    script.manifest.origin = Origin::Env;
    script.manifest.command.clear();
    script.processes[0].pid = 4_000_711;
    let (scratch, dir) = script.written();
    let golden = golden(&scratch);
    // The reports are so wide that their line breaks do not depend on the length of the profile's
    // path.
    let dir_text = dir.to_str().unwrap();
    golden.check("env-open", 0, &["report", dir_text, "--width", "400"]);
    assert_eq!(golden.run(&["recover", "--close", dir_text]).code, Some(0));
    golden.check("env-closed", 0, &["report", dir_text, "--width", "400"]);
    assert!(!testkit::make::pool_path(&dir).exists());
}

#[test]
fn errors() {
    let (scratch, dir) = mlp().written();
    let golden = golden(&scratch);
    let missing = scratch.join("none.cpt");
    golden.check("missing", 2, &["report", missing.to_str().unwrap()]);
    golden.check("not-a-profile", 2, &["report", scratch.path().to_str().unwrap()]);
    golden.check("sort", 2, &["report", dir.to_str().unwrap(), "--sort", "colour"]);
    let to = scratch.join("no/such/file");
    let dir_text = dir.to_str().unwrap();
    let args = ["export", dir_text, "--format", "csv", "-o", to.to_str().unwrap()];
    golden.check("export-output", 2, &args);
    std::fs::write(dir.join("manifest.json"), r#"{"schema":"counterpoint.manifest/99"}"#).unwrap();
    golden.check("other-version", 2, &["export", dir.to_str().unwrap(), "--format", "json"]);
}

/// The name of a counter may contain anything: the option `name=` of a PMU's counter allows any
/// text, and somebody may have edited the manifest.
#[test]
fn counters_with_strange_names() {
    let (scratch, dir) = mlp().written();
    let golden = golden(&scratch);
    let dir = dir.to_str().unwrap();
    let path = Path::new(dir).join("manifest.json");
    let good: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let named = |name: &str| {
        let mut manifest = good.clone();
        manifest["counters"][0]["name"] = name.into();
        std::fs::write(&path, manifest.to_string()).unwrap();
        golden.run(&["report", dir])
    };
    let long = named(&"x".repeat(70_000));
    assert_eq!(long.code, Some(0), "{}", long.stderr);
    assert!(long.stdout.contains("matmul"), "{}", long.stdout);
    let text = named("a\u{1b}[31m\nb").stdout;
    assert!(text.contains("a\u{fffd}[31m\u{fffd}b") && !text.contains('\u{1b}'), "{text}");
    let mut manifest = good.clone();
    manifest["counters"] = vec![good["counters"][0].clone(); 33].into();
    std::fs::write(&path, manifest.to_string()).unwrap();
    let many = golden.run(&["report", dir]);
    assert_eq!(many.code, Some(2));
    assert!(many.stderr.contains("more counters than a recording can have"), "{}", many.stderr);
}

#[test]
fn every_call_exported() {
    let (scratch, dir) = mlp().written();
    let (golden, dir) = (golden(&scratch), dir.to_str().unwrap());
    golden.check("export-csv", 0, &["export", dir, "--format", "csv"]);
    golden.check("export-json", 0, &["export", dir, "--format", "json", "--filter", "softmax"]);
    let file = scratch.join("calls.json");
    let args = ["export", dir, "--format", "json", "-o", file.to_str().unwrap()];
    assert_eq!(golden.run(&args).code, Some(0));
    let document: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    assert_eq!(document["schema"], "counterpoint.export/1");
    assert_eq!(document["profile"]["counters"][1]["unit"], "ns");
    let calls = document["calls"].as_array().unwrap();
    assert_eq!(calls.len(), 5);
    assert_eq!(calls[2]["page-faults"], Value::Null, "a counter that was not read is null");
    assert_eq!(calls[3]["page-faults"], 3, "a multiplexed value is exported raw");
    assert_eq!(calls[3]["group0_running_ns"], 300_000);
    assert_eq!(calls[4]["start_ns"], 2_000_000);
    assert_eq!(calls[0]["thread_name"], "main");
}

/// The reader stops early, as in `counterpoint … | head -1`.
#[test]
fn a_reader_that_goes_away_is_not_an_error() {
    let mut script = ProfileScript::monotonic();
    let process = script.process(1);
    process.library("m", &["f"]);
    let thread = process.thread("t");
    for page in 0..30u64 {
        for i in 0..1_000u64 {
            thread.call(CallScript::new(0, page * 1_000_000 + i * 10, 5));
        }
        thread.then(Item::NextPage(0, 0, 0));
    }
    let (_scratch, dir) = script.written();
    for (format, first) in [("csv", true), ("csv", false), ("json", true), ("json", false)] {
        let mut child = Command::new(PROGRAM)
            .args(["export", dir.to_str().unwrap(), "--format", format])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdout = child.stdout.take();
        if first {
            stdout.as_mut().unwrap().read_exact(&mut [0; 100]).unwrap();
        }
        drop(stdout);
        let output = child.wait_with_output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{format}");
        assert_eq!(output.status.code(), Some(0), "{format}");
    }
}
