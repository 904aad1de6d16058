//! The error with which a command fails: a line for each problem, then lines with advice. Each
//! problem's line says what failed, for which file or argument, and why.

use std::fmt::Display;
use std::io;
use std::process::ExitCode;

use crate::terminal::say;

/// An error that can contain advice for the user. The error types of other crates contain no
/// advice.
#[derive(Debug)]
pub struct Failure {
    messages: Vec<String>,
    hints: Vec<String>,
    quiet: bool,
    code: u8,
}

impl Failure {
    pub fn new(message: impl Display) -> Self {
        Self::several([message])
    }

    /// Makes a failure with several messages, which are printed one per line.
    pub fn several<M: Display>(messages: impl IntoIterator<Item = M>) -> Self {
        let messages = messages.into_iter().map(|message| message.to_string()).collect();
        Self { messages, hints: Vec::new(), quiet: false, code: 2 }
    }

    pub fn messages(&self) -> &[String] {
        &self.messages
    }

    /// Makes a failure from an error of writing to `path`, where `-` is standard output.
    pub fn writing(path: &std::path::Path, error: io::Error) -> Self {
        match path.as_os_str() == "-" {
            true => error.into(),
            false => Self::new(format!("write {}: {error}", path.display())),
        }
    }

    /// Sets one hint, which says what to type or change, and replaces earlier hints.
    pub fn hint(self, hint: impl Display) -> Self {
        self.hints([hint])
    }

    /// Like [`Self::hint`]; `None` keeps earlier hints.
    pub fn advise(self, advice: Option<String>) -> Self {
        match advice {
            Some(advice) => self.hint(advice),
            None => self,
        }
    }

    /// Sets several hints, which replace earlier hints.
    pub fn hints<H: Display>(mut self, hints: impl IntoIterator<Item = H>) -> Self {
        self.hints = hints.into_iter().map(|hint| hint.to_string()).collect();
        self
    }

    /// Sets the exit code, which is 2 by default.
    pub fn exit_code(mut self, code: u8) -> Self {
        self.code = code;
        self
    }

    /// Prints the failure on stderr and returns its exit code. Prints nothing and returns 0 if the
    /// failure is only that the reader of stdout has closed the pipe.
    pub fn report(self) -> ExitCode {
        if self.quiet {
            return ExitCode::SUCCESS;
        }
        self.messages.iter().for_each(|message| say!("{message}"));
        self.hints.iter().for_each(|hint| say!("hint: {hint}"));
        ExitCode::from(self.code)
    }
}

/// Converts an error of writing to stdout. A closed pipe (`| head`) is not a failure.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        let quiet = error.kind() == io::ErrorKind::BrokenPipe;
        Self { quiet, ..Self::new(format!("write output: {error}")) }
    }
}
