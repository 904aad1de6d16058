//! Tests `counterpoint trace export` with `--category`, `--from` and `--to`.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};
use testkit::{CallScript, ProfileScript, Scratch};

const PROGRAM: &str = env!("CARGO_BIN_EXE_counterpoint");

fn run(args: &[&str], paths: &[&Path]) -> Output {
    Command::new(PROGRAM).args(args).args(paths).output().unwrap()
}

/// Exports the profile with the options `more`, and returns the trace and the messages of the
/// export. Each arrow in the exported file must have both ends.
fn part(profile: &Path, scratch: &Scratch, more: &[&str]) -> (Value, String) {
    let file = scratch.join("part.json");
    let output = run(&[&["trace", "export"], more, &["-o"]].concat(), &[&file, profile]);
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{words}");
    let check = run(&["trace", "check"], &[&file]);
    assert!(check.status.success(), "{more:?}: {}", String::from_utf8_lossy(&check.stdout));
    (serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap(), words)
}

/// Returns phase (`ph`), category, name and time of each event, sorted by time. Metadata events,
/// such as the names of processes and threads, are left out.
fn events(trace: &Value) -> Vec<(String, String, String, f64)> {
    let all = trace["traceEvents"].as_array().unwrap().iter().filter(|e| e["ph"] != "M");
    let text = |e: &Value, key: &str| e[key].as_str().unwrap_or("").to_owned();
    let mut all: Vec<_> = all
        .map(|e| (text(e, "ph"), text(e, "cat"), text(e, "name"), e["ts"].as_f64().unwrap()))
        .collect();
    all.sort_by(|a, b| a.3.total_cmp(&b.3).then_with(|| (&a.0, &a.2).cmp(&(&b.0, &b.2))));
    all
}

fn recorded(scratch: &Scratch) -> PathBuf {
    let mut script = ProfileScript::monotonic();
    script.counter("page-faults", 0);
    let process = script.process(100);
    process.library("m", &["f", "g"]);
    let thread = process.thread("main");
    for i in 0..3u64 {
        let call = CallScript::new((i % 2) as u32, 1_000 * (i + 1), 100);
        thread.call(call.group(5, &[i]));
    }
    let dir = scratch.join("p.cpt");
    script.write(&dir);
    dir
}

#[test]
fn a_window_of_a_recording() {
    let scratch = Scratch::new();
    let profile = recorded(&scratch);
    // `--from` and `--to` count from the first call, which begins at 1,000 ns. So the window is
    // from 2,050 to 3,000 ns. The third call begins exactly at the end of the window, so it is left
    // out.
    let (trace, words) = part(&profile, &scratch, &["--from", "1.05us", "--to", "2us"]);
    let found = events(&trace);
    let kinds: Vec<_> =
        found.iter().map(|(ph, cat, name, _)| (&ph[..], &cat[..], &name[..])).collect();
    let expected = [
        ("C", "gpu_pm_counter", "main 100 counters"),
        ("X", "cpu_op", "g"),
        ("X", "kernel", "g"),
        ("f", "ac2g", "ac2g"),
        ("s", "ac2g", "ac2g"),
    ];
    assert_eq!(kinds, expected);
    // The window leaves out two arrows, which have four ends.
    assert!(words.contains("4 slices, 2 values of counters, 4 ends of arrows"), "{words}");
    let start = 1_700_000_000_000_000_000i64 + 1_000;
    let filter = json!({"categories": [], "from_ns": start + 1_050, "to_ns": start + 2_000});
    assert_eq!(trace["counterpoint"]["filter"], filter);
    assert_eq!(trace["counterpoint"]["schema"], "counterpoint.trace/1");
    let left_out = json!({"slices": 4, "points": 2, "arrow_ends": 4});
    assert_eq!(trace["counterpoint_end"]["left_out"], left_out);
}

#[test]
fn categories_of_a_recording() {
    let scratch = Scratch::new();
    let profile = recorded(&scratch);
    let forms = |more: &[&str]| {
        let (trace, _) = part(&profile, &scratch, more);
        let mut all: Vec<_> =
            events(&trace).into_iter().map(|(ph, cat, ..)| ph + " " + &cat).collect();
        all.sort();
        all.dedup_by(|a, b| a == b);
        all
    };
    // If one end of an arrow is left out, the other end is left out, too.
    assert_eq!(forms(&["--category", "kernel"]), ["X kernel"]);
    let both = ["--category", "kern*", "--category", "cpu_o?"];
    assert_eq!(forms(&both), ["X cpu_op", "X kernel", "f ac2g", "s ac2g"]);
    assert_eq!(forms(&["--category", "gpu_pm_counter"]), ["C gpu_pm_counter"]);
    assert_eq!(forms(&["--vocabulary", "generic", "--category", "workgroup"]), ["X workgroup"]);
    assert_eq!(forms(&["--category", "no such"]), Vec::<String>::new());
}

#[test]
fn a_part_of_an_imported_trace() {
    let slice = |cat: &str, name: &str, tid: u32, ts: f64, dur: f64| json!({"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": tid, "ts": ts, "dur": dur});
    let at = |ph: &str, cat: &str, name: &str, tid: u32, ts: f64, id: u32| json!({"ph": ph, "cat": cat, "name": name, "pid": 1, "tid": tid, "ts": ts, "id": id});
    let counter = |ts: f64, value: u32| json!({"ph": "C", "cat": "c", "name": "memory", "pid": 1, "tid": 0, "ts": ts, "args": {"bytes": value}});
    let trace = json!({"baseTimeNanoseconds": 1_790_857_026_000_000_000i64, "traceEvents": [
        {"ph": "M", "name": "thread_name", "pid": 1, "tid": 2, "args": {"name": "main"}},
        slice("cpu_op", "early", 2, 100.0, 10.0),
        at("s", "ac2g", "ac2g", 2, 100.0, 1),
        slice("kernel", "of early", 7, 205.0, 10.0),
        at("f", "ac2g", "ac2g", 7, 205.0, 1),
        slice("cpu_op", "reaches in", 2, 150.0, 100.0),
        slice("cuda_runtime", "launch", 2, 201.0, 1.0),
        at("s", "ac2g", "ac2g", 2, 201.0, 2),
        slice("kernel", "inside", 7, 220.0, 5.0),
        at("f", "ac2g", "ac2g", 7, 220.0, 2),
        at("B", "cpu_op", "half", 3, 120.0, 0),
        at("E", "", "", 3, 201.0, 0),
        at("B", "cpu_op", "gone", 3, 202.0, 0),
        at("E", "", "", 3, 203.0, 0),
        at("i", "cpu_op", "moment", 2, 199.0, 0),
        at("i", "cpu_op", "moment in it", 2, 200.0, 0),
        at("b", "async", "async", 2, 120.0, 5),
        at("e", "async", "async", 2, 500.0, 5),
        counter(110.0, 1), counter(190.0, 2), counter(130.0, 3), counter(250.0, 4), counter(400.0, 5),
        slice("kernel", "late", 7, 300.0, 10.0),
    ]});
    let scratch = Scratch::new();
    let (file, profile) = (scratch.join("t.json"), scratch.join("t.cpt"));
    std::fs::write(&file, trace.to_string()).unwrap();
    assert!(run(&["trace", "import", "-o"], &[&profile, &file]).status.success());
    let named = |trace: &Value| {
        let all = events(trace).into_iter().map(|(ph, _, name, ts)| format!("{ph} {name} {ts}"));
        all.collect::<Vec<_>>()
    };
    let base = "--from 100us --to 200us";
    let window: Vec<&str> = base.split(' ').collect();
    // `--from` and `--to` count from the first event, which is at 100 µs. So the window is from 200
    // to 300 µs.
    let (kept, words) = part(&profile, &scratch, &window);
    let expected = [
        "B half 120",
        "b async 120",
        "X reaches in 150",
        "C memory 200",
        "i moment in it 200",
        "E  201",
        "X launch 201",
        "s ac2g 201",
        "B gone 202",
        "E  203",
        "X of early 205",
        "X inside 220",
        "f ac2g 220",
        "C memory 250",
        "e async 500",
    ];
    assert_eq!(named(&kept), expected);
    // At the start of the window, the counter has a point with the value of the last point before
    // the window.
    let points = kept["traceEvents"].as_array().unwrap().iter().filter(|e| e["ph"] == "C");
    assert_eq!(points.map(|e| e["args"]["bytes"].as_u64().unwrap()).collect::<Vec<_>>(), [2, 4]);
    assert!(words.contains("3 slices, 3 values of counters, 2 ends of arrows"), "{words}");
    assert!(kept["traceEvents"].to_string().contains("thread_name"));
    // `--category` uses the names that categories have in the output.
    let (kept, _) = part(
        &profile,
        &scratch,
        &["--vocabulary", "generic", "--category", "runtime", "--category", "kernel"],
    );
    let expected = [
        "X launch 201",
        "s ac2g 201",
        "X of early 205",
        "X inside 220",
        "f ac2g 220",
        "X late 300",
    ];
    assert_eq!(named(&kept), expected);
    let both = scratch.join("both.cpt");
    assert!(run(&["trace", "import", "-o"], &[&both, &file, &file]).status.success());
    let (kept, _) = part(&both, &scratch, &[&window[..], &["--category", "kernel"]].concat());
    assert_eq!(named(&kept).iter().filter(|name| name.contains("X inside")).count(), 2);
    assert_eq!(named(&kept).len(), 4);
}

#[test]
fn invalid_windows_are_reported() {
    let scratch = Scratch::new();
    let profile = recorded(&scratch);
    let file = scratch.join("x.json");
    for (more, expected) in [
        (&["--from", "5"][..], "add a unit to the time"),
        (&["--from=-5ms"], "not a number of ms of at least 0"),
        (&["--from", "xs"], "not a number of s of at least 0"),
        (&["--to", "1e300s"], "not a number of s"),
        (&["--from", "2ms", "--to", "2000us"], "must be before"),
    ] {
        let output = run(&[&["trace", "export"], more, &["-o"]].concat(), &[&file, &profile]);
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && words.contains(expected), "{more:?}: {words}");
        assert!(!file.exists());
    }
}
