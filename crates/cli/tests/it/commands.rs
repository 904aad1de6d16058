//! Tests the texts of the command line: help, JSON and error messages. Golden files contain no
//! times, no paths, and nothing that depends on the machine.

use std::path::Path;

use testkit::{Golden, Scratch};

fn golden() -> Golden {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/commands");
    Golden::new(env!("CARGO_BIN_EXE_counterpoint"), golden)
}

#[test]
fn help_of_every_command() {
    let golden = golden();
    golden.check("help", 0, &["--help"]);
    for command in [
        "run",
        "report",
        "ops",
        "stats",
        "explain",
        "critical-path",
        "diff",
        "export",
        "recover",
        "roofline",
        "list",
        "doctor",
        "env",
    ] {
        golden.check(&format!("help-{command}"), 0, &[command, "--help"]);
    }
    for command in ["export", "check", "merge"] {
        golden.check(&format!("help-trace-{command}"), 0, &["trace", command, "--help"]);
    }
    for command in ["instrument", "compile-iree", "report"] {
        golden.check(&format!("help-loops-{command}"), 0, &["loops", command, "--help"]);
    }
    for command in ["list", "check", "run", "pause", "resume", "flush"] {
        golden.check(&format!("help-plugin-{command}"), 0, &["plugin", command, "--help"]);
    }
    golden.check("no-command", 2, &[]);
}

/// A message says what failed, on what and why, and what to do about it.
#[test]
fn errors_before_anything_starts() {
    let scratch = Scratch::new();
    let at = |name: &str| scratch.join(name).display().to_string();
    let golden = golden().scrub(scratch.path().display().to_string(), "DIR");
    let out = at("out.cpt");
    let started = at("started");
    let run = |more: &[&str]| {
        let mut words = vec!["run", "-o", out.as_str()];
        words.extend(more);
        words.extend(["--", "touch", started.as_str()]);
        words.into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    let check = |name: &str, words: &[String]| {
        golden.check(name, 2, &words.iter().map(String::as_str).collect::<Vec<_>>());
        assert!(!Path::new(&out).exists(), "{name} created a profile");
        assert!(!Path::new(&started).exists(), "{name} started the program");
    };
    check("error-unknown-counter", &run(&["-e", "page-faults,cycels"]));
    check("error-unknown-modifier", &run(&["-e", "page-faults:z"]));
    check("error-twice", &run(&["-e", "page-faults,page-faults"]));
    check("error-syntax", &run(&["-e", "{page-faults"]));
    check("error-simulated", &run(&["-e", "sim/a,readings=x/"]));
    let nowhere = at("no/such/place.cpt");
    golden.check("error-output-place", 2, &["run", "-e", "none", "-o", &nowhere, "--", "true"]);
    std::fs::write(at("file"), "mine").unwrap();
    golden.check("error-output-file", 2, &["run", "-e", "none", "-o", &at("file"), "--", "true"]);
    std::fs::create_dir(at("full")).unwrap();
    std::fs::write(at("full/precious"), "mine").unwrap();
    golden.check("error-output-full", 2, &["run", "-e", "none", "-o", &at("full"), "--", "true"]);
    assert_eq!(std::fs::read_to_string(at("full/precious")).unwrap(), "mine");
    golden.check(
        "error-no-program",
        127,
        &["run", "-e", "none", "-o", &out, "--", "no-such-program-anywhere"],
    );
    golden.check("error-no-words", 2, &["run", "-e", "none", "-o", &out]);
    golden.check("error-not-a-profile", 2, &["report", &at("full")]);
    golden.check("error-no-profile", 2, &["report", &at("nothing.cpt")]);
    golden.check("error-export-format", 2, &["export", &at("full"), "--format", "xml"]);
}

#[test]
fn list_is_a_document() {
    let list = golden().json(&["list", "--format", "json"]);
    assert_eq!(list["schema"], "counterpoint.list/1");
    let counters = list["counters"].as_array().unwrap();
    let named = |name: &str| counters.iter().find(|c| c["name"] == name);
    for name in ["task-clock", "page-faults", "cycles", "instructions", "L1-dcache-load-misses"] {
        let counter = named(name).unwrap_or_else(|| panic!("{name} is not listed"));
        for key in ["source", "unit", "description"] {
            assert!(counter[key].is_string(), "{name} {key}: {counter}");
        }
    }
    assert_eq!(named("task-clock").unwrap()["unit"], "ns");
    assert_eq!(golden().run(&["list", "no-such-*"]).code, Some(1));
    let near = golden().run(&["list", "page-fualts"]);
    assert_eq!((near.code, near.stdout.as_str()), (Some(1), ""));
    assert!(near.stderr.contains("hint: did you mean page-faults?"), "{}", near.stderr);
    let one = golden().run(&["list", "minor-faults", "--format", "csv"]).stdout;
    assert_eq!(one.lines().count(), 2, "{one}");
}

#[test]
fn doctor_is_a_document_and_answers() {
    let doctor = golden().json(&["doctor", "--format", "json"]);
    assert_eq!(doctor["schema"], "counterpoint.doctor/1");
    let findings = doctor["findings"].as_array().unwrap();
    for name in ["kernel", "pmu", "perf_event_paranoid", "clock", "seccomp"] {
        assert!(findings.iter().any(|f| f["name"] == name), "no finding {name}: {doctor}");
    }
    assert_eq!(golden().run(&["doctor", "-e", "sim/a,readings=1/"]).code, Some(0));
    assert_eq!(golden().run(&["doctor", "-e", "no-such-counter"]).code, Some(1));
}
