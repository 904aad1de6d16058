//! `cargo xtask test`: runs every test, and first builds everything that the tests need.
//!
//! Tests find their surroundings through environment variables. If a variable is not set, the tests
//! that need it are skipped and say so:
//!
//! | variable | contents |
//! |---|---|
//! | `COUNTERPOINT_DIST` | folder with `bin/counterpoint` and `lib/libcounterpoint.so` |
//! | `COUNTERPOINT_INJECT_DIST` | the same with a library that panics on demand |
//! | `COUNTERPOINT_VENV` | virtual environment with IREE; not set by `--quick` |
//! | `COUNTERPOINT_VENV_V5` | one with IREE 3.7.0, whose executables are of version 5; not set by `--quick` |
//! | `COUNTERPOINT_VENV_TORCH` | one with PyTorch 2.15; not set by `--quick`, nor if Python is older than 3.11 |
//! | `COUNTERPOINT_VENV_TORCH_212` | one with PyTorch 2.12; the same |
//! | `COUNTERPOINT_VENV_HTA` | one with HolisticTraceAnalysis; not set by `--quick` |
//! | `COUNTERPOINT_VENV_TVM` | one with TVM 0.27; not set by `--quick` |
//! | `COUNTERPOINT_VENV_TVM_026`, `COUNTERPOINT_VENV_TVM_025` | with older ones; not set by `--quick` |
//! | `COUNTERPOINT_TRACE_PROCESSOR` | folder with Perfetto's trace processor; not set by `--quick`, nor if Node.js or npm is missing |
//! | `COUNTERPOINT_FIXTURES` | folder with the compiled modules; not set by `--quick` |
//! | `COUNTERPOINT_SKIP_LOG` | file to which a skipped test appends `NAME: REASON` |

mod skips;
mod tracefs;

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::layout::{Dist, Layout};
use crate::pmu_vm::{Outcome, Request};
use crate::process::{cargo, describe, duration, exists, say};
use crate::setup::{self, List, packages};
use crate::{dist, fixtures, pmu_vm, trace_processor};
use skips::Skip;

/// Runs all tests.
#[derive(clap::Args)]
pub struct Args {
    /// Download nothing: use the host's linker, and skip IREE, the Python tests and the emulated
    /// machine.
    #[arg(long)]
    quick: bool,
    /// Fail if a test that CI expects to run skips itself (xtask/src/test/skips.rs).
    #[arg(long, conflicts_with = "quick")]
    strict: bool,
    /// Run only tests whose name contains this.
    filter: Option<String>,
}

/// The number of tests, by outcome.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
struct Tally {
    passed: u64,
    failed: u64,
    skipped: u64,
}

struct Step {
    name: &'static str,
    time: std::time::Duration,
    tally: Tally,
    error: Option<String>,
}

pub fn main(layout: &Layout, args: &Args) -> Result<()> {
    tracefs::provide();
    let torch = !args.quick && setup::has_torch()?;
    let dist = if args.quick { dist::quick(layout)? } else { dist::release(layout)? };
    let inject = dist::injecting(layout)?;
    if !args.quick {
        fixtures::compile(layout)?;
        let tvm = [List::Tvm, List::Tvm026, List::Tvm025];
        let other = [List::Test, List::IreeV5, List::Hta];
        setup::install(layout, &[&other, &tvm[..]].concat())?;
        if torch {
            setup::install(layout, &[List::Torch, List::Torch212])?;
        } else {
            say("tests with PyTorch are skipped: Python 3.11 or newer is needed");
        }
        use packages::{LLVM, NODE, OPENCL, TESTS};
        packages::install(&[LLVM, NODE, OPENCL, TESTS]);
    }
    let trace_processor = if args.quick {
        Err("--quick has no downloads".to_owned())
    } else {
        trace_processor::fetch(layout)?
    };
    if let Err(why) = &trace_processor {
        say(format_args!("tests with Perfetto's trace processor are skipped: {why}"));
    }
    let skip_log = layout.target.join("skipped-tests.txt");
    std::fs::write(&skip_log, "").with_context(|| format!("write {}", skip_log.display()))?;

    let filter = args.filter.as_deref();
    let surroundings = |command: &mut Command| {
        surround(layout, &dist, args.quick, &skip_log, command);
        if torch {
            command.env("COUNTERPOINT_VENV_TORCH", layout.venv_torch());
            command.env("COUNTERPOINT_VENV_TORCH_212", layout.venv_torch_212());
        } else {
            command.env_remove("COUNTERPOINT_VENV_TORCH");
            command.env_remove("COUNTERPOINT_VENV_TORCH_212");
        }
        command.env("COUNTERPOINT_INJECT_DIST", &inject.root);
        match &trace_processor {
            Ok(files) => command.env("COUNTERPOINT_TRACE_PROCESSOR", files),
            Err(_) => command.env_remove("COUNTERPOINT_TRACE_PROCESSOR"),
        };
    };
    let mut steps = Vec::new();
    let nextest = exists("cargo-nextest", &["nextest", "--version"]);
    let mut rust = cargo();
    if nextest {
        rust.args(["nextest", "run", "--workspace", "--no-fail-fast"]);
    } else {
        // Not --all-targets, because that would run the benchmarks.
        rust.args(["test", "--workspace", "--tests", "--no-fail-fast"]);
    }
    if let Some(filter) = filter {
        rust.arg(filter);
        if nextest {
            rust.arg("--no-tests=pass");
        }
    }
    surroundings(&mut rust);
    steps.push(step("rust tests", &mut rust)?);

    if filter.is_none() {
        let mut docs = cargo();
        docs.args(["test", "--workspace", "--doc", "--no-fail-fast"]);
        surroundings(&mut docs);
        steps.push(step("doc tests", &mut docs)?);
    }
    if args.quick {
        say("python tests: skipped, --quick has no virtual environment");
    } else {
        // The tests of TVM and of PyTorch run in the environments that have them.
        let all: &[&str] = &["tests/python", "--ignore", "tests/python/torch"];
        let older: &[&str] = &["tests/python/tvm/test_versions.py"];
        let newer: &[&str] = &[older[0], "tests/python/tvm/test_tir.py"];
        let with_torch: &[&str] = &["tests/python/torch"];
        let mut runs = vec![
            ("python tests", layout.venv_tvm(), all),
            ("python tests, TVM 0.26", layout.venv_tvm_026(), newer),
            ("python tests, TVM 0.25", layout.venv_tvm_025(), older),
        ];
        if torch && layout.root.join(with_torch[0]).is_dir() {
            runs.push(("python tests, PyTorch", layout.venv_torch(), with_torch));
        }
        for (name, venv, tests) in runs {
            let mut pytest = Command::new(venv.join("bin/python"));
            pytest.args(["-m", "pytest", "-ra"]).args(tests);
            pytest.args(filter.map(|filter| ["-k", filter]).into_iter().flatten());
            // Otherwise, bytecode and caches would be written into the source tree.
            pytest.env("PYTHONDONTWRITEBYTECODE", "1").args(["-p", "no:cacheprovider"]);
            surroundings(&mut pytest);
            steps.push(step(name, &mut pytest)?);
        }
    }
    let vm = "tests in the emulated machine";
    if args.quick {
        say(format_args!("{vm}: skipped, --quick has no downloads"));
    } else if filter.is_some() {
        say(format_args!("{vm}: skipped, cargo xtask pmu-vm can filter them"));
    } else if let Some(why) = pmu_vm::missing() {
        say(format_args!("{vm}: skipped, {why}"));
        add_to_log(&skip_log, &format!("emulated machine: {why}"))?;
    } else {
        steps.push(emulated(layout, vm));
    }
    summary(&steps, &skips::read(&skip_log), args.strict)
}

/// Runs the emulated machine as a step like the others. An error before its tests makes the step
/// fail.
fn emulated(layout: &Layout, name: &'static str) -> Step {
    say(format_args!("{name} …"));
    let start = Instant::now();
    let (tally, error) = match pmu_vm::run(layout, &Request::default()) {
        Ok(outcome) => {
            let Outcome { ran, failed, .. } = outcome;
            let tally = Tally { passed: ran - failed, failed, skipped: 0 };
            (tally, outcome.verdict().err())
        }
        Err(error) => (Tally::default(), Some(error)),
    };
    let error = error.map(|error| format!("{error:#}"));
    Step { name, time: start.elapsed(), tally, error }
}

fn surround(layout: &Layout, dist: &Dist, quick: bool, skip_log: &Path, command: &mut Command) {
    command.env("COUNTERPOINT_DIST", &dist.root);
    command.env("COUNTERPOINT_SKIP_LOG", skip_log);
    if quick {
        for variable in [
            "COUNTERPOINT_VENV",
            "COUNTERPOINT_VENV_V5",
            "COUNTERPOINT_VENV_HTA",
            "COUNTERPOINT_VENV_TVM",
            "COUNTERPOINT_VENV_TVM_026",
            "COUNTERPOINT_VENV_TVM_025",
            "COUNTERPOINT_FIXTURES",
        ] {
            command.env_remove(variable);
        }
    } else {
        command.env("COUNTERPOINT_VENV", layout.venv());
        command.env("COUNTERPOINT_VENV_V5", layout.venv_v5());
        command.env("COUNTERPOINT_VENV_HTA", layout.venv_hta());
        command.env("COUNTERPOINT_VENV_TVM", layout.venv_tvm());
        command.env("COUNTERPOINT_VENV_TVM_026", layout.venv_tvm_026());
        command.env("COUNTERPOINT_VENV_TVM_025", layout.venv_tvm_025());
        command.env("COUNTERPOINT_FIXTURES", layout.fixtures());
    }
}

/// Runs a test program. Passes on its output line by line while counting its outcomes.
fn step(name: &'static str, command: &mut Command) -> Result<Step> {
    say(format_args!("{name} …"));
    let start = Instant::now();
    // One pipe for both streams keeps their order. Colours are kept if we have a terminal.
    let (reader, writer) = std::io::pipe().context("make a pipe")?;
    command.stdin(Stdio::null());
    command.stdout(writer.try_clone().context("copy the pipe")?).stderr(writer);
    if std::io::IsTerminal::is_terminal(&std::io::stderr()) {
        command.env("CARGO_TERM_COLOR", "always").env("PY_COLORS", "1");
    }
    let mut child = command.spawn().with_context(|| format!("start {name}"))?;
    // The command holds the writing end; the pipe ends when all copies of it are closed.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut tally = Tally::default();
    let mut out = std::io::stderr().lock();
    for line in BufReader::new(reader).split(b'\n') {
        let line = line.with_context(|| format!("read the output of {name}"))?;
        out.write_all(&line).and_then(|()| out.write_all(b"\n")).context("write to stderr")?;
        tally.add(&String::from_utf8_lossy(&line));
    }
    let status = child.wait().with_context(|| format!("wait for {name}"))?;
    // pytest exits with 5 if the filter selects no test.
    let nothing = name.starts_with("python") && status.code() == Some(5);
    let error = (!status.success() && !nothing).then(|| describe(status));
    Ok(Step { name, time: start.elapsed(), tally, error })
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

fn add_to_log(skip_log: &Path, line: &str) -> Result<()> {
    let file = std::fs::File::options().append(true).open(skip_log);
    file.and_then(|mut file| writeln!(file, "{line}"))
        .with_context(|| format!("write {}", skip_log.display()))
}

/// Prints what ran and what was skipped. With `strict`, an unexpected skip is a failure.
fn summary(steps: &[Step], skips: &[Skip], strict: bool) -> Result<()> {
    let mut unexpected = Vec::new();
    for skip in skips {
        let Skip { test, reason } = skip;
        match skip.expected() {
            Some(why) => say(format_args!("skipped itself: {test}: {reason} (expected: {why})")),
            None => {
                say(format_args!("skipped itself: {test}: {reason}"));
                unexpected.push(test.as_str());
            }
        }
    }
    let mut total = Tally::default();
    for step in steps {
        let Tally { passed, failed, skipped } = step.tally;
        total.passed += passed;
        total.failed += failed;
        total.skipped += skipped;
        let error = step.error.as_deref().map_or(String::new(), |error| format!(", {error}"));
        let (name, time) = (step.name, duration(step.time));
        say(format_args!(
            "{name}: {passed} passed, {failed} failed, {skipped} skipped, {time}{error}"
        ));
    }
    let Tally { passed, failed, skipped } = total;
    let itself = skips.len();
    eprintln!(
        "{passed} passed, {failed} failed, {skipped} skipped ({itself} of the passed skipped themselves)"
    );
    let mut wrong = Vec::new();
    let broken: Vec<&str> =
        steps.iter().filter(|step| step.error.is_some()).map(|step| step.name).collect();
    if !broken.is_empty() {
        wrong.push(format!("{} failed", broken.join(" and ")));
    }
    if strict && !unexpected.is_empty() {
        let tests = unexpected.join(", ");
        wrong.push(format!("tests skipped themselves that CI expects to run: {tests}"));
    }
    if !wrong.is_empty() {
        bail!("{}", wrong.join("; "));
    }
    Ok(())
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
}
