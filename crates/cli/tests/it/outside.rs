//! Tests with `perf stat` that the recorder reads the counters only once at the start of a call and
//! once at its end.

use std::path::Path;
use std::process::Command;

use crate::support::*;

/// Records a program that calls a function `calls` times, and returns the number of its `read`
/// system calls. Returns `None` if `perf stat` cannot count them.
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

/// The recorder makes one `read` system call at the start of each recorded call, and one at its
/// end.
#[test]
fn each_call_is_two_readings_and_no_more() {
    let Some(program) = counterpoint("outside") else { return };
    let mut tried = Command::new("perf");
    tried.args(["stat", "-e", "syscalls:sys_enter_read", "true"]);
    if !tried.output().is_ok_and(|output| output.status.success()) {
        return skip("outside", "perf stat -e syscalls:sys_enter_read does not work here");
    }
    // At most 1,000 calls are made. Their records fit into one page of shared memory, so the
    // recorder makes no system calls to get more pages.
    let more = 1 + u64::from(std::process::id()) % 700;
    let counts = (reads(&program, 300), reads(&program, 300 + more));
    let (Some(few), Some(many)) = counts else {
        return skip("outside", "perf stat counted nothing under Counterpoint");
    };
    assert_eq!(many - few, 2 * more, "{few} reads for 300 calls, {many} for {more} more");
}
