//! Tests runs with a budget in which PyTorch announces its ops only in some steps of the program.
//! The host (`tests/programs/torch_steps_host.c`) imitates PyTorch.
//! `tests/python/torch/test_steps.py` tests PyTorch itself.

use std::collections::BTreeMap;
use std::process::Command;

use profile::{CountedCalls, Profile};
use record::meta::Role;
use serde_json::Value;

use crate::support::{Programs, Recorded, counterpoint};

const STEPS: u64 = 2_000;

/// Runs the host with a budget that is much smaller than the cost of announcing ops. Returns the
/// recording and the number of calls of `aten::other`. Returns `None` if there is no built
/// `counterpoint`.
fn run(mode: &str, options: &[&str]) -> Option<(Recorded, u64)> {
    run_steps(STEPS, mode, options)
}

fn run_steps(steps: u64, mode: &str, options: &[&str]) -> Option<(Recorded, u64)> {
    let program = counterpoint("steps of torch")?;
    let mut host = Command::new(Programs::get().other("torch_steps_host"));
    host.args([mode, &steps.to_string()]);
    let options = [&["--budget=1%"], options].concat();
    let recorded = Recorded::run_with(&program, "none", &options, &mut host);
    let others =
        recorded.stdout().trim().parse().unwrap_or_else(|_| panic!("{}", recorded.stderr()));
    Some((recorded, others))
}

/// Returns the numbers of calls of an op, with one entry for each process and thread.
fn calls<'a>(profile: &'a Profile, wanted: &str) -> Vec<&'a CountedCalls> {
    let is_it = |one: &&CountedCalls| {
        let op = profile.ops.of(one.process, one.export).and_then(|op| profile.ops.get(op));
        op.is_some_and(|op| op.role == Role::Op && op.name == wanted)
    };
    profile.counted().iter().filter(is_it).collect()
}

fn sum(profile: &Profile, op: &str) -> u64 {
    calls(profile, op).iter().map(|one| one.calls).sum()
}

fn seen(profile: &Profile, op: &str) -> u64 {
    calls(profile, op).iter().map(|one| one.seen()).sum()
}

/// Returns the number of all steps, and the number of steps in which ops were not announced.
fn steps(profile: &Profile) -> (u64, u64) {
    let all = profile.processes.iter().filter_map(|process| process.steps);
    all.fold((0, 0), |(all, away), of| (all + of.steps, away + of.away - of.away_before))
}

fn report(recorded: &Recorded, words: &[&str]) -> String {
    let mut view = Command::new(&recorded.program);
    let output = view.arg("report").arg(recorded.path()).args(words).output().unwrap();
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn row(recorded: &Recorded, op: &str) -> Value {
    let document: Value = serde_json::from_str(&report(recorded, &["--format", "json"])).unwrap();
    let rows = document["rows"].as_array().unwrap();
    rows.iter().find(|row| row["op"] == op).unwrap_or_else(|| panic!("{op}: {document}")).clone()
}

#[test]
fn estimates_of_equal_steps_are_the_truth_and_are_marked() {
    let Some((recorded, others)) = run("same", &[]) else { return };
    let profile = recorded.profile();
    let (all, away) = steps(&profile);
    // The range `a step` counts as a step from its second occurrence on.
    assert_eq!(all, STEPS - 1);
    assert!(away > STEPS / 2 && away < STEPS - 8, "{away} steps were away");
    assert_eq!(others, 3 * STEPS);
    for (op, each) in [("aten::same", 5), ("aten::other", 3)] {
        assert_eq!(sum(&profile, op), each * STEPS, "{op}");
        assert_eq!(seen(&profile, op), each * (STEPS - away), "{op}");
    }
    // Ops outside of steps, and ranges, are counted exactly.
    assert_eq!((sum(&profile, "aten::first"), seen(&profile, "aten::first")), (4, 4));
    let ranges = profile.counted().iter().filter(|one| {
        let op = profile.ops.of(one.process, one.export).and_then(|op| profile.ops.get(op));
        op.is_some_and(|op| op.role == Role::Range)
    });
    let ranges: Vec<_> = ranges.map(|one| (one.calls, one.steps)).collect();
    assert_eq!(ranges, [(STEPS, None)]);
    // If ops are announced in at least 100 steps of equal weight, both ends of the interval are
    // within 5 % of the true number.
    let sampled = &row(&recorded, "aten::same")["sampled"];
    let end = |name: &str| sampled["estimated_calls"][name].as_f64().unwrap() / (5 * STEPS) as f64;
    assert_eq!(sampled["estimated_calls"]["value"], (5 * STEPS) as f64, "{sampled}");
    assert!(end("low") > 0.95 && end("low") < 1.0, "{sampled}");
    assert!(end("high") < 1.05 && end("high") > 1.0, "{sampled}");
    let text = report(&recorded, &["--width", "200"]);
    assert!(text.contains("~10,000") && text.contains("~6,000"), "{text}");
    assert!(text.contains(&format!("of {} steps", "1,999")), "{text}");
    assert_eq!(row(&recorded, "aten::first")["sampled"].get("estimated_calls"), None);
}

/// In about one of 16 runs, the ops of the last step are announced. The test needs runs of both
/// kinds.
#[test]
fn the_last_step_counts_like_the_others() {
    const FEW: u64 = 150;
    let (mut seen_last, mut away_last) = (false, false);
    for _ in 0..200 {
        let Some((recorded, _)) = run_steps(FEW, "same", &[]) else { return };
        let profile = recorded.profile();
        assert_eq!(sum(&profile, "aten::same"), 5 * FEW);
        let steps = profile.processes.iter().find_map(|process| process.steps).expect("steps");
        match steps.is_away {
            0 => seen_last = true,
            _ => away_last = true,
        }
        if seen_last && away_last {
            return;
        }
    }
    panic!("of 200 runs, some end in a step that is seen: {seen_last}, away: {away_last}");
}

#[test]
fn exact_counts_are_exact() {
    let Some((recorded, _)) = run("varying", &["--exact-counts"]) else { return };
    let profile = recorded.profile();
    let others: u64 = recorded.stdout().trim().parse().unwrap();
    assert_eq!(sum(&profile, "aten::other"), others);
    assert_eq!(sum(&profile, "aten::same"), 5 * STEPS);
    assert!(profile.counted().iter().all(|one| one.steps.is_none()));
    assert!(!report(&recorded, &["--width", "200"]).contains('~'));
}

#[test]
fn a_program_without_steps_is_seen_whole() {
    let Some((recorded, others)) = run("none", &[]) else { return };
    let profile = recorded.profile();
    assert_eq!((sum(&profile, "aten::other"), seen(&profile, "aten::other")), (others, others));
    assert_eq!(steps(&profile), (0, 0));
}

/// A step has from 1 to 9 calls, with a standard deviation of 2.6. If ops are announced in 125 of
/// 2,000 steps (one in 16), the standard error of the estimated number of calls is 2,000 · 2.6 /
/// √125 ≈ 465. So a 95 % interval is about 1,800 calls wide.
#[test]
fn the_interval_holds_the_truth_of_steps_that_differ() {
    let Some((recorded, others)) = run("varying", &[]) else { return };
    let calls = row(&recorded, "aten::other")["sampled"]["estimated_calls"].clone();
    let of = |name: &str| calls[name].as_f64().unwrap_or_else(|| panic!("{calls}"));
    let (value, low, high) = (of("value"), of("low"), of("high"));
    assert!(low < value && value < high, "{calls}");
    assert!(high - low < 2_500.0, "{calls}");
    // One interval in twenty does not contain the true number. An interval that is twice as wide
    // contains it almost always.
    let truth = others as f64;
    assert!(truth > 2.0 * low - value && truth < 2.0 * high - value, "{calls}, in truth {truth}");
}

#[test]
fn what_a_killed_process_has_counted_is_there() {
    let Some((recorded, _)) = run("kill", &[]) else { return };
    let profile = recorded.profile();
    assert!(steps(&profile).1 > STEPS / 2);
    assert_eq!(sum(&profile, "aten::same"), 5 * STEPS);
}

#[test]
fn a_child_that_is_forked_in_any_step_is_seen_whole() {
    let Some((recorded, _)) = run("fork", &[]) else { return };
    let profile = recorded.profile();
    assert_eq!(sum(&profile, "aten::same"), 5 * STEPS);
    let children = STEPS / 100;
    assert_eq!(
        (sum(&profile, "aten::child"), seen(&profile, "aten::child")),
        (7 * children, 7 * children)
    );
}

/// The forked child returns from the op, too. The parent must record the op, and the child must
/// not.
#[test]
fn a_child_that_is_forked_inside_of_an_op_is_seen_whole() {
    let Some((recorded, others)) = run("inside", &[]) else { return };
    let profile = recorded.profile();
    let (_, away) = steps(&profile);
    assert!(away > STEPS / 2 && others == 3 * STEPS);
    for (op, each) in [("aten::around", 1), ("aten::other", 3)] {
        assert_eq!(sum(&profile, op), each * STEPS, "{op}");
        assert_eq!(seen(&profile, op), each * (STEPS - away), "{op}");
    }
    let children = STEPS / 100;
    assert_eq!(
        (sum(&profile, "aten::child"), seen(&profile, "aten::child")),
        (7 * children, 7 * children)
    );
    let parent = calls(&profile, "aten::around")[0].process;
    let of_parent = |op: &str| calls(&profile, op).iter().all(|one| one.process == parent);
    assert!(of_parent("aten::around") && !of_parent("aten::child"));
    assert_eq!(recorded.losses(), BTreeMap::new());
}

#[test]
fn calls_of_other_threads_are_estimated_as_well() {
    let Some((recorded, _)) = run("threads", &[]) else { return };
    let profile = recorded.profile();
    let (_, away) = steps(&profile);
    assert!(away > STEPS / 2);
    assert_eq!(sum(&profile, "aten::same"), 5 * STEPS);
    assert_eq!(seen(&profile, "aten::worker"), 2 * (STEPS - away));
    assert_eq!(sum(&profile, "aten::worker"), 2 * STEPS);
}

/// The host simulates the processor time: an op takes 100 ns, and announcing an op takes 1,000 ns.
/// One thread makes 8 calls in each step. In mode `worker`, a second thread makes 72 more calls
/// while the first one sleeps.
#[test]
fn the_price_of_a_step_is_that_of_all_threads() {
    for (mode, calls) in [("alone", 8), ("worker", 80)] {
        let Some((recorded, _)) = run(mode, &[]) else { return };
        let of = recorded.profile().processes.iter().find_map(|process| process.steps);
        let of = of.expect("steps");
        assert!(of.seen_timed >= 10 && of.away_timed >= 10, "{mode}: {of:?}");
        assert_eq!((of.seen_ns, of.away_ns), (calls * 1_100, calls * 100), "{mode}: {of:?}");
        assert_eq!((of.seen_spread, of.away_spread), (0, 0), "{mode}: {of:?}");
    }
}

/// After the last step, the program runs for longer than a step takes, so its ops must be announced
/// again.
#[test]
fn what_follows_the_last_step_is_seen() {
    let Some((recorded, _)) = run("tail", &[]) else { return };
    let profile = recorded.profile();
    let tail = seen(&profile, "aten::tail");
    assert!((50_000..60_000).contains(&tail), "{tail}");
}
