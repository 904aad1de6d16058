//! Compiles C programs of `tests/programs` for tests.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The repository's folder with this name: `include`, `tests/programs`.
pub fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name)
}

/// Compiles a file of `tests/programs` to `to`, with all warnings as errors. `None`: there is no such
/// compiler.
///
/// # Panics
/// It does not compile; the compiler's text is the message.
pub fn compile(compiler: &str, source: &str, to: &Path, flags: &[&str]) -> Option<()> {
    let mut command = Command::new(compiler);
    command.args(["-O2", "-Wall", "-Wextra", "-Werror", "-I"]).arg(folder("include"));
    command.arg("-o").arg(to).arg(folder("tests/programs").join(source)).args(flags);
    let output = command.output().ok()?;
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{compiler} {source}: {text}");
    Some(())
}

/// Compiles a shared object, as [`compile`].
pub fn shared(compiler: &str, source: &str, to: &Path, flags: &[&str]) -> Option<()> {
    let mut all = vec!["-std=c11", "-fPIC", "-shared"];
    all.extend(flags);
    compile(compiler, source, to, &all)
}
