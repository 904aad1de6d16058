//! Tests unmodified TVM. A recording must have the calls that an independent instrument in Python
//! has seen.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use crate::support::{counterpoint, environment, tvm};
use profile::{PageDecoder, Profile};
use record::meta::Role;
use record::page::{KEY_CORRELATION, KEY_FAILED, KEY_STORAGE_BYTES, KEY_WORKSPACE_BYTES};
use serde_json::Value;

/// The calls in a profile. `ops` has the number of calls of each op, by `name(arguments)`.
#[derive(Default)]
struct Seen {
    ops: BTreeMap<String, u64>,
    runs: Vec<(String, bool)>,
    /// The values of each call, by role and name. Each inner map has the values of one call, by
    /// their keys.
    values: BTreeMap<(Role, String), Vec<BTreeMap<u32, u64>>>,
}

fn seen(path: &Path) -> (Profile, Seen) {
    let profile = Profile::open(path).unwrap();
    let mut seen = Seen::default();
    let mut decoder = PageDecoder::new(&profile);
    for key in profile.pages() {
        let columns = decoder.decode(key);
        for i in 0..columns.len() {
            let op = profile.ops.of(key.process, columns.export[i]).unwrap();
            let op = profile.ops.get(op).unwrap();
            let values: BTreeMap<u32, u64> =
                columns.extras_of(i).iter().map(|e| (e.key, e.bits)).collect();
            match op.role {
                Role::Op => {
                    *seen.ops.entry(format!("{}({})", op.name, op.arguments)).or_default() += 1
                }
                Role::Run => seen.runs.push((op.name.clone(), values.contains_key(&KEY_FAILED))),
                _ => {}
            }
            seen.values.entry((op.role, op.name.clone())).or_default().push(values);
        }
    }
    (profile, seen)
}

fn ops_of(said: &Value) -> BTreeMap<String, u64> {
    let all = said["ops"].as_object().unwrap();
    all.iter().map(|(name, count)| (name.clone(), count.as_u64().unwrap())).collect()
}

#[test]
fn a_model_is_recorded_as_its_own_instrument_sees_it() {
    let Some(program) = counterpoint("stock tvm") else { return };
    let Some(python) = tvm("stock tvm") else { return };
    let scratch = testkit::Scratch::new();
    let paths = ["a.cpt", "b.cpt", "c.cpt"].map(|name| scratch.join(name));
    let run_files = paths.each_ref().map(|path| {
        let variables = environment(&program, "page-faults:u", path);
        variables.into_iter().find(|(name, _)| name == "COUNTERPOINT_RUN_FILE").unwrap().1
    });
    let library = program.parent().unwrap().parent().unwrap().join("lib/libcounterpoint.so");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/support/tvm_stock.py");
    let mut command = Command::new(python);
    command.arg(script).arg(library).arg(scratch.path()).args(&run_files);
    // Without this variable, TVM might use fewer threads.
    let output = command.env("TVM_NUM_THREADS", "2").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(said["parallel"], 0);
    assert_eq!(said["equal"], true);
    assert_eq!(said["error"], "of the op");
    assert_eq!(said["collector"], serde_json::json!([0, 0]));
    assert_eq!(said["counterpoint_vm"], "TypeError");
    assert_eq!(said["counterpoint_calls"], "ValueError");

    // The script makes two runs, one run that throws, and one more run.
    let bytecode = &said["bytecode"];
    assert_eq!((&bytecode["began"], &bytecode["ended"]), (&Value::from(0), &Value::from(0)));
    let (profile, found) = seen(&paths[0]);
    let mut expected = ops_of(bytecode);
    assert_eq!(bytecode["calls"].as_u64().unwrap(), expected.values().sum::<u64>());
    // The op that throws has no end, so it is not recorded.
    assert_eq!(expected.remove("counterpoint.test.raises(float32[64, 256])"), Some(1));
    assert_eq!(found.ops, expected);
    let mut runs = found.runs.clone();
    runs.sort();
    let run = |name: &str, failed| (name.to_owned(), failed);
    assert_eq!(
        runs,
        [run("main", false), run("main", false), run("main", false), run("throws", true)]
    );
    let losses: BTreeMap<String, u64> =
        profile.all_losses().into_iter().map(|l| (l.name, l.count)).collect();
    assert_eq!(losses, [("call_abandoned".to_owned(), 1)].into());

    let values = |role, name: &str| found.values[&(role, name.to_owned())].as_slice();
    // Each storage has room for 64 by 256 floats, and so has the buffer that the op `work`
    // allocates.
    let bytes = 64 * 256 * 4;
    for storage in values(Role::Op, "vm.builtin.alloc_storage") {
        assert_eq!(storage[&KEY_STORAGE_BYTES], bytes);
    }
    for workspace in values(Role::Op, "work") {
        assert_eq!(workspace[&KEY_WORKSPACE_BYTES], bytes);
    }
    // Each parallel launch by the op `par` is a region with two tasks.
    let regions = values(Role::Region, "par");
    let tasks = values(Role::Task, "par");
    assert_eq!((regions.len(), tasks.len()), (3, 6));
    for region in regions {
        let number = region[&KEY_CORRELATION];
        assert_eq!(tasks.iter().filter(|task| task[&KEY_CORRELATION] == number).count(), 2);
    }
    // The Python collector was active in the run that throws and in the last run. The op that
    // throws has no end, so it has no value.
    let process = &profile.processes[0];
    let key = process.value_keys.iter().find(|k| k.name == "number of the op").unwrap().id;
    let given: Vec<u64> =
        found.values.values().flatten().filter_map(|v| v.get(&key).copied()).collect();
    let distinct: std::collections::BTreeSet<u64> = given.iter().copied().collect();
    assert_eq!(given.len(), distinct.len());
    assert_eq!(given.len() as u64, said["started"].as_u64().unwrap() - 1);

    // In TVM's compiled mode (the second session), no ops can be recorded.
    assert_eq!(said["compiled"]["calls"], 0);
    let (_, found) = seen(&paths[1]);
    assert_eq!((found.ops.len(), found.runs), (0, vec![run("main", false)]));

    // Before the third session, the model was exported and loaded again.
    let (_, found) = seen(&paths[2]);
    assert_eq!(found.ops, ops_of(&said["loaded"]));
    assert_eq!(found.values[&(Role::Task, "par".to_owned())].len(), 2);
}
