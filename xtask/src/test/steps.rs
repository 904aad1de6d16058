//! Runs the parts of a test run, and reads the numbers of passed, failed and skipped tests from
//! their output.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::layout::Layout;
use crate::pmu_vm::{self, Outcome, Request};
use crate::process::{describe, pass_on, say};

#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Tally {
    pub passed: u64,
    pub failed: u64,
    pub skipped: u64,
}

/// The exit statuses of nextest and pytest if only tests failed. libtest has no such status: it
/// ends in the same way if a test program crashes.
const TESTS_FAILED: [i32; 2] = [100, 1];

/// How many of the last lines of a step's output are kept, and the largest length of such a line.
const LAST_LINES: usize = 40;
const LAST_LINE_CHARS: usize = 300;

pub struct Step {
    pub name: &'static str,
    pub time: Duration,
    pub tally: Tally,
    pub error: Option<String>,
    /// Whether tests failed and nothing else went wrong, as far as the runner tells. This is false,
    /// for example, if pytest itself crashed.
    pub only_tests_failed: bool,
    /// The failed tests, as their runner names them.
    pub failures: Vec<String>,
    /// The tests that failed at first, and then passed alone ([`super::alone`]).
    pub passed_alone: Vec<String>,
    /// The last lines of the step's output, without colours, each cut after [`LAST_LINE_CHARS`]
    /// characters.
    pub last_lines: VecDeque<String>,
}

impl Step {
    /// Runs a test program, and passes its output on line by line. If tests fail, this function
    /// still returns `Ok`: [`Step`] tells of the failures.
    pub fn run(name: &'static str, command: &mut Command) -> Result<Step> {
        say(format_args!("{name} …"));
        let start = Instant::now();
        // Both streams use the same pipe, so that their lines keep their order.
        let (reader, writer) = std::io::pipe().context("make a pipe")?;
        command.stdin(Stdio::null());
        command.stdout(writer.try_clone().context("copy the pipe")?).stderr(writer);
        if std::io::IsTerminal::is_terminal(&std::io::stderr()) {
            command.env("CARGO_TERM_COLOR", "always").env("PY_COLORS", "1");
        }
        let mut child = command.spawn().with_context(|| format!("start {name}"))?;
        // Drops the command's copies of the writing end: reading ends only when all copies are
        // closed.
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let (mut tally, mut failures) = (Tally::default(), Vec::new());
        let mut last_lines = VecDeque::new();
        for line in BufReader::new(reader).split(b'\n') {
            let line = line.with_context(|| format!("read the output of {name}"))?;
            let line = String::from_utf8_lossy(&line);
            pass_on(&line);
            tally.add(&line);
            if let Some(test) = failed_test(&line)
                && !failures.contains(&test)
            {
                failures.push(test);
            }
            if last_lines.len() == LAST_LINES {
                last_lines.pop_front();
            }
            last_lines.push_back(without_colours(&line).chars().take(LAST_LINE_CHARS).collect());
        }
        let status = child.wait().with_context(|| format!("wait for {name}"))?;
        // pytest exits with 5 if the filter selects no test.
        let nothing = name.starts_with("python") && status.code() == Some(5);
        let error = (!status.success() && !nothing).then(|| describe(status));
        let only_tests_failed = status.code().is_some_and(|code| TESTS_FAILED.contains(&code));
        let step = Step::new(name, start, tally, error);
        Ok(Step { only_tests_failed, failures, last_lines, ..step })
    }

    fn new(name: &'static str, start: Instant, tally: Tally, error: Option<String>) -> Step {
        let time = start.elapsed();
        Step {
            name,
            time,
            tally,
            error,
            only_tests_failed: false,
            failures: Vec::new(),
            passed_alone: Vec::new(),
            last_lines: VecDeque::new(),
        }
    }

    /// Runs all tests of the emulated machine, or those whose names contain one of `only`.
    pub fn emulated(name: &'static str, layout: &Layout, only: &[String]) -> Step {
        say(format_args!("{name} …"));
        let start = Instant::now();
        let all = || pmu_vm::run(layout, &Request::default());
        let some = |filter: &String| {
            pmu_vm::run(layout, &Request { filter: Some(filter), ..Request::default() })
        };
        let outcome = match only {
            [] => all(),
            only => only.iter().try_fold(Outcome::default(), |mut sum, filter| {
                sum.add(some(filter)?);
                Ok(sum)
            }),
        };
        let (tally, error, failures, only_tests_failed) = match outcome {
            Ok(outcome) => {
                let tally = Tally {
                    passed: outcome.ran - outcome.failed,
                    failed: outcome.failed,
                    skipped: 0,
                };
                let names = outcome.failures.iter();
                let names = names.filter_map(|line| Some(line.split_once(": ")?.0.to_owned()));
                (tally, outcome.verdict().err(), names.collect(), outcome.failed > 0)
            }
            Err(error) => (Tally::default(), Some(error), Vec::new(), false),
        };
        let error = error.map(|error| format!("{error:#}"));
        Step { only_tests_failed, failures, ..Step::new(name, start, tally, error) }
    }
}

impl Tally {
    /// Adds the numbers in one line of output: nextest's `Summary […] 9 tests run: 9 passed, 0
    /// skipped`, libtest's `test result: ok. 9 passed; 0 failed; 1 ignored; …`, or pytest's `=== 9
    /// passed, 1 skipped in 0.10s ===`.
    fn add(&mut self, line: &str) {
        let line = without_colours(line);
        let numbers = if let Some((_, rest)) = line.split_once(" tests run: ") {
            rest
        } else if let Some((_, rest)) = line.split_once(" test run: ") {
            rest
        } else if let Some(rest) = line.strip_prefix("test result: ") {
            rest
        } else if line.starts_with("===") && line.contains(" in ") {
            line.trim_matches('=')
        } else {
            return;
        };
        let words: Vec<&str> = numbers.split_whitespace().collect();
        for pair in words.windows(2) {
            let Ok(number) = pair[0].trim_start_matches('(').parse::<u64>() else { continue };
            match pair[1].trim_matches(|c: char| !c.is_ascii_alphabetic()) {
                "passed" => self.passed += number,
                "failed" | "error" | "errors" => self.failed += number,
                "skipped" | "ignored" => self.skipped += number,
                _ => {}
            }
        }
    }
}

/// Returns the name of the failed test from a line such as nextest's `FAIL [ 0.01s] (1/9) BINARY
/// TEST`, libtest's `test TEST ... FAILED`, or pytest's `FAILED TEST - why`.
fn failed_test(line: &str) -> Option<String> {
    let line = without_colours(line);
    let words: Vec<&str> = line.split_whitespace().collect();
    let test = match words[..] {
        ["test", test, .., "FAILED"] => test,
        ["FAILED" | "ERROR", test, ..] if test.contains(".py::") => test,
        [how, "[", .., test] if ends_badly(how) => test,
        _ => return None,
    };
    Some(test.to_string())
}

/// Returns whether nextest begins the line of a failed test with this word.
fn ends_badly(word: &str) -> bool {
    word.starts_with("SIG") || ["FAIL", "ABORT", "TIMEOUT"].contains(&word)
}

/// Removes `ESC [ … m` sequences.
fn without_colours(line: &str) -> String {
    let mut plain = String::with_capacity(line.len());
    let mut rest = line;
    while let Some((before, after)) = rest.split_once("\x1b[") {
        plain.push_str(before);
        rest = after.split_once('m').map_or("", |(_, after)| after);
    }
    plain.push_str(rest);
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tally_reads_three_runners() {
        let mut tally = Tally::default();
        tally.add("     Summary [   0.005s] 3 tests run: 2 passed, 1 failed, 4 skipped");
        assert_eq!(tally, Tally { passed: 2, failed: 1, skipped: 4 });
        tally.add("\x1b[1mtest result: ok\x1b[0m. 5 passed; 0 failed; 1 ignored; 0 measured;");
        assert_eq!(tally, Tally { passed: 7, failed: 1, skipped: 5 });
        tally.add("==== 1 failed, 9 passed, 2 errors in 0.12s ====");
        assert_eq!(tally, Tally { passed: 16, failed: 4, skipped: 5 });
        tally.add("3 passed, as a test might print");
        assert_eq!(tally, Tally { passed: 16, failed: 4, skipped: 5 });
    }

    #[test]
    fn failed_tests_of_three_runners_are_found() {
        for (line, test) in [
            (
                "        FAIL [   0.005s] (   9/1194) counterpoint::it budget::counted",
                "budget::counted",
            ),
            ("\x1b[31m     SIGABRT\x1b[0m [   1.2s] (1/2) xtask::bin/xtask a::b", "a::b"),
            ("test steps::tally ... FAILED", "steps::tally"),
            (
                "FAILED tests/python/test_a.py::test_b[1] - assert 1 == 2",
                "tests/python/test_a.py::test_b[1]",
            ),
        ] {
            assert_eq!(failed_test(line).as_deref(), Some(test), "{line}");
        }
        for line in [
            "        PASS [   0.005s] (   9/1194) counterpoint::it budget::counted",
            "test steps::tally ... ok",
            "FAILED to open the file",
        ] {
            assert_eq!(failed_test(line), None, "{line}");
        }
    }
}
