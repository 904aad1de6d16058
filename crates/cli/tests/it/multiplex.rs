//! Tests counters that take turns (multiplexing). With `run --multiplex`, `report` and `stats`
//! scale the values of such counters and mark them as estimates. The expected values were computed
//! on paper.

use std::path::Path;

use crate::support::*;
use serde_json::json;
use testkit::{CallScript, Golden, ProfileScript, Scratch};

const PROGRAM: &str = env!("CARGO_BIN_EXE_counterpoint");

/// Returns a profile of one op with four calls, and two groups of counters that take turns.
///
/// ```text
///            cycles                       instructions
///  call 1    100, all the time            never on
///  call 2    9 in 400 of 1,000 ns: 22.5   10 in 500 of 1,000 ns: 20
///  call 3    never on                     8, all the time
///  call 4    not read                     not read
/// ```
fn turns(multiplex: bool) -> ProfileScript {
    let mut script = ProfileScript::monotonic();
    script.counter("cycles", 0);
    script.counter("instructions", 1);
    script.manifest.multiplex = multiplex;
    let process = script.process(4711);
    process.library("mlp_linked", &["matmul"]);
    let call = |at| CallScript::new(0, at, 1_000).on(1, 0);
    process
        .thread("main")
        .call(call(1_000).group(1_000, &[100]).scaled(1_000, 0, &[0]))
        .call(call(3_000).scaled(1_000, 400, &[9]).scaled(1_000, 500, &[10]))
        .call(call(5_000).scaled(1_000, 0, &[0]).group(1_000, &[8]))
        .call(call(7_000).unread().unread());
    script
}

fn host(mode: &str) -> std::process::Command {
    let programs = Programs::get();
    let mut command = std::process::Command::new(&programs.host);
    command.arg(&programs.library).args(mode.split(' '));
    command
}

fn golden(scratch: &Scratch) -> Golden {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/multiplex");
    Golden::new(PROGRAM, root).scrub(scratch.path().display().to_string(), "DIR")
}

#[test]
fn estimates_are_scaled_and_marked_and_have_their_coverage() {
    let (scratch, dir) = turns(true).written();
    let (golden, dir) = (golden(&scratch), dir.to_str().unwrap());
    golden.check("report", 0, &["report", dir]);
    golden.check("report-csv", 0, &["report", dir, "--format", "csv"]);
    golden.check("stats", 0, &["stats", dir, "--no-table", "--buckets", "2"]);
    let report = golden.json(&["report", dir, "--format", "json"]);
    assert_eq!(report["profile"]["multiplex"], true);
    let cycles = json!({"name": "cycles", "total": 123, "per_call": 61.5, "calls": 2,
        "estimated_calls": 1, "covered": 1_400.0 / 3_000.0, "empty_share": null});
    let instructions = json!({"name": "instructions", "total": 28, "per_call": 14.0, "calls": 2,
        "estimated_calls": 1, "covered": 0.5, "empty_share": null});
    assert_eq!(report["rows"][0]["counters"], json!([cycles, instructions]));
    assert_eq!(report["losses"], json!([]), "estimates were requested");
    // The columns of `export` contain no scaled values.
    let export = golden.json(&["export", dir, "--format", "json"]);
    let of = |call: usize, column: &str| export["calls"][call][column].clone();
    assert_eq!(of(1, "cycles"), json!(9));
    assert_eq!([of(1, "group0_enabled_ns"), of(1, "group0_running_ns")], [1_000, 400]);
    assert_eq!(of(2, "cycles"), json!(null), "a counter that was never on is missing, not 0");
    assert_eq!(of(2, "group0_running_ns"), json!(0));
}

/// Without `--multiplex`, the sums of counters leave out multiplexed calls, which are reported as a
/// loss.
#[test]
fn nothing_is_scaled_silently() {
    let (scratch, dir) = turns(false).written();
    let report = golden(&scratch).json(&["report", dir.to_str().unwrap(), "--format", "json"]);
    let counters = &report["rows"][0]["counters"];
    assert_eq!(
        counters[0],
        json!({"name": "cycles", "total": 100, "per_call": 100.0, "calls": 1, "empty_share": null})
    );
    assert_eq!(counters[1]["total"], 8);
    assert_eq!(report["losses"][0]["name"], "multiplexed_call");
    assert_eq!(report["losses"][0]["count"], 3);
}

/// A simulated counter (`sim/…/`) returns one of its readings at the start of a call and the next
/// one at its end.
#[test]
fn a_run_whose_counters_take_turns() {
    let Some(program) = counterpoint("turns") else { return };
    // The counter `part` repeats a pattern of three calls: it is on for half of the first call and
    // counts 10, is off during the second call, and is on for all of the third call and counts 8.
    let events = "sim/part,readings=0:10@500:0:6@0:0:8/,{sim/whole,readings=0:7/}";
    let recorded = Recorded::run_with(&program, events, &["--multiplex"], &mut host("calls 300"));
    let report = recorded.report(&[]);
    let mut counters = report["rows"][0]["counters"].clone();
    // `empty_share` (the part of the value that an empty call counts, too) depends on which of the
    // readings the measured empty calls got, so it is not compared.
    assert!(counters[0].as_object_mut().unwrap().remove("empty_share").is_some());
    let exact = |n: u64| json!({"value": n as f64, "low": n as f64, "high": n as f64});
    assert_eq!(
        counters[0].as_object_mut().unwrap().remove("intervals"),
        Some(json!({"total": exact(2_800), "per_call": exact(14)}))
    );
    let expected = json!({"name": "part", "total": 100 * 20 + 100 * 8, "per_call": 14.0,
        "calls": 200, "estimated_calls": 100, "covered": 0.5});
    assert_eq!(counters[0], expected, "{report}");
    assert_eq!(counters[1]["total"], 300 * 7);
    assert_eq!(counters[1]["estimated_calls"], 0);
    assert_eq!(counters[1]["covered"], 1.0);
}

/// The values of a group in error state are missing and not 0.
#[test]
fn a_group_in_error_state_is_missing_and_a_loss() {
    let Some(program) = counterpoint("error-state") else { return };
    let events = "sim/fails,readings=0:10:0:6!/,{sim/works,readings=0:7/}";
    let recorded = Recorded::run(&program, events, &mut host("calls 200"));
    let report = recorded.report(&[]);
    let counters = &report["rows"][0]["counters"];
    assert_eq!(counters[0]["total"], 100 * 10, "{report}");
    assert_eq!(counters[0]["calls"], 100);
    assert_eq!(counters[1]["total"], 200 * 7);
    let losses = report["losses"].as_array().unwrap();
    let lost = losses.iter().find(|loss| loss["name"] == "counter_read_failed").unwrap();
    assert_eq!(lost["count"], 100);
}
