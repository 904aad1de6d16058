//! `cargo xtask dist`: builds what people install, in `dist/{bin,lib,libexec,include,share}`. The
//! Python package is in `dist/lib/python`, for `PYTHONPATH` and for `counterpoint run`.
//!
//! The linker decides on which systems the release runs. A shared library that gcc links needs
//! symbol versions of this machine's glibc (on Debian 12, up to 2.34), and `libgcc_s.so.1`. A
//! program with an older glibc could not start with such a library preloaded. So zig's lld links
//! the release against the symbol versions of glibc 2.17, and with LLVM's unwinder in place of
//! `libgcc_s.so.1`. Measured: the highest version of glibc that the release requires is 2.14, and a
//! caught panic still unwinds. The linker comes from pip, pinned in `xtask/requirements`. Rejected
//! alternatives: a container with an old distribution (not everybody can start one), building std
//! (needs a nightly compiler), and musl (it cannot be preloaded into glibc programs).

pub mod licences;
mod vendors;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::layout::{Dist, Layout};
use crate::lock::Lock;
use crate::process::{cargo, loud, quiet, say, timed};
use crate::setup::{self, List};

/// Builds the release into dist/.
#[derive(clap::Args)]
pub struct Args {
    /// Link with the host's C compiler into target/quick-dist. This downloads nothing, and the
    /// result only runs on this machine.
    #[arg(long)]
    host_linker: bool,
    /// Build the library that panics on demand, for tests, into target/inject-dist.
    #[arg(long, conflicts_with = "host_linker")]
    inject_panics: bool,
}

/// The profiler plugins that come with Counterpoint: name and package. Users can write the name
/// instead of a path.
pub const PLUGINS: &[(&str, &str)] = &[
    ("telemetry", "counterpoint-telemetry"),
    ("opencl", "counterpoint-opencl"),
    ("cuda", "counterpoint-cuda"),
];

/// The oldest glibc that the release supports.
pub const GLIBC_FLOOR: (u32, u32) = (2, 17);

#[cfg(target_arch = "x86_64")]
pub const TRIPLE: &str = "x86_64-unknown-linux-gnu";
#[cfg(target_arch = "aarch64")]
pub const TRIPLE: &str = "aarch64-unknown-linux-gnu";

pub fn main(layout: &Layout, args: &Args) -> Result<()> {
    let dist = match (args.host_linker, args.inject_panics) {
        (_, true) => injecting(layout, Built::Alone)?,
        (true, false) => quick(layout, Built::Alone)?,
        (false, false) => release(layout)?,
    };
    say(format_args!("built {}", layout.show(&dist.root)));
    Ok(())
}

/// Returns the release that `COUNTERPOINT_DIST` names, or builds that of this checkout.
pub fn given(layout: &Layout) -> Result<Dist> {
    let Some(folder) = std::env::var_os("COUNTERPOINT_DIST") else { return release(layout) };
    let path = PathBuf::from(folder);
    let root = path.canonicalize();
    Ok(Dist { root: root.with_context(|| format!("COUNTERPOINT_DIST={}", path.display()))? })
}

pub fn release(layout: &Layout) -> Result<Dist> {
    setup::install(layout, &[List::Build])?;
    let _lock = Lock::take(&layout.target, "dist")?;
    let target = format!("{TRIPLE}.{}.{}", GLIBC_FLOOR.0, GLIBC_FLOOR.1);
    let artifacts = layout.target.join("artifacts");
    timed("build libcounterpoint.so", || {
        let mut build = zigbuild(layout, &target, &artifacts, "release");
        build.args(["--manifest-path", "artifacts/Cargo.toml", "--package", "counterpoint-so"]);
        loud(&mut build, "build libcounterpoint.so")
    })?;
    timed("build counterpoint", || {
        let mut build = zigbuild(layout, &target, &layout.target, "release");
        build.args(["--package", "counterpoint", "--bins"]);
        build.env("COUNTERPOINT_BUILD", described(layout, &target));
        loud(&mut build, "build counterpoint")
    })?;
    timed("build the plugins", || {
        let mut build = zigbuild(layout, &target, &layout.target, "release");
        loud(build.args(of_plugins()).arg("--lib"), "build the plugins")
    })?;
    let built = Path::new(TRIPLE).join("release");
    let library = artifacts.join(&built).join("libcounterpoint.so");
    fill(layout, layout.dist(), &layout.target.join(&built), &library)
}

/// Returns what `counterpoint --version` prints about the build: the commit and the target.
fn described(layout: &Layout, target: &str) -> String {
    let commit = commit(layout);
    let commit = if commit.is_empty() { "a source without git" } else { &commit };
    format!("{commit}, {target}")
}

/// Returns the commit, with `-changed` if files differ from it; empty outside of git.
fn commit(layout: &Layout) -> String {
    let mut git = Command::new("git");
    git.current_dir(&layout.root).args(["describe", "--always", "--abbrev=12", "--exclude=*"]);
    git.arg("--dirty=-changed");
    let told = git.output().ok().filter(|told| told.status.success());
    told.map_or_else(String::new, |told| String::from_utf8_lossy(&told.stdout).trim().to_owned())
}

fn of_plugins() -> impl Iterator<Item = String> {
    PLUGINS.iter().flat_map(|(_, package)| ["--package".to_owned(), (*package).to_owned()])
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Built {
    Alone,
    /// The programs are built with the tests. If they were built alone, Cargo would choose other
    /// features than for the tests, and compile most crates twice.
    WithTests,
}

/// Builds the same files a minute faster than [`release`]: with the host's linker, without
/// link-time optimisation of the library, and with the program in the build profile of `cargo
/// test`.
pub fn quick(layout: &Layout, built: Built) -> Result<Dist> {
    let _lock = Lock::take(&layout.target, "quick-dist")?;
    let library = quick_library(layout, "artifacts", &[])?;
    with_quick_program(layout, layout.quick_dist(), &library, built)
}

/// Like [`quick`], but with a library that panics at the places that a test selects.
pub fn injecting(layout: &Layout, built: Built) -> Result<Dist> {
    let _lock = Lock::take(&layout.target, "inject-dist")?;
    let library = quick_library(layout, "artifacts-inject", &["--features", "inject-panics"])?;
    with_quick_program(layout, layout.inject_dist(), &library, built)
}

/// Builds and tests `counterpoint-query`, which is a separate workspace. The first build takes
/// about seven minutes of processor time, and later ones a few seconds.
pub fn query(layout: &Layout) -> Result<PathBuf> {
    query_with(layout, "query", &[])
}

/// Builds and tests `counterpoint-query` with Ballista, for queries on a cluster. The first build
/// takes half an hour or more.
pub fn query_ballista(layout: &Layout) -> Result<PathBuf> {
    query_with(layout, "query-ballista", &["--features", "ballista"])
}

/// Builds `counterpoint-query` with optimisation, as for users. The first build takes longer than
/// that of a whole release.
pub fn query_release(layout: &Layout) -> Result<PathBuf> {
    let target = layout.target.join("query");
    let _lock = Lock::take(&layout.target, "query")?;
    let mut build = cargo();
    build.args(["build", "--quiet", "--release", "--locked"]);
    build.args(["--manifest-path", "query/Cargo.toml", "--target-dir"]).arg(&target);
    let what = "build counterpoint-query for a release";
    timed(what, || loud(&mut build, what))?;
    Ok(target.join("release/counterpoint-query"))
}

fn query_with(layout: &Layout, folder: &str, flags: &[&str]) -> Result<PathBuf> {
    let target = layout.target.join(folder);
    let _lock = Lock::take(&layout.target, folder)?;
    let cargo_at = |what: &str| {
        let mut command = cargo();
        command.args([what, "--quiet", "--locked", "--manifest-path", "query/Cargo.toml"]);
        command.args(flags).arg("--target-dir").arg(&target);
        command
    };
    let (build, tests) =
        (format!("build counterpoint-{folder}"), format!("unit tests of counterpoint-{folder}"));
    timed(&build, || loud(&mut cargo_at("build"), &build))?;
    // The tests compile the crate once more, which takes two or three seconds of processor time.
    timed(&tests, || loud(&mut cargo_at("test"), &tests))?;
    Ok(target.join("debug/counterpoint-query"))
}

fn quick_library(layout: &Layout, folder: &str, flags: &[&str]) -> Result<PathBuf> {
    let artifacts = layout.target.join(folder);
    timed("build libcounterpoint.so", || {
        let mut build = cargo();
        build.args(["build", "--quiet", "--profile", "quick", "--target-dir"]).arg(&artifacts);
        build.args(["--manifest-path", "artifacts/Cargo.toml", "--package", "counterpoint-so"]);
        build.args(flags);
        loud(&mut build, "build libcounterpoint.so with the host's linker")
    })?;
    Ok(artifacts.join("quick/libcounterpoint.so"))
}

fn with_quick_program(layout: &Layout, dist: Dist, library: &Path, built: Built) -> Result<Dist> {
    let build = |what: &str, arguments: &[String]| {
        let what = format!("build {what} with the host's linker");
        let mut build = cargo();
        build.args(["build", "--quiet", "--target-dir"]).arg(&layout.target).args(arguments);
        timed(&what, || loud(&mut build, &what))
    };
    let owned = |words: &[&str]| words.iter().map(ToString::to_string).collect::<Vec<_>>();
    match built {
        Built::Alone => {
            build("counterpoint", &owned(&["--package", "counterpoint", "--bins"]))?;
            build("the plugins", &of_plugins().chain(owned(&["--lib"])).collect::<Vec<_>>())?;
        }
        Built::WithTests => {
            let all = ["--workspace", "--lib", "--bins", "--tests", "--examples"];
            build("the tests and all programs", &owned(&all))?;
        }
    }
    fill(layout, dist, &layout.target.join("debug"), library)
}

/// Returns a Cargo command that builds with zig as the linker. `target` ends with a glibc version.
pub fn zigbuild(layout: &Layout, target: &str, target_dir: &Path, profile: &str) -> Command {
    let mut build = Command::new(layout.venv_bin("cargo-zigbuild"));
    for (name, value) in cargo().get_envs() {
        if value.is_none() {
            build.env_remove(name);
        }
    }
    // Without this variable, cargo-zigbuild would search every python3 in PATH for ziglang.
    build.env("CARGO_ZIGBUILD_PYTHON_PATH", layout.venv_bin("python"));
    build.env("CARGO_ZIGBUILD_CACHE_DIR", layout.target.join("zigbuild"));
    build.args(["zigbuild", "--quiet", "--profile", profile, "--target", target, "--target-dir"]);
    build.arg(target_dir);
    build
}

/// Copies everything into `dist`. `built` is Cargo's folder with the programs and the plugins.
fn fill(layout: &Layout, dist: Dist, built: &Path, library: &Path) -> Result<Dist> {
    replace(&built.join("counterpoint-start"), &dist.program())?;
    replace(&built.join("counterpoint"), &dist.whole_program())?;
    for (name, package) in PLUGINS {
        let file = format!("lib{}.so", package.replace('-', "_"));
        replace(&built.join(file), &dist.plugin(name))?;
    }
    replace(library, &dist.library())?;
    replace(&loops_client(layout)?, &dist.loops_client())?;
    python(&layout.python_package(), &dist.python())?;
    let include = layout.root.join("include");
    if include.is_dir() {
        for header in files_below(&include)? {
            let name = header.strip_prefix(&include).unwrap_or(&header).to_path_buf();
            replace(&header, &dist.root.join("include").join(name))?;
        }
    }
    let mut manuals = Command::new(dist.whole_program());
    manuals.args(["session", "manuals", "--"]).arg(dist.root.join("share"));
    quiet(&mut manuals, "write the manual pages and the completions")?;
    vendors::fill(layout, &dist)?;
    licences::fill(layout, &dist.root)?;
    Ok(dist)
}

/// Copies the Python package to `to`. Removes all other files there except bytecode: those of an
/// earlier checkout, and the parts that `cargo xtask release` compiled for PyTorch. The tests would
/// use these parts instead of compiling the current sources.
fn python(package: &Path, to: &Path) -> Result<()> {
    // Bytecode is neither copied nor removed: Python writes bytecode itself, and ignores bytecode
    // whose source is gone.
    let cached = |file: &Path| file.components().any(|part| part.as_os_str() == "__pycache__");
    let mut copies = BTreeSet::new();
    for file in files_below(package)?.into_iter().filter(|file| !cached(file)) {
        let copy = to.join(file.strip_prefix(package).unwrap_or(&file));
        replace(&file, &copy)?;
        copies.insert(copy);
    }
    for old in files_below(to)?.into_iter().filter(|file| !cached(file) && !copies.contains(file)) {
        std::fs::remove_file(&old).with_context(|| format!("remove {}", old.display()))?;
    }
    Ok(())
}

/// Builds `libcounterpoint_loops.a`. This library uses no C library, so the result does not depend
/// on the linker.
fn loops_client(layout: &Layout) -> Result<PathBuf> {
    let target = layout.target.join("artifacts-looprt");
    timed("build libcounterpoint_loops.a", || {
        let mut build = cargo();
        build.args(["build", "--quiet", "--release", "--target-dir"]).arg(&target);
        build.args(["--manifest-path", "artifacts/looprt/Cargo.toml"]);
        loud(&mut build, "build libcounterpoint_loops.a")
    })?;
    Ok(target.join("release/libcounterpoint_loops.a"))
}

/// Copies `from` to a new file, and renames the new file to `to`. A process that has mapped an old
/// library keeps the old file. Writing into the old file would crash that process.
fn replace(from: &Path, to: &Path) -> Result<()> {
    let what = || format!("copy {} to {}", from.display(), to.display());
    let folder = to.parent().with_context(what)?;
    std::fs::create_dir_all(folder).with_context(what)?;
    let new = to.with_extension("new");
    std::fs::copy(from, &new).with_context(what)?;
    std::fs::rename(&new, to).with_context(what)
}

/// Returns the paths of all files below `folder` (of everything that is not a folder), sorted.
pub fn files_below(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        let entries = std::fs::read_dir(&folder)
            .with_context(|| format!("read folder {}", folder.display()))?;
        for entry in entries {
            let path = entry.with_context(|| format!("read folder {}", folder.display()))?.path();
            if path.is_dir() { folders.push(path) } else { files.push(path) }
        }
    }
    files.sort();
    Ok(files)
}
