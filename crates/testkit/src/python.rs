//! Runs Python for tests that compare our results with those of an independent program.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::skips::skip;

/// Returns the path of the test environment's Python, if that Python can import `modules` (for
/// example `numpy, scipy.stats`). Otherwise, reports `test` as skipped.
pub fn with(test: &str, modules: &str) -> Option<PathBuf> {
    let Some(venv) = std::env::var_os("COUNTERPOINT_VENV") else {
        skip(test, "COUNTERPOINT_VENV is not set (cargo xtask test sets it)");
        return None;
    };
    let python = PathBuf::from(venv).join("bin/python");
    let import = format!("import {modules}");
    let found = Command::new(&python).args(["-c", &import]).stderr(Stdio::null()).status();
    if found.is_ok_and(|status| status.success()) {
        return Some(python);
    }
    skip(test, &format!("{} cannot {import}", python.display()));
    None
}

/// Runs the Python code `program` with `input` on its standard input, and returns its standard
/// output.
///
/// # Panics
/// Panics if the program cannot be started, fails, or prints something that is not UTF-8.
pub fn run(python: &Path, program: &str, input: &str) -> String {
    let mut child = Command::new(python)
        .args(["-c", program])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("start Python");
    let mut stdin = child.stdin.take().expect("it is a pipe");
    let output = std::thread::scope(|scope| {
        // A failed write is ignored, because a program that ends early does not read all of its
        // input. The exit status says whether the program failed.
        scope.spawn(move || {
            let _ = stdin.write_all(input.as_bytes());
        });
        child.wait_with_output().expect("wait for Python")
    });
    assert!(output.status.success(), "the program in Python failed: {}", output.status);
    String::from_utf8(output.stdout).expect("the program prints UTF-8")
}
