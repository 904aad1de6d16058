//! Tests `doctor -e`. The texts about a machine are tested in the crate `machine`.

use std::process::{Command, Output};

use serde_json::Value;

fn doctor(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_counterpoint")).arg("doctor").args(args).output().unwrap()
}

fn json(list: &str) -> (Option<i32>, Value) {
    let output = doctor(&["-e", list, "--format", "json"]);
    (output.status.code(), serde_json::from_slice(&output.stdout).unwrap())
}

fn rows(document: &Value) -> Vec<(&str, &str)> {
    let counters = document["counters"].as_array().unwrap();
    counters.iter().map(|c| (c["name"].as_str().unwrap(), c["level"].as_str().unwrap())).collect()
}

#[test]
fn counters_that_work() {
    let (code, document) = json("sim/a,readings=0:5/,sim/b,readings=0:1/");
    assert_eq!(code, Some(0));
    assert_eq!(rows(&document), [("a", "ok"), ("b", "ok")]);
    assert_eq!(document["schema"], "counterpoint.doctor/1");
    let names: Vec<&str> = document["findings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|f| f["name"].as_str().unwrap())
        .collect();
    for name in [
        "kernel",
        "virtualisation",
        "pmu",
        "perf_event_paranoid",
        "capabilities",
        "seccomp",
        "container",
        "counting",
        "clock",
        "/dev/shm",
        "open files",
        "file size",
        "tracefs",
        "agent library",
    ] {
        assert!(names.contains(&name), "{name}: {names:?}");
    }
}

/// An unknown name is a counter that does not work.
#[test]
fn counters_that_do_not_work() {
    let (code, document) =
        json("sim/a,readings=0:5/,page-fualts,{sim/b,readings=0:1/,nowhere/event=1/}:u,nosuch:one");
    assert_eq!(code, Some(1));
    let rows = rows(&document);
    let levels: Vec<&str> = rows.iter().map(|(_, level)| *level).collect();
    let names: Vec<&str> = rows.iter().map(|(name, _)| *name).collect();
    assert_eq!(names[..2], ["a", "page-fualts"]);
    assert_eq!(names[3..], ["nowhere/event=1/:u", "nosuch:one"]);
    assert_eq!((levels[0], levels[1]), ("ok", "problem"));
    assert_eq!(levels[3..], ["problem", "problem"]);
    let unknown = &document["counters"][1];
    assert_eq!(unknown["state"], "unknown counter \"page-fualts\"");
    assert!(unknown["remedy"].as_str().unwrap().contains("page-faults"), "{unknown}");
    for counter in document["counters"].as_array().unwrap() {
        let problem = counter["level"] == "problem";
        assert!(!problem || counter["state"].as_str().unwrap().len() > 5, "{counter}");
    }
}

/// A counter that does not work is a result, but a list that cannot be read is an error.
#[test]
fn lists_that_cannot_be_read() {
    for (list, message) in [
        ("{page-faults", "counterpoint: -e {page-faults: counter list, byte 12: expected"),
        ("page-faults,page-faults", "counterpoint: -e page-faults,page-faults: counter list, byte"),
    ] {
        let output = doctor(&["-e", list]);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{list}: {text}");
        assert!(text.starts_with(message), "{text}");
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn run_names_all_counters_that_do_not_work() {
    let scratch = testkit::Scratch::new();
    let profile = scratch.join("p.cpt");
    let output = Command::new(env!("CARGO_BIN_EXE_counterpoint"))
        .args(["run", "-e", "cs:u,sim/a,readings=0:5/,migrations:u", "-o"])
        .arg(&profile)
        .args(["--", "true"])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{text}");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines[0],
        "counterpoint: cs:u is always 0 with :u, because it happens in the kernel"
    );
    assert_eq!(
        lines[1],
        "counterpoint: migrations:u is always 0 with :u, because it happens in the kernel"
    );
    assert!(lines[2].starts_with("counterpoint: hint: count the kernel's part too"), "{text}");
    assert_eq!(lines.len(), 3, "{text}");
    assert!(!profile.exists());
}
