//! Tests how much of a program's stack the recorder uses. Threads with the smallest possible stacks
//! must not crash (`tests/programs/small_stacks.h`).

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::support::{Programs, Recorded, counterpoint, plain};
use crate::torch_ops;

/// The recorder may use at most this many bytes of a stack for `makecontext` or for signal
/// handlers. `cargo xtask tidy --built` applies the same limit to each entry point of the release
/// build.
const MOST: u64 = 1024;

fn used(output: &std::process::Output, what: &str) -> BTreeMap<String, u64> {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{what}: {:?} {text}", output.status);
    assert!(text.contains("smallest thread"), "{what}: {text}");
    text.lines()
        .filter_map(|line| line.split_once(' '))
        .filter_map(|(kind, bytes)| Some((kind.to_owned(), bytes.parse().ok()?)))
        .collect()
}

/// Runs a test program with and without Counterpoint, and compares how many bytes of its stacks are
/// used.
fn compare(what: &str, make: &dyn Fn() -> Command, options: &[(&str, &[&str])]) {
    let program = counterpoint(what).unwrap_or_else(|| panic!("{what}: no program"));
    for (events, options) in options {
        let with = Recorded::run_with(&program, events, options, make().env("LD_BIND_NOW", "1"));
        let without = plain(make().env("LD_BIND_NOW", "1"), with.directory.path());
        let what = format!("{what} {events} {options:?}");
        let (with, without) = (used(&with.output, &what), used(&without, &what));
        assert_eq!(with.len(), 2, "{what}: {with:?}");
        for (kind, bytes) in with {
            let own = without[&kind];
            assert!(bytes <= own + MOST, "{what}: {kind} {bytes} bytes, the program's own {own}");
        }
    }
}

#[test]
fn instrumented_loops() {
    if counterpoint("stacks::instrumented_loops").is_none() {
        return;
    }
    for flags in [&[][..], &["-DMODE=1"], &["-DMODE=3"]] {
        let host = Programs::get().loops(&format!("loops_host{}", flags.concat()), flags);
        let make = || {
            let mut command = Command::new(&host);
            command.arg("stacks");
            command
        };
        let options: &[(&str, &[&str])] =
            &[("none", &["--loops"]), ("page-faults:u,task-clock:u", &["--loops"])];
        compare(&format!("loops {flags:?}"), &make, options);
    }
}

#[test]
fn dispatches() {
    if counterpoint("stacks::dispatches").is_none() {
        return;
    }
    let programs = Programs::get();
    let make = || {
        let mut command = Command::new(&programs.host);
        command.arg(&programs.library).arg("stacks");
        command
    };
    let options: &[(&str, &[&str])] = &[
        ("none", &[]),
        ("page-faults:u,task-clock:u", &[]),
        ("page-faults:u", &["--budget", "2%"]),
    ];
    compare("dispatches", &make, options);
}

#[test]
fn ops_of_tvm() {
    if counterpoint("stacks::ops_of_tvm").is_none() {
        return;
    }
    let host = Programs::get().other("tvm_host");
    let make = || {
        let mut command = Command::new(&host);
        command.args(["-", "stacks"]);
        command
    };
    let options: &[(&str, &[&str])] = &[
        ("none", &[]),
        ("page-faults:u,task-clock:u", &[]),
        ("page-faults:u", &["--budget", "2%"]),
    ];
    compare("tvm", &make, options);
}

#[test]
fn ops_of_pytorch() {
    const TEST: &str = "stacks::ops_of_pytorch";
    if counterpoint(TEST).is_none() || torch_ops::host(TEST).is_none() {
        return;
    }
    let make = || {
        let mut command = torch_ops::host(TEST).expect("as above");
        command.arg("stacks");
        command
    };
    let options: &[(&str, &[&str])] = &[
        ("none", &[]),
        ("page-faults:u,task-clock:u", &[]),
        ("page-faults:u", &["--budget", "2%"]),
    ];
    compare("torch", &make, options);
}

/// Loops run on threads with stacks of 16 KiB, and on stacks without a guard page, directly above
/// memory that they must not overwrite.
#[test]
fn loops_of_clang_on_small_stacks() {
    let test = "stacks::loops_of_clang";
    let Some(program) = counterpoint(test) else { return };
    let Some(clang) = testkit::c::clang(15) else {
        return testkit::skip(test, "no clang of LLVM 15 or later");
    };
    let scratch = testkit::Scratch::new();
    let source = Path::new(env!("CARGO_MANIFEST_DIR"));
    let source = source.join("../../tests/programs/loops/small_stacks.c");
    let [text, counted, host] =
        ["small.ll", "small.lwp.ll", "small"].map(|name| scratch.join(name));
    let done = |command: &mut Command| {
        let output = command.output().unwrap();
        assert!(output.status.success(), "{command:?}: {output:?}");
    };
    done(Command::new(&clang).args(["-O1", "-g", "-S", "-emit-llvm", "-o"]).arg(&text).arg(source));
    done(Command::new(&program).args(["loops", "instrument", "-o"]).arg(&counted).arg(&text));
    let again = ["-O1", "-Xclang", "-disable-llvm-passes", "-lpthread", "-o"];
    done(Command::new(&clang).args(again).arg(&host).arg(&counted));
    // Every ten threads add 0 + 1 + 3 + 6 + … + 45 = 165 to the printed total, in 1 + 2 + … + 10 =
    // 55 iterations.
    let cases = [
        ("after", "2000", "33000\n", 2000, 11_000),
        ("together", "200", "3300\n", 200, 1100),
        ("context", "2048", "45, 0 bytes overwritten\n", 1, 10),
        ("signal", "8192", "190, 0 bytes overwritten\n", 1, 20),
    ];
    for (mode, number, says, hits, iterations) in cases {
        let make = || {
            let mut command = Command::new(&host);
            command.args([mode, number]);
            command
        };
        assert_eq!(plain(&mut make(), scratch.path()).stdout, says.as_bytes(), "{mode} alone");
        for (events, options) in [
            ("none", &["--loops"][..]),
            ("page-faults:u,task-clock:u", &["--loops"]),
            ("none", &[]),
        ] {
            let recorded = Recorded::run_with(&program, events, options, &mut make());
            let what = format!("{mode} {events} {options:?}: {}", recorded.stderr());
            assert_eq!(recorded.output.status.code(), Some(0), "{what}");
            assert_eq!(recorded.stdout(), says, "{what}");
            if !options.is_empty() {
                assert!(recorded.losses().is_empty(), "{what}: {:?}", recorded.losses());
                assert_eq!(of_sum(&recorded), [hits, hits, iterations], "{what}");
            }
        }
    }
}

/// Returns the hits of the function `sum`, and the hits and iterations of its loop.
fn of_sum(recorded: &Recorded) -> [u64; 3] {
    let mut report = Command::new(&recorded.program);
    report.args(["loops", "report", "--format", "json"]).arg(recorded.path());
    let report: Value = serde_json::from_slice(&report.output().unwrap().stdout).unwrap();
    let rows = report["modules"][0]["rows"].as_array().unwrap();
    let of = |kind: &str| rows.iter().find(|row| row["function"] == "sum" && row["kind"] == kind);
    let (function, inside) = (of("function").unwrap(), of("loop").unwrap());
    [&function["hits"], &inside["hits"], &inside["iterations"]].map(|n| n.as_u64().unwrap())
}
