//! docs/account.md: a slow program in Python computes the numbers of a report from an export, and the
//! report has the same.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use profile::Calibration;
use record::meta::FIRST_PLUGIN_GENERATION;
use serde_json::Value;
use testkit::{CallScript, Item, ProfileScript, Random, Scratch};

use crate::support::python_with;

const PROGRAM: &str = env!("CARGO_BIN_EXE_counterpoint");

/// Adds nested and recursive calls, some of them too short for the brackets inside of them.
fn nest(r: &mut Random, begin: u64, end: u64, depth: u32, into: &mut Vec<CallScript>) {
    let mut at = begin;
    while at < end && r.below(6) > 0 {
        let from = at + r.below((end - at).min(300));
        let to = from + 1 + r.below(end - from);
        if depth < 5 {
            nest(r, from, to, depth + 1, into);
        }
        let call = CallScript::new(r.below(4) as u32, from, to - from).on(r.below(2) as u32, 0);
        into.push(match r.below(3) {
            0 => call.unread(),
            _ => call.group(to - from, &[r.below(9)]),
        });
        at = to + r.below(50);
    }
}

pub fn script(r: &mut Random) -> ProfileScript {
    let mut script = ProfileScript::monotonic();
    script.counter("page-faults", 0);
    for pid in 0..1 + r.below(2) as u32 {
        let process = script.process(100 + pid);
        process.library("m", &["a", "b", "c", "d"]);
        for (mask, whole) in [(1, 90 + r.below(50)), (0, 31)] {
            process.calibrations.push(Calibration {
                calls: 9,
                counters: mask,
                inside_ticks: 17 + u64::from(mask),
                total_ticks: whole,
                inside_values: vec![0; mask as usize],
                ..Calibration::default()
            });
        }
        for number in 0..1 + r.below(3) as u32 {
            let thread = process.thread(&format!("t{number}"));
            thread.tid = 1_000 * pid + number + 1;
            let mut calls = Vec::new();
            nest(r, 1_000, 9_000, 0, &mut calls);
            for call in calls {
                let end = call.call.end;
                thread.call(call);
                match r.below(18) {
                    0 | 1 => _ = thread.then(Item::NextPage(end, 0, end)),
                    // The page was lost: there is a gap, and calls inside may be without those around.
                    2 => _ = thread.then(Item::LostPage(end, 0, end)),
                    _ => (),
                }
            }
        }
    }
    other_source(r, &mut script);
    // Killed: nobody wrote down how it ended.
    if r.below(4) == 0 {
        script.manifest.state = profile::State::Recording;
    }
    script
}

/// Adds what the host's own profiler saw of some threads: functions around some of their calls.
fn other_source(r: &mut Random, script: &mut ProfileScript) {
    for index in 0..script.processes.len() {
        if r.below(3) > 0 {
            continue;
        }
        let live = &script.processes[index];
        let (pid, start_time) = (live.pid, live.start_time);
        let threads: Vec<(u32, Vec<(u64, u64)>)> = live
            .threads
            .iter()
            .map(|thread| {
                // No call is longer than 8,000, or outside of these.
                let middle = 1_000 + r.below(7_000);
                let around = vec![(900 - r.below(100), 9_100 + r.below(100))];
                let inside = |end: u64| calls_before(thread, end);
                let end = inside(middle);
                (thread.tid, around.into_iter().chain(end.map(|end| (950, end))).collect())
            })
            .collect();
        let events = script.process(pid);
        (events.start_time, events.generation) = (start_time, FIRST_PLUGIN_GENERATION);
        events.library("python", &["f", "g"]);
        for (tid, calls) in threads {
            let thread = events.thread("t");
            thread.tid = tid;
            for (op, (begin, end)) in calls.into_iter().enumerate() {
                thread.call(CallScript::new(op as u32, begin, end - begin));
            }
        }
    }
}

/// A moment before `end` at which none of the thread's calls runs, but some have ended.
fn calls_before(thread: &testkit::ThreadScript, end: u64) -> Option<u64> {
    let calls = || {
        thread.items.iter().filter_map(|item| match item {
            Item::Call(call) => Some((call.call.start, call.call.end)),
            _ => None,
        })
    };
    let is_free = |at: u64| calls().all(|(from, to)| at < from || to < at);
    (1_001..end).rev().find(|at| is_free(*at) && calls().any(|(_, to)| to < *at))
}

fn json(command: &mut Command) -> Value {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn same(what: &str, found: &Value, expected: &Value) {
    let (a, b) = (found.as_f64().unwrap_or(0.0), expected.as_f64().unwrap_or(0.0));
    assert!((a - b).abs() <= 1e-9 * b.abs().max(1.0), "{what}: {found}, numpy {expected}");
}

fn compare(number: u64, profile: &Path, expected: &Value, raw: bool) -> usize {
    let mut compared = 0;
    for (by, key) in [("op", "op"), ("thread", "tid"), ("cpu", "cpu"), ("process", "pid")] {
        let mut report = Command::new(PROGRAM);
        report.arg("report").arg(profile).args(["--by", by, "--format", "json"]);
        let report = json(report.args(raw.then_some("--raw")));
        let contradicted = report["losses"].as_array().unwrap().iter();
        if contradicted.clone().any(|loss| loss["name"] == "inconsistent") {
            continue; // The values are those with --raw.
        }
        let rows = report["rows"].as_array().unwrap();
        assert_eq!(rows.len(), expected[by].as_object().unwrap().len());
        for row in rows {
            let name = match &row[key] {
                Value::String(name) => name.clone(),
                number => number.to_string(),
            };
            let expected = &expected[by][&name];
            let numbers = [("threads", "threads"), ("cpus", "cpus")];
            for (found, expected) in numbers.map(|(name, of)| (row[name].as_array(), &expected[of]))
            {
                assert_eq!(found.map(Vec::len), expected.as_u64().map(|n| n as usize), "{row}");
            }
            for value in [
                "calls",
                "inner_calls",
                "dispatches",
                "share",
                "total_ns",
                "self_ns",
                "mean_ns",
                "min_ns",
                "p50_ns",
                "p99_ns",
                "max_ns",
            ] {
                same(
                    &format!("profile {number} by {by}: {name}: {value}"),
                    &row[value],
                    &expected[value],
                );
                compared += 1;
            }
            let faults = &expected["counters"]["page-faults"];
            let found = &row["counters"][0];
            same(&format!("profile {number} by {by}: {name}: faults"), &found["total"], faults);
            let with = &expected["with"]["page-faults"];
            same(&format!("profile {number} by {by}: {name}: with faults"), &found["calls"], with);
        }
    }
    compared
}

/// How many random profiles are compared, and the number of the first one.
fn random_profiles() -> (u64, u64) {
    let number = |name: &str| std::env::var(name).ok().and_then(|number| number.parse().ok());
    let profiles = number("COUNTERPOINT_PROFILES").unwrap_or(100);
    (profiles, number("COUNTERPOINT_SEED").unwrap_or(0))
}

/// `COUNTERPOINT_PROFILES=1000` compares a thousand. Each depends on its number only, so that
/// `COUNTERPOINT_SEED=NUMBER COUNTERPOINT_PROFILES=1` repeats one.
#[test]
fn a_slow_program_computes_the_same_numbers() {
    let Some(python) = python_with("account", "numpy") else { return };
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/account.py");
    let (profiles, first) = random_profiles();
    let scratch = Scratch::new();
    let (mut compared, mut numbers) = (0, first..first + profiles);
    loop {
        // One process of Python computes many of them.
        let some: Vec<u64> = numbers.by_ref().take(50).collect();
        if some.is_empty() {
            break;
        }
        let mut slow = Command::new(&python);
        slow.arg(program).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut arguments = String::new();
        for number in &some {
            let dir = scratch.join(&format!("{number}.cpt"));
            script(&mut Random(0x5eed_0f26 + 0x9e37_79b9 * (number + 1))).write(&dir);
            let calls = scratch.join(&format!("{number}.json"));
            let mut export = Command::new(PROGRAM);
            export.arg("export").arg(&dir).args(["--format", "json", "-o"]).arg(&calls);
            assert!(export.output().unwrap().status.success(), "{number}");
            slow.arg(&calls);
            arguments.push_str(if number % 4 == 3 { "raw\n" } else { "\n" });
        }
        let mut slow = slow.spawn().unwrap();
        slow.stdin.take().unwrap().write_all(arguments.as_bytes()).unwrap();
        let output = slow.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let lines = String::from_utf8(output.stdout).unwrap();
        assert_eq!(lines.lines().count(), some.len());
        for (number, line) in some.iter().zip(lines.lines()) {
            let dir = scratch.join(&format!("{number}.cpt"));
            let expected = serde_json::from_str(line).unwrap();
            compared += compare(*number, &dir, &expected, number % 4 == 3);
            std::fs::remove_dir_all(&dir).unwrap();
        }
    }
    assert!(compared as u64 > 30 * profiles, "{compared}");
}

fn view(args: &[&str], dir: &Path) -> String {
    let output = Command::new(PROGRAM).args(args).arg(dir).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn json_view(args: &[&str], dir: &Path) -> Value {
    serde_json::from_str(&view(&[args, &["--format", "json"]].concat(), dir)).unwrap()
}

/// Compares what `stats` and `report` say about each op. Returns the number of calls inside of others.
fn compare_stats(dir: &Path, more: &[&str]) -> u64 {
    let report = json_view(&[&["report"], more].concat(), dir);
    let stats = json_view(&[&["stats", "--no-table"], more].concat(), dir);
    let losses = |view: &Value| view["losses"].to_string();
    assert_eq!(losses(&report).contains("inconsistent"), losses(&stats).contains("inconsistent"));
    let rows = report["rows"].as_array().unwrap();
    assert_eq!(rows.len(), stats["ops"].as_array().unwrap().len());
    for row in rows {
        let ops = stats["ops"].as_array().unwrap();
        let op = ops.iter().find(|op| op["op_id"] == row["op_id"]).unwrap();
        let name = row["op"].as_str().unwrap();
        let all = &op["all"];
        same(&format!("{name}: total"), &op["total_ns"], &row["total_ns"]);
        for count in ["calls", "inner_calls"] {
            assert_eq!(all[count], row[count], "{name}: {count}");
        }
        let duration = &all["variables"][0];
        for value in ["mean", "min", "max"] {
            same(&format!("{name}: {value}"), &duration[value], &row[format!("{value}_ns")]);
        }
        let counters = row["counters"].as_array().unwrap().iter();
        for (counter, variable) in counters.zip(&all["variables"].as_array().unwrap()[1..]) {
            assert_eq!(counter["calls"], variable["calls"], "{name}");
            same(&format!("{name}: a counter"), &variable["mean"], &counter["per_call"]);
        }
        // Of two buckets, the means are those of the lower and of the upper half of the calls.
        let low = all["variables"][0]["bucket_means"][0].as_f64();
        assert!(low.is_none_or(|low| low <= row["p50_ns"].as_f64().unwrap() + 1e-6), "{name}");
    }
    rows.iter().map(|row| row["inner_calls"].as_u64().unwrap_or(0)).sum()
}

/// `stats` describes the same calls as `report`, and says the same of them.
#[test]
fn stats_has_the_numbers_of_report() {
    let mut r = Random(0x5eed_57a7);
    let (mut inner, mut contradicted) = (0, 0);
    for round in 0..12 {
        let scratch = Scratch::new();
        let dir = scratch.join("x.cpt");
        script(&mut r).write(&dir);
        let more: &[&str] = if round % 4 == 3 { &["--raw"] } else { &[] };
        inner += compare_stats(&dir, more);
        contradicted +=
            usize::from(view(&["report", "--format", "json"], &dir).contains("inconsis"));
    }
    assert!(inner > 50 && contradicted > 0 && contradicted < 12, "{inner} {contradicted}");
}

/// The value after a label in a text, as it is printed.
fn printed<'a>(text: &'a str, label: &str) -> &'a str {
    let from = text.find(label).unwrap_or_else(|| panic!("{label} in {text}")) + label.len();
    text[from..].split_whitespace().next().unwrap()
}

/// `report`, `stats` and `ops` on ops inside of ops, in text and for programs.
#[test]
fn three_views_of_the_same_ops() {
    let scratch = Scratch::new();
    let dir = scratch.join("x.cpt");
    crate::ops::nested().write(&dir);
    assert!(compare_stats(&dir, &[]) > 0);
    let table = |command: &str| {
        let text = view(&[command, "--format", "csv"], &dir);
        let mut lines = text.lines().map(|line| line.split(',').map(str::to_owned).collect());
        let head: Vec<String> = lines.next().unwrap();
        let rows: Vec<Vec<String>> = lines.collect();
        move |op: &str, column: &str| {
            // Shapes contain commas, so columns are counted from the end.
            let back = head.len() - head.iter().position(|name| name == column).unwrap();
            let row = rows.iter().find(|row| row[0] == op).unwrap();
            row[row.len() - back].clone()
        }
    };
    let (report, ops) = (table("report"), table("ops"));
    for op in ["add", "sub"] {
        for column in ["calls", "inner_calls", "total_ns", "self_ns"] {
            assert_eq!(report(op, column), ops(op, column), "{op}: {column}");
        }
    }
    // The counts of `sub` in `ops` are without the ops inside of it.
    assert_eq!(report("add", "page-faults"), ops("add", "page-faults"));
    // Three calls of `sub`, of which one is inside of another one: 3,000 less what brackets took.
    assert_eq!((report("sub", "calls"), report("sub", "inner_calls")), ("1".into(), "1".into()));
    let stats = view(&["stats", "--no-table", "--op", "add"], &dir);
    let mean = printed(&stats, "    mean: ").to_owned();
    let text = view(&["report", "--width", "200", "--filter", "add"], &dir);
    let row = text.lines().find(|line| line.starts_with("add ")).unwrap();
    assert!(row.contains(&format!(" {mean} ns")), "{mean} in {row}");
}
