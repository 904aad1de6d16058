//! Tests `export --format pprof|folded|speedscope`. The stacks in files of `export` must be those
//! that `stacks_oracle.py` computes from single calls. Go's pprof must read the same total time.

use std::path::Path;
use std::process::{Command, Output};

use testkit::{CallScript, ProfileScript, Random, Scratch, python};

use crate::support::skip;

const PROGRAM: &str = env!("CARGO_BIN_EXE_counterpoint");
const ORACLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/stacks_oracle.py");

fn export(profile: &Path, format: &str, to: &Path) -> Output {
    let mut command = Command::new(PROGRAM);
    command.arg("export").arg(profile).args(["--format", format, "-o"]).arg(to).output().unwrap()
}

fn ok(output: Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Returns a profile with nested calls. Some names of ops contain characters that the formats use
/// as separators.
fn nested() -> ProfileScript {
    let mut script = ProfileScript::monotonic();
    script.counter("page-faults", 0);
    script.counter("task-clock", 0).unit = "ns".to_owned();
    let mut seed = Random(0x9e37_79b9_7f4a_7c15);
    let mut below = move |n: u64| {
        let seed = seed.next();
        seed % n
    };
    let names = ["matmul", "a;b 12", "line\nend 5", "\u{1b}[31mred", "x", "y"];
    for pid in [7, 8] {
        let process = script.process(pid);
        process.library("m", &names);
        for thread in ["main", "worker 1"] {
            let thread = process.thread(thread);
            let mut begin = 0;
            for _ in 0..100 {
                // Each call is inside of the next one, whose counts are at least as large.
                let (mut from, mut to) = (begin + 100, begin + 101 + below(50));
                let mut values = [0, 0];
                for _ in 0..1 + below(4) {
                    values = [values[0] + below(3), values[1] + below(100)];
                    let op = below(names.len() as u64) as u32;
                    thread.call(CallScript::new(op, from, to - from).group(to - from, &values));
                    (from, to) = (from - 1 - below(10), to + 1 + below(30));
                }
                begin = to + 100;
            }
        }
    }
    script
}

#[test]
fn other_programs_read_the_same_stacks() {
    let Some(python) = python::with("stacks", "google.protobuf") else { return };
    let scratch = Scratch::new();
    let profile = scratch.join("x.cpt");
    nested().write(&profile);
    let mut tree = Command::new(PROGRAM);
    tree.arg("report").arg(&profile).args(["--tree", "--format", "json"]);
    let tree_json = ok(tree.output().unwrap());
    let to = scratch.join("tree.json");
    std::fs::write(&to, tree_json).unwrap();
    let mut oracle = Command::new(python);
    let calls = scratch.join("calls");
    ok(export(&profile, "csv", &calls));
    oracle.arg(ORACLE).arg(calls).arg(to);
    for format in ["pprof", "folded", "speedscope"] {
        let to = scratch.join(format);
        ok(export(&profile, format, &to));
        oracle.arg(to);
    }
    let total: u64 = ok(oracle.output().unwrap()).trim().parse().unwrap();
    let folded = std::fs::read_to_string(scratch.join("folded")).unwrap();
    assert!(folded.contains(";a,b 12;") && folded.contains(";line\u{fffd}end 5"), "{folded}");
    let mut command = Command::new(PROGRAM);
    command.arg("export").arg(&profile).args(["--format", "folded", "--filter", "x"]);
    let refused = command.output().unwrap();
    assert_eq!((refused.status.code(), &*refused.stdout), (Some(2), &b""[..]));
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(said.contains("export --format folded: --filter does not go with it"), "{said}");
    go(&scratch, total);
}

fn go(scratch: &Scratch, total: u64) {
    let mut go = Command::new("go");
    let file = scratch.join("pprof");
    go.args(["tool", "pprof", "-top", "-unit=ns", "-nodefraction=0"]).arg(&file);
    go.env("HOME", scratch.join(".")).env("PPROF_TMPDIR", scratch.join("."));
    let Ok(output) = go.output() else { return skip("stacks in pprof", "there is no go") };
    let text = ok(output);
    let line = text.lines().find(|line| line.contains("accounting for")).unwrap_or_default();
    assert!(line.contains(&format!("of {total}ns total")), "{text}");
    let flat = |line: &str| line.split("ns").next()?.trim().parse::<u64>().ok();
    let rows = text.lines().skip_while(|line| !line.contains("flat%")).skip(1);
    assert_eq!(rows.filter_map(flat).sum::<u64>(), total, "{text}");
    assert!(!text.contains('\u{1b}'), "{text}");
}

#[test]
fn a_budget_is_refused() {
    let mut script = ProfileScript::monotonic();
    script.budget(0.1);
    let process = script.process(1);
    process.library("m", &["f"]);
    let call = CallScript::new(0, 10, 10).drawn(1, 1, 0);
    process.thread("main").call(call).counted(0, 5, 1, 0);
    let scratch = Scratch::new();
    script.write(&scratch.join("x.cpt"));
    for format in ["pprof", "folded", "speedscope"] {
        let output = export(&scratch.join("x.cpt"), format, &scratch.join("out"));
        assert_eq!(output.status.code(), Some(2));
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains("with a budget, it is not known what was around a call"), "{said}");
        assert!(!scratch.join("out").exists());
    }
}

/// Returns the time in ns of the stacks that contain this frame, and of all stacks.
pub fn folded(profile: &Path, frame: &str) -> (u64, u64) {
    let text = ok(export(profile, "folded", Path::new("-")));
    let (mut with, mut all) = (0, 0);
    for line in text.lines() {
        let (stack, value) = line.rsplit_once(' ').unwrap();
        let value: u64 = value.parse().unwrap();
        all += value;
        if stack.split(';').any(|name| name == frame) {
            with += value;
        }
    }
    (with, all)
}
