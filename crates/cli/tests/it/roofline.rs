//! Tests `roofline` and `report --roofline` with an invented profile and roofs (limits of the
//! machine).

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use record::meta::Role;
use serde_json::{Value, json};
use testkit::{CallScript, Golden, ProfileScript, Scratch};

const PROGRAM: &str = env!("CARGO_BIN_EXE_counterpoint");

/// One tick is 1 ns. No rule says how much work `sort` does, and the arguments of `dense` were not
/// recorded.
fn recorded() -> ProfileScript {
    let mut script = ProfileScript::monotonic();
    let process = script.process(4711);
    let vm = process.machine("vm 0");
    let product = "float32[100, 100], float32[100, 100], float32[100, 100]";
    let sum = "float32[1000, 1000], float32[1000, 1000], float32[1000, 1000]";
    let mut op = |name, arguments| process.op(vm, Role::Op, name, arguments);
    let [matmul, add, sort, dense] =
        [op("matmul", product), op("add", sum), op("sort", "float32[10]"), op("dense", "")];
    process
        .thread("main")
        .call(CallScript::op(matmul, 1_000, 40_000))
        .call(CallScript::op(matmul, 50_000, 40_000))
        .call(CallScript::op(add, 100_000, 2_400_000))
        .call(CallScript::op(sort, 2_600_000, 5_000))
        .call(CallScript::op(dense, 2_700_000, 5_000));
    script
}

/// Returns invented roofs. The highest ones are 100 GFLOP/s, 10 GB/s from memory, and 50 GB/s from
/// a cache of 1 MB.
fn roofs() -> Value {
    let rate = |best: f64| json!({"best": best, "median": best, "worst": best / 2.0});
    json!({
        "schema": "counterpoint.roofline/1",
        "machine": {"host": "paper", "cpu_model": "Paper CPU @ 1.00GHz", "microcode": "", "cpus": [0],
            "cores": 1, "caches": [{"level": 2, "bytes": 1_000_000, "shared_by": 1, "instances": 1}]},
        "measured_unix_ns": 1,
        "compute": [
            {"bits": 256, "scalar": false, "number": "f32", "fused": true, "cores": 1,
                "flop_per_s": rate(100e9)},
            {"bits": 32, "scalar": true, "number": "f32", "fused": true, "cores": 1,
                "flop_per_s": rate(10e9)},
        ],
        "memory": [
            {"level": 2, "kernel": "read", "cores": 1, "block_bytes": 12_288, "bytes_per_s": rate(50e9)},
            {"level": null, "kernel": "read", "cores": 1, "block_bytes": 12_288, "bytes_per_s": rate(10e9)},
            {"level": null, "kernel": "copy", "cores": 1, "block_bytes": 12_288, "bytes_per_s": rate(8e9)},
        ],
    })
}

fn run(cache: &Path, args: &[&str]) -> Output {
    Command::new(PROGRAM).args(args).env("XDG_CACHE_HOME", cache).output().unwrap()
}

fn document(cache: &Path, args: &[&str]) -> Value {
    let output = run(cache, &[args, &["--format", "json"]].concat());
    let error = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {error}"))
}

#[test]
fn ops_under_their_roofs() {
    let (_scratch, dir) = recorded().written();
    let scratch = Scratch::new();
    let file = scratch.join("roofs.json");
    fs::write(&file, roofs().to_string()).unwrap();
    let (profile, file) = (dir.to_str().unwrap(), file.to_str().unwrap());
    let report = ["report", profile, "--roofline", "--roofs", file];
    let found = document(scratch.path(), &report);
    assert_eq!(found["schema"], "counterpoint.placed/1");
    let rows = found["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2, "what is not known has no row: {found:#}");
    // `add` has a million additions and takes 2.4 ms. Loading and storing its 12 MB takes at least
    // 1.2 ms.
    let (add, matmul) = (&rows[0], &rows[1]);
    assert_eq!((&add["op"], &add["calls"]), (&json!("add"), &json!(1)));
    assert_eq!((&add["flop_per_call"], &add["bytes_per_call"]), (&json!(1e6), &json!(12e6)));
    let roof = json!({"bound": "memory", "level": "memory", "least_ns": 1.2e6, "part": 0.5});
    assert_eq!(add["roof"], roof);
    assert_eq!(add["bytes_per_s"], json!(5e9));
    // The 2 million operations of a matrix product take at least 20 of the 40 µs. Its 120,000 bytes
    // fit into the cache.
    assert_eq!((&matmul["op"], &matmul["calls"]), (&json!("matmul"), &json!(2)));
    assert_eq!((&matmul["flop_per_call"], &matmul["flop_per_s"]), (&json!(2e6), &json!(50e9)));
    let roof = json!({"bound": "compute", "level": "L2", "least_ns": 20e3, "part": 0.5});
    assert_eq!(matmul["roof"], roof);
    assert_eq!((&matmul["threads"], &matmul["dispatches"]), (&json!(1), &Value::Null));

    let own = scratch.join("rules.txt");
    fs::write(&own, "# mine\nsort [n] flop = 20*n; bytes = 2*arguments\n").unwrap();
    let own = own.to_str().unwrap();
    let metrics = ["--work", own, "--metric", "rate = flop / duration in G/s", "--filter", "sort"];
    let with = document(scratch.path(), &[&report, &metrics[..]].concat());
    let rows = with["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 1);
    assert_eq!(
        (&rows[0]["flop_per_call"], &rows[0]["bytes_per_call"]),
        (&json!(200.0), &json!(80.0))
    );
    let metric = &rows[0]["metrics"][0];
    assert_eq!((&metric["name"], &metric["unit"]), (&json!("rate"), &json!("G/s")));
    assert!((metric["value"].as_f64().unwrap() - 0.04).abs() < 1e-12, "{metric}");

    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/roofline");
    let golden = Golden::new(PROGRAM, golden).scrub(scratch.path().display().to_string(), "DIR");
    golden.check("wide", 0, &[&report[..], &["--width", "160"]].concat());
    golden.check("narrow", 0, &[&report[..], &["--width", "80"]].concat());
    golden.check("csv", 0, &[&report[..], &["--format", "csv"]].concat());
    let bad = scratch.join("bad.txt");
    fs::write(&bad, "sort [n] speed = n\n").unwrap();
    golden.check(
        "bad-rule",
        2,
        &["report", profile, "--roofline", "--work", bad.to_str().unwrap()],
    );
    fs::write(&bad, "{}").unwrap();
    golden.check(
        "bad-roofs",
        2,
        &["report", profile, "--roofline", "--roofs", bad.to_str().unwrap()],
    );
}

/// Splits CSV into cells, some of which are quoted.
fn csv(text: &str) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    for line in text.lines() {
        let (mut cells, mut is_quoted) = (vec![String::new()], false);
        for c in line.chars() {
            match c {
                '"' => is_quoted = !is_quoted,
                ',' if !is_quoted => cells.push(String::new()),
                c => cells.last_mut().unwrap().push(c),
            }
        }
        rows.push(cells);
    }
    rows
}

/// All roofs are five times as high as those of [`roofs`], so `add` and `matmul` reach only a tenth
/// of their lower roof. Then the table says that an op is far below both roofs, while CSV and JSON
/// name the lower one.
#[test]
fn far_below_both_roofs() {
    let (_scratch, dir) = recorded().written();
    let scratch = Scratch::new();
    let file = scratch.join("roofs.json");
    let mut high = roofs();
    for list in ["compute", "memory"] {
        for one in high[list].as_array_mut().unwrap() {
            let key = if list == "compute" { "flop_per_s" } else { "bytes_per_s" };
            for (_, rate) in one[key].as_object_mut().unwrap() {
                *rate = json!(rate.as_f64().unwrap() * 5.0);
            }
        }
    }
    fs::write(&file, high.to_string()).unwrap();
    let report = ["report", dir.to_str().unwrap(), "--roofline", "--roofs", file.to_str().unwrap()];
    let text = run(scratch.path(), &[&report[..], &["--width", "160"]].concat());
    let text = String::from_utf8(text.stdout).unwrap();
    let shown = |op: &str| text.lines().find(|line| line.starts_with(op)).unwrap().to_owned();
    let table = run(scratch.path(), &[&report[..], &["--format", "csv"]].concat());
    let table = csv(&String::from_utf8(table.stdout).unwrap());
    let place = |name: &str| table[0].iter().position(|column| column == name).unwrap();
    let found = document(scratch.path(), &report);
    for (op, bound) in [("add", "memory"), ("matmul", "compute")] {
        assert!(shown(op).contains("far below both") && shown(op).contains("10.0 %"), "{text}");
        let row = table.iter().find(|row| row[0] == op).unwrap();
        assert_eq!((row[place("bound")].as_str(), row[place("roof")].as_str()), (bound, "0.1"));
        let rows = found["rows"].as_array().unwrap();
        let row = rows.iter().find(|row| row["op"] == op).unwrap();
        assert_eq!((&row["roof"]["bound"], &row["roof"]["part"]), (&json!(bound), &json!(0.1)));
    }
    assert!(text.contains("far below both: less than a quarter of the lower roof"), "{text}");
}

/// Without measured roofs, the report has rates but no roofs, and it does not measure them itself.
#[test]
fn without_roofs_there_are_rates() {
    let (_scratch, dir) = recorded().written();
    let cache = Scratch::new();
    let found = document(cache.path(), &["report", dir.to_str().unwrap(), "--roofline"]);
    assert_eq!(found["measured_unix_ns"], Value::Null);
    for row in found["rows"].as_array().unwrap() {
        assert_eq!(row["roof"], Value::Null);
        assert!(row["flop_per_s"].as_f64().unwrap() > 0.0);
    }
    assert!(fs::read_dir(cache.path()).unwrap().next().is_none(), "a view made something");
}

#[test]
fn a_machine_is_measured_once() {
    let cache = Scratch::new();
    fs::set_permissions(cache.path(), fs::Permissions::from_mode(0o700)).unwrap();
    let measure = ["roofline", "--seconds", "1"];
    let first = document(cache.path(), &measure);
    for list in ["compute", "memory"] {
        let rows = first[list].as_array().unwrap();
        assert!(!rows.is_empty(), "{list}");
        for row in rows {
            let rate = row.get("flop_per_s").unwrap_or(&row["bytes_per_s"]);
            let [worst, median, best] =
                ["worst", "median", "best"].map(|key| rate[key].as_f64().unwrap());
            assert!(0.0 < worst && worst <= median && median <= best, "{row}");
        }
    }
    assert_eq!(document(cache.path(), &measure), first, "it is kept");
    let folder = cache.join("counterpoint/roofline");
    let files: Vec<_> = fs::read_dir(&folder).unwrap().map(|file| file.unwrap().path()).collect();
    assert_eq!(files.len(), 1, "{files:?}");
    let when = |document: &Value| document["measured_unix_ns"].as_u64().unwrap();
    let again = document(cache.path(), &["roofline", "--seconds", "1", "--again"]);
    assert!(when(&again) > when(&first));
    // The command measures again if others could have written the file with the measured roofs, or
    // if this file is damaged.
    fs::set_permissions(&files[0], fs::Permissions::from_mode(0o666)).unwrap();
    let third = document(cache.path(), &measure);
    assert!(when(&third) > when(&again));
    fs::write(&files[0], "{").unwrap();
    assert!(when(&document(cache.path(), &measure)) > when(&third));
    let text = run(cache.path(), &["roofline", "--width", "100"]);
    let text = String::from_utf8(text.stdout).unwrap();
    for word in ["scalar f32", "memory read", "memory triad", "L1 copy"] {
        assert!(text.contains(word), "{text}");
    }
}

#[test]
fn a_folder_of_others_is_not_used() {
    let cache = Scratch::new();
    let shared = cache.join("shared");
    fs::create_dir(&shared).unwrap();
    fs::set_permissions(&shared, fs::Permissions::from_mode(0o777)).unwrap();
    let output = run(&shared, &["roofline", "--seconds", "1", "--format", "json"]);
    assert!(output.status.success());
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(message.contains("the result is not kept: others can write to"), "{message}");
    assert!(fs::read_dir(&shared).unwrap().next().is_none());
}
