//! Tests ops of PyTorch in runs with a budget. The host (`tests/programs/torch_ops_host.c`)
//! imitates PyTorch.

use std::collections::BTreeMap;
use std::process::Command;

use profile::Profile;
use record::Drawn;
use record::meta::Role;
use serde_json::Value;

use crate::budget::{RUNS, check, drawings};
use crate::support::{Recorded, counterpoint};
use crate::torch_ops::host;

const TIMES: usize = 250;

type Key = (Role, String);

fn key(profile: &Profile, process: usize, export: u32) -> Key {
    let op = profile.ops.get(profile.ops.of(process, export).unwrap()).unwrap();
    (op.role, op.name.clone())
}

fn expected() -> BTreeMap<Key, usize> {
    let ops = [
        "aten::outer",
        "aten::touch",
        "aten::parallel",
        "aten::mul",
        "MulBackward0",
        "AddBackward0",
        "aten::mm",
        "aten::in_range",
    ];
    let mut all: BTreeMap<Key, usize> =
        ops.iter().map(|name| ((Role::Op, (*name).to_owned()), TIMES)).collect();
    let mut add = |role, name: &str, count| all.insert((role, name.to_owned()), count);
    add(Role::Range, "a range", TIMES);
    add(Role::Range, "a later range", TIMES);
    add(Role::Region, "aten::parallel", TIMES);
    add(Role::Task, "aten::parallel", 2 * TIMES);
    add(Role::Op, "aten::warmup", 1);
    add(Role::Region, "(outside of ops)", 1);
    add(Role::Task, "(outside of ops)", 2);
    all
}

#[test]
fn ops_of_pytorch_are_counted_and_drawn() {
    let Some(program) = counterpoint("drawn ops of torch") else { return };
    for (budget, events) in RUNS {
        let what = format!("{budget} -e {events}");
        let Some(mut host) = host("drawn ops of torch") else { return };
        let recorded = Recorded::run_with(&program, events, &[budget], host.arg(TIMES.to_string()));
        assert_eq!(recorded.stdout(), "done\n", "{what}: {}", recorded.stderr());
        let profile = recorded.profile();
        let mut counted: BTreeMap<Key, usize> = BTreeMap::new();
        for one in profile.counted() {
            *counted.entry(key(&profile, one.process, one.export)).or_default() +=
                one.calls as usize;
        }
        counted.retain(|_, calls| *calls > 0);
        assert_eq!(counted, expected(), "{what}");
        check(&what, &profile);
        if profile.manifest.budget == Some(0.0) {
            continue;
        }
        let drawings = drawings(&profile);
        let of = |role, name: &str| -> Vec<Vec<Drawn>> {
            let wanted = (role, name.to_owned());
            let found = drawings.iter().filter(|((process, _, export), calls)| {
                key(&profile, *process, *export) == wanted && !calls.is_empty()
            });
            found.map(|(_, calls)| calls.iter().map(|(drawn, ..)| *drawn).collect()).collect()
        };
        let [empty] = &of(Role::Op, "AddBackward0")[..] else { panic!("{what}") };
        assert!(empty.len() < TIMES, "{what}: all {} are timed", empty.len());
        // A parallel region and its tasks are timed if their op is timed, with the same period.
        let periods = |calls: &[Drawn]| calls.iter().map(|drawn| drawn.period).collect::<Vec<_>>();
        let [ops] = &of(Role::Op, "aten::parallel")[..] else { panic!("{what}") };
        let regions = of(Role::Region, "aten::parallel");
        let tasks = of(Role::Task, "aten::parallel");
        assert_eq!((regions.len(), tasks.len()), (1, 2), "{what}");
        for follows in regions.iter().chain(&tasks) {
            assert_eq!(periods(follows), periods(ops), "{what}");
        }
        // The forward op of a backward op is known even if the forward op was only counted.
        let view = Command::new(&recorded.program)
            .args(["ops", "--format", "json"])
            .arg(recorded.path())
            .output()
            .unwrap();
        let document: Value = serde_json::from_slice(&view.stdout).unwrap();
        let ops = document["ops"].as_array().unwrap();
        let named =
            |name: &str| -> Vec<&Value> { ops.iter().filter(|op| op["name"] == name).collect() };
        let backward = named("MulBackward0");
        assert!(!backward.is_empty(), "{what}");
        assert!(backward.iter().all(|op| op["forward"] == "aten::mul"), "{what}");
        let faults = "page-faults:u";
        if events.contains(faults) {
            let touched = named("aten::touch");
            let values = touched.iter().map(|op| &op["counters"][faults]);
            let read: Vec<&Value> = values.filter(|value| !value.is_null()).collect();
            assert!(read.len() > 1, "{what}");
            // The first call is not compared, because the recorder allocates memory during it,
            // which causes page faults.
            assert!(read[1..].iter().all(|value| **value == 100), "{what}: {read:?}");
        }
    }
}
