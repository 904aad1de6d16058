//! Tests that the memory of a view grows with the number of values in a profile, and not with the
//! number of rows times the number of metrics. docs/security.md states the number of bytes for each
//! value.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};

use profile::manifest::MetricInfo;
use testkit::{CallScript, ProfileScript, Scratch};

const OPS: u32 = 800;
/// Even for equal contents, the memory of two processes may differ by this number of bytes.
const NOISE: u64 = 24 << 20;

/// Runs the command, and returns its peak resident memory and the number of bytes that it printed.
fn peak(words: &[&str], out: &Path) -> (u64, u64) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_counterpoint"));
    command.args(words).stdout(File::create(out).unwrap()).stderr(Stdio::null());
    #[expect(clippy::zombie_processes, reason = "waited for below, to learn what it used")]
    let child = command.spawn().unwrap();
    let mut status = 0;
    // SAFETY: nobody else waits for the child, and `status` and `usage` outlive the call.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        assert_eq!(libc::wait4(child.id() as i32, &mut status, 0, &mut usage), child.id() as i32);
        usage
    };
    assert_eq!(status, 0, "{words:?}");
    (usage.ru_maxrss as u64 * 1024, out.metadata().unwrap().len())
}

/// Writes a profile with this number of metrics. If `read` is set, the calls have values of the two
/// counters.
fn make(at: &Path, metrics: u32, read: bool) {
    let mut script = ProfileScript::monotonic();
    script.counter("page-faults", 0);
    script.counter("minor-faults", 0);
    let metric = |number: u32| MetricInfo {
        name: format!("m{number}"),
        expression: format!("page-faults / minor-faults * {number}"),
    };
    script.manifest.metrics = (1..=metrics).map(metric).collect();
    let process = script.process(1);
    let names: Vec<String> = (0..OPS).map(|op| format!("op{op}")).collect();
    process.library("m", &names.iter().map(String::as_str).collect::<Vec<_>>());
    let thread = process.thread("main");
    for op in 0..OPS {
        let call = CallScript::new(op, u64::from(op) * 1_000, 500);
        thread.call(if read { call.group(500, &[3, 2]) } else { call.unread() });
    }
    script.write(at);
}

#[test]
fn metrics_without_values_take_no_memory() {
    let scratch = Scratch::new();
    let [none, absent, known] = ["none", "absent", "known"].map(|name| scratch.join(name));
    make(&none, 0, true);
    make(&absent, 2_000, false);
    make(&known, 2_000, true);
    // A view shows the first 256 metrics.
    let shown = 256;
    for format in ["csv", "json", "table"] {
        let words = |profile: &Path| {
            let words = ["report", profile.to_str().unwrap(), "--format", format, "--width", "80"];
            words.map(str::to_owned)
        };
        let peak = |profile: &Path| {
            let words = words(profile);
            peak(&words.each_ref().map(String::as_str), &scratch.join("out"))
        };
        let (base, _) = peak(&none);
        let (of_absent, _) = peak(&absent);
        let (of_known, _) = peak(&known);
        let values = u64::from(OPS) * shown;
        // All cells of a table are in memory as texts before the table is printed.
        let texts = if format == "table" { 48 * values } else { 0 };
        assert!(of_absent < base + NOISE + texts, "{format}: {base} {of_absent}");
        assert!(of_known < base + NOISE + texts + 128 * values, "{format}: {base} {of_known}");
    }
}
