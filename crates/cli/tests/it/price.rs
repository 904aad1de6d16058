//! Tests, with real processes, the default counters and what reports say about the cost of
//! recording.

use std::process::Command;

use serde_json::{Value, json};

use crate::support::{Programs, Recorded, counterpoint};

fn host(arguments: &str) -> Command {
    let programs = Programs::get();
    let mut command = Command::new(&programs.host);
    command.arg(&programs.library).args(arguments.split(' '));
    command
}

/// Records a program without the option `-e`. Returns the directory that contains the profile, and
/// the report as JSON and as text.
fn unasked(program: &std::path::Path, command: &mut Command) -> (testkit::Scratch, Value, String) {
    let directory = testkit::Scratch::new();
    let mut run = Command::new(program);
    run.arg("run").arg("-o").arg(directory.join("p.cpt")).arg("--");
    run.arg(command.get_program()).args(command.get_args());
    for variable in ["COUNTERPOINT_CPU_METRICS", "TVM_PAPI_CPU_METRICS"] {
        run.env_remove(variable);
    }
    let output = run.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let report = |format: &str| {
        let mut report = Command::new(program);
        let output = report.arg("report").arg(directory.join("p.cpt")).args(["--format", format]);
        String::from_utf8(
            output.args(["--by", "thread", "--width", "400", "--verbose"]).output().unwrap().stdout,
        )
        .unwrap()
    };
    let (found, text) = (serde_json::from_str(&report("json")).unwrap(), report("table"));
    (directory, found, text)
}

/// 50 calls touch 100 new pages each. Other page faults happen between calls.
#[test]
fn timing_only_and_what_threads_used() {
    let Some(program) = counterpoint("unasked") else { return };
    let machine = machine::Machine::here();
    if !names::defaults::defaults(&machine).counters.is_empty() {
        return crate::support::skip("unasked", "this machine has hardware counters");
    }
    let (directory, report, text) = unasked(&program, &mut host("touch 100 50"));
    assert_eq!(report["profile"]["counters"], json!([]));
    assert_eq!(report["total"]["calls"], 50);
    let notes = report["notes"].to_string();
    assert!(notes.contains("only times are recorded"), "{notes}");
    assert!(notes.contains("-e page-faults,task-clock") || notes.contains("EPERM"), "{notes}");
    let thread = &report["threads"][0];
    let used = &thread["usage"];
    let number = |name: &str| used[name].as_f64().unwrap_or_else(|| panic!("{name}: {used}"));
    let faults = number("minor_faults");
    assert!((5_000.0..5_100.0).contains(&faults), "{used}");
    assert!(number("cpu_ns") > 0.0 && number("of_ns") > 0.0, "{used}");
    assert!(number("of_ns") >= thread["dispatch_ns"].as_f64().unwrap(), "{thread}");
    // The process has only this thread, so the process has used as much as the thread.
    assert_eq!(report["processes"][0]["usage"], *used);
    assert!(text.contains("minor faults") && text.contains("voluntary switches"), "{text}");
    assert!(text.contains("in 1 thread since its first call"), "{text}");
    assert_eq!(report["probe"]["switches_ns"], 0.0);
    let manifest = std::fs::read_to_string(directory.join("p.cpt/manifest.json")).unwrap();
    assert!(!manifest.contains("switch_cost"), "{manifest}");
}

#[test]
fn every_part_of_the_cost_is_reported() {
    let Some(program) = counterpoint("price") else { return };
    let recorded = Recorded::run(&program, "task-clock:u", &mut host("threads 2 20000"));
    let report = recorded.report(&[]);
    let probe = &report["probe"];
    for part in ["probes_ns", "switches_ns", "flush_ns", "attach_ns", "cpu_ns"] {
        assert!(probe[part].as_f64().is_some(), "{part}: {probe}");
    }
    let parts = probe["parts"].as_object().unwrap();
    for (end, total) in [("value", "total_ns"), ("low", ""), ("high", "")] {
        let sum: f64 = parts.values().filter_map(|part| part[end].as_f64()).sum();
        let total = if total.is_empty() { &probe["total"][end] } else { &probe[total] };
        assert!((total.as_f64().unwrap() - sum).abs() < 1.0, "{end}: {probe}");
    }
    assert_eq!(parts["way"], Value::Null, "no virtual machine");
    for part in ["probes", "after_readings", "switches", "flush", "attach", "start"] {
        let part = &parts[part];
        let [low, value, high] = ["low", "value", "high"].map(|end| part[end].as_f64().unwrap());
        assert!(0.0 <= low && low <= value && value <= high, "{part}");
    }
    assert_eq!(probe["of_program"]["value"], probe["slowdown"]);
    assert!(probe["run_cpu_ns"].as_f64().unwrap() > 0.0, "{probe}");
    // The calls do nothing, so recording them costs much more than 5 % of the program's processor
    // time. Above 5 %, the report suggests a budget.
    let text = Command::new(&program).arg("report").arg(recorded.path()).output().unwrap();
    let text = String::from_utf8(text.stdout).unwrap();
    let head = text.split("\n\n").next().unwrap();
    let line = head.lines().position(|line| line.starts_with("price     recording took ")).unwrap();
    let rest = head.lines().skip(line).take(3).collect::<Vec<_>>().join(" ");
    assert!(rest.contains("--budget 2%"), "{head}");
    let manifest: Value =
        serde_json::from_slice(&std::fs::read(recorded.path().join("manifest.json")).unwrap())
            .unwrap();
    assert!(manifest["switch_cost"]["bare_ns"].as_f64().unwrap() > 0.0, "{manifest}");
    let empty = &report["processes"][0]["probe"]["empty_call"];
    let median = empty["counters"][0].as_f64().unwrap();
    let range = &empty["counter_ranges"][0];
    assert!(range[0].as_f64().unwrap() <= median && median <= range[1].as_f64().unwrap());
    // The calls do nothing, so their CPU time is mostly that of recording them.
    let row = &report["rows"][0];
    assert!(row["counters"][0]["empty_share"].as_f64().unwrap() > 0.5, "{row}");
    let rest = &row["counters"][0]["intervals"]["per_call"];
    assert!(rest["low"].as_f64().unwrap() <= rest["value"].as_f64().unwrap(), "{rest}");
    assert!(report["profile"]["clock"]["steps_ns"]["typical"].as_f64().unwrap() > 0.0, "{report}");
    let busy = row["metrics"].as_array().unwrap();
    let busy =
        busy.iter().find(|m| m["name"] == "cpu-utilisation:u" || m["name"] == "cpu-utilisation");
    let busy = busy.unwrap();
    assert_eq!(busy["value"], Value::Null, "{busy}");
    assert!(busy["reason"].as_str().unwrap().contains("is what an empty call reads"), "{busy}");
    let mut raw = Command::new(&program);
    let text = raw.arg("report").arg(recorded.path()).arg("--raw").output().unwrap();
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(text.contains("≈ mostly counted by the probe itself"), "{text}");
    assert!(text.contains("– cpu-utilisation is left out of 1 row"), "{text}");
}

#[test]
fn a_process_that_dies() {
    let Some(program) = counterpoint("price after a crash") else { return };
    let recorded = Recorded::run(&program, "none", &mut host("abort 100"));
    let report = recorded.report(&[]);
    assert!(report["total"]["calls"].as_u64().unwrap() > 0, "{report}");
    assert_eq!(report["threads"][0]["usage"], Value::Null);
    // The records of 100,000 calls fill several pages (blocks of records). Each page begins with
    // the thread's usage so far, so the usage before the last page is known.
    let recorded = Recorded::run(&program, "none", &mut host("abort 100000"));
    let report = recorded.report(&[]);
    let thread = &report["threads"][0];
    let of = thread["usage"]["of_ns"].as_f64().unwrap();
    assert!(of > 0.0 && of < thread["wall_ns"].as_f64().unwrap(), "{thread}");
}

/// Counterpoint times some of its brackets (the readings around a call), both around real and
/// around empty calls. The time that a hook reports for loading its code is a part of the cost of
/// the program's start.
#[test]
fn brackets_are_timed_and_what_others_used_is_counted() {
    let Some(program) = counterpoint("timed brackets") else { return };
    let recorded = Recorded::run(&program, "none", &mut host("spent 20000 5000"));
    let profile = profile::Profile::open(&recorded.path()).unwrap();
    let process = &profile.processes[0];
    let of = |rehearsed| process.brackets.iter().filter(move |b| b.rehearsed == rehearsed);
    let (real, empty) = (of(false).next_back().unwrap(), of(true).next_back().unwrap());
    for (before, after, least, most) in
        [(&empty.before, &empty.after, 64, 64), (&real.before, &real.after, 100, 20_000 / 32)]
    {
        for half in [before, after] {
            assert!((least..=most).contains(&half.count()), "{}", half.count());
        }
    }
    let cost = process.cost.unwrap();
    // The program reported that loading took 5,000 ms, as the hook of Python programs reports it.
    assert!(cost.loading_ns > 5_000_000_000 && cost.loading_ns < 6_000_000_000, "{cost:?}");
    assert!(cost.constructor_ns > 0 && cost.process_cpu_ns > 0, "{cost:?}");
    let start = &recorded.report(&[])["probe"]["parts"]["start"];
    assert!(start["low"].as_f64().unwrap() > 5e9, "{start}");
}
