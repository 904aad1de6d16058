//! Tests runs with a budget, which count every call that the filter selects, but time only some
//! calls or none.

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use profile::Profile;
use record::page::PageReader;
use record::{Drawn, GroupLayout, Record};

use crate::support::{Programs, Recorded, counterpoint, environment, plain};

pub const RUNS: [(&str, &str); 3] = [
    ("--budget=0", "page-faults:u"),
    ("--budget=0.5%", "none"),
    ("--budget=20%", "page-faults:u,task-clock:u"),
];

fn host(mode: &str) -> Command {
    let programs = Programs::get();
    let mut command = Command::new(&programs.host);
    command.arg(&programs.library).args(mode.split(' '));
    command
}

/// Returns how many calls were counted in each process, from the smallest number to the largest.
fn counted(profile: &Profile) -> Vec<u64> {
    let mut calls = vec![0; profile.processes.len()];
    profile.counted().iter().for_each(|one| calls[one.process] += one.calls);
    calls.sort_unstable();
    calls
}

/// The timed calls of a profile. [`drawings`] decodes them from the files of pages itself, without
/// the usual reader in the crate `profile`. There is one list for each function of an executable
/// (export) on each thread of a process. An element of a list says how the call was chosen to be
/// timed, its duration in ticks, and whether its counters were read.
pub type Drawings = BTreeMap<(usize, u32, u32), Vec<(Drawn, u64, bool)>>;

pub fn drawings(profile: &Profile) -> Drawings {
    let mut found = Drawings::new();
    let groups: Vec<u16> = profile.manifest.counters.iter().map(|c| c.group).collect();
    for (index, process) in profile.processes.iter().enumerate() {
        let part = profile.dir.join("processes").join(process.id.name());
        let bytes = std::fs::read(part.join("pages.cps")).unwrap_or_default();
        let mut pages: Vec<_> = Vec::new();
        let mut at = 0;
        while at < bytes.len() {
            let header = record::PageHeader::parse(&bytes[at..]).unwrap();
            let length = header.file_bytes();
            pages.push((header.start.thread_uid, header.start.sequence, &bytes[at..at + length]));
            at += length;
        }
        pages.sort_unstable();
        for (thread, _, bytes) in pages {
            let mask = record::PageHeader::parse(bytes).unwrap().start.counters;
            let layout = GroupLayout::new(&groups, mask);
            let mut reader = PageReader::new(bytes, &layout).unwrap();
            while let Some(record) = reader.next_record() {
                let Record::Call(call) = record.unwrap() else { continue };
                let read = reader.groups().iter().any(|group| group.read);
                let key = (index, thread, call.export);
                let duration = call.end.wrapping_sub(call.start);
                found.entry(key).or_default().push((reader.drawn(), duration, read));
            }
        }
    }
    found
}

/// Checks that the profile has as many records of timed calls as its counts say. Also checks that
/// the timed calls, together with the calls skipped before them, are no more than the counted
/// calls.
pub fn check(what: &str, profile: &Profile) {
    let drawings = drawings(profile);
    let mut records = 0;
    for one in profile.counted() {
        let of = drawings.get(&(one.process, one.thread_uid, one.export));
        let of = of.map_or(&[][..], Vec::as_slice);
        assert_eq!(of.len() as u64, one.timed, "{what}: {one:?}");
        assert_eq!(of.iter().filter(|(.., read)| *read).count() as u64, one.counted, "{what}");
        let stands_for: u64 = of.iter().map(|(drawn, ..)| 1 + drawn.skipped).sum();
        assert!(stands_for <= one.calls, "{what}: {stands_for} of {one:?}");
        // The first timed call of a function on a thread was timed with the probability 1, so its
        // period is 1.
        assert!(of.first().is_none_or(|(drawn, ..)| drawn.period == 1), "{what}");
        records += of.len();
    }
    assert_eq!(records, drawings.values().map(Vec::len).sum::<usize>(), "{what}");
    if profile.manifest.budget == Some(0.0) {
        assert_eq!(records, 0, "{what}");
    }
}

/// With the options in each of [`RUNS`], the command that `make` returns must print the same and
/// end in the same way as without Counterpoint. `calls` are the expected numbers of calls in its
/// processes, in ascending order.
fn same_with_a_budget(
    program: &Path,
    what: &str,
    make: impl Fn() -> Command,
    calls: &[u64],
    losses: &[&str],
) {
    for (budget, events) in RUNS {
        let what = format!("{what} {budget} -e {events}");
        let with = Recorded::run_with(program, events, &[budget], &mut make());
        let without = plain(&mut make(), with.directory.path());
        assert_eq!(with.output.status.code(), without.status.code(), "{what}: {}", with.stderr());
        assert_eq!(with.output.status.signal(), without.status.signal(), "{what}");
        assert_eq!(with.output.stdout, without.stdout, "{what}");
        let profile = with.profile();
        assert_eq!(counted(&profile), calls, "{what}");
        check(&what, &profile);
        let found = with.losses();
        assert!(found.keys().all(|name| losses.contains(&name.as_str())), "{what}: {found:?}");
    }
}

/// `programs.rs` also uses these modes of `host.c`. Calls that were abandoned or cut short are
/// counted, too.
#[test]
fn every_call_is_counted() {
    let Some(program) = counterpoint("counted programs") else { return };
    let cases: [(&str, &[u64], &[&str]); 21] = [
        ("idle", &[], &[]),
        ("calls 0", &[0], &[]),
        ("calls 1", &[1], &[]),
        ("calls 300000", &[300_000], &[]),
        ("grid", &[14], &[]),
        ("threads 40 500", &[20_000], &[]),
        ("short-threads 2000", &[2_000], &[]),
        ("fork", &[200, 450], &[]),
        ("fork-inside", &[5, 21], &[]),
        ("fork-exec", &[20, 50], &[]),
        ("vfork-exec", &[10, 40], &[]),
        ("exec", &[10, 20], &[]),
        ("nested 10", &[20], &[]),
        ("nested 2000", &[4_000], &[]),
        ("longjmp 10", &[20], &["call_abandoned"]),
        ("longjmp 2000", &[4_000], &["call_abandoned"]),
        ("reload 200", &[2_001], &[]),
        ("close-all", &[20], &["counter_read_failed", "descriptor_lost", "counter_open_failed"]),
        ("errno 1000", &[1_000], &[]),
        ("late 4", &[4], &["thread_gone"]),
        ("cancel", &[1], &[]),
    ];
    for (mode, calls, losses) in cases {
        same_with_a_budget(&program, mode, || host(mode), calls, losses);
    }
}

/// These programs do not end by returning from `main`.
#[test]
fn every_call_is_counted_however_the_program_ends() {
    let Some(program) = counterpoint("counted ends") else { return };
    let cases: [(&str, &[u64], &[&str]); 3] = [
        ("_exit 1000", &[1_001], &["call_cut_short"]),
        ("abort 1000", &[1_000], &[]),
        ("exit-thread", &[3], &[]),
    ];
    for (mode, calls, losses) in cases {
        same_with_a_budget(&program, mode, || host(mode), calls, losses);
    }
}

#[test]
fn calls_that_exceptions_leave_are_counted() {
    let Some(program) = counterpoint("counted exceptions") else { return };
    let programs = Programs::get();
    let Some(exceptions) = programs.cpp("counted exceptions", "exceptions") else { return };
    let cases: [(&str, &[u64], &[&str]); 5] = [
        ("thrown 10", &[20], &["call_abandoned"]),
        ("inner 10", &[20], &["call_abandoned"]),
        ("caught 10", &[10], &[]),
        ("worker 5", &[10], &["call_abandoned"]),
        ("uncaught 4", &[5], &["call_cut_short"]),
    ];
    for (mode, calls, losses) in cases {
        let make = || {
            let mut command = Command::new(&exceptions);
            command.arg(&programs.library).args(mode.split(' '));
            command
        };
        same_with_a_budget(&program, mode, make, calls, losses);
    }
}

/// The program's signal handler makes calls, too. It interrupts other calls and the recorder at
/// arbitrary instructions.
#[test]
fn calls_of_signal_handlers_are_counted() {
    let Some(program) = counterpoint("counted signals") else { return };
    for (budget, events) in RUNS {
        let recorded = Recorded::run_with(&program, events, &[budget], &mut host("signal 2000000"));
        assert!(recorded.output.status.success(), "{budget}: {}", recorded.stderr());
        let text = recorded.stdout();
        let handled = text.lines().find_map(|line| line.strip_prefix("handled ")).unwrap();
        let calls = 2_000_000 + handled.parse::<u64>().unwrap();
        assert_eq!(counted(&recorded.profile()), [calls], "{budget}");
        check(budget, &recorded.profile());
    }
}

/// A call that SIGKILL interrupts may be counted or not.
#[test]
fn a_kill_loses_no_count() {
    let Some(program) = counterpoint("counted kills") else { return };
    for round in 0..20 {
        let (budget, events) = RUNS[round % RUNS.len()];
        let scratch = testkit::Scratch::new();
        let (dir, shared) = (scratch.join("p.cpt"), scratch.join("returned"));
        let programs = Programs::get();
        let mut run = Command::new(&program);
        run.args(["run", budget, "-e", events, "-o"]).arg(&dir).arg("--");
        run.arg(&programs.host).arg(&programs.library).arg("count-for-ever").arg(&shared);
        let mut run = run.spawn().unwrap();
        let returned = || {
            let bytes = std::fs::read(&shared).unwrap_or_default();
            bytes.first_chunk().map_or(0, |word| u64::from_le_bytes(*word))
        };
        let deadline = Instant::now() + Duration::from_secs(60);
        while returned() < 1_000 && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_micros(7_919 * round as u64 % 50_000));
        // The program is the only child of `run`.
        let child = format!("/proc/{0}/task/{0}/children", run.id());
        let child = std::fs::read_to_string(child).unwrap();
        let killed = Command::new("kill").args(["-9", child.trim()]).status().unwrap();
        assert!(killed.success());
        run.wait().unwrap();
        let profile = Profile::open(&dir).unwrap();
        let (returned, counted) = (returned(), counted(&profile)[0]);
        assert!(returned >= 1_000);
        assert!((returned..=returned + 1).contains(&counted), "{returned} {counted}");
    }
}

/// With `counterpoint env`, no `run` collects the counts of an aborted program, so they are still
/// in the pool (the shared memory).
#[test]
fn counts_survive_the_death_of_everything() {
    let Some(program) = counterpoint("counted deaths") else { return };
    let scratch = testkit::Scratch::new();
    let dir = scratch.join("p.cpt");
    let mut command = host("abort 5000");
    command.envs(environment(&program, "none", &dir));
    // Without a budget, there are no counts.
    assert!(!command.status().unwrap().success());
    assert_eq!(Profile::open(&dir).unwrap().counted(), []);
    let mut env = Command::new(&program);
    let dir = scratch.join("q.cpt");
    let output = env.args(["env", "--budget=1%", "-e", "none", "-o"]).arg(&dir).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let mut command = host("abort 5000");
    for line in String::from_utf8(output.stdout).unwrap().lines() {
        let (name, value) = line.strip_prefix("export ").unwrap().split_once('=').unwrap();
        command.env(name, value.trim_matches('\''));
    }
    assert!(!command.status().unwrap().success());
    let before = Profile::open(&dir).unwrap();
    assert_eq!(counted(&before), [5_000]);
    let recover = Command::new(&program).arg("recover").arg(&dir).output().unwrap();
    assert!(recover.status.success(), "{recover:?}");
    assert_eq!(Profile::open(&dir).unwrap().counted(), before.counted());
}

/// A page of the pool (the shared memory) has room for the counts of 510 exports (functions of
/// executables), and the library has 2,500.
#[test]
fn a_table_grows() {
    let Some(program) = counterpoint("many exports") else { return };
    let programs = Programs::get();
    let host = programs.other("many_exports");
    let library = programs.shared("many_exports.c", "many_exports.so", &["-DLIBRARY"]);
    for (budget, events) in RUNS {
        let recorded =
            Recorded::run_with(&program, events, &[budget], Command::new(&host).arg(&library));
        assert!(recorded.output.status.success(), "{}", recorded.stderr());
        let profile = recorded.profile();
        let calls: Vec<u64> = profile.counted().iter().map(|one| one.calls).collect();
        let expected: Vec<u64> = (0..2_500).map(|i| 2 * (i % 7 + 1)).collect();
        assert_eq!(calls, expected, "{budget}");
        check(budget, &profile);
        assert_eq!(recorded.losses(), BTreeMap::new());
    }
}

/// IREE's own hook consists of two functions of our library, which IREE calls before and after each
/// call of a compiled function.
#[test]
fn calls_of_the_hook_are_counted() {
    let Some(program) = counterpoint("counted hooks") else { return };
    let programs = Programs::get();
    let cases: [(&str, u32, u64, &[&str]); 7] = [
        ("static", 100, 101, &[]),
        ("static", 100_000, 100_001, &[]),
        ("both", 70, 140, &[]),
        ("nested", 9, 27, &[]),
        ("nested", 3_000, 9_000, &[]),
        ("threads", 500, 4_000, &[]),
        ("longjmp", 3_000, 6_000, &["call_abandoned"]),
    ];
    for (mode, number, calls, losses) in cases {
        let make = || {
            let mut command = Command::new(&programs.hook_host);
            command.arg(mode).arg(number.to_string()).arg(&programs.library);
            command
        };
        same_with_a_budget(&program, mode, make, &[calls], losses);
    }
}

/// Passes have separate counts. Calls that a filter leaves out are not counted.
#[test]
fn passes_and_filters_have_their_counts() {
    let Some(program) = counterpoint("counted passes") else { return };
    let passes = ["--passes", "--budget=5%"];
    let events = "{page-faults:u},{task-clock:u}";
    let recorded = Recorded::run_with(&program, events, &passes, &mut host("calls 3000"));
    let profile = recorded.profile();
    assert_eq!((counted(&profile), profile.manifest.passes), (vec![3_000, 3_000], 2));
    assert_eq!(profile.processes.iter().map(|p| p.pass).collect::<Vec<_>>(), [0, 1]);
    let filter = ["--filter=spin", "--budget=5%"];
    let recorded = Recorded::run_with(&program, "none", &filter, &mut host("grid"));
    assert_eq!(counted(&recorded.profile()), [2]);
}

/// Sessions with and without a budget follow each other in the same threads.
#[test]
fn sessions_have_their_counts() {
    let Some(program) = counterpoint("counted sessions") else { return };
    let programs = Programs::get();
    let scratch = testkit::Scratch::new();
    let budgets = [Some("--budget=2%"), None, Some("--budget=0"), Some("--budget=50%")];
    let dirs: Vec<_> = (0..budgets.len()).map(|i| scratch.join(&format!("{i}.cpt"))).collect();
    let agent = program.parent().unwrap().parent().unwrap().join("lib/libcounterpoint.so");
    let mut host = Command::new(programs.other("counted_sessions"));
    host.env("LD_PRELOAD", agent).arg(&programs.library).arg("5000");
    for (dir, budget) in dirs.iter().zip(budgets) {
        let mut prepare = Command::new(&program);
        prepare.args(["session", "prepare", "-e", "page-faults:u", "-o"]).arg(dir).args(budget);
        let output = prepare.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        host.arg(told["run_file"].as_str().unwrap());
    }
    let output = host.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    for (i, (dir, budget)) in dirs.iter().zip(budgets).enumerate() {
        let finish = Command::new(&program).args(["session", "finish"]).arg(dir).output().unwrap();
        assert!(finish.status.success(), "{i}: {finish:?}");
        let profile = Profile::open(dir).unwrap();
        let calls = 2 * (5_000 + i as u64);
        match budget {
            Some(_) => assert_eq!(counted(&profile), [calls], "session {i}"),
            None => assert_eq!((profile.counted(), profile.calls()), (&[][..], calls)),
        }
        let threads = |one: &profile::CountedCalls| one.thread_uid;
        let threads: Vec<u32> = profile.counted().iter().map(threads).collect();
        assert_eq!(threads, if budget.is_some() { vec![0, 1] } else { vec![] });
        if budget.is_some() {
            check(&format!("session {i}"), &profile);
        }
    }
}

/// The gaps between timed calls must have the geometric distribution that follows from the period
/// in the records. The seed is fixed; the critical value is `scipy.stats.chi2.isf(1e-6, 9)`.
#[test]
fn timed_calls_are_drawn_with_the_probability_that_is_stated() {
    let Some(program) = counterpoint("gaps of calls") else { return };
    let mut command = host("calls 20000000");
    command.env("COUNTERPOINT_TEST_SEED", "7");
    let recorded = Recorded::run_with(&program, "none", &["--budget=100%"], &mut command);
    let drawings = drawings(&recorded.profile());
    let mut gaps: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
    for (drawn, ..) in drawings.values().flatten() {
        gaps.entry(drawn.period).or_default().push(1 + drawn.skipped);
    }
    let (period, gaps) =
        gaps.iter().max_by_key(|(period, gaps)| (**period > 1, gaps.len())).unwrap();
    assert!(*period > 1 && gaps.len() > 1_000, "{} gaps with period {period}", gaps.len());
    // The gaps are divided into at most ten cells of nearly equal probability.
    let q = 1.0 - 1.0 / f64::from(*period);
    let mut bounds: Vec<u64> =
        (1..10).map(|i| ((1.0 - f64::from(i) / 10.0).ln() / q.ln()).ceil() as u64).collect();
    bounds.dedup();
    let mut counts = vec![0u32; bounds.len() + 1];
    gaps.iter().for_each(|gap| counts[bounds.partition_point(|bound| bound < gap)] += 1);
    let below = |i: usize| bounds.get(i).map_or(1.0, |bound| 1.0 - q.powf(*bound as f64));
    let statistic: f64 = (0..counts.len())
        .map(|i| {
            let low = if i == 0 { 0.0 } else { below(i - 1) };
            let expected = (below(i) - low) * gaps.len() as f64;
            (f64::from(counts[i]) - expected).powi(2) / expected
        })
        .sum();
    assert!(statistic < 44.8109, "period {period}: {statistic} of {counts:?}");
}
