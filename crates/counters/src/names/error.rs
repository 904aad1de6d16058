//! The one error of names: what is wrong, where, and what to type instead.

use std::fmt;

/// A counter list that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameError {
    /// What is wrong.
    pub kind: NameErrorKind,
    /// Byte offset in the typed text.
    pub at: usize,
    /// Advice, for the CLI to print on a line of its own.
    pub hint: Option<String>,
}

/// What is wrong with a counter list.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NameErrorKind {
    /// Not a counter list: what was expected, and what is there.
    Syntax {
        /// As in "expected …".
        expected: &'static str,
        /// The character there; `None` is the end.
        found: Option<char>,
    },
    /// No source of names knows it.
    Unknown {
        /// What was typed.
        name: String,
    },
    /// A letter behind the colon that nobody knows.
    UnknownModifier {
        /// The letter.
        letter: char,
    },
    /// A letter that perf knows and that means nothing when counting.
    UselessModifier {
        /// The letter.
        letter: char,
        /// Why.
        why: String,
    },
    /// A counter of a device for which this version has no source, or whose source cannot work.
    NoSource {
        /// The device.
        device: String,
        /// What is missing.
        missing: String,
    },
    /// A term between slashes that its PMU does not know.
    UnknownTerm {
        /// The PMU.
        pmu: String,
        /// What was typed.
        term: String,
    },
    /// A value that does not fit: of what, and why not.
    Value {
        /// What was typed.
        text: String,
        /// As in "…: a number that fits 8 bits".
        problem: String,
    },
    /// Understood, but not possible in this version, or not when counting.
    Unsupported {
        /// What.
        what: String,
    },
    /// This machine could not be asked: the file and the reason.
    Machine {
        /// A path and an error.
        problem: String,
    },
    /// Two counters would have the same name in every table.
    Twice {
        /// The name.
        name: String,
    },
    /// The counters cannot be grouped as typed.
    Group {
        /// Why.
        problem: String,
    },
}

impl NameError {
    pub(crate) fn new(kind: NameErrorKind, at: usize) -> Self {
        Self { kind, at, hint: None }
    }

    pub(crate) fn expected(expected: &'static str, text: &str, at: usize) -> Self {
        let found = text.get(at..).and_then(|rest| rest.chars().next());
        Self::new(NameErrorKind::Syntax { expected, found }, at)
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
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

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "counter list, byte {}: {}", self.at, self.kind)
    }
}

/// Without the place.
impl fmt::Display for NameErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NameErrorKind::Syntax { expected, found: Some(c) } => {
                write!(f, "expected {expected}, found {c:?}")
            }
            NameErrorKind::Syntax { expected, found: None } => {
                write!(f, "expected {expected}, found the end")
            }
            NameErrorKind::Unknown { name } => write!(f, "unknown counter {name:?}"),
            NameErrorKind::UnknownModifier { letter } => {
                write!(f, "unknown modifier {letter:?}")
            }
            NameErrorKind::UselessModifier { letter, why } => {
                write!(f, "modifier {letter:?} means nothing when counting: {why}")
            }
            NameErrorKind::NoSource { device, missing } => {
                write!(f, "no counters of {device} here: {missing}")
            }
            NameErrorKind::UnknownTerm { pmu, term } => {
                write!(f, "{pmu} has no event or term {term:?}")
            }
            NameErrorKind::Value { text, problem } => write!(f, "{text:?}: {problem}"),
            NameErrorKind::Unsupported { what } => write!(f, "not supported yet: {what}"),
            NameErrorKind::Machine { problem } => f.write_str(problem),
            NameErrorKind::Twice { name } => write!(f, "{name:?} is listed twice"),
            NameErrorKind::Group { problem } => f.write_str(problem),
        }
    }
}

impl std::error::Error for NameError {}
