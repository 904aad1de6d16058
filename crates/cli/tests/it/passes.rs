//! Tests `run --passes`.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::support::{Expected, Iree, Programs, counterpoint, skip};
use serde_json::{Value, json};
use testkit::Scratch;

/// No program accesses these addresses. x86-64 has four registers for breakpoints.
const BREAKPOINTS: &str = "mem:0x1000:w,mem:0x2000:w,mem:0x3000:w,mem:0x4000:w,mem:0x5000:w";

struct Run {
    program: PathBuf,
    scratch: Scratch,
    output: Output,
}

impl Run {
    fn new(program: &Path, options: &[&str], command: &[&str]) -> Self {
        let scratch = Scratch::new();
        let mut run = Command::new(program);
        run.args(["run", "-o"]).arg(scratch.join("p.cpt")).args(options).arg("--").args(command);
        let output =
            run.env("TMPDIR", scratch.path()).current_dir(scratch.path()).output().unwrap();
        Self { program: program.to_owned(), scratch, output }
    }

    fn words(&self) -> String {
        String::from_utf8_lossy(&self.output.stderr).into_owned()
    }

    fn view(&self, words: &[&str]) -> Vec<u8> {
        let mut view = Command::new(&self.program);
        view.arg(words[0]).arg(self.scratch.join("p.cpt")).args(&words[1..]);
        let output = view.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        output.stdout
    }

    fn json(&self, words: &[&str]) -> Value {
        serde_json::from_slice(&self.view(words)).unwrap()
    }

    /// Returns the report with `--raw` (without subtracting what the recorder costs), because
    /// nothing is subtracted from the values of single passes, either.
    fn report(&self) -> Value {
        self.json(&["report", "--raw", "--format", "json"])
    }
}

fn host() -> [String; 2] {
    let programs = Programs::get();
    [&programs.host, &programs.library].map(|path| path.display().to_string())
}

fn names(report: &Value) -> Vec<(String, u64, u64)> {
    let counters = report["profile"]["counters"].as_array().unwrap().iter();
    let number = |counter: &Value, key: &str| counter[key].as_u64().unwrap();
    counters
        .map(|c| (c["name"].as_str().unwrap().to_owned(), number(c, "pass"), number(c, "group")))
        .collect()
}

/// The simulated counters `a`, `b` and `c` count 7, 2 and 1 in each call of the pass that records
/// them.
#[test]
fn groups_are_passes() {
    let Some(program) = counterpoint("passes_groups") else { return };
    let [host, library] = host();
    let events = "{sim/a,readings=5:7/,sim/b,readings=0:2/},{sim/c,readings=0:1/}";
    let command = [host.as_str(), &library, "calls", "100"];
    let run = Run::new(&program, &["--passes", "-e", events], &command);
    assert!(run.output.status.success(), "{}", run.words());
    let report = run.report();
    assert_eq!(report["profile"]["passes"], 2);
    assert_eq!(report["total"]["calls"], 200, "the total counts every recorded call");
    let row = &report["rows"][0];
    assert_eq!((&row["calls"], &row["dispatches"]), (&json!(100), &json!(1)));
    let passes = row["passes"].as_array().unwrap();
    assert_eq!(passes.len(), 2);
    let ns = |value: &Value| value["total_ns"].as_f64().unwrap();
    let mean = (ns(&passes[0]) + ns(&passes[1])) / 2.0;
    assert!((ns(row) / mean - 1.0).abs() < 1e-9, "{row}");
    let spread = (ns(&passes[0]) - ns(&passes[1])).abs() / mean;
    assert!((row["spread"].as_f64().unwrap() - spread).abs() < 1e-9, "{row}");
    let total = |name: &str| {
        let counters = row["counters"].as_array().unwrap();
        let counter = counters.iter().find(|c| c["name"] == name).unwrap();
        (counter["total"].as_u64().unwrap(), counter["calls"].as_u64().unwrap())
    };
    assert_eq!((total("a"), total("b"), total("c")), ((700, 100), (200, 100), (100, 100)));
    let groups = names(&report);
    let of = |name: &str| groups.iter().find(|(n, ..)| n == name).unwrap();
    assert_eq!((of("a").1, of("b").1, of("c").1), (1, 1, 2));
    assert_eq!(of("a").2, of("b").2);
    assert_ne!(of("a").2, of("c").2, "a ratio over two passes is not formed");
    assert_eq!(report["losses"], json!([]));
    // The calls of a pass have no values of the counters of other passes.
    let export = run.json(&["export", "--format", "json"]);
    let calls = export["calls"].as_array().unwrap();
    assert_eq!(calls.len(), 200);
    for call in calls {
        let expected = match call["pass"].as_u64().unwrap() {
            1 => [json!(7), json!(2), Value::Null],
            _ => [Value::Null, Value::Null, json!(1)],
        };
        assert_eq!(["a", "b", "c"].map(|n| call[n].clone()), expected);
    }
    for by in [&["--by", "rank"][..], &["--tree"]] {
        let words = ["report", "--raw", "--format", "json"];
        let other = run.json(&[&words, by].concat());
        assert_eq!(other["rows"][0]["calls"], 100, "{other:#}");
        let total = ns(&other["rows"][0]);
        assert!((total / ns(row) - 1.0).abs() < 1e-9, "{other:#}");
    }
    let sites = run.json(&["report", "--raw", "--format", "json", "--by", "site"]);
    assert_eq!(sites["dispatches"], row["dispatches"], "{sites:#}");
    let workers: f64 = sites["rows"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["workers_ns"].as_f64().unwrap())
        .sum();
    assert!((workers / ns(row) - 1.0).abs() < 1e-9, "{sites:#}");
    let text = String::from_utf8(run.view(&["report"])).unwrap();
    let first = text.lines().next().unwrap();
    assert!(first.contains("in 100 calls (") && first.ends_with("mean of 2 passes)"), "{text}");
    assert!(
        text.contains("passes    2") && !text.contains("counted in only some of the calls"),
        "{text}"
    );
    // A metric needs counters of one pass.
    let ratio = run.json(&["report", "--format", "json", "--metric", "r=b/a"]);
    assert!(ratio.to_string().contains(r#""name":"r""#), "{ratio}");
    let mut refused = Command::new(&program);
    refused.arg("report").arg(run.scratch.join("p.cpt")).args(["--metric", "r=c/a"]);
    assert_eq!(refused.output().unwrap().status.code(), Some(2));
}

/// x86-64 has four registers for breakpoints.
#[test]
fn counters_that_do_not_fit_at_once_are_divided() {
    let Some(program) = counterpoint("passes_fit") else { return };
    let [host, library] = host();
    let command = [host.as_str(), &library, "calls", "10"];
    let once = Run::new(&program, &["-e", BREAKPOINTS], &command);
    if !once.words().contains("ENOSPC") {
        return skip("passes_fit", &format!("five breakpoints at once: {}", once.words()));
    }
    let run = Run::new(&program, &["--passes", "-e", BREAKPOINTS], &command);
    assert!(run.output.status.success(), "{}", run.words());
    let report = run.report();
    let counters = names(&report);
    let of_pass = |pass| {
        let mine = counters.iter().filter(|c| c.1 == pass && c.0.starts_with("mem:"));
        mine.map(|c| c.0.as_str()).collect::<Vec<_>>()
    };
    let all: Vec<&str> = BREAKPOINTS.split(',').collect();
    assert_eq!((of_pass(1), of_pass(2)), (all[..4].to_vec(), all[4..].to_vec()));
    assert!(counters.iter().any(|c| (c.0.as_str(), c.1) == ("task-clock", 1)), "{counters:?}");
    assert!(counters.iter().any(|c| (c.0.as_str(), c.1) == ("task-clock@2", 2)), "{counters:?}");
    let row = &report["rows"][0];
    assert_eq!(row["calls"], 10);
    for counter in row["counters"].as_array().unwrap() {
        assert_eq!(counter["calls"], 10, "{counter}");
        if counter["name"].as_str().unwrap().starts_with("mem:") {
            assert_eq!(counter["total"], 0);
        }
    }
    let too_few = Run::new(&program, &["--passes=1", "-e", BREAKPOINTS], &command);
    assert_eq!(too_few.output.status.code(), Some(2));
    assert!(too_few.words().contains("2 passes are needed here"), "{}", too_few.words());
    let forced = Run::new(&program, &["--passes=5", "-e", BREAKPOINTS], &command);
    assert_eq!(forced.report()["profile"]["passes"], 5, "{}", forced.words());
}

/// If an op has different numbers of calls in the passes, the report shows all of them, because a
/// mean would mislead.
#[test]
fn passes_that_differ_are_marked() {
    let Some(program) = counterpoint("passes_differ") else { return };
    let [host, library] = host();
    let script = r#"n=10; test -e again && n=12; touch again; exec "$0" "$1" calls $n"#;
    let command = ["sh", "-c", script, &host, &library];
    let events = "{sim/a,readings=0:1/},{sim/b,readings=0:1/}";
    let run = Run::new(&program, &["--passes", "-e", events], &command);
    assert!(run.output.status.success(), "{}", run.words());
    let report = run.report();
    let row = &report["rows"][0];
    // `dispatches` counts the calls with the workgroup id 0,0,0. Each pass has one such call.
    assert_eq!((&row["calls"], &row["dispatches"]), (&Value::Null, &1.into()));
    let calls: Vec<&Value> =
        row["passes"].as_array().unwrap().iter().map(|pass| &pass["calls"]).collect();
    assert_eq!(calls, [10, 12]);
    let notes = report["notes"].to_string();
    assert!(notes.contains("1 of 1 op had different call counts"), "{notes}");
    let text = String::from_utf8(run.view(&["report"])).unwrap();
    assert!(text.contains("10|12"), "{text}");
    let csv = String::from_utf8(run.view(&["report", "--format", "csv"])).unwrap();
    assert!(csv.contains("10|12"), "{csv}");
}

#[test]
fn a_pass_that_fails_is_the_last() {
    let Some(program) = counterpoint("passes_fail") else { return };
    let [host, library] = host();
    let script = r#"echo pass; "$0" "$1" calls 10; test -e again && exit 3; touch again"#;
    let command = ["sh", "-c", script, &host, &library];
    let events = "{sim/a,readings=0:1/},{sim/b,readings=0:1/},{sim/c,readings=0:1/}";
    let run = Run::new(&program, &["--passes", "-e", events], &command);
    assert_eq!(run.output.status.code(), Some(3));
    assert_eq!(run.output.stdout.windows(5).filter(|w| w == b"pass\n").count(), 2);
    assert!(run.words().contains("pass 2 of 3 (b"), "{}", run.words());
    assert!(run.words().contains("the remaining passes were not run"), "{}", run.words());
    let report = run.report();
    assert_eq!(report["total"]["calls"], 20);
    assert_eq!(report["profile"]["exit"]["code"], 3);
    assert!(report["notes"].to_string().contains("only 2 of 3 passes"), "{}", report["notes"]);
    // The pass that was not run must not appear as one with 0 calls.
    let row = &report["rows"][0];
    let passes = row["passes"].as_array().unwrap();
    let calls: Vec<_> = passes.iter().map(|pass| pass["calls"].as_u64().unwrap()).collect();
    assert_eq!(calls, [10, 10]);
    assert_eq!(row["calls"], 10);
    let totals = passes.iter().map(|pass| pass["total_ns"].as_f64().unwrap());
    let mean = totals.clone().sum::<f64>() / 2.0;
    let total = row["total_ns"].as_f64().unwrap();
    assert!((total - mean).abs() < 1e-6 * mean, "{total} of {passes:?}");
    let spread = totals.clone().fold(0.0, f64::max) - totals.fold(f64::MAX, f64::min);
    let said = row["spread"].as_f64().unwrap();
    assert!((said - spread / mean).abs() < 1e-6, "{said} of {passes:?}");
    let text = String::from_utf8(run.view(&["report"])).unwrap();
    assert!(text.contains("passes    2 of 3, one for each set of counters"), "{text}");
}

const CTRL_C: &str = include_str!("ctrl_c.py");

/// Ctrl-C arrives after the program of the first pass has ended, and before that of the second pass
/// has started.
#[test]
fn a_signal_between_two_passes_ends_the_command() {
    let Some(program) = counterpoint("passes_signal") else { return };
    let Some(python) = testkit::python::with("passes_signal", "pty") else { return };
    let [host, library] = host();
    let script = r#"test -e first && exec sleep 30; echo $$ > first; exec "$0" "$1" calls 10"#;
    let events = "{sim/a,readings=0:1/},{sim/b,readings=0:1/},{sim/c,readings=0:1/}";
    // On a busy machine, Ctrl-C may arrive in the second pass, so the test tries several times.
    for _ in 0..20 {
        let scratch = Scratch::new();
        let mut driver = Command::new(&python);
        driver.args(["-c", CTRL_C]).arg(&program).args(["run", "--passes", "-o", "p.cpt", "-e"]);
        driver.args([events, "--", "sh", "-c", script, &host, &library]);
        let output = driver.env("TMPDIR", scratch.path()).current_dir(scratch.path()).output();
        let words = String::from_utf8(output.unwrap().stdout).unwrap();
        assert!(words.starts_with("2\n"), "ends by SIGINT: {words}");
        assert!(words.contains("the remaining passes were not run"), "{words}");
        let report = Command::new(&program)
            .args(["report", "--format", "json"])
            .arg(scratch.join("p.cpt"))
            .output()
            .unwrap();
        let report: Value = serde_json::from_slice(&report.stdout).unwrap();
        assert_eq!(report["total"]["calls"], 10, "{words}");
        if words.contains("pass 1 of 3 (a")
            && words.contains("was the last one, because of signal 2")
        {
            assert!(
                report["notes"].to_string().contains("only 1 of 3 passes recorded something"),
                "{report}"
            );
            return;
        }
        assert!(words.contains("pass 2 of 3 (b"), "{words}");
    }
    panic!("none of 20 signals arrived between two passes");
}

/// SIGKILL ends `run` in its second pass.
#[test]
fn passes_survive_a_kill_of_run() {
    let Some(program) = counterpoint("passes_kill") else { return };
    let [host, library] = host();
    let scratch = Scratch::new();
    let at = scratch.join("p.cpt");
    let script = r#""$0" "$1" calls 10; test -e again && { touch third; sleep 3; }; touch again"#;
    let mut run = Command::new(&program);
    run.args(["run", "--passes", "-e", "{sim/a,readings=0:1/},{sim/b,readings=0:1/}", "-o"]);
    run.arg(&at).args(["--", "sh", "-c", script, &host, &library]).current_dir(scratch.path());
    let mut child = run.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let begin = Instant::now();
    while !scratch.join("third").exists() {
        assert!(begin.elapsed() < Duration::from_secs(100), "the second pass does not come");
        std::thread::sleep(Duration::from_millis(20));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let calls = || {
        let output =
            Command::new(&program).arg("report").arg(&at).args(["--format", "json"]).output();
        let report: Value = serde_json::from_slice(&output.unwrap().stdout).unwrap();
        let passes = report["rows"][0]["passes"].as_array().unwrap();
        passes.iter().map(|pass| pass["calls"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(calls(), [10, 10]);
    std::thread::sleep(Duration::from_secs(4));
    assert_eq!(calls(), [10, 10]);
    let manifest =
        |pass: u32| profile::Manifest::read(&profile::passes::pass_dir(&at, pass)).unwrap();
    let recovered = Command::new(&program).arg("recover").arg(&at).output().unwrap();
    assert!(recovered.status.success(), "{recovered:?}");
    assert!((1..=2).all(|pass| manifest(pass).pool.is_none()), "collected");
    assert_eq!(calls(), [10, 10]);
}

#[test]
fn nothing_to_divide_is_an_error() {
    let Some(program) = counterpoint("passes_none") else { return };
    for options in [&["--passes"][..], &["--passes", "-e", "none"]] {
        let run = Run::new(&program, options, &["touch", "started"]);
        assert_eq!(run.output.status.code(), Some(2));
        assert!(run.words().contains("no counters to divide"), "{}", run.words());
        assert!(!run.scratch.join("started").exists() && !run.scratch.join("p.cpt").exists());
    }
}

/// Without `-e`, the environment variable `COUNTERPOINT_CPU_METRICS` names the counters, as it does
/// without `--passes`.
#[test]
fn a_variable_may_name_the_counters() {
    let Some(program) = counterpoint("passes_variable") else { return };
    let scratch = Scratch::new();
    let at = scratch.join("p.cpt");
    let run = |list: &str| {
        let mut run = Command::new(&program);
        run.args(["run", "--passes=2", "-o"]).arg(&at).args(["--", "true"]);
        run.env("COUNTERPOINT_CPU_METRICS", list).output().unwrap()
    };
    let output = run("page-faults;cs;minor-faults;");
    assert!(output.status.success(), "{output:?}");
    let names = |pass: u32| -> Vec<String> {
        let directory = profile::passes::pass_dir(&at, pass);
        let counters = profile::Manifest::read(&directory).unwrap().counters;
        counters.into_iter().map(|counter| counter.name).collect()
    };
    assert_eq!(names(1), ["page-faults", "cs", "task-clock"]);
    assert_eq!(names(2), ["minor-faults", "task-clock"]);
    let output = run("page-fautls");
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(told.contains("COUNTERPOINT_CPU_METRICS page-fautls: "), "{told}");
}

/// The expected numbers of calls come from IREE's own profiler.
#[test]
fn a_model_in_passes() {
    let Some(program) = counterpoint("passes_iree") else { return };
    let Some(iree) = Iree::new("passes_iree") else { return };
    let expected = Expected::of("mlp");
    let tool = iree.tool("iree-run-module").display().to_string();
    let module = format!("--module={}", iree.module("mlp", false).display());
    let arguments = expected.arguments();
    let mut command = vec![tool.as_str(), &module, "--device=local-task"];
    command.extend(arguments.iter().map(String::as_str));
    let events = format!("page-faults,{BREAKPOINTS}");
    let run = Run::new(&program, &["--passes", "-e", &events, "-a", "sim/s,readings=1/"], &command);
    if run.words().contains("mem:") && !run.output.status.success() {
        return skip("passes_iree", &run.words());
    }
    let report = run.report();
    let passes = report["profile"]["passes"].as_u64().unwrap();
    assert!(passes >= 2, "{}", run.words());
    for row in report["rows"].as_array().unwrap() {
        let (calls, dispatches) = expected.ops[row["op"].as_str().unwrap()];
        assert_eq!(
            (row["calls"].as_u64(), row["dispatches"].as_u64()),
            (Some(calls), Some(dispatches))
        );
        assert_eq!(row["passes"].as_array().unwrap().len() as u64, passes);
    }
    assert_eq!(report["rows"].as_array().unwrap().len(), expected.ops.len());
    // On a busy machine, a sample of the time series may be missing.
    let losses = report["losses"].as_array().unwrap();
    assert!(losses.iter().all(|loss| loss["name"] == "track_overrun"), "{losses:?}");
    assert!(report["tracks"][0]["samples"].as_u64().unwrap() >= 2, "samples of all passes");
}
