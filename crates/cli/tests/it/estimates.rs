//! Tests how views mark numbers of calls that are estimates. They are estimates because the host
//! (such as PyTorch) announced its calls only in some steps of the program. In text, the mark is
//! `~`. JSON and CSV contain the ends of the confidence interval.

use std::path::Path;
use std::process::Command;

use record::counts::steps::{SampledCalls, Steps, ThreadSteps};
use serde_json::{Value, json};
use testkit::{CallScript, ProfileScript, Scratch};

const PROGRAM: &str = env!("CARGO_BIN_EXE_counterpoint");

/// There are two ops on one thread. `mm` was announced in 104 of 134 steps, and 40 of its calls
/// were counted. 100 of these 104 steps, each with the weight 1, are the sample for the estimate.
/// In the sample, `mm` was called 200 times: once in ten steps, 3 times in ten steps, and twice in
/// all others. So 30 · 2 additional calls are estimated for the 30 other steps:
///
/// ```text
///   c̅ = 2     m = n = 100     s² = 100/99 · (420/100 − 4) = 0.20202
///   V = s² · 30 · 130/100 + (3 · 30 · 2 / 196)² = 8.722
///   t(0.975; 99) = 1.98422     half of the interval: 5.86, so 100 calls are from 94.14 to 105.86
/// ```
///
/// `first` was called exactly 4 times, outside of steps.
fn script() -> ProfileScript {
    let mut script = ProfileScript::monotonic();
    script.budget(0.02);
    let process = script.process(4711);
    process.library("aten", &["mm", "first"]);
    let thread = process.thread("main");
    for at in 0..40 {
        thread.call(CallScript::new(0, 1_000 + 100 * at, 50).drawn(1, 1, 0));
    }
    for at in 0..4 {
        thread.call(CallScript::new(1, 10_000 + 100 * at, 70).drawn(1, 1, 0));
    }
    thread.counted(0, 100, 40, 0).counted(1, 4, 4, 0);
    let row = SampledCalls { export: 0, sum: 200, squares: 420, unseen: 60, in_cut: 0 };
    let steps = Steps {
        sampled: 100,
        weight: 100,
        squared_weight: 100,
        away: 30,
        steps: 134,
        ..Steps::default()
    };
    thread.steps = Some(ThreadSteps { steps, rows: vec![row] });
    script
}

fn run(args: &[&str]) -> String {
    let output = Command::new(PROGRAM).args(args).output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn json(args: &[&str]) -> Value {
    serde_json::from_str(&run(&[args, &["--format", "json"]].concat())).unwrap()
}

/// Returns the row that has a cell `name`, as pairs of column names and values.
fn row(csv: &str, name: &str) -> Vec<(String, String)> {
    let mut lines = csv.lines();
    let head = lines.next().unwrap().split(',');
    let line = lines.find(|line| line.split(',').any(|cell| cell == name)).unwrap();
    head.zip(line.split(',')).map(|(name, cell)| (name.to_owned(), cell.to_owned())).collect()
}

fn cell<'a>(row: &'a [(String, String)], name: &str) -> &'a str {
    let found = row.iter().find(|(of, _)| of == name);
    &found.unwrap_or_else(|| panic!("no {name} in {row:?}")).1
}

fn check_ends(calls: &Value) {
    assert_eq!(calls["value"], json!(100.0), "{calls}");
    let [low, high] = ["low", "high"].map(|end| calls[end].as_f64().unwrap());
    assert!((low - 94.14).abs() < 0.1 && (high - 105.86).abs() < 0.1, "{calls}");
}

#[test]
fn every_view_marks_estimated_calls() {
    let (scratch, dir) = script().written();
    let dir = dir.to_str().unwrap();
    for (view, mark) in [("report", "~100"), ("stats", "~100 calls, of which 40")] {
        let text = run(&[view, dir, "--width", "120"]);
        assert!(text.contains(mark) && !text.contains("~4 "), "{text}");
    }
    let report = json(&["report", dir]);
    let named = |document: &Value, list: &str, name: &str| {
        let mut all = document[list].as_array().unwrap().iter();
        all.find(|one| one["op"] == name).unwrap().clone()
    };
    check_ends(&named(&report, "rows", "mm")["sampled"]["estimated_calls"]);
    assert_eq!(named(&report, "rows", "first")["sampled"].get("estimated_calls"), None);
    let stats = named(&json(&["stats", dir]), "ops", "mm");
    check_ends(&stats["all"]["sampled"]["estimated_calls"]);
    check_ends(&stats["threads"][0]["sampled"]["estimated_calls"]);
    let ends = |row: &[(String, String)], name: &str| {
        ["low", "high"].map(|end| cell(row, &format!("{name}_{end}")).to_owned())
    };
    let within = ["94", "106"].map(str::to_owned);
    let csv = |words: &[&str]| run(&[words, &[dir, "--format", "csv"]].concat());
    assert_eq!(ends(&row(&csv(&["report"]), "mm"), "calls"), within);
    assert_eq!(ends(&row(&csv(&["stats"]), "mm"), "op_calls"), within);
    let counts = csv(&["export", "--what", "counts"]);
    assert_eq!(ends(&row(&counts, "mm"), "calls"), within);
    assert_eq!(ends(&row(&counts, "first"), "calls"), ["4", "4"].map(str::to_owned));
    let page = scratch.join("page.html");
    run(&["report", dir, "--html", page.to_str().unwrap()]);
    let page = std::fs::read_to_string(page).unwrap();
    let head: Value = serde_json::from_slice(&crate::page_data::block(&page, "head")).unwrap();
    assert!(head["about"].as_str().unwrap().starts_with("~104 calls"), "{}", head["about"]);
    assert!(head["tables"].to_string().contains("\"~100"), "{}", head["tables"]);
}

/// One of the two runs has estimates.
#[test]
fn diff_marks_them_and_finds_no_difference_in_them() {
    let (_a, a) = script().written();
    let mut exact = script();
    let thread = &mut exact.processes[0].threads[0];
    (thread.steps, thread.counted[0].calls) = (None, 101);
    let (_b, b) = exact.written();
    let words = ["diff", a.to_str().unwrap(), "--against", b.to_str().unwrap()];
    let found = json(&words);
    let rows = found["rows"].as_array().unwrap();
    let mm = rows.iter().find(|row| row["name"] == "mm").unwrap();
    check_ends(&mm["sides"][0]["estimated_calls"]);
    assert_eq!(mm["sides"][1].get("estimated_calls"), None);
    assert_eq!(mm["calls_differ"], false);
    assert_eq!(found["whole"]["estimated"], json!([true, true]));
    let text = run(&[&words[..], &["--width", "200"]].concat());
    assert!(text.contains("~100") && text.contains("estimates from the timed calls"), "{text}");
    let csv = run(&[&words[..], &["--format", "csv"]].concat());
    let mm = row(&csv, "mm");
    assert!(cell(&mm, "calls_a_low").starts_with("94."), "{mm:?}");
}

/// If a trace with estimates could be imported, its slices would be taken for all calls.
#[test]
fn traces_say_so_and_are_not_imported_as_exact() {
    let (scratch, dir) = script().written();
    for name in ["a.json", "a.pftrace"] {
        let trace = scratch.join(name);
        run(&["trace", "export", "-o", trace.to_str().unwrap(), dir.to_str().unwrap()]);
        if name == "a.json" {
            let text = std::fs::read_to_string(&trace).unwrap();
            assert!(text.contains("44 of ~104; of the others, some"), "{text}");
        }
        refused(&trace, &scratch.join("again.cpt"));
    }
}

fn refused(trace: &Path, to: &Path) {
    let output =
        Command::new(PROGRAM).args(["trace", "import", "-o"]).arg(to).arg(trace).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("Counterpoint wrote this trace"), "{said}");
}

/// For an exact number, both ends of the interval equal the number.
#[test]
fn datasets_have_the_ends() {
    let Some(python) = testkit::python::with("estimates in datasets", "pyarrow.parquet") else {
        return;
    };
    let (scratch, dir) = script().written();
    let data = scratch.join("data");
    let (dir, to) = (dir.to_str().unwrap(), data.to_str().unwrap());
    run(&["export", dir, "--rank", "0", "--dataset", to]);
    let code = "import sys, glob, pyarrow.parquet as p\n\
        for f in glob.glob(sys.argv[1] + '/stats/**/*.parquet', recursive=True):\n\
        \x20for r in p.read_table(f).to_pylist(): print(r['op'], r['calls'], r['calls_low'], r['calls_high'])";
    let output = Command::new(python).args(["-c", code]).arg(&data).output().unwrap();
    let mut lines: Vec<String> =
        String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect();
    lines.sort();
    assert_eq!(
        lines,
        ["first 4 4 4", "mm 100 94 106"],
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn python_has_the_ends() {
    let Some(python) = testkit::python::with("estimates in Python", "pyarrow") else {
        return;
    };
    let (scratch, dir) = script().written();
    let dist = scratch.join("dist");
    std::fs::create_dir_all(dist.join("bin")).unwrap();
    std::os::unix::fs::symlink(PROGRAM, dist.join("bin/counterpoint")).unwrap();
    let package = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bindings/python/src");
    let code = "import sys, counterpoint\n\
        for row in counterpoint.load(sys.argv[1]).ops.to_arrow().to_pylist():\n\
        \x20print(row['op'], row['calls'], int(row['calls_low']), int(row['calls_high']), row['timed_calls'])";
    let output = Command::new(python)
        .args(["-c", code])
        .arg(&dir)
        .env("PYTHONPATH", package)
        .env("COUNTERPOINT_DIST", dist)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text, "first 4 4 4 4\nmm 100 94 105 40\n", "{said}");
}

#[test]
fn sites_refuse_what_they_do_not_apply() {
    let scratch = Scratch::new();
    let dir = scratch.join("x.cpt");
    crate::ops::nested().write(&dir);
    for option in ["--skip-ms=1", "--kind=x", "--metric=cycles", "--device=0"] {
        let output =
            Command::new(PROGRAM).arg("report").arg(&dir).args(["--by", "site", option]).output();
        let said = String::from_utf8(output.unwrap().stderr).unwrap();
        assert!(said.contains("cannot be used with --by site"), "{option}: {said}");
    }
}
