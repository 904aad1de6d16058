//! Tests with `perf stat` that the code at the start and the end of a call runs once for each call.

use std::path::Path;
use std::process::Command;

use crate::support::*;

/// Returns the number of `read` system calls. `None` if `perf stat` cannot count them.
fn reads(program: &Path, calls: u64) -> Option<u64> {
    let programs = Programs::get();
    let scratch = testkit::Scratch::new();
    let result = scratch.join("reads.csv");
    let mut perf = Command::new("perf");
    perf.args(["stat", "-x", ",", "-e", "syscalls:sys_enter_read", "-o"]).arg(&result).arg("--");
    perf.arg(&programs.host).arg(&programs.library).args(["calls", &calls.to_string()]);
    let recorded = Recorded::run(program, "page-faults:u,task-clock:u", &mut perf);
    let report = recorded.report(&[]);
    let text = std::fs::read_to_string(result).ok()?;
    let count = text.lines().find(|line| line.contains("sys_enter_read"))?.split(',').next()?;
    let count = count.parse().ok()?;
    assert_eq!(report["total"]["calls"], calls, "{report}");
    Some(count)
}

/// The start and the end of a call make one `read` each.
#[test]
fn each_call_is_two_readings_and_no_more() {
    let Some(program) = counterpoint("outside") else { return };
    let mut tried = Command::new("perf");
    tried.args(["stat", "-e", "syscalls:sys_enter_read", "true"]);
    if !tried.output().is_ok_and(|output| output.status.success()) {
        return skip("outside", "perf stat -e syscalls:sys_enter_read does not work here");
    }
    // The calls fit into one page of records.
    let more = 1 + u64::from(std::process::id()) % 700;
    let counts = (reads(&program, 300), reads(&program, 300 + more));
    let (Some(few), Some(many)) = counts else {
        return skip("outside", "perf stat counted nothing under Counterpoint");
    };
    assert_eq!(many - few, 2 * more, "{few} reads for 300 calls, {many} for {more} more");
}
