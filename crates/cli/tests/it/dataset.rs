//! Tests `export --dataset`. The numbers that DuckDB reads from a dataset's files must be those
//! that `report` prints.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use testkit::{ProfileScript, Random, Scratch, python};

use crate::account;
use crate::sampled;

const PROGRAM: &str = env!("CARGO_BIN_EXE_counterpoint");

/// Compares each report with the tables of its rank. Sums over several processes may differ a
/// little, because the tables contain rounded times.
const COMPARE: &str = r#"
import duckdb, glob, json, sys
dataset, *reports = sys.argv[1:]
def read(table):
    files = glob.glob(f"{dataset}/{table}/**/*.parquet", recursive=True)
    return f"read_parquet({files}, union_by_name=true, hive_partitioning=false)" if files else None
def rows(sql):
    found = duckdb.sql(sql)
    return [dict(zip(found.columns, row)) for row in found.fetchall()]
stats, hist, counters = map(read, ("stats", "hist", "counters"))
compared = estimates = counted = 0
for rank, report in enumerate(reports):
    report = json.load(open(report))
    of_op = {}
    for row in rows(f"select * from {stats} where rank = {rank}"):
        of_op.setdefault(row["op"], []).append(row)
    assert set(of_op) == {row["op"] for row in report["rows"]}, (rank, set(of_op))
    for row in report["rows"]:
        own = of_op[row["op"]]
        # An op that several libraries have: the report tells them apart by number.
        if sum(other["op"] == row["op"] for other in report["rows"]) > 1:
            continue
        def total(name):
            values = [one[name] for one in own]
            return None if None in values else sum(values)
        def same(name, of_report, slack):
            found = total(name)
            assert (found is None) == (of_report is None), (rank, row["op"], name, found, of_report)
            assert found is None or abs(found - of_report) <= slack, (rank, name, found, of_report)
        half = 0.5 * len(own) + 1e-6
        same("calls", row["calls"], 0)
        assert total("inner_calls") == row.get("inner_calls", 0)
        # The parts of a sum are exact; estimates of strata are not, to the last digit.
        same("total_ns", row["total_ns"], half)
        same("self_ns", row["self_ns"], half)
        estimates += own[0]["known"] == "estimate"
        counted += own[0]["known"] == "counted"
        if len(own) == 1:
            for name in ("min_ns", "p50_ns", "p99_ns", "max_ns"):
                same(name, row[name], half)
            interval = row.get("intervals")
            if interval:
                same("total_low_ns", interval["total_ns"]["low"], half)
                same("total_high_ns", interval["total_ns"]["high"], half)
        key = own[0]["op_key"]
        where = f"where rank = {rank} and op_key = '{key}'"
        buckets = rows(f"select sum(calls) as n, min(bucket) as b from {hist} {where}")[0]
        if own[0]["known"] == "measured" and "sampled" not in row:
            assert buckets["n"] == row["calls"], (rank, row["op"], buckets)
        else:
            assert buckets["n"] is None
        for of_report in row["counters"]:
            where_counter = f"{where} and counter = '{of_report['name']}'"
            values = rows(f"select * from {counters} {where_counter}") if counters else []
            if of_report["total"] is None:
                assert values == [], values
                continue
            value = sum(one["value"] for one in values)
            assert abs(float(value) - of_report["total"]) <= 0.5 * len(values) + 1e-6
            assert sum(one["calls"] for one in values) == of_report["calls"]
            for one in values:
                assert (one["sum_ns_value"] is None) == ("sampled" in row)
        compared += 1
assert compared >= 2 * len(reports), compared
assert estimates and counted, (estimates, counted)
print("compared", compared)
"#;

fn run(args: &[&str]) -> Output {
    Command::new(PROGRAM).args(args).env("LC_ALL", "C").output().unwrap()
}

fn add(profile: &Path, dataset: &Path, options: &[&str]) -> Output {
    let (profile, dataset) = (profile.to_str().unwrap(), dataset.to_str().unwrap());
    run(&[&["export", profile, "--dataset", dataset, "--run", "r"], options].concat())
}

#[test]
fn the_numbers_are_those_of_the_report() {
    let Some(python) = python::with("datasets", "duckdb") else { return };
    let scratch = Scratch::new();
    let dataset = scratch.join("dataset");
    let mut random = Random(0xda7a);
    let mut scripts: Vec<ProfileScript> = (0..10).map(|_| account::script(&mut random)).collect();
    scripts.push(sampled::paper());
    scripts.push(sampled::drawn());
    let mut compare = Command::new(python);
    compare.args(["-c", COMPARE, dataset.to_str().unwrap()]);
    for (rank, script) in scripts.iter().enumerate() {
        let profile = scratch.join(&format!("{rank}.cpt"));
        script.write(&profile);
        let done = add(&profile, &dataset, &["--rank", &rank.to_string()]);
        assert_eq!(done.status.code(), Some(0), "{done:?}");
        let said = run(&["report", profile.to_str().unwrap(), "--format", "json"]);
        assert_eq!(said.status.code(), Some(0), "{said:?}");
        let report = scratch.join(&format!("{rank}.json"));
        std::fs::write(&report, said.stdout).unwrap();
        compare.arg(report);
    }
    let done = compare.output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    assert!(done.stdout.starts_with(b"compared "));
}

#[test]
fn a_rank_is_known_or_asked_for() {
    let scratch = Scratch::new();
    let (profile, dataset) = (scratch.join("a.cpt"), scratch.join("dataset"));
    sampled::paper().write(&profile);
    let asked = Command::new(PROGRAM)
        .args(["export", profile.to_str().unwrap(), "--dataset", dataset.to_str().unwrap()])
        .env_clear()
        .output()
        .unwrap();
    let said = String::from_utf8(asked.stderr).unwrap();
    assert_eq!(asked.status.code(), Some(2));
    assert!(said.contains("it is not known which rank it is of"), "{said}");
    assert!(said.contains("say it with --rank N"), "{said}");
    assert!(!dataset.exists(), "nothing is left of it");
    // If the profile says its rank and run, the environment of `export` has no influence on them.
    let mut script = sampled::paper();
    script.manifest.rank = Some(3);
    script.manifest.job_name = Some("job/5".to_owned());
    script.write(&profile);
    let added = |of_command: &[(&str, &str)], options: &[&str]| {
        let done = Command::new(PROGRAM)
            .args(["export", profile.to_str().unwrap(), "--dataset", dataset.to_str().unwrap()])
            .args(options)
            .env_clear()
            .envs(of_command.iter().copied())
            .output()
            .unwrap();
        String::from_utf8(done.stdout).unwrap()
    };
    let said = added(&[], &[]);
    assert!(said.ends_with("rank 3 of run job/5 added\n"), "{said}");
    assert!(dataset.join("stats/run=job%2F5/rank=3").is_dir());
    let others: [&[(&str, &str)]; 3] = [
        &[("RANK", "4"), ("WORLD_SIZE", "8"), ("TORCHELASTIC_RUN_ID", "other")],
        &[("SLURM_PROCID", "5"), ("SLURM_JOB_ID", "77")],
        &[("COUNTERPOINT_RANK", "6"), ("COUNTERPOINT_RUN", "mine")],
    ];
    for other in others {
        let said = added(other, &[]);
        assert!(said.ends_with("rank 3 of run job/5 is already there\n"), "{said}");
    }
    // The run's name comes from the option `--run`, else from the label `run`, else from the
    // launcher of the process, and else from the launcher of the recording command.
    script.processes[0].job = Some(profile::Job { rank: 2, size: Some(8) });
    script.processes[0].job_name = Some("inner".to_owned());
    script.write(&profile);
    let said = added(&[], &["--rank", "2"]);
    assert!(said.ends_with("rank 2 of run inner added\n"), "{said}");
    script.manifest.labels.insert("run".to_owned(), "named".to_owned());
    script.write(&profile);
    let said = added(&[], &["--rank", "2"]);
    assert!(said.ends_with("rank 2 of run named added\n"), "{said}");
    let said = added(&[], &["--rank", "2", "--run", "r"]);
    assert!(said.ends_with("rank 2 of run r added\n"), "{said}");
    let refused = add(&profile, &dataset, &["--rank", "2", "--calls"]);
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(said.contains("its calls are a sample (run --budget)"), "{said}");
}

#[test]
fn what_is_redacted_has_no_names() {
    let scratch = Scratch::new();
    let (profile, dataset) = (scratch.join("a.cpt"), scratch.join("dataset"));
    let mut script = account::script(&mut Random(5));
    script.manifest.host = "secret-host".to_owned();
    script.manifest.labels.insert("team".to_owned(), "secret-team".to_owned());
    for process in &mut script.processes {
        process.libraries[0].name = "secret-library".to_owned();
        process.libraries[0].exports[0].name = "secret-op".to_owned();
    }
    script.write(&profile);
    let names = |dataset: &Path| {
        let mut found = 0;
        let mut left = vec![dataset.to_owned()];
        while let Some(next) = left.pop() {
            for entry in std::fs::read_dir(next).unwrap() {
                let path = entry.unwrap().path();
                match path.is_dir() {
                    true => left.push(path),
                    false => {
                        let bytes = std::fs::read(path).unwrap();
                        found += bytes.windows(7).filter(|text| text == b"secret-").count();
                    }
                }
            }
        }
        found
    };
    let done = add(&profile, &dataset, &["--rank", "0"]);
    assert_eq!(done.status.code(), Some(0), "{done:?}");
    assert!(names(&dataset) >= 4, "{}", names(&dataset));
    let hidden = scratch.join("hidden");
    let done = add(&profile, &hidden, &["--rank", "0", "--redact", "--calls"]);
    assert_eq!(done.status.code(), Some(0), "{done:?}");
    assert_eq!(names(&hidden), 0);
}

#[test]
fn datasets_are_merged_where_they_are() {
    let scratch = Scratch::new();
    let (profile, a) = (scratch.join("a.cpt"), scratch.join("dataset"));
    account::script(&mut Random(6)).write(&profile);
    for rank in ["0", "1"] {
        add(&profile, &a, &["--rank", rank]);
    }
    let path = a.to_str().unwrap();
    for _ in 0..2 {
        let done = run(&["merge", "-o", path, path]);
        let said = String::from_utf8(done.stdout).unwrap();
        assert!(said.contains("2 recordings of 1 run"), "{said}");
    }
    let stats = std::fs::read_dir(a.join("stats/run=r")).unwrap().count();
    assert_eq!(stats, 1, "one file of both ranks");
    let left: Vec<_> = std::fs::read_dir(scratch.path()).unwrap().collect();
    assert_eq!(left.len(), 2, "{left:?}");
    let mixed = run(&["merge", "-o", "x", path, profile.to_str().unwrap()]);
    let said = String::from_utf8(mixed.stderr).unwrap();
    assert!(said.contains("some inputs are profiles, and some are datasets"), "{said}");
    // A merge would replace the directory, and so remove the user's `notes.txt`.
    let mine = a.join("notes.txt");
    std::fs::write(&mine, "x").unwrap();
    let refused = run(&["merge", "-o", path, path]);
    let said = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(2));
    assert!(said.contains("is not replaced: notes.txt in it is not a dataset's own"), "{said}");
    std::fs::remove_file(&mine).unwrap();
    let newer = a.join("parts/run=r/part-newer.json");
    std::fs::write(&newer, r#"{"schema":"counterpoint.dataset_part/3"}"#).unwrap();
    let refused = run(&["merge", "-o", path, path]);
    let said = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(2));
    assert!(said.contains("is not replaced: left out: ") && said.contains("_part/3"), "{said}");
    std::fs::remove_file(&newer).unwrap();
    let stats = a.join("stats/run=r");
    let file = std::fs::read_dir(stats).unwrap().next().unwrap().unwrap().path();
    let bytes = std::fs::read(&file).unwrap();
    std::fs::write(&file, &bytes[..bytes.len() / 2]).unwrap();
    let refused = run(&["merge", "-o", path, path]);
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(said.contains("is not replaced: run r: rank 0 is incomplete"), "{said}");
    let nowhere = scratch.join("elsewhere");
    let refused = run(&["merge", "-o", nowhere.to_str().unwrap(), path]);
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(said.contains("the datasets have no recordings; run r: rank 0"), "{said}");
    assert!(!nowhere.exists());
    let json: Value =
        serde_json::from_slice(&std::fs::read(a.join("dataset.json")).unwrap()).unwrap();
    assert_eq!(json["schema"], "counterpoint.dataset/1");
}
