//! Ops of PyTorch, recorded for a host that plays PyTorch (`tests/programs/torch_ops_host.c`). Expected
//! numbers are those in the header of that file. `tests/python/torch` has the same for PyTorch itself.

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::support::{Programs, Recorded, counterpoint};

/// The host, and the library that plays libtorch_cpu. `None` if the compiler has no OpenMP.
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

/// What a view of the profile prints. `words`: the view and its options.
fn view(recorded: &Recorded, words: &[&str]) -> String {
    let mut view = Command::new(&recorded.program);
    let output = view.arg(words[0]).arg(recorded.path()).args(&words[1..]).output().unwrap();
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn ops(recorded: &Recorded) -> Value {
    serde_json::from_str(&view(recorded, &["ops", "--format", "json"])).unwrap()
}

/// The second of the two calls with this name. During the first, the recorder allocates.
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
    // Work of other threads is not part of what the caller counted.
    assert_eq!(of("aten::outer", "counters"), 40 + 100 + 64);
    assert_eq!(of("aten::outer", "self_counters"), 40);
    assert_eq!(op(&document, "aten::outer")["workers"], serde_json::json!({}));
    assert_eq!(of("a range", "counters"), 11);
    assert_eq!(of("a range", "self_counters"), 6);
    assert_eq!(of("aten::in_range", "counters"), 5);
    assert_eq!(of("a later range", "counters"), 0);
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
    // No op of the forward pass had that sequence number.
    assert!(op(&document, "AddBackward0").get("forward").is_none());
    assert_eq!(op(&document, "aten::mm")["arguments"], "float32[3, 4], float32[4, 5]");
    assert_eq!(op(&document, "aten::mm")["device"], "cpu0");
    let regions = op(&document, "aten::parallel")["regions"].as_array().unwrap().clone();
    assert_eq!(regions.len(), 1);
    assert_eq!(regions[0]["task_count"], 2);
    assert_eq!(regions[0]["tasks"].as_array().unwrap().len(), 2);
    // The range has no row, because its counters cannot be read on another thread.
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
    assert!(text(&["stats"]).contains("aten::touch"));
    assert!(text(&["export", "--format", "csv"]).contains("aten::parallel"));
}
