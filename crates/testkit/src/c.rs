//! Compiles C programs of `tests/programs` for tests.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns the path of a folder of the repository, such as `include` or `tests/programs`.
pub fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name)
}

/// Returns the path of the newest `clang-N` in `PATH` with N of at least 15, or of plain `clang` if
/// there is none. `None` if there is no clang of version `least` or newer.
pub fn clang(least: u32) -> Option<PathBuf> {
    let versioned = (least.max(15)..40).rev().map(|version| format!("clang-{version}"));
    versioned.chain(["clang".to_owned()]).find_map(|name| {
        let file = in_path(&name)?;
        let output = Command::new(&file).arg("-dumpversion").output().ok()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let version: u32 = text.split('.').next()?.trim().parse().ok()?;
        (version >= least).then_some(file)
    })
}

/// Returns the path of the compiler with this name in `PATH`. For the names `clang` and `clang++`,
/// returns the compiler of the version that [`clang`] finds.
pub fn compiler(name: &str) -> Option<PathBuf> {
    let Some(end) = name.strip_prefix("clang") else { return in_path(name) };
    let c = clang(0)?;
    let file = c.file_name()?.to_str()?.replacen("clang", &format!("clang{end}"), 1);
    Some(c.with_file_name(file)).filter(|file| file.is_file())
}

fn in_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file())
}

/// Compiles a file of `tests/programs` to `to`. All warnings are errors. Returns `None` if
/// [`compiler`] does not find the compiler `name`.
///
/// # Panics
/// Panics with the compiler's messages if the file does not compile.
pub fn compile(name: &str, source: &str, to: &Path, flags: &[&str]) -> Option<()> {
    let mut command = Command::new(compiler(name)?);
    command.args(["-O2", "-Wall", "-Wextra", "-Werror", "-I"]).arg(folder("include"));
    command.arg("-o").arg(to).arg(folder("tests/programs").join(source)).args(flags);
    let output = command.output().ok()?;
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name} {source}: {text}");
    Some(())
}

/// Like [`compile`], for a shared object.
pub fn shared(compiler: &str, source: &str, to: &Path, flags: &[&str]) -> Option<()> {
    let mut all = vec!["-std=c11", "-fPIC", "-shared"];
    all.extend(flags);
    compile(compiler, source, to, &all)
}
