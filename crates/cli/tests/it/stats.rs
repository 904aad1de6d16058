//! Tests `stats` on scripted profiles. The expected numbers were computed on paper.
//! `stats_oracle.rs` compares the output of `stats` with results of numpy and scipy.

use std::path::Path;

use model::Loss;
use serde_json::{Value, json};
use testkit::{CallScript, Golden, ProfileScript, Scratch};

fn golden(scratch: &Scratch) -> Golden {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/stats");
    let program = env!("CARGO_BIN_EXE_counterpoint");
    Golden::new(program, root).scrub(scratch.path().display().to_string(), "DIR")
}

/// Returns a profile in which one tick is 1 ns. The n-th call of `matmul` takes n µs. The page
/// faults decrease to 0 while the durations increase. `task-clock` equals the duration in the calls
/// of `matmul`, but it was not read in the last call.
///
/// ```text
///  main    matmul  1 … 6 µs    faults 60, 50 … 10    clock 1,000 … 6,000   cpu 1
///          copy    4 µs        faults 7              clock 3,900           cpu 1
///  worker  matmul  7, 8 µs     faults 0, 0           clock 7,000, not read cpu 2 of node 1
/// ```
fn script() -> ProfileScript {
    let mut script = ProfileScript::monotonic();
    script.counter("page-faults", 0);
    script.counter("task-clock", 1).unit = "ns".into();
    let process = script.process(4711);
    process.losses.push((Loss::CounterOpenFailed, 2, 24));
    process.library("mlp_linked", &["matmul", "copy"]);
    process.empty_calls(256, 50, 200, &[0, 40]);
    let main = process.thread("main");
    for i in 1..=6u64 {
        main.call(
            CallScript::new(0, 1_000_000 + 10_000 * i, 1_000 * i)
                .on(1, 0)
                .group(1_000 * i, &[70 - 10 * i])
                .group(1_000 * i, &[1_000 * i]),
        );
    }
    main.call(CallScript::new(1, 1_080_000, 4_000).on(1, 0).group(9, &[7]).group(9, &[3_900]));
    let worker = process.thread("worker,\"0\"");
    worker
        .call(
            CallScript::new(0, 1_000_000, 7_000).on(2, 1).group(7_000, &[0]).group(7_000, &[7_000]),
        )
        .call(CallScript::new(0, 2_000_000, 8_000).on(2, 1).group(8_000, &[0]).unread());
    script
}

#[test]
fn every_format() {
    let (scratch, dir) = script().written();
    let (golden, dir) = (golden(&scratch), dir.to_str().unwrap());
    golden.check("text", 0, &["stats", dir, "--buckets", "4"]);
    golden.check("sixteen", 0, &["stats", dir, "--op", "mat*", "--thread", "main"]);
    let args = ["stats", dir, "--buckets", "2", "--no-table", "--skip-ms", "0.02"];
    golden.check("no-table", 0, &args);
    golden.check("gamma", 0, &["stats", dir, "--buckets", "4", "--gamma", "2", "--thread", "4712"]);
    golden.check("json", 0, &["stats", dir, "--buckets", "2", "--format", "json"]);
    golden.check("csv", 0, &["stats", dir, "--buckets", "2", "--format", "csv"]);
    golden.check("no-match", 1, &["stats", dir, "--op", "conv*"]);
    golden.check("no-match-near", 1, &["stats", dir, "--op", "mat"]);
    golden.check("no-thread", 1, &["stats", dir, "--thread", "wroker*", "--format", "csv"]);
}

#[test]
fn the_numbers_equal_those_on_paper() {
    let (scratch, dir) = script().written();
    let golden = golden(&scratch);
    let dir = dir.to_str().unwrap();
    let stats = golden.json(&["stats", dir, "--buckets", "4", "--format", "json"]);
    assert_eq!(stats["schema"], "counterpoint.stats/1");
    assert_eq!(stats["asked"]["buckets"], 4);
    assert_eq!(stats["asked"]["op"], Value::Null);
    let names: Vec<&Value> = stats["ops"].as_array().unwrap().iter().map(|op| &op["op"]).collect();
    assert_eq!(names, ["matmul", "copy"]);
    let matmul = &stats["ops"][0];
    // Half of the 50 ns of an empty call is subtracted from each of eight calls.
    assert_eq!(matmul["total_ns"], 35_800.0);
    let all = &matmul["all"];
    assert_eq!(all["calls"], 8);
    let cpus = json!([{"cpu": 1, "node": 0, "calls": 6}, {"cpu": 2, "node": 1, "calls": 2}]);
    assert_eq!(all["cpus"], cpus);
    assert_eq!(all["nodes"], json!([{"node": 0, "calls": 6}, {"node": 1, "calls": 2}]));
    let duration = &all["variables"][0];
    assert_eq!((&duration["name"], &duration["unit"]), (&json!("duration_ns"), &json!("ns")));
    assert_eq!(duration["mean"], 4_475.0);
    let deviation = duration["standard_deviation"].as_f64().unwrap();
    assert!((deviation - 1_000.0 * 6.0f64.sqrt()).abs() < 1e-9);
    assert_eq!((&duration["min"], &duration["max"]), (&json!(975.0), &json!(7_975.0)));
    assert_eq!(duration["bucket_means"], json!([1_475.0, 3_475.0, 5_475.0, 7_475.0]));
    let clock = &all["variables"][2];
    assert_eq!((&clock["calls"], &clock["max"]), (&json!(7), &json!(6_960.0)));
    let pair = &all["pairs"][0];
    assert_eq!((&pair["of"], &pair["given"]), (&json!("duration_ns"), &json!("page-faults")));
    // The ranks of the faults are 8 7 6 5 4 3 and twice 1.5. The ranks of the durations are 1 to 8.
    // The mean of both kinds of ranks is 4.5. The products of the two ranks' differences from the
    // mean add up to −41.5. The squares of these differences add up to 42 for the durations and
    // 41.5 for the faults.
    let spearman = pair["spearman"].as_f64().unwrap();
    assert!((spearman + 41.5 / (42.0f64 * 41.5).sqrt()).abs() < 1e-12);
    // The four buckets of the page faults are 0 0 | 10 20 | 30 40 | 50 60.
    let anti = json!([
        [0.0, 0.0, 0.0, 1.0],
        [0.0, 0.0, 1.0, 0.0],
        [0.0, 1.0, 0.0, 0.0],
        [1.0, 0.0, 0.0, 0.0]
    ]);
    assert_eq!(pair["probability"], anti);
    assert_eq!(all["pairs"][1]["of"], "duration_ns");
    assert_eq!(all["pairs"][1]["calls"], 7);
    assert_eq!(all["pairs"][1]["spearman"], 1.0);
    let worker = &matmul["threads"][1];
    assert_eq!((&worker["name"], &worker["tid"]), (&json!("worker,\"0\""), &json!(4712)));
    assert_eq!(worker["pairs"][0]["pearson"], Value::Null, "its faults are constant");
    assert_eq!(
        worker["variables"][2]["standard_deviation"],
        Value::Null,
        "a single value has no deviation"
    );
    assert_eq!(worker["variables"][2]["bucket_means"], json!([null, null, null, 6_960.0]));
    assert_eq!(matmul["threads"][0]["calls"], 6);
    assert_eq!(stats["probes"][0]["empty_call"]["duration_ns"], 50.0);
    assert_eq!(stats["losses"][0]["name"], "counter_open_failed");
    assert_eq!(stats["asked"]["probe_subtracted"], true);
    let raw = golden.json(&["stats", dir, "--format", "json", "--raw"]);
    assert_eq!(raw["ops"][0]["all"]["variables"][0]["mean"], 4_500.0);
    assert_eq!(raw["ops"][0]["total_ns"], 36_000.0);
}

#[test]
fn nothing_recorded_and_counters_without_values() {
    let (scratch, dir) = ProfileScript::monotonic().written();
    let (checked, dir) = (golden(&scratch), dir.to_str().unwrap());
    checked.check("empty", 0, &["stats", dir]);
    assert_eq!(checked.json(&["stats", dir, "--format", "json"])["ops"], json!([]));

    let mut script = ProfileScript::monotonic();
    script.counter("never", 0);
    let process = script.process(1);
    process.thread("t").call(CallScript::new(3, 10, 5).unread());
    let (scratch, dir) = script.written();
    golden(&scratch).check("lost-name", 0, &["stats", dir.to_str().unwrap(), "--buckets", "2"]);
}

#[test]
fn errors() {
    let (scratch, dir) = script().written();
    let (golden, dir) = (golden(&scratch), dir.to_str().unwrap());
    for (option, value) in [
        ("--buckets", "0"),
        ("--buckets", "257"),
        ("--gamma", "0"),
        ("--gamma", "NaN"),
        ("--skip-ms", "-1"),
        ("--skip-ms", "inf"),
    ] {
        let argument = format!("{option}={value}");
        assert_eq!(golden.run(&["stats", dir, &argument]).code, Some(2), "{argument}");
    }
}
