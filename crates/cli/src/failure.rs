//! How a command fails: one line that says what, on what and why, and at most one hint.

use std::fmt::Display;
use std::io;
use std::process::ExitCode;

/// An error that ends the command, with the advice that is added once, here.
#[derive(Debug)]
pub struct Failure {
    message: String,
    hint: Option<String>,
    quiet: bool,
}

impl Failure {
    /// A failure without advice.
    pub fn new(message: impl Display) -> Self {
        Self { message: message.to_string(), hint: None, quiet: false }
    }

    /// The same failure with one piece of advice: what to type or change.
    pub fn hint(mut self, hint: impl Display) -> Self {
        self.hint = Some(hint.to_string());
        self
    }

    /// Says it on stderr and gives exit code 2, or 0 without a word for a reader that went away.
    pub fn report(self) -> ExitCode {
        if self.quiet {
            return ExitCode::SUCCESS;
        }
        eprintln!("counterpoint: {}", self.message);
        if let Some(hint) = self.hint {
            eprintln!("counterpoint: hint: {hint}");
        }
        ExitCode::from(2)
    }
}

/// Errors of writing to stdout. A closed pipe (`| head`) is not a failure.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        let quiet = error.kind() == io::ErrorKind::BrokenPipe;
        Self { message: format!("write output: {error}"), hint: None, quiet }
    }
}
