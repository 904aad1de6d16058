//! Defines the error of a counter list that cannot be used, with its place in the typed text.

use crate::cause::NameCause;

/// The reason why a counter list cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("counter list, byte {at}: {kind}")]
pub struct NameError {
    pub kind: NameErrorKind,
    /// Byte offset in the typed text.
    pub at: usize,
    /// The cause, from which the command line makes advice.
    pub cause: Option<NameCause>,
}

/// The kind of a [`NameError`]. The text of a variant does not include the place of the error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameErrorKind {
    /// The text is not a counter list.
    #[error("expected {expected}, found {}", shown(*found))]
    Syntax {
        /// As in `"," between counters`.
        expected: &'static str,
        /// `None` at the end of the text.
        found: Option<char>,
    },
    /// No source of names has the name.
    #[error("unknown counter {name:?}")]
    Unknown {
        /// The name as it was typed.
        name: String,
    },
    /// The letter after the colon is not a modifier.
    #[error("unknown modifier {letter:?}")]
    UnknownModifier {
        /// The letter.
        letter: char,
    },
    /// The letter is a modifier in perf that has no meaning here, for example one for sampling.
    #[error("modifier {letter:?} means nothing when counting: {why}")]
    UselessModifier {
        /// The letter.
        letter: char,
        /// Why it has no meaning.
        why: String,
    },
    /// The counter belongs to a device whose counters cannot be counted on this machine.
    #[error("no counters of {device} here: {missing}")]
    NoSource {
        /// PAPI's component.
        device: String,
        /// What is missing.
        missing: String,
    },
    /// The PMU has no event or term with the name that was typed between the slashes.
    #[error("{pmu} has no event or term {term:?}")]
    UnknownTerm {
        /// The PMU.
        pmu: String,
        /// The term as it was typed.
        term: String,
    },
    /// A value or a name in the list cannot be used.
    #[error("{text:?}: {problem}")]
    Value {
        /// The value or name.
        text: String,
        /// Why it cannot be used, as in `umask has 8 bits`.
        problem: String,
    },
    /// This version cannot count a counter of this kind.
    #[error("not supported yet: {what}")]
    Unsupported {
        /// What cannot be counted.
        what: String,
    },
    /// The machine does not have the counter, or a file about it could not be read.
    #[error("{problem}")]
    Machine {
        /// What is missing, or the path and the error.
        problem: String,
    },
    /// Two counters of the list have the same name.
    #[error("{name:?} is listed twice")]
    Twice {
        /// The name.
        name: String,
    },
    /// The counters cannot be grouped as they were typed.
    #[error("{problem}")]
    Group {
        /// The reason.
        problem: String,
    },
}

impl NameError {
    pub(crate) fn new(kind: NameErrorKind, at: usize) -> Self {
        Self { kind, at, cause: None }
    }

    pub(crate) fn expected(expected: &'static str, text: &str, at: usize) -> Self {
        let found = text.get(at..).and_then(|rest| rest.chars().next());
        Self::new(NameErrorKind::Syntax { expected, found }, at)
    }

    pub(crate) fn because(mut self, cause: NameCause) -> Self {
        self.cause = Some(cause);
        self
    }

    /// Returns the message without the place.
    pub fn what(&self) -> String {
        self.kind.to_string()
    }

    /// Returns the text and, on a second line, a `^` under the place of the error.
    pub fn pointed_at(&self, text: &str) -> String {
        let before = text.get(..self.at).map_or(0, |b| b.chars().count());
        format!("{text}\n{:before$}^", "")
    }
}

fn shown(found: Option<char>) -> String {
    found.map_or_else(|| "the end".to_owned(), |c| format!("{c:?}"))
}
