//! Tests stock IREE: wheels from pip, and modules that were compiled for a fixed target CPU. The
//! expected counts come from IREE's own profiler (`fixtures/iree/expected.json`).

use std::process::Command;

use crate::support::{Expected, Iree, Recorded, counterpoint, plain};

const FIXTURES: [&str; 6] = ["matmul", "mmst", "mlp", "attn", "tinyloop", "transformer_block"];

fn setup(test: &str) -> Option<(std::path::PathBuf, Iree)> {
    Some((counterpoint(test)?, Iree::new(test)?))
}

fn run_module(iree: &Iree, fixture: &str, system: bool, device: &str, seen: &Expected) -> Command {
    let mut command = Command::new(iree.tool("iree-run-module"));
    command.arg(format!("--module={}", iree.module(fixture, system).display()));
    command.arg(format!("--device={device}")).args(seen.arguments());
    command
}

#[test]
fn every_call_of_every_export_is_counted() {
    let Some((program, iree)) = setup("counts") else { return };
    for fixture in FIXTURES {
        let expected = Expected::of(fixture);
        for system in [false, true] {
            for device in ["local-sync", "local-task"] {
                let what = format!("{fixture} {device} system={system}");
                let mut command = run_module(&iree, fixture, system, device, &expected);
                let recorded = Recorded::run(&program, "page-faults,task-clock", &mut command);
                let alone = plain(&mut command, recorded.directory.path());
                assert!(alone.status.success(), "{what}: {alone:?}");
                assert_eq!(recorded.output.status.code(), Some(0), "{what}: {}", recorded.stderr());
                assert_eq!(recorded.output.stdout, alone.stdout, "{what}");
                assert_eq!(recorded.ops(), expected.ops, "{what}");
                assert!(recorded.losses().is_empty(), "{what}: {:?}", recorded.losses());
                for call in recorded.calls() {
                    let duration: f64 = call["duration_ns"].parse().unwrap();
                    let on_cpu: u64 = call["task-clock"].parse().unwrap();
                    assert!(duration < 1_000.0 || on_cpu > 0, "{what}: {call:?}");
                }
            }
        }
    }
}

/// The tools are the variant of `iree-run-module` with Tracy, and `iree-benchmark-module`, which
/// runs the module at least seven times.
#[test]
fn other_tools_of_the_wheel() {
    let Some((program, iree)) = setup("tools") else { return };
    let expected = Expected::of("mlp");
    let module = format!("--module={}", iree.module("mlp", false).display());
    let mut tracy = Command::new(iree.tracy_tool("iree-run-module"));
    tracy.args([&module, "--device=local-task"]).args(expected.arguments());
    let recorded = Recorded::run(&program, "page-faults", &mut tracy);
    assert_eq!(recorded.ops(), expected.ops, "{}", recorded.stderr());

    let mut benchmark = Command::new(iree.tool("iree-benchmark-module"));
    benchmark.args([&module, "--device=local-sync", "--benchmark_min_time=7x"]);
    benchmark.args(expected.arguments());
    let recorded = Recorded::run(&program, "none", &mut benchmark);
    for (op, (calls, _)) in recorded.ops() {
        let once = expected.ops[&op].0;
        assert_eq!(calls % once, 0, "{op}: {calls} calls are not a multiple of {once}");
        assert!(calls >= 7 * once, "{op}: {calls}");
    }
}

/// A Python process loads and unloads a module twenty times. The profile's metadata must not grow
/// with each load.
#[test]
fn python_loads_and_unloads() {
    let Some((program, iree)) = setup("python") else { return };
    const SCRIPT: &str = include_str!("stock_iree.py");
    let expected = Expected::of("mlp");
    for device in ["local-sync", "local-task"] {
        let mut command = Command::new(iree.tool("python"));
        command.args(["-c", SCRIPT, device]).arg(iree.module("mlp", false));
        let recorded = Recorded::run(&program, "page-faults,task-clock", &mut command);
        let alone = plain(&mut command, recorded.directory.path());
        assert!(alone.status.success(), "{}", String::from_utf8_lossy(&alone.stderr));
        assert_eq!(recorded.output.stdout, alone.stdout, "{}", recorded.stderr());
        for (op, (calls, dispatches)) in &expected.ops {
            assert_eq!(recorded.ops()[op], (20 * calls, 20 * dispatches), "{device} {op}");
        }
        assert!(recorded.losses().is_empty(), "{:?}", recorded.losses());
        let libraries = recorded.profile().processes[0].libraries.len();
        assert_eq!(libraries, 1, "the same module is one library, however often it is loaded");
    }
}

/// The process never loads a module of IREE.
#[test]
fn a_process_without_executables_leaves_no_trace() {
    let Some((program, iree)) = setup("bystander") else { return };
    let mut command = Command::new(iree.tool("python"));
    command.args(["-c", "import numpy, json, ctypes; print('fine')"]);
    let recorded = Recorded::run(&program, "page-faults", &mut command);
    assert_eq!(recorded.stdout(), "fine\n");
    assert!(recorded.profile().processes.is_empty());
}

/// A tracepoint for system calls also counts the system calls with which Counterpoint reads
/// counters. Matrix products make no system calls, so the counts must be 0 after the report has
/// subtracted Counterpoint's own system calls.
#[test]
fn own_readings_are_reported() {
    let Some((program, iree)) = setup("own-readings") else { return };
    if !std::path::Path::new("/sys/kernel/tracing/events/raw_syscalls/sys_enter/id").exists() {
        return crate::support::skip("own-readings", "tracefs is not readable");
    }
    let expected = Expected::of("matmul");
    let filter = format!("raw_syscalls:sys_enter/filter=\"id != {}\"/", libc::SYS_read);
    for (list, column, more, said) in [
        ("raw_syscalls:sys_enter", "raw_syscalls:sys_enter", 1, "1 more in each call"),
        ("raw_syscalls:sys_exit,task-clock", "raw_syscalls:sys_exit", 1, "1 more in each call"),
        ("{raw_syscalls:sys_enter},{task-clock}", "raw_syscalls:sys_enter", 2, "up to 2 more"),
        ("{task-clock},{raw_syscalls:sys_exit}", "raw_syscalls:sys_exit", 2, "up to 2 more"),
        (&filter, "raw_syscalls:sys_enter", 0, "unless its filter leaves them out"),
        ("syscalls:sys_enter_read", "syscalls:sys_enter_read", 1, "subtracts them"),
    ] {
        let mut command = run_module(&iree, "matmul", false, "local-sync", &expected);
        let recorded = Recorded::run(&program, list, &mut command);
        assert_eq!(recorded.ops(), expected.ops, "{}", recorded.stderr());
        assert!(recorded.stderr().contains(said), "{list}: {}", recorded.stderr());
        let report = recorded.report(&[]);
        let notes = report["notes"].to_string();
        assert!(notes.contains("the recorder's own readings"), "{list}: {notes}");
        let total = |report: &serde_json::Value| {
            let counters = report["rows"][0]["counters"].as_array().unwrap();
            let mut named =
                counters.iter().filter(|c| c["name"].as_str().unwrap().starts_with(column));
            named.next().unwrap()["total"].as_f64().unwrap()
        };
        let calls = report["rows"][0]["calls"].as_u64().unwrap();
        let raw = total(&recorded.report(&["--raw"]));
        assert_eq!((raw, total(&report)), ((calls * more) as f64, 0.0), "{list}");
    }
}
