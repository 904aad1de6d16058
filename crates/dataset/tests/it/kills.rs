//! Tests that a writer that is killed at any step leaves the dataset in the old or the new state.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};

use dataset::merge::move_into_place;
use dataset::{Dataset, Gap, Table, merge, steps};
use rustix::process::{Pid, Signal, kill_process};
use testkit::Scratch;

use super::common::{add, files, write};
use super::growing;

/// The environment variable that tells a child process what to do, in which directory, and at which
/// step to kill or stop itself.
const VARIABLE: &str = "COUNTERPOINT_TEST_DATASET_CHILD";

/// Does the work of a child, if another test started this process as one.
#[test]
fn child() {
    let Ok(text) = std::env::var(VARIABLE) else { return };
    let [what, dir, step] = text.splitn(3, ':').collect::<Vec<_>>()[..] else { panic!("{text}") };
    let dir = Path::new(dir);
    let step = step.parse().unwrap();
    match what {
        "export" => {
            let (_scratch, path) = super::common::script(1).written();
            let profile = profile::Profile::open(&path).unwrap();
            steps::die_at(step);
            dataset::export(&profile, dir, &super::common::options(1, true)).unwrap();
        }
        "grow" => {
            let (_scratch, path) = growing::script(growing::PAGES, false).written();
            let profile = profile::Profile::open(&path).unwrap();
            steps::die_at(step);
            dataset::export(&profile, dir, &growing::growing(step % 2 == 0)).unwrap();
        }
        "last" => drop(growing::add(
            dir,
            &growing::script(growing::PAGES, false),
            &growing::growing(false),
        )),
        "late" => {
            let (_scratch, path) = growing::script(2, false).written();
            let profile = profile::Profile::open(&path).unwrap();
            steps::stop_at(step);
            dataset::export(&profile, dir, &growing::growing(true)).unwrap();
        }
        "merge" => {
            let opened = [Dataset::open(dir).unwrap()];
            let stage = dir.with_extension("stage");
            std::fs::create_dir(&stage).unwrap();
            steps::die_at(step);
            merge(&opened, &stage).unwrap();
            move_into_place(&stage, dir).unwrap();
        }
        _ => panic!("{what}"),
    }
}

fn to_run(what: &str, dir: &Path, step: u32) -> Command {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "kills::child", "--test-threads=1"]);
    child.env(VARIABLE, format!("{what}:{}:{step}", dir.display()));
    child
}

fn is_killed(what: &str, dir: &Path, step: u32) -> bool {
    let child = to_run(what, dir, step).output().unwrap();
    match child.status.signal() {
        Some(9) => true,
        _ => {
            let text = String::from_utf8_lossy(&child.stdout);
            assert!(child.status.success(), "{}: {text}", child.status);
            assert!(text.contains("1 passed"), "{text}");
            false
        }
    }
}

#[test]
fn an_export_that_is_killed_adds_all_or_nothing() {
    let scratch = Scratch::new();
    let reference = scratch.join("reference");
    add(&reference, 0, true);
    let before = files(&reference);
    let mut step = 1;
    loop {
        let dir = scratch.join(&format!("{step}"));
        write(&dir, &before);
        let killed = is_killed("export", &dir, step);
        let found = Dataset::open(&dir).unwrap();
        let ranks: Vec<u32> = found.members().iter().map(|member| member.rank).collect();
        let broken = found.gaps.iter().filter(|gap| gap.is_left_out());
        assert_eq!(broken.count(), 0, "step {step}: {:?}", found.gaps);
        assert!(ranks == [0] || ranks == [0, 1], "step {step}: {ranks:?}");
        let after = files(&dir);
        assert!(before.iter().all(|(path, bytes)| after.get(path) == Some(bytes)), "step {step}");
        assert!(!is_killed("export", &dir, 0));
        let found = Dataset::open(&dir).unwrap();
        assert_eq!(found.members().len(), 2, "step {step}");
        let listed: usize = found.parts.iter().map(|part| part.all_files().count() + 1).sum();
        assert!(ranks == [0, 1] || files(&dir).len() == listed + 1, "step {step}");
        if !killed {
            assert_eq!(ranks, [0, 1]);
            break;
        }
        step += 1;
    }
    // An export has three steps for each table with rows, and three for the JSON file of the part.
    assert!(step > 3 * 7, "only {step} steps");
}

#[test]
fn a_merge_that_is_killed_leaves_the_old_or_the_new_dataset() {
    let scratch = Scratch::new();
    let reference = scratch.join("reference");
    for rank in 0..3 {
        add(&reference, rank, false);
    }
    let old = files(&reference);
    assert!(!is_killed("merge", &reference, 0));
    let new = files(&reference);
    assert!(new != old);
    let (mut step, mut seen) = (1, [0, 0]);
    loop {
        let dir = scratch.join(&format!("{step}"));
        write(&dir, &old);
        let killed = is_killed("merge", &dir, step);
        let found = files(&dir);
        assert!(found == old || found == new, "step {step}");
        seen[usize::from(found == new)] += 1;
        if !killed {
            break;
        }
        step += 1;
    }
    assert!(seen[0] > 3 * 6 && seen[1] >= 2, "{seen:?}");
}

/// Kills an export of a recording that has grown since the part was written.
#[test]
fn a_growing_part_is_the_old_or_the_new_one() {
    let scratch = Scratch::new();
    let (begun, whole) = (scratch.join("begun"), scratch.join("whole"));
    growing::add(&begun, &growing::script(2, false), &growing::growing(true));
    growing::add(&whole, &growing::script(growing::PAGES, false), &growing::growing(false));
    let calls = |dir: &Path| growing::rows(dir, &growing::part(dir), Table::Calls);
    let (few, all, before) = (calls(&begun), calls(&whole), files(&begun));
    let (mut step, mut seen) = (1, [0, 0]);
    loop {
        let dir = scratch.join(&format!("{step}"));
        write(&dir, &before);
        let killed = is_killed("grow", &dir, step);
        let found = Dataset::open(&dir).unwrap();
        assert!(!found.gaps.iter().any(Gap::is_left_out), "step {step}: {:?}", found.gaps);
        let (part, now) = (growing::part(&dir), calls(&dir));
        assert!(now == few || now == all, "step {step}: {} calls", now.len());
        seen[usize::from(now == all)] += 1;
        let stats = growing::rows(&dir, &part, Table::Stats);
        let other = if now == all { &whole } else { &begun };
        assert_eq!(stats, growing::rows(other, &growing::part(other), Table::Stats));
        growing::add(&dir, &growing::script(growing::PAGES, false), &growing::growing(false));
        assert_eq!(calls(&dir), all, "step {step}");
        assert!(!Dataset::open(&dir).unwrap().members()[0].unfinished);
        if !killed {
            break;
        }
        step += 1;
    }
    assert!(seen[0] > 3 * 6 && seen[1] >= 2, "{seen:?}");
}

/// An export of the beginning of a recording is stopped at some step. Meanwhile, somebody adds the
/// whole recording. Then the first export goes on.
#[test]
fn an_export_that_ends_late_replaces_no_later_part() {
    let scratch = Scratch::new();
    let whole = scratch.join("whole");
    growing::add(&whole, &growing::script(growing::PAGES, false), &growing::growing(false));
    let expected = growing::rows(&whole, &growing::part(&whole), Table::Calls);
    let mut step = 1;
    loop {
        let dir = scratch.join(&format!("{step}"));
        growing::add(&dir, &growing::script(1, false), &growing::growing(true));
        let quiet = || Stdio::null();
        let mut late = to_run("late", &dir, step).stdout(quiet()).spawn().unwrap();
        let is_stopped = wait_for(|| match late.try_wait().unwrap() {
            Some(_) => Some(false),
            None => (state(late.id()) == Some('T')).then_some(true),
        });
        let mut last = to_run("last", &dir, 0).stdout(quiet()).spawn().unwrap();
        // The second export has ended, or it waits for the first one.
        wait_for(|| (last.try_wait().unwrap().is_some() || is_waiting(last.id())).then_some(()));
        if is_stopped {
            kill_process(Pid::from_child(&late), Signal::CONT).unwrap();
        }
        assert!(late.wait().unwrap().success() && last.wait().unwrap().success(), "step {step}");
        let part = growing::part(&dir);
        assert!(!part.members[0].unfinished, "step {step}");
        assert_eq!(growing::rows(&dir, &part, Table::Calls), expected, "step {step}");
        assert_eq!(files(&dir).len(), part.all_files().count() + 2, "step {step}");
        if !is_stopped {
            break;
        }
        step += 1;
    }
    assert!(step > 3 * 7, "only {step} steps");
}

/// Waits until `found` returns a value, for at most a minute.
fn wait_for<T>(mut found: impl FnMut() -> Option<T>) -> T {
    for _ in 0..60_000 {
        if let Some(found) = found() {
            return found;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    panic!("not after a minute");
}

/// Returns the state of a process.
fn state(pid: u32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

/// Returns whether a process waits for a lock of `flock`.
fn is_waiting(pid: u32) -> bool {
    let locks = std::fs::read_to_string("/proc/locks").unwrap();
    let pid = pid.to_string();
    locks.lines().any(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        words.get(1..3) == Some(&["->", "FLOCK"]) && words.get(5) == Some(&&*pid)
    })
}
