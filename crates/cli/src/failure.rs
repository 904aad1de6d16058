//! How a command fails: a line for each thing that went wrong, which says what, on what and why,
//! and advice.

use std::fmt::Display;
use std::io;
use std::process::ExitCode;

use crate::terminal::say;

/// An error that ends the command, with the advice that is added once, here.
#[derive(Debug)]
pub struct Failure {
    messages: Vec<String>,
    hints: Vec<String>,
    quiet: bool,
    code: u8,
}

impl Failure {
    /// A failure without advice.
    pub fn new(message: impl Display) -> Self {
        Self::several([message])
    }

    /// Several things that went wrong, a line each.
    pub fn several<M: Display>(messages: impl IntoIterator<Item = M>) -> Self {
        let messages = messages.into_iter().map(|message| message.to_string()).collect();
        Self { messages, hints: Vec::new(), quiet: false, code: 2 }
    }

    /// An error of writing to this path; `-` is standard output.
    pub fn writing(path: &std::path::Path, error: io::Error) -> Self {
        match path.as_os_str() == "-" {
            true => error.into(),
            false => Self::new(format!("write {}: {error}", path.display())),
        }
    }

    /// The same failure with one piece of advice: what to type or change. It replaces an earlier
    /// one.
    pub fn hint(self, hint: impl Display) -> Self {
        self.hints([hint])
    }

    /// The same failure with this advice, if there is some. An earlier one stays otherwise.
    pub fn advise(self, advice: Option<String>) -> Self {
        match advice {
            Some(advice) => self.hint(advice),
            None => self,
        }
    }

    /// The same failure with several.
    pub fn hints<H: Display>(mut self, hints: impl IntoIterator<Item = H>) -> Self {
        self.hints = hints.into_iter().map(|hint| hint.to_string()).collect();
        self
    }

    /// The same failure with another exit code than 2.
    pub fn exit_code(mut self, code: u8) -> Self {
        self.code = code;
        self
    }

    /// Says it on stderr and gives its exit code, or 0 without a word for a reader that went away.
    pub fn report(self) -> ExitCode {
        if self.quiet {
            return ExitCode::SUCCESS;
        }
        self.messages.iter().for_each(|message| say!("{message}"));
        self.hints.iter().for_each(|hint| say!("hint: {hint}"));
        ExitCode::from(self.code)
    }
}

/// Errors of writing to stdout. A closed pipe (`| head`) is not a failure.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        let quiet = error.kind() == io::ErrorKind::BrokenPipe;
        Self { quiet, ..Self::new(format!("write output: {error}")) }
    }
}
