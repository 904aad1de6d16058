//! Runs a program, usually `counterpoint`, and compares its output with golden files (files with
//! the expected output).

use std::path::{Path, PathBuf};
use std::process::Command;

/// The outcome of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// The exit code. `None` if a signal ended the program.
    pub code: Option<i32>,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

/// A program under test, the folder of its expected outputs, and the texts to replace in its real
/// outputs.
#[derive(Clone, Debug)]
pub struct Golden {
    program: PathBuf,
    golden: PathBuf,
    scrub: Vec<(String, String)>,
}

impl Golden {
    /// `program` is usually `env!("CARGO_BIN_EXE_counterpoint")`.
    pub fn new(program: impl Into<PathBuf>, golden: impl Into<PathBuf>) -> Self {
        Self { program: program.into(), golden: golden.into(), scrub: Vec::new() }
    }

    /// Replaces `text` (for example a path or a version) by `by` in all output.
    pub fn scrub(mut self, text: impl Into<String>, by: impl Into<String>) -> Self {
        self.scrub.push((text.into(), by.into()));
        self
    }

    /// Runs the program. The environment is set so that the output does not depend on the terminal.
    ///
    /// # Panics
    /// Panics if the program cannot be started.
    pub fn run(&self, args: &[&str]) -> Output {
        let output = Command::new(&self.program)
            .args(args)
            .env("COLUMNS", "120")
            .env("NO_COLOR", "1")
            .env("LC_ALL", "C")
            .output()
            .expect("the program starts");
        let text = |bytes: &[u8]| {
            let mut text = String::from_utf8_lossy(bytes).into_owned();
            for (from, to) in &self.scrub {
                text = text.replace(from.as_str(), to);
            }
            text
        };
        Output {
            code: output.status.code(),
            stdout: text(&output.stdout),
            stderr: text(&output.stderr),
        }
    }

    /// Runs the program, which must succeed and print one JSON document.
    ///
    /// # Panics
    /// Panics if the program fails or does not print one JSON document.
    pub fn json(&self, args: &[&str]) -> serde_json::Value {
        let output = self.run(args);
        assert_eq!(output.code, Some(0), "{args:?}: {}", output.stderr);
        serde_json::from_str(&output.stdout).unwrap_or_else(|e| panic!("{args:?}: {e}"))
    }

    /// Runs the program, and compares stdout with `NAME.out` and stderr with `NAME.err`. A missing
    /// file is the same as an empty one. If an output differs from its file and `UPDATE_GOLDEN=1`
    /// is in the environment, the output replaces the file, and the check passes. An empty output
    /// then removes the file.
    ///
    /// # Panics
    /// Panics if the output differs (without `UPDATE_GOLDEN=1`), or if the exit code is not `code`.
    pub fn check(&self, name: &str, code: i32, args: &[&str]) -> Output {
        let output = self.check_stdout(name, code, args);
        self.compare(&self.golden.join(format!("{name}.err")), &output.stderr);
        output
    }

    /// Like [`Golden::check`], but does not compare stderr, because some commands print a different
    /// stderr in each run.
    ///
    /// # Panics
    /// Panics if stdout differs (without `UPDATE_GOLDEN=1`), or if the exit code is not `code`.
    pub fn check_stdout(&self, name: &str, code: i32, args: &[&str]) -> Output {
        let output = self.run(args);
        self.compare(&self.golden.join(format!("{name}.out")), &output.stdout);
        assert_eq!(output.code, Some(code), "{name}: exit code; stderr: {}", output.stderr);
        output
    }

    fn compare(&self, path: &Path, actual: &str) {
        let expected = std::fs::read_to_string(path).unwrap_or_default();
        if expected == actual {
            return;
        }
        if std::env::var_os("UPDATE_GOLDEN").is_some_and(|v| v == "1") {
            std::fs::create_dir_all(&self.golden).expect("create the golden directory");
            if actual.is_empty() {
                std::fs::remove_file(path).expect("remove a golden file");
            } else {
                std::fs::write(path, actual).expect("write a golden file");
            }
            return;
        }
        panic!(
            "{} differs (UPDATE_GOLDEN=1 rewrites it)\n--- expected\n{expected}\n--- actual\n{actual}",
            path.display()
        );
    }
}
