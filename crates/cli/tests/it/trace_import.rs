//! Tests `counterpoint trace import` with the command lines that a user types.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use testkit::{CallScript, ProfileScript, Random};

fn cli() -> Command {
    Command::new(env!("CARGO_BIN_EXE_counterpoint"))
}

/// A trace that Counterpoint wrote contains less than the profile from which it was exported. So
/// the import of such a trace is refused, even if another program has written it again.
#[test]
fn traces_of_counterpoint_are_refused() {
    let scratch = testkit::Scratch::new();
    let at = |name: &str| scratch.path().join(name);
    let mut script = ProfileScript::monotonic();
    let process = script.process(100);
    process.library("m", &["f"]);
    process.thread("main").call(CallScript::new(0, 1_000, 50));
    for (name, rank) in [("a.cpt", 0), ("b.cpt", 1)] {
        script.manifest.rank = Some(rank);
        script.write(&at(name));
    }
    let run = |words: &[&str]| cli().current_dir(scratch.path()).args(words).output().unwrap();
    let done = |words: &[&str]| {
        let output = run(words);
        assert!(output.status.success(), "{words:?}: {output:?}");
    };
    done(&["merge", "a.cpt", "b.cpt", "-o", "ranks.cpt"]);
    done(&["trace", "export", "a.cpt", "-o", "a.json"]);
    done(&["trace", "export", "a.cpt", "-o", "a.json.gz"]);
    done(&["trace", "export", "a.cpt", "-o", "a.pftrace"]);
    done(&["trace", "export", "a.cpt", "-o", "part.json", "--from", "0ns"]);
    done(&["trace", "export", "ranks.cpt", "-o", "ranks.json"]);
    done(&["trace", "export", "b.cpt", "-o", "b.json"]);
    done(&["trace", "merge", "a.json", "b.json", "-o", "merged.json"]);
    done(&["trace", "merge", "a.json", "b.json", "-o", "merged.pftrace"]);
    let mut again: Value = serde_json::from_slice(&std::fs::read(at("a.json")).unwrap()).unwrap();
    again["traceEvents"].as_array_mut().unwrap().truncate(1);
    std::fs::write(at("changed.json"), again.to_string()).unwrap();
    std::fs::write(at("foreign.json"), r#"{"traceEvents":[]}"#).unwrap();
    done(&["trace", "import", "foreign.json", "-o", "new.cpt"]);
    let before = std::fs::read(at("new.cpt/manifest.json")).unwrap();
    let names = ["a.json", "a.json.gz", "a.pftrace", "part.json", "ranks.json", "changed.json"];
    for name in names.into_iter().chain(["merged.json", "merged.pftrace"]) {
        for files in [&[name][..], &["foreign.json", name]] {
            let output = run(&[&["trace", "import", "-o", "new.cpt"], files].concat());
            assert_eq!(output.status.code(), Some(2), "{files:?}: {output:?}");
            let said = String::from_utf8(output.stderr).unwrap();
            assert!(said.contains(&format!("read {name}: byte ")), "{said}");
            assert!(said.contains("Counterpoint wrote this trace"), "{said}");
            assert!(said.contains("counterpoint merge A.cpt B.cpt"), "{said}");
            assert_eq!(std::fs::read(at("new.cpt/manifest.json")).unwrap(), before);
        }
    }
    let left = std::fs::read_dir(scratch.path()).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(left.into_iter().all(|name| !name.to_string_lossy().starts_with('.')));
    // `new.cpt` was imported from another program's trace, so a trace that is exported from it can
    // be imported again.
    done(&["trace", "export", "new.cpt", "-o", "part.json", "--from", "0ns"]);
    done(&["trace", "import", "part.json", "-o", "again.cpt"]);
}

#[test]
fn a_trace_becomes_a_profile() {
    let scratch = testkit::Scratch::new();
    let at = |name: &str| scratch.path().join(name);
    let event = |name: &str, ts: f64| json!({"ph": "X", "cat": "cpu_op", "name": name, "pid": 5, "tid": 6, "ts": ts, "dur": 1.5});
    let trace = json!({"traceEvents": [event("a", 1.0), event("b", 3.0), event("a", 5.0)]});
    std::fs::write(at("t.json"), trace.to_string()).unwrap();
    let output = at("p.cpt");
    let import = |file: &str| {
        cli().args(["trace", "import"]).arg(at(file)).arg("-o").arg(&output).output().unwrap()
    };
    let done = import("t.json");
    assert!(done.status.success(), "{done:?}");
    assert!(
        String::from_utf8_lossy(&done.stderr).contains("3 events, including 3 calls, in"),
        "{done:?}"
    );

    let report = cli().arg("report").arg(&output).args(["--format", "json"]).output().unwrap();
    let report: Value = serde_json::from_slice(&report.stdout).unwrap();
    let rows: Vec<_> = report["rows"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| (row["op"].clone(), row["calls"].clone(), row["total_ns"].clone()))
        .collect();
    assert_eq!(
        rows,
        [(json!("a"), json!(2), json!(3000.0)), (json!("b"), json!(1), json!(1500.0))]
    );

    // If an import fails, the earlier profile is kept.
    std::fs::write(at("bad.json"), r#"{"traceEvents":[{"name":"a"b"}]}"#).unwrap();
    let bad = import("bad.json");
    assert_eq!(bad.status.code(), Some(2));
    let said = String::from_utf8_lossy(&bad.stderr).into_owned();
    assert!(said.contains("bad.json: byte 27: not JSON"), "{said}");
    assert!(output.exists() && !at("p.cpt.old").exists());

    // The import refuses a trace with a value that is nested 200 levels deep.
    let deep = format!(r#"{{"traceEvents":[],"z":{}1{}}}"#, "[".repeat(200), "]".repeat(200));
    std::fs::write(at("deep.json"), deep).unwrap();
    let deep = import("deep.json");
    assert_eq!(deep.status.code(), Some(2));
    let said = String::from_utf8_lossy(&deep.stderr).into_owned();
    assert!(said.contains("deep.json: byte 22: z: recursion limit exceeded"), "{said}");

    let none = import("none.json");
    assert_eq!(none.status.code(), Some(2));
    assert!(output.exists());
}

/// The report's sums must equal those of PyTorch, for traces of two versions of PyTorch.
#[test]
fn our_sums_equal_torchs() {
    crate::support::torch("torchs_sums").as_deref().into_iter().for_each(compare_sums);
    crate::support::torch_212("torchs_sums").as_deref().into_iter().for_each(compare_sums);
}

fn compare_sums(python: &Path) {
    let scratch = testkit::Scratch::new();
    let [trace, sums, profile] =
        ["t.json", "sums.json", "p.cpt"].map(|name| scratch.path().join(name));
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/support/torch_sums.py");
    let torch = Command::new(python).arg(script).args([&trace, &sums]).output().unwrap();
    assert!(torch.status.success(), "{torch:?}");
    let done = cli().args(["trace", "import"]).arg(&trace).arg("-o").arg(&profile).status();
    assert!(done.unwrap().success());
    let report = cli().arg("report").arg(&profile).args(["--format", "json"]).output().unwrap();
    let report: Value = serde_json::from_slice(&report.stdout).unwrap();
    // torch counts all slices with one name as one op, even if their categories differ.
    let mut ours = BTreeMap::<&str, (u64, f64, f64)>::new();
    for row in report["rows"].as_array().unwrap() {
        // Kineto also writes a slice for the whole trace, and this slice is not an op.
        if row["role"] == "bookkeeping" {
            continue;
        }
        let sum = ours.entry(row["op"].as_str().unwrap()).or_default();
        sum.0 += row["calls"].as_u64().unwrap();
        sum.1 += row["total_ns"].as_f64().unwrap();
        sum.2 += row["self_ns"].as_f64().unwrap();
    }
    let theirs: BTreeMap<String, (u64, f64, f64)> =
        serde_json::from_slice(&std::fs::read(sums).unwrap()).unwrap();
    assert!(theirs.len() > 30, "{theirs:?}");
    for (op, (calls, total_us, self_us)) in &theirs {
        let (our_calls, our_ns, our_self_ns) = ours[op.as_str()];
        assert_eq!(our_calls, *calls, "{op}");
        // PyTorch adds up fractions of µs, and we add up times that were rounded to ns.
        let off = (our_ns - total_us * 1e3).abs();
        assert!(off < *calls as f64, "{op}: {our_ns} ns, torch says {total_us} µs");
        // The self time is computed from the times of the call and of the calls in it, each of
        // which was rounded to ns.
        let off = (our_self_ns - self_us * 1e3).abs();
        assert!(off < 4.0 * *calls as f64, "{op}: {our_self_ns} ns, torch says {self_us} µs");
    }
}

/// Adds random nested slices. Some of them are equal to the slice around them, and some are empty.
fn nest(
    draw: &mut impl FnMut(u64) -> u64,
    (begin, end): (u64, u64),
    depth: u32,
    row: u64,
    into: &mut Vec<Value>,
) {
    let mut at = begin;
    while at < end {
        let from = (at + draw((end - at) / 4 + 2)).min(end);
        let to = from + draw(end - from + 1);
        let us = |ns: u64| ns as f64 / 1000.0;
        let name = format!("op {}", draw(20));
        into.push(json!({"ph": "X", "name": name, "pid": 1 + row % 2, "tid": row, "ts": us(from), "dur": us(to - from)}));
        if depth < 12 && to > from && draw(8) > 0 {
            let place = if draw(10) == 0 { (from, to) } else { (from, from + draw(to - from + 1)) };
            nest(draw, place, depth + 1, row, into);
        }
        at = to + 1;
    }
}

/// The expected times are those of a script that builds a tree from the JSON.
#[test]
fn self_times_of_random_nests() {
    let Some(python) = testkit::python::with("self_times", "json") else { return };
    let scratch = testkit::Scratch::new();
    let [trace, profile] = ["t.json", "p.cpt"].map(|name| scratch.path().join(name));
    let mut state = Random(88_172_645_463_325_252);
    let mut draw = move |end: u64| {
        let state = state.next();
        state % end
    };
    // Events are in the order of their begins, in the reverse order, or in a random order.
    for order in 0..3 {
        let mut events = Vec::new();
        for row in 0..3 {
            let mut begin = 1_000;
            while events.len() < 10_000 * (row + 1) {
                nest(&mut draw, (begin, begin + 9_000), 0, row as u64, &mut events);
                begin += 10_000;
            }
        }
        match order {
            0 => {}
            1 => events.reverse(),
            _ => {
                for i in (1..events.len()).rev() {
                    events.swap(i, draw(i as u64 + 1) as usize);
                }
            }
        }
        std::fs::write(&trace, json!({ "traceEvents": events }).to_string()).unwrap();
        let done = cli().args(["trace", "import"]).arg(&trace).arg("-o").arg(&profile).status();
        assert!(done.unwrap().success());
        let report = cli().arg("report").arg(&profile).args(["--format", "json"]).output().unwrap();
        let report: Value = serde_json::from_slice(&report.stdout).unwrap();
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/support/self_times.py");
        let tree = Command::new(&python).arg(script).arg(&trace).output().unwrap();
        assert!(tree.status.success(), "{tree:?}");
        let tree: BTreeMap<String, (u64, f64, f64)> = serde_json::from_slice(&tree.stdout).unwrap();
        let rows = report["rows"].as_array().unwrap();
        let ours = rows.iter().map(|row| {
            let number = |key: &str| row[key].as_f64().unwrap();
            let sums = (row["calls"].as_u64().unwrap(), number("total_ns"), number("self_ns"));
            (row["op"].as_str().unwrap().to_owned(), sums)
        });
        assert_eq!(ours.collect::<BTreeMap<_, _>>(), tree, "order {order}");
        let shares: f64 = rows.iter().map(|row| row["share"].as_f64().unwrap()).sum();
        assert!((shares - 1.0).abs() < 1e-9, "{shares}");
        let total = &report["total"];
        assert_eq!(total["self_ns"], total["duration_ns"]);
        assert_eq!(total["overlapping_calls"], 0);
        let busy: f64 = report["threads"]
            .as_array()
            .unwrap()
            .iter()
            .map(|t| t["dispatch_ns"].as_f64().unwrap())
            .sum();
        assert_eq!(Some(busy), total["self_ns"].as_f64());
    }
}
