//! Tests that `diff --history` finds a slowdown that begins at one run.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use testkit::{CallScript, ProfileScript, Scratch};

const PROGRAM: &str = env!("CARGO_BIN_EXE_counterpoint");
/// From this run on, `matmul` takes 20 % more time.
const AT: u64 = 9;

/// Returns the profile of a run without calls of `matmul` (export 0) and `softmax` (export 1).
fn script(run: u64) -> ProfileScript {
    let mut script = ProfileScript::monotonic();
    script.manifest.created_unix_ns += run * 60_000_000_000;
    script.manifest.labels.insert("commit".to_owned(), format!("c{run}"));
    let process = script.process(7);
    process.library("m", &["matmul", "softmax"]);
    process.thread("main");
    script
}

/// Writes profiles. The order of the runs' names differs from the order of their times.
fn write(dir: &Path, runs: u64) {
    for run in 0..runs {
        let mut script = script(run);
        let thread = &mut script.processes[0].threads[0];
        // Apart from the slowdown, runs differ by at most 1.2 %.
        let noise = [run * 7 % 11, run * 5 % 13];
        let slower = if run < AT { 10 } else { 12 };
        for call in 0..10 {
            let begin = call * 100_000;
            thread.call(CallScript::new(0, begin, slower * (1_000 + noise[0])));
            thread.call(CallScript::new(1, begin + 50_000, 10 * (1_000 + noise[1])));
        }
        script.write(&dir.join(format!("{}.cpt", (run * 7) % 101)));
    }
}

fn history(dir: &Path, options: &[&str]) -> (Output, String) {
    let mut command = Command::new(PROGRAM);
    let output = command.args(["diff", "--width", "200", "--history"]).arg(dir).args(options);
    let output = output.output().unwrap();
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    (output, text)
}

#[test]
fn a_slowdown_has_a_commit() {
    let scratch = Scratch::new();
    let dir = scratch.join("history");
    std::fs::create_dir(&dir).unwrap();
    write(&dir, 18);
    let (output, text) = history(&dir, &[]);
    assert!(output.status.success(), "{output:?}");
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("from commit c9 on, the whole takes "), "{text}");
    assert!(
        lines[1].starts_with("from commit c9 on, matmul takes ") && lines[1].ends_with("] longer"),
        "{text}"
    );
    assert_eq!(lines.len(), 3, "{text}");
    assert_eq!(
        lines[2],
        "18 points of 18 runs from commit c0 to commit c17, the whole and 2 ops tested"
    );

    let (_, json) = history(&dir, &["--format", "json"]);
    let document: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(document["schema"], "counterpoint.history/1");
    let changes = document["changes"].as_array().unwrap();
    assert_eq!(changes.len(), 2);
    assert_eq!((&changes[0]["name"], &changes[1]["name"]), (&Value::Null, &"matmul".into()));
    for (change, by) in changes.iter().zip([0.1, 0.2]) {
        assert_eq!(change["point"], AT);
        let number = |name: &str| change[name].as_f64().unwrap();
        assert!((number("change") - by).abs() < 0.01, "{change}");
        assert!(
            number("change_low") <= by + 0.005 && by - 0.005 <= number("change_high"),
            "{change}"
        );
        assert!(number("p") <= 0.02, "{change}");
    }
    let point = &document["points"][AT as usize];
    assert_eq!((&point["name"], &point["labels"]["commit"]), (&"commit c9".into(), &"c9".into()));
    // The noise is 63 modulo 11 = 8, and 45 modulo 13 = 6.
    assert_eq!(point["whole_ns"].as_f64().unwrap(), 10.0 * (12.0 * 1_008.0 + 10.0 * 1_006.0));

    let (output, text) = history(&dir, &["--format", "markdown", "--fail-if", "*matmul*>15%"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(text.contains("- **from commit c9 on, matmul takes "), "{text}");
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("--fail-if '*matmul*>15%': from commit c9 on, matmul takes "), "{said}");
    for (rule, status) in [
        ("softmax>1%", 0),
        ("whole>15%", 0),
        ("whole>5%", 3),
        ("nothing>5%", 2),
        ("counter:x>5%", 2),
    ] {
        let (output, _) = history(&dir, &["--fail-if", rule]);
        assert_eq!(output.status.code(), Some(status), "{rule}");
    }
    let (_, text) = history(&dir, &["--filter", "soft*"]);
    assert!(text.starts_with("nothing changed that stands out of the noise"), "{text}");
    assert_eq!(history(&dir, &["--format", "csv"]).0.status.code(), Some(2));
}

/// From the tenth run on, softmax is called 5 times instead of 10, and each call takes 50 % longer. So
/// all calls together take 25 % less time, and the whole takes less time, too.
#[test]
fn numbers_of_executions_are_said_where_they_change() {
    let scratch = Scratch::new();
    let dir = scratch.join("history");
    std::fs::create_dir(&dir).unwrap();
    for run in 0..18 {
        let mut script = script(run);
        let thread = &mut script.processes[0].threads[0];
        let (calls, long) = if run < AT { (10, 10) } else { (5, 15) };
        for call in 0..10 {
            let begin = call * 100_000;
            thread.call(CallScript::new(0, begin, 10 * (1_000 + run * 7 % 11)));
            if call < calls {
                thread.call(CallScript::new(1, begin + 50_000, long * (1_000 + run * 5 % 13)));
            }
        }
        script.write(&dir.join(format!("{run}.cpt")));
    }
    let (output, text) = history(&dir, &["--fail-if", "whole>1%"]);
    assert!(output.status.success(), "{output:?}");
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("from commit c9 on, the whole takes 12."), "{text}");
    assert!(lines[0].ends_with("] less"), "{text}");
    assert!(lines[1].starts_with("from commit c9 on, softmax takes "), "{text}");
    assert!(lines[1].ends_with("] longer (5 executions in a run instead of 10)"), "{text}");
    assert_eq!(lines.len(), 3, "{text}");
    let (_, json) = history(&dir, &["--format", "json"]);
    let document: Value = serde_json::from_str(&json).unwrap();
    let changes = document["changes"].as_array().unwrap();
    assert_eq!(changes[0]["executions"], Value::Null);
    assert_eq!(changes[1]["executions"], serde_json::json!([10.0, 5.0]));
    assert!((changes[1]["change"].as_f64().unwrap() - 0.5).abs() < 0.01, "{changes:?}");
}

#[test]
fn too_few_points_are_refused() {
    let scratch = Scratch::new();
    let dir = scratch.join("history");
    std::fs::create_dir(&dir).unwrap();
    write(&dir, 9);
    let (output, _) = history(&dir, &[]);
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("9 points, and it takes 10"), "{said}");
}
