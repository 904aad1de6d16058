//! How the table of `ops` shows its rows: names that can be told apart, the cost, and values that
//! are mostly the probe's own. Numbers are computed on paper; one tick is 1 ns.

use std::collections::HashSet;
use std::path::Path;
use std::process::Command;

use record::meta::{Calibration, Role};
use serde_json::Value;
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

/// One op with five different shapes, one call each, next to another op.
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

#[test]
fn ops_of_one_name_can_be_told_apart_at_every_width() {
    let (_scratch, dir) = shapes().written();
    for width in [40, 60, 80, 100, 120, 200] {
        let text = output(&dir, &["ops", "--width", &width.to_string()]);
        // The text before the times, which are all the same here.
        let names =
            text.lines().filter_map(|line| line.split_once("5.00 µs")).map(|(name, _)| name);
        let names: Vec<&str> = names.collect();
        assert_eq!(names.len(), 6, "at {width}:\n{text}");
        assert_eq!(names.iter().collect::<HashSet<_>>().len(), 6, "at {width}:\n{text}");
        assert!(text.lines().all(|line| line.chars().count() <= width), "at {width}:\n{text}");
        assert_eq!(text.matches("relu (").count(), 0, "one name says enough:\n{text}");
    }
    // A difference in the middle, which does not fit into the column, is kept, too.
    let text = output(&dir, &["ops", "--width", "200"]);
    assert!(text.contains("  arguments  "), "{text}");
}

/// Fifty consecutive ops. There are 700 ticks from the end of one to the begin of the next, of
/// which the bracket explains 300 − 20, so the machine's own way takes 420 each. Every probe takes
/// 300.
#[test]
fn the_cost_equals_that_of_the_report() {
    let mut script = ProfileScript::monotonic();
    let process = script.process(1);
    let vm = process.machine("vm");
    let ops = ["f", "g"].map(|name| process.op(vm, Role::Op, name, ""));
    process.calibrations.push(Calibration {
        calls: 200,
        inside_ticks: 20,
        total_ticks: 300,
        ..Calibration::default()
    });
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
    // Between two ops there are 420 ns besides the bracket: four fifths of them, and half to all.
    let whole = &["report", "--verbose"][..];
    let ops = &["ops", "--verbose"][..];
    let price = "announcing ops to the recorder 16.8 µs (10.5 µs to 21.0 µs)";
    let price = format!("50 calls at 300 ns each, {price}");
    for view in [ops, whole] {
        let text = output(&dir, &[view, &["--width", "200"]].concat());
        assert!(text.contains(&price), "{text}");
    }
    // Both say the same in one line.
    let line = |view: &str| {
        let text = output(&dir, &[view, "--width", "200"]);
        text.lines().find(|line| line.starts_with("price: ")).unwrap().to_owned()
    };
    assert_eq!(line("ops"), line("report"));
}

/// An empty call reads 30 of the counter: 60 % of what `f` read, and 30 % of what `g` read.
#[test]
fn values_that_are_mostly_the_probes_own_are_marked() {
    let mut script = ProfileScript::monotonic();
    script.counter("page-faults", 0);
    let process = script.process(1);
    let vm = process.machine("vm");
    let ops = ["f", "g"].map(|name| process.op(vm, Role::Op, name, ""));
    process.calibrations.push(Calibration {
        calls: 200,
        counters: 1,
        inside_ticks: 20,
        total_ticks: 300,
        inside_values: vec![30],
        ..Calibration::default()
    });
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
