//! Tests which rows and calls `ops` shows, and how its table shows them. The expected numbers were
//! computed on paper. One tick is 1 ns.

use std::collections::HashSet;
use std::path::Path;
use std::process::Command;

use profile::Job;
use record::meta::Role;
use record::page::KEY_CORRELATION;
use serde_json::{Value, json};
use testkit::{CallScript, ProfileScript};

const PROGRAM: &str = env!("CARGO_BIN_EXE_counterpoint");

fn output(dir: &Path, args: &[&str]) -> String {
    let output = Command::new(PROGRAM).args(args).arg(dir).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn json(dir: &Path, command: &str) -> Value {
    serde_json::from_str(&output(dir, &[command, "--format", "json"])).unwrap()
}

/// Returns a profile in which one op has five shapes.
fn shapes() -> ProfileScript {
    let mut script = ProfileScript::monotonic();
    for counter in ["page-faults", "task-clock"] {
        script.counter(counter, 0);
    }
    let process = script.process(4711);
    let vm = process.machine("vm 0");
    let mut ops: Vec<u32> = (0..5)
        .map(|i| {
            let shape = format!("float32[{}, 1024]", 10u32.pow(i));
            process.op(vm, Role::Op, "softmax", &format!("{shape}, float32[1024], {shape}"))
        })
        .collect();
    ops.push(process.op(vm, Role::Op, "relu", "float32[32, 1024], float32[32, 1024]"));
    let thread = process.thread("main");
    for (at, op) in ops.into_iter().enumerate() {
        let start = 1_000 + 10_000 * at as u64;
        thread.call(CallScript::op(op, start, 5_000).group(5_000, &[1, 5_000]));
    }
    script
}

/// A filter is compared with the op's name, without its arguments.
#[test]
fn a_filter_chooses_the_same_ops_at_every_width() {
    let (_scratch, dir) = shapes().written();
    for width in ["60", "80", "100", "200"] {
        let shown = output(&dir, &["ops", "--filter", "softmax", "--width", width]);
        let rows = shown.lines().filter(|line| line.contains("5.00 µs"));
        assert_eq!(rows.count(), 5, "{width}: {shown}");
        assert!(!shown.contains("relu"), "{width}: {shown}");
    }
    let mut none = Command::new(PROGRAM);
    let none = none.args(["ops", "--filter", "soft"]).arg(&dir).output().unwrap();
    let said = String::from_utf8(none.stderr).unwrap();
    assert!(said.contains("no op of this profile matches") && said.contains("softmax"), "{said}");
    assert_eq!((none.status.code(), none.stdout.len()), (Some(1), 0));
}

/// Returns a profile in which each op has a region whose tasks are on one CPU.
fn serial() -> ProfileScript {
    let mut script = ProfileScript::monotonic();
    let process = script.process(4711);
    let vm = process.machine("vm 0");
    let mut of = |name: &str| {
        [Role::Op, Role::Region, Role::Task].map(|role| process.op(vm, role, name, ""))
    };
    let all = [of("matmul"), of("relu")];
    let places = (0..).map(|n| 1_000 + 10_000 * n);
    let task = |task: u32, number: u32, region: u64, at: u64| {
        let call = CallScript::new(task, at, 1_000).workgroup(number, 2).on(3, 0);
        call.value(KEY_CORRELATION, region)
    };
    let main = process.thread("main");
    for ((n, at), [op, region, tasks]) in (1..).zip(places.clone()).zip(all) {
        main.call(task(tasks, 0, n, at + 200));
        main.call(CallScript::op(region, at + 100, 4_000).value(KEY_CORRELATION, n));
        main.call(CallScript::op(op, at, 5_000));
    }
    let worker = process.thread("worker");
    for ((n, at), [.., tasks]) in (1..).zip(places).zip(all) {
        worker.call(task(tasks, 1, n, at + 2_000));
    }
    script
}

/// The profile does not tell whether other CPUs were free, so the expected text does not mention
/// other CPUs.
#[test]
fn tasks_that_wait_for_each_other_are_named_for_the_ops_that_are_shown() {
    let (_scratch, dir) = serial().written();
    let all = output(&dir, &["ops"]);
    for name in ["matmul", "relu"] {
        let expected = format!(
            "cores: {name}: in 1 of 1 region, tasks of different threads ran one after the other on one CPU (3)\n"
        );
        assert!(all.replace("\n       ", " ").contains(&expected), "{all}");
    }
    let some = output(&dir, &["ops", "--filter", "matmul"]);
    assert!(some.contains("cores: matmul") && !some.contains("relu"), "{some}");
}

#[test]
fn a_report_can_be_filtered_by_a_name_with_its_role() {
    let (_scratch, dir) = serial().written();
    let names = |glob: &str| {
        let words = ["report", "--format", "json", "--filter", glob];
        let all: Value = serde_json::from_str(&output(&dir, &words)).unwrap();
        let rows = all["rows"].as_array().unwrap().iter();
        rows.map(|row| json!([row["op"], row["role"]])).collect::<Vec<_>>()
    };
    assert_eq!(names("relu (task)"), [json!(["relu", "task"])]);
    assert_eq!(names("* (region)").len(), 2);
    assert_eq!(names("relu").len(), 3);
}

#[test]
fn ops_of_one_name_can_be_told_apart_at_every_width() {
    let (_scratch, dir) = shapes().written();
    for width in [40, 60, 80, 100, 120, 200] {
        let text = output(&dir, &["ops", "--width", &width.to_string()]);
        // In each row, the time 5.00 µs follows the name.
        let names =
            text.lines().filter_map(|line| line.split_once("5.00 µs")).map(|(name, _)| name);
        let names: Vec<&str> = names.collect();
        assert_eq!(names.len(), 6, "at {width}:\n{text}");
        assert_eq!(names.iter().collect::<HashSet<_>>().len(), 6, "at {width}:\n{text}");
        assert!(text.lines().all(|line| line.chars().count() <= width), "at {width}:\n{text}");
        assert_eq!(text.matches("relu (").count(), 0, "one name says enough:\n{text}");
    }
    // A wide table has a column for the arguments, which tell the rows of `softmax` apart.
    let text = output(&dir, &["ops", "--width", "200"]);
    assert!(text.contains("  arguments  "), "{text}");
}

/// The profile has fifty ops, with 700 ticks between one op and the next. Recording a call takes
/// 300 ticks, of which 20 are inside of the call. So recording takes 280 of the 700 ticks between
/// two ops.
#[test]
fn the_cost_equals_that_of_the_report() {
    let mut script = ProfileScript::monotonic();
    let process = script.process(1);
    let vm = process.machine("vm");
    let ops = ["f", "g"].map(|name| process.op(vm, Role::Op, name, ""));
    process.empty_calls(200, 20, 300, &[]);
    let thread = process.thread("t");
    for i in 0..50 {
        thread.call(CallScript::op(ops[i % 2], 1_000 + 1_000 * i as u64, 300));
    }
    let (_scratch, dir) = script.written();
    let (ops, report) = (json(&dir, "ops"), json(&dir, "report"));
    assert_eq!(ops["cost"]["total"], report["probe"]["total"]);
    let (ops, report) = (&ops["probe"], &report["probe"]);
    assert_eq!((&ops["per_call_ns"], &ops["way_ns"]), (&300.0.into(), &16_800.0.into()));
    assert_eq!(ops["estimated_ns"], 15_000.0 + 16_800.0);
    assert_eq!((&ops["per_call_ns"], &ops["way_ns"]), (&report["per_call_ns"], &report["way_ns"]));
    // Of the 700 ns between two ops, 420 ns are not spent on recording. The virtual machine needs
    // an estimated four fifths of them to announce ops (to call the recorder): at least half of
    // them, and at most all.
    let whole = &["report", "--verbose"][..];
    let ops = &["ops", "--verbose"][..];
    let price = "announcing ops to the recorder 16.8 µs (10.5 µs to 21.0 µs)";
    let price = format!("50 calls at 300 ns each, {price}");
    for view in [ops, whole] {
        let text = output(&dir, &[view, &["--width", "200"]].concat());
        assert!(text.contains(&price), "{text}");
    }
    let line = |view: &str| {
        let text = output(&dir, &[view, "--width", "200"]);
        text.lines().find(|line| line.starts_with("price: ")).unwrap().to_owned()
    };
    assert_eq!(line("ops"), line("report"));
}

/// Calls that were only counted have no times, so rows for a part of the run could not contain
/// them.
#[test]
fn rows_of_a_part_of_a_run_with_a_budget_are_refused() {
    let mut script = ProfileScript::monotonic();
    script.budget(0.02);
    let process = script.process(1);
    let vm = process.machine("vm");
    let op = process.op(vm, Role::Op, "relu", "");
    let thread = process.thread("main");
    for call in 0..2 {
        thread.call(CallScript::op(op, 1_000 + 20_000 * call, 500).drawn(1, 1, 0));
    }
    thread.counted(op, 2, 2, 2);
    let (_scratch, dir) = script.written();
    let run = |more: &[&str]| {
        let words = ["ops", dir.to_str().unwrap(), "--format", "json"];
        let program = env!("CARGO_BIN_EXE_counterpoint");
        std::process::Command::new(program).args(words).args(more).output().unwrap()
    };
    for rows in [&["--filter", "relu"], &["--sort", "calls"], &["--top", "1"]] {
        for time in ["--since", "--until"] {
            let refused = run(&[&rows[..], &[time, "5000"]].concat());
            assert_eq!(refused.status.code(), Some(2), "{rows:?} {time}");
            let said = String::from_utf8_lossy(&refused.stderr).into_owned();
            assert!(said.contains("a budget has none"), "{rows:?} {time}: {said}");
            assert!(refused.stdout.is_empty());
        }
        assert!(run(&rows[..]).status.success(), "{rows:?}");
    }
    assert!(run(&["--since", "5000"]).status.success());
}

/// In an empty call, the counter counts 30: this is 60 % of the mean value of `f`, and 30 % of that
/// of `g`.
#[test]
fn values_that_are_mostly_the_probes_own_are_marked() {
    let mut script = ProfileScript::monotonic();
    script.counter("page-faults", 0);
    let process = script.process(1);
    let vm = process.machine("vm");
    let ops = ["f", "g"].map(|name| process.op(vm, Role::Op, name, ""));
    process.empty_calls(200, 20, 300, &[30]);
    process
        .thread("t")
        .call(CallScript::op(ops[0], 1_000, 500).group(500, &[40]))
        .call(CallScript::op(ops[0], 2_000, 500).group(500, &[60]))
        .call(CallScript::op(ops[1], 3_000, 500).group(500, &[100]));
    let (_scratch, dir) = script.written();
    for view in ["ops", "report"] {
        let text = output(&dir, &[view, "--width", "200", "--raw"]);
        let row = |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
        assert!(row("f ").contains("≈100"), "{view}:\n{text}");
        assert!(!row("g ").contains('≈') && row("g ").contains("100"), "{view}:\n{text}");
        assert!(text.contains("its part of the value: page-faults 60.0 %"), "{view}:\n{text}");
    }
}

/// Returns the given fields of each row in the document.
fn rows(document: &Value, fields: &[&str]) -> Value {
    let rows = document["rows"].as_array().unwrap().iter();
    rows.map(|row| fields.iter().map(|field| row[*field].clone()).collect::<Value>()).collect()
}

/// A call that a filter or `--top` chooses keeps its number from the complete list of calls.
#[test]
fn json_has_the_rows_and_the_calls_that_are_chosen() {
    let (_scratch, dir) = crate::ops::nested().written();
    let of = |more: &[&str]| -> Value {
        let all = [&["ops", "--raw", "--format", "json"], more].concat();
        serde_json::from_str(&output(&dir, &all)).unwrap()
    };
    let calls = |document: &Value| -> Value {
        let ops = document["ops"].as_array().unwrap().iter();
        ops.map(|op| json!([op["op"], op["name"]])).collect()
    };
    let subs = of(&["--filter", "sub"]);
    assert_eq!(
        rows(&subs, &["op", "calls", "inner_calls", "self_ns"]),
        json!([["sub", 1, 1, 2_100.0]])
    );
    assert_eq!(calls(&subs), json!([[2, "sub"], [4, "sub"]]));
    // `add` took 500 + 400 + 1,000 ns in runs. `matmul` took 4,000 ns in runs.
    let most = of(&["--sort", "calls", "--top", "1", "--filter", "add"]);
    assert_eq!(rows(&most, &["op", "calls", "self_ns"]), json!([["add", 3, 1_900.0]]));
    let longest = of(&["--sort", "self_ns", "--top", "1"]);
    assert_eq!(rows(&longest, &["op", "in_run", "self_ns"]), json!([["matmul", "yes", 4_000.0]]));
    assert_eq!(calls(&longest), json!([[1, "matmul"]]), "the other one is in no run");
    let all = of(&[]);
    assert_eq!(all["ops"].as_array().unwrap().len(), 9);
    assert_eq!((&all["sort"], &all["by"]), (&json!("self_ns"), &json!("arguments")));
    let sum = |of: &Value| -> f64 {
        let own = |row: &Value| (row["in_run"] == "yes").then(|| row["self_ns"].as_f64()).flatten();
        of["rows"].as_array().unwrap().iter().filter_map(own).sum()
    };
    assert_eq!(sum(&all), 13_000.0, "the wall time of both runs");
    for format in ["table", "json", "csv"] {
        let form = ["--format", format, "--filter", "*a*", "--sort", "calls", "--top", "2"];
        let report = output(&dir, &[&["report", "--by", "arguments"], &form[..]].concat());
        assert_eq!(report, output(&dir, &[&["ops"], &form[..]].concat()), "{format}");
    }
}

#[test]
fn each_rank_has_rows() {
    let mut script = ProfileScript::monotonic();
    for rank in 0..2 {
        let process = script.process(100 + rank);
        process.job = Some(Job { rank, size: Some(2) });
        let vm = process.machine("vm 0");
        let op = process.op(vm, Role::Op, "relu", "");
        let thread = process.thread("main");
        for call in 0..3 {
            let long = 5_000 * (u64::from(rank) + 1);
            thread.call(CallScript::op(op, 1_000 + 20_000 * call, long));
        }
    }
    let (_scratch, dir) = script.written();
    let of = |args: &[&str]| -> Value {
        serde_json::from_str(&output(&dir, &[args, &["--format", "json"]].concat())).unwrap()
    };
    let fields = ["op", "rank", "calls", "self_ns"];
    let both = of(&["ops", "--by", "rank"]);
    assert_eq!(rows(&both, &fields), json!([["relu", 1, 3, 30_000.0], ["relu", 0, 3, 15_000.0]]));
    let top = of(&["ops", "--by", "rank", "--top", "1"]);
    assert_eq!(rows(&top, &fields), json!([["relu", 1, 3, 30_000.0]]));
    let process = |op: &Value| op["process"] == 101;
    let ops = top["ops"].as_array().unwrap();
    assert!(ops.len() == 3 && ops.iter().all(process), "the calls of rank 1: {ops:?}");
    let one = of(&["ops", "--rank", "0"]);
    assert_eq!(rows(&one, &["op", "calls", "self_ns"]), json!([["relu", 3, 15_000.0]]));
    let text = output(&dir, &["ops", "--by", "rank", "--width", "80"]);
    let cells = |line: &str| line.split_whitespace().take(3).collect::<Vec<_>>().join(" ");
    let shown: Vec<String> = text.lines().filter(|l| l.starts_with("relu")).map(cells).collect();
    assert_eq!(shown, ["relu 1 3", "relu 0 3"], "{text}");

    let stats = of(&["stats", "--by", "rank"]);
    let means = |op: &Value| -> Value {
        let ranks = op["ranks"].as_array().unwrap().iter();
        ranks.map(|of| json!([of["rank"], of["calls"], of["variables"][0]["mean"]])).collect()
    };
    assert_eq!(means(&stats["ops"][0]), json!([[0, 3, 5_000.0], [1, 3, 10_000.0]]));
    assert_eq!(stats["ops"][0]["all"]["calls"], 6);
    assert_eq!((&stats["ops"][0]["threads"], &stats["asked"]["by"]), (&json!([]), &json!("rank")));
    let text = output(&dir, &["stats", "--by", "rank"]);
    for head in ["all 2 ranks, op relu", "rank 0, op relu", "rank 1, op relu"] {
        assert!(text.contains(&format!("Statistics for {head}:")), "{text}");
    }
    let csv = output(&dir, &["stats", "--by", "rank", "--format", "csv"]);
    let cells: Vec<Vec<&str>> = csv.lines().map(|line| line.split(',').take(4).collect()).collect();
    assert_eq!(cells[0], ["op", "library", "rank", "op_calls"]);
    assert_eq!(
        cells.iter().skip(1).map(|row| (row[2], row[3])).collect::<Vec<_>>(),
        [("", "6"), ("0", "3"), ("1", "3"),]
    );
}
