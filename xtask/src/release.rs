//! `cargo xtask release`: makes the files that people download, in `target/published/`.
//!
//! | file | contents |
//! |---|---|
//! | `counterpoint-VERSION-x86_64-linux.tar.zst` | the files of `dist/`, the licences, README.md and CHANGELOG.md |
//! | `counterpoint-VERSION-py3-none-manylinux_2_17_x86_64.….whl` | the Python package with program, library and plugins, as `pip install ./bindings/python` makes it if there is a `dist/` |
//! | `counterpoint-VERSION-x86_64-linux.cdx.json` | the third-party crates with which Counterpoint is linked, as a bill of materials in CycloneDX's format; also in the archive |
//! | `SHA256SUMS` | the checksums of the three files above, for `sha256sum --check` |
//!
//! Unless `--no-prebuilt` is given, the archive and the wheel also contain the C++ part for
//! PyTorch, compiled for the tested versions of PyTorch (`counterpoint/torch/_prebuilt`). The
//! compiled part is compressed, so that `auditwheel` does not see it. The part needs the C library
//! of the machine that made it, and `auditwheel` would require this library for the whole wheel. If
//! the compiled part cannot be loaded, the Python package compiles it again.
//!
//! The same commit gives the same bytes: nothing in the files depends on the time, on the user, or
//! on the order of entries in folders. Afterwards, the command checks the files as users get them:
//! `auditwheel` and `twine` check the wheel, and the installed wheel and the unpacked archive each
//! record a program.

mod sbom;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::dist::{self, GLIBC_FLOOR};
use crate::layout::{Dist, Layout};
use crate::process::{output, quiet, say, timed};
use crate::setup::{self, List};
use crate::tidy;

/// Makes the files that people download, in target/published.
#[derive(clap::Args)]
pub struct Args {
    /// Pack the dist/ that is there, instead of building it.
    #[arg(long)]
    no_build: bool,
    /// Leave out the compiled C++ part for PyTorch, which needs the environments of its tests (9 GB).
    #[arg(long)]
    no_prebuilt: bool,
    /// A Python with which the wheel is tried as well, besides the `python3` in PATH. Repeatable.
    #[arg(long, value_name = "PATH")]
    python: Vec<PathBuf>,
}

const VERSION: &str = env!("CARGO_PKG_VERSION");

pub fn main(layout: &Layout, args: &Args) -> Result<()> {
    setup::install(layout, &[List::Build, List::Release])?;
    let dist = match args.no_build {
        true => layout.dist(),
        false => dist::release(layout)?,
    };
    timed("compile for PyTorch", || prebuilt(layout, &dist, args.no_prebuilt))?;
    tidy::built_only(layout)?;
    let to = layout.published();
    if to.exists() {
        std::fs::remove_dir_all(&to).with_context(|| format!("remove {}", to.display()))?;
    }
    std::fs::create_dir_all(&to).with_context(|| format!("create {}", to.display()))?;

    let name = format!("counterpoint-{VERSION}-{}-linux", std::env::consts::ARCH);
    let bill = to.join(format!("{name}.cdx.json"));
    let text = sbom::text(layout, VERSION)?;
    std::fs::write(&bill, text).with_context(|| format!("write {}", bill.display()))?;
    let archive = to.join(format!("{name}.tar.zst"));
    timed("pack the archive", || pack(layout, &dist, &bill, &name, &archive))?;
    let wheel = timed("make the wheel", || wheel(layout, &dist, &to))?;
    timed("check the wheel", || check_wheel(layout, &wheel))?;
    for python in [PathBuf::from("python3")].iter().chain(&args.python) {
        timed(&format!("try the wheel with {}", python.display()), || {
            try_wheel(layout, &wheel, python)
        })?;
    }
    timed("check the archive", || check_archive(layout, &archive, &name))?;
    let mut sums = Command::new("sha256sum");
    sums.current_dir(&to);
    for file in [&archive, &bill, &wheel] {
        sums.arg(file.file_name().context("a file has a name")?);
    }
    let sums = output(&mut sums, "add up the files")?;
    std::fs::write(to.join("SHA256SUMS"), sums).context("write SHA256SUMS")?;
    for file in dist::files_below(&to)? {
        let size = file.metadata().with_context(|| file.display().to_string())?.len();
        say(format_args!("{} ({:.1} MB)", layout.show(&file), size as f64 / 1e6));
    }
    Ok(())
}

fn prebuilt(layout: &Layout, dist: &Dist, none: bool) -> Result<()> {
    let package = dist.python();
    let folder = package.join("torch/_prebuilt");
    if folder.exists() {
        std::fs::remove_dir_all(&folder).with_context(|| format!("remove {}", folder.display()))?;
    }
    if none {
        return Ok(());
    }
    setup::install(layout, &[List::Torch, List::Torch212])?;
    for venv in [layout.venv_torch(), layout.venv_torch_212()] {
        let mut build = Command::new(venv.join("bin/python"));
        build.arg("-B").arg(package.join("torch/_prepare.py")).arg("prebuild").arg(&folder);
        build
            .env("COUNTERPOINT_DIST", &dist.root)
            .env_remove("CXX")
            .env_remove("COUNTERPOINT_TORCH");
        let printed = output(&mut build, "compile the C++ part for PyTorch")?;
        ensure!(!printed.trim().is_empty(), "{} has no PyTorch", venv.display());
    }
    Ok(())
}

fn pack(layout: &Layout, dist: &Dist, bill: &Path, name: &str, to: &Path) -> Result<()> {
    let mut pack = Command::new(layout.venv_release().join("bin/python"));
    pack.arg(layout.root.join("xtask/src/release/pack.py")).arg(to);
    pack.arg(format!("{}={name}", dist.root.display()));
    for page in ["README.md", "CHANGELOG.md", "LICENSE-MIT", "LICENSE-APACHE"] {
        pack.arg(format!("{}={name}/{page}", layout.root.join(page).display()));
    }
    let place = "share/doc/counterpoint/counterpoint.cdx.json";
    pack.arg(format!("{}={name}/{place}", bill.display()));
    quiet(&mut pack, "pack the archive")
}

/// Makes the wheel as pip does, and returns its path.
fn wheel(layout: &Layout, dist: &Dist, to: &Path) -> Result<PathBuf> {
    let mut build = Command::new(layout.venv_release().join("bin/python"));
    build.current_dir(layout.root.join("bindings/python"));
    build.args([
        "-B",
        "-c",
        "import sys, build_wheel_of_checkout as b; print(b.build_wheel(sys.argv[1]))",
    ]);
    build.arg(to).env("COUNTERPOINT_DIST", &dist.root);
    let printed = output(&mut build, "make the wheel")?;
    let name = printed.lines().last().context("make the wheel: no name was printed")?;
    let (major, minor) = GLIBC_FLOOR;
    let tag = format!("manylinux_{major}_{minor}_{}", std::env::consts::ARCH);
    ensure!(name.contains(&tag), "the wheel is {name}, and not for {tag}");
    Ok(to.join(name))
}

fn check_wheel(layout: &Layout, wheel: &Path) -> Result<()> {
    let venv = layout.venv_release();
    let mut show = Command::new(venv.join("bin/auditwheel"));
    let seen = output(show.arg("show").arg(wheel), "auditwheel show")?;
    let (major, minor) = GLIBC_FLOOR;
    let tag = format!("\"manylinux_{major}_{minor}_{}\"", std::env::consts::ARCH);
    let seen = seen.split_whitespace().collect::<Vec<_>>().join(" ");
    ensure!(seen.contains(&tag), "auditwheel does not say {tag}: {seen}");
    let mut twine = Command::new(venv.join("bin/twine"));
    quiet(twine.args(["check", "--strict"]).arg(wheel), "twine check")
}

/// Installs the wheel into an empty environment, imports the package, and records a program. During
/// the import, `PATH` contains only the environment's `bin`, so the package finds neither Rust nor
/// a C++ compiler.
fn try_wheel(layout: &Layout, wheel: &Path, python: &Path) -> Result<()> {
    let place = Scratch::new(layout, "published-wheel")?;
    let own = place.0.join("venv");
    quiet(Command::new(python).args(["-m", "venv"]).arg(&own), "python -m venv")?;
    let mut pip = Command::new(own.join("bin/python"));
    pip.args(["-m", "pip", "install", "--no-index", "--disable-pip-version-check"]).arg(wheel);
    quiet(&mut pip, "pip install of the wheel")?;
    let alone = own.join("bin");
    let mut import = Command::new(alone.join("python"));
    import.current_dir(&place.0).env("PATH", &alone).env_remove("PYTHONPATH");
    quiet(import.args(["-c", "import counterpoint, counterpoint.torch"]), "import the package")?;
    record(&alone.join("counterpoint"), &alone.join("python"), &place.0)
}

fn check_archive(layout: &Layout, archive: &Path, name: &str) -> Result<()> {
    let place = Scratch::new(layout, "published-archive")?;
    let mut unpack = Command::new(layout.venv_release().join("bin/python"));
    unpack.arg(layout.root.join("xtask/src/release/pack.py")).arg("--unpack");
    quiet(unpack.arg(archive).arg(&place.0), "unpack the archive")?;
    record(&place.0.join(name).join("bin/counterpoint"), Path::new("python3"), &place.0)
}

/// Records a Python program and reports on the profile, without the environment variables that
/// point to a developer's files.
fn record(counterpoint: &Path, python: &Path, folder: &Path) -> Result<()> {
    let mut run = Command::new(counterpoint);
    run.current_dir(folder).env_remove("COUNTERPOINT_DIST").env_remove("PYTHONPATH");
    run.args(["run", "-e", "none", "-o", "it.cpt", "--"]).arg(python);
    run.args(["-c", "import os; assert 'libcounterpoint' in os.environ['LD_PRELOAD']"]);
    quiet(&mut run, &format!("record a program with {}", counterpoint.display()))?;
    let mut report = Command::new(counterpoint);
    report.current_dir(folder).env_remove("COUNTERPOINT_DIST");
    report.args(["report", "--format", "json", "it.cpt"]);
    let report = output(&mut report, "report")?;
    ensure!(report.contains("counterpoint.report/"), "the report is {report}");
    Ok(())
}

/// A folder below `target/`, which is removed when this value is dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn new(layout: &Layout, name: &str) -> Result<Self> {
        let path = layout.target.join("tmp").join(format!("{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).with_context(|| format!("create {}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
