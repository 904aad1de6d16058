//! Tests that the outputs in README.md are those that the commands print.
//!
//! Real recordings are in `fixtures/readme` (`record.sh` makes them). Some blocks of commands in
//! README.md stand after a comment `<!-- shows: NAME -->`. The last command of such a block reads
//! `NAME.cpt`, and the test compares the output of this command. With `UPDATE_GOLDEN=1`, which
//! `cargo xtask pictures` sets, the test writes the new outputs into README.md.

use std::path::{Path, PathBuf};
use std::process::Command;

use testkit::Scratch;

/// The width of a block of code on the pages of repository hosts.
const COLUMNS: &str = "88";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

pub fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &target),
            false => drop(std::fs::copy(entry.path(), target).unwrap()),
        }
    }
}

/// Returns the page with the outputs that the commands print now, and the number of these commands.
fn renewed(page: &str) -> (String, usize) {
    let scratch = Scratch::new();
    let (mut new, mut shown) = (String::new(), 0);
    let mut rest = page;
    while let Some(at) = rest.find("<!-- shows: ") {
        let (before, block) = rest.split_at(at);
        let name = block["<!-- shows: ".len()..].split(' ').next().unwrap();
        let begin = block.find("```console\n").expect("a block of commands");
        let end = begin + block[begin..].find("\n```\n").expect("the end of the block") + 1;
        let command = begin + block[begin..end].rfind("\n$ counterpoint ").expect("a command") + 3;
        let output = command + block[command..].find('\n').unwrap() + 1;
        let words: Vec<&str> = block[command..output].split_whitespace().skip(1).collect();
        assert!(words.contains(&format!("{name}.cpt").as_str()), "{name}: {words:?}");
        copy(&root().join("fixtures/readme").join(name), &scratch.join(&format!("{name}.cpt")));
        let mut view = Command::new(env!("CARGO_BIN_EXE_counterpoint"));
        view.args(&words).current_dir(scratch.path()).env("COLUMNS", COLUMNS);
        let printed = view.output().unwrap();
        assert!(printed.status.success(), "{}", String::from_utf8_lossy(&printed.stderr));
        new += before;
        new += &block[..output];
        new += &String::from_utf8(printed.stdout).unwrap();
        rest = &block[end..];
        shown += 1;
    }
    (new + rest, shown)
}

#[test]
fn what_the_first_page_shows_is_printed() {
    let path = root().join("README.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let (new, shown) = renewed(&page);
    assert_eq!(shown, 3, "one for each host");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, new).unwrap();
        return;
    }
    let differs = page.lines().zip(new.lines()).find(|(old, new)| old != new);
    assert!(page == new, "README.md is not what is printed (UPDATE_GOLDEN=1): {differs:?}");
}

/// Returns the number of rows that the text takes on a screen of 80 columns. A longer line takes
/// several rows.
fn rows(text: &str) -> usize {
    text.lines().map(|line| line.chars().count().div_ceil(80).max(1)).sum()
}

/// The first block of README.md has one command that shows what Counterpoint does, and one that
/// tests it.
#[test]
fn the_first_screen_has_a_picture_and_two_commands() {
    let page = std::fs::read_to_string(root().join("README.md")).unwrap();
    let (before, rest) = page.split_once("```sh\n").unwrap();
    let (block, after) = rest.split_once("```\n").unwrap();
    let commands: Vec<&str> = block.lines().collect();
    let [demo, test] = commands[..] else { panic!("{commands:?}") };
    assert!(demo.starts_with("cargo xtask demo") && test.starts_with("cargo xtask test"));
    assert!(before.contains("![") && !before.contains("```"), "{before}");
    assert!(after.trim_start().starts_with("## "), "the commands end the first screen");
    assert!(rows(before) + rows(block) < 35, "{} rows", rows(before) + rows(block));
    assert!(block.lines().all(|line| line.chars().count() <= 80), "{block}");
    // Where README.md promises hardware counters, it must also say on what they have been tested.
    let promise = page.split("\n\n").find(|part| part.contains("count")).unwrap();
    assert!(promise.contains("hardware counter") && promise.contains("has been tested only"));
}
