//! Tests reading the counts of calls in a run with a budget.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use profile::collect::{Closing, PoolFate, collect};
use profile::{CountedCalls, PageDecoder, Profile, ThreadSpent};
use record::counts::steps::{SampledCalls, Steps, ThreadSteps};
use record::counts::{COUNTS_NAME, CountsFrame, CountsRow, Spent};
use testkit::make::pool_path;
use testkit::{CallScript, ProfileScript, Scratch};

/// Describes two processes that died. In the first process, one thread had ended and written its
/// counts to the file. The counts of its other thread, and of the second process, are still in the
/// pool.
fn crashed() -> ProfileScript {
    let mut script = ProfileScript::monotonic();
    script.budget(0.02);
    script.pool = true;
    let first = script.process(4_000_001);
    first.library("m", &["a", "b"]);
    let ended = first.thread("ended");
    ended.call(CallScript::new(0, 1_000, 50).drawn(1, 1, 0));
    ended.call(CallScript::new(0, 9_000, 50).drawn(8, 2, 6));
    ended.counted(0, 11, 2, 1).counted(1, 40, 0, 0);
    ended.spent = Spent { cpu_ns: 2_000, price_ns: 30, told_calls: 5, told_ns: 6 };
    let killed = first.thread("killed");
    killed.call(CallScript::new(1, 2_000, 70).drawn(3, 1, 4));
    killed.counted(1, 9, 1, 1).unflushed = true;
    killed.spent = Spent { cpu_ns: 1_000, price_ns: 20, ..Spent::default() };
    let second = script.process(4_000_002);
    second.library("m", &["a"]);
    second.thread("other").counted(0, 1 << 40, 0, 0).unflushed = true;
    script
}

fn expected() -> Vec<CountedCalls> {
    let one = |process, thread_uid, export, calls, timed, counted| CountedCalls {
        process,
        thread_uid,
        export,
        calls,
        timed,
        counted,
        steps: None,
    };
    vec![
        one(0, 0, 0, 11, 2, 1),
        one(0, 0, 1, 40, 0, 0),
        one(0, 1, 1, 9, 1, 1),
        one(1, 0, 0, 1 << 40, 0, 0),
    ]
}

fn written() -> (Scratch, PathBuf) {
    let (scratch, dir) = crashed().written();
    (scratch, dir)
}

fn check(dir: &Path) {
    let profile = Profile::open(dir).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(profile.counted(), expected());
    assert_eq!(profile.manifest.budget, Some(0.02));
    let spent = |thread_uid, cpu_ns, price_ns, (told_calls, told_ns)| ThreadSpent {
        thread_uid,
        cpu_ns,
        price_ns,
        told_calls,
        told_ns,
    };
    let expected = [spent(0, 2_000, 30, (5, 6)), spent(1, 1_000, 20, (0, 0))];
    assert_eq!(profile.processes[0].spent, expected);
    assert_eq!(profile.all_losses(), []);
    let mut decoder = PageDecoder::new(&profile);
    let starts = |key: &_| decoder.decode(*key).start_ticks.clone();
    let starts: Vec<u64> = profile.pages().iter().flat_map(starts).collect();
    assert_eq!(starts, [1_000, 9_000, 2_000]);
}

#[test]
fn the_counts_of_a_crash_are_in_the_pool_and_move_to_the_profile() {
    let (_scratch, dir) = written();
    check(&dir);
    let collected = collect(&dir, Closing::WhenOver).unwrap();
    assert_eq!(collected.pool, PoolFate::Removed);
    assert!(!pool_path(&dir).exists());
    check(&dir);
    assert!(dir.join("processes/4000002-1001-0").join(COUNTS_NAME).exists());
}

/// The counts are in the file twice, as if a collector had been killed after it had appended them
/// and had run again. At the end of the test, they are in the pool, too.
#[test]
fn counts_that_are_found_twice_are_used_once() {
    let (scratch, dir) = written();
    let kept = scratch.join("pool");
    fs::copy(pool_path(&dir), &kept).unwrap();
    let manifest = fs::read(dir.join("manifest.json")).unwrap();
    collect(&dir, Closing::WhenOver).unwrap();
    for part in ["4000001-1000-0", "4000002-1001-0"] {
        let file = dir.join("processes").join(part).join(COUNTS_NAME);
        let bytes = fs::read(&file).unwrap();
        OpenOptions::new().append(true).open(&file).unwrap().write_all(&bytes).unwrap();
    }
    check(&dir);
    fs::create_dir_all(pool_path(&dir).parent().unwrap()).unwrap();
    fs::copy(&kept, pool_path(&dir)).unwrap();
    fs::write(dir.join("manifest.json"), manifest).unwrap();
    assert_eq!(Profile::open(&dir).unwrap().counted(), expected());
}

#[test]
fn the_larger_count_is_the_later_one() {
    let (_scratch, dir) = written();
    let file = dir.join("processes/4000001-1000-0").join(COUNTS_NAME);
    let row = |calls| CountsRow { export: 0, calls, timed: calls / 2, counted: 0 };
    let frame = |calls, cpu_ns| CountsFrame {
        thread_uid: 0,
        tid: 4_000_001,
        spent: Spent { cpu_ns, price_ns: 7, ..Spent::default() },
        rows: vec![row(calls)],
        steps: None,
    };
    let mut append = OpenOptions::new().append(true).open(&file).unwrap();
    append.write_all(&frame(50, 9_000).to_bytes()).unwrap();
    append.write_all(&frame(30, 8_000).to_bytes()).unwrap();
    let profile = Profile::open(&dir).unwrap();
    let first = profile.counted()[0];
    assert_eq!((first.calls, first.timed), (50, 25));
    assert_eq!(profile.counted()[1..], expected()[1..]);
    assert_eq!(profile.processes[0].spent[0].cpu_ns, 9_000);
}

/// Thread 0 knows of 30 steps that were away (in which the host announced no ops). The last of them
/// may not have ended. Thread 1 began after 10 of these steps, made its last call after 20, and
/// still runs. Thread 2 differs from thread 1 only in that it has ended. In the sampled steps,
/// these three threads call the function 3 times per step on average. No calls are estimated for
/// thread 3, because it has none in the sampled steps.
#[test]
fn calls_in_steps_that_were_away_are_estimated() {
    let of = |away_before, away, has_ended, steps| Steps {
        sampled: 4,
        weight: 10,
        squared_weight: 50,
        away_before,
        away,
        has_ended,
        steps,
        is_away: u64::from(steps > 0),
        ..Steps::default()
    };
    let mut script = ProfileScript::monotonic();
    script.budget(0.02);
    let process = script.process(1);
    process.library("m", &["a"]);
    // A thread's number of calls (24 and `unseen`) contains the estimates that the thread itself
    // has already added.
    let threads = [(of(0, 30, 0, 38), 90), (of(10, 20, 0, 0), 30), (of(10, 20, 1, 0), 30)];
    for (steps, unseen) in threads {
        let thread = process.thread("t").counted(0, 24 + unseen, 0, 0);
        let row = SampledCalls { export: 0, sum: 30, squares: 90, unseen, in_cut: 0 };
        thread.steps = Some(ThreadSteps { steps, rows: vec![row] });
    }
    process.thread("t").counted(0, 24, 0, 0).steps =
        Some(ThreadSteps { steps: of(0, 20, 0, 0), rows: vec![] });
    let (_scratch, profile) = script.opened();
    let found: Vec<_> = profile.counted().iter().map(|one| (one.calls, one.seen())).collect();
    assert_eq!(found, [(114, 24), (84, 24), (54, 24), (24, 24)]);
    let by_steps = profile.counted().iter().filter_map(|one| one.steps);
    let by_steps: Vec<_> = by_steps.map(|of| (of.away, of.unseen, of.is_open)).collect();
    assert_eq!(by_steps, [(30, 90, true), (20, 60, true), (10, 30, false)]);
    assert_eq!(profile.processes[0].steps.map(|steps| (steps.steps, steps.away)), Some((38, 30)));
}

/// The profile contains numbers of steps that no recorder would write.
#[test]
fn impossible_steps_are_bounded() {
    let most = Steps { sampled: u64::MAX, weight: 1, away: u64::MAX, steps: 1, ..Steps::default() };
    let mut script = ProfileScript::monotonic();
    script.budget(0.02);
    let process = script.process(1);
    process.library("m", &["a"]);
    let row = SampledCalls { export: 0, sum: u64::MAX, squares: u64::MAX, unseen: 1, in_cut: 0 };
    process.thread("t").counted(0, 5, 0, 0).steps =
        Some(ThreadSteps { steps: most, rows: vec![row] });
    let (_scratch, profile) = script.opened();
    assert_eq!((profile.counted()[0].calls, profile.counted()[0].seen()), (u64::MAX, 0));
}

#[test]
fn damaged_counts_are_a_loss() {
    let (_scratch, dir) = written();
    collect(&dir, Closing::WhenOver).unwrap();
    let file = dir.join("processes/4000002-1001-0").join(COUNTS_NAME);
    let bytes = fs::read(&file).unwrap();
    fs::write(&file, &bytes[..bytes.len() - 1]).unwrap();
    let profile = Profile::open(&dir).unwrap();
    assert_eq!(profile.counted(), &expected()[..3]);
    let losses = profile.all_losses();
    assert_eq!((losses[0].name.as_str(), losses[0].count), ("torn_counts", 1));
}

#[test]
fn a_run_without_a_budget_has_no_counts() {
    let mut script = ProfileScript::monotonic();
    let process = script.process(1);
    process.library("m", &["a"]);
    process.thread("t").call(CallScript::new(0, 1, 2));
    let (_scratch, profile) = script.opened();
    assert_eq!((profile.counted(), profile.manifest.budget), (&[][..], None));
    let manifest = fs::read_to_string(profile.dir.join("manifest.json")).unwrap();
    assert!(!manifest.contains("budget"));
}
