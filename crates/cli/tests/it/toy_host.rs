//! Tests the recording of a host (a runtime that calls ops) that has no adapter in Counterpoint and
//! announces its ops itself. The first comment of `tests/programs/toy_host.c` has the expected
//! numbers.

use std::process::Command;

use serde_json::{Value, json};

use crate::support::{Programs, Recorded, counterpoint};

pub fn host() -> Command {
    Command::new(Programs::get().other("toy_host"))
}

/// Runs a subcommand that shows the recording, such as `report`, and returns its output. `words`
/// are the subcommand and its options.
fn view(recorded: &Recorded, words: &[&str]) -> String {
    let mut view = Command::new(&recorded.program);
    let output = view.arg(words[0]).arg(recorded.path()).args(&words[1..]).output().unwrap();
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn every_view_shows_a_host_in_its_own_words() {
    let Some(program) = counterpoint("toy host") else { return };
    let recorded = Recorded::run(&program, "page-faults:u", &mut host());
    assert_eq!(recorded.stdout(), "done\n");
    assert!(recorded.stderr().contains("; next: counterpoint report "), "{}", recorded.stderr());
    let profile = recorded.profile();
    assert!(profile.all_losses().is_empty(), "{:?}", profile.all_losses());
    let described: Vec<_> = profile.processes[0].seen_hosts().map(|host| &*host.title).collect();
    assert_eq!(described, ["Toy"]);

    // For a bookkeeping op (`toy.alloc`), the recorder measures the time and reads no counters.
    let report = recorded.report(&[]);
    let row = |name: &str| {
        let found = report["rows"].as_array().unwrap().iter().find(|row| row["op"] == name);
        let row = found.unwrap_or_else(|| panic!("no row {name} in {report}"));
        assert_eq!(row["library"], "mlp.toy", "{row}");
        (row["calls"].as_u64().unwrap(), row["counters"][0]["total"].clone())
    };
    for (name, pages) in [("pad", 2), ("relu", 1)] {
        assert_eq!(row(name), (4, json!(4 * pages)), "{name}");
    }
    // During calls of the following ops, the recorder sees inner ops for the first time. This adds
    // a few page faults of the recorder to the counts.
    for (name, pages) in [("conv", 5), ("a range", 6), ("forward", 20)] {
        let (calls, counted) = row(name);
        let most = 4 * pages + 30;
        assert_eq!(calls, 4, "{name}");
        assert!(
            counted.as_u64().is_some_and(|n| (4 * pages..most).contains(&n)),
            "{name} {counted}"
        );
    }
    assert_eq!(row("toy.alloc"), (4, Value::Null));

    let ops = view(&recorded, &["ops"]);
    let line = |name: &str| ops.lines().find(|line| line.contains(name)).unwrap_or_default();
    assert!(line("runs  ").contains("4 runs with 20 op calls"), "{ops}");
    for name in ["conv", "pad", "relu", "a range", "toy.*", "(entry function)"] {
        assert!(!line(name).is_empty(), "{name} in {ops}");
    }
    assert!(ops.contains("those of toy.* ops"), "{ops}");

    let tree = view(&recorded, &["report", "--tree"]);
    let depth = |name: &str| {
        let line = tree.lines().find(|line| line.contains(name));
        line.and_then(|line| line.find(name)).unwrap_or_else(|| panic!("{name} in {tree}"))
    };
    assert!(depth("forward") < depth("conv") && depth("conv") < depth("pad"), "{tree}");
    assert!(depth("a range") < depth("relu"), "{tree}");
    let threads: Value =
        serde_json::from_str(&view(&recorded, &["report", "--by", "thread", "--format", "json"]))
            .unwrap();
    assert_eq!(threads["rows"].as_array().unwrap().len(), 2, "{threads}");
    assert!(view(&recorded, &["stats", "--op", "conv"]).contains("conv"));
    assert_eq!(recorded.calls().len(), 24);
    // The host has no dispatches.
    let mut sites = Command::new(&program);
    let sites = sites.args(["report", "--by", "site"]).arg(recorded.path()).output().unwrap();
    assert!(!sites.status.success());
    assert!(String::from_utf8_lossy(&sites.stderr).contains("no dispatches"));
}

#[test]
fn an_exported_trace_has_the_kinds_of_a_host() {
    let Some(program) = counterpoint("toy host's trace") else { return };
    let recorded = Recorded::run(&program, "none", &mut host());
    let scratch = testkit::Scratch::new();
    let trace = |vocabulary: &str| -> Value {
        let file = scratch.join(&format!("{vocabulary}.json"));
        let mut export = Command::new(&program);
        export.args(["trace", "export", "--vocabulary", vocabulary]).arg(recorded.path());
        let done = export.arg("-o").arg(&file).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap()
    };
    let (generic, kineto) = (trace("generic"), trace("kineto"));
    let slice = |trace: &Value, name: &str| {
        let slices = trace["traceEvents"].as_array().unwrap().iter();
        let mut found = slices.filter(|event| event["ph"] == "X" && event["name"] == name);
        found.next().unwrap_or_else(|| panic!("no {name}")).clone()
    };
    for (name, own, kinetos) in [
        ("conv", "layer", "cpu_op"),
        ("forward", "inference", "user_annotation"),
        ("a range", "user_annotation", "user_annotation"),
    ] {
        assert_eq!(slice(&generic, name)["cat"], own, "{name}");
        assert_eq!(slice(&kineto, name)["cat"], kinetos, "{name}");
        assert_eq!(slice(&generic, name)["args"]["model"], "mlp.toy", "{name}");
    }
    let kind = |name, kineto| json!({"producer": "toy", "name": name, "kineto": kineto});
    let kinds = json!([kind("layer", "cpu_op"), kind("inference", "user_annotation")]);
    assert_eq!(generic["counterpoint"]["kinds"], kinds);
}

/// The host announces a model and never runs it.
#[test]
fn a_host_without_calls_records_nothing() {
    let Some(program) = counterpoint("idle toy host") else { return };
    let recorded = Recorded::run(&program, "none", host().arg("idle"));
    assert_eq!(recorded.stdout(), "done\n");
    assert!(recorded.stderr().contains("no calls were recorded"), "{}", recorded.stderr());
    for words in ["report", "ops"] {
        let reasons = view(&recorded, &[words]);
        assert!(reasons.contains("a model of Toy was loaded, but not run"), "{words}: {reasons}");
    }
}
