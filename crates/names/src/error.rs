//! The one error of names: what is wrong, and where.

use crate::cause::Cause;

/// A counter list that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("counter list, byte {at}: {kind}")]
pub struct NameError {
    /// What is wrong.
    pub kind: NameErrorKind,
    /// Byte offset in the typed text.
    pub at: usize,
    /// What led to it, as far as that is known and the kind does not say it.
    pub cause: Option<Cause>,
}

/// What is wrong with a counter list; its text does not say where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameErrorKind {
    /// Not a counter list: what was expected, and what is there.
    #[error("expected {expected}, found {}", shown(*found))]
    Syntax {
        /// As in "expected …".
        expected: &'static str,
        /// The character there; `None` is the end.
        found: Option<char>,
    },
    /// No source of names knows it.
    #[error("unknown counter {name:?}")]
    Unknown {
        /// What was typed.
        name: String,
    },
    /// An unknown letter after the colon.
    #[error("unknown modifier {letter:?}")]
    UnknownModifier {
        /// The letter.
        letter: char,
    },
    /// A letter that perf knows, but that has no meaning when counting.
    #[error("modifier {letter:?} means nothing when counting: {why}")]
    UselessModifier {
        /// The letter.
        letter: char,
        /// Why.
        why: String,
    },
    /// A counter of a device for which this version has no source, or whose source cannot work.
    #[error("no counters of {device} here: {missing}")]
    NoSource {
        /// The device.
        device: String,
        /// What is missing.
        missing: String,
    },
    /// A term between slashes that its PMU does not know.
    #[error("{pmu} has no event or term {term:?}")]
    UnknownTerm {
        /// The PMU.
        pmu: String,
        /// What was typed.
        term: String,
    },
    /// A value that does not fit: of what, and why not.
    #[error("{text:?}: {problem}")]
    Value {
        /// What was typed.
        text: String,
        /// As in "…: a number that fits 8 bits".
        problem: String,
    },
    /// Understood, but not possible in this version, or not when counting.
    #[error("not supported yet: {what}")]
    Unsupported {
        /// What.
        what: String,
    },
    /// This machine could not be asked: the file and the reason.
    #[error("{problem}")]
    Machine {
        /// A path and an error.
        problem: String,
    },
    /// Two counters would have the same name in every table.
    #[error("{name:?} is listed twice")]
    Twice {
        /// The name.
        name: String,
    },
    /// The counters cannot be grouped as typed.
    #[error("{problem}")]
    Group {
        /// Why.
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

    pub(crate) fn because(mut self, cause: Cause) -> Self {
        self.cause = Some(cause);
        self
    }

    /// What is wrong, without the place.
    pub fn what(&self) -> String {
        self.kind.to_string()
    }

    /// The typed text with a mark under the place: two lines for a terminal.
    pub fn pointed_at(&self, text: &str) -> String {
        let before = text.get(..self.at).map_or(0, |b| b.chars().count());
        format!("{text}\n{:before$}^", "")
    }
}

/// What stands in the text, for an error's words.
fn shown(found: Option<char>) -> String {
    found.map_or_else(|| "the end".to_owned(), |c| format!("{c:?}"))
}
