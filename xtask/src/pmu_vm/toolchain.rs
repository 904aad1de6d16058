//! Builds, for AArch64, the guest's main program (linked statically) and the agent
//! (`libcounterpoint.so`).
//!
//! Linking the main program needs no C compiler: rustup provides the standard library for musl,
//! with start files and an unwinder, and its toolchains contain LLVM's linker. The rejected
//! alternative was Debian's `rustc-web` with its arm64 library. It works without rustup, but takes
//! 121 MB, and the rest of the project is built with another compiler.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::dist;
use crate::layout::Layout;
use crate::process::{cargo, exists, loud, output, quiet, say};
use crate::setup::{self, List};

const TARGET: &str = "aarch64-unknown-linux-musl";
const AGENT_TARGET: &str = "aarch64-unknown-linux-gnu";

/// Returns the reason why building is impossible, if there is one.
pub fn missing() -> Option<String> {
    let has =
        |target: &str| sysroot().is_ok_and(|root| root.join("lib/rustlib").join(target).is_dir());
    let lacks = [TARGET, AGENT_TARGET].into_iter().find(|target| !has(target))?;
    let rustup = exists("rustup", &["--version"]);
    (!rustup).then(|| format!("the standard library for {lacks} and rustup are missing"))
}

/// Builds the guest's main program from the checkout `sources`, and returns its path.
pub fn guest(layout: &Layout, sources: &Path, libraries: &Path) -> Result<PathBuf> {
    let mut build = guest_cargo(layout, sources, "build")?;
    build.arg("--release").env("PMU_VM_LIBRARIES", libraries);
    loud(&mut build, "build the guest's program")?;
    Ok(target_folder(layout).join(TARGET).join("release/guest"))
}

/// Builds the agent for AArch64. As in a release, it is linked for an older glibc, but without
/// link-time optimisation.
pub fn agent(layout: &Layout) -> Result<PathBuf> {
    add_target(AGENT_TARGET)?;
    setup::install(layout, &[List::Build])?;
    let folder = super::home(layout).join("artifacts");
    let target = format!("{AGENT_TARGET}.{}.{}", dist::GLIBC_FLOOR.0, dist::GLIBC_FLOOR.1);
    let mut build = dist::zigbuild(layout, &target, &folder, "quick");
    build.args(["--manifest-path", "artifacts/Cargo.toml", "--package", "counterpoint-so"]);
    loud(&mut build, "build libcounterpoint.so for the guest")?;
    Ok(folder.join(AGENT_TARGET).join("quick/libcounterpoint.so"))
}

fn add_target(target: &str) -> Result<()> {
    if sysroot()?.join("lib/rustlib").join(target).is_dir() {
        return Ok(());
    }
    say(format_args!("rustup target add {target} …"));
    quiet(Command::new("rustup").args(["target", "add", target]), "add a standard library")
}

/// Runs Clippy on the guest's program. The workspace does not contain this program, which is for
/// AArch64 only, so Clippy of the workspace does not check it.
pub fn lint(layout: &Layout) -> Result<()> {
    let mut lint = guest_cargo(layout, &layout.root, "clippy")?;
    lint.args(["--release", "--", "-D", "warnings"]);
    loud(&mut lint, "clippy of the guest's program")
}

fn guest_cargo(layout: &Layout, sources: &Path, chore: &str) -> Result<Command> {
    let sysroot = sysroot()?;
    add_target(TARGET)?;
    let mut command = cargo();
    command.args([chore, "--quiet", "--target", TARGET, "--target-dir"]);
    command.arg(target_folder(layout));
    command.arg("--manifest-path").arg(sources.join("tests/pmu-vm/Cargo.toml"));
    command.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_MUSL_LINKER", linker(&sysroot)?);
    Ok(command)
}

fn target_folder(layout: &Layout) -> PathBuf {
    super::home(layout).join("build")
}

fn sysroot() -> Result<PathBuf> {
    let mut rustc = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    Ok(output(rustc.args(["--print", "sysroot"]), "ask rustc for its folder")?.trim().into())
}

/// Returns LLVM's linker. Toolchains of rustup contain it; with a toolchain from a distribution, it
/// is in `PATH`.
fn linker(sysroot: &Path) -> Result<PathBuf> {
    let mut rustc = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    let version = output(rustc.arg("-vV"), "ask rustc for its version")?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    let host = host.context("the output of rustc -vV has no host")?;
    let own = sysroot.join("lib/rustlib").join(host).join("bin/rust-lld");
    Ok(if own.is_file() { own } else { "ld.lld".into() })
}
