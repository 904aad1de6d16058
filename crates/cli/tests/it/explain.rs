//! Tests what `explain` prints about scripted profiles. `crates/analysis/tests/explain.rs` tests
//! that `explain` finds the real causes.

use std::path::Path;

use profile::Role;
use serde_json::json;
use testkit::{CallScript, Golden, ProfileScript, Random, Scratch};

fn golden(scratch: &Scratch) -> Golden {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/explain");
    let program = env!("CARGO_BIN_EXE_counterpoint");
    Golden::new(program, root).scrub(scratch.path().display().to_string(), "DIR")
}

/// Calls of `matmul` take 100 to 129 ns. On `main`, about one in 9 of them takes 100 ns longer, and
/// has 24 page faults instead of 2. The durations of `softmax` do not depend on the counters.
fn script() -> ProfileScript {
    let mut script = ProfileScript::monotonic();
    script.counter("page-faults", 0);
    let process = script.process(4711);
    process.library("mlp_linked", &["matmul", "softmax", "copy"]);
    let mut random = Random(29);
    for thread in 0..2u32 {
        let calls = process.thread(["main", "worker"][thread as usize]);
        for call in 0..1_500u64 {
            let is_slow = thread == 0 && random.odd(9);
            let duration = 100 + random.below(30) + if is_slow { 100 } else { 0 };
            let faults = if is_slow { 24 } else { 2 };
            let begin = 1_000 + call * 1_000 + 500 * u64::from(thread);
            let mut add = |export, begin, duration, faults| {
                let call = CallScript::new(export, begin, duration).on(thread, 0);
                calls.call(call.group(duration, &[faults]));
            };
            add(0, begin, duration, faults);
            add(1, begin + 250, 40 + random.below(20), random.below(3));
            add(2, begin + 320, 10, 0);
        }
    }
    script
}

fn written(script: &ProfileScript) -> (Scratch, String) {
    let scratch = Scratch::new();
    let dir = scratch.join("explain.cpt");
    script.write(&dir);
    let profile = dir.display().to_string();
    (scratch, profile)
}

#[test]
fn says_what_goes_with_slow_calls() {
    let (scratch, profile) = written(&script());
    let golden = golden(&scratch);
    golden.check("most", 0, &["explain", &profile, "--width", "80"]);
    golden.check("glob", 0, &["explain", "*", &profile, "--width", "80"]);
    golden.check("markdown", 0, &["explain", "matmul", &profile, "--format", "markdown"]);
    // The op and the profile can be given in either order. The op can also be given as the option
    // `--op`.
    let named = golden.run(&["explain", "matmul", &profile]);
    let swapped = golden.run(&["explain", &profile, "matmul"]);
    assert_eq!(swapped.stdout, named.stdout);
    let option = golden.run(&["explain", "--op", "matmul", &profile]);
    assert!(named.stdout.starts_with("matmul\n") && named.stdout == option.stdout);
    golden.check("two-ops", 2, &["explain", "matmul", &profile, "--op", "copy"]);
    golden.check("no-op", 1, &["explain", "matmull", &profile]);
    golden.check("no-profile", 2, &["explain", "there/is/no.cpt"]);

    let document = golden.json(&["explain", "matmul", &profile, "--format", "json"]);
    assert_eq!(document["schema"], "counterpoint.explain/1");
    let op = &document["ops"][0];
    assert_eq!((&op["calls"], &op["used_calls"]), (&json!(3_000), &json!(3_000)));
    assert_eq!(op["rows"][0]["op"], "matmul");
    let findings = op["findings"].as_array().unwrap();
    let faults = findings.iter().find(|one| one["variable"] == "page-faults").unwrap();
    assert_eq!(faults["effect"]["others"]["mean"].as_f64().unwrap().round(), 2.0);
    let silent = golden.json(&["explain", "softmax", &profile, "--format", "json"]);
    assert_eq!(silent["ops"][0]["findings"], json!([]));
}

/// Rows that differ only in their arguments belong to one op.
#[test]
fn arguments_are_a_variable() {
    let mut script = ProfileScript::monotonic();
    let process = script.process(4711);
    let machine = process.machine("vm 0");
    let shapes = ["float32[32]", "float32[64]", "float32[128]"];
    let ops = shapes.map(|shape| process.op(machine, Role::Op, "add", shape));
    let mut random = Random(7);
    let calls = process.thread("main");
    for call in 0..900u64 {
        let which = random.place(3);
        let duration = [100, 100, 170][which] + random.below(60);
        calls.call(CallScript::op(ops[which], 1_000 + call * 1_000, duration));
    }
    let (scratch, profile) = written(&script);
    golden(&scratch).check("arguments", 0, &["explain", "add", &profile, "--width", "80"]);
}
