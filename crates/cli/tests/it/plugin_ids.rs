//! Tests `run --plugin-ids`, which links kernels of a plugin to the ops of IREE, TVM and PyTorch
//! that launched them. A program calls `tests/programs/plugins/accelerator.c` inside of an op and
//! gives the kernel the op's name. So Perfetto must show matching names at both ends of an arrow.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use testkit::{Scratch, c};

use crate::support::trace_processor::TraceProcessor;
use crate::support::{Programs, Recorded, counterpoint, torch, tvm, with_shared_shims};

fn accelerator(scratch: &Scratch, flags: &[&str]) -> PathBuf {
    let file = scratch.join("accelerator.so");
    c::shared("cc", "plugins/accelerator.c", &file, &[&["-std=gnu11"], flags].concat())
        .expect("a C compiler: Rust links with it");
    file
}

/// Returns how many ids were pushed, how many were popped, and how many kernels were launched.
fn log(file: &Path) -> [u64; 3] {
    let text = std::fs::read_to_string(file).expect("the plugin's log");
    let numbers: Vec<u64> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    numbers.try_into().expect("three numbers")
}

/// The number of arrows from an op to a kernel, by the names of both.
type Arrows = BTreeMap<[String; 2], usize>;

/// Returns the arrows of the exported profile. The traces in JSON and in Perfetto's format must
/// have the same arrows.
fn arrows(program: &Path, profile: &Path, perfetto: &mut TraceProcessor) -> Arrows {
    let scratch = Scratch::new();
    let both = ["t.json", "t.pftrace"].map(|name| {
        let file = scratch.join(name);
        let mut export = Command::new(program);
        let done = export.args(["trace", "export"]).arg(profile).arg("-o").arg(&file).output();
        assert!(done.as_ref().is_ok_and(|done| done.status.success()), "{done:?}");
        let timeline = perfetto.timeline(&file);
        let mut arrows = Arrows::new();
        for [from, to] in &timeline.flows {
            let [from, to] = [from, to].map(|end| &timeline.slices[*end]);
            // Arrows to IREE's own dispatches, which have no `External id`, are left out.
            if to.category == "kernel" && to.args.contains_key("External id") {
                assert_eq!(from.args["External id"], to.args["External id"], "{from:?} {to:?}");
                assert!(from.ts <= to.ts, "{from:?} {to:?}");
                *arrows.entry([from.name.clone(), to.name.clone()]).or_default() += 1;
            }
        }
        arrows
    });
    assert_eq!(both[0], both[1]);
    let [arrows, _] = both;
    arrows
}

fn expected(all: &[(&str, &str, usize)]) -> Arrows {
    all.iter().map(|(op, kernel, count)| ([op, kernel].map(|s| (*s).to_owned()), *count)).collect()
}

/// Returns the op, the kernel and the number of calls of each row of `report --by launch`.
fn launched(program: &Path, profile: &Path) -> Vec<(String, String, u64)> {
    let mut report = Command::new(program);
    report.arg("report").arg(profile).args(["--by", "launch", "--format", "json"]);
    let done = report.output().expect("the program starts");
    let document: Value =
        serde_json::from_slice(&done.stdout).unwrap_or_else(|_| panic!("{done:?}"));
    assert_eq!(document["schema"], "counterpoint.launches/1");
    let row = |row: &Value| {
        let text = |key: &str| row[key].as_str().unwrap_or_default().to_owned();
        (text("op"), text("activity"), row["calls"].as_u64().expect("calls"))
    };
    let mut rows: Vec<_> = document["rows"].as_array().expect("rows").iter().map(row).collect();
    rows.sort();
    rows
}

fn rows(arrows: &Arrows) -> Vec<(String, String, u64)> {
    arrows.iter().map(|([op, kernel], n)| (op.clone(), kernel.clone(), *n as u64)).collect()
}

fn calls(recorded: &Recorded) -> BTreeMap<String, Value> {
    let report = recorded.report(&[]);
    let rows = report["rows"].as_array().expect("rows").iter();
    rows.map(|row| (row["op"].to_string(), row["calls"].clone())).collect()
}

/// Records `host.c`, which imitates IREE.
fn iree(program: &Path, plugin: &Path, to: &Path, events: &str, options: &[&str]) -> Recorded {
    let programs = Programs::get();
    let mut command = Command::new(&programs.host);
    command.arg(&programs.library).args(["launch", "5"]);
    command.env("ACCELERATOR", plugin).env("ACCELERATOR_LOG", to);
    let options = [&["--plugin", plugin.to_str().expect("UTF-8")], options].concat();
    let recorded = Recorded::run_with(program, events, &options, &mut command);
    assert!(recorded.output.status.success(), "{}", recorded.stderr());
    recorded
}

#[test]
fn kernels_are_linked_to_dispatches_of_iree() {
    let Some(program) = counterpoint("plugin ids, IREE") else { return };
    let Some(mut perfetto) = TraceProcessor::start("plugin ids, IREE") else { return };
    let scratch = Scratch::new();
    let plugin = accelerator(&scratch, &[]);
    let to = scratch.join("log");
    for events in ["none", "page-faults:u"] {
        let recorded = iree(&program, &plugin, &to, events, &["--plugin-ids"]);
        // In mode `launch` of the host, the first call never returns. Its id is popped, too.
        assert_eq!(log(&to), [8, 8, 12]);
        let found = arrows(&program, &recorded.path(), &mut perfetto);
        let both = [("call_out", "first of call_out", 5), ("call_out", "second of call_out", 5)];
        assert_eq!(found, expected(&both));
        assert_eq!(launched(&program, &recorded.path()), rows(&found));

        let without = iree(&program, &plugin, &to, events, &[]);
        assert_eq!(log(&to), [0, 0, 12]);
        assert_eq!(arrows(&program, &without.path(), &mut perfetto), Arrows::new());
        assert_eq!(calls(&without), calls(&recorded));
    }
    let plugin = accelerator(&scratch, &["-DNO_IDS"]);
    let recorded = iree(&program, &plugin, &to, "none", &["--plugin-ids"]);
    assert_eq!(arrows(&program, &recorded.path(), &mut perfetto), Arrows::new());
    // With a budget, not every call is recorded, so `--plugin-ids` is refused.
    let refused = Command::new(&program)
        .args(["run", "--plugin-ids", "--budget", "2%", "--", "true"])
        .output()
        .expect("the program starts");
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
}

/// Records the program `host`, and returns the recording and the page faults of each call.
fn faults(program: &Path, options: &[&str], host: &mut Command) -> (Recorded, Vec<String>) {
    let recorded = Recorded::run_with(program, "page-faults:u", options, host);
    assert!(recorded.output.status.success(), "{}", recorded.stderr());
    // Events of plugins have no counters.
    let calls = recorded.calls();
    let faults = calls.iter().map(|call| call["page-faults:u"].clone());
    let faults = faults.filter(|faults| !faults.is_empty()).collect();
    (recorded, faults)
}

/// The plugin's functions for ids touch new pages of memory, whose faults must not be counted.
#[test]
fn counters_do_not_count_what_a_plugin_does_with_an_id() {
    let Some(program) = counterpoint("plugin ids, counters") else { return };
    let programs = Programs::get();
    let scratch = Scratch::new();
    let plugin = accelerator(&scratch, &["-DFAULTS"]);
    let to = scratch.join("log");
    let with = ["--plugin", plugin.to_str().expect("UTF-8"), "--plugin-ids"];
    let stubs = || {
        let mut host = Command::new(&programs.host);
        host.arg(&programs.library).args(["launch", "20"]);
        host.env("ACCELERATOR", &plugin).env("ACCELERATOR_LOG", &to);
        host
    };
    // The first calls of a process may load code, so the test uses the median call.
    let (_, mut found) = faults(&program, &with, &mut stubs());
    found.sort();
    assert_eq!(log(&to)[..2], [23, 23]);
    assert_eq!(found[found.len() / 2], "0", "{found:?}");

    let hook = |mode: &str, count: &str| {
        let mut host = Command::new(&programs.hook_host);
        host.args([mode, count]).arg(&programs.library).env("ACCELERATOR_LOG", &to);
        host
    };
    let (_, found) = faults(&program, &with, &mut hook("touch", "10"));
    assert_eq!(log(&to)[..2], [11, 11]);
    assert_eq!(found[1..], [vec!["64"], vec!["0"; 9]].concat());
    // `longjmp` leaves each of these calls.
    let (recorded, found) = faults(&program, &with, &mut hook("longjmp", "5"));
    assert_eq!(log(&to)[..2], [10, 10]);
    assert_eq!((found.len(), recorded.losses()["call_abandoned"]), (5, 5));
}

/// An op may last longer than the session in which plugins received its id. After the session has
/// ended, the id is not popped.
#[test]
fn an_id_ends_with_its_session() {
    let Some(program) = counterpoint("plugin ids, sessions") else { return };
    let programs = Programs::get();
    let dist = program.parent().and_then(Path::parent).expect("dist");
    // In mode `over`, the second session has one more call.
    for (mode, left, given, calls) in [("between", "1 0", "4 3", 3), ("over", "2 1", "5 4", 4)] {
        let scratch = Scratch::new();
        let plugin = accelerator(&scratch, &[]);
        let profiles = ["first.cpt", "second.cpt"].map(|name| scratch.join(name));
        let mut host = Command::new(programs.other("ids_host"));
        host.arg(&programs.library).arg(mode).env("ACCELERATOR", &plugin);
        host.env("LD_PRELOAD", dist.join("lib/libcounterpoint.so"));
        for profile in &profiles {
            let mut prepare = Command::new(&program);
            prepare.args(["session", "prepare", "-e", "none", "--plugin-ids", "--plugin"]);
            let done = prepare.arg(&plugin).arg("-o").arg(profile).output().expect("it starts");
            let document: Value =
                serde_json::from_slice(&done.stdout).unwrap_or_else(|_| panic!("{done:?}"));
            host.arg(document["run_file"].as_str().expect("a run file"));
        }
        let done = host.output().expect("the host starts");
        assert!(done.status.success(), "{mode}: {done:?}");
        let said = String::from_utf8_lossy(&done.stdout).into_owned();
        let expected =
            format!("first session: 1 0\nend of the call: {left}\nsecond session: {given}\n");
        assert_eq!(said, expected, "{mode}");
        for profile in &profiles {
            let done = Command::new(&program).args(["session", "finish"]).arg(profile).output();
            assert!(done.as_ref().is_ok_and(|done| done.status.success()), "{mode}: {done:?}");
        }
        let linked = [("call_out".to_owned(), "k".to_owned(), calls)];
        assert_eq!(launched(&program, &profiles[1]), linked, "{mode}");
    }
}

/// The plugins of the parent do not record in a forked child.
#[test]
fn a_forked_child_gives_no_ids() {
    let Some(program) = counterpoint("plugin ids, fork") else { return };
    let programs = Programs::get();
    let scratch = Scratch::new();
    let plugin = accelerator(&scratch, &[]);
    let mut host = Command::new(programs.other("ids_host"));
    host.arg(&programs.library).arg("fork").env("ACCELERATOR", &plugin);
    let options = ["--plugin", plugin.to_str().expect("UTF-8"), "--plugin-ids"];
    let recorded = Recorded::run_with(&program, "none", &options, &mut host);
    assert!(recorded.output.status.success(), "{}", recorded.stderr());
    // The process forks inside of a call. The child ends its copy of this call, but does not pop
    // the call's id.
    assert_eq!(recorded.stdout(), "child: 1 0\nparent: 3 3\n");
    let linked = [("call_out".to_owned(), "k".to_owned(), 3)];
    assert_eq!(launched(&program, &recorded.path()), linked);
}

const TVM: &str = include_str!("plugin_ids_tvm.py");

#[test]
fn kernels_are_linked_to_ops_of_tvm() {
    let Some(program) = counterpoint("plugin ids, TVM") else { return };
    let Some(python) = tvm("plugin ids, TVM") else { return };
    let Some(mut perfetto) = TraceProcessor::start("plugin ids, TVM") else { return };
    let scratch = Scratch::new();
    let plugin = accelerator(&scratch, &[]);
    let dist = program.parent().and_then(Path::parent).expect("dist");
    let to = scratch.join("log");
    let script = scratch.join("model.py");
    std::fs::write(&script, TVM).expect("writes");
    let run = |profile: &Path, ids: &str| {
        let mut command = Command::new(&python);
        command.arg(&script).arg(&plugin).arg(profile).arg(ids);
        command.env("PYTHONPATH", dist.join("lib/python")).env("ACCELERATOR_LOG", &to);
        let done = command.output().expect("Python starts");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        arrows(&program, profile, &mut perfetto)
    };
    let mut run = run;
    let profile = scratch.join("ids.cpt");
    let found = run(&profile, "ids");
    let both = [("test.one", "k of test.one", 2), ("test.three", "k of test.three", 6)];
    assert_eq!(found, expected(&both));
    assert_eq!(launched(&program, &profile), rows(&found));
    let [pushes, pops, launches] = log(&to);
    assert!(pushes >= 6 && pushes == pops && launches == 8, "{pushes} {pops} {launches}");
    assert_eq!(run(&scratch.join("none.cpt"), "none"), Arrows::new());
    assert_eq!(log(&to)[..2], [0, 0]);
}

const TORCH: &str = include_str!("plugin_ids_torch.py");

#[test]
fn kernels_are_linked_to_ops_of_pytorch() {
    let Some(program) = counterpoint("plugin ids, PyTorch") else { return };
    let Some(python) = torch("plugin ids, PyTorch") else { return };
    let Some(mut perfetto) = TraceProcessor::start("plugin ids, PyTorch") else { return };
    let scratch = Scratch::new();
    let plugin = accelerator(&scratch, &[]);
    let to = scratch.join("log");
    let script = scratch.join("model.py");
    std::fs::write(&script, TORCH).expect("writes");
    for (ids, both) in [
        (
            true,
            &[
                ("accelerator::once", "k of accelerator::once", 3),
                ("accelerator::twice", "k of accelerator::twice", 6),
            ][..],
        ),
        (false, &[]),
    ] {
        let mut command = Command::new(&python);
        command.arg(&script).env("ACCELERATOR", &plugin).env("ACCELERATOR_LOG", &to);
        with_shared_shims(&mut command);
        let mut options = vec!["--plugin", plugin.to_str().expect("UTF-8")];
        options.extend(ids.then_some("--plugin-ids"));
        let recorded = Recorded::run_with(&program, "none", &options, &mut command);
        assert!(recorded.output.status.success(), "{}", recorded.stderr());
        let found = arrows(&program, &recorded.path(), &mut perfetto);
        assert_eq!(found, expected(both), "{}", recorded.stderr());
        let [pushes, pops, launches] = log(&to);
        assert!(pushes == pops && (pushes >= 6) == ids && launches == 9, "{pushes} {pops}");
        if ids {
            assert_eq!(launched(&program, &recorded.path()), rows(&found));
        }
    }
}
