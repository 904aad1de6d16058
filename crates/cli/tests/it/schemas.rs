//! Tests that docs/schema.md describes the fields of the JSON documents that Counterpoint prints.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use record::meta::Role;
use serde_json::Value;
use testkit::{CallScript, ProfileScript, Scratch};

/// Users choose the keys in these objects, for example names of counters or of environment
/// variables.
const NAMED_BY_USERS: [&str; 5] =
    ["counters", "own_counters", "self_counters", "environment", "values"];

fn keys(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(members) => {
            for (key, value) in members {
                found.insert(key.clone());
                if !(NAMED_BY_USERS.contains(&key.as_str()) && value.is_object()) {
                    keys(value, found);
                }
            }
        }
        Value::Array(all) => all.iter().for_each(|value| keys(value, found)),
        _ => {}
    }
}

/// Returns the words between backticks.
fn words(page: &str) -> BTreeSet<&str> {
    let code = page.split('`').skip(1).step_by(2);
    code.flat_map(|code| code.split([' ', ',', '\n', '"', '{', '}', ':'])).collect()
}

#[test]
fn every_field_is_explained() {
    let mut script = ProfileScript::monotonic();
    script.counter("page-faults", 0);
    let process = script.process(4711);
    process.empty_calls(256, 2, 20, &[0]);
    let vm = process.machine("vm 0");
    let [run, op] = [(Role::Run, "main"), (Role::Op, "add")]
        .map(|(role, name)| process.op(vm, role, name, "float32[32]"));
    process
        .thread("t")
        .call(CallScript::op(op, 1_100, 100).group(100, &[1]))
        .call(CallScript::op(op, 1_300, 100).group(100, &[3]))
        .call(CallScript::op(run, 1_000, 900).group(900, &[9]))
        .call(CallScript::op(run, 2_100, 50).group(50, &[1]));
    let (_scratch, dir) = script.written();
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schema.md");
    let page = std::fs::read_to_string(page).unwrap();
    let words = words(&page);
    let profile = dir.to_str().unwrap();
    let scratch = Scratch::new();
    let dataset = scratch.join("job");
    let dataset = dataset.to_str().unwrap();
    let program = env!("CARGO_BIN_EXE_counterpoint");
    let mut export = Command::new(program);
    export.args(["export", profile, "--dataset", dataset, "--rank", "0", "--calls"]);
    assert!(export.output().unwrap().status.success());
    for args in [
        ["report", profile].as_slice(),
        &["report", profile, "--by", "thread", "--skip-ms", "0.0001"],
        &["report", profile, "--by", "cpu"],
        &["report", profile, "--by", "process"],
        &["report", profile, "--by", "between"],
        &["report", dataset, "--align-by", "add"],
        &["report", dataset, "--by", "rank"],
        &["ops", profile],
        &["stats", profile],
        &["explain", profile],
        &["critical-path", profile],
        &["export", profile, "--what", "tracks"],
        &["list", "page-faults"],
        &["doctor"],
        &["doctor", "-e", "page-faults:u"],
    ] {
        let output = Command::new(program).args(args).args(["--format", "json"]).output().unwrap();
        let document: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| {
            panic!("{args:?}: {e}: {}", String::from_utf8_lossy(&output.stderr))
        });
        let schema = document["schema"].as_str().unwrap();
        assert!(words.contains(schema), "{schema} is not described in docs/schema.md");
        let mut found = BTreeSet::new();
        keys(&document, &mut found);
        // Rows of `ops` have fields that are named after counters, so docs/schema.md cannot list
        // them.
        found.retain(|key| !key.starts_with("page-faults"));
        let unknown: Vec<_> = found.iter().filter(|key| !words.contains(key.as_str())).collect();
        assert!(unknown.is_empty(), "{args:?}: {unknown:?} are not in docs/schema.md");
    }
}
