//! Tests that the profiles in `fixtures/profiles`, which are kept for ever, can still be read. The
//! exported calls must agree with what a decoder in Python has found. That decoder was written only
//! from the description of the format.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;
use testkit::{Golden, Scratch};

const LOSSES: [(&str, u64); 3] =
    [("counter_open_failed", 1), ("torn_page", 1), ("call_cut_short", 1)];

pub fn kept() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/profiles")
}

/// Copies a kept profile, because tests must not change the original.
pub fn copy(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &to);
        } else {
            std::fs::copy(entry.path(), to).unwrap();
        }
    }
}

fn setup() -> (Scratch, String, Golden) {
    let scratch = Scratch::new();
    let dir = scratch.join("v1.cpt");
    copy(&kept().join("v1"), &dir);
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/kept");
    let golden = Golden::new(env!("CARGO_BIN_EXE_counterpoint"), golden);
    (scratch, dir.to_str().unwrap().to_owned(), golden)
}

type Row = BTreeMap<String, String>;

/// Reads a table in CSV, which must have no quoted fields.
fn table(text: &str) -> Vec<Row> {
    let mut lines = text.lines().map(|line| line.split(',').map(str::to_owned));
    let header: Vec<String> = lines.next().unwrap().collect();
    lines.map(|line| header.iter().cloned().zip(line).collect()).collect()
}

#[test]
fn every_call_is_unchanged() {
    let (_scratch, dir, golden) = setup();
    calls_are_those_of(&kept(), &dir, &golden);
}

#[test]
fn every_call_in_pages_of_other_versions_is_unchanged() {
    let (scratch, _, golden) = setup();
    for version in ["pages-2", "pages-3"] {
        let (kept, dir) = (kept().join(version), scratch.join(version));
        copy(&kept.join("recorded"), &dir);
        calls_are_those_of(&kept, dir.to_str().unwrap(), &golden);
    }
}

/// Compares the exported calls with the Python decoder's files in `kept`: the totals of each
/// thread, and each call of the processes in `calls.csv`.
fn calls_are_those_of(kept: &Path, dir: &str, golden: &Golden) {
    let export = golden.run(&["export", dir, "--format", "csv"]);
    assert_eq!(export.code, Some(0), "{}", export.stderr);
    let rows = table(&export.stdout);

    let totals = std::fs::read(kept.join("totals.json")).unwrap();
    let totals: Value = serde_json::from_slice(&totals).unwrap();
    let mut calls = 0;
    for total in totals["threads"].as_array().unwrap() {
        let (pid, tid) = (total["pid"].to_string(), total["tid"].to_string());
        let of_thread = || rows.iter().filter(|r| r["pid"] == pid && r["tid"] == tid);
        assert_eq!(total["calls"], of_thread().count());
        assert!(of_thread().all(|r| total["thread_name"] == *r["thread_name"]));
        calls += of_thread().count();
        let summed = total.as_object().unwrap().iter().filter(|(key, _)| key.ends_with(" rows"));
        for (column, there) in summed.map(|(key, n)| (key.trim_end_matches(" rows"), n)) {
            let values = of_thread().map(|r| &r[column]).filter(|v| !v.is_empty());
            assert_eq!(*there, values.clone().count(), "{column}");
            assert_eq!(total[column], values.map(|v| v.parse::<u64>().unwrap()).sum::<u64>());
        }
    }
    assert_eq!(calls, rows.len());

    let expected = table(&std::fs::read_to_string(kept.join("calls.csv")).unwrap());
    let listed: Vec<&String> = expected.iter().map(|r| &r["pid"]).collect();
    let found: Vec<&Row> = rows.iter().filter(|r| listed.contains(&&r["pid"])).collect();
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(&expected) {
        for (column, value) in expected {
            assert_eq!(found.get(column), Some(value), "{column} of {expected:?}");
        }
    }
}

#[test]
fn calls_equal_those_that_iree_counts() {
    let expected = std::fs::read(kept().join("../iree/expected.json")).unwrap();
    let expected: Value = serde_json::from_slice(&expected).unwrap();
    let rows = table(&std::fs::read_to_string(kept().join("calls.csv")).unwrap());
    let mut pids: Vec<&str> = rows.iter().map(|r| r["pid"].as_str()).collect();
    pids.dedup();
    for (pid, fixture) in pids.iter().zip(["mlp", "mlp", "tinyloop"]) {
        for export in expected["fixtures"][fixture]["variants"]["v3"]["exports"].as_array().unwrap()
        {
            let calls = rows.iter().filter(|r| r["pid"] == *pid && export["name"] == *r["op"]);
            assert_eq!(export["workgroup_calls"], calls.count(), "{pid} {export}");
        }
    }
}

#[test]
fn the_views_of_the_kept_profile() {
    let (_scratch, dir, golden) = setup();
    golden.check("report", 0, &["report", &dir]);
    golden.check(
        "stats",
        0,
        &["stats", &dir, "--op", "*softmax*", "--no-table", "--format", "csv"],
    );
    let report = golden.json(&["report", &dir, "--format", "json"]);
    assert_eq!(report["total"]["processes"], 5);
    let losses = report["losses"].as_array().unwrap();
    let losses: Vec<_> = losses
        .iter()
        .map(|l| (l["name"].as_str().unwrap(), l["count"].as_u64().unwrap()))
        .collect();
    assert_eq!(losses, LOSSES);
}
