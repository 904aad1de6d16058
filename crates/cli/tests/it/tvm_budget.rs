//! Tests ops of TVM in runs with a budget, in which every call is counted and only some calls are
//! timed. Parallel regions and their tasks are timed if the op that launches them is timed. The
//! program is `tests/programs/tvm_host.c` in mode `budget`.

use std::collections::BTreeMap;
use std::process::Command;

use profile::{PageDecoder, Profile};
use record::Drawn;
use record::meta::Role;
use record::page::{KEY_FAILED_OP, KEY_WORKSPACE_BYTES};

use crate::budget::{RUNS, check, drawings};
use crate::support::{Programs, Recorded, counterpoint};
use crate::tvm::model;

const ROUNDS: usize = 2_000;

type Names = BTreeMap<(Role, String), usize>;

/// Returns the expected numbers of calls, which follow from the functions `everything`,
/// `throwing_entry` and `short_ops` of the program.
fn expected() -> Names {
    let of = |role, name: &str, count: usize| ((role, name.to_owned()), count * ROUNDS);
    let mut all = model(10);
    all.insert((Role::Op, "throws".to_owned()), 10);
    all.extend([
        of(Role::Op, "short", 10),
        of(Role::Op, "outer", 1),
        of(Role::Op, "inner", 1),
        of(Role::Region, "outer", 1),
        of(Role::Task, "outer", 2),
        of(Role::Op, "catcher", 1),
        of(Role::Op, "thrower", 1),
        of(Role::Op, "innermost", 1),
        of(Role::Op, "after", 1),
        of(Role::Region, "catcher", 1),
        of(Role::Task, "catcher", 2),
        of(Role::Op, "throws by itself", 1),
    ]);
    all
}

fn host(words: &[&str]) -> Command {
    let mut command = Command::new(Programs::get().other("tvm_host"));
    command.args(words);
    command
}

fn name(profile: &Profile, process: usize, export: u32) -> (Role, String) {
    let op = profile.ops.get(profile.ops.of(process, export).unwrap()).unwrap();
    (op.role, op.name.clone())
}

/// Returns the exact number of calls of each op.
fn counted(profile: &Profile) -> Names {
    let mut names = Names::new();
    for one in profile.counted() {
        *names.entry(name(profile, one.process, one.export)).or_default() += one.calls as usize;
    }
    names.retain(|_, calls| *calls > 0);
    names
}

/// The timed calls, by role, name and thread. Each call has the probabilities with which it was
/// chosen, and a flag that says whether its counters were read.
type Drawings = BTreeMap<((Role, String), u32), Vec<(Drawn, bool)>>;

fn drawn(profile: &Profile) -> Drawings {
    let named = drawings(profile).into_iter().map(|((process, thread, export), calls)| {
        let calls = calls.into_iter().map(|(drawn, _, read)| (drawn, read)).collect();
        ((name(profile, process, export), thread), calls)
    });
    named.collect()
}

fn check_profile(what: &str, profile: &Profile) {
    let mut found = counted(profile);
    // After an op that threw, regions outside of ops belong to it until the next op begins. So only
    // the sum of these counts is compared.
    let mut sum = |role| -> usize {
        let names = ["(outside of ops)", "throws by itself", "throws"];
        names.map(|name| found.remove(&(role, name.to_owned())).unwrap_or(0)).iter().sum()
    };
    let regions = ROUNDS + 10;
    assert_eq!((sum(Role::Region), sum(Role::Task)), (regions, 2 * regions), "{what}");
    assert_eq!(found, expected(), "{what}");
    check(what, profile);
    if profile.manifest.budget == Some(0.0) {
        return;
    }
    let drawn = drawn(profile);
    let of = |role, name: &str| {
        let wanted = (role, name.to_owned());
        let found = drawn.iter().filter(move |((key, _), _)| *key == wanted);
        found.map(|(_, calls)| calls.clone()).collect::<Vec<_>>()
    };
    let [short] = &of(Role::Op, "short")[..] else { panic!("{what}: {drawn:?}") };
    assert!(short.len() < 10 * ROUNDS, "{what}: all {} are timed", short.len());
    if profile.manifest.budget == Some(0.2) {
        assert!(short.iter().any(|(drawn, _)| drawn.period > 1), "{what}");
    }
    // A region, its tasks and their op have equal periods (the inverse probabilities with which
    // calls are timed and counters are read).
    let periods = |calls: &[(Drawn, bool)]| -> Vec<(u32, u32)> {
        calls.iter().map(|(drawn, _)| (drawn.period, drawn.counter_period)).collect()
    };
    for op in ["outer", "catcher"] {
        let [ops] = &of(Role::Op, op)[..] else { panic!("{what}: {drawn:?}") };
        let [regions] = &of(Role::Region, op)[..] else { panic!("{what}: {drawn:?}") };
        let tasks = of(Role::Task, op);
        assert_eq!(tasks.len(), 2, "{what}: a task here, and one on a thread of the pool");
        for follows in tasks.iter().chain([regions]) {
            assert_eq!(periods(follows), periods(ops), "{what}: {op}");
        }
        let read = |calls: &[(Drawn, bool)]| calls.iter().map(|(_, r)| *r).collect::<Vec<_>>();
        assert_eq!(read(regions), read(ops), "{what}: {op}");
    }
    // Whole runs are always timed.
    for run in ["main", "throwing"] {
        let [runs] = &of(Role::Run, run)[..] else { panic!("{what}: {drawn:?}") };
        assert_eq!(periods(runs), [(1, 1); 10], "{what}: {run}");
    }
    let mut failed = 0;
    let mut decoder = PageDecoder::new(profile);
    for key in profile.pages() {
        let columns = decoder.decode(key);
        for i in 0..columns.len() {
            let called = name(profile, key.process, columns.export[i]);
            let extras: BTreeMap<u32, u64> =
                columns.extras_of(i).iter().map(|e| (e.key, e.bits)).collect();
            if let Some(export) = extras.get(&KEY_FAILED_OP) {
                failed += 1;
                let thrower = name(profile, key.process, *export as u32);
                assert_eq!(thrower, (Role::Op, "throws".to_owned()), "{what}");
            }
            let workspace = extras.get(&KEY_WORKSPACE_BYTES);
            assert_eq!(workspace.is_some(), called.1 == "workspace", "{what}: {called:?}");
        }
    }
    assert_eq!(failed, 10, "{what}");
}

#[test]
fn ops_of_tvm_are_counted_and_drawn() {
    let Some(program) = counterpoint("drawn ops of tvm") else { return };
    for (budget, events) in RUNS {
        let what = format!("{budget} -e {events}");
        let mut host = host(&["-", "budget", &ROUNDS.to_string()]);
        let recorded = Recorded::run_with(&program, events, &[budget], &mut host);
        assert!(recorded.output.status.success(), "{what}: {}", recorded.stderr());
        check_profile(&what, &recorded.profile());
        let losses = recorded.losses();
        assert!(losses.keys().all(|name| name == "call_abandoned"), "{what}: {losses:?}");
    }
}

/// The process opens the sessions itself.
#[test]
fn sessions_with_a_budget_draw_ops_of_tvm() {
    let Some(program) = counterpoint("drawn ops of tvm") else { return };
    let scratch = testkit::Scratch::new();
    let library = program.parent().unwrap().parent().unwrap().join("lib/libcounterpoint.so");
    for (budget, events) in RUNS {
        let profile = scratch.join(budget);
        let mut prepare = Command::new(&program);
        prepare.args(["session", "prepare", "--format", "json", budget, "-e", events, "-o"]);
        let prepared = prepare.arg(&profile).output().unwrap();
        let stderr = String::from_utf8_lossy(&prepared.stderr);
        assert!(prepared.status.success(), "{budget}: {stderr}");
        let prepared: serde_json::Value = serde_json::from_slice(&prepared.stdout).unwrap();
        let run_file = prepared["run_file"].as_str().unwrap();
        let library = library.to_str().unwrap();
        let output = host(&[library, "budget", &ROUNDS.to_string(), run_file]).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "begin 0\nend 0\n", "{output:?}");
        let finished = Command::new(&program).args(["session", "finish"]).arg(&profile).output();
        assert!(finished.unwrap().status.success(), "{budget}");
        check_profile(budget, &Profile::open(&profile).unwrap());
    }
}
