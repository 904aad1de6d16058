//! Tests ops of PyTorch in a host that imitates PyTorch. The first comment of
//! `tests/programs/torch_ops_host.c` has the expected numbers. `tests/python/torch` tests PyTorch
//! itself.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use record::brackets::{bucket_of, middle_of};
use record::meta::Role;
use serde_json::{Value, json};

use crate::support::{Programs, Recorded, counterpoint};

/// Returns a command that starts the host. `None` if the compiler does not support OpenMP.
pub fn host(test: &str) -> Option<Command> {
    let Some(library) = library() else {
        testkit::skip(test, "the C compiler has no OpenMP (-fopenmp)");
        return None;
    };
    let mut command = Command::new(Programs::get().other("torch_ops_host"));
    command.arg(library);
    Some(command)
}

fn library() -> Option<PathBuf> {
    let probe = Command::new("cc")
        .args(["-fopenmp", "-shared", "-x", "c", "/dev/null", "-o", "/dev/null"])
        .output();
    probe.is_ok_and(|output| output.status.success()).then(|| {
        let flags = ["-fopenmp", "-O1", "-Wl,-soname,libtorch_cpu.so"];
        Programs::get().shared("torch_cpu.c", "libtorch_cpu.so", &flags)
    })
}

fn trace(program: &Path, profile: &Path, out: &Path, options: &[&str]) -> Value {
    let mut export = Command::new(program);
    export.args(["trace", "export"]).arg(profile).arg("-o").arg(out).args(options);
    let done = export.output().unwrap();
    assert!(done.status.success(), "{options:?}: {}", String::from_utf8_lossy(&done.stderr));
    serde_json::from_slice(&std::fs::read(out).unwrap()).unwrap()
}

/// Returns the number of slices with this name in each category.
fn categories(trace: &Value, name: &str) -> BTreeMap<String, usize> {
    let mut found = BTreeMap::new();
    let slices = trace["traceEvents"].as_array().unwrap().iter();
    for slice in slices.filter(|event| event["ph"] == "X" && event["name"] == name) {
        *found.entry(slice["cat"].as_str().unwrap().to_owned()).or_default() += 1;
    }
    found
}

/// Runs a view of the recording, and returns its output. `words` are the view and its options.
fn view(recorded: &Recorded, words: &[&str]) -> String {
    let mut view = Command::new(&recorded.program);
    let output = view.arg(words[0]).arg(recorded.path()).args(&words[1..]).output().unwrap();
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn ops(recorded: &Recorded) -> Value {
    serde_json::from_str(&view(recorded, &["ops", "--format", "json"])).unwrap()
}

/// Returns the second of two calls with this name. The first call may include page faults of memory
/// that the recorder allocates.
fn op<'a>(document: &'a Value, name: &str) -> &'a Value {
    let all = document["ops"].as_array().unwrap().iter();
    let found: Vec<&Value> = all.filter(|op| op["name"] == name).collect();
    assert_eq!(found.len(), 2, "{name}: {document}");
    found[1]
}

const FAULTS: &str = "page-faults:u";

#[test]
fn counts_are_exact_on_the_caller_and_on_workers() {
    let Some(program) = counterpoint("ops of torch") else { return };
    let Some(mut host) = host("ops of torch") else { return };
    let recorded = Recorded::run(&program, FAULTS, &mut host);
    assert_eq!(String::from_utf8_lossy(&recorded.output.stdout), "done\n", "{}", recorded.stderr());
    let document = ops(&recorded);
    let of = |name: &str, which: &str| op(&document, name)[which][FAULTS].clone();
    assert_eq!(of("aten::touch", "counters"), 100);
    assert_eq!(of("aten::parallel", "counters"), 64);
    assert_eq!(of("aten::parallel", "workers"), 64);
    // The counters of `aten::outer` include the ops in it, but not the work of other threads.
    assert_eq!(of("aten::outer", "counters"), 40 + 100 + 64);
    assert_eq!(of("aten::outer", "self_counters"), 40);
    assert_eq!(op(&document, "aten::outer")["workers"], serde_json::json!({}));
    assert_eq!(of("a range", "counters"), 11);
    assert_eq!(of("a range", "self_counters"), 6);
    assert_eq!(of("aten::in_range", "counters"), 5);
    assert_eq!(of("a later range", "counters"), 0);
}

/// The host says how many ticks announcing an op takes. The report states this time, plus a tenth,
/// as a part of the cost.
#[test]
fn the_price_contains_what_the_host_takes_to_announce_ops() {
    let Some(program) = counterpoint("announced ops of torch") else { return };
    for options in [&[][..], &["--budget", "2%"]] {
        let Some(mut host) = host("announced ops of torch") else { return };
        let recorded = Recorded::run_with(&program, "none", options, host.arg("250"));
        let profile = recorded.profile();
        let ops = 8.0 * 250.0 + 1.0;
        let ticks: f64 = [1_000, 100].map(|t| middle_of(bucket_of(t))).iter().sum();
        let expected = 1.1 * ops * ticks * profile.timeline.ns_per_tick();
        let report = recorded.report(&[]);
        let way = report["probe"]["parts"]["way"]["value"].as_f64().unwrap();
        assert!((way / expected - 1.0).abs() < 1e-9, "{options:?}: {way} and not {expected}");
        assert_eq!(report["probe"]["way_ns"], way);
        // The recorder has measured this cost, too, but its measurement is not shown in addition.
        let shown = view(&recorded, &["report", "--verbose", "--width", "400"]);
        assert!(shown.contains("announcing ops to the recorder "), "{shown}");
        assert!(!shown.contains("by its own account"), "{shown}");
    }
}

/// The recorder times some brackets (the readings around a call). If such a call is not recorded,
/// the recorder times the next bracket instead. Here, regions are not recorded, because their op is
/// filtered out.
#[test]
fn brackets_are_timed_where_regions_are_not_recorded() {
    let Some(program) = counterpoint("regions of torch that are not recorded") else { return };
    let Some(mut host) = host("regions of torch that are not recorded") else { return };
    let options = &["--filter", "aten::touch"];
    let recorded = Recorded::run_with(&program, "none", options, host.arg("250"));
    let profile = recorded.profile();
    let real = profile.processes.iter().flat_map(|of| &of.brackets).filter(|of| !of.rehearsed);
    let most = real.map(|of| of.before.count().min(of.after.count())).max();
    assert!(most.is_some_and(|most| most >= 48), "{most:?}");
}

/// Each of 100 calls has a region with two tasks, and each task has a region with one task.
#[test]
fn regions_in_tasks_that_are_only_counted_belong_to_the_op() {
    let Some(program) = counterpoint("nested regions of torch") else { return };
    for budget in ["0", "2%"] {
        let Some(mut host) = host("nested regions of torch") else { return };
        let options = &["--budget", budget];
        let recorded = Recorded::run_with(&program, "none", options, host.arg("nested"));
        let profile = recorded.profile();
        let mut counted: BTreeMap<(&str, Role), u64> = BTreeMap::new();
        for of in profile.counted() {
            let op = profile.ops.of(of.process, of.export).and_then(|op| profile.ops.get(op));
            let op = op.unwrap();
            *counted.entry((op.name.as_str(), op.role)).or_default() += of.calls;
        }
        let of = |role: Role| counted.get(&("aten::nested", role)).copied();
        let found = [Role::Op, Role::Region, Role::Task].map(of);
        assert_eq!(found, [Some(100), Some(300), Some(400)], "{budget}: {counted:?}");
    }
}

/// The schema of a new op may get the address of a removed op's schema. The host also calls more
/// ops than the recorder has places for.
#[test]
fn ops_with_the_identity_of_a_removed_one_have_their_own_names() {
    let Some(program) = counterpoint("removed ops of torch") else { return };
    for options in [&[][..], &["--budget", "2%"]] {
        let Some(mut host) = host("removed ops of torch") else { return };
        let recorded = Recorded::run_with(&program, "none", options, host.arg("removed"));
        assert_eq!(recorded.stdout(), "done\n", "{}", recorded.stderr());
        let report = recorded.report(&["--top", "0"]);
        let rows = report["rows"].as_array().unwrap().iter();
        let calls: BTreeMap<&str, u64> =
            rows.filter_map(|row| Some((row["op"].as_str()?, row["calls"].as_u64()?))).collect();
        for name in ["aten::first", "aten::second", "aten::third"] {
            assert_eq!(calls.get(name), Some(&5), "{options:?}: {calls:?}");
        }
        for i in 0..50 {
            assert_eq!(calls.get(&*format!("aten::op{i}")), Some(&40), "{options:?}: {calls:?}");
        }
    }
}

#[test]
fn nesting_ranges_and_forward_ops() {
    let Some(program) = counterpoint("ops of torch") else { return };
    let Some(mut host) = host("ops of torch") else { return };
    let recorded = Recorded::run(&program, "none", &mut host);
    let document = ops(&recorded);
    let parent = |name: &str| op(&document, name)["parent"].clone();
    assert_eq!(parent("aten::touch"), op(&document, "aten::outer")["op"]);
    assert_eq!(parent("aten::parallel"), op(&document, "aten::outer")["op"]);
    assert_eq!(parent("aten::in_range"), op(&document, "a range")["op"]);
    assert_eq!(parent("aten::mul"), Value::Null);
    assert_eq!(op(&document, "a range")["range"], true);
    assert!(op(&document, "aten::mul").get("range").is_none());
    assert_eq!(op(&document, "MulBackward0")["forward"], "aten::mul");
    // No forward op had the sequence number of this backward op.
    assert!(op(&document, "AddBackward0").get("forward").is_none());
    assert_eq!(op(&document, "aten::mm")["arguments"], "float32[3, 4], float32[4, 5]");
    assert_eq!(op(&document, "aten::mm")["device"], "cpu0");
    let regions = op(&document, "aten::parallel")["regions"].as_array().unwrap().clone();
    assert_eq!(regions.len(), 1);
    assert_eq!(regions[0]["task_count"], 2);
    assert_eq!(regions[0]["tasks"].as_array().unwrap().len(), 2);
    // A range that ends on another thread is not recorded, because its counters cannot be read
    // there.
    let names = document["ops"].as_array().unwrap().iter().map(|op| &op["name"]);
    assert!(!names.clone().any(|name| name == "an asynchronous range"));
    assert_eq!(names.count(), 1 + 2 * 10);
    let losses = recorded.losses();
    assert_eq!(losses.get("range_ended_elsewhere"), Some(&2), "{losses:?}");
    assert_eq!(losses.len(), 1, "{losses:?}");
    assert_eq!(document["vms"][0]["name"], "torch");
}

#[test]
fn views_show_ops_and_ranges() {
    let Some(program) = counterpoint("ops of torch") else { return };
    let Some(mut host) = host("ops of torch") else { return };
    let recorded = Recorded::run(&program, FAULTS, &mut host);
    let text = |words: &[&str]| view(&recorded, words);
    let table = text(&["ops", "--width", "200"]);
    assert!(table.contains("a range (range)"), "{table}");
    let csv = text(&["ops", "--format", "csv"]);
    let kind = |name: &str| csv.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
    assert!(kind("a range").contains(",range,"), "{csv}");
    assert!(kind("aten::touch").contains(",op,"), "{csv}");
    assert!(text(&["report", "--width", "200"]).contains("(range)"));
    assert!(text(&["stats", "--top", "0"]).contains("aten::touch"));
    assert!(text(&["export", "--format", "csv"]).contains("aten::parallel"));
}

#[test]
fn timelines_call_regions_and_tasks_pytorchs_own() {
    let Some(program) = counterpoint("timeline of torch") else { return };
    let Some(mut host) = host("timeline of torch") else { return };
    let recorded = Recorded::run(&program, "none", &mut host);
    let file = |name: &str| recorded.directory.join(name);
    let generic =
        trace(&program, &recorded.path(), &file("generic.json"), &["--vocabulary", "generic"]);
    // Each of the two calls of `aten::parallel` has one region with two tasks.
    let counted = |of: &[(&str, usize)]| -> BTreeMap<String, usize> {
        of.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
    };
    let own = counted(&[("cpu_op", 2), ("torch.region", 2), ("torch.task", 4)]);
    assert_eq!(categories(&generic, "aten::parallel"), own);
    assert_eq!(categories(&generic, "a range"), counted(&[("user_annotation", 2)]));
    let kind = |name: &str| json!({"producer": "torch", "name": name, "kineto": "cpu_op"});
    assert_eq!(generic["counterpoint"]["kinds"], json!([kind("torch.region"), kind("torch.task")]));
    let slices = generic["traceEvents"].as_array().unwrap().iter().filter(|e| e["ph"] == "X");
    for slice in slices {
        let args = &slice["args"];
        assert_eq!(
            (&args["library"], &args["machine"]),
            (&json!("torch"), &Value::Null),
            "{slice}"
        );
    }

    let kineto = trace(&program, &recorded.path(), &file("kineto.json"), &[]);
    assert_eq!(categories(&kineto, "aten::parallel"), counted(&[("cpu_op", 8)]));
}

#[test]
fn a_filter_that_no_op_matches_is_not_explained_with_tvm() {
    let Some(program) = counterpoint("no op of torch") else { return };
    let Some(mut host) = host("no op of torch") else { return };
    let recorded = Recorded::run_with(&program, "none", &["--filter", "nothing"], &mut host);
    for words in [["ops", "--width", "200"], ["report", "--width", "200"]] {
        let shown = view(&recorded, &words);
        for expected in ["PyTorch was seen, but none of its ops was recorded", "the filter nothing"]
        {
            assert!(shown.contains(expected), "{shown}");
        }
        assert!(!shown.contains("TVM") && !shown.contains("executable"), "{shown}");
    }
}

/// The recorder's own code, data and stack must cause no page faults during ops, wherever in a
/// memory page the stack ends.
#[test]
fn ops_after_forks_count_their_own_page_faults_only() {
    let Some(program) = counterpoint("ops of torch after forks") else { return };
    let Some(mut host) = host("ops of torch after forks") else { return };
    let recorded = Recorded::run(&program, FAULTS, host.arg("positions"));
    assert_eq!(recorded.stdout(), "done\n", "{}", recorded.stderr());
    let document = ops(&recorded);
    let all = document["ops"].as_array().unwrap().iter();
    let all: Vec<&Value> = all.filter(|op| op["name"] == "aten::here").collect();
    assert_eq!(all.len(), 257);
    let faults = all[1..].iter().map(|op| op["counters"][FAULTS].as_u64().unwrap());
    assert_eq!(faults.filter(|faults| *faults != 5).collect::<Vec<_>>(), [0; 0]);
}

#[test]
fn forks_between_ops_and_inside_of_them() {
    let Some(program) = counterpoint("forks around ops of torch") else { return };
    let Some(mut host) = host("forks around ops of torch") else { return };
    let recorded = Recorded::run(&program, FAULTS, host.arg("fork"));
    assert!(recorded.output.status.success(), "{}", recorded.stderr());
    let printed = recorded.stdout();
    let processes = |which: &str| -> BTreeSet<u64> {
        let numbers = printed.lines().filter_map(|line| line.strip_prefix(which));
        numbers.map(|number| number.trim().parse().unwrap()).collect()
    };
    let (children, parents) = (processes("child "), processes("parent "));
    assert_eq!((children.len(), parents.len()), (6, 1), "{printed}");
    let document = ops(&recorded);
    let all = document["ops"].as_array().unwrap();
    let of = |name: &str, parent: bool| -> Vec<u64> {
        let of = all.iter().filter(|op| {
            let process = op["process"].as_u64().unwrap();
            op["name"] == name && parents.contains(&process) == parent
        });
        of.map(|op| op["counters"][FAULTS].as_u64().unwrap()).collect()
    };
    // The first call of an op may also count page faults of memory that the recorder allocates.
    assert_eq!(of("aten::before", true)[1..], [20]);
    assert_eq!(of("aten::after", true)[1..], [50]);
    assert_eq!(of("aten::in_range", true)[1..], [5]);
    // `aten::around` contains a fork, which causes faults at shared pages.
    assert!(of("aten::around", true).iter().all(|faults| *faults >= 9));
    assert_eq!(of("aten::child", true).len(), 1);
    assert_eq!(of("aten::child", false), [30; 6]);
    let of_children: BTreeSet<u64> = all
        .iter()
        .map(|op| op["process"].as_u64().unwrap())
        .filter(|p| !parents.contains(p))
        .collect();
    assert_eq!(of_children, children);
    // A call that was running during the fork is recorded in the parent only.
    for name in ["aten::around", "a range"] {
        assert_eq!((of(name, true).len(), of(name, false).len()), (2, 0), "{name}");
    }
    assert_eq!(recorded.losses(), BTreeMap::new());
}
