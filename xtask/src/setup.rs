//! `cargo xtask setup`: makes private virtual environments below `target/`, from the pinned lists
//! in `xtask/requirements/`.
//!
//! After a list is installed, its text is also written to a file in the environment (the stamp), so
//! that a later call only has to compare two small files. The first line of the stamp is the
//! environment's folder, because installed programs contain this absolute path. So pip runs again
//! for every list if the checkout was moved.

pub mod packages;
mod torch;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::layout::Layout;
use crate::lock::Lock;
use crate::process::{output, quiet, say, timed};

/// Creates the private Python environment that the other commands use.
#[derive(clap::Args)]
pub struct Args {
    /// Lists of xtask/requirements to install. By default, all but release, torch, torch-212 and hta.
    #[arg(value_enum)]
    lists: Vec<List>,
    /// Fetch everything that `cargo xtask test` downloads instead: all lists but release, Debian's packages
    /// and those of npm. Compiles the models of the tests, too.
    #[arg(long, conflicts_with = "lists")]
    pub tests: bool,
}

/// One file of `xtask/requirements/`.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum List {
    /// The linker for `dist`.
    Build,
    /// IREE's compiler and runtime.
    Iree,
    /// The Python test runner.
    Test,
    /// An IREE whose executable libraries have version 5, in its own environment.
    IreeV5,
    /// TVM, for the tests of the Python package, in its own environment.
    Tvm,
    /// TVM 0.26, the second-oldest supported version, in its own environment.
    #[value(name = "tvm-026")]
    Tvm026,
    /// TVM 0.25, the oldest supported version, in its own environment.
    #[value(name = "tvm-025")]
    Tvm025,
    /// PyTorch, for its tests and for the benchmarks of traces, in its own environment (4 GB).
    Torch,
    /// PyTorch 2.12, for the tests of versions, in its own environment. It uses the NVIDIA libraries
    /// of the list torch, which must be installed, too.
    #[value(name = "torch-212")]
    Torch212,
    /// What `release` packs and checks with, in its own environment.
    Release,
    /// HolisticTraceAnalysis, which reads our exports, in its own environment.
    Hta,
}

/// The oldest Python for which IREE 3.13 has wheels.
const OLDEST_PYTHON: (u32, u32) = (3, 10);

/// The oldest Python for which PyTorch 2.15 has wheels.
const OLDEST_PYTHON_OF_TORCH: (u32, u32) = (3, 11);

impl List {
    const USUAL: [List; 7] =
        [List::Build, List::Iree, List::Test, List::IreeV5, List::Tvm, List::Tvm026, List::Tvm025];

    fn name(self) -> &'static str {
        match self {
            List::Build => "build",
            List::Iree => "iree",
            List::Test => "test",
            List::IreeV5 => "iree-v5",
            List::Tvm => "tvm",
            List::Tvm026 => "tvm-026",
            List::Tvm025 => "tvm-025",
            List::Torch => "torch",
            List::Torch212 => "torch-212",
            List::Release => "release",
            List::Hta => "hta",
        }
    }

    /// Returns whether the list names all necessary packages, so that pip need not look for
    /// dependencies.
    fn is_whole(self) -> bool {
        matches!(self, List::Torch | List::Torch212 | List::Hta)
    }

    fn venv(self, layout: &Layout) -> PathBuf {
        match self {
            List::IreeV5 => layout.venv_v5(),
            List::Tvm => layout.venv_tvm(),
            List::Tvm026 => layout.venv_tvm_026(),
            List::Tvm025 => layout.venv_tvm_025(),
            List::Torch => layout.venv_torch(),
            List::Torch212 => layout.venv_torch_212(),
            List::Release => layout.venv_release(),
            List::Hta => layout.venv_hta(),
            List::Build | List::Iree | List::Test => layout.venv(),
        }
    }
}

pub fn main(layout: &Layout, args: &Args) -> Result<()> {
    let lists = if args.lists.is_empty() { &List::USUAL[..] } else { &args.lists };
    install(layout, lists)?;
    let mut venvs: Vec<PathBuf> = lists.iter().map(|list| list.venv(layout)).collect();
    venvs.dedup();
    venvs.iter().for_each(|venv| say(format_args!("{} is ready", layout.show(venv))));
    Ok(())
}

/// Makes sure that the environments contain the packages of `lists`.
pub fn install(layout: &Layout, lists: &[List]) -> Result<()> {
    let missing = |layout: &Layout| -> Result<Vec<List>> {
        let mut missing = Vec::new();
        for &list in lists {
            if std::fs::read_to_string(stamp(layout, list)).ok() != Some(wanted(layout, list)?) {
                missing.push(list);
            }
        }
        Ok(missing)
    };
    let there = |list: &List| list.venv(layout).join("bin/python").exists();
    if missing(layout)?.is_empty() && lists.iter().all(there) {
        return Ok(());
    }
    let _lock = Lock::take(&layout.target, "venv")?;
    for list in lists {
        create(layout, &list.venv(layout))?;
    }
    // Another xtask may have installed the lists while we waited for the lock.
    for list in missing(layout)? {
        let what = format!("install {} list", list.name());
        say(format_args!("{what} into {} …", layout.show(&list.venv(layout))));
        timed(&what, || pip(layout, list))?;
        if list == List::Torch212 {
            torch::share_libraries(layout)?;
        }
        let stamp = stamp(layout, list);
        std::fs::write(&stamp, wanted(layout, list)?)
            .with_context(|| format!("write {}", stamp.display()))?;
    }
    Ok(())
}

fn requirements(layout: &Layout, list: List) -> PathBuf {
    layout.root.join("xtask/requirements").join(format!("{}.txt", list.name()))
}

fn stamp(layout: &Layout, list: List) -> PathBuf {
    list.venv(layout).join(format!("installed-{}.txt", list.name()))
}

fn wanted(layout: &Layout, list: List) -> Result<String> {
    let path = requirements(layout, list);
    let text =
        std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    Ok(format!("# in {}\n{text}", list.venv(layout).display()))
}

fn pip(layout: &Layout, list: List) -> Result<()> {
    let command = || {
        let mut command = Command::new(list.venv(layout).join("bin/python"));
        command.args(["-m", "pip", "install", "--disable-pip-version-check", "--no-input"]);
        command.args(list.is_whole().then_some("--no-deps"));
        command.arg("--requirement").arg(requirements(layout, list));
        command
    };
    let first = command().output().context("start pip")?;
    if first.status.success() {
        return Ok(());
    }
    // pip repeats failed requests, but gives up if the index answers with an error page.
    say("pip failed, trying once more …");
    quiet(&mut command(), &format!("pip install of xtask/requirements/{}.txt", list.name()))
}

fn create(layout: &Layout, venv: &Path) -> Result<()> {
    let python = venv.join("bin/python");
    let works = |python: &PathBuf| {
        crate::process::exists(&python.to_string_lossy(), &["-m", "pip", "--version"])
    };
    if works(&python) {
        return Ok(());
    }
    check_python()?;
    say(format_args!("create {} …", layout.show(venv)));
    if venv.exists() {
        std::fs::remove_dir_all(venv)
            .with_context(|| format!("remove the broken {}", venv.display()))?;
    }
    let make = || Command::new("python3").args(["-m", "venv"]).arg(venv).output();
    let made = make().context("start python3 -m venv")?;
    if made.status.success() && works(&python) {
        return Ok(());
    }
    packages::install(&[packages::VENV]);
    let made = make().context("start python3 -m venv")?;
    if !made.status.success() || !works(&python) {
        eprint!("{}", String::from_utf8_lossy(&made.stderr));
        bail!(
            "python3 -m venv {}: failed; on Debian it needs the package python3-venv",
            venv.display()
        );
    }
    Ok(())
}

pub fn has_torch() -> Result<bool> {
    Ok(python_version()? >= OLDEST_PYTHON_OF_TORCH)
}

fn python_version() -> Result<(u32, u32)> {
    let mut command = Command::new("python3");
    command.args(["-c", "import sys; print(*sys.version_info[:2])"]);
    let version = output(&mut command, "python3 (3.10 or newer is needed)")?;
    let mut numbers = version.split_whitespace().map(|word| word.parse::<u32>().unwrap_or(0));
    Ok((numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)))
}

fn check_python() -> Result<()> {
    let found = python_version()?;
    if found < OLDEST_PYTHON {
        bail!(
            "python3 is {}.{}; IREE's wheels need {}.{} or newer",
            found.0,
            found.1,
            OLDEST_PYTHON.0,
            OLDEST_PYTHON.1
        );
    }
    Ok(())
}
