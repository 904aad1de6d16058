//! `cargo xtask fixtures`: compiles `fixtures/iree/*.mlir` into `target/fixtures/`.
//!
//! The compiler chooses tile sizes, and so the number of workgroup calls, for the target CPU. So
//! each module is compiled for *named* CPUs, and not for the CPU of this machine. `NAME.v4.vmfb` is
//! tiled for AVX-512, and `NAME.v3.vmfb` runs on most x86-64 machines of the last ten years. Tests
//! must check which of them a machine can run (`needs` in `expected.json`). The code in a
//! `….system.vmfb` is an ordinary shared library, for `dlopen`, instead of IREE's embedded ELF.

mod oracle;
mod table;

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use anyhow::{Context, Result, bail};

pub use self::table::{Fixture, MLP, TINYLOOP, TRANSFORMER_BLOCK, Variant};
use crate::layout::Layout;
use crate::lock::Lock;
use crate::process::{output, quiet, say, timed};
use crate::setup::{self, List};

/// Compiles the modules that the tests run.
#[derive(clap::Args)]
pub struct Args {
    /// Count dispatches and workgroups with IREE's own profiler, and compare the counts with
    /// expected.json.
    #[arg(long)]
    verify: bool,
    /// Like --verify, but write the counts to expected.json.
    #[arg(long)]
    bless: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Code for IREE's own ELF loader. This kind is the compiler's default.
    Embedded,
    /// A shared library for `dlopen`.
    System,
}

pub fn main(layout: &Layout, args: &Args) -> Result<()> {
    compile(layout)?;
    say(format_args!("{} is up to date", layout.show(&layout.fixtures())));
    if args.verify || args.bless {
        oracle::run(layout, args.bless)?;
    }
    Ok(())
}

pub fn module(layout: &Layout, fixture: &Fixture, variant: &Variant, kind: Kind) -> PathBuf {
    let system = if kind == Kind::System { ".system" } else { "" };
    layout.fixtures().join(format!("{}.{}{system}.vmfb", fixture.name, variant.name))
}

struct Job {
    output: PathBuf,
    command: Command,
    /// A hash of the command, the list of requirements (with the compiler's version) and the
    /// source.
    stamp: String,
}

pub fn compile(layout: &Layout) -> Result<()> {
    setup::install(layout, &[List::Iree])?;
    let _lock = Lock::take(&layout.target, "fixtures")?;
    let folder = layout.fixtures();
    std::fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;
    let mut jobs = Vec::new();
    for fixture in table::FIXTURES {
        let source = source(layout, fixture);
        let text = std::fs::read(&source).with_context(|| format!("read {}", source.display()))?;
        for variant in table::VARIANTS {
            for kind in [Kind::Embedded, Kind::System] {
                let job = job(layout, fixture, variant, kind, &text)?;
                let stamp = std::fs::read_to_string(stamp_path(&job.output)).unwrap_or_default();
                if stamp != job.stamp || !job.output.exists() {
                    jobs.push(job);
                }
            }
        }
    }
    if jobs.is_empty() {
        return Ok(());
    }
    say(format_args!("compile {} modules into {} …", jobs.len(), layout.show(&folder)));
    timed("compile fixtures", || run_all(jobs))
}

fn source(layout: &Layout, fixture: &Fixture) -> PathBuf {
    layout.root.join("fixtures/iree").join(format!("{}.mlir", fixture.name))
}

fn stamp_path(output: &Path) -> PathBuf {
    output.with_extension("stamp")
}

fn job(
    layout: &Layout,
    fixture: &Fixture,
    variant: &Variant,
    kind: Kind,
    source_text: &[u8],
) -> Result<Job> {
    let output = module(layout, fixture, variant, kind);
    let mut command = compiler(layout, fixture, variant.cpu);
    if kind == Kind::System {
        // IREE's wheel contains a linker. The function `site_packages` searches for the wheel's
        // folder, because the folder's path contains the version of Python.
        let lld = site_packages(layout)?.join("iree/compiler/_mlir_libs/iree-lld");
        command.arg("--iree-llvmcpu-link-embedded=false");
        command.arg(format!("--iree-llvmcpu-system-linker-path={} -flavor gnu", lld.display()));
    }
    command.arg("-o").arg(&output);
    let mut hash = DefaultHasher::new();
    format!("{command:?}").hash(&mut hash);
    std::fs::read(layout.root.join("xtask/requirements/iree.txt"))
        .context("read xtask/requirements/iree.txt")?
        .hash(&mut hash);
    source_text.hash(&mut hash);
    Ok(Job { output, command, stamp: format!("{:016x}", hash.finish()) })
}

/// Makes an `iree-compile` command with the flags that all fixtures share, and with the flags of
/// this fixture. The command must run in the root of the repository, because the compiler copies
/// the source's relative path into the module.
pub fn compiler(layout: &Layout, fixture: &Fixture, cpu: &str) -> Command {
    let mut command = Command::new(layout.venv_bin("iree-compile"));
    command.arg(format!("fixtures/iree/{}.mlir", fixture.name));
    command.args([
        "--iree-hal-target-device=local",
        "--iree-hal-local-target-device-backends=llvm-cpu",
    ]);
    command.arg(format!("--iree-llvmcpu-target-cpu={cpu}"));
    command.args(fixture.flags);
    command
}

pub fn site_packages(layout: &Layout) -> Result<PathBuf> {
    packages_of(&layout.venv())
}

pub fn packages_of(venv: &Path) -> Result<PathBuf> {
    let lib = venv.join("lib");
    let entries = std::fs::read_dir(&lib).with_context(|| format!("read {}", lib.display()))?;
    for entry in entries {
        let path = entry.with_context(|| format!("read {}", lib.display()))?.path();
        let packages = path.join("site-packages");
        if packages.join("iree").is_dir() {
            return Ok(packages);
        }
    }
    bail!("{}: no python*/site-packages/iree below it", lib.display())
}

fn run_all(jobs: Vec<Job>) -> Result<()> {
    let workers = std::thread::available_parallelism().map_or(1, usize::from).min(8);
    let queue = Mutex::new(jobs);
    let next = || queue.lock().map(|mut jobs| jobs.pop()).unwrap_or(None);
    std::thread::scope(|scope| {
        let work = || -> Result<()> {
            while let Some(mut job) = next() {
                let what = format!("compile {}", job.output.display());
                quiet(&mut job.command, &what)?;
                let stamp = stamp_path(&job.output);
                std::fs::write(&stamp, &job.stamp)
                    .with_context(|| format!("write {}", stamp.display()))?;
            }
            Ok(())
        };
        let handles: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        let mut result = Ok(());
        for handle in handles {
            let one = handle.join().unwrap_or_else(|_| bail!("a compile thread panicked"));
            result = result.and(one);
        }
        result
    })
}

pub fn iree_version(layout: &Layout) -> Result<String> {
    let mut python = Command::new(layout.venv_bin("python"));
    python.args(["-c", "import importlib.metadata as m; print(m.version('iree-base-runtime'))"]);
    Ok(output(&mut python, "ask for the version of iree-base-runtime")?.trim().to_owned())
}
