//! Tests merging: the order of the datasets, merges of merged datasets, and a recording that
//! several datasets have.

use std::fs;
use std::path::{Path, PathBuf};

use dataset::merge::move_into_place;
use dataset::{Dataset, Gap, Merged, Table, merge};
use testkit::Scratch;
use testkit::random::Random;

use super::common::{add, files, options, script};

fn merged(inputs: &[&Path], out: &Path) -> Merged {
    fs::create_dir_all(out).unwrap();
    let all: Vec<Dataset> = inputs.iter().map(|dir| Dataset::open(dir).unwrap()).collect();
    merge(&all, out).unwrap()
}

#[test]
fn any_order_and_tree_gives_the_same_files() {
    let scratch = Scratch::new();
    let leaves: Vec<PathBuf> = (0..5).map(|rank| scratch.join(&format!("rank{rank}"))).collect();
    for (rank, leaf) in (0..).zip(&leaves) {
        add(leaf, rank, true);
    }
    let all: Vec<&Path> = leaves.iter().map(PathBuf::as_path).collect();
    let expected = scratch.join("expected");
    let found = merged(&all, &expected);
    assert_eq!(found.members.len(), 5);
    let expected = files(&expected);
    // The files are one for each of six tables (no row of the table losses was made), the JSON file
    // of the part, and dataset.json.
    assert_eq!(expected.len(), 8, "{:?}", expected.keys());
    let mut random = Random(77);
    for round in 0..8 {
        let mut trees = leaves.clone();
        let mut made = 0;
        while trees.len() > 1 {
            let one = trees.swap_remove(random.place(trees.len()));
            let at = random.place(trees.len());
            let out = scratch.join(&format!("tree-{round}-{made}"));
            // This merge gets a random leaf as well, although the same leaf may be in `one`, in
            // `trees[at]` or in other trees.
            let again = &leaves[random.place(leaves.len())];
            merged(&[&one, again, &trees[at]], &out);
            trees[at] = out;
            made += 1;
        }
        assert!(files(&trees[0]) == expected, "round {round}");
    }
}

#[test]
fn the_same_recording_is_there_once() {
    let scratch = Scratch::new();
    let (a, out) = (scratch.join("a"), scratch.join("out"));
    add(&a, 3, false);
    let before = files(&a);
    add(&a, 3, false);
    assert!(files(&a) == before, "nothing has changed");
    // An export with calls replaces the part that the export without calls has written.
    add(&a, 3, true);
    let found = Dataset::open(&a).unwrap();
    assert_eq!(found.members().len(), 1);
    assert_eq!(found.files(Table::Calls).map(|file| file.rows).sum::<u64>(), 40);
    let listed: usize = found.parts.iter().map(|part| part.files.len()).sum();
    assert_eq!(files(&a).len(), listed + 2);
    let found = merged(&[&a, &a], &out);
    assert_eq!((found.members.len(), found.repeated), (1, 1));
}

/// If a recording could be exported again into a dataset whose merged part contains it, the dataset
/// would have it twice.
#[test]
fn a_merged_recording_is_not_added_again() {
    let scratch = Scratch::new();
    let (a, out, own, both) =
        (scratch.join("a"), scratch.join("out"), scratch.join("own"), scratch.join("both"));
    add(&a, 3, false);
    add(&a, 4, false);
    merged(&[&a], &out);
    let before = files(&out);
    add(&out, 3, false);
    assert!(files(&out) == before, "it is already there");
    let (_profile, path) = script(3).written();
    let profile = profile::Profile::open(&path).unwrap();
    let refused = dataset::export(&profile, &out, &options(3, true)).unwrap_err().to_string();
    assert!(
        refused.contains("rank 3 is already in") && refused.contains("merge both"),
        "{refused}"
    );
    add(&own, 3, true);
    let found = merged(&[&out, &own], &both);
    assert_eq!((found.members.len(), found.repeated, found.gaps.len()), (2, 1, 1));
    assert!(found.members[0].calls && !found.members[1].calls, "{:?}", found.members);
    // A merge with a redacted export would keep the names in `out`, so the error does not advise a
    // merge.
    let redacted = dataset::Options { redacted: true, ..options(3, true) };
    let refused = dataset::export(&profile, &out, &redacted).unwrap_err().to_string();
    assert!(refused.contains("its names stay there"), "{refused}");
    add(&out, 5, false);
    assert_eq!(Dataset::open(&out).unwrap().members().len(), 3);
    // Readers leave out a part with a damaged file, so its ranks can be added again.
    let stats = Dataset::open(&out).unwrap().parts[0].files["stats"].path.clone();
    fs::write(out.join(stats), "").unwrap();
    add(&out, 3, false);
    let found = Dataset::open(&out).unwrap();
    assert_eq!(found.members().iter().map(|member| member.rank).collect::<Vec<_>>(), [3, 5]);
}

#[test]
fn what_is_missing_is_named_and_the_rest_is_merged() {
    let scratch = Scratch::new();
    let (a, out) = (scratch.join("a"), scratch.join("out"));
    for rank in [0, 1, 3, 5, 6] {
        add(&a, rank, false);
    }
    let whole = Dataset::open(&a).unwrap();
    let broken = whole.parts.iter().find(|part| part.members[0].rank == 5).unwrap();
    let file = a.join(&broken.files["hist"].path);
    let bytes = fs::read(&file).unwrap();
    fs::write(&file, &bytes[..bytes.len() - 9]).unwrap();
    let found = merged(&[&a], &out);
    let ranks: Vec<u32> = found.members.iter().map(|member| member.rank).collect();
    assert_eq!(ranks, [0, 1, 3, 6]);
    let mut missing = Vec::new();
    for gap in &found.gaps {
        match gap {
            Gap::NoPart { run, size, ranks } => {
                assert_eq!((&**run, *size), ("train 7", 8));
                missing.push(ranks.to_string());
            }
            Gap::Broken { rank, why, .. } => {
                assert_eq!(*rank, 5);
                assert!(why.contains(&format!("{} of {} bytes", bytes.len() - 9, bytes.len())));
            }
            other => panic!("{other}"),
        }
    }
    assert_eq!(missing, ["2, 4, 7"]);
    let b = scratch.join("b");
    add(&b, 5, false);
    let found = merged(&[&a, &b], &scratch.join("again"));
    assert_eq!((found.members.len(), found.gaps.len()), (5, 1));
}

#[test]
fn the_new_one_takes_the_place_of_the_old_one_in_one_step() {
    let scratch = Scratch::new();
    let (a, stage) = (scratch.join("a"), scratch.join("stage"));
    add(&a, 0, false);
    let old = files(&a);
    merged(&[&a], &stage);
    let new = files(&stage);
    move_into_place(&stage, &a).unwrap();
    assert!(files(&a) == new && files(&stage) == old);
    let elsewhere = scratch.join("elsewhere");
    move_into_place(&a, &elsewhere).unwrap();
    assert!(files(&elsewhere) == new && !a.exists());
}

#[test]
fn what_is_no_dataset_or_leads_elsewhere_is_refused() {
    let scratch = Scratch::new();
    let a = scratch.join("a");
    fs::create_dir(&a).unwrap();
    let why = Dataset::open(&a).unwrap_err().to_string();
    assert!(why.ends_with("is not a dataset: it has no dataset.json"), "{why}");
    fs::write(a.join("dataset.json"), r#"{"schema":"counterpoint.dataset/9"}"#).unwrap();
    let why = Dataset::open(&a).unwrap_err().to_string();
    assert!(why.contains("counterpoint.dataset/9"), "{why}");
    let b = scratch.join("b");
    add(&b, 0, false);
    let json = b.join("parts/run=train%207/rank=0").join(format!("part-{:032x}.json", 0));
    let text = fs::read_to_string(&json).unwrap();
    fs::write(&json, text.replace("\"stats/", "\"../stats/")).unwrap();
    let found = Dataset::open(&b).unwrap();
    assert!(found.parts.is_empty());
    assert!(
        matches!(&found.gaps[0], Gap::Broken { why, .. } if why.contains("not a place inside"))
    );
}

#[test]
fn a_sum_of_39_digits_is_a_named_error() {
    let scratch = Scratch::new();
    let mut script = script(0);
    let process = &mut script.processes[0];
    for _ in 0..2 {
        let call = testkit::CallScript::new(2, 9_000_000, 50).group(50, &[u64::MAX]);
        process.threads[0].call(call);
    }
    let (_kept, path) = script.written();
    let profile = profile::Profile::open(&path).unwrap();
    let error = dataset::export(&profile, &scratch.join("a"), &options(0, false)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "add: the sum of squares of instructions:u has more than 38 digits"
    );
}
