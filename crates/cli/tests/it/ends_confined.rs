//! Tests with `strace` that `recover` and `hook report` give up the right to change anything but
//! the profile, its pool and, in `hook report`, the directory of the CSV files.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use profile::pools::{directory_name, owner};
use profile::{Origin, ProfileId};
use record::pool::create;
use serde_json::json;

use crate::foreign::everything;
use crate::support::memory::Memory;
use crate::views_only_read::{CHANGES, Killed, PART, change, is_change, is_confined, traced};

/// Versions of the Linux kernel, each with the options of `strace` that imitate it. The first
/// version of Landlock cannot allow moving a file to another directory.
const KERNELS: [(&str, &[&str]); 3] = [
    ("this kernel", &["-e", "trace=none"]),
    ("no Landlock", &["-e", "inject=landlock_create_ruleset:error=ENOSYS"]),
    ("the first Landlock", &["-e", "inject=landlock_create_ruleset:retval=1:when=1"]),
];

/// Runs a command. Returns the command's output, the system calls that changed something after the
/// command had given up its last rights, and the rules with which it gave up rights.
fn confined(words: &[String]) -> (Output, Vec<String>, Vec<String>) {
    let (output, log) = traced(&["-y", "-v", "-e", &format!("{CHANGES},landlock_add_rule")], words);
    assert!(is_confined(&log), "{log}");
    let rules = log.lines().filter(|line| line.contains("landlock_add_rule(")).map(str::to_owned);
    let after = log.rsplit("landlock_restrict_self").next().unwrap_or_default().lines().skip(1);
    let changes = after.filter(|line| is_change(line)).map(str::to_owned);
    (output, changes.collect(), rules.collect())
}

/// Whether a rule allows changes; other rules only allow reading.
fn allows_changes(rule: &str) -> bool {
    ["_WRITE_FILE", "_REMOVE_", "_MAKE_", "_REFER", "_TRUNCATE"].iter().any(|r| rule.contains(r))
}

fn place(rule: &str) -> PathBuf {
    let path = rule.split("parent_fd=").nth(1).and_then(|rest| rest.split(['<', '>']).nth(1));
    PathBuf::from(path.unwrap_or_else(|| panic!("{rule}")))
}

/// Returns the places in which the rules allow changes. The value of a place says whether the rules
/// allow more there than removing empty directories.
fn changeable(rules: &[String]) -> BTreeMap<PathBuf, bool> {
    let mut all = BTreeMap::new();
    for rule in rules.iter().filter(|rule| allows_changes(rule)) {
        let more = ["_WRITE_FILE", "_REMOVE_FILE", "_MAKE_REG"].iter().any(|r| rule.contains(r));
        *all.entry(place(rule)).or_default() |= more;
    }
    all
}

fn assert_within(changes: &[String], places: &[&Path]) {
    let is_at = |line: &str, place: &&Path| {
        let name = place.file_name().unwrap().to_str().unwrap();
        let removed = format!("\"{name}\", AT_REMOVEDIR");
        line.contains(place.to_str().unwrap()) || line.contains(&removed)
    };
    let is_within = |line: &&String| places.iter().any(|place| is_at(line, place));
    let outside: Vec<_> = changes.iter().filter(|line| !is_within(line)).collect();
    assert!(outside.is_empty(), "{outside:#?}");
    assert!(!changes.is_empty());
}

/// Returns the length of each file below `dir`. It is 0 for directories and links, and for the
/// manifest, whose length varies.
fn contents(dir: &Path) -> BTreeMap<PathBuf, u64> {
    let all = everything(dir).into_keys().map(|path| {
        let name = path.strip_prefix(dir).unwrap().to_owned();
        let found = fs::symlink_metadata(&path).unwrap();
        let bytes =
            if found.is_file() && name != Path::new("manifest.json") { found.len() } else { 0 };
        (name, bytes)
    });
    all.collect()
}

fn recover(killed: &Killed) -> Vec<String> {
    vec!["recover".to_owned(), killed.dir.display().to_string()]
}

#[test]
fn recover_changes_the_profile_and_its_pool_only() {
    let killed = Killed::new();
    let others = Killed::new();
    let (output, changes, rules) = confined(&recover(&killed));
    assert!(output.status.success(), "{output:?}");
    assert_within(&changes, &[&killed.dir, &killed.shm]);
    // `recover` gives up rights more than once. While it reads and changes the profile, the last
    // rule for the profile and all rules after that one apply.
    let last = rules.iter().rposition(|rule| place(rule) == killed.dir).unwrap();
    let may = changeable(&rules[last..]);
    let shared = Path::new("/dev/shm").to_owned();
    let expected = [(killed.dir.clone(), true), (killed.shm.clone(), true), (shared, false)];
    assert_eq!(may, BTreeMap::from(expected));
    let reads: Vec<_> = rules[last..].iter().map(|rule| place(rule)).collect();
    assert!(!reads.contains(&PathBuf::from("/")), "{reads:?}");
    assert!(others.shm.join("pool").exists());
}

#[test]
fn recover_does_the_same_with_and_without_landlock() {
    let results = KERNELS.map(|(name, options)| {
        let killed = Killed::new();
        let (output, _) = traced(options, &recover(&killed));
        assert!(output.status.success(), "{name}: {output:?}");
        assert!(!killed.shm.exists(), "{name}: the pool is still there");
        assert!(!killed.dir.join(PART).join("plugins-0.events").exists(), "{name}: {output:?}");
        let said = String::from_utf8(output.stderr).unwrap();
        (said.replace(killed.dir.to_str().unwrap(), "PROFILE"), contents(&killed.dir))
    });
    assert!(results[0].0.contains("1 page recovered"), "{}", results[0].0);
    assert!(results[0].1.keys().any(|path| path.starts_with("activities")), "{:?}", results[0].1);
    for (result, (name, _)) in results.iter().zip(KERNELS) {
        assert_eq!(result, &results[0], "{name}");
    }
}

#[test]
fn recover_frees_pools_that_are_left_over() {
    for (name, options) in KERNELS {
        let Some(memory) = Memory::new("pools that are left over") else { return };
        let scratch = testkit::Scratch::new();
        let gone = scratch.join("gone.cpt");
        fs::create_dir(&gone).unwrap();
        let owner = owner(&gone, ProfileId([7; 16])).unwrap();
        fs::remove_dir(&gone).unwrap();
        let pool = memory.path().join(directory_name());
        fs::create_dir(&pool).unwrap();
        create(&pool.join("pool"), &owner).unwrap();
        let mut command = Command::new("strace");
        command.args(["-f", "-qq", "-o", "/dev/null"]).args(options);
        command.arg(env!("CARGO_BIN_EXE_counterpoint")).args(["recover", "--orphans"]);
        memory.make_shared(&mut command);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{name}: {output:?}");
        assert!(!pool.exists(), "{name}: {output:?}");
    }
}

/// Makes a profile as `hook prepare` and a program leave it.
fn hooked(csv: &Path) -> Killed {
    let killed = Killed::new();
    change(&killed.dir, |manifest| manifest.origin = Origin::Hook);
    fs::remove_file(killed.dir.join(PART).join("plugins-0.events")).unwrap();
    let settings = json!({
        "filter": null, "skip_ms": 0.0, "events": "", "list": false, "csv": csv, "buckets": 4,
        "tables": true, "gamma": 0.5, "process": 4_000_711, "labels": [],
    });
    fs::write(killed.dir.join("hook.json"), settings.to_string()).unwrap();
    killed
}

fn report(killed: &Killed) -> Vec<String> {
    ["hook", "report", killed.dir.to_str().unwrap()].map(str::to_owned).to_vec()
}

#[test]
fn hook_report_removes_the_profile_and_writes_its_tables_only() {
    let scratch = testkit::Scratch::new();
    let csv = scratch.join("csv");
    fs::create_dir(&csv).unwrap();
    let killed = hooked(&csv);
    let (output, changes, rules) = confined(&report(&killed));
    assert!(output.status.success(), "{output:?}");
    assert!(!killed.dir.exists() && !killed.shm.exists());
    assert_within(&changes, &[&killed.dir, &killed.shm, &csv]);
    let around = killed.dir.parent().unwrap().to_owned();
    let expected = [
        (killed.dir.clone(), true),
        (around, false),
        (killed.shm.clone(), true),
        (PathBuf::from("/dev/shm"), false),
        (csv.clone(), true),
    ];
    assert_eq!(changeable(&rules), BTreeMap::from(expected));
    let table = fs::read_to_string(csv.join("iree_hook_main.csv")).unwrap();
    assert_eq!(table.lines().count(), 3, "{table}");
}

/// A user may have made links with the names of the CSV files.
#[test]
fn hook_report_does_the_same_with_and_without_landlock() {
    let results = KERNELS.map(|(name, options)| {
        let scratch = testkit::Scratch::new();
        let (csv, elsewhere) = (scratch.join("csv"), scratch.join("elsewhere"));
        fs::create_dir(&csv).unwrap();
        fs::create_dir(&elsewhere).unwrap();
        let link = csv.join("iree_hook_main.csv");
        std::os::unix::fs::symlink("../elsewhere/table", &link).unwrap();
        let killed = hooked(&csv);
        let (output, _) = traced(options, &report(&killed));
        assert!(output.status.success(), "{name}: {output:?}");
        assert!(!killed.dir.exists() && !killed.shm.exists(), "{name}: {output:?}");
        assert!(link.is_symlink(), "{name}");
        (output.stdout, fs::read(elsewhere.join("table")).unwrap(), contents(&csv))
    });
    assert!(!results[0].1.is_empty());
    for (result, (name, _)) in results.iter().zip(KERNELS) {
        assert!(result == &results[0], "{name}");
    }
}
