//! How much of a program's stack recording takes: at most 1 KiB, in a thread's first call and later, on
//! stacks that programs make for `makecontext` and signal handlers; and threads with the smallest
//! stacks live (`tests/programs/small_stacks.h`).

use std::collections::BTreeMap;
use std::process::Command;

use crate::support::{Programs, Recorded, counterpoint, plain};
use crate::torch_ops;

/// Bytes that each kind of stack may lose to us. `cargo xtask tidy --built` holds every entry of the
/// release against the same number.
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

/// Runs the host with each of the options, and without Counterpoint.
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
