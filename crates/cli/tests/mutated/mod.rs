//! Runs every view on damaged profiles. No view may panic, hang, crash, or ask for more memory than
//! the size of the files justifies.
//!
//! ```text
//!  test ─► a process per processor, one range of cases after another ─► a row per kind of file
//!            │ one case: damage a file ─► views ─► for half of them a command, or collect ─► mend
//!            └ what goes wrong: panic (written down, the process goes on), a signal (an allocation
//!              above the limit aborts), no progress for a minute (killed)
//! ```
//!
//! | variable | meaning |
//! |---|---|
//! | `COUNTERPOINT_MUTANTS` | number of cases; 500 if not set |
//! | `COUNTERPOINT_SEED` | number of the first case; every case depends on its number only |
//! | `TMPDIR` | directory of the profiles; `/dev/shm` is faster than a disk |
//!
//! CONTRIBUTING.md has the command for a million cases.

mod change;
mod commands;
mod held;
mod victim;
mod views;
mod worker;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use testkit::Scratch;

use worker::Tally;

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// A worker process does at most this many cases. The number is large, so the time for making the
/// profiles (once for each worker) hardly matters, and a memory leak is noticed.
const AT_ONCE: u64 = 20_000;

/// If one step of a case takes longer, the worker counts as hanging and is killed. A case takes
/// milliseconds, and a little more on a busy machine.
const NO_PROGRESS: Duration = Duration::from_secs(60);

const BETWEEN_WORDS: Duration = Duration::from_secs(60);

#[expect(clippy::print_stderr, reason = "a test has no terminal to protect")]
fn say(words: &str) {
    eprintln!("{words}");
}

/// After this many findings, no more cases are started: further findings would repeat the first
/// ones.
const MOST_FINDINGS: usize = 20;

#[test]
fn any_file_of_a_profile_may_be_damaged() {
    let cases = variable("COUNTERPOINT_MUTANTS").unwrap_or(500);
    let first = variable("COUNTERPOINT_SEED").unwrap_or(0x5EED_0000);
    let began = Instant::now();
    let Found { findings, tallies } = run(first, cases, NO_PROGRESS, "");
    let last = first + cases - 1;
    say(&format!("cases {first} to {last}, {:.0} s", began.elapsed().as_secs_f64()));
    say(&Tally::table(&tallies));
    assert!(findings.is_empty(), "{} findings:\n{}", findings.len(), findings.join("\n"));
    let done: u64 = tallies.values().map(|tally| tally.cases).sum();
    assert_eq!(done, cases, "every case was done");
}

/// Causes failures on purpose. Each of them must be found, and the cases after it must still be
/// done.
#[test]
fn what_goes_wrong_is_found() {
    let faults = "3 panic 8 caught 13 memory 18 crash 23 hang";
    let mut findings = run(0, 30, Duration::from_secs(10), faults).findings;
    findings.sort_by_key(|finding| {
        finding.find("COUNTERPOINT_SEED").map(|at| finding[at..].to_owned())
    });
    let expected = [
        ("COUNTERPOINT_SEED=13 ", "memory allocation of 1073741824 bytes failed"),
        ("COUNTERPOINT_SEED=18 ", "signal: 4"),
        ("COUNTERPOINT_SEED=23 ", "no progress for 10 s"),
        ("COUNTERPOINT_SEED=3 ", "on purpose"),
        ("COUNTERPOINT_SEED=8 ", "on purpose"),
    ];
    assert_eq!(findings.len(), expected.len(), "{findings:#?}");
    for (finding, (case, what)) in findings.iter().zip(expected) {
        assert!(finding.contains(case) && finding.contains(what), "{finding}: {case} {what}");
    }
}

#[derive(Default)]
struct Found {
    /// A text for each finding: the case, the damaged file, what was done with the profile, and the
    /// failure.
    findings: Vec<String>,
    tallies: BTreeMap<String, Tally>,
}

/// Does `cases` cases, from the number `first` on. A worker that makes no progress for the time
/// `patience` is killed. `faults` are failures that are caused on purpose ([`worker::FAULTS`]).
fn run(first: u64, cases: u64, patience: Duration, faults: &str) -> Found {
    let processors = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    // The profiles of a killed worker are removed with this directory.
    let scratch = Scratch::new();
    let mut ranges = Ranges { next: first, end: first + cases, at_once: AT_ONCE };
    ranges.at_once = ranges.at_once.min(cases.div_ceil(processors)).max(1);
    let (mut running, mut started): (Vec<Worker>, usize) = (Vec::new(), 0);
    let mut start = |range: (u64, u64)| {
        started += 1;
        Worker::start(&scratch.join(&started.to_string()), range, faults)
    };
    let Found { mut findings, mut tallies } = Found::default();
    let mut said = Instant::now();
    loop {
        while running.len() < processors as usize
            && findings.len() < MOST_FINDINGS
            && let Some(range) = ranges.take()
        {
            running.push(start(range));
        }
        if running.is_empty() {
            return Found { findings, tallies };
        }
        std::thread::sleep(Duration::from_millis(20));
        let mut left = Vec::new();
        for mut worker in running {
            let Some(end) = worker.end(patience) else {
                left.push(worker);
                continue;
            };
            Tally::add_all(&mut tallies, &worker.directory);
            findings.extend(worker.panics());
            if let Some((finding, rest)) = worker.finding(end) {
                findings.push(finding);
                left.extend(
                    (findings.len() < MOST_FINDINGS).then(|| rest.map(&mut start)).flatten(),
                );
            }
            let _ = fs::remove_dir_all(&worker.directory);
        }
        running = left;
        if said.elapsed() > BETWEEN_WORDS {
            said = Instant::now();
            let done: u64 = tallies.values().map(|tally| tally.cases).sum();
            say(&format!("{done} cases, findings: {findings:?}"));
        }
    }
}

struct Ranges {
    next: u64,
    end: u64,
    at_once: u64,
}

impl Ranges {
    /// Takes a range of cases. Returns the first number and the number after the last one, or
    /// `None` if no case is left.
    fn take(&mut self) -> Option<(u64, u64)> {
        let from = self.next;
        self.next = self.end.min(from + self.at_once);
        (from < self.next).then_some((from, self.next))
    }
}

struct Worker {
    child: Child,
    directory: PathBuf,
    end: u64,
    /// The last step of the worker, and the time at which the test first saw it.
    seen: (String, Instant),
}

enum End {
    Exited(ExitStatus),
    /// The worker made no progress for this long, and was killed.
    Hung(Duration),
}

impl Worker {
    fn start(directory: &Path, (from, end): (u64, u64), faults: &str) -> Self {
        fs::create_dir(directory).unwrap();
        let words = File::create(directory.join(worker::WORDS)).unwrap();
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["mutated::worker::cases_of_one_process", "--exact", "--ignored", "--nocapture"])
            .env("TMPDIR", directory)
            .env(worker::RANGE, format!("{from} {end}"))
            .env(worker::FAULTS, faults)
            .env("RUST_BACKTRACE", "0")
            .current_dir(directory)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(words)
            .spawn()
            .unwrap();
        Self { child, directory: directory.to_owned(), end, seen: (String::new(), Instant::now()) }
    }

    /// Returns how the worker ended, or `None` if it is still running. Kills a worker that has made
    /// no progress for the time `patience`.
    fn end(&mut self, patience: Duration) -> Option<End> {
        if let Some(status) = self.child.try_wait().unwrap() {
            return Some(End::Exited(status));
        }
        let now = self.at();
        if now != self.seen.0 {
            self.seen = (now, Instant::now());
        }
        if self.seen.1.elapsed() < patience {
            return None;
        }
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        Some(End::Hung(patience))
    }

    /// Returns the number of the worker's case, the damaged file, and the present step.
    fn at(&self) -> String {
        let text = fs::read_to_string(self.directory.join(worker::AT)).unwrap_or_default();
        text.lines().next().unwrap_or_default().trim_end().to_owned()
    }

    /// Returns the messages of the worker's panics.
    fn panics(&self) -> Vec<String> {
        let text = fs::read_to_string(self.directory.join(worker::PANICS)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Returns the reason why the worker ended too early, and the range of cases that are left.
    /// `None` if the worker has done all of its cases.
    fn finding(&self, end: End) -> Option<(String, Option<(u64, u64)>)> {
        let how = match end {
            End::Exited(status) if status.success() => return None,
            End::Exited(status) => format!("{status}: {}", self.last_words()),
            End::Hung(patience) => format!("no progress for {} s", patience.as_secs()),
        };
        let at = self.at();
        let case = at.split(' ').find_map(|word| word.strip_prefix("COUNTERPOINT_SEED="));
        let next = case.and_then(|case| case.parse::<u64>().ok()).map(|case| case + 1);
        let rest = next.filter(|next| *next < self.end).map(|next| (next, self.end));
        Some((format!("{at}: {how}"), rest))
    }

    /// Returns the last lines that the worker printed, the last one first. If an allocation failed,
    /// the lines contain its size.
    fn last_words(&self) -> String {
        let mut bytes = Vec::new();
        let mut file = File::open(self.directory.join(worker::WORDS)).unwrap();
        let length = file.metadata().unwrap().len();
        file.seek(SeekFrom::Start(length.saturating_sub(400))).unwrap();
        file.read_to_end(&mut bytes).unwrap();
        let text = String::from_utf8_lossy(&bytes);
        text.lines().rev().take(3).collect::<Vec<_>>().join(" / ")
    }
}
