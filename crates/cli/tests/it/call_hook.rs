//! Tests a runtime with IREE's own call hook. Through this hook, the agent records calls of
//! executables in whose function tables it could put no stubs (small functions that record calls).

use std::collections::BTreeMap;
use std::process::Command;

use crate::support::{Programs, Recorded, counterpoint, plain};

fn host(mode: &str, calls: u32) -> Command {
    let programs = Programs::get();
    let mut command = Command::new(&programs.hook_host);
    command.arg(mode).arg(calls.to_string()).arg(&programs.library);
    command
}

/// Returns the number of calls of each op in each library.
fn calls(recorded: &Recorded) -> BTreeMap<(String, String), u64> {
    let report = recorded.report(&[]);
    let text = |v: &serde_json::Value| v.as_str().unwrap().to_owned();
    let rows = report["rows"].as_array().unwrap().iter();
    rows.map(|row| ((text(&row["library"]), text(&row["op"])), row["calls"].as_u64().unwrap()))
        .collect()
}

#[test]
fn each_call_is_counted_once() {
    let Some(program) = counterpoint("call hook") else { return };
    let linked = |op: &str, n| (("linked_in".to_owned(), op.to_owned()), n);
    let loaded = |op: &str, n| (("test_linked".to_owned(), op.to_owned()), n);
    let cases = [
        ("static", 100, vec![linked("nothing", 100), linked("spin", 1)]),
        ("loaded", 100, vec![loaded("nothing", 100)]),
        ("both", 70, vec![linked("nothing", 70), loaded("nothing", 70)]),
        ("nested", 9, vec![linked("call_out", 9), linked("spin", 9), loaded("nothing", 9)]),
        ("threads", 500, vec![linked("nothing", 8 * 500)]),
        ("longjmp", 5, vec![linked("nothing", 5)]),
    ];
    for (mode, count, expected) in cases {
        let recorded =
            Recorded::run(&program, "page-faults:u,task-clock:u", &mut host(mode, count));
        let alone = plain(&mut host(mode, count), recorded.directory.path());
        assert_eq!(recorded.output.status.code(), alone.status.code(), "{}", recorded.stderr());
        assert_eq!(recorded.output.stdout, alone.stdout, "{mode}");
        assert_eq!(calls(&recorded), BTreeMap::from_iter(expected), "{mode}");
        let losses: BTreeMap<String, u64> = match mode {
            "longjmp" => [("call_abandoned".to_owned(), 5)].into(),
            _ => BTreeMap::new(),
        };
        assert_eq!(recorded.losses(), losses, "{mode}");
    }
}

/// A row of `report` has a number of dispatches only if the workgroups of its calls are known.
#[test]
fn an_unknown_workgroup_is_missing() {
    let Some(program) = counterpoint("unknown workgroup") else { return };
    let recorded = Recorded::run(&program, "none", &mut host("both", 3));
    for call in recorded.calls() {
        let known = call["library"] == "test_linked";
        for column in ["workgroup_x", "workgroup_z", "count_x", "count_y", "worker"] {
            assert_eq!(call[column].is_empty(), !known, "{column} {call:?}");
        }
        assert!(!call["cpu"].is_empty());
    }
    let report = recorded.report(&[]);
    assert!(report["total"]["dispatches"].is_null(), "{report}");
    for row in report["rows"].as_array().unwrap() {
        let expected = match row["library"].as_str().unwrap() {
            "test_linked" => serde_json::json!(3),
            _ => serde_json::Value::Null,
        };
        assert_eq!(row["dispatches"], expected, "{row}");
    }
    let profile = recorded.profile();
    let hosts: Vec<&str> = profile.processes[0].seen_hosts().map(|host| &*host.title).collect();
    assert_eq!(hosts, ["IREE"], "of two libraries");
}

#[test]
fn counters_and_filters() {
    let Some(program) = counterpoint("call hook counters") else { return };
    let recorded = Recorded::run(&program, "page-faults:u", &mut host("touch", 10));
    let faults: Vec<_> = recorded.calls().iter().map(|c| c["page-faults:u"].clone()).collect();
    // The first call is not compared, because it may load code. The second call touches 64 new
    // pages of zeros.
    assert_eq!(faults.len(), 11);
    assert_eq!(faults[1..], [vec!["64"], vec!["0"; 9]].concat());

    let scratch = testkit::Scratch::new();
    let output = Command::new(&program)
        .args(["run", "-e", "none", "--filter", "spin", "-o"])
        .arg(scratch.join("p.cpt"))
        .arg("--")
        .arg(&Programs::get().hook_host)
        .args(["static", "50"])
        .output()
        .unwrap();
    assert!(output.status.success());
    assert_eq!(profile::Profile::open(&scratch.join("p.cpt")).unwrap().calls(), 1);
}
