//! Tests parts that do not match their files, and files that do not belong to a dataset.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use dataset::own::foreign;
use dataset::{Dataset, Gap, Part, merge};
use profile::Profile;
use serde_json::Value;
use testkit::Scratch;

use super::common::{add, files, options, script};

fn json_of(dir: &Path, rank: u32) -> PathBuf {
    dir.join(format!("parts/run=train%207/rank={rank}/part-{rank:032x}.json"))
}

fn edit(dir: &Path, rank: u32, change: impl FnOnce(&mut Value)) {
    let path = json_of(dir, rank);
    let mut part = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    change(&mut part);
    fs::write(path, part.to_string()).unwrap();
}

fn part(dir: &Path, rank: u32) -> Part {
    let found = Dataset::open(dir).unwrap();
    found.parts.into_iter().find(|part| part.members[0].rank == rank).unwrap()
}

/// Opens the dataset, in which rank 1 is damaged, and returns the description of the damage.
fn said(dir: &Path) -> String {
    let found = Dataset::open(dir).unwrap();
    let ranks: Vec<u32> = found.members().iter().map(|member| member.rank).collect();
    assert_eq!(ranks, [0], "{:?}", found.gaps);
    let mut left_out = found.gaps.iter().filter(|gap| gap.is_left_out());
    let said = left_out.next().unwrap().to_string();
    assert_eq!(left_out.next(), None);
    said
}

#[test]
fn a_part_that_claims_too_much_is_named_and_left_out() {
    let scratch = Scratch::new();
    let a = scratch.join("a");
    for rank in [0, 1] {
        add(&a, rank, true);
    }
    let whole = files(&a);
    let check = |change: &dyn Fn(&mut Value), expected: &str| {
        super::common::write(&a, &whole);
        edit(&a, 1, change);
        let said = said(&a);
        assert!(said.contains(expected), "{said}");
    };
    check(
        &|part| part["members"][0]["world_size"] = u32::MAX.into(),
        "4294967295 ranks are more than 1048576",
    );
    check(
        &|part| part["more"]["stats"] = serde_json::json!([part["files"]["stats"].clone()]),
        "twice",
    );
    check(&|part| part["members"][0]["rank"] = (1u32 << 31).into(), "larger than 2147483647");
    let names: Vec<String> = (0..100_000).map(|i| format!("c{i}")).collect();
    check(
        &|part| part["counters"] = names.clone().into(),
        "100000 counters, and a part has up to 1024",
    );
    check(&|part| part["counters"] = vec!["rank"].into(), "a counter is called rank");
    check(&|part| part["members"] = Value::Array(Vec::new()), "no recordings");
    check(&|part| part["files"]["stats"]["rows"] = 7.into(), "rows, and its part says 7");
    check(&|part| part["files"]["stats"]["path"] = "dataset.json".into(), "not a place inside");
    check(
        &|part| {
            let files = part["files"].as_object_mut().unwrap();
            let (stats, hist) = (files["stats"].clone(), files["hist"].clone());
            files.insert("stats".to_owned(), hist);
            files.insert("hist".to_owned(), stats);
        },
        "not a place inside",
    );
}

#[test]
fn a_file_of_another_table_or_rank_is_named_and_left_out() {
    let scratch = Scratch::new();
    let a = scratch.join("a");
    for rank in [0, 1] {
        add(&a, rank, false);
    }
    let (zero, one) = (part(&a, 0), part(&a, 1));
    let whole = files(&a);
    let check = |bytes: Vec<u8>, rows: u64, expected: &str| {
        super::common::write(&a, &whole);
        fs::write(a.join(&one.files["stats"].path), &bytes).unwrap();
        edit(&a, 1, |part| {
            part["files"]["stats"]["bytes"] = bytes.len().into();
            part["files"]["stats"]["rows"] = rows.into();
        });
        let said = said(&a);
        assert!(said.contains(expected), "{said}");
    };
    let of = |part: &Part, table: &str| {
        let file = &part.files[table];
        (fs::read(a.join(&file.path)).unwrap(), file.rows)
    };
    let (hist, rows) = of(&one, "hist");
    check(hist, rows, "has no column op of table stats");
    let (others, rows) = of(&zero, "stats");
    check(others, rows, "it has rows of a rank that its part does not have");
    // The file has the right size, but its footer is damaged.
    let (mut bytes, rows) = of(&one, "stats");
    let size = bytes.len();
    bytes[size - 200..size - 8].fill(0xff);
    check(bytes, rows, "stats/run=train%207/rank=1/");
}

#[test]
fn rows_that_no_member_has_are_an_error_of_the_merge() {
    let scratch = Scratch::new();
    let (a, b, out) = (scratch.join("a"), scratch.join("b"), scratch.join("out"));
    for rank in [0, 1, 2] {
        add(&a, rank, false);
    }
    for dir in [&b, &out] {
        fs::create_dir(dir).unwrap();
    }
    merge(&[Dataset::open(&a).unwrap()], &b).unwrap();
    // Rank 1 is removed from the list of members. It is neither the lowest nor the highest rank, so
    // the statistics in the Parquet footer do not reveal its rows.
    let directory = b.join("parts/run=train%207");
    let json = fs::read_dir(directory).unwrap().next().unwrap().unwrap().path();
    let mut part: Part = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    part.members.remove(1);
    fs::write(&json, serde_json::to_vec(&part).unwrap()).unwrap();
    let error = merge(&[Dataset::open(&b).unwrap()], &out).unwrap_err().to_string();
    assert!(error.contains("it has rows of rank 1 of run train 7"), "{error}");
}

#[test]
fn what_is_no_file_among_the_parts_is_named() {
    let scratch = Scratch::new();
    let a = scratch.join("a");
    add(&a, 0, false);
    let (fifo, link) = (json_of(&a, 0).with_file_name("part-f.json"), a.join("parts/run=x"));
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    std::os::unix::fs::symlink(scratch.path(), &link).unwrap();
    let found = Dataset::open(&a).unwrap();
    assert_eq!(found.members().len(), 1);
    for path in [fifo, link] {
        let why = format!("{}: not a regular file", path.display());
        assert!(found.gaps.contains(&Gap::Unreadable { why }), "{:?}", found.gaps);
    }
    assert_eq!(foreign(&a).unwrap(), Some("parts/run=train%207/rank=0/part-f.json".into()));
}

#[test]
fn a_directory_of_somebody_else_is_no_dataset() {
    let scratch = Scratch::new();
    let (_kept, path) = script(0).written();
    let profile = Profile::open(&path).unwrap();
    let mine = scratch.join("mine");
    fs::create_dir_all(mine.join("src")).unwrap();
    fs::write(mine.join("src/main.rs"), "fn main() {}").unwrap();
    let before = files(&mine);
    let error = dataset::export(&profile, &mine, &options(0, false)).unwrap_err().to_string();
    assert!(error.ends_with("is not a dataset, and not empty: it has src"), "{error}");
    assert!(files(&mine) == before);
    // Here, the profile's directory is also given as the dataset's.
    let error = dataset::export(&profile, &path, &options(0, false)).unwrap_err().to_string();
    assert!(error.contains("is not a dataset, and not empty"), "{error}");
    let too_large = dataset::export(&profile, &scratch.join("a"), &options(1 << 31, false));
    let error = too_large.unwrap_err().to_string();
    assert!(error.contains("rank 2147483648 is larger than 2147483647"), "{error}");
}
