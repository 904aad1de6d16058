//! Tests `report --by site` with stock IREE: a site is a place in the model that launches one
//! dispatch in each run of the model. The results are compared with sums over `counterpoint
//! export`, and with the counts of IREE's own profiler.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::Value;

use crate::support::{Expected, Iree, Recorded, counterpoint};

const PROGRAM: &str = env!("CARGO_BIN_EXE_counterpoint");
const RUNS: u64 = 20;

fn record(test: &str) -> Option<(Recorded, Expected)> {
    let (program, iree) = (counterpoint(test)?, Iree::new(test)?);
    let expected = Expected::of("transformer_block");
    let mut command = Command::new(iree.tool("iree-benchmark-module"));
    command.arg(format!("--module={}", iree.module("transformer_block", false).display()));
    command.arg("--device=local-task").args(expected.arguments());
    command.arg(format!("--benchmark_min_time={RUNS}x"));
    Some((Recorded::run(&program, "none", &mut command), expected))
}

fn shown(recorded: &Recorded, options: &[&str]) -> Value {
    let mut report = Command::new(PROGRAM);
    report.arg("report").arg(recorded.path()).args(["--format", "json"]).args(options);
    let output = report.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Returns a map for each row of `counterpoint export`, from the names of the columns to the row's
/// fields.
fn calls(recorded: &Recorded) -> Vec<BTreeMap<String, String>> {
    let mut export = Command::new(PROGRAM);
    export.arg("export").arg(recorded.path()).args(["--format", "csv"]);
    let text = String::from_utf8(export.output().unwrap().stdout).unwrap();
    let mut lines = text.lines().map(|line| line.split(',').map(str::to_owned));
    let header: Vec<String> = lines.next().unwrap().collect();
    lines.map(|line| header.iter().cloned().zip(line).collect()).collect()
}

fn number(of: &BTreeMap<String, String>, column: &str) -> u64 {
    of[column].parse().unwrap_or_else(|_| panic!("{column} of {of:?}"))
}

#[test]
fn the_sites_of_a_transformer_block() {
    let Some((recorded, expected)) = record("sites") else { return };
    let report = shown(&recorded, &["--by", "site", "--raw", "--sort", "site"]);
    let rows = report["rows"].as_array().unwrap();
    let in_one_run: u64 = expected.ops.values().map(|(_, dispatches)| dispatches).sum();
    assert_eq!(rows.len() as u64, in_one_run, "{report:#}");
    // IREE's benchmark tool also runs the model before it measures, so there can be more than
    // `RUNS` runs.
    let runs = rows[0]["dispatches"].as_u64().unwrap();
    assert!(runs >= RUNS, "{runs}");
    let mut sites: BTreeMap<&str, u64> = BTreeMap::new();
    for (place, row) in (1..).zip(rows) {
        let op = row["op"].as_str().unwrap();
        let (workgroups, dispatches) = expected.ops[op];
        assert_eq!(row["site"], place);
        assert_eq!(row["sites"], in_one_run);
        assert_eq!(row["dispatches"], runs);
        assert_eq!(row["workgroups"], runs * workgroups / dispatches, "{row}");
        assert_eq!(row["incomplete"], 0);
        *sites.entry(op).or_default() += 1;
    }
    for (op, (_, dispatches)) in &expected.ops {
        assert_eq!(sites[op.as_str()], *dispatches, "{op}");
    }

    // The test now computes the times of each site from the exported calls, and compares the report
    // with them.
    let mut found: BTreeMap<u64, (String, u64, u64, BTreeMap<u64, u64>)> = BTreeMap::new();
    let mut threads = BTreeSet::new();
    for call in calls(&recorded) {
        let (begin, ticks) = (number(&call, "start_ticks"), number(&call, "duration_ticks"));
        let of = found
            .entry(number(&call, "dispatch"))
            .or_insert_with(|| (call["op"].clone(), u64::MAX, 0, BTreeMap::new()));
        assert_eq!(of.0, call["op"]);
        (of.1, of.2) = (of.1.min(begin), of.2.max(begin + ticks));
        *of.3.entry(number(&call, "thread")).or_default() += ticks;
        threads.insert(number(&call, "thread"));
    }
    assert_eq!(found.len() as u64, runs * in_one_run);
    let ns = report["profile"]["clock"]["ns_per_tick"].as_f64().unwrap();
    let near = |a: f64, b: f64| (a - b).abs() <= 1e-9 * a.abs().max(b.abs()).max(1.0);
    let mut end = 0;
    let mut sums = vec![(0.0, 0.0, 0.0, 0.0); rows.len()];
    for (place, (_, begin, last, of_threads)) in found.values().enumerate() {
        let sum = &mut sums[place % rows.len()];
        let inside: u64 = of_threads.values().sum();
        sum.0 += (last - begin) as f64;
        sum.1 += inside as f64;
        sum.2 += *of_threads.values().max().unwrap() as f64;
        sum.3 += if end == 0 { 0.0 } else { begin.saturating_sub(end) as f64 };
        end = end.max(*last);
    }
    for ((row, (wall, inside, busiest, gap)), at) in rows.iter().zip(sums).zip(0u64..) {
        let value = |name: &str| row[name].as_f64().unwrap();
        assert!(near(value("wall_ns"), wall * ns), "{row} {wall}");
        assert!(near(value("workers_ns"), inside * ns), "{row} {inside}");
        assert!(near(value("efficiency"), inside / wall / threads.len() as f64), "{row}");
        let each = row["workgroups"].as_u64().unwrap() / runs;
        let equal = inside / each.min(threads.len() as u64) as f64;
        assert!(near(value("imbalance"), (busiest / equal).max(1.0)), "{row}");
        let gaps = runs - u64::from(at == 0);
        assert!(near(value("gap_ns"), gap * ns / gaps as f64), "{row} {gap}");
    }
    let by_op = shown(&recorded, &["--raw"]);
    for op in by_op["rows"].as_array().unwrap() {
        let of_op = rows.iter().filter(|row| row["op"] == op["op"]);
        let sum: f64 = of_op.map(|row| row["workers_ns"].as_f64().unwrap()).sum();
        assert!(near(sum, op["total_ns"].as_f64().unwrap()), "{op}");
    }
    // The dispatches are not nested, so the top level of a tree has the same rows as the report by
    // op.
    let tree = shown(&recorded, &["--tree", "--raw"]);
    let of_tree = tree["rows"].as_array().unwrap();
    assert_eq!(of_tree.len(), by_op["rows"].as_array().unwrap().len());
    for (node, op) in of_tree.iter().zip(by_op["rows"].as_array().unwrap()) {
        assert_eq!((&node["name"], &node["calls"]), (&op["op"], &op["calls"]));
        assert_eq!((&node["total_ns"], &node["self_ns"]), (&op["total_ns"], &op["self_ns"]));
    }
}
